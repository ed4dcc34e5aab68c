"""Pods that the control plane terminates: the condition in their status before deletion, which gives the reason."""

from __future__ import annotations

from typing import Any

from allot.core.lifecycle.actions import Delete, Patch, PatchType, resource_of
from allot.core.model.core_v1 import Pod

DISRUPTION_TARGET = "DisruptionTarget"
FAILED = "Failed"
SUCCEEDED = "Succeeded"
PODS = resource_of(Pod)


def is_terminal(pod: Pod) -> bool:
    """Whether a pod has ended."""
    return pod.status.phase in (FAILED, SUCCEEDED)


def mark_disrupted(pod: Pod, reason: str, message: str, now: str, *, phase: str = "") -> Patch | None:
    """The patch of a pod's status with the reason for its termination; None if it is already there."""
    status: dict[str, Any] = {}
    if reason:
        old = next((one for one in pod.status.conditions if one.type == DISRUPTION_TARGET), None)
        if old is None or (old.status, old.reason, old.message) != ("True", reason, message):
            same = old is not None and old.status == "True"
            since = old.last_transition_time if same and old is not None else now
            condition: dict[str, Any] = {
                "type": DISRUPTION_TARGET,
                "status": "True",
                "reason": reason,
                "message": message,
                "lastTransitionTime": since,
            }
            if pod.metadata.generation:
                condition["observedGeneration"] = pod.metadata.generation
            status["conditions"] = [condition]
    if phase and phase != pod.status.phase:
        status["phase"] = phase
        if pod.metadata.generation:
            status["observedGeneration"] = pod.metadata.generation
    return patch_status(pod, status) if status else None


def patch_status(pod: Pod, status: dict[str, Any]) -> Patch:
    """A strategic merge patch of exactly this pod's status: other conditions are kept."""
    return Patch(
        resource=PODS,
        name=pod.metadata.name,
        namespace=pod.metadata.namespace,
        patch={"metadata": {"uid": pod.metadata.uid}, "status": status},
        type=PatchType.STRATEGIC,
        subresource="status",
    )


def delete_pod(pod: Pod, grace_period_seconds: int | None = None) -> Delete:
    """Delete exactly this pod."""
    return Delete(
        resource=PODS,
        name=pod.metadata.name,
        namespace=pod.metadata.namespace,
        uid=pod.metadata.uid,
        grace_period_seconds=grace_period_seconds,
    )
