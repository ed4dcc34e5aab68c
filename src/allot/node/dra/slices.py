"""Deletes ResourceSlices of this node without a driver: all when the agent starts, since no driver has
registered yet, and those of a driver that has been unregistered for a while.

Touches only slices with this node's name. Drivers publish theirs again when they notice.
"""

from __future__ import annotations

import asyncio
import logging

from allot.client.api import Client
from allot.client.backoff import Backoff
from allot.client.errors import ApiError, NotFound
from allot.process.clock import Clock
from allot.process.ids import Ids

_log = logging.getLogger("allot.node.dra")

DELAY_S = 30.0
LOOK_S = 1.0
PAUSE_FIRST_S = 1.0
PAUSE_MAX_S = 300.0


class SliceWiper:
    """Deletes slices of drivers that are gone."""

    def __init__(self, client: Client, node: str, clock: Clock, ids: Ids, *, delay_s: float = DELAY_S) -> None:
        self._slices = client.resource("resource.k8s.io", "v1", "resourceslices", namespaced=False)
        self._node = node
        self._clock = clock
        self._ids = ids
        self._delay_s = delay_s
        # When to delete the slices of a driver.
        self._due: dict[str, float] = {}
        self._usable: set[str] = set()
        self._look_s = min(LOOK_S, delay_s / 2)

    def driver_changed(self, driver: str, is_usable: bool) -> None:
        """A usable driver keeps its slices; an unusable one loses them after a delay."""
        if is_usable:
            self._usable.add(driver)
            self._due.pop(driver, None)
            return
        self._usable.discard(driver)
        self._due.setdefault(driver, self._clock.monotonic() + self._delay_s)

    async def run(self) -> None:
        """Run until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._wipe(""))
            while True:
                now = self._clock.monotonic()
                for driver in [driver for driver, at in self._due.items() if at <= now]:
                    tasks.create_task(self._wipe(driver))
                    del self._due[driver]
                await self._clock.sleep(self._look_s)

    async def _wipe(self, driver: str) -> None:
        """Delete slices, however long it takes to reach the server."""
        selector = f"spec.nodeName={self._node}"
        if driver:
            selector += f",spec.driver={driver}"
        backoff = Backoff(self._clock, self._ids, first_s=PAUSE_FIRST_S, max_s=PAUSE_MAX_S, jitter=0.2)
        # A driver that came back while the server was unreachable has published again.
        while driver not in self._usable:
            try:
                await self._slices.delete_collection(field_selector=selector)
            except NotFound:
                return
            except ApiError as error:
                _log.info("ResourceSlices with %s could not be deleted, trying again: %s", selector, error)
                await self._clock.sleep(backoff.next_s())
            else:
                return
