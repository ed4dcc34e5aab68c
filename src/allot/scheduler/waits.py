"""Waits for watch events: until devices and volumes are ready, or our own write is seen."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from allot.client.informer import Change, Informer
from allot.core.model.resource_v1 import ResourceClaim


class ChangeWaits:
    """Wakes tasks that wait for an object to change."""

    def __init__(self) -> None:
        self._events: dict[str, asyncio.Event] = {}

    def wake(self, key: str) -> None:
        """An object has changed; call this after all other handlers."""
        if self._events:
            event = self._events.pop(key, None)
            if event is not None:
                event.set()

    def changed(self, key: str) -> asyncio.Event:
        """An event that the next change of an object sets."""
        event = self._events.get(key)
        if event is None:
            event = self._events[key] = asyncio.Event()
        return event

    async def wait(self, event: asyncio.Event, timeout_s: float) -> bool:
        """Wait, up to a timeout. Returns whether it was in time."""
        try:
            async with asyncio.timeout(timeout_s):
                await event.wait()
        except TimeoutError:
            return False
        return True


class ClaimWaits(ChangeWaits):
    """Wakes tasks that wait for a claim to change, and remembers what was seen when it was allocated."""

    def __init__(self, informer: Informer[ResourceClaim], version: str = "") -> None:
        """version: the API version in which the server has claims."""
        super().__init__()
        self._informer = informer
        self.version = version
        # Claims are written back: in the form that the server sent, they need no encoding.
        informer.keep_sources()
        self.source = informer.source
        self._looks: dict[str, Callable[[], str]] = {}
        self._found: dict[str, str] = {}

    def told(self, change: Change[ResourceClaim]) -> None:
        """A claim has changed; call this after all other handlers."""
        if self._looks and change.new is not None and change.new.status.allocation is not None:
            look = self._looks.pop(change.key, None)
            if look is not None:
                self._found[change.key] = look()
        self.wake(change.key)

    def expect(self, key: str, look: Callable[[], str]) -> None:
        """A claim is about to be allocated: check, and remember the result, as soon as the watch shows it. At that moment
        the watch has shown everything written before it, and nothing written after it."""
        self._looks[key] = look
        self._found.pop(key, None)

    def expect_no_more(self, key: str) -> None:
        """It was not allocated after all."""
        self._looks.pop(key, None)
        self._found.pop(key, None)

    async def found(self, key: str, timeout_s: float) -> str | None:
        """What was found when the watch showed the claim's allocation; None if it did not do so in time."""
        if key not in self._looks and key not in self._found:
            # Another task wrote it, and checks it.
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
