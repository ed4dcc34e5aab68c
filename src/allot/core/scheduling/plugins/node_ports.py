"""NodePorts: a host port has one user."""

from __future__ import annotations

from allot.core.scheduling.nodes.nodeinfo import NodeInfo
from allot.core.scheduling.podinfo import Profile
from allot.core.scheduling.status import Status, Verdict

NAME = "NodePorts"
_REFUSED = Status(
    verdict=Verdict.UNSCHEDULABLE,
    plugin=NAME,
    reasons=("node(s) didn't have free ports for the requested pod ports",),
)


def refusal(profile: Profile, node: NodeInfo) -> Status | None:
    """Why the pod may not have the node."""
    return None if not profile.host_ports or node.has_free(profile.host_ports) else _REFUSED
