"""The resource metrics of a node: what it, its pods and its containers use, by the names that metrics-server reads."""

from __future__ import annotations

from collections.abc import Sequence

from allot.node.machine import memory_available_bytes, memory_total_bytes, processor_seconds
from allot.node.runtimes.port import Container, ContainerUsage

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


def resource_metrics(usage: Sequence[ContainerUsage], containers: Sequence[Container], at_ms: int) -> str:
    """In Prometheus' text format."""
    by_id = {each.id: each for each in containers}
    lines: dict[str, list[str]] = {name: [] for name, _, _ in _TEXTS}
    lines["node_cpu_usage_seconds_total"].append(f"{processor_seconds()} {at_ms}")
    lines["node_memory_working_set_bytes"].append(f"{memory_total_bytes() - memory_available_bytes()} {at_ms}")
    lines["resource_scrape_error"].append("0")
    pods: dict[tuple[str, str], tuple[float, int]] = {}
    for each in usage:
        container = by_id.get(each.id)
        if container is None:
            continue
        name, namespace = container.pod.name, container.pod.namespace
        labels = f'{{container="{container.name}",namespace="{namespace}",pod="{name}"}}'
        lines["container_cpu_usage_seconds_total"].append(f"{labels} {each.processor_seconds} {at_ms}")
        lines["container_memory_working_set_bytes"].append(f"{labels} {each.memory_bytes} {at_ms}")
        lines["container_start_time_seconds"].append(f"{labels} {each.started_at}")
        processor, memory = pods.get((namespace, name), (0.0, 0))
        pods[namespace, name] = (processor + each.processor_seconds, memory + each.memory_bytes)
    for (namespace, name), (processor, memory) in pods.items():
        labels = f'{{namespace="{namespace}",pod="{name}"}}'
        lines["pod_cpu_usage_seconds_total"].append(f"{labels} {processor} {at_ms}")
        lines["pod_memory_working_set_bytes"].append(f"{labels} {memory} {at_ms}")
    told = []
    for name, kind, text in _TEXTS:
        told += [f"# HELP {name} [STABLE] {text}", f"# TYPE {name} {kind}"]
        told += [f"{name}{line}" if line.startswith("{") else f"{name} {line}" for line in lines[name]]
    return "\n".join(told) + "\n"
