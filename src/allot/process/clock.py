"""The clock. Everything that needs the time gets a Clock, so that tests and the simulator can control it.

The only module that reads the machine's clocks.
"""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from functools import lru_cache
from typing import Protocol


class Clock(Protocol):
    """Tells the time, and lets it pass."""

    def now(self) -> str:
        """The time of day in whole seconds as API objects carry it (RFC 3339, UTC)."""

    def now_micro(self) -> str:
        """The time of day with microseconds, as leases and events carry it."""

    def seconds(self) -> float:
        """The time of day in seconds since 1970."""

    def monotonic(self) -> float:
        """Seconds that never go back, for measuring."""

    async def sleep(self, seconds: float) -> None:
        """Let time pass."""


class SystemClock:
    """The machine's clock."""

    __slots__ = ("_second", "_text")

    def __init__(self) -> None:
        self._second = -1
        self._text = ""

    def now(self) -> str:
        """The time of day in whole seconds; the text is made once per second."""
        second = int(time.time())
        if second != self._second:
            self._second, self._text = second, rfc3339(second)
        return self._text

    def now_micro(self) -> str:
        """The time of day with microseconds."""
        nanoseconds = time.time_ns()
        second = nanoseconds // 1_000_000_000
        if second != self._second:
            self._second, self._text = second, rfc3339(second)
        return f"{self._text[:-1]}.{nanoseconds // 1_000 % 1_000_000:06d}Z"

    # The interpreter's own: dozens of calls for every pod.
    seconds = staticmethod(time.time)
    monotonic = staticmethod(time.monotonic)

    async def sleep(self, seconds: float) -> None:
        """Let time pass."""
        await asyncio.sleep(seconds)


class ManualClock:
    """A clock that stands still until it is moved."""

    def __init__(self, seconds: float = 1_800_000_000.0) -> None:
        self._seconds = seconds
        self._changed = asyncio.Event()

    def advance(self, seconds: float) -> None:
        """Move on, and wake sleepers whose time has come."""
        self._seconds += seconds
        self._changed.set()
        self._changed = asyncio.Event()

    def now(self) -> str:
        """The time of day in whole seconds."""
        return rfc3339(int(self._seconds))

    def now_micro(self) -> str:
        """The time of day with microseconds."""
        return datetime.fromtimestamp(self._seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")

    def seconds(self) -> float:
        """The time of day in seconds since 1970."""
        return self._seconds

    def monotonic(self) -> float:
        """Seconds that never go back."""
        return self._seconds

    async def sleep(self, seconds: float) -> None:
        """Wait until the clock has been moved far enough."""
        until = self._seconds + seconds
        while self._seconds < until:
            await self._changed.wait()


def processor_seconds() -> float:
    """The processor time that this process has used, to measure the cost of work independent of other load."""
    return time.process_time()


@lru_cache(maxsize=64)
def rfc3339(seconds: int) -> str:
    """A time of day as API objects carry it."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
