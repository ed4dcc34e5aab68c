"""Devices that provide or use resources of the node (DRANodeAllocatableResources): cpu, memory, huge pages.

What a pod's devices account for is added to what its containers ask for; the sum must fit on the node and within
what the pod as a whole may have. Amounts are compared in billionths.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from allot.core.allocation import Inventory
from allot.core.allocation.devices import DeviceID
from allot.core.allocation.pools import PoolID, device_on_node
from allot.core.model import core_v1
from allot.core.model import resource_v1 as api
from allot.core.quantity import Quantity
from allot.core.scheduling.nodes.nodeinfo import NodeInfo

Statuses = tuple[core_v1.NodeAllocatableResourceClaimStatus, ...]
Nano = dict[str, int]
_HUGE_PAGES = "hugepages-"
_ONE = 10**9


class AccountingError(Exception):
    """What an allocation accounts for cannot be computed. The message is upstream's."""


class Shortage(msgspec.Struct, frozen=True):
    """What the node has too little of. hopeless: even an empty node would have too little."""

    reasons: tuple[str, ...]
    hopeless: bool


# --- what a claim accounts for ---


def is_mapped(inventory: Inventory, allocation: api.AllocationResult) -> bool:
    """Whether any device of an allocation provides node resources; such a claim cannot be shared between pods."""
    for result in allocation.devices.results:
        for entry in inventory.devices_named(DeviceID(result.driver, result.pool, result.device)):
            if any(resource.mapping is not None for resource in entry.device.node_allocatable_resources.values()):
                return True
    return False


def claim_statuses(
    inventory: Inventory,
    node: core_v1.Node,
    pod: core_v1.Pod,
    allocations: Mapping[str, api.AllocationResult],
    names: Mapping[str, str],
) -> Statuses:
    """What the pod's claims account for on the node, by name of the claim.

    allocations: by name of the claim. names: of claims, by their name in pod.spec.resourceClaims.
    """
    found = []
    for claim in sorted(allocations):
        allocation = allocations[claim]
        if not any(_device(inventory, node, result, missing_ok=True) for result in allocation.devices.results):
            continue
        status = _claim_status(inventory, node, claim, allocation, pod.metadata.namespace)
        if status is not None:
            users = tuple(
                container.name
                for container in (*pod.spec.init_containers, *pod.spec.containers)
                for used in container.resources.claims
                if names.get(used.name) == claim
            )
            found.append(msgspec.structs.replace(status, containers=users))
    return tuple(found)


def _device(
    inventory: Inventory, node: core_v1.Node, result: api.DeviceRequestAllocationResult, *, missing_ok: bool = False
) -> api.Device | None:
    """The device, if it accounts for node resources."""
    for entry in inventory.published(PoolID(result.driver, result.pool), node):
        if entry.id.device == result.device:
            if entry.slice.spec.per_device_node_selection and not device_on_node(entry, node):
                if missing_ok:
                    return None
                raise AccountingError(f"device {result.device} does not match node")
            return entry.device if entry.device.node_allocatable_resources else None
    if missing_ok:
        return None
    raise AccountingError(f"device {result.device} not found in pool {result.pool} for driver {result.driver}")


def _claim_status(
    inventory: Inventory, node: core_v1.Node, claim: str, allocation: api.AllocationResult, namespace: str
) -> core_v1.NodeAllocatableResourceClaimStatus | None:
    mapped: dict[str, Quantity] = {}
    per_pod: dict[str, Quantity] = {}
    per_container: dict[str, Quantity] = {}
    for result in allocation.devices.results:
        try:
            device = _device(inventory, node, result)
        except AccountingError as error:
            where = f"claim {namespace}/{claim}, device {result.device}, driver {result.driver}"
            raise AccountingError(f"{where}: {error}") from error
        for name, resource in device.node_allocatable_resources.items() if device is not None else ():
            if resource.mapping is not None:
                _add(mapped, name, _mapped(resource.mapping, result, name, f"{namespace}/{claim}"))
            if resource.overhead is not None:
                _add(per_pod, name, resource.overhead.per_pod)
                _add(per_container, name, resource.overhead.per_container)
    if not mapped and not per_pod and not per_container:
        return None
    return core_v1.NodeAllocatableResourceClaimStatus(
        resource_claim_name=claim,
        mapping=tuple(
            core_v1.NodeAllocatableResourceAmount(name=name, quantity=mapped[name]) for name in sorted(mapped)
        ),
        overhead=tuple(
            core_v1.NodeAllocatableResourceOverhead(
                name=name, per_pod=per_pod.get(name), per_container=per_container.get(name)
            )
            for name in sorted({*per_pod, *per_container})
        ),
    )


