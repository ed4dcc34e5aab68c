"""Resource usage of a node, its pods and its containers: in metrics-server's format, and as the kubelet's summary."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from allot.core.lifecycle.times import time_of
from allot.core.metrics.exposition import line
from allot.node.machine import memory_available_bytes, memory_total_bytes, processor_seconds
from allot.node.runtimes.port import Container, ContainerUsage, State

_TEXTS = (
    ("node_cpu_usage_seconds_total", "counter", "Cumulative cpu time consumed by the node in core-seconds"),
    ("node_memory_working_set_bytes", "gauge", "Current working set of the node in bytes"),
    ("pod_cpu_usage_seconds_total", "counter", "Cumulative cpu time consumed by the pod in core-seconds"),
    ("pod_memory_working_set_bytes", "gauge", "Current working set of the pod in bytes"),
    ("container_cpu_usage_seconds_total", "counter", "Cumulative cpu time consumed by the container in core-seconds"),
    ("container_memory_working_set_bytes", "gauge", "Current working set of the container in bytes"),
    ("container_start_time_seconds", "gauge", "Start time of the container since unix epoch in seconds"),
    ("resource_scrape_error", "gauge", "1 if there was an error while getting container metrics, 0 otherwise"),
)

# The minimum interval for rates, and how long their starting points are kept.
_RATE_S, _KEPT_S = 10.0, 600.0


class NodeUse(msgspec.Struct, frozen=True, kw_only=True):
    """What a node uses. name: empty if the endpoint serves only one."""

    name: str = ""
    processor_seconds: float = 0.0
    memory_bytes: int = 0
    memory_available_bytes: int | None = None


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """What was measured, as of a time in seconds since 1970."""

    at: float
    nodes: tuple[NodeUse, ...]
    containers: tuple[tuple[Container, ContainerUsage], ...]


def measured_here(usage: Sequence[ContainerUsage], containers: Iterable[Container], at: float) -> Measured:
    """The use of this machine and of its containers."""
    available = memory_available_bytes()
    node = NodeUse(
        processor_seconds=processor_seconds(),
        memory_bytes=memory_total_bytes() - available,
        memory_available_bytes=available,
    )
    return Measured(at=at, nodes=(node,), containers=joined(usage, containers))


def joined(
    usage: Iterable[ContainerUsage], containers: Iterable[Container]
) -> tuple[tuple[Container, ContainerUsage], ...]:
    """Each running container with its usage."""
    by_id = {each.id: each for each in containers if each.state is State.RUNNING}
    return tuple((by_id[each.id], each) for each in usage if each.id in by_id)


def resource_metrics(measured: Measured) -> str:
    """In Prometheus' text format, as the kubelet's /metrics/resource."""
    at_ms = int(measured.at * 1000)
    lines: dict[str, list[str]] = {name: [] for name, _, _ in _TEXTS}

    def add(name: str, labels: dict[str, str], value: float, at: int | None = at_ms) -> None:
        lines[name].append(line(name, labels, value, at))

    for node in measured.nodes:
        labels = {"node": node.name} if node.name else {}
        add("node_cpu_usage_seconds_total", labels, node.processor_seconds)
        add("node_memory_working_set_bytes", labels, node.memory_bytes)
    add("resource_scrape_error", {}, 0, None)
    pods: dict[tuple[str, str], tuple[float, int]] = {}
    for container, used in measured.containers:
        name, namespace = container.pod.name, container.pod.namespace
        labels = {"container": container.name, "namespace": namespace, "pod": name}
        add("container_cpu_usage_seconds_total", labels, used.processor_seconds)
        add("container_memory_working_set_bytes", labels, used.memory_bytes)
        add("container_start_time_seconds", labels, used.started_at, None)
        processor, memory = pods.get((namespace, name), (0.0, 0))
        pods[namespace, name] = (processor + used.processor_seconds, memory + used.memory_bytes)
    for (namespace, name), (processor, memory) in pods.items():
        labels = {"namespace": namespace, "pod": name}
        add("pod_cpu_usage_seconds_total", labels, processor)
        add("pod_memory_working_set_bytes", labels, memory)
    told = []
    for name, kind, text in _TEXTS:
        told += [f"# HELP {name} [STABLE] {text}", f"# TYPE {name} {kind}", *lines[name]]
    return "\n".join(told) + "\n"


class Summaries:
    """The kubelet's /stats/summary. Rates cover about the last ten seconds, however often they are queried."""

    def __init__(self) -> None:
        # By key: when it was measured, and the processor time until then.
        self._before: dict[str, tuple[float, float]] = {}

    def summary(self, measured: Measured, node_name: str) -> dict[str, Any]:
        """The current usage. node_name: for an endpoint of one node."""
        pods: dict[str, dict[str, Any]] = {}
        for container, used in measured.containers:
            name = container.pod
            pod = pods.setdefault(
                name.uid,
                {
                    "podRef": {"name": name.name, "namespace": name.namespace, "uid": name.uid},
                    "startTime": time_of(used.started_at),
                    "containers": [],
                },
            )
            pod["containers"].append(
                {
                    "name": container.name,
                    "startTime": time_of(used.started_at),
                    "cpu": self._cpu(container.id, used.processor_seconds, measured.at, used.started_at),
                    "memory": _memory(used.memory_bytes, measured.at),
                }
            )
        for pod in pods.values():
            pod["startTime"] = min(each["startTime"] for each in pod["containers"])
            pod["cpu"] = _sum([each["cpu"] for each in pod["containers"]])
            pod["memory"] = _sum([each["memory"] for each in pod["containers"]])
        nodes = [
            {
                "nodeName": node.name or node_name,
                "cpu": self._cpu(f"node {node.name or node_name}", node.processor_seconds, measured.at),
                "memory": _memory(node.memory_bytes, measured.at, node.memory_available_bytes),
            }
            for node in measured.nodes
        ]
        self._forget(measured.at)
        # Without a requested node, an endpoint of several nodes reports the first one, and all pods.
        return {"node": nodes[0] if nodes else {"nodeName": node_name}, "pods": list(pods.values())}

    def _cpu(self, key: str, total: float, at: float, since: float = 0.0) -> dict[str, Any]:
        """since: when counting started, if known."""
        told: dict[str, Any] = {"time": time_of(at), "usageCoreNanoSeconds": int(total * 1e9)}
        before = self._before.get(key) or ((since, 0.0) if since else None)
        if before is None or at - before[0] >= _RATE_S or total < before[1]:
            self._before[key] = (at, total)
        if before is not None and at > before[0] and total >= before[1]:
            told["usageNanoCores"] = int((total - before[1]) / (at - before[0]) * 1e9)
        return told

    def _forget(self, now: float) -> None:
        """Forget what was not queried lately, and what a clock that went back left behind."""
        self._before = {key: point for key, point in self._before.items() if abs(now - point[0]) < _KEPT_S}


def _memory(used: int, at: float, available: int | None = None) -> dict[str, Any]:
    told = {"time": time_of(at), "usageBytes": used, "workingSetBytes": used}
    return told if available is None else {**told, "availableBytes": available}


def _sum(parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {"time": parts[0]["time"]}
    for name in dict.fromkeys(key for part in parts for key in part if key != "time"):
        if all(name in part for part in parts):
            found[name] = sum(part[name] for part in parts)
    return found
