"""Size limits of a pod's emptyDir volumes, and eviction of a pod that exceeds one, as in the kubelet."""

from __future__ import annotations

from collections.abc import Mapping

from allot.core.model.containers_v1 import RunnableContainer
from allot.core.model.pods_v1 import RunnablePod
from allot.core.model.volumes_v1 import EmptyDirVolumeSource
from allot.core.quantity import Quantity

MEMORY = "Memory"
EVICTED = "Evicted"


def size_limit_bytes(source: EmptyDirVolumeSource) -> int | None:
    """The size limit of a volume; None if it has none."""
    limit = source.size_limit
    return limit.value() if limit is not None and limit.value() > 0 else None


def memory_volume_bytes(pod: RunnablePod, source: EmptyDirVolumeSource, allocatable: Mapping[str, Quantity]) -> int:
    """How much memory a volume gets: its limit, but not more than the pod or the node has. 0 if unknown."""
    node = allocatable.get("memory")
    bounds = (size_limit_bytes(source), _memory_limit_bytes(pod), node.value() if node is not None else None)
    return min((each for each in bounds if each), default=0)


def _memory_limit_bytes(pod: RunnablePod) -> int | None:
    """What all containers together may use; None if one has no limit. Init containers run alone, except for the sidecars before
    them.
    """
    spec = pod.spec
    own = spec.resources.limits.get("memory") if spec.resources is not None else None
    if own is not None:
        return own.value()
    if not all(_limit(each) for each in (*spec.init_containers, *spec.containers)):
        return None
    sidecars = largest = 0
    for each in spec.init_containers:
        if each.is_sidecar:
            sidecars += _limit(each)
        largest = max(largest, sidecars if each.is_sidecar else sidecars + _limit(each))
    return max(largest, sidecars + sum(_limit(each) for each in spec.containers)) or None


def _limit(container: RunnableContainer) -> int:
    found = container.resources.limits.get("memory")
    return found.value() if found is not None else 0


def eviction_text(name: str, source: EmptyDirVolumeSource) -> str:
    """The message for evicting a pod whose volume exceeds its limit."""
    return f'Usage of EmptyDir volume "{name}" exceeds the limit "{source.size_limit}". '
