"""Follows definitions: accepts names, serves and stops serving kinds, and deletes what belonged to a deleted definition.

Every server that shares a store runs one. They write the same, and a write that another server did first is not
repeated.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from allot.apiserver.customresources.conversion_webhooks import Conversions
from allot.apiserver.customresources.rows import custom_rows
from allot.apiserver.registry import Registry, Served
from allot.apiserver.resources import Object
from allot.core.customresources.conditions import (
    CLEANUP_FINALIZER,
    is_established,
    is_terminating,
    with_accepted_names,
    without_cleanup,
)
from allot.core.schema import Schemas
from allot.process.clock import Clock
from allot.store.port import Entry, Event, EventType, KeyNotFound, RevisionConflict, Store

PREFIX = "/registry/apiextensions.k8s.io/customresourcedefinitions/"
# How often to check whether the objects of a deleted definition are gone; others remove their finalizers.
CLEANUP_PAUSE_S = 0.5

# Deletes all objects of a row.
DeleteAll = Callable[[Served], Awaitable[None]]


class CustomResources:
    """The controller. `load` before the first request, then `run` until the server stops."""

    def __init__(
        self,
        store: Store,
        registry: Registry,
        schemas: Schemas,
        clock: Clock,
        delete_all: DeleteAll,
        conversions: Conversions,
    ) -> None:
        self._store = store
        self._registry = registry
        self._schemas = schemas
        self._clock = clock
        self._delete_all = delete_all
        self._conversions = conversions
        self._definitions: dict[str, Entry] = {}
        # The fingerprint of what is served for a definition, and its rows.
        self._served: dict[str, tuple[bytes, list[Served]]] = {}
        self._revision = 0
        self._dying = asyncio.Event()

    async def load(self) -> None:
        """Serve all definitions."""
        page = await self._store.list(PREFIX)
        self._revision = page.revision
        self._definitions = {entry.key: entry for entry in page.entries}
        for key in [key for key in self._served if key not in self._definitions]:
            self._forget(key)
        for key in list(self._definitions):
            await self._sync(key)

    async def run(self) -> None:
        """Follow changes."""
        await self.load()
        async with asyncio.TaskGroup() as tasks:
            cleaning = tasks.create_task(self._clean())
            try:
                await self._follow()
            finally:
                cleaning.cancel()

    async def _follow(self) -> None:
        watch = self._store.watch(PREFIX, self._revision)
        try:
            async for change in watch:
                self._revision = change.revision
                if not isinstance(change, Event):
                    continue
                key = change.entry.key
                if change.type is EventType.DELETED:
                    self._definitions.pop(key, None)
                    self._forget(key)
                    # Its names are free now.
                    for other in list(self._definitions):
                        await self._sync(other)
                else:
                    self._definitions[key] = change.entry
                    await self._sync(key)
        finally:
            await watch.close()

    # --- one definition ---

    async def _sync(self, key: str) -> None:
        entry = self._definitions[key]
        definition = entry.object
        if is_terminating(definition):
            self._serve(key, definition)
            self._dying.set()
            return
        others = [other.object for other_key, other in self._definitions.items() if other_key != key]
        accepted = with_accepted_names(definition, others, self._clock.now())
        if is_established(accepted):
            # Served first: clients that wait for the condition may use the kind at once.
            self._serve(key, accepted)
        if accepted != definition:
            owned = {**accepted, "metadata": {**accepted["metadata"]}}
            try:
                self._definitions[key] = await self._store.update(key, owned, entry.revision)
            except (RevisionConflict, KeyNotFound):
                # Another writer was faster; its change will be reported.
                return

    def _serve(self, key: str, definition: Object) -> None:
        fingerprint = _fingerprint(definition)
        present = self._served.get(key)
        if present is not None and present[0] == fingerprint:
            return
        rows = custom_rows(definition, self._schemas, self._conversions)
        kept = {_names(row) for row in rows}
        for row in present[1] if present is not None else ():
            if _names(row) not in kept:
                self._registry.remove(*_names(row))
        for row in rows:
            self._registry.add(row)
        self._served[key] = (fingerprint, rows)

    def _forget(self, key: str) -> None:
        for row in self._served.pop(key, (b"", []))[1]:
            self._registry.remove(*_names(row))

    # --- the end ---

    async def _clean(self) -> None:
        """Delete the objects of deleted definitions, then remove the definitions' finalizers."""
        while True:
            await self._dying.wait()
            self._dying.clear()
            dying = [key for key, entry in self._definitions.items() if is_terminating(entry.object)]
            left = [key for key in dying if not await self._finish(key)]
            if left:
                await self._clock.sleep(CLEANUP_PAUSE_S)
                self._dying.set()

    async def _finish(self, key: str) -> bool:
        """Whether nothing is left to do for a definition."""
        entry = await self._store.get(key)
        if entry is None or CLEANUP_FINALIZER not in (entry.object["metadata"].get("finalizers") or ()):
            return True
        rows = self._served.get(key, (b"", []))[1]
        row = next((row for row in rows if not row.convert_needed), rows[0] if rows else None)
        if row is not None:
            await self._delete_all(row)
            if (await self._store.list(row.prefix(""), limit=1)).entries:
                return False
        freed = without_cleanup(entry.object)
        try:
            if freed["metadata"].get("finalizers"):
                await self._store.update(key, freed, entry.revision)
            else:
                await self._store.delete(key, entry.revision)
        except (RevisionConflict, KeyNotFound):
            return False
        return True


def _names(row: Served) -> tuple[str, str, str]:
    return row.resource.group, row.resource.version, row.resource.plural


def _fingerprint(definition: Object) -> bytes:
    """Everything that rows are built from."""
    status: Any = definition.get("status") or {}
    told = [status.get("acceptedNames"), status.get("storedVersions")]
    return msgspec.json.encode([definition.get("spec"), *told, is_terminating(definition)])
