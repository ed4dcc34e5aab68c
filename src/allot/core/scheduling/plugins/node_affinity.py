"""NodeAffinity: node selector, required terms, wishes; of the pod, and of the profile for all of its pods."""

from __future__ import annotations

from allot.core.scheduling.nodes.nodeinfo import NodeInfo
from allot.core.scheduling.podinfo import Profile
from allot.core.scheduling.settings import AddedAffinity
from allot.core.scheduling.status import Status, Verdict
from allot.core.selectors import matches_if_valid

NAME = "NodeAffinity"
_REFUSED = Status(
    verdict=Verdict.UNRESOLVABLE, plugin=NAME, reasons=("node(s) didn't match Pod's node affinity/selector",)
)
_ENFORCED = Status(
    verdict=Verdict.UNRESOLVABLE, plugin=NAME, reasons=("node(s) didn't match scheduler-enforced node affinity",)
)
_CONFLICT = Status(verdict=Verdict.UNRESOLVABLE, plugin=NAME, reasons=("pod affinity terms conflict",))
# The status of the other nodes if a pod names its nodes.
NOT_NAMED = Status(
    verdict=Verdict.UNRESOLVABLE, plugin=NAME, reasons=("node(s) didn't satisfy plugin(s) [NodeAffinity]",)
)


def pre_refusal(profile: Profile) -> Status | None:
    """Why no node fits, if that can be seen from the pod alone."""
    return _CONFLICT if profile.node_names is not None and not profile.node_names else None


def refusal(profile: Profile, node: NodeInfo, added: AddedAffinity | None = None) -> Status | None:
    """Why the pod may not have the node. added: what the profile asks for all pods."""
    if profile.node_names is not None and node.name not in profile.node_names:
        return NOT_NAMED
    if added is not None and not added.allows(node.name, node.labels):
        return _ENFORCED
    return None if profile.selects(node.name, node.labels) else _REFUSED


def wishes(profile: Profile, node: NodeInfo, added: AddedAffinity | None = None) -> int:
    """The sum of weights of the preferred terms that the node matches: more is better."""
    wanted = profile.preferred_nodes if added is None else (*profile.preferred_nodes, *added.preferred)
    return sum(weight for weight, matcher in wanted if matches_if_valid(matcher, node.name, node.labels))
