"""Work queues: keys to work on, each at most once at a time, now, later, or with backoff after failures.

A key that is added while it waits is not added again; one that is added while it is processed is queued again afterwards. So the
queue never holds more than there are distinct keys, and two workers never have the same one. Items are hashable values.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import Hashable
from typing import Generic, Protocol, TypeVar

from allot.client.backoff import TokenBucket
from allot.process.clock import Clock

K = TypeVar("K", bound=Hashable)

# How many outdated entries, of items moved to an earlier time, may stay in the heap.
_LEFT_BEHIND_MAX = 64


class QueueShutDown(Exception):
    """The queue is shut down and empty."""


class QueueMetrics(Protocol):
    """The metrics of a queue; called as events happen."""

    def added(self, depth: int) -> None:
        """Count a queued item."""

    def taken(self, depth: int, waited_s: float) -> None:
        """Record that a worker has taken an item from the queue."""

    def done(self, worked_s: float) -> None:
        """Record that a worker has finished an item."""

    def retried(self) -> None:
        """Count an item queued again after a failure."""


class NoMetrics:
    """Measures nothing."""

    def added(self, depth: int) -> None:
        """Do nothing."""

    def taken(self, depth: int, waited_s: float) -> None:
        """Do nothing."""

    def done(self, worked_s: float) -> None:
        """Do nothing."""

    def retried(self) -> None:
        """Do nothing."""


class RateLimiter(Generic[K]):
    """How long a failed item waits: doubling with each of its failures, with a limit of items per second for
    all together. The numbers are client-go's."""

    def __init__(
        self,
        clock: Clock,
        *,
        first_s: float = 0.005,
        max_s: float = 1000.0,
        per_second: float = 10.0,
        burst: int = 100,
    ) -> None:
        self._first_s = first_s
        self._max_s = max_s
        self._bucket = TokenBucket(clock, per_second, burst)
        self._failures: dict[K, int] = {}

    def delay_s(self, item: K) -> float:
        """How long the item waits this time."""
        failures = self._failures.get(item, 0)
        self._failures[item] = failures + 1
        # 2**60 times the shortest pause exceeds every maximum; a larger power would eventually overflow a float.
        own = min(self._first_s * 2.0 ** min(failures, 60), self._max_s)
        return max(own, self._bucket.reserve_s())

    def forget(self, item: K) -> None:
        """Forget the failures of an item that succeeded or was given up."""
        self._failures.pop(item, None)

    def failures(self, item: K) -> int:
        """How often the item has failed."""
        return self._failures.get(item, 0)


class WorkQueue(Generic[K]):
    """Keys to work on. Workers loop: `item = await queue.get()`, work, `queue.done(item)`; they end on QueueShutDown."""

    def __init__(
        self, clock: Clock, *, limiter: RateLimiter[K] | None = None, metrics: QueueMetrics | None = None
    ) -> None:
        self._clock = clock
        self._limiter: RateLimiter[K] = limiter if limiter is not None else RateLimiter(clock)
        self._metrics: QueueMetrics = metrics if metrics is not None else NoMetrics()
        self._waiting: deque[K] = deque()
        # Items that wait or must be processed again, with the time when they were added.
        self._dirty: dict[K, float] = {}
        # Items in progress, with their start times.
        self._processing: dict[K, float] = {}
        # Delayed items: the time, and a number to keep the order of simultaneous ones.
        self._later: list[tuple[float, int, K]] = []
        self._due: dict[K, float] = {}
        self._count = 0
        self._is_shut_down = False
        self._woken = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()

    def __len__(self) -> int:
        """How many items wait, excluding delayed ones."""
        return len(self._waiting)

    def working_s(self) -> tuple[float, ...]:
        """For each item in progress, how long it has taken so far."""
        now = self._clock.monotonic()
        return tuple(now - since for since in self._processing.values())

    def add(self, item: K) -> None:
        """Queue an item."""
        if self._is_shut_down or item in self._dirty:
            return
        self._dirty[item] = self._clock.monotonic()
        if item not in self._processing:
            self._enqueue(item)

    def add_after(self, item: K, seconds: float) -> None:
        """Queue an item later. Of several times for one item, the earliest counts."""
        if self._is_shut_down:
            return
        if seconds <= 0:
            self.add(item)
            return
        due = self._clock.monotonic() + seconds
        if item in self._due and self._due[item] <= due:
            return
        self._due[item] = due
        self._count += 1
        heapq.heappush(self._later, (due, self._count, item))
        if len(self._later) > 2 * len(self._due) + _LEFT_BEHIND_MAX:
            self._later = [entry for entry in self._later if self._due.get(entry[2]) == entry[0]]
            heapq.heapify(self._later)
        self._woken.set()

    def add_rate_limited(self, item: K) -> None:
        """Queue an item again with backoff."""
        self._metrics.retried()
        self.add_after(item, self._limiter.delay_s(item))

    def forget(self, item: K) -> None:
        """Reset the failures of an item."""
        self._limiter.forget(item)

    def failures(self, item: K) -> int:
        """How often the item has failed since it was last forgotten."""
        return self._limiter.failures(item)

    async def get(self) -> K:
        """The next item, which belongs to the caller until `done`. QueueShutDown when there will be none."""
        while True:
            self._take_due()
            if self._waiting:
                return self._take()
            if self._is_shut_down:
                raise QueueShutDown
            self._woken.clear()
            await self._wait()

    def done(self, item: K) -> None:
        """Report that the caller has processed an item."""
        started = self._processing.pop(item)
        self._metrics.done(self._clock.monotonic() - started)
        if item in self._dirty:
            self._enqueue(item)
        elif not self._processing:
            self._idle.set()

    def shut_down(self) -> None:
        """Accept no more items; waiting ones are still handed out, delayed ones are dropped."""
        self._is_shut_down = True
        self._later.clear()
        self._due.clear()
        self._woken.set()

    async def drain(self) -> None:
        """Shut down and wait until workers are done with all waiting items and those in progress."""
        self.shut_down()
        while self._processing or self._waiting:
            self._idle.clear()
            if self._processing or self._waiting:
                await self._idle.wait()

    # --- inside ---

    def _enqueue(self, item: K) -> None:
        self._waiting.append(item)
        self._metrics.added(len(self._waiting))
        self._woken.set()

    def _take(self) -> K:
        item = self._waiting.popleft()
        now = self._clock.monotonic()
        added = self._dirty.pop(item)
        self._processing[item] = now
        self._metrics.taken(len(self._waiting), now - added)
        return item

    def _take_due(self) -> None:
        now = self._clock.monotonic()
        while self._later and self._later[0][0] <= now:
            due, _, item = heapq.heappop(self._later)
            # A stale entry of an item whose time was moved forward.
            if self._due.get(item) == due:
                del self._due[item]
                self.add(item)

    async def _wait(self) -> None:
        """Wait until something is added or a delayed item is due."""
        if not self._later:
            await self._woken.wait()
            return
        pause = self._later[0][0] - self._clock.monotonic()
        async with asyncio.TaskGroup() as tasks:
            waits = (tasks.create_task(self._woken.wait()), tasks.create_task(self._clock.sleep(pause)))
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            for wait in waits:
                wait.cancel()
