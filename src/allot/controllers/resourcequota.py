"""The resource quota controller: counts what the objects of a namespace use, and writes it to its quotas.

The API server charges creations; this controller notices deletions. It watches only kinds that some quota limits. Counting
reads the namespace from the server, so a quota is counted again only after a pause that grows with what counting costs.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from functools import partial
from typing import Any

from allot.client.api import ResourceClient
from allot.client.errors import ApiError, Conflict, NotFound
from allot.client.informer import Change, Informer
from allot.client.workqueue import WorkQueue
from allot.controllers.runner import Services
from allot.core.quota.amounts import Amounts, plus
from allot.core.quota.claims import DeviceClasses, device_classes
from allot.core.quota.measure import KindName, frees, may_free, measured_kinds, measured_parts, wanted_quota, with_usage
from allot.process.supervise import supervise

_log = logging.getLogger("allot.controllers")

WORKERS = 5
RESYNC_S = 300.0
# Deletions come in groups.
_GATHER_S = 0.2
# The longest usual time between a charge and the write of its object.
_SETTLE_S = 0.2
_SYNC_S = 30.0
# The share of time that counting may take.
_SHARE = 0.1

Object = dict[str, Any]


class QuotaController:
    """Maintains the status of quotas."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._client = services.client
        self._clock = services.clock
        informers = services.informers
        self._quotas: Informer[Object] = informers.dynamic("", "v1", "resourcequotas", namespaced=True)
        self._classes: Informer[Object] = informers.dynamic("resource.k8s.io", "v1", "deviceclasses", namespaced=False)
        self._quotas.cache.add_index("namespace", _namespace_of)
        self._watched: dict[KindName, Informer[Object]] = {}
        self._queue: WorkQueue[str] = WorkQueue(
            services.clock, metrics=services.metrics.queue("resource_quota_controller_resource_changes")
        )
        self._cost_s: dict[str, float] = {}

    async def run(self) -> None:
        """Count until cancelled. After a failure, it starts over."""
        self._watched.clear()
        await self._quotas.wait_synced()
        try:
            async with asyncio.timeout(_SYNC_S):
                await self._classes.wait_synced()
        except TimeoutError:
            _log.warning("resource quota: device classes are not available; quotas for them are not counted")
        async with asyncio.TaskGroup() as tasks:
            stop = self._quotas.add_handler(self._notice_quota)
            try:
                tasks.create_task(self._resync())
                for _ in range(WORKERS - 1):
                    tasks.create_task(self._work(tasks))
                await self._work(tasks)
            finally:
                stop()

    # --- changes ---

    def _notice_quota(self, change: Change[Object]) -> None:
        if change.new is None:
            self._cost_s.pop(change.key, None)
        elif change.old is None or _hard_differs(change.new):
            self._queue.add(change.key)

    def _notice_object(self, kind: KindName, change: Change[Object]) -> None:
        if change.old is None or not may_free(kind, change.old, change.new):
            return
        for quota in self._quotas.cache.by_index("namespace", change.old["metadata"]["namespace"]):
            key = _key_of(quota)
            self._queue.add_after(key, max(_GATHER_S, self._cost_s.get(key, 0.0) / _SHARE))

    async def _resync(self) -> None:
        while True:
            await self._clock.sleep(RESYNC_S)
            for quota in self._quotas.cache:
                self._queue.add(_key_of(quota))

    # --- counting ---

    async def _work(self, tasks: asyncio.TaskGroup) -> None:
        while True:
            key = await self._queue.get()
            started = self._clock.monotonic()
            try:
                await self._count(key, tasks)
                self._queue.forget(key)
            except (Conflict, NotFound):
                self._queue.add_rate_limited(key)
            except ApiError as error:
                _log.warning("resource quota %s: %s", key, error)
                self._queue.add_rate_limited(key)
            finally:
                if key in self._quotas.cache:
                    self._cost_s[key] = self._clock.monotonic() - started
                self._queue.done(key)

    async def _count(self, key: str, tasks: asyncio.TaskGroup) -> None:
        # Read the quota before counting: a charge in between makes the write fail, and the count is repeated.
        object_ = self._quotas.cache.get(key)
        if object_ is None:
            return
        changed = await self._counted(object_, tasks)
        if changed is not None and frees(object_, changed):
            # A charged object may not have been in the store yet. By now it is, or the quota has changed again.
            await self._clock.sleep(_SETTLE_S)
            changed = await self._counted(object_, tasks)
        if changed is not None:
            quotas = self._client.resource("", "v1", "resourcequotas", namespaced=True)
            await quotas.update_status(changed)

    async def _counted(self, object_: Object, tasks: asyncio.TaskGroup) -> Object | None:
        quota = wanted_quota(object_)
        classes = device_classes(self._classes.cache)
        objects = await self._objects(object_["metadata"]["namespace"], quota.hard, classes, tasks)
        used: Amounts = {}
        for part in measured_parts(quota, objects, classes, self._clock.now()):
            used = plus(used, part)
            await asyncio.sleep(0)
        return with_usage(object_, quota, used)

    async def _objects(
        self, namespace: str, hard: Any, classes: DeviceClasses, tasks: asyncio.TaskGroup
    ) -> dict[KindName, Sequence[Object]]:
        found: dict[KindName, Sequence[Object]] = {}
        for kind in measured_kinds(hard, classes):
            resource = await self._resource(kind)
            if resource is None:
                # Not served (yet): there are no objects.
                found[kind] = ()
                continue
            await self._watch(kind, resource, tasks)
            found[kind] = (await resource.list(namespace)).items
        return found

    async def _watch(self, kind: KindName, resource: ResourceClient, tasks: asyncio.TaskGroup) -> None:
        """Watch for deletions of a kind, starting before the count, so that none is missed in between."""
        if kind in self._watched:
            return
        clock = self._clock
        informer: Informer[Object] = Informer(resource, _slim, clock, self._services.ids)
        informer.add_handler(partial(self._notice_object, kind))
        self._watched[kind] = informer
        tasks.create_task(supervise(f"resource quota: the watch of {kind[1]}", informer.run, clock))
        try:
            async with asyncio.timeout(_SYNC_S):
                await informer.wait_synced()
        except TimeoutError:
            _log.warning("resource quota: cannot watch %s yet", kind[1])

    async def _resource(self, kind: KindName) -> ResourceClient | None:
        for refresh in (False, True):
            discovery = await self._client.discovery(refresh=refresh)
            for one in discovery.resources:
                if (one.group, one.plural) == kind and one.namespaced and {"list", "watch"}.issubset(one.verbs):
                    return self._client.discovered(one)
        return None


def _slim(object_: Object) -> Object:
    """The part of an object that shows whether it uses less than before."""
    metadata = object_["metadata"]
    status = object_.get("status") or {}
    kept: Object = {"metadata": {"namespace": metadata.get("namespace", "")}, "status": {"phase": status.get("phase")}}
    if object_.get("kind") in ("Service", "PersistentVolumeClaim"):
        kept["spec"] = object_.get("spec")
    return kept


def _key_of(quota: Object) -> str:
    return f"{quota['metadata']['namespace']}/{quota['metadata']['name']}"


def _namespace_of(object_: Object) -> tuple[str, ...]:
    return (object_["metadata"]["namespace"],)


def _hard_differs(quota: Object) -> bool:
    """Whether a quota's limits are not in its status yet."""
    status = quota.get("status") or {}
    wanted = (quota.get("spec") or {}).get("hard") or {}
    return (status.get("hard") or {}) != wanted or set(status.get("used") or {}) != set(wanted)


def make(services: Services) -> QuotaController:
    """The controller `resourcequota-controller`."""
    return QuotaController(services)
