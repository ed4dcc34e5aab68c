"""The three metrics APIs, answered from scraped data. They are read-only, and nothing is stored.

In other clusters, metrics-server and adapters serve them, registered as APIServices; here the server itself has the
APIServices, as it has for its own groups.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

import msgspec

from allot.apiserver.errors import StatusError, bad_request, method_not_allowed, not_found, path_not_found
from allot.apiserver.metricsapis.scraping import Board
from allot.apiserver.request import ApiObject, ApiRequest
from allot.core.metrics.resource_usage import Usage
from allot.core.metrics.series import Series, combined, total
from allot.core.model.meta import LabelSelector
from allot.core.quantity import Quantity
from allot.core.selectors import Requirements, SelectorError, label_requirements, parse_label_selector
from allot.process.clock import rfc3339

Object = dict[str, Any]

METRICS = "metrics.k8s.io"
CUSTOM = "custom.metrics.k8s.io"
EXTERNAL = "external.metrics.k8s.io"
VERSIONS: Mapping[str, tuple[str, ...]] = {
    METRICS: ("v1beta1",),
    CUSTOM: ("v1beta2", "v1beta1"),
    EXTERNAL: ("v1beta1",),
}
# Metrics that discovery lists.
_NAMES_MAX = 2_000
_INT64_MAX = 2**63 - 1
_SCOPES = {"nodes": "NodeMetrics", "pods": "PodMetrics"}

# Looks up an object by group, plural, namespace and name: its description, and which pods it selects; None if it does not exist.
Selecting = Callable[[str, str, str, str], Awaitable[tuple[Object, Requirements] | None]]


class MetricsApis:
    """Answers authorized requests."""

    def __init__(self, board: Board, seconds: Callable[[], float], selecting: Selecting) -> None:
        self.board = board
        self._seconds = seconds
        self._selecting = selecting

    def handles(self, group: str) -> bool:
        """Whether a group is one of these."""
        return group in VERSIONS

    def versions(self) -> Mapping[str, tuple[str, ...]]:
        """The versions of each group, the preferred one first."""
        return VERSIONS

    def resources(self, group: str, version: str) -> list[Object] | None:
        """The discovery document of a version; None if there is no such version."""
        if version not in VERSIONS.get(group, ()):
            return None
        if group == METRICS:
            return [
                {
                    "name": plural,
                    "singularName": "",
                    "namespaced": plural == "pods",
                    "kind": kind,
                    "verbs": ["get", "list"],
                }
                for plural, kind in _SCOPES.items()
            ]
        names = self.board.series.names()[:_NAMES_MAX]
        if group == EXTERNAL:
            return [_listed(name, "ExternalMetricValueList") for name in names]
        return [
            _listed(f"{plural}/{name}", "MetricValueList", namespaced=plural == "pods")
            for plural in ("namespaces", "nodes", "pods")
            for name in names
        ]

    async def answer(self, request: ApiRequest) -> ApiObject:
        """The answer; StatusError for every other outcome."""
        if request.version not in VERSIONS[request.group]:
            raise path_not_found()
        if request.verb not in ("get", "list"):
            raise method_not_allowed()
        match request.group:
            case "metrics.k8s.io":
                return ApiObject(object=self._resource(request))
            case "custom.metrics.k8s.io":
                return ApiObject(object=await self._custom(request))
        return ApiObject(object=self._external(request))

    # --- metrics.k8s.io ---

    def _resource(self, request: ApiRequest) -> Object:
        if request.resource not in _SCOPES or request.subresource:
            raise path_not_found()
        now = self._seconds()
        if request.resource == "nodes":
            if request.name:
                usage = self.board.usage.node(request.name, now)
                if usage is None or request.name not in self.board.nodes:
                    raise not_found(METRICS, "nodes", request.name)
                return _node(request.name, self.board.nodes[request.name], usage)
            wanted = _labels(request)
            found = (
                _node(name, labels, usage)
                for name, labels in sorted(self.board.nodes.items())
                if wanted.matches(labels) and (usage := self.board.usage.node(name, now)) is not None
            )
            return _list("NodeMetricsList", METRICS, request.version, _fields(request, found))
        if request.name:
            labels = self.board.pods.labels(request.namespace, request.name)
            usages = self.board.usage.pod(request.namespace, request.name, now)
            if labels is None or usages is None:
                raise not_found(METRICS, "pods", f"{request.namespace}/{request.name}")
            return _pod(request.namespace, request.name, labels, usages)
        namespaces = (request.namespace,) if request.namespace else self.board.pods.namespaces()
        wanted = _labels(request)
        pods = (
            _pod(namespace, name, labels, usages)
            for namespace in namespaces
            for name, labels in self.board.pods.selected(namespace, wanted)
            if (usages := self.board.usage.pod(namespace, name, now)) is not None
        )
        return _list("PodMetricsList", METRICS, request.version, _fields(request, pods))

    # --- custom.metrics.k8s.io ---

    async def _custom(self, request: ApiRequest) -> Object:
        namespace, name = request.namespace, request.name
        plural, _, group = request.resource.partition(".")
        if (plural, group) == ("metrics", "") and namespace and not request.subresource:
            # A metric of the namespace itself: its name is in the place of the object's name.
            described = {"kind": "Namespace", "name": namespace, "apiVersion": "/v1"}
            pods = self.board.pods.selected(namespace, Requirements())
            return self._of_all(request, name, described, ((namespace, pod) for pod, _ in pods))
        metric = request.subresource
        if not metric or not name:
            raise path_not_found()
        if (plural, group) == ("nodes", "") and not namespace:
            return self._of_nodes(request, metric)
        if not namespace:
            raise path_not_found()
        if (plural, group) == ("pods", ""):
            return self._of_pods(request, metric)
        found = await self._selecting(group, plural, namespace, name)
        if found is None:
            raise _no_metric(metric, request.resource, name)
        described, wanted = found
        selected = self.board.pods.selected(namespace, wanted)
        return self._of_all(request, metric, described, ((namespace, pod) for pod, _ in selected))

    def _values(
        self, request: ApiRequest, namespace: str, metric: str, pods: Iterable[str] | None = None
    ) -> dict[str, Series]:
        """Values by pod; of all pods unless some are named."""
        wanted = _selector(request.query.get("metricLabelSelector", ""), "metricLabelSelector")
        return combined(metric, self.board.series.of(namespace, metric, self._seconds(), pods, wanted))

    def _of_all(self, request: ApiRequest, metric: str, described: Object, pods: Iterable[tuple[str, str]]) -> Object:
        """One value for all pods together. pods: namespaces and names."""
        one = self._total(request, metric, pods, {})
        if one is None:
            raise _no_metric(metric, request.resource, request.name)
        return _list("MetricValueList", CUSTOM, request.version, [_value(described, metric, one, request)])

    def _total(
        self,
        request: ApiRequest,
        metric: str,
        pods: Iterable[tuple[str, str]],
        values: dict[str, dict[str, Series]],
    ) -> Series | None:
        """values: known ones, by namespace and pod."""
        found: list[Series] = []
        for namespace, pod in pods:
            if namespace not in values:
                values[namespace] = self._values(request, namespace, metric)
            if pod in values[namespace]:
                found.append(values[namespace][pod])
        return total(metric, found)

    def _of_nodes(self, request: ApiRequest, metric: str) -> Object:
        nodes, wanted = self.board.nodes, _labels(request)
        if request.name == "*":
            names = [name for name, labels in sorted(nodes.items()) if wanted.matches(labels)]
        else:
            names = [request.name] if request.name in nodes else []
        values: dict[str, dict[str, Series]] = {}
        items = [
            _value({"kind": "Node", "name": name, "apiVersion": "/v1"}, metric, one, request)
            for name in names
            if (one := self._total(request, metric, self.board.pods.on_node(name), values)) is not None
        ]
        if not items and request.name != "*":
            raise _no_metric(metric, "nodes", request.name)
        return _list("MetricValueList", CUSTOM, request.version, items)

    def _of_pods(self, request: ApiRequest, metric: str) -> Object:
        namespace = request.namespace
        names = [request.name]
        if request.name == "*":
            names = [name for name, _ in self.board.pods.selected(namespace, _labels(request))]
        values = self._values(request, namespace, metric, names)
        if request.name != "*" and not values:
            raise _no_metric(metric, "pods", request.name)
        items = [
            _value(
                {"kind": "Pod", "namespace": namespace, "name": name, "apiVersion": "/v1"},
                metric,
                values[name],
                request,
            )
            for name in names
            if name in values
        ]
        return _list("MetricValueList", CUSTOM, request.version, items)

    # --- external.metrics.k8s.io ---

    def _external(self, request: ApiRequest) -> Object:
        if not request.namespace or request.name:
            raise path_not_found()
        wanted, metric = _labels(request), request.resource
        items = [
            {
                "metricName": metric,
                "metricLabels": {**series.labels, "pod": series.pod},
                "timestamp": rfc3339(int(series.at)),
                **({"window": int(series.window_s)} if series.window_s else {}),
                "value": _milli(series.value),
            }
            for series in self.board.series.of(request.namespace, metric, self._seconds(), wanted=wanted)
        ]
        return _list("ExternalMetricValueList", EXTERNAL, request.version, items)


def selecting_object(object_: Object | None, kind: str, api_version: str) -> tuple[Object, Requirements] | None:
    """An object's description in answers, and which pods it selects; None if it selects none."""
    selector = ((object_ or {}).get("spec") or {}).get("selector")
    if object_ is None or not isinstance(selector, dict) or not selector:
        return None
    if not selector.keys() & {"matchLabels", "matchExpressions"}:
        selector = {"matchLabels": selector}  # of a Service or a ReplicationController
    try:
        wanted = label_requirements(msgspec.convert(selector, LabelSelector))
    except (msgspec.ValidationError, SelectorError):
        return None
    metadata = object_["metadata"]
    described = {
        "kind": kind,
        "namespace": metadata.get("namespace", ""),
        "name": metadata["name"],
        "apiVersion": api_version,
    }
    return None if wanted is None else (described, wanted)


