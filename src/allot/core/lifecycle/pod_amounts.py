"""What a pod as a whole requests and may use: its containers together, its own resources, what its claims add, and its overhead.

The arithmetic of PodRequests and PodLimits in k8s.io/component-helpers/resource and of the kubelet's container limits, 1.37. What claims add is in
the pod's status: the scheduler writes it if the gate DRANodeAllocatableResources is on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from allot.core.model.core_v1 import Container, NodeAllocatableResourceClaimStatus, Pod, PodSpec
from allot.core.quantity import Quantity

Amounts = Mapping[str, Quantity]
HUGE_PAGES = "hugepages-"


def is_pod_level(resource: str) -> bool:
    """Whether a pod may have this resource itself, for all its containers."""
    return resource in ("cpu", "memory") or resource.startswith(HUGE_PAGES)


def pod_requests(pod: Pod) -> dict[str, Quantity]:
    """What a pod requests. A request of the pod itself covers its containers and claims."""
    total = together_requested(pod)
    if pod.spec.resources is not None:
        total.update(_pod_level(pod.spec.resources.requests))
    _add(total, pod.spec.overhead)
    return total


def pod_limits(pod: Pod) -> dict[str, Quantity]:
    """What a pod may use at most, as far as its containers, or the pod itself, have limits."""
    total = _together(pod.spec, lambda container: container.resources.limits)
    # Unlimited is unlimited with devices, too; but huge pages are never unlimited.
    of_claims = claimed(pod.status.node_allocatable_resource_claim_statuses)
    _add(total, {name: each for name, each in of_claims.items() if name in total or name.startswith(HUGE_PAGES)})
    if pod.spec.resources is not None:
        total.update(_pod_level(pod.spec.resources.limits))
    _add(total, {name: each for name, each in pod.spec.overhead.items() if name in total and total[name].sign()})
    return total


def together_requested(pod: Pod) -> dict[str, Quantity]:
    """What containers and claims request together."""
    total = _together(pod.spec, lambda container: container.resources.requests)
    _add(total, claimed(pod.status.node_allocatable_resource_claim_statuses))
    return total


def claimed(claims: Iterable[NodeAllocatableResourceClaimStatus]) -> dict[str, Quantity]:
    """What claims add to their pod: costs of each container count once per container."""
    total: dict[str, Quantity] = {}
    for claim in claims:
        for mapped in claim.mapping:
            _plus(total, mapped.name, mapped.quantity)
        for overhead in claim.overhead:
            _plus(total, overhead.name, overhead.per_pod)
            for _ in claim.containers:
                _plus(total, overhead.name, overhead.per_container)
    return total


def claimed_by(pod: Pod, container: str) -> dict[str, Quantity]:
    """What claims add to the limits of one container. What several containers share counts in full: any of them may use it."""
    total: dict[str, Quantity] = {}
    for claim in pod.status.node_allocatable_resource_claim_statuses:
        if container not in claim.containers:
            continue
        for mapped in claim.mapping:
            _plus(total, mapped.name, mapped.quantity)
        for overhead in claim.overhead:
            _plus(total, overhead.name, overhead.per_pod)
            _plus(total, overhead.name, overhead.per_container)
    return total


def memory_share(pod: Pod, container: Container) -> int:
    """The bytes that a container requests, with its share of its claims."""
    total = _value(container.resources.requests.get("memory"))
    for claim in pod.status.node_allocatable_resource_claim_statuses:
        if container.name not in claim.containers:
            continue
        count = len(claim.containers)
        total += sum(_value(each.quantity) // count for each in claim.mapping if each.name == "memory")
        for overhead in claim.overhead:
            if overhead.name == "memory":
                total += _value(overhead.per_pod) // count + _value(overhead.per_container)
    return total


def container_limits(pod: Pod, container: Container) -> dict[str, Quantity]:
    """The limits of one container: its own with its claims, or else those of its pod."""
    limits, added = dict(container.resources.limits), claimed_by(pod, container.name)
    whole = pod.spec.resources.limits if pod.spec.resources is not None else {}
    for name in {**limits, **whole, **added}:
        own = limits.get(name)
        is_huge = name.startswith(HUGE_PAGES)
        if own is not None and (own.sign() or is_huge):
            _plus(limits, name, added.get(name))
        elif name in whole and is_pod_level(name):
            limits[name] = whole[name]
        elif is_huge and name in added:
            limits[name] = added[name]
    return limits


def _together(spec: PodSpec, amounts: Callable[[Container], Amounts]) -> dict[str, Quantity]:
    """Containers and sidecars run together; other init containers run beside the sidecars before them."""
    total: dict[str, Quantity] = {}
    for container in spec.containers:
        _add(total, amounts(container))
    sidecars: dict[str, Quantity] = {}
    first: dict[str, Quantity] = {}
    for container in spec.init_containers:
        if container.is_sidecar:
            _add(total, amounts(container))
            _add(sidecars, amounts(container))
            _raise(first, sidecars)
        else:
            alone = dict(amounts(container))
            _add(alone, sidecars)
            _raise(first, alone)
    _raise(total, first)
    return total


def _pod_level(amounts: Amounts) -> dict[str, Quantity]:
    return {name: amount for name, amount in amounts.items() if is_pod_level(name)}


def _add(total: dict[str, Quantity], more: Amounts) -> None:
    for name, amount in more.items():
        _plus(total, name, amount)


def _plus(total: dict[str, Quantity], name: str, amount: Quantity | None) -> None:
    if amount is not None:
        total[name] = total[name].add(amount) if name in total else amount


def _raise(total: dict[str, Quantity], floor: Amounts) -> None:
    for name, amount in floor.items():
        if name not in total or amount > total[name]:
            total[name] = amount


def _value(quantity: Quantity | None) -> int:
    return 0 if quantity is None else quantity.value()
