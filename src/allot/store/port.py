"""The storage port: what the API server needs from a store, with etcd's notion of revisions.

One revision counter for all keys. Each change of a key gets the next revision; a key's version is the revision of its last
change. A write is a compare-and-swap. A watch delivers every change after a revision exactly once, in order, or says that it
cannot (`Compacted`). Values are Kubernetes objects as JSON values; they are shared between all readers and never changed.

Contract for implementations (`memory`, `sqlite`, `etcd`; the same tests run against all of them):
- An acknowledged write survives anything that the implementation promises to survive (kill -9 for sqlite and etcd).
- Revisions never go back, even across restarts.
- A list is consistent: all of it as of one revision, even across pages.
- `metadata.resourceVersion` of a returned object is the revision of its last change; the store sets it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from enum import StrEnum
from typing import Protocol

import msgspec

from allot.store.entry import Entry as Entry
from allot.store.entry import Object as Object


class EventType(StrEnum):
    """What happened to a key."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"


class Event(msgspec.Struct, frozen=True):
    """A change. For DELETED, entry is the last state with the revision of the deletion. before: the previous state."""

    type: EventType
    entry: Entry
    before: Entry | None
    revision: int


class Progress(msgspec.Struct, frozen=True):
    """Everything up to this revision has been delivered (the source of watch bookmarks)."""

    revision: int


class Page(msgspec.Struct, frozen=True):
    """Part of a list. continue_key is where the next page starts, empty on the last one. remaining: how many follow."""

    entries: tuple[Entry, ...]
    revision: int
    continue_key: str = ""
    remaining: int = 0


class StoreError(Exception):
    """The base of all store errors."""


class KeyExists(StoreError):
    """A create of an existing key. `entry` is the existing one."""

    def __init__(self, key: str, entry: Entry | None = None) -> None:
        super().__init__(f"key {key!r} exists")
        self.entry = entry


class KeyNotFound(StoreError):
    """The key does not exist."""

    def __init__(self, key: str) -> None:
        super().__init__(f"key {key!r} does not exist")


class RevisionConflict(StoreError):
    """The key has changed since it was read. `entry` is its current state."""

    def __init__(self, key: str, expected: int, entry: Entry) -> None:
        super().__init__(f"key {key!r}: expected revision {expected}, is at {entry.revision}")
        self.entry = entry


class Compacted(StoreError):
    """The requested revision is no longer kept. oldest: the first that is kept."""

    def __init__(self, revision: int, oldest: int) -> None:
        super().__init__(f"revision {revision} is compacted, the oldest kept is {oldest}")
        self.revision = revision
        self.oldest = oldest


class FutureRevision(StoreError):
    """The requested revision does not exist yet. current: the newest one."""

    def __init__(self, revision: int, current: int) -> None:
        super().__init__(f"revision {revision} is in the future, the newest is {current}")
        self.current = current


class Fault(StrEnum):
    """Why a store cannot be used, where operators need to distinguish the reasons."""

    LOG_CUT = "write-ahead log cut"
    LOG_MISSING = "write-ahead log missing"
    EMPTIED = "file emptied or missing"
    OLDER_COPY = "older copy"
    FOREIGN = "file of another store"
    MARKER = "marker missing or damaged"
    DAMAGED = "damaged"
    DISK_FULL = "disk full"
    READ_ONLY = "disk read-only"
    DISK_ERROR = "disk error"


class StoreUnavailable(StoreError):
    """The store cannot be reached or written (network, full disk, damaged file). The text says which and what to do."""

    def __init__(self, message: str, fault: Fault | None = None) -> None:
        super().__init__(message)
        self.fault = fault


class ChangeCount:
    """The number of changes below some folders: one comparison shows that there were none."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0


class Watch(Protocol):
    """An open watch. Iterate over it; close it when done."""

    def __aiter__(self) -> AsyncIterator[Event | Progress]:
        """Changes in order. Raises Compacted if it falls behind what is kept, StoreUnavailable if it cannot continue."""

    @property
    def has_ready(self) -> bool:
        """Whether the next change is already here, so that reading it does not wait."""

    async def close(self) -> None:
        """Stop."""


class Store(Protocol):
    """Keeps objects under keys (`/registry/<resource>/<namespace>/<name>`).

    Any call can raise StoreUnavailable; a write that raises it may or may not have happened if the text says that its outcome
    is not known, and did not happen otherwise.
    """

    async def open(self) -> None:
        """Prepare for use; StoreUnavailable if that fails."""

    async def close(self) -> None:
        """Finish work in progress and release everything."""

    async def check(self) -> None:
        """StoreUnavailable if writes would be refused now, as far as the store can tell cheaply."""

    async def revision(self) -> int:
        """The newest revision."""

    async def get(self, key: str) -> Entry | None:
        """The current state of a key."""

    async def list(self, prefix: str, *, limit: int = 0, continue_key: str = "", revision: int | None = None) -> Page:
        """Entries below a prefix (keys that start with it) in key order, as of the newest or the given revision.

        For the next page, pass the continue_key and the revision of the previous one. Compacted, FutureRevision.
        """

    async def create(self, key: str, object_: Object) -> Entry:
        """Add a key (KeyExists). Takes ownership of the object, which must not be shared, and stamps its resourceVersion."""

    async def update(self, key: str, object_: Object, expected: int) -> Entry:
        """Replace a key that is at the expected revision (KeyNotFound, RevisionConflict). Ownership as in create."""

    async def delete(self, key: str, expected: int) -> Entry:
        """Remove a key that is at the expected revision; the last state, with the revision of the deletion."""

    def last_change(self, folder: str) -> int | None:
        """The revision of the newest change of a key below a folder (`/registry/<name>/`) as far as reads show it, 0 for
        none since the start; None if only a query could tell. While it stays the same, so do lists of the folder."""

    def count_changes(self, folders: Collection[str]) -> ChangeCount | None:
        """A count that grows from now on with every change below the folders, at the moment when reads show it; None if only a query could
        tell. While it stays the same, so do lists of all the folders."""

    def watch(self, prefix: str, after: int) -> Watch:
        """Changes below a prefix (keys that start with it) after a revision, and Progress from time to time.

        Iterating raises Compacted if changes after that revision are gone, FutureRevision if there is no such revision yet.
        """

    async def compact(self, revision: int) -> None:
        """Forget history before a revision: lists as of it and watches after it still work, the current state stays."""
