"""Announces what runs: a Lease that names controllers or schedulers, renewed while they run.

allot's API server reads it to warn users who create objects that no component acts on. Processes with the same components share a lease.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Iterable

from allot.client.api import Client
from allot.client.errors import AlreadyExists, ApiError, Forbidden, NotFound
from allot.core.lifecycle.attention import NAMESPACE, announcement
from allot.process.clock import Clock

_log = logging.getLogger("allot.client")

_DURATION_S = 60
_RENEW_S = 20.0
_RELEASE_S = 5.0


class Announcement:
    """What runs in this process. part: a component name, used in the name of the lease."""

    def __init__(self, client: Client, clock: Clock, part: str, running: Iterable[str], identity: str) -> None:
        self._leases = client.resource("coordination.k8s.io", "v1", "leases", namespaced=True)
        self._clock = clock
        self._running = tuple(sorted(running))
        self._identity = identity
        digest = hashlib.sha256(",".join(self._running).encode()).hexdigest()[:8]
        self.name = f"allot-{part}-{digest}"

    async def run(self) -> None:
        """Run until cancelled; then release the lease."""
        is_refused = False
        try:
            while True:
                try:
                    await self._write(self._identity)
                    is_refused = False
                except Forbidden as error:
                    # Logged once: components work without the announcement, and only allot's API server reads it.
                    _log.log(logging.DEBUG if is_refused else logging.INFO, "lease %s: %s", self.name, error)
                    is_refused = True
                except ApiError as error:
                    _log.warning("lease %s/%s: %s", NAMESPACE, self.name, error)
                await self._clock.sleep(_RENEW_S)
        finally:
            await self._release()

    async def _release(self) -> None:
        try:
            async with asyncio.timeout(_RELEASE_S):
                await self._write("")
        except (ApiError, TimeoutError) as error:
            _log.info("lease %s/%s: not released: %s", NAMESPACE, self.name, error or "no answer in time")

    async def _write(self, holder: str) -> None:
        lease = announcement(self.name, self._running, holder, _DURATION_S, self._clock.now_micro())
        try:
            found = await self._leases.get(self.name, NAMESPACE)
        except NotFound:
            try:
                await self._leases.create(lease, NAMESPACE)
            except AlreadyExists:
                # Another process with the same components was faster.
                pass
            return
        await self._leases.update({**found, **lease, "metadata": {**found["metadata"], **lease["metadata"]}}, NAMESPACE)
