"""The horizontal pod autoscaler controller: reconciles each autoscaler every 15 seconds (`core.workloads.autoscaling`).

The scale of a target of a common kind comes from the cache; before a write, and for other kinds, it comes from the
server. Metrics come from the metrics APIs.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import Any
from urllib.parse import quote

from allot.client.api import ResourceClient
from allot.client.discovery import ApiResource
from allot.client.errors import ApiError, Conflict, NotFound
from allot.client.events import EventRecorder
from allot.client.informer import Change, Informer
from allot.client.workqueue import WorkQueue
from allot.controllers.pods_by_label import matching, pods_by_label
from allot.controllers.runner import Services
from allot.core.model.core_v1 import Pod
from allot.core.workloads.autoscaling.decision import (
    Decision,
    concluded,
    decide,
    questions,
    requirements_of,
    selector_of,
    without_scale,
)
from allot.core.workloads.autoscaling.metrics import Failure, MetricAnswers, Question, selector_text
from allot.core.workloads.autoscaling.selector_store import SelectorStore
from allot.core.workloads.autoscaling.stabilization import History
from allot.core.workloads.resources import DEPLOYMENTS, REPLICA_SETS, STATEFUL_SETS
from allot.process.supervise import answer_or_none

_log = logging.getLogger("allot.controllers")

Object = dict[str, Any]

_WORKERS = 5
_CONFLICTS_MAX = 5
# How long a server's API version is remembered.
_API_S = 600.0
_CUSTOM = "custom.metrics.k8s.io"
_NOT_FOUND = 404
_CACHED = {("apps", each.kind): each for each in (DEPLOYMENTS, REPLICA_SETS, STATEFUL_SETS)}


class _NoScale(Exception):
    """Why a target's scale is not available."""


class _Metrics:
    """Reads the metrics APIs."""

    def __init__(self, services: Services, kinds: _Kinds) -> None:
        self._client = services.client
        self._clock = services.clock
        self._kinds = kinds
        self._custom: tuple[float, str] | None = None

    async def answer(self, question: Question) -> Object | Failure:
        """The answer of a metrics API."""
        try:
            path, query = await self._path(question)
            body = (await self._client.request("GET", path, query)).body
        except ApiError as error:
            return Failure(_not_served(question) if error.code == _NOT_FOUND and not error.reason else error.message)
        except _NoScale as error:
            return Failure(str(error))
        return body if isinstance(body, dict) else Failure("the answer is not an object")

    async def _path(self, question: Question) -> tuple[str, dict[str, str]]:
        namespace, metric = quote(question.namespace), quote(question.metric, safe=":")
        if question.api == "resource":
            return f"/apis/metrics.k8s.io/v1beta1/namespaces/{namespace}/pods", {"labelSelector": question.pods}
        if question.api == "external":
            return (
                f"/apis/external.metrics.k8s.io/v1beta1/namespaces/{namespace}/{metric}",
                {"labelSelector": question.labels} if question.labels else {},
            )
        root = f"/apis/{_CUSTOM}/{await self._custom_version()}/namespaces/{namespace}"
        query = {"metricLabelSelector": question.labels} if question.labels else {}
        if not question.object_kind:
            return f"{root}/pods/*/{metric}", {**query, "labelSelector": question.pods}
        if question.object_kind == "Namespace":
            return f"{root}/metrics/{metric}", query
        found = await self._kinds.find(question.object_api_version, question.object_kind)
        resource = f"{found.plural}.{found.group}" if found.group else found.plural
        return f"{root}/{resource}/{quote(question.object_name)}/{metric}", query

    async def _custom_version(self) -> str:
        """The newest one that the server has."""
        now = self._clock.monotonic()
        if self._custom is None or now - self._custom[0] > _API_S:
            body = (await self._client.request("GET", f"/apis/{_CUSTOM}")).body
            self._custom = (now, str(body["preferredVersion"]["version"]))
        return self._custom[1]


def _not_served(question: Question) -> str:
    """The API is not served: the server's answer has no message; this is the one of kube-controller-manager's clients."""
    if question.api == "custom":
        return f"no custom metrics API ({_CUSTOM}) registered"
    resource = "pods.metrics.k8s.io" if question.api == "resource" else f"{question.metric}.external.metrics.k8s.io"
    return f"the server could not find the requested resource (get {resource})"


