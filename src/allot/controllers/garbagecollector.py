"""The garbage collector: one metadata watch per deletable resource, unless it is watched anyway, and one graph
of owners and dependents.

Discovery is repeated periodically, and soon after a CustomResourceDefinition has changed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import msgspec

from allot.client.api import Client
from allot.client.discovery import ApiResource, Discovery
from allot.client.errors import ApiError
from allot.client.informer import Change, Informer
from allot.client.metadata import MetadataTransport
from allot.controllers.runner import Controller, Services
from allot.core.lifecycle.actions import Action, Answers, Resource, Retry
from allot.core.lifecycle.garbage import (
    IGNORED,
    NOTHING,
    Noticed,
    OwnerGraph,
    Tracked,
    tracked,
    tracked_metadata,
)
from allot.core.lifecycle.garbage_actions import reconcile
from allot.process.supervise import supervise
from allot.process.waits import happens_within

_log = logging.getLogger("allot.controllers")

WORKERS = 20
RESYNC_S = 30.0
_RETRY_S = 1.0
_UNKNOWN_KIND_S = 10.0
# Changes to the served resources come in groups and are handled together.
_SETTLE_S = 0.5
# Without this resource's objects, decisions only take longer, because they need requests to the server.
_FIRST_SYNC_S = 30.0
# An unknown owner may only be late: watches of different resources are not synchronized.
_LATE_S = 1.0
# What changes discovery: kinds of this server, and of others behind it.
_DEFINITIONS = (("apiextensions.k8s.io", "customresourcedefinitions"), ("apiregistration.k8s.io", "apiservices"))
_NEEDED = frozenset(("delete", "list", "watch"))


class _Monitor(msgspec.Struct, frozen=True, kw_only=True):
    """The watch of one resource, our own or one that already exists."""

    informer: Informer[Any]
    track: Callable[[Any], Tracked]
    stop: Callable[[], object]


class GarbageCollector:
    """Deletes objects without owners, and releases owners that wait for their dependents."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._client = Client(MetadataTransport(services.client.transport))
        self._monitors: dict[Resource, _Monitor] = {}
        self._stale = asyncio.Event()
        self._refreshed_at = 0.0
        self.graph = OwnerGraph()
        # Dependents found while the graph was filled for the first time; None afterwards.
        self._early: dict[str, None] | None = {}
        self._controller: Controller[str] = Controller(
            services,
            self._reconcile,
            queue_name="garbage_collector_attempt_to_delete",
            component="garbage-collector-controller",
            concurrency=WORKERS,
        )

    async def run(self) -> None:
        """Collect until cancelled. After a failure, it starts over."""
        self.graph = OwnerGraph()
        self._early = {}
        try:
            async with asyncio.TaskGroup() as tasks:
                while not await self._refresh(tasks):
                    await self._services.clock.sleep(_RETRY_S)
                await self._first_sync()
                tasks.create_task(self._controller.run())
                while True:
                    await self._until_stale()
                    await self._refresh(tasks)
        finally:
            for monitor in self._monitors.values():
                monitor.stop()
            self._monitors.clear()

    async def _first_sync(self) -> None:
        try:
            async with asyncio.timeout(_FIRST_SYNC_S):
                for monitor in tuple(self._monitors.values()):
                    await monitor.informer.wait_synced()
        except TimeoutError:
            missing = [one.plural for one, each in self._monitors.items() if not each.informer.has_synced]
            _log.warning("garbage collector: starting without a complete view of %s", ", ".join(missing))
        # All existing objects are known by now: missing owners are not late.
        early, self._early = self._early or {}, None
        for uid in early:
            self._controller.queue.add(uid)

    async def _until_stale(self) -> None:
        if not await happens_within(self._stale, RESYNC_S):
            return
        await self._services.clock.sleep(_SETTLE_S)
        self._stale.clear()

    # --- what is watched ---

    async def _refresh(self, tasks: asyncio.TaskGroup) -> bool:
        """Watch exactly what is served; returns whether that is known."""
        self._refreshed_at = self._services.clock.monotonic()
        try:
            discovery = await self._client.discovery(refresh=True)
        except ApiError as error:
            _log.warning("garbage collector: what is served cannot be learnt: %s", error)
            return False
        kinds, watched = _served(discovery)
        # Kinds that are no longer served stay known: their objects are gone, and their dependents must be deleted too.
        self.graph.kinds = {**self.graph.kinds, **kinds}
        # What another server does not tell at the moment is not gone.
        missing = set(discovery.missing)
        for resource in [one for one in self._monitors if one not in watched and one.api_version not in missing]:
            self._drop(self._monitors.pop(resource))
        for resource in watched:
            if resource not in self._monitors:
                self._monitors[resource] = self._watch(resource, tasks)
        return True

    def _watch(self, resource: Resource, tasks: asyncio.TaskGroup) -> _Monitor:
        name = (resource.group, resource.version, resource.plural)
        is_definition = (resource.group, resource.plural) in _DEFINITIONS
        shared = self._services.informers.shared(*name)
        if shared is not None and not is_definition:
            track = partial(_tracked, resource)
            return _Monitor(informer=shared, track=track, stop=shared.add_handler(partial(self._notice_shared, track)))
        served = self._client.resource(*name, namespaced=resource.namespaced)
        clock, ids = self._services.clock, self._services.ids
        informer: Informer[Tracked] = Informer(served, partial(tracked, resource), clock, ids)
        informer.add_handler(self._notice)
        if is_definition:
            informer.add_handler(self._notice_definition)
        run = supervise(f"garbage collector: the watch of {resource.plural}", informer.run, clock)
        return _Monitor(informer=informer, track=_as_it_is, stop=tasks.create_task(run).cancel)

    def _drop(self, monitor: _Monitor) -> None:
        monitor.stop()
        for gone in monitor.informer.cache:
            found = monitor.track(gone)
            self._notice(Change(key=found.name, old=found, new=None))

    # --- changes and decisions ---

    def _notice_shared(self, track: Callable[[Any], Tracked], change: Change[Any]) -> None:
        object_ = track(change.object)
        self._heed(self.graph.observe(object_) if change.new is not None else self.graph.forget(object_))

    def _notice(self, change: Change[Tracked]) -> None:
        self._heed(self.graph.observe(change.object) if change.new is not None else self.graph.forget(change.object))

    def _heed(self, noticed: Noticed) -> None:
        if noticed is NOTHING:
            return
        queue = self._controller.queue
        for uid in noticed.now:
            queue.add(uid)
        for uid in noticed.later:
            if self._early is None:
                queue.add_after(uid, _LATE_S)
            else:
                self._early[uid] = None

    def _notice_definition(self, change: Change[Tracked]) -> None:
        if not change.is_initial:
            self._stale.set()

    def _reconcile(self, uid: str, answers: Answers) -> Sequence[Action]:
        actions = reconcile(self.graph, uid, answers)
        # An owner of an unknown kind: it may be new, or never exist.
        is_unknown = any(isinstance(action, Retry) for action in actions)
        if is_unknown and self._services.clock.monotonic() - self._refreshed_at > _UNKNOWN_KIND_S:
            self._stale.set()
        return actions


def _tracked(resource: Resource, object_: Any) -> Tracked:
    """From an object of a shared informer, which is decoded if core has its type."""
    return tracked(resource, object_) if isinstance(object_, dict) else tracked_metadata(resource, object_.metadata)


def _as_it_is(object_: Tracked) -> Tracked:
    return object_


def _served(discovery: Discovery) -> tuple[dict[tuple[str, str], Resource], list[Resource]]:
    """All kinds by group and name, and the resources to watch; of several versions the preferred one."""
    kinds: dict[tuple[str, str], Resource] = {}
    watched: dict[tuple[str, str], Resource] = {}
    for found in discovery.resources:
        resource = _resource(found)
        kinds.setdefault((found.group, found.kind), resource)
        name = (found.group, found.plural)
        if _NEEDED.issubset(found.verbs) and name not in IGNORED:
            watched.setdefault(name, resource)
    return kinds, list(watched.values())


def _resource(found: ApiResource) -> Resource:
    return Resource(
        group=found.group,
        version=found.version,
        plural=found.plural,
        kind=found.kind,
        namespaced=found.namespaced,
    )


def make(services: Services) -> GarbageCollector:
    """The controller `garbage-collector-controller`."""
    return GarbageCollector(services)
