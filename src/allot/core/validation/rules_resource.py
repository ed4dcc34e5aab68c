"""Declarative rules of resource.k8s.io, as tagged on the types of Kubernetes 1.37.

One table for all versions: the versions differ only in paths, and only v1beta1 (requests are flat, devices have a
`basic` member). Rules at stage alpha are left out: upstream evaluates them and discards the result.
"""

from __future__ import annotations

from typing import Any

from allot.core.model import resource_v1 as r
from allot.core.validation import declarative_formats as f
from allot.core.validation.declarative import NO_MODIFY, Rule, Rules, Schema
from allot.core.validation.item_text import item_text

ALLOCATION_MODES = frozenset((r.EXACT_COUNT, r.ALL))
CONFIG_SOURCES = frozenset((r.FROM_CLASS, r.FROM_CLAIM))
TAINT_EFFECTS = frozenset((r.EFFECT_NONE, r.EFFECT_NO_SCHEDULE, r.EFFECT_NO_EXECUTE))
TOLERATION_OPERATORS = frozenset((r.TOLERATION_EQUAL, r.TOLERATION_EXISTS))
SKIP_NODE_OPERATIONS = frozenset(("NodePrepareResources", "NodeUnprepareResources", "*"))

POOLS_MAX = 1000
POOL_STATUS_LIMIT_MAX = 1000
POOL_STATUS_CONDITIONS_MAX = 10
POOL_SUMMARY_ENTRIES_MAX = 32
VALIDATION_ERROR_LENGTH_MAX = 256
INTERFACE_NAME_LENGTH_MAX = 256
HARDWARE_ADDRESS_LENGTH_MAX = 128
IPS_MAX = 16
DERIVED_ATTRIBUTES_MAX = 32

_VISIT = Rule()
_REQUEST_NAMES = Rule(unique=(), max_items=r.REQUESTS_MAX)
_DRIVER = Rule(required=True, format=f.long_name_caseless, max_characters=63)
_SKIP_NODE_OPERATIONS = Rule(unique=(), item_enum=SKIP_NODE_OPERATIONS, beta=False)
_BINDING_CONDITIONS = Rule(max_items=r.BINDING_CONDITIONS_MAX)
_COUNTERS = Rule(required=True, key_format=f.short_name)
_COUNT = Rule(minimum=0, beta=False)
_REQUIRED_COUNT = Rule(required=True, minimum=0, beta=False)
_REQUIRED = Rule(required=True, beta=False)
_FULLY_QUALIFIED = Rule(format=f.fully_qualified_name)
_PARTITION_ATTRIBUTE = Rule(gate="DRAPartitionableDevicesType", format=f.fully_qualified_name, beta=False)

_REQUEST_FIELDS = {
    "selectors": Rule(max_items=r.SELECTORS_MAX),
    "allocation_mode": Rule(enum=ALLOCATION_MODES),
    "tolerations": _VISIT,
    "derived_attributes": Rule(max_items=DERIVED_ATTRIBUTES_MAX, beta=False),
}

