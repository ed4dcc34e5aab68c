"""The phases of a PodGroup of Volcano: Pending, Inqueue when there are enough pods to be tried, Running, Completed, and Unknown
when some pods run, but too few.
"""

from __future__ import annotations

from collections.abc import Sequence

from allot.core.lifecycle.actions import Action, Resource
from allot.core.lifecycle.coscheduling import count_phases, status_patch
from allot.core.model.core_v1 import Pod
from allot.core.model.foreign_groups import VOLCANO, VolcanoPodGroup

POD_GROUPS = Resource(group=VOLCANO, version="v1beta1", plural="podgroups", kind="PodGroup", namespaced=True)
PENDING, INQUEUE, RUNNING, COMPLETED, UNKNOWN = "Pending", "Inqueue", "Running", "Completed", "Unknown"


def reconcile_group(group: VolcanoPodGroup, pods: Sequence[Pod]) -> tuple[Action, ...]:
    """The update of the group's status. pods: all that name the group."""
    known, counts = group.status, count_phases(pods)
    was = {"phase": known.phase, "running": known.running, "succeeded": known.succeeded, "failed": known.failed}
    return status_patch(POD_GROUPS, group.metadata, was, {"phase": _phase(group, pods, counts), **counts})


def _phase(group: VolcanoPodGroup, pods: Sequence[Pod], counts: dict[str, int]) -> str:
    minimum = max(1, group.spec.min_member)
    bound = sum(bool(pod.spec.node_name) and pod.status.phase in ("Pending", "Running") for pod in pods)
    if bound + counts["succeeded"] >= minimum:
        over = counts["succeeded"] + counts["failed"]
        return COMPLETED if over == len(pods) else RUNNING
    if group.status.phase == RUNNING and bound:
        return UNKNOWN
    if group.status.phase == COMPLETED:
        return COMPLETED
    return INQUEUE if len(pods) - counts["failed"] >= minimum else PENDING
