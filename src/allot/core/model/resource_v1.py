"""resource.k8s.io/v1 as of Kubernetes 1.37: every kind and every field, as frozen values.

The older versions (v1beta2, v1beta1, v1alpha3) are converted to these by `model.convert`; nothing else in the project
knows them. Absent lists and maps are empty here; the two places where Kubernetes distinguishes an absent list from an
empty one (`ResourceSliceSpec.devices` and `.shared_counters`) are `None` when absent.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from allot.core.model.core_v1 import NodeSelector
from allot.core.model.meta import EMPTY, APIStruct, Condition, Int32, Int64, ObjectMeta, RawJSON, Time
from allot.core.quantity import Quantity

GROUP = "resource.k8s.io"

# --- limits of the API (validation, the allocator and drivers all need them) ---
REQUESTS_MAX = 32
CONSTRAINTS_MAX = 32
CONFIG_MAX = 32
SELECTORS_MAX = 32
FIRST_AVAILABLE_MAX = 8
ALLOCATION_RESULTS_MAX = 32
ALLOCATION_CONFIG_MAX = 64
RESERVED_FOR_MAX = 256
SLICE_DEVICES_MAX = 128
SLICE_DEVICES_WITH_FEATURES_MAX = 64
SLICE_COUNTER_SETS_MAX = 8
COUNTERS_PER_SET_MAX = 32
CONSUMED_COUNTER_SETS_MAX = 2
COMPATIBILITY_GROUPS_MAX = 2
ATTRIBUTES_AND_CAPACITIES_MAX = 32
ATTRIBUTE_VALUES_MAX = 48
ATTRIBUTE_VALUE_LENGTH_MAX = 64
TAINTS_MAX = 16
BINDING_CONDITIONS_MAX = 4
CEL_EXPRESSION_LENGTH_MAX = 10 * 1024
CEL_COST_MAX = 1_000_000
OPAQUE_PARAMETERS_LENGTH_MAX = 10 * 1024

# --- well-known strings ---
EXACT_COUNT = "ExactCount"
ALL = "All"
FROM_CLASS = "FromClass"
FROM_CLAIM = "FromClaim"
EFFECT_NONE = "None"
EFFECT_NO_SCHEDULE = "NoSchedule"
EFFECT_NO_EXECUTE = "NoExecute"
TOLERATION_EQUAL = "Equal"
TOLERATION_EXISTS = "Exists"
FINALIZER = "resource.kubernetes.io/delete-protection"
POD_CLAIM_NAME_ANNOTATION = "resource.kubernetes.io/pod-claim-name"
EXTENDED_RESOURCE_CLAIM_ANNOTATION = "resource.kubernetes.io/extended-resource-claim"
ADMIN_ACCESS_LABEL = "resource.kubernetes.io/admin-access"
IMPLICIT_EXTENDED_RESOURCE_PREFIX = "deviceclass.resource.kubernetes.io/"


# --- selectors and configuration ---


class CELDeviceSelector(APIStruct, frozen=True, kw_only=True):
    """A CEL expression that is true for the devices it selects."""

    expression: str = ""


class DeviceSelector(APIStruct, frozen=True, kw_only=True):
    """One-of; `cel` is the only member so far."""

    cel: CELDeviceSelector | None = None


class OpaqueDeviceConfiguration(APIStruct, frozen=True, kw_only=True):
    """Parameters that only the named driver understands."""

    driver: str = ""
    parameters: RawJSON | None = None


class DeviceClassConfiguration(APIStruct, frozen=True, kw_only=True):
    """Configuration that a class gives to every device claimed through it."""

    opaque: OpaqueDeviceConfiguration | None = None


class DeviceClaimConfiguration(APIStruct, frozen=True, kw_only=True):
    """Configuration from a claim, for some or (when `requests` is empty) all of its requests."""

    requests: tuple[str, ...] = ()
    opaque: OpaqueDeviceConfiguration | None = None


class DeviceAllocationConfiguration(APIStruct, frozen=True, kw_only=True):
    """Configuration in an allocation, with its source."""

    source: str = ""
    requests: tuple[str, ...] = ()
    opaque: OpaqueDeviceConfiguration | None = None


# --- DeviceClass ---


class DeviceClassSpec(APIStruct, frozen=True, kw_only=True):
    """What devices of a class have in common, and how they are configured."""

    selectors: tuple[DeviceSelector, ...] = ()
    config: tuple[DeviceClassConfiguration, ...] = ()
    extended_resource_name: str | None = None


class DeviceClass(APIStruct, frozen=True, kw_only=True):
    """A vendor- or admin-provided category of devices."""

    metadata: ObjectMeta = ObjectMeta()
    spec: DeviceClassSpec = DeviceClassSpec()


# --- ResourceClaim: spec ---


class DeviceToleration(APIStruct, frozen=True, kw_only=True):
    """A taint that a request tolerates."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    toleration_seconds: Int64 | None = None


