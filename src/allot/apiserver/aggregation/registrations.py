"""Keeps the APIServices of this server's own groups: those that are built in, once at the start, and those of custom resources.

What others have registered for one of them stays.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from allot.apiserver.aggregation.extensions import PREFIX
from allot.apiserver.bootstrap import try_to_write
from allot.apiserver.customresources.controller import PREFIX as DEFINITIONS
from allot.apiserver.registry import Registry
from allot.apiserver.resources import Object
from allot.apiserver.server import ApiServer
from allot.core.lifecycle.api_services import (
    ALWAYS,
    GROUP,
    ON_START,
    builtin_priority,
    local_api_service,
    name_of,
    registering,
    served_versions,
)
from allot.store.port import Event, EventType, Store


class Registrations:
    """The controller. `load` and `apply_change` follow the store; `run` writes."""

    def __init__(self, registry: Registry) -> None:
        self._current: dict[str, Object] = {}
        self._definitions: dict[str, list[tuple[str, str]]] = {}
        self._builtin = dict(_builtin(registry))
        self._at_start: set[str] | None = None
        self._synced: set[str] = set()
        # The names to look at.
        self._waiting: dict[str, None] = {}
        self._woken = asyncio.Event()

    async def load(self, store: Store) -> None:
        """Read registrations and definitions."""
        found = (await store.list(PREFIX)).entries
        self._current = {entry.key.removeprefix(PREFIX): entry.object for entry in found}
        if self._at_start is None:
            self._at_start = set(self._current)
        definitions = (await store.list(DEFINITIONS)).entries
        self._definitions = {entry.key: served_versions(entry.object) for entry in definitions}
        self._look_at((*self._builtin, *self._current, *self._custom()))

    def apply_change(self, change: Event) -> None:
        """Notice a change of a registration or a definition."""
        key, is_gone = change.entry.key, change.type is EventType.DELETED
        if key.startswith(PREFIX):
            name = key.removeprefix(PREFIX)
            if is_gone:
                self._current.pop(name, None)
            else:
                self._current[name] = change.entry.object
            self._look_at((name,))
        elif key.startswith(DEFINITIONS):
            before = self._definitions.pop(key, [])
            after = [] if is_gone else served_versions(change.entry.object)
            if after:
                self._definitions[key] = after
            self._look_at(name_of(*each) for each in (*before, *after))

    def _custom(self) -> dict[str, tuple[str, str]]:
        return {name_of(*each): each for several in self._definitions.values() for each in several}

    def _look_at(self, names: Iterable[str]) -> None:
        self._waiting |= dict.fromkeys(names)
        if self._waiting:
            self._woken.set()

    async def run(self, api: ApiServer) -> None:
        """Write what is missing, and remove what is no longer served."""
        while True:
            await self._woken.wait()
            await self.write(api)

    async def write(self, api: ApiServer) -> None:
        """Write what is waiting."""
        self._woken.clear()
        waiting, self._waiting = tuple(self._waiting), {}
        custom = self._custom()
        try:
            async with asyncio.TaskGroup() as tasks:
                # Together, so that they share a commit.
                for name in waiting:
                    tasks.create_task(self._sync(api, name, custom.get(name)))
        except BaseException:
            self._look_at(waiting)
            raise

    async def _sync(self, api: ApiServer, name: str, custom: tuple[str, str] | None) -> None:
        desired = self._builtin.get(name)
        if desired is None and custom is not None:
            desired = local_api_service(*custom, managed=ALWAYS)
        assert self._at_start is not None, "it is loaded first"
        step = registering(
            desired,
            self._current.get(name),
            was_there_at_start=name in self._at_start,
            is_synced=name in self._synced,
        )
        # If another writer is faster, its change is reported, and looked at again.
        if step is None or await try_to_write(api, step.verb, GROUP, "apiservices", step.object):
            self._synced.add(name)


def _builtin(registry: Registry) -> Iterable[tuple[str, Object]]:
    for group, versions in registry.groups().items():
        for version in versions:
            priority = builtin_priority(group, version)
            if priority is not None and group != GROUP:
                yield name_of(group, version), local_api_service(group, version, ON_START, priority)
