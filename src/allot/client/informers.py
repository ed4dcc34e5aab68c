"""Informers shared by all parts of a process: one watch and one copy per resource."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, TypeVar, cast

from allot.client.api import Client
from allot.client.cache import IndexFunction
from allot.client.informer import Informer
from allot.core.model.kinds import kind_of_type
from allot.core.model.meta import APIStruct
from allot.process.clock import Clock
from allot.process.ids import Ids
from allot.process.supervise import supervise

T = TypeVar("T", bound=APIStruct)
Object = dict[str, Any]

_Name = tuple[object, ...]


class Informers:
    """Creates each informer once and runs them all. Those requested while it runs are started immediately."""

    def __init__(self, client: Client, clock: Clock, ids: Ids) -> None:
        self._client = client
        self._clock = clock
        self._ids = ids
        self._informers: dict[_Name, Informer[Any]] = {}
        self._asked = asyncio.Event()

    def typed(
        self,
        type_: type[T],
        *,
        version: str = "",
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
        indexers: Mapping[str, IndexFunction[T]] | None = None,
    ) -> Informer[T]:
        """The informer of a kind, with decoded objects without managedFields. Indexers are added to the existing ones."""
        kind = kind_of_type(type_)
        name = (type_, version or kind.hub_version, namespace, label_selector, field_selector)
        if name not in self._informers:
            typed = self._client.typed(type_, version=version)
            self._informers[name] = Informer(
                typed.resource,
                typed.decode_cached,
                self._clock,
                self._ids,
                namespace=namespace,
                label_selector=label_selector,
                field_selector=field_selector,
            )
            self._asked.set()
        informer = cast(Informer[T], self._informers[name])
        for index, function in (indexers or {}).items():
            informer.cache.add_index(index, function)
        return informer

    def dynamic(
        self,
        group: str,
        version: str,
        plural: str,
        *,
        namespaced: bool,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
    ) -> Informer[Object]:
        """The informer of a resource, with JSON values."""
        name = (group, version, plural, namespace, label_selector, field_selector)
        if name not in self._informers:
            self._informers[name] = Informer(
                self._client.resource(group, version, plural, namespaced=namespaced),
                _as_it_is,
                self._clock,
                self._ids,
                namespace=namespace,
                label_selector=label_selector,
                field_selector=field_selector,
            )
            self._asked.set()
        return cast(Informer[Object], self._informers[name])

    def shared(self, group: str, version: str, plural: str) -> Informer[Any] | None:
        """The existing informer of all objects of a resource, typed or not, if any."""
        for name, informer in self._informers.items():
            if any(name[-3:]):
                continue  # only some of the objects
            if isinstance(name[0], type):
                kind = kind_of_type(name[0])
                found: _Name = (kind.group, name[1], kind.plural)
            else:
                found = name[:3]
            if found == (group, version, plural):
                return informer
        return None

    async def run(self) -> None:
        """Run all informers until cancelled. A failing handler is logged, and its informer continues."""
        started: set[_Name] = set()
        async with asyncio.TaskGroup() as tasks:
            while True:
                self._asked.clear()
                for name, informer in tuple(self._informers.items()):
                    if name not in started:
                        started.add(name)
                        tasks.create_task(supervise(f"informer {name}", informer.run, self._clock))
                await self._asked.wait()

    async def wait_synced(self) -> None:
        """Wait until every informer requested so far is filled."""
        for informer in tuple(self._informers.values()):
            await informer.wait_synced()


def _as_it_is(item: Object) -> Object:
    return item
