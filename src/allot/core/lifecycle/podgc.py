"""Pods that no other component deletes: excess finished ones, those of nodes that are gone or out of service, and those that were
deleted before they had a node.

As in Kubernetes: first the status is set to Failed, because no kubelet will do so, then the pod is deleted without grace.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum

from allot.core.lifecycle.actions import Action, Answers, LookUp, resource_of
from allot.core.lifecycle.disruption import FAILED, delete_pod, is_terminal, mark_disrupted
from allot.core.model.core_v1 import Node, Pod

PERIOD_S = 20.0
QUARANTINE_S = 40.0
TERMINATED_MAX = 12_500
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
# The name of the index of pods by node, shared by all users.
BY_NODE = "node"
_ALIVE = frozenset(("Pending", "Running", "Unknown", ""))
_NODES = resource_of(Node)


class Why(StrEnum):
    """Why a pod is collected; the values are those of Kubernetes' metric."""

    TERMINATED = "terminated"
    ORPHANED = "orphaned"
    OUT_OF_SERVICE = "out-of-service"
    UNSCHEDULED = "terminating-unscheduled"


def stages(pod: Pod) -> tuple[str, ...]:
    """The stages that matter here; a cache index."""
    found = () if pod.status.phase in _ALIVE else ("terminated",)
    return found if pod.metadata.deletion_timestamp is None else (*found, "terminating")


def node_of(pod: Pod) -> tuple[str, ...]:
    """The node that a pod is bound to; a cache index."""
    return (pod.spec.node_name,) if pod.spec.node_name else ()


def excess(terminated: Iterable[Pod], most: int = TERMINATED_MAX) -> tuple[Pod, ...]:
    """The finished pods beyond a limit: evicted ones first, then the oldest."""
    pods = tuple(terminated)
    if most <= 0 or len(pods) <= most:
        return ()
    return tuple(sorted(pods, key=_age)[: len(pods) - most])


def _age(pod: Pod) -> tuple[bool, str, str, str]:
    evicted = pod.status.phase == FAILED and pod.status.reason == "Evicted"
    meta = pod.metadata
    return not evicted, meta.creation_timestamp or "", meta.name, meta.namespace


def stuck(terminating: Iterable[Pod], nodes: Mapping[str, Node]) -> tuple[tuple[Why, Pod], ...]:
    """The pods that are being deleted and that no kubelet will remove."""
    found: list[tuple[Why, Pod]] = []
    for pod in terminating:
        node = nodes.get(pod.spec.node_name)
        if not pod.spec.node_name:
            # One that only waits for its finalizers has been handled.
            if not (is_terminal(pod) and pod.metadata.deletion_grace_period_seconds == 0):
                found.append((Why.UNSCHEDULED, pod))
        elif node is not None and _is_out_of_service(node):
            found.append((Why.OUT_OF_SERVICE, pod))
    return tuple(found)


def _is_out_of_service(node: Node) -> bool:
    ready = any(one.type == "Ready" and one.status == "True" for one in node.status.conditions)
    return not ready and any(taint.key == OUT_OF_SERVICE for taint in node.spec.taints)


class Quarantine:
    """Unknown nodes that pods name: for a while they may still appear."""

    def __init__(self, seconds: float = QUARANTINE_S) -> None:
        self._seconds = seconds
        self._since: dict[str, float] = {}

    def over(self, named: Iterable[str], existing: Mapping[str, Node], now_s: float) -> tuple[str, ...]:
        """The nodes that have been missing long enough. named: those that pods are bound to."""
        missing = [name for name in named if name not in existing]
        self._since = {name: self._since.get(name, now_s) for name in missing}
        return tuple(name for name, since in self._since.items() if now_s - since >= self._seconds)


def reconcile(why: Why, pod: Pod, answers: Answers, now: str) -> tuple[Action, ...]:
    """Collect a pod. The server is first asked whether the node of an orphan is really gone."""
    reason = message = ""
    if why is Why.ORPHANED:
        question = LookUp(resource=_NODES, name=pod.spec.node_name)
        if question not in answers:
            return (question,)
        if answers[question] is not None:
            return ()
        reason, message = "DeletionByPodGC", "PodGC: node no longer exists"
    patch = None if is_terminal(pod) else mark_disrupted(pod, reason, message, now, phase=FAILED)
    delete = delete_pod(pod, grace_period_seconds=0)
    return (delete,) if patch is None else (patch, delete)
