"""Timeouts of many short requests, with one timer for all of them.

A timer for each would cost a tenth of an in-process request, and hardly any ever fires. So long timeouts are checked once a
second and fire up to a second late; short ones have their own timer.
"""

from __future__ import annotations

import asyncio
from types import TracebackType

PRECISE_BELOW_S = 5.0
LOOK_EVERY_S = 1.0


class Deadlines:
    """The timeouts of one event loop's requests."""

    __slots__ = ("_loop", "_timer", "_waits")

    def __init__(self) -> None:
        self._waits: set[Deadline] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def within(self, seconds: float) -> Deadline:
        """A context manager that cancels its block and raises TimeoutError if it takes longer."""
        return Deadline(self, seconds)

    def begin(self, wait: Deadline, loop: asyncio.AbstractEventLoop) -> None:
        """Enter a block whose timeout need not be exact."""
        self._waits.add(wait)
        if self._timer is None or self._loop is not loop:
            self._loop = loop
            self._timer = loop.call_later(LOOK_EVERY_S, self._look)

    def end(self, wait: Deadline) -> None:
        """Leave a block."""
        self._waits.discard(wait)

    def _look(self) -> None:
        self._timer = None
        if not self._waits or self._loop is None:
            return
        now = self._loop.time()
        for wait in self._waits:
            if now >= wait.due:
                wait.expire()
        self._timer = self._loop.call_later(LOOK_EVERY_S, self._look)


class Deadline:
    """One block."""

    __slots__ = ("_cancelling", "_deadlines", "_expired", "_seconds", "_task", "_timer", "due")

    def __init__(self, deadlines: Deadlines, seconds: float) -> None:
        self._deadlines = deadlines
        self._seconds = seconds
        self._expired = False
        self._timer: asyncio.TimerHandle | None = None
        self.due = 0.0

    def __enter__(self) -> None:
        loop = asyncio.get_running_loop()
        task = asyncio.current_task(loop)
        assert task is not None, "requests are made by tasks"
        self._task = task
        self._cancelling = task.cancelling()
        if self._seconds < PRECISE_BELOW_S:
            self._timer = loop.call_later(max(self._seconds, 0.0), self.expire)
        else:
            self.due = loop.time() + self._seconds
            self._deadlines.begin(self, loop)

    def __exit__(
        self, type_: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._timer is None:
            self._deadlines.end(self)
        else:
            self._timer.cancel()
        # If someone else also cancelled the task, it stays cancelled.
        if self._expired and self._task.uncancel() <= self._cancelling and type_ is asyncio.CancelledError:
            raise TimeoutError from error

    def expire(self) -> None:
        """Cancel the block because its time is over."""
        if not self._expired:
            self._expired = True
            self._task.cancel()
