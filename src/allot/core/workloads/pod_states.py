"""The state of a pod for workload controllers: whether it is active, ready, and available."""

from __future__ import annotations

from collections.abc import Iterable

from allot.core.lifecycle.disruption import is_terminal
from allot.core.lifecycle.times import seconds_of
from allot.core.model.core_v1 import Pod, PodCondition


def is_active(pod: Pod) -> bool:
    """Whether a pod counts as a replica: it has not ended and is not being deleted."""
    return not is_terminal(pod) and pod.metadata.deletion_timestamp is None


def is_terminating(pod: Pod) -> bool:
    """Whether a pod is being deleted and still running."""
    return not is_terminal(pod) and pod.metadata.deletion_timestamp is not None


def condition_of(pod: Pod, type_: str) -> PodCondition | None:
    """A condition of a pod."""
    for condition in pod.status.conditions:
        if condition.type == type_:
            return condition
    return None


def is_ready(pod: Pod) -> bool:
    """Whether a pod is ready."""
    ready = condition_of(pod, "Ready")
    return ready is not None and ready.status == "True"


def available_at(pod: Pod, min_ready_seconds: int) -> float | None:
    """When a pod became, or will become, available; None if it is not ready."""
    ready = condition_of(pod, "Ready")
    if ready is None or ready.status != "True":
        return None
    if min_ready_seconds == 0:
        return 0.0
    if ready.last_transition_time is None:
        return None
    return seconds_of(ready.last_transition_time) + min_ready_seconds


def is_available(pod: Pod, min_ready_seconds: int, now_s: float) -> bool:
    """Whether a pod has been ready long enough."""
    at = available_at(pod, min_ready_seconds)
    return at is not None and at <= now_s


def next_available_s(pods: Iterable[Pod], min_ready_seconds: int, now_s: float) -> float | None:
    """Seconds until the next ready pod becomes available; None if none will without a change."""
    if min_ready_seconds == 0:
        return None
    times = (available_at(pod, min_ready_seconds) for pod in pods)
    waits = [at - now_s for at in times if at is not None and at > now_s]
    return min(waits, default=None)