def _listed(name: str, kind: str, *, namespaced: bool = True) -> Object:
    return {"name": name, "singularName": "", "namespaced": namespaced, "kind": kind, "verbs": ["get"]}


def _labels(request: ApiRequest) -> Requirements:
    return _selector(request.query.get("labelSelector", ""), "labelSelector")


def _selector(text: str, parameter: str) -> Requirements:
    try:
        return parse_label_selector(text) if text else Requirements()
    except SelectorError as error:
        raise bad_request(f"unable to parse {parameter}: {error}") from error


def _fields(request: ApiRequest, items: Iterable[Object]) -> list[Object]:
    """The objects that a field selector matches, by name and namespace."""
    wanted: list[tuple[str, str, bool]] = []
    for part in filter(None, request.query.get("fieldSelector", "").split(",")):
        field, found, value = part.replace("==", "=").partition("=")
        name, is_equal = field.removesuffix("!"), not field.endswith("!")
        if not found or name not in ("metadata.name", "metadata.namespace"):
            raise bad_request(f"field label not supported: {name[:80]}")
        wanted.append((name.removeprefix("metadata."), value, is_equal))
    return [
        item for item in items if all((item["metadata"].get(key) == value) == equal for key, value, equal in wanted)
    ]


def _list(kind: str, group: str, version: str, items: list[Object]) -> Object:
    return {"kind": kind, "apiVersion": f"{group}/{version}", "metadata": {}, "items": items}


