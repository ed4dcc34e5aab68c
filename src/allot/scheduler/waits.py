"""Waiting for what the watch of claims brings: for devices to become ready, and for an own write to be seen."""

from __future__ import annotations

import asyncio

from allot.client.informer import Change, Informer
from allot.core.model.resource_v1 import ResourceClaim


class ClaimWaits:
    """Wakes those who wait for a claim to change."""

    def __init__(self, informer: Informer[ResourceClaim]) -> None:
        self._informer = informer
        self._events: dict[str, asyncio.Event] = {}

    def told(self, change: Change[ResourceClaim]) -> None:
        """A claim has changed; to be called after everybody else has been told."""
        if self._events:
            event = self._events.pop(change.key, None)
            if event is not None:
                event.set()

    def changed(self, key: str) -> asyncio.Event:
        """What is set with the next change of a claim."""
        event = self._events.get(key)
        if event is None:
            event = self._events[key] = asyncio.Event()
        return event

    async def wait(self, event: asyncio.Event, timeout_s: float) -> bool:
        """Until then, but no longer than that; whether it was in time."""
        try:
            async with asyncio.timeout(timeout_s):
                await event.wait()
        except TimeoutError:
            return False
        return True

    async def seen(self, key: str, version: str, timeout_s: float) -> bool:
        """Until a claim was seen in that version, with which everything written before it was seen too; whether it was in
        time."""
        try:
            async with asyncio.timeout(timeout_s):
                while not self._has_reached(key, version):
                    await self.changed(key).wait()
        except TimeoutError:
            return False
        return True

    def is_allocated(self, key: str) -> bool:
        """Whether the watch has shown a claim with an allocation."""
        claim = self._informer.cache.get(key)
        return claim is not None and claim.status.allocation is not None

    def _has_reached(self, key: str, version: str) -> bool:
        claim = self._informer.cache.get(key)
        if claim is None:
            return False
        known = claim.metadata.resource_version
        return known == version or (known.isdigit() and version.isdigit() and int(known) >= int(version))