class CapacityRequirements(APIStruct, frozen=True, kw_only=True):
    """How much of each capacity a request needs."""

    requests: Mapping[str, Quantity] = EMPTY


class DerivedAttribute(APIStruct, frozen=True, kw_only=True):
    """An attribute computed by CEL for the devices of one request, for use in constraints."""

    name: str = ""
    expression: str = ""


class ExactDeviceRequest(APIStruct, frozen=True, kw_only=True):
    """A request for devices of one class."""

    device_class_name: str = ""
    selectors: tuple[DeviceSelector, ...] = ()
    allocation_mode: str = ""
    count: Int64 = 0
    admin_access: bool | None = None
    tolerations: tuple[DeviceToleration, ...] = ()
    capacity: CapacityRequirements | None = None
    derived_attributes: tuple[DerivedAttribute, ...] = ()


class DeviceSubRequest(APIStruct, frozen=True, kw_only=True):
    """One alternative of a prioritized list (`firstAvailable`)."""

    name: str = ""
    device_class_name: str = ""
    selectors: tuple[DeviceSelector, ...] = ()
    allocation_mode: str = ""
    count: Int64 = 0
    tolerations: tuple[DeviceToleration, ...] = ()
    capacity: CapacityRequirements | None = None
    derived_attributes: tuple[DerivedAttribute, ...] = ()


class DeviceRequest(APIStruct, frozen=True, kw_only=True):
    """One-of: exactly these devices, or the first alternative that is available."""

    name: str = ""
    exactly: ExactDeviceRequest | None = None
    first_available: tuple[DeviceSubRequest, ...] = ()


class DeviceConstraint(APIStruct, frozen=True, kw_only=True):
    """What the devices of several requests must have in common, or must not."""

    requests: tuple[str, ...] = ()
    match_attribute: str | None = None
    distinct_attribute: str | None = None


class DeviceClaim(APIStruct, frozen=True, kw_only=True):
    """The devices part of a claim."""

    requests: tuple[DeviceRequest, ...] = ()
    constraints: tuple[DeviceConstraint, ...] = ()
    config: tuple[DeviceClaimConfiguration, ...] = ()


class ResourceClaimSpec(APIStruct, frozen=True, kw_only=True):
    """What is claimed."""

    devices: DeviceClaim = DeviceClaim()


# --- ResourceClaim: status ---


class DeviceRequestAllocationResult(APIStruct, frozen=True, kw_only=True):
    """One allocated device, or one share of it."""

    request: str = ""
    driver: str = ""
    pool: str = ""
    device: str = ""
    admin_access: bool | None = None
    tolerations: tuple[DeviceToleration, ...] = ()
    binding_conditions: tuple[str, ...] = ()
    binding_failure_conditions: tuple[str, ...] = ()
    # "shareID" does not follow the camel rule.
    share_id: str | None = msgspec.field(default=None, name="shareID")
    consumed_capacity: Mapping[str, Quantity] = EMPTY
    skip_node_operations: tuple[str, ...] = ()


class DeviceAllocationResult(APIStruct, frozen=True, kw_only=True):
    """The devices of an allocation."""

    results: tuple[DeviceRequestAllocationResult, ...] = ()
    config: tuple[DeviceAllocationConfiguration, ...] = ()


class AllocationResult(APIStruct, frozen=True, kw_only=True):
    """What a claim got and where it can be used."""

    devices: DeviceAllocationResult = DeviceAllocationResult()
    node_selector: NodeSelector | None = None
    allocation_timestamp: Time | None = None


class ResourceClaimConsumerReference(APIStruct, frozen=True, kw_only=True):
    """Who may use a claim."""

    api_group: str = ""
    resource: str = ""
    name: str = ""
    uid: str = ""


class NetworkDeviceData(APIStruct, frozen=True, kw_only=True):
    """Network details of a device."""

    interface_name: str = ""
    ips: tuple[str, ...] = ()
    hardware_address: str = ""


