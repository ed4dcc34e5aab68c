"""How full new nodes are while they are tried."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction

from allot.core.autoscaling.trying import NewNode, Trying
from allot.core.autoscaling.utilization import device_utilization, held_on


def used_parts(trying: Trying, nodes: Iterable[NewNode]) -> tuple[Fraction, ...]:
    """For each node the mean of the used fractions of CPU, memory and devices."""
    claims = trying.machine.claims
    found = []
    for node in nodes:
        info = trying.cluster.nodes[node.name]
        parts = [
            Fraction(used, there)
            for used, there in ((info.cpu, info.allocatable_cpu), (info.memory, info.allocatable_memory))
            if there
        ]
        devices = device_utilization(trying.slices(node), held_on(info, claims))
        if devices is not None:
            parts.append(devices)
        found.append(sum(parts, Fraction(0)) / len(parts) if parts else Fraction(0))
    return tuple(found)
