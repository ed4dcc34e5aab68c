"""Extended resources of which a node offers fewer than it has, because its device plugin reports some as unhealthy, and what the node itself says
of its devices."""

from __future__ import annotations

import re

from allot.core.advice.explain.diagnosis import Candidate, Rank
from allot.core.advice.explain.nodes import missing
from allot.core.advice.explain.remedies import nodes
from allot.core.advice.explain.wording import one_line
from allot.core.model import core_v1
from allot.core.scheduling import NodeInfo, Profile

# What detectors of problems call devices in the types of a node's conditions: GpuXidError, NVLinkHealthy, AcceleratedHardwareReady.
_DEVICES = re.compile(r"gpu|xid|ecc|nvlink|nvswitch|npu|tpu|accelerat|hardware|device|infiniband|rdma", re.IGNORECASE)
_GOOD = re.compile(r"(?:ready|healthy|health|ok|available)$", re.IGNORECASE)


def unhealthy_of(info: NodeInfo, resource: str) -> int:
    """How many of a resource a node has that its device plugin does not count as healthy; 0 if it offers none at all."""
    there, offered = info.node.status.capacity.get(resource), info.allocatable_scalars.get(resource, 0)
    return max(there.value() - offered, 0) if "/" in resource and there is not None and offered else 0


def unhealthy_text(info: NodeInfo, resource: str, *, by_name: bool) -> str:
    """`1 of its 8 is unhealthy: condition GpuXidError, ...`; empty if none is. by_name: several nodes are spoken of."""
    number = unhealthy_of(info, resource)
    if not number:
        return ""
    said = _complaint(info.node)
    there = info.node.status.capacity[resource].value()
    whose = f"the {there} of node {info.name}" if by_name else f"its {there}"
    text = f"{number} of {whose} {'is' if number == 1 else 'are'} unhealthy"
    return f"{text}: {said}" if said else text


def with_all_healthy(info: NodeInfo, profile: Profile) -> list[Candidate]:
    """Unhealthy devices of a node that offer enough for a pod once they are repaired."""
    found = []
    for resource in profile.scalars:
        number, lacking = unhealthy_of(info, resource), missing(profile, info, resource)
        if not 0 < lacking <= number:
            continue
        value = str(info.node.status.capacity[resource].value())
        text = f"repair the unhealthy {resource} of node {info.name} (reset it, or reboot the node"
        # To drain a node costs others their devices, too.
        busy = any(each.scalars.get(resource) for each in info.pods.values())
        text += f", once it is drained: kubectl drain {info.name} --ignore-daemonsets)" if busy else ")"
        patches = (nodes.offering(info.name, resource, value),)
        found.append(Candidate(rank=Rank.OTHERS + 1 if busy else Rank.FIX, text=text, patches=patches))
    return found


def _complaint(node: core_v1.Node) -> str:
    """What a detector of problems says about a node's devices; empty if it says nothing."""
    for each in node.status.conditions:
        bad = "False" if _GOOD.search(each.type) else "True"
        if _DEVICES.search(each.type) and each.status == bad:
            said = one_line(each.message or each.reason or "")
            return f"condition {each.type}, {said}" if said else f"condition {each.type} is {each.status}"
    return ""