def _node(name: str, labels: Mapping[str, str], usage: Usage) -> Object:
    return {
        "kind": "NodeMetrics",
        "apiVersion": f"{METRICS}/v1beta1",
        "metadata": _metadata(name, "", labels, usage.at),
        "timestamp": rfc3339(int(usage.at)),
        "window": _window(usage.window_s),
        "usage": _usage(usage),
    }


def _pod(namespace: str, name: str, labels: Mapping[str, str], usages: Mapping[str, Usage]) -> Object:
    oldest = min(usages.values(), key=lambda usage: usage.at)
    return {
        "kind": "PodMetrics",
        "apiVersion": f"{METRICS}/v1beta1",
        "metadata": _metadata(name, namespace, labels, oldest.at),
        "timestamp": rfc3339(int(oldest.at)),
        "window": _window(oldest.window_s),
        "containers": [{"name": each, "usage": _usage(usage)} for each, usage in sorted(usages.items())],
    }


def _metadata(name: str, namespace: str, labels: Mapping[str, str], at: float) -> Object:
    metadata: Object = {"name": name, "creationTimestamp": rfc3339(int(at))}
    if namespace:
        metadata["namespace"] = namespace
    if labels:
        metadata["labels"] = dict(labels)
    return metadata


def _usage(usage: Usage) -> Object:
    return {"cpu": f"{usage.cpu_nano}n", "memory": f"{usage.memory_bytes // 1024}Ki"}


def _window(seconds: float) -> str:
    """A duration in Go's format."""
    thousandths = max(round(seconds * 1000), 1)
    minutes, rest = divmod(thousandths, 60_000)
    hours, minutes = divmod(minutes, 60)
    text = f"{rest / 1000:g}s"
    if minutes or hours:
        text = f"{minutes}m{text}"
    return f"{hours}h{text}" if hours else text


def _value(described: Object, metric: str, series: Series, request: ApiRequest) -> Object:
    value: Object = {
        "describedObject": described,
        "timestamp": rfc3339(int(series.at)),
        "value": _milli(series.value),
    }
    if series.window_s:
        value["windowSeconds" if request.version == "v1beta2" else "window"] = int(series.window_s)
    if request.version == "v1beta1":
        return {**value, "metricName": metric, "selector": None}
    return {**value, "metric": {"name": metric, "selector": None}}


def _milli(value: float) -> str:
    """A quantity in thousandths, limited to 64 bits, as all readers expect."""
    return str(Quantity.from_nano(int(min(max(value * 1000, -_INT64_MAX), _INT64_MAX)) * 10**6))


def _no_metric(metric: str, resource: str, name: str) -> StatusError:
    return StatusError(404, "NotFound", f"the server could not find the metric {metric} for {resource} {name}")
