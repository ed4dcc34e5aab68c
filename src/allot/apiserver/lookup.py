"""The server's own reads and writes: for admission, authentication and internal controllers."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Collection, Hashable
from typing import Any, NamedTuple

from allot.apiserver.errors import conflict, not_found
from allot.apiserver.handlers.storing import MODIFIED, owned
from allot.apiserver.registry import Registry, Served
from allot.store.port import KeyNotFound, RevisionConflict, Store

Object = dict[str, Any]

_KEPT_MAX = 2_000
_KEPT_LENGTH_MAX = 50


class _KeptList(NamedTuple):
    """A list as of the newest change below its folder."""

    folder: str
    revision: int
    objects: list[Object]


class StoreLookup:
    """The server's own reads, without authorization; objects are in their storage version."""

    def __init__(self, store: Store, registry: Registry) -> None:
        self._store = store
        self._registry = registry
        # Short lists, most of them empty, cached until their folder changes: every write needs several.
        self._lists: dict[tuple[str, str, str], _KeptList] = {}
        # Folder, newest change below it, and object: namespaces and accounts are read all the time and seldom change.
        self._objects: dict[tuple[str, str, str, str], tuple[str, int, Object]] = {}
        self._generation = registry.generation

    async def get(self, plural: str, group: str, namespace: str, name: str) -> Object | None:
        """One object; None if it does not exist."""
        kept = self._objects.get((plural, group, namespace, name))
        if kept is not None and self._store.last_change(kept[0]) == kept[1]:
            return kept[2]
        served = self._registry.storage_row(group, plural)
        if served is None:
            return None
        folder = _folder_of(served, group)
        revision = self._store.last_change(folder)
        entry = await self._store.get(served.key(namespace, name))
        if entry is None:
            return None
        if revision is not None and not served.custom:
            if len(self._objects) >= _KEPT_MAX:
                self._objects.clear()
            self._objects[plural, group, namespace, name] = (folder, revision, entry.object)
        return entry.object

    async def list(self, plural: str, group: str, namespace: str = "") -> list[Object]:
        """All objects of a kind, of one namespace if one is given, ordered by name. Do not change it."""
        known = self.known_list(plural, group, namespace)
        if known is not None:
            return known
        served = self._registry.storage_row(group, plural)
        folder = _folder_of(served, group)
        revision = self._store.last_change(folder)
        entries = (await self._store.list(served.prefix(namespace))).entries if served is not None else ()
        objects = [entry.object for entry in entries]
        if revision is not None and len(objects) <= _KEPT_LENGTH_MAX:
            if len(self._lists) >= _KEPT_MAX:
                self._lists.clear()
            self._lists[plural, group, namespace] = _KeptList(folder, revision, objects)
        return objects

    def known_list(self, plural: str, group: str, namespace: str = "") -> builtins.list[Object] | None:
        """The result of `list`, if known without waiting."""
        if self._generation != self._registry.generation:
            self._generation = self._registry.generation
            self._lists.clear()
        kept = self._lists.get((plural, group, namespace))
        if kept is None or self._store.last_change(kept.folder) != kept.revision:
            return None
        return kept.objects

    def stamp_of(self, kinds: Collection[tuple[str, str]]) -> Callable[[], Hashable] | None:
        """Returns a stamp that stays the same as long as lists of these kinds do."""
        registry = self._registry
        count = self._store.count_changes(
            {_folder_of(registry.storage_row(group, plural), group) for plural, group in kinds}
        )
        return None if count is None else lambda: (count.value, registry.generation)

    async def update_status(self, plural: str, group: str, namespace: str, name: str, object_: Object) -> Object:
        """Store an object with a changed status if it is still at its resourceVersion; StatusError 409 or 404."""
        served = self._registry.storage_row(group, plural)
        if served is None:
            raise not_found(group, plural, name)
        version = object_["metadata"].get("resourceVersion", "")
        expected = int(version) if version.isdigit() else 0
        try:
            entry = await self._store.update(served.key(namespace, name), owned(object_), expected)
        except KeyNotFound:
            raise not_found(group, plural, name) from None
        except RevisionConflict:
            raise conflict(group, plural, name, MODIFIED) from None
        return entry.object


def _folder_of(served: Served | None, group: str) -> str:
    """The folder whose changes stores report: for custom resources, even those not served yet, and for services, the one that
    contains theirs."""
    folder = f"/registry/{group}/" if served is None else served.folder
    return folder[: folder.index("/", len("/registry/")) + 1]