def _mapped(
    mapping: api.NodeAllocatableMapping, result: api.DeviceRequestAllocationResult, name: str, claim: str
) -> Quantity | None:
    if not mapping.capacity_key:
        return mapping.device_multiplier
    key = mapping.capacity_key
    if not result.consumed_capacity:
        raise AccountingError(
            f"claim {claim}, device {result.device}: ConsumedCapacity is nil, but Capacity key '{key}' is set in "
            f"NodeAllocatableResources for resource {name}"
        )
    consumed = result.consumed_capacity.get(key)
    if consumed is None or mapping.capacity_multiplier is None:
        return consumed
    # Rounded up: nothing finer than a billionth can be written.
    return Quantity.from_nano(-(-consumed.nano * mapping.capacity_multiplier.nano // _ONE), consumed.format)


def _add(total: dict[str, Quantity], name: str, amount: Quantity | None) -> None:
    if amount is not None:
        before = total.get(name)
        total[name] = amount if before is None else before.add(amount)


# --- whether it fits ---


def shortage(pod: core_v1.Pod, statuses: Statuses, node: NodeInfo) -> Shortage | None:
    """What the node has too little of for the pod with its devices."""
    demand = _with_devices(_containers(pod.spec, "requests"), statuses)
    if pod.spec.resources is not None:
        demand |= {name: amount.nano for name, amount in pod.spec.resources.requests.items() if _is_pod_level(name)}
    for name, amount in pod.spec.overhead.items():
        demand[name] = demand.get(name, 0) + amount.nano
    reasons = []
    hopeless = False
    for name in ("cpu", "memory", "ephemeral-storage", *sorted(n for n in demand if n.startswith(_HUGE_PAGES))):
        unit = _ONE // 1000 if name == "cpu" else _ONE
        needed = -(-demand.get(name, 0) // unit)
        allocatable, requested = _room(node, name)
        if needed > 0 and needed > allocatable - requested:
            reasons.append(f"Insufficient {name}")
            hopeless = hopeless or needed > allocatable
    return Shortage(tuple(reasons), hopeless) if reasons else None


def _room(node: NodeInfo, name: str) -> tuple[int, int]:
    if name == "cpu":
        return node.allocatable_cpu, node.cpu
    if name == "memory":
        return node.allocatable_memory, node.memory
    if name == "ephemeral-storage":
        return node.allocatable_storage, node.storage
    return node.allocatable_scalars.get(name, 0), node.scalars.get(name, 0)


def pod_level_problem(pod: core_v1.Pod, statuses: Statuses) -> str:
    """Why the pod-level resources do not cover its containers and devices; empty if they do."""
    level = pod.spec.resources
    if level is None or not statuses:
        return ""
    requests = _with_devices(_containers(pod.spec, "requests"), statuses)
    for name in sorted(level.requests):
        if _is_pod_level(name) and requests.get(name, 0) > level.requests[name].nano:
            return (
                f"pod level request for {name} is insufficient to cover the aggregated container and "
                "node-allocatable DRA requests"
            )
    limits = _containers(pod.spec, "limits")
    devices = _with_devices({}, statuses)
    for name in sorted(n for n in {**limits, **devices} if n.startswith(_HUGE_PAGES) and n in level.limits):
        if limits.get(name, 0) + devices.get(name, 0) > level.limits[name].nano:
            return (
                f"pod level limit for {name} is insufficient to cover the aggregated container and "
                "node-allocatable DRA limits"
            )
    for container in pod.spec.containers:
        devices = _container_devices(container.name, statuses)
        for name, limit in sorted(container.resources.limits.items()):
            if name.startswith(_HUGE_PAGES) or name not in level.limits:
                continue
            if limit.nano + devices.get(name, 0) > level.limits[name].nano:
                return (
                    f"pod level limit for {name} is insufficient to cover the limit and DRA overhead for "
                    f"container {container.name}"
                )
    return ""


def _is_pod_level(name: str) -> bool:
    return name in ("cpu", "memory") or name.startswith(_HUGE_PAGES)


def _containers(spec: core_v1.PodSpec, kind: str) -> Nano:
    """Requests or limits of all containers: those that run together added up, init containers taken alone."""
    total: Nano = {}
    sidecars: Nano = {}
    initial: Nano = {}
    for container in spec.containers:
        _plus(total, _amounts(container, kind))
    for container in spec.init_containers:
        amounts = _amounts(container, kind)
        if container.is_sidecar:
            _plus(total, amounts)
            _plus(sidecars, amounts)
            continue
        _plus(amounts, sidecars)
        for name, nano in amounts.items():
            initial[name] = max(initial.get(name, 0), nano)
    return {name: max(total.get(name, 0), initial.get(name, 0)) for name in {**total, **initial}}


def _amounts(container: core_v1.Container, kind: str) -> Nano:
    return {name: amount.nano for name, amount in getattr(container.resources, kind).items()}


def _with_devices(total: Nano, statuses: Statuses) -> Nano:
    total = dict(total)
    for status in statuses:
        for mapped in status.mapping:
            _plus(total, {mapped.name: _nano(mapped.quantity)})
        for overhead in status.overhead:
            each = _nano(overhead.per_container) * len(status.containers)
            _plus(total, {overhead.name: _nano(overhead.per_pod) + each})
    return total


def _container_devices(container: str, statuses: Statuses) -> Nano:
    total: Nano = {}
    for status in statuses:
        if container in status.containers:
            for mapped in status.mapping:
                _plus(total, {mapped.name: _nano(mapped.quantity)})
            for overhead in status.overhead:
                _plus(total, {overhead.name: _nano(overhead.per_pod) + _nano(overhead.per_container)})
    return total


def _plus(total: Nano, more: Nano) -> None:
    for name, nano in more.items():
        total[name] = total.get(name, 0) + nano


def _nano(amount: Quantity | None) -> int:
    return amount.nano if amount is not None else 0
