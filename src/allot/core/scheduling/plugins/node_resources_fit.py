"""NodeResourcesFit: what the pods of a node ask for must fit into it; and how full it should be."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from allot.core.scheduling.devices.device_fit import Devices
from allot.core.scheduling.nodes.nodeinfo import NodeInfo
from allot.core.scheduling.podinfo import PodInfo, Profile, is_scalar
from allot.core.scheduling.settings import ResourceWeight, Settings, ShapePoint, Strategy
from allot.core.scheduling.status import Status, Verdict

NAME = "NodeResourcesFit"
_TOO_MANY_PODS = "Too many pods"


def refusal(profile: Profile | PodInfo, node: NodeInfo, settings: Settings, devices: Devices | None) -> Status | None:
    """Why the pod may not have the node: all that is missing. Out of reach of preemption if the node is too small."""
    full = len(node.pods) >= node.allocatable_pods
    if (
        not full
        and profile.cpu <= node.allocatable_cpu - node.cpu
        and profile.memory <= node.allocatable_memory - node.memory
        and not profile.storage
        and (not profile.scalars or _have(profile, node, devices))
    ):
        return None
    return _refusal(profile, node, settings, devices, full)


def _have(profile: Profile | PodInfo, node: NodeInfo, devices: Devices | None) -> bool:
    """Whether there is enough of everything that not all nodes have; `_refusal` looks closer if not."""
    for name, wanted in profile.scalars.items():
        there = node.allocatable_scalars.get(name, 0)
        if not there:
            if devices is None or not devices.backs(name):
                return False
        elif wanted > there - node.scalars.get(name, 0):
            return False
    return True


def _refusal(
    profile: Profile | PodInfo, node: NodeInfo, settings: Settings, devices: Devices | None, full: bool
) -> Status | None:
    reasons = [_TOO_MANY_PODS] if full else []
    never = False
    for name, wanted, there, used in (
        ("cpu", profile.cpu, node.allocatable_cpu, node.cpu),
        ("memory", profile.memory, node.allocatable_memory, node.memory),
        ("ephemeral-storage", profile.storage, node.allocatable_storage, node.storage),
    ):
        if wanted > 0 and wanted > there - used:
            reasons.append(f"Insufficient {name}")
            never = never or wanted > there
    for name, wanted in sorted(profile.scalars.items()):
        if name in settings.ignored_resources or name.partition("/")[0] in settings.ignored_resource_groups:
            continue
        there = node.allocatable_scalars.get(name, 0)
        if not there and devices is not None and devices.backs(name):
            continue
        if wanted > there - node.scalars.get(name, 0):
            reasons.append(f"Insufficient {name}")
            never = never or wanted > there
    if not reasons:
        return None
    verdict = Verdict.UNRESOLVABLE if never else Verdict.UNSCHEDULABLE
    return Status(verdict=verdict, plugin=NAME, reasons=tuple(reasons))


# --- scores ---

# Of one resource: what would be in use, and what there is.
Curve = Callable[[int, int], int]
Scorer = Callable[[Profile, NodeInfo], int]


def scorer(settings: Settings, devices: Devices | None) -> Scorer:
    """The score of 0 to 100 that the strategy gives."""
    resources = settings.strategy_resources
    if settings.strategy is Strategy.LEAST_ALLOCATED and resources == (ResourceWeight("cpu"), ResourceWeight("memory")):
        return _least_of_cpu_and_memory
    ratio = settings.strategy is Strategy.REQUESTED_TO_CAPACITY_RATIO
    if ratio:
        curve = _shape(settings.strategy_shape)
    else:
        curve = _least if settings.strategy is Strategy.LEAST_ALLOCATED else _most

    def score(profile: Profile, node: NodeInfo) -> int:
        total = weights = 0
        for resource in resources:
            there, used = capacity(profile, node, resource.name, devices)
            if not there:
                continue
            points = curve(used, there)
            if ratio and points <= 0:
                continue
            total += points * resource.weight
            weights += resource.weight
        if not weights:
            return 0
        return math.floor(total / weights + 0.5) if ratio else total // weights

    return score


def capacity(profile: Profile, node: NodeInfo, resource: str, devices: Devices | None) -> tuple[int, int]:
    """The total of a resource and what would be in use with the pod, for scores. Zero if it is not requested."""
    wanted = asked(profile, resource)
    if not wanted and is_scalar(resource):
        return 0, 0
    there, used = allocatable(node, resource), in_use(node, resource)
    if not there and is_scalar(resource) and devices is not None and devices.backs(resource):
        there, used = devices.totals(resource, node)
    return there, used + wanted


def asked(profile: Profile, resource: str) -> int:
    """What a pod asks for, for scores: a little cpu and memory at least."""
    if resource == "cpu":
        return profile.nonzero_cpu
    if resource == "memory":
        return profile.nonzero_memory
    return profile.storage if resource == "ephemeral-storage" else profile.scalars.get(resource, 0)


def allocatable(node: NodeInfo, resource: str) -> int:
    """What a node has for pods."""
    if resource == "cpu":
        return node.allocatable_cpu
    if resource == "memory":
        return node.allocatable_memory
    return node.allocatable_storage if resource == "ephemeral-storage" else node.allocatable_scalars.get(resource, 0)


def in_use(node: NodeInfo, resource: str) -> int:
    """What a node's pods ask for, for scores."""
    if resource == "cpu":
        return node.nonzero_cpu
    if resource == "memory":
        return node.nonzero_memory
    return node.storage if resource == "ephemeral-storage" else node.scalars.get(resource, 0)


def _least_of_cpu_and_memory(profile: Profile, node: NodeInfo) -> int:
    """The usual case, written out."""
    there = node.allocatable_cpu
    free = there - node.nonzero_cpu - profile.nonzero_cpu
    cpu = free * 100 // there if free > 0 else 0
    memory_there = node.allocatable_memory
    free = memory_there - node.nonzero_memory - profile.nonzero_memory
    memory = free * 100 // memory_there if free > 0 else 0
    if there and memory_there:
        return (cpu + memory) // 2
    return cpu + memory


def _least(used: int, there: int) -> int:
    return (there - used) * 100 // there if used <= there else 0


def _most(used: int, there: int) -> int:
    return min(used, there) * 100 // there


def _shape(points: Sequence[ShapePoint]) -> Curve:
    """Straight lines between the points; scores of 0 to 10 become 0 to 100."""

    def curve(used: int, there: int) -> int:
        utilization = 100 if used > there else used * 100 // there
        before: ShapePoint | None = None
        for point in points:
            if utilization <= point.utilization:
                if before is None:
                    return point.score * 10
                rise = (point.score - before.score) * 10 * (utilization - before.utilization)
                # Integer division as in Go: towards zero.
                return before.score * 10 + int(rise / (point.utilization - before.utilization))
            before = point
        return 0 if before is None else before.score * 10

    return curve
