"""Node resources (cpu, memory, hugepages) that a device represents or costs."""

from __future__ import annotations

from collections.abc import Mapping

from allot.core.model.resource_v1 import (
    DeviceCapacity,
    NodeAllocatableMapping,
    NodeAllocatableOverhead,
    NodeAllocatableResource,
)
from allot.core.quantity import Quantity
from allot.core.validation.fields import Findings, child, invalid, key, not_found, required

MUST_BE_NODE_ALLOCATABLE = "must be a node allocatable resource name"
_ONE_OVERHEAD = "at least one of perPod or perContainer must be set"


def is_node_allocatable(name: str) -> bool:
    """Whether the kubelet itself allocates this resource."""
    return name in ("cpu", "memory") or name.startswith("hugepages-")


def check_node_allocatable(
    resources: Mapping[str, NodeAllocatableResource], capacity: Mapping[str, DeviceCapacity], path: str
) -> Findings:
    """The nodeAllocatableResources of a device with that capacity."""
    found: Findings = []
    for name, resource in resources.items():
        where = key(path, name)
        if not is_node_allocatable(name):
            found.append(invalid(where, name, MUST_BE_NODE_ALLOCATABLE))
        if resource.mapping is None and resource.overhead is None:
            found.append(required(where, "at least one of mapping or overhead must be set"))
        if resource.mapping is not None:
            found += _check_mapping(resource.mapping, capacity, child(where, "mapping"))
        if resource.overhead is not None:
            found += _check_overhead(resource.overhead, child(where, "overhead"))
    return found


def _check_mapping(mapping: NodeAllocatableMapping, capacity: Mapping[str, DeviceCapacity], path: str) -> Findings:
    found: Findings = []
    key_path, multiplier_path = child(path, "capacityKey"), child(path, "capacityMultiplier")
    if mapping.capacity_key is not None:
        if not mapping.capacity_key:
            found.append(invalid(key_path, "", "capacityKey must not be an empty string"))
        elif mapping.capacity_key not in capacity:
            found.append(not_found(key_path, mapping.capacity_key))
        if mapping.capacity_multiplier is None:
            found.append(required(multiplier_path, "capacityMultiplier is required when capacityKey is set"))
        elif mapping.capacity_multiplier.sign() <= 0:
            found.append(invalid(multiplier_path, mapping.capacity_multiplier, "must be positive"))
    elif mapping.capacity_multiplier is not None:
        found.append(required(key_path, "capacityKey is required when capacityMultiplier is set"))
    if mapping.device_multiplier is not None and mapping.device_multiplier.sign() <= 0:
        found.append(invalid(child(path, "deviceMultiplier"), mapping.device_multiplier, "must be positive"))
    return found


def _check_overhead(overhead: NodeAllocatableOverhead, path: str) -> Findings:
    return check_overhead_amounts(overhead.per_pod, overhead.per_container, path)


def check_overhead_amounts(per_pod: Quantity | None, per_container: Quantity | None, path: str) -> Findings:
    """At least one amount, none negative; the same rule in a device and in a pod's status."""
    if per_pod is None and per_container is None:
        return [invalid(path, "", _ONE_OVERHEAD)]
    amounts = (("perPod", per_pod), ("perContainer", per_container))
    return [
        invalid(child(path, name), amount, "must be non-negative")
        for name, amount in amounts
        if amount is not None and amount.sign() < 0
    ]