_RULES: dict[type, Rules] = {
    # --- DeviceClass ---
    r.DeviceClass: Rules(fields={"spec": _VISIT}),
    r.DeviceClassSpec: Rules(
        fields={
            "selectors": Rule(max_items=r.SELECTORS_MAX),
            "config": Rule(max_items=r.CONFIG_MAX),
            "extended_resource_name": Rule(format=f.extended_resource_name),
        }
    ),
    r.DeviceClassConfiguration: Rules(fields={"opaque": _VISIT}),
    r.OpaqueDeviceConfiguration: Rules(fields={"driver": _DRIVER}),
    # --- ResourceClaim ---
    r.ResourceClaim: Rules(fields={"spec": Rule(immutable=True), "status": _VISIT}),
    r.ResourceClaimTemplate: Rules(fields={"spec": _VISIT}),
    r.ResourceClaimTemplateSpec: Rules(fields={"spec": _VISIT}),
    r.ResourceClaimSpec: Rules(fields={"devices": _VISIT}),
    r.DeviceClaim: Rules(
        fields={
            "requests": Rule(unique=("name",), max_items=r.REQUESTS_MAX),
            "constraints": Rule(max_items=r.CONSTRAINTS_MAX),
            "config": Rule(max_items=r.CONFIG_MAX),
        }
    ),
    r.DeviceRequest: Rules(
        fields={
            "exactly": _VISIT,
            "first_available": Rule(unique=("name",), max_items=r.FIRST_AVAILABLE_MAX),
        }
    ),
    r.ExactDeviceRequest: Rules(fields=_REQUEST_FIELDS),
    r.DeviceSubRequest: Rules(
        fields={"device_class_name": Rule(required=True, format=f.long_name), **_REQUEST_FIELDS},
    ),
    r.DerivedAttribute: Rules(
        fields={"name": Rule(required=True, format=f.fully_qualified_name, beta=False), "expression": _REQUIRED}
    ),
    r.DeviceToleration: Rules(
        fields={
            "key": Rule(format=f.label_key),
            "operator": Rule(required=True, enum=TOLERATION_OPERATORS),
            "effect": Rule(enum=TAINT_EFFECTS),
        }
    ),
    r.DeviceConstraint: Rules(
        fields={
            "requests": _REQUEST_NAMES,
            "match_attribute": _FULLY_QUALIFIED,
            "distinct_attribute": _FULLY_QUALIFIED,
        }
    ),
    r.DeviceClaimConfiguration: Rules(fields={"requests": _REQUEST_NAMES, "opaque": _VISIT}),
    r.ResourceClaimStatus: Rules(
        fields={
            "allocation": Rule(update=(NO_MODIFY,)),
            "reserved_for": Rule(unique=("uid",), max_items=r.RESERVED_FOR_MAX),
            "devices": Rule(unique=("driver", "device", "pool", "share_id")),
        }
    ),
    r.AllocationResult: Rules(fields={"devices": _VISIT}),
    r.DeviceAllocationResult: Rules(
        fields={
            "results": Rule(max_items=r.ALLOCATION_RESULTS_MAX),
            "config": Rule(max_items=r.ALLOCATION_CONFIG_MAX),
        }
    ),
    r.DeviceRequestAllocationResult: Rules(
        fields={
            "driver": _DRIVER,
            "pool": Rule(required=True, format=f.resource_pool_name),
            "tolerations": _VISIT,
            "binding_conditions": _BINDING_CONDITIONS,
            "binding_failure_conditions": _BINDING_CONDITIONS,
            "share_id": Rule(format=f.uuid),
            "skip_node_operations": _SKIP_NODE_OPERATIONS,
        }
    ),
    r.DeviceAllocationConfiguration: Rules(
        fields={"source": Rule(required=True, enum=CONFIG_SOURCES), "requests": _REQUEST_NAMES, "opaque": _VISIT}
    ),
    r.AllocatedDeviceStatus: Rules(fields={"share_id": Rule(format=f.uuid), "network_data": _VISIT}),
    r.NetworkDeviceData: Rules(
        fields={
            "interface_name": Rule(max_bytes=INTERFACE_NAME_LENGTH_MAX),
            "ips": Rule(unique=(), max_items=IPS_MAX),
            "hardware_address": Rule(max_bytes=HARDWARE_ADDRESS_LENGTH_MAX),
        }
    ),
    # --- ResourceSlice ---
    r.ResourceSlice: Rules(fields={"spec": _VISIT}),
    r.ResourceSliceSpec: Rules(
        fields={
            "devices": _VISIT,
            "shared_counters": Rule(unique=("name",), max_items=r.SLICE_COUNTER_SETS_MAX),
            "partition_type_attribute": _PARTITION_ATTRIBUTE,
            "skip_node_operations": _SKIP_NODE_OPERATIONS,
        }
    ),
    r.CounterSet: Rules(fields={"name": Rule(required=True, format=f.short_name), "counters": _COUNTERS}),
    r.Device: Rules(
        fields={
            "attributes": _VISIT,
            "consumes_counters": Rule(unique=("counter_set",), max_items=r.CONSUMED_COUNTER_SETS_MAX),
            "taints": _VISIT,
            "binding_conditions": _BINDING_CONDITIONS,
            "binding_failure_conditions": _BINDING_CONDITIONS,
            "node_allocatable_resources": Rule(beta=False),
        }
    ),
    r.DeviceAttribute: Rules(
        fields={}, union=("int_", "bool_", "string", "version", "ints", "bools", "strings", "versions")
    ),
    r.DeviceCounterConsumption: Rules(
        fields={
            "counter_set": Rule(required=True, format=f.short_name),
            "counters": _COUNTERS,
            "compatibility_groups": Rule(
                unique=(), max_items=r.COMPATIBILITY_GROUPS_MAX, item_format=f.short_name, beta=False
            ),
        }
    ),
    r.NodeAllocatableResource: Rules(fields={"mapping": Rule(beta=False)}),
    r.NodeAllocatableMapping: Rules(fields={}, union=("capacity_key", "device_multiplier"), union_beta=False),
    # --- DeviceTaintRule ---
    r.DeviceTaintRule: Rules(fields={"spec": _VISIT}),
    r.DeviceTaintRuleSpec: Rules(fields={"taint": _VISIT}),
    r.DeviceTaint: Rules(fields={"effect": Rule(required=True, enum=TAINT_EFFECTS)}),
    # --- ResourcePoolStatusRequest ---
    r.ResourcePoolStatusRequest: Rules(fields={"spec": Rule(immutable=True, beta=False), "status": Rule(beta=False)}),
    r.ResourcePoolStatusRequestSpec: Rules(
        fields={
            "driver": Rule(required=True, format=f.long_name_caseless, beta=False),
            "pool_name": Rule(format=f.resource_pool_name, beta=False),
            "limit": Rule(minimum=1, maximum=POOL_STATUS_LIMIT_MAX, beta=False),
            "default_partition_type_attribute": _PARTITION_ATTRIBUTE,
        }
    ),
    r.ResourcePoolStatusRequestStatus: Rules(
        fields={
            "pool_count": _REQUIRED_COUNT,
            "pools": Rule(max_items=POOLS_MAX, beta=False),
            "conditions": Rule(max_items=POOL_STATUS_CONDITIONS_MAX, beta=False),
        }
    ),
    r.PoolStatus: Rules(
        fields={
            "driver": Rule(required=True, format=f.long_name_caseless, beta=False),
            "pool_name": Rule(required=True, format=f.resource_pool_name, beta=False),
            # Documented as "at least 0", but 0 counts as missing.
            "generation": _REQUIRED_COUNT,
            "resource_slice_count": Rule(minimum=1, beta=False),
            "total_devices": _COUNT,
            "allocated_devices": _COUNT,
            "available_devices": _COUNT,
            "unavailable_devices": _COUNT,
            "node_name": Rule(format=f.long_name, beta=False),
            "validation_error": Rule(max_bytes=VALIDATION_ERROR_LENGTH_MAX, beta=False),
            "partition_summary": Rule(unique=("attribute", "type"), max_items=POOL_SUMMARY_ENTRIES_MAX, beta=False),
            "shareable_summary": Rule(beta=False),
        }
    ),
    r.PoolPartitionSummary: Rules(
        fields={
            "attribute": _REQUIRED,
            "type": _REQUIRED,
            "total": _REQUIRED_COUNT,
            "allocatable": _REQUIRED_COUNT,
        }
    ),
    r.PoolShareableSummary: Rules(
        fields={
            "fully_available_devices": _REQUIRED_COUNT,
            "partially_available_devices": _REQUIRED_COUNT,
            "capacity": Rule(max_items=POOL_SUMMARY_ENTRIES_MAX, beta=False),
        }
    ),
    r.PoolShareableCapacity: Rules(
        fields={"name": _REQUIRED, "total": _REQUIRED, "consumed": _REQUIRED, "available": _REQUIRED}
    ),
}


def _flat_request(item: Any) -> Any:
    """A list item as v1beta1 prints it: a request has the fields of `exactly` inlined."""
    text = item_text(item)
    if isinstance(item, r.DeviceRequest):
        exactly = text.pop("exactly", {})
        first_available = text.pop("firstAvailable", None)
        text = {**text, "deviceClassName": exactly.pop("deviceClassName", ""), **exactly}
        if first_available is not None:
            text["firstAvailable"] = first_available
    return text


_BASIC: dict[tuple[type, str], tuple[str, ...]] = {
    (r.Device, attribute): ("basic", name)
    for attribute, name in zip(r.Device.__struct_fields__, r.Device.__struct_encode_fields__, strict=True)
    if attribute != "name"
}

SCHEMA = Schema(rules=_RULES, item_text=item_text)
SCHEMA_V1BETA1 = Schema(rules=_RULES, item_text=_flat_request, segments={(r.DeviceRequest, "exactly"): (), **_BASIC})
