"""A store whose changes of roles and bindings count in the moment they are stored.

Access is decided from memory that follows the store by a watch, which is late by a moment. For what this server writes itself
that moment is taken away: whoever applies a role and then a binding to it must find the role, and a right that was taken away
must be gone when the answer arrives. What other servers on the same store write still comes by the watch.
"""

from __future__ import annotations

from allot.apiserver.access.authorizer import Authorizer
from allot.store.port import Entry, Object, Page, Store, Watch


class FollowedStore:
    """The same store; the authorizer hears of writes before their sender does."""

    def __init__(self, store: Store, authorizer: Authorizer) -> None:
        self._store = store
        self._authorizer = authorizer

    async def open(self) -> None:
        """Make ready."""
        await self._store.open()

    async def close(self) -> None:
        """Finish and let go."""
        await self._store.close()

    async def revision(self) -> int:
        """The newest revision."""
        return await self._store.revision()

    async def get(self, key: str) -> Entry | None:
        """The present state of a key."""
        return await self._store.get(key)

    async def list(self, prefix: str, *, limit: int = 0, continue_key: str = "", revision: int | None = None) -> Page:
        """Entries below a prefix."""
        return await self._store.list(prefix, limit=limit, continue_key=continue_key, revision=revision)

    async def create(self, key: str, object_: Object) -> Entry:
        """Add a key."""
        entry = await self._store.create(key, object_)
        self._authorizer.apply_write(entry)
        return entry

    async def update(self, key: str, object_: Object, expected: int) -> Entry:
        """Replace a key."""
        entry = await self._store.update(key, object_, expected)
        self._authorizer.apply_write(entry)
        return entry

    async def delete(self, key: str, expected: int) -> Entry:
        """Remove a key."""
        entry = await self._store.delete(key, expected)
        self._authorizer.apply_write(entry, deleted=True)
        return entry

    def last_change(self, folder: str) -> int | None:
        """The newest change below a folder."""
        return self._store.last_change(folder)

    def watch(self, prefix: str, after: int) -> Watch:
        """Changes below a prefix."""
        return self._store.watch(prefix, after)

    async def compact(self, revision: int) -> None:
        """Forget history."""
        await self._store.compact(revision)
