"""The phases of a PodGroup of scheduling.x-k8s.io, by the rules of scheduler-plugins' controller.

Pending until there are enough pods, then Scheduling, Running, Finished or Failed; the last two are final. Only pods in the
group's own namespace count.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from allot.core.lifecycle.actions import Action, Patch, PatchType, Resource
from allot.core.model.core_v1 import Pod
from allot.core.model.foreign_groups import COSCHEDULING, CoschedulingPodGroup
from allot.core.model.meta import ObjectMeta

POD_GROUPS = Resource(group=COSCHEDULING, version="v1alpha1", plural="podgroups", kind="PodGroup", namespaced=True)
_PENDING, _SCHEDULING, _RUNNING, _FINISHED, _FAILED = "Pending", "Scheduling", "Running", "Finished", "Failed"


def reconcile_group(group: CoschedulingPodGroup, pods: Sequence[Pod]) -> tuple[Action, ...]:
    """The update of the group's status. pods: all that name the group."""
    known = group.status
    was = {
        "phase": known.phase,
        "occupiedBy": known.occupied_by,
        "running": known.running,
        "succeeded": known.succeeded,
        "failed": known.failed,
    }
    return status_patch(POD_GROUPS, group.metadata, was, _status(group, pods))


def status_patch(
    resource: Resource, metadata: ObjectMeta, was: Mapping[str, Any], status: Mapping[str, Any]
) -> tuple[Action, ...]:
    """A patch with the changes of a status."""
    changed = {name: value for name, value in status.items() if was[name] != value}
    if not changed:
        return ()
    return (
        Patch(
            resource=resource,
            name=metadata.name,
            namespace=metadata.namespace,
            type=PatchType.MERGE,
            patch={"metadata": {"uid": metadata.uid}, "status": changed},
            subresource="status",
        ),
    )


def _status(group: CoschedulingPodGroup, pods: Sequence[Pod]) -> dict[str, Any]:
    minimum, phase = group.spec.min_member, group.status.phase
    counts = count_phases(pods)
    if phase in (_FINISHED, _FAILED):
        return {"phase": phase}
    if phase in ("", _PENDING):
        if len(pods) < minimum or not pods:
            return {"phase": _PENDING}
        first = min(pods, key=lambda pod: (pod.metadata.creation_timestamp or "", pod.metadata.name))
        owners = sorted(f"{first.metadata.namespace}/{owner.name}" for owner in first.metadata.owner_references)
        found: dict[str, Any] = {"occupiedBy": ",".join(owners)} if owners else {}
        return {**found, "phase": _later(minimum, counts, len(pods)), **counts}
    return {"phase": _later(minimum, counts, len(pods)), **counts}


def count_phases(pods: Sequence[Pod]) -> dict[str, int]:
    """How many pods are running, succeeded and failed."""
    phases = [pod.status.phase for pod in pods]
    return {phase.lower(): phases.count(phase) for phase in ("Running", "Succeeded", "Failed")}


def _later(minimum: int, counts: dict[str, int], pods: int) -> str:
    """The last matching rule wins."""
    running, succeeded, failed = counts["running"], counts["succeeded"], counts["failed"]
    phase = _SCHEDULING
    if pods < minimum:
        phase = _PENDING
    if succeeded + running >= minimum:
        phase = _RUNNING
    if failed and failed + running + succeeded >= minimum:
        phase = _FAILED
    if succeeded >= minimum:
        phase = _FINISHED
    return phase
