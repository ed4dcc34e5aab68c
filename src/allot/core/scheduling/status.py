"""The result of a filter for a pod on a node, with kube-scheduler's codes and words."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class Verdict(StrEnum):
    """Why a pod does not get a node. The values are those of kube-scheduler's status codes."""

    # Fewer or other pods on the node might help: preemption may be tried.
    UNSCHEDULABLE = "Unschedulable"
    # Nothing that preemption does could help.
    UNRESOLVABLE = "UnschedulableAndUnresolvable"
    # The attempt as a whole failed; the pod is tried again after a back-off.
    ERROR = "Error"


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """A refusal. Its absence (None) means that the node fits."""

    verdict: Verdict
    # The plugin of kube-scheduler that would say this: NodeResourcesFit, TaintToleration, DynamicResources, ...
    plugin: str
    # The texts that are counted over nodes in "0/3 nodes are available: 2 Insufficient cpu, ...".
    reasons: tuple[str, ...]
