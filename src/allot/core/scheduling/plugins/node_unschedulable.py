"""NodeUnschedulable: a cordoned node takes only pods that tolerate that."""

from __future__ import annotations

from allot.core.model.core_v1 import Taint
from allot.core.scheduling.nodes.nodeinfo import NodeInfo
from allot.core.scheduling.podinfo import Profile
from allot.core.scheduling.status import Status, Verdict
from allot.core.selectors import tolerates

NAME = "NodeUnschedulable"
_TAINT = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")
_REFUSED = Status(verdict=Verdict.UNRESOLVABLE, plugin=NAME, reasons=("node(s) were unschedulable",))


def refusal(profile: Profile, node: NodeInfo) -> Status | None:
    """Why the pod may not have the node."""
    if not node.unschedulable or any(tolerates(toleration, _TAINT) for toleration in profile.tolerations):
        return None
    return _REFUSED
