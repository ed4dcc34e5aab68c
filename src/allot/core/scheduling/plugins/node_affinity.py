"""NodeAffinity: node selector, required terms, wishes."""

from __future__ import annotations

from allot.core.scheduling.nodes.nodeinfo import NodeInfo
from allot.core.scheduling.podinfo import Profile
from allot.core.scheduling.status import Status, Verdict
from allot.core.selectors import SelectorError

NAME = "NodeAffinity"
_REFUSED = Status(
    verdict=Verdict.UNRESOLVABLE, plugin=NAME, reasons=("node(s) didn't match Pod's node affinity/selector",)
)
_CONFLICT = Status(verdict=Verdict.UNRESOLVABLE, plugin=NAME, reasons=("pod affinity terms conflict",))
# What is said of the others if a pod names its nodes.
NOT_NAMED = Status(
    verdict=Verdict.UNRESOLVABLE, plugin=NAME, reasons=("node(s) didn't satisfy plugin(s) [NodeAffinity]",)
)


def pre_refusal(profile: Profile) -> Status | None:
    """Why no node will do, if that can be seen from the pod alone."""
    return _CONFLICT if profile.node_names is not None and not profile.node_names else None


def refusal(profile: Profile, node: NodeInfo) -> Status | None:
    """Why the pod may not have the node."""
    if profile.node_names is not None and node.name not in profile.node_names:
        return NOT_NAMED
    return None if profile.selects(node.name, node.labels) else _REFUSED


def wishes(profile: Profile, node: NodeInfo) -> int:
    """The weights of the wishes that the node fulfils: the more, the better."""
    total = 0
    for weight, matcher in profile.preferred_nodes:
        try:
            if matcher.matches(node.name, node.labels):
                total += weight
        except SelectorError:
            continue
    return total
