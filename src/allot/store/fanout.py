"""Delivers changes to watches, without letting a slow watch use memory.

A watch has a bounded buffer. When it is full, nothing more is added; once the reader has emptied it, the watch continues from history,
or ends with `Compacted` if history no longer reaches back that far. A new watch starts the same way.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Iterable
from typing import Protocol

from allot.store.port import Event, Progress

_FOLDERS_MAX = 10_000


class History(Protocol):
    """Where a watch that is behind continues reading."""

    revision: int

    def changes(self, prefix: str, after: int, limit: int) -> tuple[list[Event], int]:
        """Up to limit changes below a prefix after a revision, and the revision up to which they are complete."""


class TimelineWatch:
    """A watch on a timeline. One reader at a time."""

    __slots__ = ("_fanout", "_waiter", "behind", "buffer", "closed", "position", "prefix")

    def __init__(self, fanout: Fanout, prefix: str, after: int) -> None:
        self.prefix = prefix
        # All changes up to here are delivered or in the buffer; kept up to date only while behind.
        self.position = after
        self.behind = True
        self.closed = False
        self.buffer: deque[Event | Progress] = deque()
        self._fanout = fanout
        self._waiter: asyncio.Future[None] | None = None

    def __aiter__(self) -> TimelineWatch:
        return self

    async def __anext__(self) -> Event | Progress:
        while not self.buffer:
            if self.closed:
                raise StopAsyncIteration
            if self.behind:
                self._fanout.catch_up(self)
                continue
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        return self.buffer.popleft()

    @property
    def has_ready(self) -> bool:
        """Whether the next change is already here."""
        return bool(self.buffer)

    def wake(self) -> None:
        """Let the reader check again."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    @property
    def idle(self) -> bool:
        """Whether the reader has everything and is waiting for more."""
        return not self.behind and not self.buffer and self._waiter is not None and not self._waiter.done()

    async def close(self) -> None:
        """Stop; buffered changes are dropped."""
        self.buffer.clear()
        self._fanout.leave(self)


class Fanout:
    """The watches of a timeline, found by the prefix of the changed key."""

    def __init__(self, history: History, *, buffer_max: int, progress_s: float) -> None:
        self._history = history
        self._buffer_max = buffer_max
        self._progress_s = progress_s
        self._watches: dict[str, set[TimelineWatch]] = {}
        # Prefixes end with a part of a key (a kind, a namespace of a kind), so a changed key looks up itself up to each of its
        # slashes instead of comparing with every watch. The few that do not are looked up by their lengths.
        self._odd_lengths: Counter[int] = Counter()
        # Folder of a key -> the watches on it or a parent; cleared when a watch is added or removed.
        self._watching: dict[str, tuple[set[TimelineWatch], ...]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    def catch_up(self, watch: TimelineWatch) -> None:
        """Fill the buffer from history; once history is exhausted, changes are delivered as they happen."""
        if self._closed:
            watch.closed = True
            return
        found, reached = self._history.changes(watch.prefix, watch.position, self._buffer_max)
        watch.buffer.extend(found)
        watch.position = reached
        if len(found) < self._buffer_max:
            watch.behind = False
            self._join(watch)

    def _join(self, watch: TimelineWatch) -> None:
        same = self._watches.setdefault(watch.prefix, set())
        if watch not in same:
            self._watching.clear()
            same.add(watch)
            if not watch.prefix.endswith("/"):
                self._odd_lengths[len(watch.prefix)] += 1
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._progress_s, self._report_progress)

    def leave(self, watch: TimelineWatch) -> None:
        """End a watch."""
        watch.closed = True
        same = self._watches.get(watch.prefix)
        if same is not None and watch in same:
            self._watching.clear()
            same.remove(watch)
            if not same:
                del self._watches[watch.prefix]
            if not watch.prefix.endswith("/"):
                length = len(watch.prefix)
                self._odd_lengths[length] -= 1
                if not self._odd_lengths[length]:
                    del self._odd_lengths[length]
        watch.wake()

    def deliver(self, event: Event) -> None:
        """Deliver a change to the watches on prefixes of its key."""
        key, watches = event.entry.key, self._watches
        folder = key[: key.rfind("/") + 1]
        watching = self._watching.get(folder)
        if watching is None:
            if len(self._watching) >= _FOLDERS_MAX:
                self._watching.clear()
            watching = self._watching[folder] = self._watches_above(folder)
        for same in watching:
            self._deliver_to(same, event)
        for length in self._odd_lengths:
            if length <= len(key):
                self._deliver_to(watches.get(key[:length], ()), event)

    def _watches_above(self, folder: str) -> tuple[set[TimelineWatch], ...]:
        found = []
        slash = folder.find("/")
        while slash >= 0:
            same = self._watches.get(folder[: slash + 1])
            if same is not None:
                found.append(same)
            slash = folder.find("/", slash + 1)
        return tuple(found)

    def _deliver_to(self, watches: Iterable[TimelineWatch], event: Event) -> None:
        for watch in watches:
            if watch.behind or event.revision <= watch.position:
                continue
            if len(watch.buffer) >= self._buffer_max:
                watch.behind = True
                watch.position = event.revision - 1
            else:
                watch.buffer.append(event)
                watch.wake()

    def _report_progress(self) -> None:
        self._timer = None
        revision = self._history.revision
        for same in self._watches.values():
            for watch in same:
                if watch.idle and watch.position < revision:
                    watch.position = revision
                    watch.buffer.append(Progress(revision))
                    watch.wake()
        if self._watches:
            self._timer = asyncio.get_running_loop().call_later(self._progress_s, self._report_progress)

    def close(self) -> None:
        """End all watches."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for watch in [watch for same in self._watches.values() for watch in same]:
            self.leave(watch)
