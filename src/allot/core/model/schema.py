"""What the codec knows about a type: its fields, their wire names and shapes, and which are written even when empty.

Derived once per type from the annotations in `core_v1`, `resource_v1` and `scheduling_v1`. The only thing that annotations
cannot express is in `_WRITTEN_WHEN_EMPTY`: Kubernetes omits most empty fields, but not these.
"""

from __future__ import annotations

import types
from collections.abc import Mapping
from enum import Enum
from functools import cache
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import msgspec

from allot.core.model import apps_v1, core_v1, meta, policy_v1, resource_v1, scheduling_v1
from allot.core.model.meta import APIStruct, RawJSON
from allot.core.quantity import Quantity


class Shape(Enum):
    """Forms of a value on the wire."""

    TEXT = "string"
    TIME = "time in RFC 3339 format"
    INT32 = "int32"
    INT64 = "int64"
    INT_OR_STRING = "number or string"
    BOOLEAN = "boolean"
    QUANTITY = "quantity"
    RAW = "JSON value"
    LIST = "array"
    MAP = "object with values of one kind"
    STRUCT = "object"


class Value(msgspec.Struct, frozen=True, kw_only=True):
    """A shape with its parts: the items of a list or map, the type of a struct."""

    shape: Shape
    item: Value | None = None
    struct: type[APIStruct] | None = None


class Field(msgspec.Struct, frozen=True, kw_only=True):
    """A field of a struct."""

    name: str
    wire_name: str
    value: Value
    optional: bool
    written_when_empty: bool


class Schema(msgspec.Struct, frozen=True, kw_only=True):
    """A type: its fields by wire name; `partial` when other fields exist that are not named here."""

    type: type[APIStruct]
    fields: tuple[Field, ...]
    partial: bool

    @property
    def key_field(self) -> str | None:
        """Wire name of the field that identifies items in a list of this type, if any."""
        names = {field.wire_name for field in self.fields}
        return next((name for name in ("name", "type") if name in names), None)


_WRITTEN_WHEN_EMPTY: dict[type[APIStruct], tuple[str, ...]] = {
    meta.OwnerReference: ("api_version", "kind", "name", "uid"),
    meta.Condition: ("type", "status", "last_transition_time", "reason", "message"),
    meta.LabelSelectorRequirement: ("key", "operator"),
    core_v1.NodeSelectorRequirement: ("key", "operator"),
    core_v1.NodeSelector: ("node_selector_terms",),
    core_v1.PreferredSchedulingTerm: ("weight",),
    core_v1.PodAffinityTerm: ("topology_key",),
    core_v1.WeightedPodAffinityTerm: ("weight",),
    core_v1.TopologySpreadConstraint: ("max_skew", "topology_key", "when_unsatisfiable"),
    core_v1.ContainerPort: ("container_port",),
    core_v1.PersistentVolumeClaimVolumeSource: ("claim_name",),
    core_v1.Taint: ("key", "effect"),
    core_v1.ContainerResourceClaim: ("name",),
    core_v1.Container: ("name",),
    core_v1.PodResourceClaim: ("name",),
    core_v1.PodSchedulingGate: ("name",),
    core_v1.PodSpec: ("containers",),
    core_v1.PodCondition: ("type", "status", "last_probe_time", "last_transition_time"),
    core_v1.ResourceHealth: ("resource_id",),
    core_v1.ResourceStatus: ("name",),
    core_v1.ContainerStateTerminated: ("exit_code",),
    core_v1.PodIP: ("ip",),
    core_v1.ContainerStatus: ("name", "ready", "restart_count"),
    core_v1.PodResourceClaimStatus: ("name",),
    core_v1.ContainerExtendedResourceRequest: ("container_name", "resource_name", "request_name"),
    core_v1.PodExtendedResourceClaimStatus: ("request_mappings", "resource_claim_name"),
    core_v1.NodeAllocatableResourceAmount: ("name",),
    core_v1.NodeAllocatableResourceOverhead: ("name",),
    core_v1.NodeAllocatableResourceClaimStatus: ("resource_claim_name",),
    core_v1.NodeCondition: ("type", "status", "last_heartbeat_time", "last_transition_time"),
    resource_v1.CELDeviceSelector: ("expression",),
    resource_v1.OpaqueDeviceConfiguration: ("driver", "parameters"),
    resource_v1.DeviceAllocationConfiguration: ("source",),
    resource_v1.DerivedAttribute: ("name", "expression"),
    resource_v1.ExactDeviceRequest: ("device_class_name",),
    resource_v1.DeviceSubRequest: ("name", "device_class_name"),
    resource_v1.DeviceRequest: ("name",),
    resource_v1.DeviceClaim: ("requests",),
    resource_v1.DeviceRequestAllocationResult: ("request", "driver", "pool", "device"),
    resource_v1.ResourceClaimConsumerReference: ("resource", "name", "uid"),
    resource_v1.AllocatedDeviceStatus: ("driver", "pool", "device", "conditions"),
    resource_v1.ResourcePool: ("name", "generation", "resource_slice_count"),
    resource_v1.CounterSet: ("name",),
    resource_v1.DeviceCounterConsumption: ("counter_set",),
    resource_v1.CapacityRequestPolicy: ("default",),
    resource_v1.DeviceTaint: ("key", "effect"),
    resource_v1.Device: ("name",),
    resource_v1.ResourceSliceSpec: ("driver",),
    resource_v1.ResourcePoolStatusRequestSpec: ("driver",),
    resource_v1.PoolStatus: ("generation",),
    scheduling_v1.PriorityClass: ("value",),
    scheduling_v1.GangSchedulingPolicy: ("min_count",),
    scheduling_v1.CompositeGangSchedulingPolicy: ("min_group_count",),
    scheduling_v1.TopologyConstraint: ("key",),
    scheduling_v1.PodGroupResourceClaim: ("name",),
    scheduling_v1.PodGroupResourceClaimStatus: ("name",),
    scheduling_v1.WorkloadReference: ("workload_name", "template_name"),
    scheduling_v1.CompositePodGroupSpec: ("workload_ref",),
    scheduling_v1.TypedLocalObjectReference: ("kind", "name"),
    scheduling_v1.PodGroupTemplate: ("name", "scheduling_constraints"),
    scheduling_v1.CompositePodGroupTemplate: ("name",),
    scheduling_v1.WorkloadSpec: ("pod_group_templates",),
    apps_v1.WorkloadCondition: ("type", "status"),
    apps_v1.DeploymentCondition: ("type", "status"),
    apps_v1.ReplicaSetStatus: ("replicas",),
    apps_v1.StatefulSetStatus: ("replicas", "available_replicas"),
    apps_v1.DaemonSetStatus: (
        "current_number_scheduled",
        "number_misscheduled",
        "desired_number_scheduled",
        "number_ready",
    ),
    policy_v1.PodDisruptionBudgetStatus: (
        "disruptions_allowed",
        "current_healthy",
        "desired_healthy",
        "expected_pods",
    ),
}


