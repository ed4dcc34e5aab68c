"""In-place resize: what a container requests, what its node has allocated, what it runs with, and the reported status.

A container has three values: its spec is the request, an `Allocation` is what the node has reserved, and what was last sent to
the runtime is what it runs with. Only CPU and memory can change. Reasons and texts are the kubelet's (pkg/kubelet/allocation and
pkg/kubelet/events, 1.37). Does not know whether a node has room (`core.scheduling.node_admission`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from allot.core.model.containers_v1 import RunnableContainer
from allot.core.model.core_v1 import Pod, PodCondition, ResourceRequirements
from allot.core.model.pods_v1 import RunnablePod

RESIZE_PENDING, RESIZE_IN_PROGRESS = "PodResizePending", "PodResizeInProgress"
CONDITIONS = (RESIZE_PENDING, RESIZE_IN_PROGRESS)
DEFERRED, ERROR = "Deferred", "Error"
_RESIZABLE = ("cpu", "memory")

# By the name of a container.
Allocation = Mapping[str, ResourceRequirements]


def asked_for(pod: RunnablePod) -> Allocation:
    """What the containers request."""
    return {each.name: each.resources for each in (*pod.spec.init_containers, *pod.spec.containers)}


def remembered(pod: RunnablePod) -> Allocation:
    """What an earlier agent had allocated, as far as the pod's status shows; otherwise what is requested."""
    statuses = (*pod.status.init_container_statuses, *pod.status.container_statuses)
    told = {each.name: each.resources for each in statuses if each.resources is not None}
    return {
        name: told[name] if name in told and differs(told[name], asked) else asked
        for name, asked in asked_for(pod).items()
    }


def with_allocation(pod: RunnablePod, allocation: Allocation) -> RunnablePod:
    """The pod with the resources that its node has allocated."""
    if all(each is allocation.get(name, each) for name, each in asked_for(pod).items()):
        return pod
    replace = msgspec.structs.replace

    def agreed(containers: tuple[RunnableContainer, ...]) -> tuple[RunnableContainer, ...]:
        return tuple(replace(each, resources=allocation.get(each.name, each.resources)) for each in containers)

    spec = pod.spec
    return replace(
        pod,
        spec=replace(
            spec, containers=agreed(tuple(spec.containers)), init_containers=agreed(tuple(spec.init_containers))
        ),
    )


def differs(one: ResourceRequirements, other: ResourceRequirements) -> bool:
    """Whether CPU or memory differ."""
    return any(_changes(one, other, name) for name in _RESIZABLE)


def must_restart(container: RunnableContainer, running: ResourceRequirements) -> bool:
    """Whether a container must restart to get its allocation."""
    policies = {each.resource_name: each.restart_policy for each in container.resize_policy}
    return any(
        policies.get(name) == "RestartContainer" and _changes(container.resources, running, name) for name in _RESIZABLE
    )


def _changes(one: ResourceRequirements, other: ResourceRequirements, name: str) -> bool:
    return one.requests.get(name) != other.requests.get(name) or one.limits.get(name) != other.limits.get(name)


def shrinks(before: Pod, after: Pod) -> bool:
    """Whether the node has more room afterwards."""
    old = {each.name: each.resources.requests for each in (*before.spec.init_containers, *before.spec.containers)}
    return any(
        name in old.get(each.name, {}) and amount < old[each.name][name]
        for each in (*after.spec.init_containers, *after.spec.containers)
        for name, amount in each.resources.requests.items()
    )


def condition(type_: str, generation: int, reason: str = "", message: str = "") -> PodCondition:
    """A condition about the progress of a resize. generation: of the spec that it is about."""
    return PodCondition(type=type_, status="True", reason=reason, message=message, observed_generation=generation)


def condition_of(pod: Pod, type_: str) -> PodCondition | None:
    """The condition in the API."""
    return next((each for each in pod.status.conditions if each.type == type_), None)


def spelled(resources: ResourceRequirements) -> dict[str, Any]:
    """Resources in the API's format."""
    told: dict[str, Any] = {}
    for side, amounts in (("limits", resources.limits), ("requests", resources.requests)):
        if amounts:
            told[side] = {name: str(amount) for name, amount in amounts.items()}
    if resources.claims:
        told["claims"] = [
            {"name": each.name, **({"request": each.request} if each.request else {})} for each in resources.claims
        ]
    return told


def summary(what: str, pod: RunnablePod, generation: int, error: str = "") -> str:
    """The text of an event about a resize."""
    told: dict[str, Any] = {}
    for field, containers in (("initContainers", pod.spec.init_containers), ("containers", pod.spec.containers)):
        if containers:
            told[field] = [{"name": each.name, "resources": spelled(each.resources)} for each in containers]
    told["generation"] = generation
    if error:
        told["error"] = error
    return f"Pod resize {what}: {msgspec.json.encode(told).decode()}"
