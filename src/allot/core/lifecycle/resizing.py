"""In-place resize: what a container requests, what its node has allocated, what it runs with, and the reported status.

A container has three values: its spec is the request, an `Allocation` is what the node has reserved, and what was last sent to
the runtime is what it runs with. The same is true of a pod that has resources itself, and of its control group. Only CPU and memory can change. Reasons and texts are the kubelet's (pkg/kubelet/allocation and
pkg/kubelet/events, 1.37). Does not know whether a node has room (`core.scheduling.node_admission`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from allot.core.lifecycle.pod_amounts import pod_limits, pod_requests
from allot.core.model.containers_v1 import RunnableContainer
from allot.core.model.core_v1 import Pod, PodCondition, ResourceRequirements
from allot.core.model.pods_v1 import RunnablePod
from allot.core.quantity import Quantity

RESIZE_PENDING, RESIZE_IN_PROGRESS = "PodResizePending", "PodResizeInProgress"
CONDITIONS = (RESIZE_PENDING, RESIZE_IN_PROGRESS)
DEFERRED, ERROR = "Deferred", "Error"
_RESIZABLE = ("cpu", "memory")
_NONE = ResourceRequirements()


class Allocation(msgspec.Struct, frozen=True, kw_only=True):
    """What a node has allocated: to containers, by name, and to the pod itself."""

    containers: Mapping[str, ResourceRequirements] = {}
    pod: ResourceRequirements | None = None

    def differs(self, other: Allocation) -> bool:
        """Whether CPU or memory of anything differ. other: has the same containers, or none."""
        return differs(self.pod or _NONE, other.pod or _NONE) or any(
            differs(each, other.containers.get(name, each)) for name, each in self.containers.items()
        )


def asked_for(pod: RunnablePod) -> Allocation:
    """What the pod and its containers request."""
    containers = {each.name: each.resources for each in (*pod.spec.init_containers, *pod.spec.containers)}
    return Allocation(containers=containers, pod=pod.spec.resources)


def remembered(pod: RunnablePod) -> Allocation:
    """What an earlier agent had allocated, as far as the pod's status shows; otherwise what is requested."""
    statuses = (*pod.status.init_container_statuses, *pod.status.container_statuses)
    told = {each.name: each.resources for each in statuses if each.resources is not None}
    asked = asked_for(pod)
    return Allocation(
        containers={
            name: told[name] if name in told and differs(told[name], each) else each
            for name, each in asked.containers.items()
        },
        pod=_remembered_of_pod(pod),
    )


def _remembered_of_pod(pod: RunnablePod) -> ResourceRequirements | None:
    """The status has what the pod requests, its overhead included."""
    asked, told = pod.spec.resources, pod.status.resources
    if asked is None or told is None:
        return asked

    def own(amounts: Mapping[str, Quantity], whole: Mapping[str, Quantity]) -> Mapping[str, Quantity]:
        overhead = pod.spec.overhead
        return {
            name: whole[name].sub(overhead.get(name, Quantity.ZERO)) if name in whole else amount
            for name, amount in amounts.items()
        }

    found = ResourceRequirements(
        requests=own(asked.requests, told.requests), limits=own(asked.limits, told.limits), claims=asked.claims
    )
    return found if differs(found, asked) else asked


def with_allocation(pod: RunnablePod, allocation: Allocation) -> RunnablePod:
    """The pod with the resources that its node has allocated."""
    asked, known = asked_for(pod), allocation.containers
    if asked.pod is allocation.pod and all(each is known.get(name, each) for name, each in asked.containers.items()):
        return pod
    replace = msgspec.structs.replace

    def agreed(containers: tuple[RunnableContainer, ...]) -> tuple[RunnableContainer, ...]:
        return tuple(replace(each, resources=known.get(each.name, each.resources)) for each in containers)

    spec = pod.spec
    return replace(
        pod,
        spec=replace(
            spec,
            containers=agreed(tuple(spec.containers)),
            init_containers=agreed(tuple(spec.init_containers)),
            resources=allocation.pod,
        ),
    )


def whole(pod: Pod) -> ResourceRequirements:
    """What a pod as a whole requests and may use: its containers, itself, its claims and its overhead."""
    return ResourceRequirements(requests=pod_requests(pod), limits=pod_limits(pod))


def effective(own: ResourceRequirements, of_pod: ResourceRequirements | None) -> ResourceRequirements:
    """The resources of a container in its pod: without a limit, it has that of the pod."""
    if of_pod is None:
        return own
    limits = {name: of_pod.limits[name] for name in _RESIZABLE if name in of_pod.limits}
    return msgspec.structs.replace(own, limits={**limits, **own.limits}) if limits.keys() - own.limits else own


def differs(one: ResourceRequirements, other: ResourceRequirements) -> bool:
    """Whether CPU or memory differ."""
    return any(_changes(one, other, name) for name in _RESIZABLE)


def must_restart(container: RunnableContainer, wanted: ResourceRequirements, running: ResourceRequirements) -> bool:
    """Whether a container must restart to get other resources."""
    policies = {each.resource_name: each.restart_policy for each in container.resize_policy}
    return any(policies.get(name) == "RestartContainer" and _changes(wanted, running, name) for name in _RESIZABLE)


def _changes(one: ResourceRequirements, other: ResourceRequirements, name: str) -> bool:
    return one.requests.get(name) != other.requests.get(name) or one.limits.get(name) != other.limits.get(name)


def shrinks(before: Pod, after: Pod) -> bool:
    """Whether the node has more room afterwards."""
    old, new = pod_requests(before), pod_requests(after)
    return any(amount < old[name] for name, amount in new.items() if name in old)


def condition(type_: str, generation: int, reason: str = "", message: str = "") -> PodCondition:
    """A condition about the progress of a resize. generation: of the spec that it is about."""
    return PodCondition(type=type_, status="True", reason=reason, message=message, observed_generation=generation)


def condition_of(pod: Pod, type_: str) -> PodCondition | None:
    """The condition in the API."""
    return next((each for each in pod.status.conditions if each.type == type_), None)


def spelled_amounts(amounts: Mapping[str, Quantity]) -> dict[str, str]:
    """Amounts in the API's format."""
    return {name: str(amount) for name, amount in amounts.items()}


def spelled(resources: ResourceRequirements) -> dict[str, Any]:
    """Resources in the API's format."""
    told: dict[str, Any] = {}
    for side, amounts in (("limits", resources.limits), ("requests", resources.requests)):
        if amounts:
            told[side] = spelled_amounts(amounts)
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