class AllocatedDeviceStatus(APIStruct, frozen=True, kw_only=True):
    """What a driver reports about an allocated device."""

    driver: str = ""
    pool: str = ""
    device: str = ""
    share_id: str | None = msgspec.field(default=None, name="shareID")
    conditions: tuple[Condition, ...] = ()
    data: RawJSON | None = None
    network_data: NetworkDeviceData | None = None


class ResourceClaimStatus(APIStruct, frozen=True, kw_only=True):
    """Allocation, consumers, and drivers' reports."""

    allocation: AllocationResult | None = None
    reserved_for: tuple[ResourceClaimConsumerReference, ...] = ()
    devices: tuple[AllocatedDeviceStatus, ...] = ()


class ResourceClaim(APIStruct, frozen=True, kw_only=True):
    """A claim for devices."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ResourceClaimSpec = ResourceClaimSpec()
    status: ResourceClaimStatus = ResourceClaimStatus()


class ResourceClaimTemplateSpec(APIStruct, frozen=True, kw_only=True):
    """What claims made from a template look like."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ResourceClaimSpec = ResourceClaimSpec()


class ResourceClaimTemplate(APIStruct, frozen=True, kw_only=True):
    """A template for one claim per pod."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ResourceClaimTemplateSpec = ResourceClaimTemplateSpec()


# --- ResourceSlice ---


class ResourcePool(APIStruct, frozen=True, kw_only=True):
    """Which pool a slice belongs to."""

    name: str = ""
    generation: Int64 = 0
    resource_slice_count: Int64 = 0


class Counter(APIStruct, frozen=True, kw_only=True):
    """An amount of a counter."""

    value: Quantity = Quantity.ZERO


class CounterSet(APIStruct, frozen=True, kw_only=True):
    """Counters that the devices of a pool share."""

    name: str = ""
    counters: Mapping[str, Counter] = EMPTY


class DeviceCounterConsumption(APIStruct, frozen=True, kw_only=True):
    """What a device takes from one counter set."""

    counter_set: str = ""
    counters: Mapping[str, Counter] = EMPTY
    compatibility_groups: tuple[str, ...] = ()


class DeviceAttribute(APIStruct, frozen=True, kw_only=True):
    """One-of: a typed value or a list of one type."""

    # The wire names int and bool would shadow the types in this class body, hence the field names.
    int_: Int64 | None = msgspec.field(default=None, name="int")
    bool_: bool | None = msgspec.field(default=None, name="bool")
    string: str | None = None
    version: str | None = None
    ints: tuple[Int64, ...] | None = None
    bools: tuple[bool, ...] | None = None
    strings: tuple[str, ...] | None = None
    versions: tuple[str, ...] | None = None


class CapacityRequestPolicyRange(APIStruct, frozen=True, kw_only=True):
    """Amounts that may be requested, as a range."""

    min: Quantity | None = None
    max: Quantity | None = None
    step: Quantity | None = None


class CapacityRequestPolicy(APIStruct, frozen=True, kw_only=True):
    """Which amounts of a capacity may be requested."""

    default: Quantity | None = None
    valid_values: tuple[Quantity, ...] = ()
    valid_range: CapacityRequestPolicyRange | None = None


class DeviceCapacity(APIStruct, frozen=True, kw_only=True):
    """An amount that a device has, and how it may be shared."""

    value: Quantity = Quantity.ZERO
    request_policy: CapacityRequestPolicy | None = None


class DeviceTaint(APIStruct, frozen=True, kw_only=True):
    """Why a device should not, or no longer, be used."""

    key: str = ""
    value: str = ""
    effect: str = ""
    time_added: Time | None = None


class NodeAllocatableMapping(APIStruct, frozen=True, kw_only=True):
    """How much of a node resource an allocation of the device represents."""

    capacity_key: str | None = None
    capacity_multiplier: Quantity | None = None
    device_multiplier: Quantity | None = None


class NodeAllocatableOverhead(APIStruct, frozen=True, kw_only=True):
    """What using the device costs in node resources."""

    per_pod: Quantity | None = None
    per_container: Quantity | None = None


class NodeAllocatableResource(APIStruct, frozen=True, kw_only=True):
    """A node resource (cpu, memory, hugepages) that the device represents or costs."""

    mapping: NodeAllocatableMapping | None = None
    overhead: NodeAllocatableOverhead | None = None


class Device(APIStruct, frozen=True, kw_only=True):
    """One allocatable device in a ResourceSlice."""

    name: str = ""
    attributes: Mapping[str, DeviceAttribute] = EMPTY
    capacity: Mapping[str, DeviceCapacity] = EMPTY
    consumes_counters: tuple[DeviceCounterConsumption, ...] = ()
    node_name: str | None = None
    node_selector: NodeSelector | None = None
    all_nodes: bool | None = None
    taints: tuple[DeviceTaint, ...] = ()
    binds_to_node: bool | None = None
    binding_conditions: tuple[str, ...] = ()
    binding_failure_conditions: tuple[str, ...] = ()
    allow_multiple_allocations: bool | None = None
    node_allocatable_resources: Mapping[str, NodeAllocatableResource] = EMPTY


class ResourceSliceSpec(APIStruct, frozen=True, kw_only=True):
    """Devices, or shared counters, of one pool, and where they can be used."""

    driver: str = ""
    pool: ResourcePool = ResourcePool()
    node_name: str | None = None
    node_selector: NodeSelector | None = None
    all_nodes: bool | None = None
    devices: tuple[Device, ...] | None = None
    per_device_node_selection: bool | None = None
    shared_counters: tuple[CounterSet, ...] | None = None
    partition_type_attribute: str | None = None
    skip_node_operations: tuple[str, ...] = ()


class ResourceSlice(APIStruct, frozen=True, kw_only=True):
    """A part of a driver's pool of devices."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ResourceSliceSpec = ResourceSliceSpec()


