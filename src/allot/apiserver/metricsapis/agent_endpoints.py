"""The addresses of node agents, following the store. Nodes may share an agent; simulated ones do."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from allot.apiserver.errors import StatusError
from allot.apiserver.proxies.nodeproxy import kubelet_of
from allot.apiserver.server_context import ServerContext
from allot.process.clock import Clock
from allot.store.port import Event, EventType

# Address and port.
Endpoint = tuple[str, int]
_GATHER_S = 0.2


class AgentEndpoints:
    """Follows nodes."""

    def __init__(self, context: ServerContext) -> None:
        self._context = context
        self._labels: dict[str, Mapping[str, str]] = {}
        self._places: dict[str, Endpoint | None] = {}
        self._endpoints: Mapping[Endpoint, tuple[str, ...]] | None = {}
        self._changed = asyncio.Event()

    def labels(self) -> Mapping[str, Mapping[str, str]]:
        """Labels of nodes, by name."""
        return dict(self._labels)

    def endpoints(self) -> Mapping[Endpoint, tuple[str, ...]]:
        """The nodes of each agent. Nodes without an agent are omitted."""
        if self._endpoints is None:
            found: dict[Endpoint, list[str]] = {}
            for name, place in self._places.items():
                if place is not None:
                    found.setdefault(place, []).append(name)
            self._endpoints = {place: tuple(sorted(names)) for place, names in found.items()}
        return self._endpoints

    async def changed(self, clock: Clock, seconds: float) -> None:
        """Wait until the endpoint of some agent changes, but no longer than this."""
        waits = [asyncio.ensure_future(self._changed.wait()), asyncio.ensure_future(clock.sleep(seconds))]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        if self._changed.is_set():
            # Nodes arrive in bulk.
            await clock.sleep(_GATHER_S)
            self._changed.clear()

    async def follow(self) -> None:
        """Follow nodes until cancelled."""
        context = self._context
        served = context.registry.find("", "v1", "nodes")
        assert served is not None, "nodes are served"
        page = await context.store.list(served.prefix(""))
        self._labels.clear()
        self._places.clear()
        for entry in page.entries:
            self._put(entry.object)
        self._endpoints = None
        watch = context.store.watch(served.prefix(""), page.revision)
        try:
            self._changed.set()
            async for change in watch:
                if isinstance(change, Event):
                    self._apply(change)
        finally:
            await watch.close()

    def _apply(self, change: Event) -> None:
        node = change.entry.object
        name = node["metadata"]["name"]
        before = self._places.get(name)
        if change.type is EventType.DELETED:
            self._labels.pop(name, None)
            self._places.pop(name, None)
        else:
            self._put(node)
        if self._places.get(name) != before:
            self._endpoints = None
            self._changed.set()

    def _put(self, node: dict[str, Any]) -> None:
        name = node["metadata"]["name"]
        self._labels[name] = node["metadata"].get("labels") or {}
        try:
            self._places[name] = kubelet_of(node)
        except StatusError:
            self._places[name] = None
