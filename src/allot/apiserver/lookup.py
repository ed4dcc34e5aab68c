"""What the server reads and writes on its own account: for admission, authentication and controllers inside it."""

from __future__ import annotations

from typing import Any

from allot.apiserver import writes
from allot.apiserver.errors import conflict, not_found
from allot.apiserver.registry import Registry
from allot.store.port import KeyNotFound, RevisionConflict, Store

Object = dict[str, Any]


class Lookup:
    """Reads of the server itself, without authorization; objects come in their storage version."""

    def __init__(self, store: Store, registry: Registry) -> None:
        self._store = store
        self._registry = registry

    async def get(self, plural: str, group: str, namespace: str, name: str) -> Object | None:
        """One object; None if it is not there."""
        served = self._registry.storage_row(group, plural)
        if served is None:
            return None
        entry = await self._store.get(served.key(namespace, name))
        return None if entry is None else entry.object

    async def list(self, plural: str, group: str, namespace: str = "") -> list[Object]:
        """All objects of a kind, of one namespace if one is given, in order of their names."""
        served = self._registry.storage_row(group, plural)
        if served is None:
            return []
        page = await self._store.list(served.prefix(namespace))
        return [entry.object for entry in page.entries]

    async def update_status(self, plural: str, group: str, namespace: str, name: str, object_: Object) -> Object:
        """Store an object whose status was changed if it is still at its resourceVersion; StatusError 409 or 404."""
        served = self._registry.storage_row(group, plural)
        if served is None:
            raise not_found(group, plural, name)
        version = object_["metadata"].get("resourceVersion", "")
        expected = int(version) if version.isdigit() else 0
        try:
            entry = await self._store.update(served.key(namespace, name), writes.owned(object_), expected)
        except KeyNotFound:
            raise not_found(group, plural, name) from None
        except RevisionConflict:
            raise conflict(group, plural, name, writes.MODIFIED) from None
        return entry.object
