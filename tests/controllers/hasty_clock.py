"""A clock for controllers that wait for seconds and minutes, in tests that do not."""

from __future__ import annotations

import asyncio
import time

from allot.process.clock import SystemClock


class HastyClock(SystemClock):
    """A clock on which time passes quickly."""

    SPEED = 300.0

    def __init__(self) -> None:
        super().__init__()
        self._start, self._start_day = time.monotonic(), time.time()

    def seconds(self) -> float:
        """The time of day."""
        return self._start_day + self.monotonic() - self._start

    def monotonic(self) -> float:
        """Seconds that never go back."""
        return self._start + (time.monotonic() - self._start) * self.SPEED

    async def sleep(self, seconds: float) -> None:
        """Let time pass."""
        await asyncio.sleep(seconds / self.SPEED)
