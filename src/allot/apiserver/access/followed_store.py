"""A store whose changes of roles and bindings take effect as soon as they are stored.

Access is decided from memory that follows the store by a watch, which lags slightly. For this server's own writes
the lag is removed: a client that applies a role and then a binding must find the role, and a revoked permission
must be gone when the answer arrives. Writes of other servers on the same store still arrive by the watch.
"""

from __future__ import annotations

from collections.abc import Collection, Coroutine
from typing import Any

from allot.apiserver.access.authorizer import Authorizer, is_followed
from allot.store.port import ChangeCount, Entry, Object, Page, Store, Watch


class FollowedStore:
    """Wraps a store; the authorizer learns of writes before their sender does."""

    def __init__(self, store: Store, authorizer: Authorizer) -> None:
        self._store = store
        self._authorizer = authorizer

    async def open(self) -> None:
        """Prepare for use."""
        await self._store.open()

    async def close(self) -> None:
        """Finish and release everything."""
        await self._store.close()

    async def check(self) -> None:
        """Whether writes work."""
        await self._store.check()

    async def revision(self) -> int:
        """The newest revision."""
        return await self._store.revision()

    def get(self, key: str) -> Coroutine[Any, Any, Entry | None]:
        """The current state of a key."""
        return self._store.get(key)

    async def list(self, prefix: str, *, limit: int = 0, continue_key: str = "", revision: int | None = None) -> Page:
        """Entries below a prefix."""
        return await self._store.list(prefix, limit=limit, continue_key=continue_key, revision=revision)

    def create(self, key: str, object_: Object) -> Coroutine[Any, Any, Entry]:
        """Add a key."""
        writing = self._store.create(key, object_)
        return self._applied(writing) if is_followed(key) else writing

    def update(self, key: str, object_: Object, expected: int) -> Coroutine[Any, Any, Entry]:
        """Replace a key."""
        writing = self._store.update(key, object_, expected)
        return self._applied(writing) if is_followed(key) else writing

    def delete(self, key: str, expected: int) -> Coroutine[Any, Any, Entry]:
        """Remove a key."""
        writing = self._store.delete(key, expected)
        return self._applied(writing, deleted=True) if is_followed(key) else writing

    async def _applied(self, writing: Coroutine[Any, Any, Entry], *, deleted: bool = False) -> Entry:
        entry = await writing
        self._authorizer.apply_write(entry, deleted=deleted)
        return entry

    def last_change(self, folder: str) -> int | None:
        """The newest change below a folder."""
        return self._store.last_change(folder)

    def count_changes(self, folders: Collection[str]) -> ChangeCount | None:
        """Counts changes below folders."""
        return self._store.count_changes(folders)

    def watch(self, prefix: str, after: int) -> Watch:
        """Changes below a prefix."""
        return self._store.watch(prefix, after)

    async def compact(self, revision: int) -> None:
        """Forget history."""
        await self._store.compact(revision)
