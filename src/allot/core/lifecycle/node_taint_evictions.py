"""Evicts pods from nodes with NoExecute taints, at once or after their toleration time.

Kubernetes counts the time from when its controller notices the taint, so a controller that restarts often enough never evicts;
here it counts from the taint's own time, or from the pod's creation if that is later.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from allot.core.cel.data.times import parse_timestamp
from allot.core.lifecycle.actions import NORMAL, Action, Emit, RequeueAfter
from allot.core.lifecycle.disruption import delete_pod, mark_disrupted
from allot.core.model.core_v1 import Node, Pod, Taint
from allot.core.selectors import tolerates

NO_EXECUTE = "NoExecute"
_REASON = "DeletionByTaintManager"
_MESSAGE = "Taint manager: deleting due to NoExecute taint"
_EVENT = "TaintManagerEviction"


def no_execute(taints: Iterable[Taint]) -> tuple[Taint, ...]:
    """The taints that evict pods."""
    return tuple(taint for taint in taints if taint.effect == NO_EXECUTE)


def eviction_time(pod: Pod, taints: Sequence[Taint], now_s: float) -> float | None:
    """When to evict a pod, in seconds since 1970; None if never."""
    times = [at for taint in taints if (at := _limit(pod, taint, now_s)) is not None]
    return min(times, default=None)


def _limit(pod: Pod, taint: Taint, now_s: float) -> float | None:
    matching = [one for one in pod.spec.tolerations if tolerates(one, taint)]
    if not matching:
        return now_s
    bounds = [one.toleration_seconds for one in matching if one.toleration_seconds is not None]
    if not bounds:
        return None
    return _since_s(pod, taint, now_s) + max(min(bounds), 0)


def _since_s(pod: Pod, taint: Taint, now_s: float) -> float:
    added = _seconds(taint.time_added)
    if added is None:
        return now_s
    return max(added, _seconds(pod.metadata.creation_timestamp) or added)


def _seconds(time: str | None) -> float | None:
    moment = parse_timestamp(time) if time is not None else None
    return None if moment is None else moment.nanoseconds / 10**9


def reconcile(pod: Pod, node: Node | None, planned: bool, now_s: float, now: str) -> tuple[Action, ...]:
    """Evict a pod, plan to, or cancel the plan. planned: whether an eviction was planned at the last check."""
    taints = no_execute(node.spec.taints) if node is not None else ()
    at = eviction_time(pod, taints, now_s) if taints and pod.metadata.deletion_timestamp is None else None
    name = f"{pod.metadata.namespace}/{pod.metadata.name}"
    if at is None:
        gone = node is None or pod.metadata.deletion_timestamp is not None
        return () if gone or not planned else (_told(pod, f"Cancelling deletion of Pod {name}"),)
    if at > now_s:
        return (RequeueAfter(seconds=at - now_s),)
    patch = mark_disrupted(pod, _REASON, _MESSAGE, now)
    event = _told(pod, f"Marking for deletion Pod {name}")
    return (event, delete_pod(pod)) if patch is None else (event, patch, delete_pod(pod))


def _told(pod: Pod, note: str) -> Emit:
    return Emit(regarding=pod, type=NORMAL, reason=_EVENT, action=_EVENT, note=note)
