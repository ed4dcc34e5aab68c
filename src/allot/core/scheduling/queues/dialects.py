"""Queues of other schedulers' APIs as queues of ours.

KAI counts gpu, cpu and memory, and what a queue does not say is nothing; Volcano counts what its queues name, and what one
does not say is free. Volcano's `root` is the top of the tree itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

from allot.core.model.go_durations import go_seconds
from allot.core.model.meta import APIStruct
from allot.core.model.team_queues import KaiQueue, KaiQueueResource, KaiQueueResources, VolcanoQueue
from allot.core.quantity import Quantity
from allot.core.scheduling.queues.amounts import CPU, MEMORY, ONE, UNLIMITED
from allot.core.scheduling.queues.limits import GPU
from allot.core.scheduling.queues.model import DEFAULT_PRIORITY, Queue, Quota

_MEGABYTE = 10**6
_MILLI_NANO = 10**6
_VOLCANO_ROOT = "root"


def from_kai(queue: KaiQueue) -> Queue:
    """scheduling.run.ai/v2."""
    spec = queue.spec
    resources = spec.resources if spec.resources is not None else KaiQueueResources()
    return Queue(
        name=queue.metadata.name,
        parent=spec.parent_queue,
        priority=spec.priority if spec.priority is not None else DEFAULT_PRIORITY,
        quotas={
            GPU: _kai_quota(resources.gpu, 1),
            CPU: _kai_quota(resources.cpu, 1),
            MEMORY: _kai_quota(resources.memory, _MEGABYTE),
        },
        created=queue.metadata.creation_timestamp or "",
        preempt_min_runtime_s=go_seconds(spec.preempt_min_runtime),
        reclaim_min_runtime_s=go_seconds(spec.reclaim_min_runtime),
        title=spec.display_name,
    )


def _kai_quota(row: KaiQueueResource, unit: int) -> Quota:
    def bound(value: Quantity) -> int:
        return UNLIMITED if value.nano < 0 else value.nano * unit

    return Quota(
        bound(row.quota), bound(row.limit or Quantity.ZERO), max(Fraction(0), Fraction(row.over_quota_weight.nano, ONE))
    )


def from_volcano(queue: VolcanoQueue) -> Queue | None:
    """scheduling.volcano.sh/v1beta1; None for the top of the tree."""
    spec, name = queue.spec, queue.metadata.name
    if name == _VOLCANO_ROOT:
        return None
    deserved = {**_amounts(spec.guarantee.resource), **_amounts(spec.deserved)}
    limits = _amounts(spec.capability)
    closed = "" if queue.status.state in ("", "Open") else f"it is {queue.status.state.lower()}"
    return Queue(
        name=name,
        parent="" if spec.parent in ("", _VOLCANO_ROOT) else spec.parent,
        priority=spec.priority,
        quotas={
            resource: Quota(deserved.get(resource, 0), limits.get(resource, UNLIMITED), Fraction(max(spec.weight, 0)))
            for resource in sorted({*deserved, *limits})
        },
        created=queue.metadata.creation_timestamp or "",
        is_reclaimable=spec.reclaimable is not False,
        closed=closed,
    )


def _amounts(found: Mapping[str, Quantity]) -> dict[str, int]:
    return {name: amount.nano // _MILLI_NANO * ONE if name == CPU else amount.nano for name, amount in found.items()}


QUEUE_KINDS: Mapping[type[APIStruct], Callable[[Any], Queue | None]] = {
    KaiQueue: from_kai,
    VolcanoQueue: from_volcano,
}