@cache
def schema_of(type_: type[APIStruct]) -> Schema:
    """The schema of a type."""
    hints = get_type_hints(type_, include_extras=True)
    written = _WRITTEN_WHEN_EMPTY.get(type_, ())
    fields = tuple(
        _field(info.name, info.encode_name, hints[info.name], info.name in written)
        for info in msgspec.structs.fields(type_)
    )
    return Schema(type=type_, fields=fields, partial=not type_.__struct_config__.forbid_unknown_fields)


@cache
def has_partial_parts(type_: type[APIStruct]) -> bool:
    """Whether objects of this type can have fields, here or further down, that are not named in the types."""
    return _reaches_partial(type_, frozenset())


def _reaches_partial(type_: type[APIStruct], above: frozenset[type[APIStruct]]) -> bool:
    if type_ in above:
        return False
    schema = schema_of(type_)
    structs = (innermost_struct(field.value) for field in schema.fields)
    return schema.partial or any(struct and _reaches_partial(struct, above | {type_}) for struct in structs)


def innermost_struct(value: Value) -> type[APIStruct] | None:
    """The struct that a value is, or that its items are."""
    while value.item is not None:
        value = value.item
    return value.struct


def _field(name: str, wire_name: str, annotation: Any, written: bool) -> Field:
    members, chosen = _members(annotation)
    assert len(chosen) == 1 or chosen == _INT_OR_STRING, f"field {name} has several types: {annotation}"
    return Field(
        name=name,
        wire_name=wire_name,
        value=Value(shape=Shape.INT_OR_STRING) if chosen == _INT_OR_STRING else _value(chosen[0]),
        optional=len(members) > 1,
        written_when_empty=written,
    )


def _members(annotation: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """The types that a value may have, and those of them that are not None."""
    members = get_args(annotation) if get_origin(annotation) in (Union, types.UnionType) else (annotation,)
    return members, tuple(member for member in members if member is not type(None))


def _value(annotation: Any) -> Value:
    if get_origin(annotation) is Annotated:
        return Value(shape=_annotated_shape(annotation))
    if get_origin(annotation) is tuple:
        return Value(shape=Shape.LIST, item=_value(get_args(annotation)[0]))
    if get_origin(annotation) is Mapping:
        return Value(shape=Shape.MAP, item=_value(_members(get_args(annotation)[1])[1][0]))
    if isinstance(annotation, type) and issubclass(annotation, APIStruct):
        return Value(shape=Shape.STRUCT, struct=annotation)
    return Value(shape=_PLAIN_SHAPES[annotation])


_INT_OR_STRING = get_args(meta.IntOrString)
_PLAIN_SHAPES = {str: Shape.TEXT, bool: Shape.BOOLEAN, Quantity: Shape.QUANTITY, RawJSON: Shape.RAW}


def _annotated_shape(annotation: Any) -> Shape:
    if annotation == meta.Time:
        return Shape.TIME
    assert annotation in (meta.Int32, meta.Int64), f"unexpected annotation {annotation}"
    return Shape.INT32 if annotation == meta.Int32 else Shape.INT64
