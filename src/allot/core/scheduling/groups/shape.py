"""What a group asks for, read from its object."""

from __future__ import annotations

from collections.abc import Iterable

from allot.core.model.core_v1 import Pod
from allot.core.model.scheduling_v1 import CompositePodGroup, PodGroup
from allot.core.scheduling.groups.dialects import ForeignGroup

CONDITION = "PodGroupInitiallyScheduled"


def minimum_of(group: PodGroup) -> int:
    """The minimum number of pods that must have a node."""
    gang = group.spec.scheduling_policy.gang
    return gang.min_count if gang is not None else 1


def topology_key(group: PodGroup | CompositePodGroup) -> str:
    """The node label whose value all pods of a group must share; empty if there is none."""
    constraints = group.spec.scheduling_constraints
    return constraints.topology[0].key if constraints is not None and constraints.topology else ""


def was_scheduled(group: PodGroup | CompositePodGroup) -> bool:
    """Whether a group once had everything that it needs at the same time; this stays true."""
    return any(condition.type == CONDITION and condition.status == "True" for condition in group.status.conditions)


def priority_of(group: PodGroup, pods: Iterable[Pod]) -> int:
    """The priority of a group. Groups of other dialects have none, so the lowest of their pods counts."""
    if isinstance(group, ForeignGroup):
        return min((pod.spec.priority or 0 for pod in pods), default=0)
    return group.spec.priority or 0
