"""Timeouts of many short requests, with one timer for all of them.

A timer for each costs as much as a tenth of a request in the same process, and hardly any ever goes off. So long timeouts are
looked at once a second and go off up to a second late; short ones have a timer of their own.
"""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager
from types import TracebackType

PRECISE_BELOW_S = 5.0
LOOK_EVERY_S = 1.0


class Deadlines:
    """The timeouts of one event loop's requests."""

    __slots__ = ("_loop", "_timer", "_waits")

    def __init__(self) -> None:
        self._waits: set[_Wait] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def within(self, seconds: float) -> AbstractAsyncContextManager[object]:
        """A block that is cancelled, and then raises TimeoutError, if it takes longer."""
        return asyncio.timeout(seconds) if seconds < PRECISE_BELOW_S else _Wait(self, seconds)

    def begin(self, wait: _Wait) -> float:
        """A block has begun; the loop's time."""
        loop = asyncio.get_running_loop()
        self._waits.add(wait)
        if self._timer is None or self._loop is not loop:
            self._loop = loop
            self._timer = loop.call_later(LOOK_EVERY_S, self._look)
        return loop.time()

    def end(self, wait: _Wait) -> None:
        """A block has ended."""
        self._waits.discard(wait)

    def _look(self) -> None:
        self._timer = None
        if not self._waits or self._loop is None:
            return
        now = self._loop.time()
        for wait in self._waits:
            wait.expire(now)
        self._timer = self._loop.call_later(LOOK_EVERY_S, self._look)


class _Wait:
    """One block."""

    __slots__ = ("_cancelling", "_deadline", "_deadlines", "_expired", "_seconds", "_task")

    def __init__(self, deadlines: Deadlines, seconds: float) -> None:
        self._deadlines = deadlines
        self._seconds = seconds
        self._deadline = 0.0
        self._expired = False
        self._task: asyncio.Task[object] | None = None
        self._cancelling = 0

    async def __aenter__(self) -> object:
        task = asyncio.current_task()
        assert task is not None, "requests are made by tasks"
        self._task = task
        self._cancelling = task.cancelling()
        self._deadline = self._deadlines.begin(self) + self._seconds
        return self

    async def __aexit__(
        self, type_: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._deadlines.end(self)
        if not self._expired or self._task is None:
            return
        # Somebody else may have cancelled the task, too: then it stays cancelled.
        if self._task.uncancel() <= self._cancelling and type_ is asyncio.CancelledError:
            raise TimeoutError from error

    def expire(self, now: float) -> None:
        """Cancel the block if its time is over."""
        if now >= self._deadline and not self._expired and self._task is not None:
            self._expired = True
            self._task.cancel()
