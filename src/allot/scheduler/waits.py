"""Waits for watch events: until devices and volumes are ready, or an own write is seen."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from allot.client.informer import Change, Informer
from allot.core.model.resource_v1 import ResourceClaim


class ChangeWaits:
    """Wakes those who wait for an object to change."""

    def __init__(self) -> None:
        self._events: dict[str, asyncio.Event] = {}

    def wake(self, key: str) -> None:
        """An object has changed; to be called after everyone else has been told."""
        if self._events:
            event = self._events.pop(key, None)
            if event is not None:
                event.set()

    def changed(self, key: str) -> asyncio.Event:
        """What is set with the next change of an object."""
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


class ClaimWaits(ChangeWaits):
    """Wakes those who wait for a claim to change, and remembers what was seen when it was allocated."""

    def __init__(self, informer: Informer[ResourceClaim], version: str = "") -> None:
        """version: that of the API in which the server has claims."""
        super().__init__()
        self._informer = informer
        self.version = version
        # Claims are written back: as the server sent them, they need not be encoded.
        informer.keep_sources()
        self.source = informer.source
        self._looks: dict[str, Callable[[], str]] = {}
        self._found: dict[str, str] = {}

    def told(self, change: Change[ResourceClaim]) -> None:
        """A claim has changed; to be called after everyone else has been told."""
        if self._looks and change.new is not None and change.new.status.allocation is not None:
            look = self._looks.pop(change.key, None)
            if look is not None:
                self._found[change.key] = look()
        self.wake(change.key)

    def expect(self, key: str, look: Callable[[], str]) -> None:
        """A claim is about to be allocated: look, and remember what was found, as soon as the watch shows it. At that moment
        everything that was written before it has been shown, and nothing that was written after it."""
        self._looks[key] = look
        self._found.pop(key, None)

    def expect_no_more(self, key: str) -> None:
        """It was not allocated after all."""
        self._looks.pop(key, None)
        self._found.pop(key, None)

    async def found(self, key: str, timeout_s: float) -> str | None:
        """What was found when the watch showed the claim's allocation; None if it has not done so in time."""
        if key not in self._looks and key not in self._found:
            # Someone else has written it, and looks.
            return ""
        try:
            async with asyncio.timeout(timeout_s):
                while key not in self._found:
                    await self.changed(key).wait()
            return self._found[key]
        except TimeoutError:
            return None
        finally:
            self.expect_no_more(key)

    def is_allocated(self, key: str) -> bool:
        """Whether the watch has shown a claim with an allocation."""
        claim = self._informer.cache.get(key)
        return claim is not None and claim.status.allocation is not None