# --- DeviceTaintRule ---


class DeviceTaintSelector(APIStruct, frozen=True, kw_only=True):
    """Which devices a rule taints; the members are ANDed, without members it matches every device."""

    driver: str | None = None
    pool: str | None = None
    device: str | None = None


class DeviceTaintRuleSpec(APIStruct, frozen=True, kw_only=True):
    """A taint and the devices it applies to."""

    device_selector: DeviceTaintSelector | None = None
    taint: DeviceTaint = DeviceTaint()


class DeviceTaintRuleStatus(APIStruct, frozen=True, kw_only=True):
    """The progress of the eviction."""

    conditions: tuple[Condition, ...] = ()


class DeviceTaintRule(APIStruct, frozen=True, kw_only=True):
    """An admin's taint for devices."""

    metadata: ObjectMeta = ObjectMeta()
    spec: DeviceTaintRuleSpec = DeviceTaintRuleSpec()
    status: DeviceTaintRuleStatus = DeviceTaintRuleStatus()


# --- ResourcePoolStatusRequest (v1alpha3) ---


class ResourcePoolStatusRequestSpec(APIStruct, frozen=True, kw_only=True):
    """Which pools the request covers."""

    driver: str = ""
    pool_name: str | None = None
    limit: Int32 | None = None
    default_partition_type_attribute: str | None = None


class PoolPartitionSummary(APIStruct, frozen=True, kw_only=True):
    """How many partitions of a type a pool has in total and available."""

    attribute: str = ""
    type: str = ""
    total: Int32 | None = None
    allocatable: Int32 | None = None


class PoolShareableCapacity(APIStruct, frozen=True, kw_only=True):
    """A capacity summed over a pool's shareable devices."""

    name: str = ""
    total: Quantity | None = None
    consumed: Quantity | None = None
    available: Quantity | None = None


class PoolShareableSummary(APIStruct, frozen=True, kw_only=True):
    """Shareable devices of a pool."""

    fully_available_devices: Int32 | None = None
    partially_available_devices: Int32 | None = None
    capacity: tuple[PoolShareableCapacity, ...] = ()


class PoolStatus(APIStruct, frozen=True, kw_only=True):
    """One pool in the answer."""

    driver: str = ""
    pool_name: str = ""
    generation: Int64 = 0
    resource_slice_count: Int32 | None = None
    total_devices: Int32 | None = None
    allocated_devices: Int32 | None = None
    available_devices: Int32 | None = None
    unavailable_devices: Int32 | None = None
    node_name: str | None = None
    validation_error: str | None = None
    partition_summary: tuple[PoolPartitionSummary, ...] = ()
    shareable_summary: PoolShareableSummary | None = None


class ResourcePoolStatusRequestStatus(APIStruct, frozen=True, kw_only=True):
    """The answer, written once."""

    pool_count: Int32 | None = None
    pools: tuple[PoolStatus, ...] = ()
    conditions: tuple[Condition, ...] = ()


class ResourcePoolStatusRequest(APIStruct, frozen=True, kw_only=True):
    """A question about pools, answered by a controller."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ResourcePoolStatusRequestSpec = ResourcePoolStatusRequestSpec()
    status: ResourcePoolStatusRequestStatus | None = None