class _Kinds:
    """Finds the resource of a kind."""

    def __init__(self, services: Services) -> None:
        self._client = services.client
        self._clock = services.clock
        self._sync_period_s = services.hpa_sync_period_s
        self._asked_at = -_API_S

    async def find(self, api_version: str, kind: str) -> ApiResource:
        """The resource of a kind; _NoScale if there is none. The server may have learned a custom kind recently."""
        group, _, version = api_version.rpartition("/")
        found = (await self._client.discovery()).find_kind(group, version, kind)
        if found is None and self._clock.monotonic() - self._asked_at > self._sync_period_s:
            self._asked_at = self._clock.monotonic()
            found = (await self._client.discovery(refresh=True)).find_kind(group, version, kind)
        if found is None:
            shown = f'"{kind}" in version "{api_version}"' if version else f'"{kind}"'
            raise _NoScale(f"no matches for kind {shown}")
        return found


class _Scales:
    """Scales of targets: from the caches if possible, else from the server."""

    def __init__(self, services: Services, kinds: _Kinds) -> None:
        self._client = services.client
        self._kinds = kinds
        self._caches: dict[tuple[str, str], Informer[Object]] = {
            key: services.informers.dynamic(each.group, each.version, each.plural, namespaced=True)
            for key, each in _CACHED.items()
        }

    @property
    def informers(self) -> tuple[Informer[Object], ...]:
        """The informers of cached kinds."""
        return tuple(self._caches.values())

    def cached(self, namespace: str, target: Object) -> Object | None:
        """The cached scale; None if there is none."""
        group = str(target.get("apiVersion", "")).rpartition("/")[0]
        informer = self._caches.get((group, target["kind"]))
        object_ = informer.cache.get(f"{namespace}/{target['name']}") if informer is not None else None
        if object_ is None:
            return None
        selector = selector_text(object_["spec"].get("selector"))
        status = {"replicas": (object_.get("status") or {}).get("replicas", 0), "selector": selector}
        return {"spec": {"replicas": object_["spec"].get("replicas", 0)}, "status": status}

    async def read(self, namespace: str, target: Object) -> Object:
        """The server's scale; _NoScale if unavailable."""
        try:
            return await (await self._resource(target)).get(target["name"], namespace, subresource="scale")
        except ApiError as error:
            raise _NoScale(error.message) from error

    async def write(self, target: Object, scale: Object, replicas: int) -> str | None:
        """Set the number of replicas; returns why that failed."""
        resource = await self._resource(target)
        for left in range(_CONFLICTS_MAX, -1, -1):
            try:
                await resource.update(
                    {**scale, "spec": {**(scale.get("spec") or {}), "replicas": replicas}}, subresource="scale"
                )
                return None
            except Conflict as error:
                if not left:
                    return error.message
                scale = await self.read(scale["metadata"]["namespace"], target)
            except ApiError as error:
                return error.message
        raise AssertionError("unreachable")

    async def _resource(self, target: Object) -> ResourceClient:
        found = await self._kinds.find(target.get("apiVersion", ""), target["kind"])
        return self._client.resource(found.group, found.version, found.plural, namespaced=found.namespaced)


