"""The declared usage of a simulated pod: from its annotations, else half of what its containers request.

allot.dev/cpu-usage: "250m"          of the whole pod
allot.dev/memory-usage: "1Gi"
allot.dev/gpu-utilization: "80"      of each of its GPUs, in percent
allot.dev/gpu-memory-usage: "60Gi"   of each of its GPUs; by default the same share of memory as the utilization
allot.dev/metrics: "waiting 12"      the metrics of its program, in Prometheus' text format
allot.dev/load-is-shared: "true"     the values are the load on all pods of the same owner, which share it evenly
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from allot.core.metrics.exposition import Sample, parse
from allot.core.metrics.series import TOTAL, owned_by_pod
from allot.core.quantity import Quantity, QuantityError

CPU = "allot.dev/cpu-usage"
MEMORY = "allot.dev/memory-usage"
GPU = "allot.dev/gpu-utilization"
GPU_MEMORY = "allot.dev/gpu-memory-usage"
METRICS = "allot.dev/metrics"
SHARED = "allot.dev/load-is-shared"
_NANO = 10**9
# Requests are divided by this; a container without a request uses as much as an idle program.
_FRACTION = 2
_CPU_NANO, _MEMORY_BYTES = 1_000_000, 16 * 2**20
_GPU_PERCENT = 50.0
_SAMPLES_MAX = 200

Object = Mapping[str, Any]


class ContainerLoad(msgspec.Struct, frozen=True):
    """The usage of a container."""

    cpu_nano: int
    memory_bytes: int


class PodLoad(msgspec.Struct, frozen=True):
    """The usage of a pod: its containers by name, and each of its GPUs. samples: the metrics of its program. problem: which
    annotation is invalid, and why.
    """

    containers: Mapping[str, ContainerLoad]
    gpu_percent: float
    gpu_memory_bytes: int | None = None
    samples: tuple[Sample, ...] = ()
    problem: str = ""


def owner_of(pod: Object) -> str:
    """The uid of the pod's owner, whose pods share a load; the pod's own if it has none."""
    for owner in pod["metadata"].get("ownerReferences") or ():
        if owner.get("controller"):
            return str(owner["uid"])
    return str(pod["metadata"]["uid"])


def load_of(pod: Object, sharers: int) -> PodLoad:
    """The usage of a pod. sharers: how many pods its owner has, including this one."""
    annotations = pod["metadata"].get("annotations") or {}
    spec = pod["spec"]
    sidecars = [each for each in spec.get("initContainers") or () if each.get("restartPolicy") == "Always"]
    containers: Sequence[Object] = (*(spec.get("containers") or ()), *sidecars)
    shares = max(sharers, 1) if annotations.get(SHARED) == "true" else 1
    problems: list[str] = []

    def said(name: str) -> int | None:
        """The value of an annotation, in nano units."""
        if name not in annotations:
            return None
        try:
            amount = Quantity.parse(annotations[name]).nano
        except QuantityError:
            amount = -1
        if amount < 0:
            problems.append(f'annotation {name}: "{annotations[name][:80]}": expected a quantity that is not negative')
            return None
        return amount // shares

    cpu, memory, gpu, gpu_memory = said(CPU), said(MEMORY), said(GPU), said(GPU_MEMORY)
    count = max(len(containers), 1)

    def used(container: Object, resource: str, amount: int | None, otherwise: int) -> int:
        """The usage of a container: its share of the pod's annotation, else part of its own request or of its share of the pod's."""
        if amount is None:
            own = _amount(container, "requests", resource)
            of_pod = _amount(spec, "requests", resource)
            requested = own if own is not None else of_pod // count if of_pod is not None else None
            used = otherwise if requested is None else requested // _FRACTION
        else:
            used = amount // count
        limit = _amount(container, "limits", resource)
        return used if limit is None else min(used, limit)

    loads = {
        str(container["name"]): ContainerLoad(
            used(container, "cpu", cpu, _CPU_NANO), used(container, "memory", memory, _MEMORY_BYTES * _NANO) // _NANO
        )
        for container in containers
    }
    return PodLoad(
        containers=loads,
        gpu_percent=_GPU_PERCENT if gpu is None else min(gpu / _NANO, 100.0),
        gpu_memory_bytes=None if gpu_memory is None else gpu_memory // _NANO,
        samples=_told(pod, annotations.get(METRICS, ""), shares, problems),
        problem="; ".join(problems),
    )


def _told(pod: Object, text: str, shares: int, problems: list[str]) -> tuple[Sample, ...]:
    """The metrics of a pod's program."""
    if not text:
        return ()
    metadata = pod["metadata"]
    found = parse(text, samples_max=_SAMPLES_MAX)
    counters = sorted({sample.name for sample in found.samples if sample.name.endswith(TOTAL)})
    if found.left_out:
        problems.append(
            f"annotation {METRICS}: {found.left_out} lines: expected NAME{{LABELS}} VALUE, {_SAMPLES_MAX} at most"
        )
    if counters:
        text = f'annotation {METRICS}: "{counters[0][:80]}": expected a value, such as a rate without {TOTAL}; a counter would stand still'
        problems.append(text)
    return tuple(
        owned_by_pod(
            Sample(sample.name, sample.labels, sample.value / shares),
            metadata.get("namespace", ""),
            metadata.get("name", ""),
        )
        for sample in found.samples
        if not sample.name.endswith(TOTAL)
    )


def _amount(owner: Object, kind: str, resource: str) -> int | None:
    """The amount of a container, or of a pod spec."""
    text = ((owner.get("resources") or {}).get(kind) or {}).get(resource)
    try:
        return Quantity.parse(str(text)).nano if text is not None else None
    except QuantityError:
        return None
