"""TaintToleration: taints that a pod does not tolerate keep it away, or make a node less welcome."""

from __future__ import annotations

from allot.core.scheduling.nodes.nodeinfo import NodeInfo
from allot.core.scheduling.podinfo import Profile
from allot.core.scheduling.status import Status, Verdict
from allot.core.selectors import tolerates

NAME = "TaintToleration"
_REFUSED = Status(verdict=Verdict.UNRESOLVABLE, plugin=NAME, reasons=("node(s) had untolerated taint(s)",))
_BLOCKING = ("NoSchedule", "NoExecute")
_DISCOURAGING = "PreferNoSchedule"


def has_untolerated(profile: Profile, node: NodeInfo) -> bool:
    """Whether a taint keeps the pod away."""
    return any(
        taint.effect in _BLOCKING and not any(tolerates(toleration, taint) for toleration in profile.tolerations)
        for taint in node.taints
    )


def refusal(profile: Profile, node: NodeInfo) -> Status | None:
    """Why the pod may not have the node."""
    return _REFUSED if node.taints and has_untolerated(profile, node) else None


def unwelcome(profile: Profile, node: NodeInfo) -> int:
    """How many PreferNoSchedule taints the pod does not tolerate: fewer is better."""
    if not node.taints:
        return 0
    tolerations = [toleration for toleration in profile.tolerations if toleration.effect in ("", _DISCOURAGING)]
    return sum(
        taint.effect == _DISCOURAGING and not any(tolerates(toleration, taint) for toleration in tolerations)
        for taint in node.taints
    )