class Autoscalers:
    """Reconciles every autoscaler periodically and when its spec changes."""

    def __init__(self, services: Services) -> None:
        self._clock = services.clock
        self._sync_period_s = services.hpa_sync_period_s
        self._hpas: Informer[Object] = services.informers.dynamic(
            "autoscaling", "v2", "horizontalpodautoscalers", namespaced=True
        )
        self._writes = services.client.resource("autoscaling", "v2", "horizontalpodautoscalers", namespaced=True)
        self._pods: Informer[Pod] = pods_by_label(services.informers)
        kinds = _Kinds(services)
        self._scales = _Scales(services, kinds)
        self._metrics = _Metrics(services, kinds)
        self._selectors = SelectorStore()
        self._histories: dict[str, History] = {}
        name = "horizontalpodautoscaler"
        self._queue: WorkQueue[str] = WorkQueue(self._clock, metrics=services.metrics.queue(name))
        services.metrics.watch(name, self._queue)
        self._events = EventRecorder(
            services.client,
            self._clock,
            services.ids,
            controller="horizontal-pod-autoscaler",
            instance=services.instance,
            tells_notes_apart=True,
        )
        self._hpas.add_handler(self._changed)

    async def run(self) -> None:
        """Run until cancelled."""
        informers: tuple[Informer[Any], ...] = (self._hpas, self._pods, *self._scales.informers)
        for informer in informers:
            await informer.wait_synced()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._events.run())
            for _ in range(_WORKERS):
                tasks.create_task(self._work())

    def _changed(self, change: Change[Object]) -> None:
        old, new = change.old, change.new
        if new is None:
            namespace, _, name = change.key.partition("/")
            self._selectors.delete(namespace, name)
            self._histories.pop(change.key, None)
        elif old is None or old["spec"] != new["spec"]:
            self._queue.add(change.key)

    async def _work(self) -> None:
        while True:
            key = await self._queue.get()
            await answer_or_none(f"autoscaler {key}", partial(self._look, key))
            self._queue.done(key)
            if key in self._hpas.cache:
                self._queue.add_after(key, self._sync_period_s)

    async def _look(self, key: str) -> bool:
        hpa = self._hpas.cache.get(key)
        if hpa is None or hpa["metadata"].get("deletionTimestamp"):
            return True
        target, namespace = hpa["spec"]["scaleTargetRef"], hpa["metadata"]["namespace"]
        try:
            scale = self._scales.cached(namespace, target) or await self._scales.read(namespace, target)
            decision = await self._decide(key, hpa, scale)
            if decision.replicas is not None:
                # Writes are based on the server's state, not the cache.
                live = await self._scales.read(namespace, target)
                if _counts(live) != _counts(scale):
                    decision = await self._decide(key, hpa, live)
                if decision.replicas is not None:
                    error = await self._scales.write(target, live, decision.replicas)
                    now, ticks = self._clock.seconds(), self._clock.monotonic()
                    decision = concluded(hpa, decision, self._histories[key], now, ticks, error)
        except _NoScale as error:
            decision = without_scale(hpa, str(error), self._clock.seconds())
        await self._conclude(hpa, decision)
        return True

    async def _decide(self, key: str, hpa: Object, scale: Object) -> Decision:
        namespace, _, name = key.partition("/")
        now, ticks = self._clock.seconds(), self._clock.monotonic()
        history = self._histories.get(key)
        if history is None:
            history = self._histories[key] = History(_counts(scale)[0], ticks)
        asked = questions(hpa, scale)
        answers: MetricAnswers = {question: await self._metrics.answer(question) for question in asked}
        wanted = requirements_of(selector_of(scale))
        pods: list[Pod] = []
        rivals: list[str] = []
        if wanted is not None:
            self._selectors.put(namespace, name, wanted)
            pods = matching(self._pods.cache, namespace, wanted)
            rivals = self._selectors.rivals(namespace, pods, 2)
        return decide(hpa, scale, answers, pods, rivals, history, now, ticks)

    async def _conclude(self, hpa: Object, decision: Decision) -> None:
        for event in decision.events:
            self._events.record(hpa, event.type, event.reason, "Scaling", event.note)
        if decision.status == (hpa.get("status") or {}):
            return
        metadata = {key: value for key, value in hpa["metadata"].items() if key != "managedFields"}
        try:
            await self._writes.update({**hpa, "metadata": metadata, "status": decision.status}, subresource="status")
        except (Conflict, NotFound):
            return  # it has changed in the meantime, and is queued again
        except ApiError as error:
            self._events.record(hpa, "Warning", "FailedUpdateStatus", "Scaling", error.message)
            _log.warning("autoscaler %s: %s", hpa["metadata"]["name"], error)


def make(services: Services) -> Autoscalers:
    """The controller `horizontal-pod-autoscaler-controller`."""
    return Autoscalers(services)


def _counts(scale: Object) -> tuple[int, str]:
    return int((scale.get("spec") or {}).get("replicas") or 0), selector_of(scale)
