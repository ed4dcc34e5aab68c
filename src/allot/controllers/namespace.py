"""The namespace controller: empties a terminating namespace, reports what remains, and removes its finalizer.

Does not use caches: it lists the namespace from the server each time, because the answer must be
complete, even for kinds that are not watched.
"""

from __future__ import annotations

import asyncio
import logging
from datetime import datetime

from allot.client.api import ResourceClient
from allot.client.discovery import Discovery
from allot.client.errors import ApiError, Conflict, MethodNotAllowed, NotFound
from allot.client.informer import Change, Informer
from allot.client.workqueue import RateLimiter, WorkQueue
from allot.controllers.runner import Services
from allot.controllers.upstream_detection import is_allot
from allot.core.lifecycle import namespaces
from allot.core.lifecycle.actions import Resource
from allot.core.lifecycle.namespaces import Leftover, Sweep
from allot.core.model.core_v1 import Namespace, Pod

_log = logging.getLogger("allot.controllers")

WORKERS = 10
RETRY_MAX_S = 60.0
# Other servers may admit objects into the namespace until they learn of its deletion. Ours checks the store.
FOREIGN_DELAY_S = 5.0
_AT_ONCE = 20
# Pods of one namespace often terminate together.
_AFTER_POD_S = 0.3


class NamespaceController:
    """Deletes what is in namespaces that are being deleted."""

    def __init__(self, services: Services) -> None:
        self._client = services.client
        self._clock = services.clock
        self._namespaces = services.client.resource("", "v1", "namespaces", namespaced=False)
        self._informer: Informer[Namespace] = services.informers.typed(Namespace)
        self._pods: Informer[Pod] = services.informers.typed(Pod)
        limiter: RateLimiter[str] = RateLimiter(services.clock, max_s=RETRY_MAX_S)
        self._queue: WorkQueue[str] = WorkQueue(
            services.clock, limiter=limiter, metrics=services.metrics.queue("namespace")
        )
        # How often a namespace was not yet empty.
        self._attempts: dict[str, int] = {}
        self._delay_s = FOREIGN_DELAY_S

    async def run(self) -> None:
        """Work until cancelled."""
        if await is_allot(self._client):
            self._delay_s = 0.0
        stops = (self._informer.add_handler(self._notice), self._pods.add_handler(self._notice_pod))
        try:
            async with asyncio.TaskGroup() as tasks:
                for _ in range(WORKERS):
                    tasks.create_task(self._work())
        finally:
            for stop in stops:
                stop()

    def _notice_pod(self, change: Change[Pod]) -> None:
        """Everything else waits for pods, so their end triggers a check before the pause is over."""
        namespace = change.key.partition("/")[0]
        if change.new is None and namespace in self._attempts:
            self._queue.add_after(namespace, _AFTER_POD_S)

    def _notice(self, change: Change[Namespace]) -> None:
        if change.new is None:
            self._attempts.pop(change.key, None)
        elif change.new.metadata.deletion_timestamp is not None:
            self._queue.add_after(change.key, self._delay_s)

    async def _work(self) -> None:
        while True:
            name = await self._queue.get()
            try:
                pause = await self._sync(name)
                self._queue.forget(name)
                if pause is None:
                    self._attempts.pop(name, None)
                else:
                    self._attempts[name] = self._attempts.get(name, 0) + 1
                    self._queue.add_after(name, pause)
            except Conflict:
                self._queue.add_rate_limited(name)
            except ApiError as error:
                _log.warning("namespace %s: %s", name, error)
                self._queue.add_rate_limited(name)
            finally:
                self._queue.done(name)

    async def _sync(self, name: str) -> float | None:
        """One pass; returns when to retry, None if there is no need to."""
        try:
            namespace = await self._namespaces.get(name)
        except NotFound:
            return None
        deleted = namespace["metadata"].get("deletionTimestamp")
        if deleted is None or not namespaces.finalizers(namespace):
            return None
        sweep = await self._sweep(name, self._clock.seconds() - datetime.fromisoformat(deleted).timestamp())
        done = sweep.is_clean
        if not done or namespaces.is_held_by_others(namespace):
            told = namespaces.with_conditions(namespace, sweep, self._clock.now())
            if told is not None:
                namespace = await self._namespaces.update_status(told)
        if not done:
            for failure in sweep.failures:
                _log.warning("namespace %s: %s", name, failure)
            return namespaces.pause_s(sweep, self._attempts.get(name, 0))
        if namespaces.FINALIZER in namespaces.finalizers(namespace):
            try:
                await self._namespaces.update(namespaces.finalized(namespace), subresource="finalize")
            except NotFound:
                return None
        return None

    # --- emptying ---

    async def _sweep(self, name: str, deleted_since_s: float) -> Sweep:
        try:
            discovery = await self._client.discovery(refresh=True)
        except ApiError as error:
            return Sweep(discovery_failure=str(error))
        verbs = _deletable(discovery)
        grace_s = await self._grace_s(name, deleted_since_s)
        leftovers: list[Leftover] = []
        failures: list[str] = []
        for phase in namespaces.phases(verbs):
            for start in range(0, len(phase), _AT_ONCE):
                async with asyncio.TaskGroup() as tasks:
                    asked = [
                        tasks.create_task(self._empty(name, one, verbs[one])) for one in phase[start : start + _AT_ONCE]
                    ]
                for one in asked:
                    left, failure = one.result()
                    if left is not None:
                        leftovers.append(left)
                        if not failure and not left.finalizers and not grace_s:
                            failure = namespaces.unexpected(name, left)
                    if failure:
                        failures.append(failure)
            if leftovers:
                break
        return Sweep(
            leftovers=tuple(leftovers),
            failures=tuple(failures),
            discovery_failure=namespaces.discovery_failure(discovery.missing),
            grace_s=grace_s,
        )

    async def _grace_s(self, name: str, deleted_since_s: float) -> int:
        return namespaces.grace_s((await self._client.typed(Pod).list(name)).items, deleted_since_s)

    async def _empty(self, namespace: str, kind: Resource, verbs: tuple[str, ...]) -> tuple[Leftover | None, str]:
        """Delete all objects of a resource; returns what remains, and what failed."""
        resource = self._client.resource(kind.group, kind.version, kind.plural, namespaced=True)
        try:
            if "list" in verbs and not (await resource.list(namespace)).items:
                # Most kinds have no objects there, and listing is cheaper than deleting.
                return None, ""
            if "deletecollection" in verbs:
                await resource.delete_collection(namespace, propagation_policy="Background")
            elif "list" in verbs:
                await self._delete_each(resource, namespace)
            if "list" not in verbs:
                return None, ""
            return namespaces.leftover(kind, (await resource.list(namespace)).items), ""
        except (MethodNotAllowed, NotFound):
            # The kind is gone with all its objects: a CustomResourceDefinition was deleted.
            return None, ""
        except ApiError as error:
            return None, error.message

    async def _delete_each(self, resource: ResourceClient, namespace: str) -> None:
        for item in (await resource.list(namespace)).items:
            try:
                await resource.delete(item["metadata"]["name"], namespace, propagation_policy="Background")
            except NotFound:
                continue


def _deletable(discovery: Discovery) -> dict[Resource, tuple[str, ...]]:
    """The namespaced resources whose objects can be deleted, in their preferred versions, with their verbs."""
    found: dict[tuple[str, str], tuple[Resource, tuple[str, ...]]] = {}
    for one in discovery.resources:
        if one.namespaced and "delete" in one.verbs:
            resource = Resource(group=one.group, version=one.version, plural=one.plural, kind=one.kind, namespaced=True)
            found.setdefault((one.group, one.plural), (resource, one.verbs))
    return dict(found.values())


def make(services: Services) -> NamespaceController:
    """The controller `namespace-controller`."""
    return NamespaceController(services)
