"""NodeResourcesBalancedAllocation: prefer nodes whose resources get used more evenly with the pod than without it."""

from __future__ import annotations

import math
from collections.abc import Sequence

from allot.core.scheduling.devices.device_fit import Devices
from allot.core.scheduling.nodes.nodeinfo import NodeInfo
from allot.core.scheduling.podinfo import Profile
from allot.core.scheduling.settings import ResourceWeight

NAME = "NodeResourcesBalancedAllocation"


def score(profile: Profile, node: NodeInfo, resources: Sequence[ResourceWeight], devices: Devices | None) -> int:
    """50 to 100, about 75 if the pod changes little; 0 for a pod that asks for none of the resources."""
    amounts = [wanted(profile, resource.name) for resource in resources]
    if not any(amounts):
        return 0
    before: list[float] = []
    after: list[float] = []
    for resource, amount in zip(resources, amounts, strict=True):
        there, used = _there_and_used(profile, node, resource.name, devices)
        if there:
            before.append(min(1.0, used / there))
            after.append(min(1.0, (used + amount) / there))
    return 50 + int((50 + _evenness(after) - _evenness(before)) / 2)


def wanted(profile: Profile, resource: str) -> int:
    """How much of a resource the pod asks for."""
    if resource == "cpu":
        return profile.cpu
    if resource == "memory":
        return profile.memory
    return profile.storage if resource == "ephemeral-storage" else profile.scalars.get(resource, 0)


def _there_and_used(profile: Profile, node: NodeInfo, resource: str, devices: Devices | None) -> tuple[int, int]:
    if resource == "cpu":
        return node.allocatable_cpu, node.cpu
    if resource == "memory":
        return node.allocatable_memory, node.memory
    if resource == "ephemeral-storage":
        return node.allocatable_storage, node.storage
    if not profile.scalars.get(resource):
        return 0, 0
    there, used = node.allocatable_scalars.get(resource, 0), node.scalars.get(resource, 0)
    if not there and devices is not None and devices.backs(resource):
        return devices.totals(resource, node)
    return there, used


def _evenness(fractions: Sequence[float]) -> int:
    """100 if all resources are used to the same degree."""
    deviation = 0.0
    if len(fractions) == 2:
        deviation = abs((fractions[0] - fractions[1]) / 2)
    elif len(fractions) > 2:
        mean = sum(fractions) / len(fractions)
        deviation = math.sqrt(sum((fraction - mean) ** 2 for fraction in fractions) / len(fractions))
    return int((1 - deviation) * 100)
