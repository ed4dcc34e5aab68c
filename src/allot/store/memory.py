"""The in-memory store: for tests and simulation, and the reference for the other stores."""

from __future__ import annotations

from collections.abc import Collection

from allot.store.entry import LastState, stamp
from allot.store.port import (
    ChangeCount,
    Entry,
    Event,
    EventType,
    KeyExists,
    KeyNotFound,
    Object,
    Page,
    RevisionConflict,
    Watch,
)
from allot.store.timeline import Limits, Timeline


class TimelineReads:
    """The read-only half of a store: from memory, never waiting."""

    def __init__(self, limits: Limits | None = None) -> None:
        self._timeline = Timeline(limits or Limits())

    async def revision(self) -> int:
        """The newest revision."""
        return self._timeline.revision

    async def get(self, key: str) -> Entry | None:
        """The current state of a key."""
        return self._timeline.entries.get(key)

    async def list(self, prefix: str, *, limit: int = 0, continue_key: str = "", revision: int | None = None) -> Page:
        """A page of a list; see the port."""
        return self._timeline.list(prefix, limit, continue_key, revision)

    def last_change(self, folder: str) -> int | None:
        """The newest change below a folder; see the port."""
        return self._timeline.last_changes.get(folder, 0)

    def count_changes(self, folders: Collection[str]) -> ChangeCount | None:
        """Counts changes below folders; see the port."""
        return self._timeline.count_changes(folders)

    def watch(self, prefix: str, after: int) -> Watch:
        """Changes below a prefix; see the port."""
        return self._timeline.watch(prefix, after)

    def _expect(self, key: str, expected: int) -> Entry:
        present = self._timeline.entries.get(key)
        if present is None:
            raise KeyNotFound(key)
        if present.revision != expected:
            raise RevisionConflict(key, expected, present)
        return present


class MemoryStore(TimelineReads):
    """The store port in memory."""

    async def open(self) -> None:
        """Nothing to do."""

    async def check(self) -> None:
        """Memory is always there."""

    async def close(self) -> None:
        """End the watches."""
        self._timeline.close()

    async def create(self, key: str, object_: Object) -> Entry:
        """Add a key; see the port."""
        present = self._timeline.entries.get(key)
        if present is not None:
            raise KeyExists(key, present)
        return self._put(EventType.ADDED, key, object_, None)

    async def update(self, key: str, object_: Object, expected: int) -> Entry:
        """Replace a key; see the port."""
        return self._put(EventType.MODIFIED, key, object_, self._expect(key, expected))

    async def delete(self, key: str, expected: int) -> Entry:
        """Remove a key; see the port."""
        before = self._expect(key, expected)
        revision = self._timeline.revision + 1
        return self._apply(Event(EventType.DELETED, LastState(before, revision), before, revision))

    async def compact(self, revision: int) -> None:
        """Forget history before a revision; see the port."""
        self._timeline.compact(revision)

    def _put(self, type_: EventType, key: str, object_: Object, before: Entry | None) -> Entry:
        revision = self._timeline.revision + 1
        stamp(object_, revision)
        return self._apply(Event(type_, Entry(key, object_, revision), before, revision))

    def _apply(self, event: Event) -> Entry:
        self._timeline.apply(event)
        self._timeline.trim()
        return event.entry
