"""The current state of all keys, the kept history of changes, and the watches that follow them.

`memory` and `sqlite` serve reads and watches from it. It contains only facts: a write is added (`apply`) when it is
acknowledged, not before. Does not know files or waiting writes. Used from one event loop; no method waits.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from operator import attrgetter

from allot.store.entry import Entry
from allot.store.fanout import Fanout, TimelineWatch
from allot.store.port import ChangeCount, Compacted, Event, EventType, FutureRevision, Page
from allot.store.sortedkeys import SortedKeys, end_of

_revision_of = attrgetter("revision")
_ROOT_LENGTH = len("/registry/")


class Limits:
    """How much history and how many undelivered events are kept."""

    __slots__ = ("buffer_max", "history_bytes_max", "history_max", "progress_s")

    def __init__(
        self,
        *,
        history_max: int = 50_000,
        history_bytes_max: int = 256 * 1024 * 1024,
        buffer_max: int = 1_000,
        progress_s: float = 5.0,
    ) -> None:
        self.history_max = history_max
        self.history_bytes_max = history_bytes_max
        self.buffer_max = buffer_max
        self.progress_s = progress_s


class Timeline:
    """Current state, history and watches. `revision` is the newest; history goes back to `compacted`, not beyond."""

    def __init__(self, limits: Limits) -> None:
        self.entries: dict[str, Entry] = {}
        # As in etcd, an empty store is at revision 1 and the first write gets 2: no object ever has resourceVersion 0 or 1.
        self.revision = 1
        self.compacted = 0
        # Folder (`/registry/<name>/`) -> the revision of the newest change below it since the start.
        self.last_changes: dict[str, int] = {}
        self._counts: dict[str, list[ChangeCount]] = {}
        self._limits = limits
        self._keys = SortedKeys()
        self._history: list[Event] = []
        self._history_bytes = 0
        self._fanout = Fanout(self, buffer_max=limits.buffer_max, progress_s=limits.progress_s)

    def restore(self, entries: dict[str, Entry], history: list[Event], *, revision: int, compacted: int) -> None:
        """Take over what was read at start-up."""
        self.entries = entries
        self.revision = revision
        self.compacted = compacted
        self._keys = SortedKeys(entries)
        self._history = history
        self._history_bytes = sum(event.entry.size_bytes for event in history)

    def apply(self, event: Event) -> None:
        """Make a change visible: to reads at once, to watches as soon as they check."""
        key = event.entry.key
        assert event.revision > self.revision, f"revision {event.revision} after {self.revision}"
        if event.type is EventType.DELETED:
            del self.entries[key]
            self._keys.remove(key)
        else:
            if event.before is None:
                self._keys.add(key)
            self.entries[key] = event.entry
        self.revision = event.revision
        folder = key[: key.find("/", _ROOT_LENGTH) + 1]
        self.last_changes[folder] = event.revision
        if folder in self._counts:
            for count in self._counts[folder]:
                count.value += 1
        self._history.append(event)
        self._history_bytes += event.entry.size_bytes
        self._fanout.deliver(event)

    def count_changes(self, folders: Iterable[str]) -> ChangeCount:
        """A count that grows with every change below folders."""
        count = ChangeCount()
        for folder in folders:
            self._counts.setdefault(folder, []).append(count)
        return count

    # -- history ------------------------------------------------------------------------------------------------------

    def trim(self) -> list[Event]:
        """Drop the oldest history if it exceeds the limits. Returns what was dropped."""
        limits = self._limits
        count = len(self._history)
        # With slack, so that not every write trims.
        if count <= limits.history_max * 1.1 and self._history_bytes <= limits.history_bytes_max * 1.1:
            return []
        drop = max(count - limits.history_max, 0)
        size = self._history_bytes - sum(event.entry.size_bytes for event in islice(self._history, drop))
        while size > limits.history_bytes_max and drop < count - 1:
            size -= self._history[drop].entry.size_bytes
            drop += 1
        return self._drop(drop)

    def compact(self, revision: int) -> list[Event]:
        """Drop history up to a revision: the state as of it and the changes after it stay. Returns what was dropped."""
        if revision > self.revision:
            raise FutureRevision(revision, self.revision)
        if revision <= self.compacted:
            return []
        dropped = self._drop(self._after(revision))
        self.compacted = revision
        return dropped

    def _drop(self, count: int) -> list[Event]:
        dropped = self._history[:count]
        if dropped:
            del self._history[:count]
            self._history_bytes -= sum(event.entry.size_bytes for event in dropped)
            self.compacted = dropped[-1].revision
        return dropped

    def _after(self, revision: int) -> int:
        return bisect_right(self._history, revision, key=_revision_of)

    def check_kept(self, revision: int) -> None:
        """Raise unless the state as of a revision, and every change after it, is known."""
        if revision < self.compacted:
            raise Compacted(revision, self.compacted)
        if revision > self.revision:
            raise FutureRevision(revision, self.revision)

    def changes(self, prefix: str, after: int, limit: int) -> tuple[list[Event], int]:
        """Up to limit changes below a prefix after a revision, and the revision up to which they are complete."""
        self.check_kept(after)
        found: list[Event] = []
        for event in islice(self._history, self._after(after), None):
            if event.entry.key.startswith(prefix):
                found.append(event)
                if len(found) == limit:
                    return found, event.revision
        return found, self.revision

    # -- reads --------------------------------------------------------------------------------------------------------

    def list(self, prefix: str, limit: int, continue_key: str, revision: int | None) -> Page:
        """A page of a list; see the port."""
        start = max(prefix, continue_key)
        end = end_of(prefix)
        if revision is None and not self._keys.any_between(start, end):
            # On every write, admission lists many things that mostly do not exist.
            return Page((), self.revision)
        keys = self._keys.between(start, end)
        if revision is None or revision == self.revision:
            if not limit:
                return Page(tuple(map(self.entries.__getitem__, keys)), self.revision)
            total = self._keys.count(start, end)
            return _page([self.entries[key] for key in islice(keys, limit)], total, self.revision)
        self.check_kept(revision)
        undone = self._undone(start, end, revision)
        total = self._keys.count(start, end)
        total += sum((entry is not None) - (key in self.entries) for key, entry in undone.items())
        return _page(self._as_of(keys, undone, limit or total), total, revision)

    def _undone(self, start: str, end: str, revision: int) -> dict[str, Entry | None]:
        """What the keys changed since a revision held at that revision."""
        undone: dict[str, Entry | None] = {}
        for event in islice(self._history, self._after(revision), None):
            if start <= event.entry.key < end:
                undone.setdefault(event.entry.key, event.before)
        return undone

    def _as_of(self, keys: Iterator[str], undone: dict[str, Entry | None], limit: int) -> Sequence[Entry]:
        entries: list[Entry] = []
        previous = ""
        for key in heapq.merge(keys, sorted(undone)):
            if len(entries) >= limit:
                break
            if key == previous:
                continue
            previous = key
            entry = undone[key] if key in undone else self.entries[key]
            if entry is not None:
                entries.append(entry)
        return entries

    # -- watches ------------------------------------------------------------------------------------------------------

    def watch(self, prefix: str, after: int) -> TimelineWatch:
        """A watch; see the port."""
        return TimelineWatch(self._fanout, prefix, after)

    def close(self) -> None:
        """End all watches."""
        self._fanout.close()


def _page(entries: Sequence[Entry], total: int, revision: int) -> Page:
    remaining = total - len(entries)
    # The smallest key after the last one returned, so the next one may be gone when the next page is requested.
    continue_key = entries[-1].key + "\0" if remaining and entries else ""
    return Page(tuple(entries), revision, continue_key, remaining)
