"""CPU and memory usage of nodes, pods and containers from agents' samples (metrics-server's rules).

CPU usage is the difference between two points divided by the time between them, so a pod's usage is known once all its containers
have two; for a recently started one the rate counts from its start. Memory is that of the last point.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import msgspec

from allot.core.metrics.exposition import Sample, measured_at

# How long a container must have run before its average since the start is meaningful.
FRESH_S = 10.0
# Older samples say nothing about the present.
STALE_S = 120.0
# More than any machine has: such a report is ignored.
_CORES_MAX, _BYTES_MAX = 1e6, 2.0**60


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """Usage at a time, over the window before it. told_at: when it was received, by the receiver's clock."""

    at: float
    told_at: float
    window_s: float
    cpu_nano: int
    memory_bytes: int


class _Point(msgspec.Struct, frozen=True):
    at: float
    cpu_seconds: float
    memory_bytes: float
    started_at: float


_NodeName = str
# Namespace and name.
_PodName = tuple[str, str]


# How often endpoints are scraped by default, as in metrics-server.
RESOLUTION_S = 15.0


class UsageBoard:
    """Usage as of the last scrape of each endpoint."""

    def __init__(self, interval_s: float) -> None:
        self._interval_s = interval_s
        self._points: dict[str, dict[tuple[str, ...], _Point]] = {}
        self._nodes: dict[_NodeName, Usage] = {}
        self._pods: dict[_PodName, Mapping[str, Usage]] = {}
        self._told: dict[str, tuple[tuple[_NodeName, ...], tuple[_PodName, ...]]] = {}

    def knows(self, nodes: Iterable[str]) -> bool:
        """Whether enough is known about all these nodes to compute their usage."""
        return all(node in self._nodes for node in nodes)

    def put(self, endpoint: str, nodes: Iterable[str], samples: Iterable[Sample], now: float) -> None:
        """Store an endpoint's samples. nodes: those that it covers; an endpoint with several names the node of each value."""
        names = tuple(nodes)
        points = _points(samples, names, now)
        before = self._points.get(endpoint, {})
        self._points[endpoint] = points
        self._forget(endpoint)
        pods: dict[_PodName, dict[str, Usage | None]] = {}
        of_nodes: dict[_NodeName, Usage] = {}
        for key, point in points.items():
            usage = self._usage(point, before.get(key), now)
            if len(key) == 1:
                if usage is not None:
                    of_nodes[key[0]] = usage
            else:
                pods.setdefault((key[0], key[1]), {})[key[2]] = usage
        complete: dict[_PodName, Mapping[str, Usage]] = {
            pod: {name: usage for name, usage in found.items() if usage is not None}
            for pod, found in pods.items()
            if None not in found.values()
        }
        self._nodes |= of_nodes
        self._pods |= complete
        self._told[endpoint] = (tuple(of_nodes), tuple(complete))

    def keep(self, endpoints: Iterable[str]) -> None:
        """Forget the samples of all other endpoints."""
        kept = set(endpoints)
        for endpoint in sorted(self._told):
            if endpoint not in kept:
                self._forget(endpoint)
                self._points.pop(endpoint, None)

    def node(self, name: str, now: float) -> Usage | None:
        """The usage of a node; None if currently unknown."""
        usage = self._nodes.get(name)
        return usage if usage is not None and abs(now - usage.told_at) <= STALE_S else None

    def pod(self, namespace: str, name: str, now: float) -> Mapping[str, Usage] | None:
        """The usage of a pod's containers, by name; None if currently unknown."""
        usage = self._pods.get((namespace, name))
        return usage if usage and abs(now - next(iter(usage.values())).told_at) <= STALE_S else None

    def _forget(self, endpoint: str) -> None:
        nodes, pods = self._told.pop(endpoint, ((), ()))
        for node in nodes:
            self._nodes.pop(node, None)
        for pod in pods:
            self._pods.pop(pod, None)

    def _usage(self, point: _Point, before: _Point | None, now: float) -> Usage | None:
        if before is None or before.started_at != point.started_at:
            age = point.at - point.started_at
            if not point.started_at or not FRESH_S <= age < FRESH_S + self._interval_s:
                return None
            before = _Point(point.started_at, 0.0, 0.0, point.started_at)
        window_s, used = point.at - before.at, point.cpu_seconds - before.cpu_seconds
        if window_s <= 0 or not 0 <= used / window_s <= _CORES_MAX or point.memory_bytes > _BYTES_MAX:
            return None
        return Usage(
            at=point.at,
            told_at=now,
            window_s=window_s,
            cpu_nano=int(used / window_s * 1e9),
            memory_bytes=int(point.memory_bytes),
        )


def _points(samples: Iterable[Sample], nodes: tuple[str, ...], now: float) -> dict[tuple[str, ...], _Point]:
    """By node, or by namespace, pod and container; those without a value are left out."""
    found: dict[tuple[str, ...], dict[str, tuple[float, float]]] = {}
    for sample in samples:
        labels = sample.labels
        if sample.name in ("node_cpu_usage_seconds_total", "node_memory_working_set_bytes"):
            name = labels.get("node", nodes[0] if len(nodes) == 1 else "")
            key: tuple[str, ...] = (name,)
            if name not in nodes:
                continue
        elif sample.name.startswith("container_") and "container" in labels:
            key = (labels.get("namespace", ""), labels.get("pod", ""), labels["container"])
        else:
            continue
        at = measured_at(sample, now)
        if at is None or not math.isfinite(sample.value) or sample.value < 0:
            continue
        kind = sample.name.partition("_")[2]
        found.setdefault(key, {})[kind] = (sample.value, at)
    points: dict[tuple[str, ...], _Point] = {}
    for key, values in found.items():
        cpu, memory = values.get("cpu_usage_seconds_total"), values.get("memory_working_set_bytes")
        if cpu is not None and memory is not None:
            started = values.get("start_time_seconds", (0.0, 0.0))[0]
            points[key] = _Point(cpu[1], cpu[0], memory[0], started)
    return points
