"""Three controllers for the endpoints of Services: EndpointSlices, the older Endpoints, and EndpointSlices for Endpoints that
were written manually. They wire `core.workloads.endpoint_slices`, `.legacy_endpoints` and `.endpoint_mirroring`.

A Service with many pods is not reconciled for each of them: the cost of one pass determines the delay of the next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from allot.client.cache import Cache
from allot.client.errors import ApiError
from allot.client.informer import Change, Informer
from allot.client.informers import Informers
from allot.client.workqueue import WorkQueue
from allot.controllers.pods_by_label import pods_by_label, selected
from allot.controllers.runner import Controller, Services
from allot.core.lifecycle.actions import Action, Answers, Delete, RequeueAfter, Resource, Write
from allot.core.lifecycle.claim_owners import key_of
from allot.core.model.core_v1 import Node, Pod
from allot.core.workloads import endpoint_mirroring, endpoint_slices, legacy_endpoints
from allot.core.workloads.endpoint_slices import MANAGED_BY, MANAGER, SERVICE_NAME, SLICES
from allot.core.workloads.service_endpoints import TriggerTimes, changes_endpoints, selector_of, selects
from allot.process.clock import Clock

Object = dict[str, Any]

_SERVICES = Resource(group="", version="v1", plural="services", kind="Service", namespaced=True)
_BY_LABEL = "endpoints: services by a label they select"
_BY_SERVICE = "endpoints: slices by manager and service"
# A pass over a thousand pods takes some ten milliseconds: so it uses at most a few percent of a processor.
_PODS_PER_SECOND = 2000.0
# The cache lags behind this process's own writes; normally it catches up, this is the fallback.
_STALE_S = 1.0


def _informer(informers: Informers, resource: Resource) -> Informer[Object]:
    return informers.dynamic(resource.group, resource.version, resource.plural, namespaced=resource.namespaced)


class _Selecting:
    """Services with their pods: which ones a pod change affects."""

    def __init__(self, informers: Informers) -> None:
        self.pods = pods_by_label(informers)
        self.services = _informer(informers, _SERVICES)
        self.services.cache.add_index(_BY_LABEL, _selected_label)
        # How many pods each Service had.
        self._sizes: dict[str, int] = {}
        self.times = TriggerTimes()

    def feed(self, queue: WorkQueue[str]) -> None:
        """Queue the keys of Services whose endpoints may have changed."""
        self._queue = queue
        self.services.add_handler(self._service_changed)
        self.pods.add_handler(self._pod_changed)

    def behind(self, key: str, service: Object) -> list[Pod] | None:
        """The pods of a Service; None if it has no selector."""
        selector = selector_of(service)
        if selector is None:
            return None
        found = selected(self.pods.cache, service["metadata"]["namespace"], selector)
        self._sizes[key] = len(found)
        return found

    def _service_changed(self, change: Change[Object]) -> None:
        if change.new is None:
            self._sizes.pop(change.key, None)
            self.times.forget(change.key)
        self._queue.add(change.key)

    def _pod_changed(self, change: Change[Pod]) -> None:
        old, new = change.old, change.new
        if old is not None and new is not None and not changes_endpoints(old, new):
            return
        if old is None and new is not None and not new.status.pod_ips:
            return
        found = dict.fromkeys(self._services_of(new)) if new is not None else {}
        if old is not None and (new is None or old.metadata.labels != new.metadata.labels):
            found |= dict.fromkeys(self._services_of(old))
        for key in found:
            self._queue.add_after(key, self._sizes.get(key, 0) / _PODS_PER_SECOND)

    def _services_of(self, pod: Pod) -> Iterator[str]:
        namespace = pod.metadata.namespace
        for key, value in pod.metadata.labels.items():
            for service in self.services.cache.by_index(_BY_LABEL, f"{namespace}/{key}={value}"):
                selector = selector_of(service)
                if selector is not None and selects(selector, pod.metadata.labels):
                    yield key_of(namespace, service["metadata"]["name"])


class _Written:
    """Slices that this process has written but the cache does not have yet: until then, the cache is stale."""

    def __init__(self, slices: Cache[Object], clock: Clock) -> None:
        self._slices = slices
        self._clock = clock
        # By Service: the slices, by key, and since when.
        self._open: dict[str, dict[str, float]] = {}
        # By slice: what the cache will have. Without a generation: no slice of that uid.
        self._expected: dict[str, tuple[str, int | None]] = {}

    def note(self, action: Write, after: Object | None, error: ApiError | None) -> None:
        """Record an attempted write."""
        if error is not None:
            return
        if isinstance(action, Delete):
            cached = self._slices.get(key_of(action.namespace, action.name))
            if cached is not None:
                self._expect(cached, None)
        elif after is not None:
            self._expect(after, after["metadata"].get("generation", 0))

    def seen(self, slice_: Object) -> None:
        """Record a change of a slice in the cache."""
        key = key_of(slice_["metadata"]["namespace"], slice_["metadata"]["name"])
        if key in self._expected and self._has(key):
            self._close(_service_key(slice_), key)

    def is_behind(self, service_key: str) -> bool:
        """Whether the cache lacks a write for a Service that may still arrive."""
        now = self._clock.monotonic()
        for key, since in tuple(self._open.get(service_key, {}).items()):
            if now - since > _STALE_S:
                self._close(service_key, key)
        return service_key in self._open

    def _expect(self, slice_: Object, generation: int | None) -> None:
        key = key_of(slice_["metadata"]["namespace"], slice_["metadata"]["name"])
        self._expected[key] = (slice_["metadata"]["uid"], generation)
        if self._has(key):
            self._close(_service_key(slice_), key)
        else:
            self._open.setdefault(_service_key(slice_), {})[key] = self._clock.monotonic()

    def _has(self, key: str) -> bool:
        uid, generation = self._expected[key]
        cached = self._slices.get(key)
        if cached is None or cached["metadata"]["uid"] != uid:
            return generation is None or cached is not None
        return generation is not None and cached["metadata"].get("generation", 0) >= generation

    def _close(self, service_key: str, key: str) -> None:
        self._expected.pop(key, None)
        of_service = self._open.get(service_key, {})
        of_service.pop(key, None)
        if not of_service:
            self._open.pop(service_key, None)


class _SliceWriting:
    """A queue of Services or Endpoints whose slices are written, once the cache includes earlier writes."""

    def __init__(
        self,
        services: Services,
        manager: str,
        reconcile: Callable[[str, Sequence[Object]], Sequence[Action]],
        *,
        queue_name: str,
        component: str,
        waits_for: Sequence[Informer[Any]],
    ) -> None:
        self._manager = manager
        self._wanted = reconcile
        self._slices = _informer(services.informers, SLICES)
        self._slices.cache.add_index(_BY_SERVICE, _manager_and_service)
        self._written = _Written(self._slices.cache, services.clock)
        self.controller: Controller[str] = Controller(
            services,
            self._reconcile,
            queue_name=queue_name,
            component=component,
            waits_for=(*waits_for, self._slices),
            on_written=self._written.note,
        )
        self._slices.add_handler(self._slice_changed)

    def _reconcile(self, key: str, answers: Answers) -> Sequence[Action]:  # noqa: ARG002 - it asks nothing
        if self._written.is_behind(key):
            return (RequeueAfter(seconds=_STALE_S),)
        return self._wanted(key, self._slices.cache.by_index(_BY_SERVICE, f"{self._manager}/{key}"))

    def _slice_changed(self, change: Change[Object]) -> None:
        self._written.seen(change.object)
        for slice_ in (change.old, change.new):
            if slice_ is not None and (slice_["metadata"].get("labels") or {}).get(MANAGED_BY) == self._manager:
                self.controller.queue.add(_service_key(slice_))


def make_slices(services: Services) -> Controller[str]:
    """The controller `endpointslice-controller`."""
    nodes = services.informers.typed(Node)
    selecting = _Selecting(services.informers)

    def reconcile(key: str, present: Sequence[Object]) -> Sequence[Action]:
        service = selecting.services.cache.get(key)
        pods = selecting.behind(key, service) if service is not None else None
        if service is None or pods is None:
            return ()
        known = {pod.spec.node_name: node for pod in pods if (node := nodes.cache.get(pod.spec.node_name)) is not None}
        at = selecting.times.note(key, service, pods)
        return endpoint_slices.reconcile_service(service, pods, present, known, at)

    writing = _SliceWriting(
        services,
        MANAGER,
        reconcile,
        queue_name="endpoint_slice",
        component="endpoint-slice-controller",
        waits_for=(nodes, selecting.pods, selecting.services),
    )
    selecting.feed(writing.controller.queue)
    return writing.controller


def make_mirror(services: Services) -> Controller[str]:
    """The controller `endpointslice-mirroring-controller`."""
    endpoints = _informer(services.informers, legacy_endpoints.ENDPOINTS)
    of_services = _informer(services.informers, _SERVICES)

    def reconcile(key: str, present: Sequence[Object]) -> Sequence[Action]:
        return endpoint_mirroring.reconcile_mirror(endpoints.cache.get(key), of_services.cache.get(key), present)

    writing = _SliceWriting(
        services,
        endpoint_mirroring.MIRROR,
        reconcile,
        queue_name="endpoint_slice_mirroring",
        component="endpoint-slice-mirroring-controller",
        waits_for=(endpoints, of_services),
    )

    def changed(change: Change[Object]) -> None:
        writing.controller.queue.add(change.key)

    endpoints.add_handler(changed)
    of_services.add_handler(changed)
    return writing.controller


def make_endpoints(services: Services) -> Controller[str]:
    """The controller `endpoints-controller`."""
    selecting = _Selecting(services.informers)
    endpoints = _informer(services.informers, legacy_endpoints.ENDPOINTS)

    def reconcile(key: str, answers: Answers) -> Sequence[Action]:  # noqa: ARG001 - it asks nothing
        service, present = selecting.services.cache.get(key), endpoints.cache.get(key)
        if service is None:
            return () if present is None else legacy_endpoints.remove_endpoints(present)
        pods = selecting.behind(key, service)
        if pods is None:
            return ()
        at = selecting.times.note(key, service, pods)
        return legacy_endpoints.reconcile_endpoints(service, pods, present, at)

    controller: Controller[str] = Controller(
        services,
        reconcile,
        queue_name="endpoint",
        component="endpoint-controller",
        waits_for=(selecting.pods, selecting.services, endpoints),
    )

    def endpoints_changed(change: Change[Object]) -> None:
        # Slices without a Service are checked once, when everything is known: later ones may precede their Service.
        if change.new is None or change.is_initial or change.key in selecting.services.cache:
            controller.queue.add(change.key)

    selecting.feed(controller.queue)
    endpoints.add_handler(endpoints_changed)
    return controller


def _service_key(slice_: Object) -> str:
    labels = slice_["metadata"].get("labels") or {}
    return key_of(slice_["metadata"]["namespace"], labels.get(SERVICE_NAME, ""))


def _manager_and_service(slice_: Object) -> Iterator[str]:
    labels = slice_["metadata"].get("labels") or {}
    if SERVICE_NAME in labels:
        yield f"{labels.get(MANAGED_BY, '')}/{_service_key(slice_)}"


def _selected_label(service: Object) -> Iterator[str]:
    """One of the labels that a Service selects: all its pods have it."""
    selector = selector_of(service)
    if selector is not None:
        key, value = min(selector.items())
        yield f"{service['metadata']['namespace']}/{key}={value}"
