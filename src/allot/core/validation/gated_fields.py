"""Fields that belong to feature gates: dropped from writes while the gate is off, unless the old object uses them.

Knows which field belongs to which gate, per kind. "Uses" refers to the whole old object: one tainted device keeps the
taints of all devices.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from allot.core.features import FeatureGates
from allot.core.model import core_v1, resource_v1, scheduling_v1
from allot.core.model.meta import EMPTY, APIStruct
from allot.core.validation.struct_defaults import defaults_of

T = TypeVar("T")


class FieldsAt(msgspec.Struct, frozen=True):
    """Fields of the structs at a path of attributes; lists and maps on the path stand for their items."""

    path: tuple[str, ...]
    fields: tuple[str, ...]


class GatedFields(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of a kind that one gate owns."""

    gate: str
    places: tuple[FieldsAt, ...]
    # Further places whose use in the old object keeps the fields, besides the fields themselves.
    also_used: tuple[FieldsAt, ...] = ()


def _place(path: str, *fields: str) -> FieldsAt:
    return FieldsAt(tuple(path.split(".")) if path else (), fields)


def _claim_spec(spec: str) -> tuple[GatedFields, ...]:
    exactly, subrequests = f"{spec}.devices.requests.exactly", f"{spec}.devices.requests.first_available"
    return (
        GatedFields(
            gate="DRADeviceTaints", places=(_place(exactly, "tolerations"), _place(subrequests, "tolerations"))
        ),
        GatedFields(
            gate="DRAConsumableCapacity",
            places=(
                _place(exactly, "capacity"),
                _place(subrequests, "capacity"),
                _place(f"{spec}.devices.constraints", "distinct_attribute"),
            ),
        ),
        GatedFields(
            gate="DRADerivedAttributes",
            places=(_place(exactly, "derived_attributes"), _place(subrequests, "derived_attributes")),
        ),
    )


_CLAIM_SPEC = _claim_spec("spec")
_RESULTS = "status.allocation.devices.results"

# Gates that are locked on (DRAAdminAccess, DRAPrioritizedList, DRAExtendedResource, ...) are not listed.
_CLAIM_STATUS = (
    GatedFields(
        gate="DRAConsumableCapacity",
        places=(_place(_RESULTS, "share_id", "consumed_capacity"), _place("status.devices", "share_id")),
        also_used=_CLAIM_SPEC[1].places,
    ),
    GatedFields(
        gate="DRADeviceBindingConditions",
        places=(_place(_RESULTS, "binding_conditions", "binding_failure_conditions"),),
    ),
    GatedFields(gate="DRAOptionalNodeOperations", places=(_place(_RESULTS, "skip_node_operations"),)),
)

_DEVICES = "spec.devices"
_SLICE = (
    GatedFields(gate="DRADeviceTaints", places=(_place(_DEVICES, "taints"),)),
    GatedFields(
        gate="DRAPartitionableDevices",
        places=(
            _place("spec", "shared_counters", "per_device_node_selection"),
            _place(_DEVICES, "consumes_counters", "node_name", "node_selector", "all_nodes"),
        ),
    ),
    GatedFields(
        gate="DRADeviceBindingConditions",
        places=(_place(_DEVICES, "binding_conditions", "binding_failure_conditions", "binds_to_node"),),
    ),
    GatedFields(
        gate="DRAConsumableCapacity",
        places=(_place(_DEVICES, "allow_multiple_allocations"), _place("spec.devices.capacity", "request_policy")),
    ),
    GatedFields(
        gate="DRADeviceCompatibilityGroups", places=(_place("spec.devices.consumes_counters", "compatibility_groups"),)
    ),
    GatedFields(gate="DRANodeAllocatableResources", places=(_place(_DEVICES, "node_allocatable_resources"),)),
    GatedFields(
        gate="DRAListTypeAttributes",
        places=(_place("spec.devices.attributes", "ints", "bools", "strings", "versions"),),
    ),
    GatedFields(gate="DRAPartitionableDevicesType", places=(_place("spec", "partition_type_attribute"),)),
    GatedFields(gate="DRAOptionalNodeOperations", places=(_place("spec", "skip_node_operations"),)),
)

_POD_GROUP = (
    GatedFields(gate="TopologyAwareWorkloadScheduling", places=(_place("spec", "scheduling_constraints"),)),
    GatedFields(gate="DRAWorkloadResourceClaims", places=(_place("spec", "resource_claims"),)),
    GatedFields(gate="PodGroupPreemptionPolicy", places=(_place("spec", "preemption_policy"),)),
    GatedFields(gate="CompositePodGroup", places=(_place("spec", "parent_composite_pod_group_name"),)),
)

_CONTAINER_STATUSES = ("container_statuses", "init_container_statuses", "ephemeral_container_statuses")
_HEALTH = tuple(_place(f"status.{statuses}", "allocated_resources_status") for statuses in _CONTAINER_STATUSES)
_HEALTH_MESSAGE = tuple(
    _place(f"status.{statuses}.allocated_resources_status.resources", "message") for statuses in _CONTAINER_STATUSES
)

_SPEC_FIELDS: Mapping[type, tuple[GatedFields, ...]] = {
    resource_v1.ResourceClaim: _CLAIM_SPEC,
    resource_v1.ResourceClaimTemplate: _claim_spec("spec.spec"),
    resource_v1.ResourceSlice: _SLICE,
    resource_v1.ResourcePoolStatusRequest: (
        GatedFields(gate="DRAPartitionableDevicesType", places=(_place("spec", "default_partition_type_attribute"),)),
    ),
    scheduling_v1.PodGroup: _POD_GROUP,
    scheduling_v1.CompositePodGroup: (_POD_GROUP[2],),
    core_v1.Pod: (GatedFields(gate="GenericWorkload", places=(_place("spec", "scheduling_group"),)),),
}

_STATUS_FIELDS: Mapping[type, tuple[GatedFields, ...]] = {
    resource_v1.ResourceClaim: _CLAIM_STATUS,
    scheduling_v1.PodGroup: (
        GatedFields(
            gate="DRAWorkloadResourceClaims",
            places=(_place("status", "resource_claim_statuses"),),
            also_used=(_place("spec", "resource_claims"),),
        ),
    ),
    core_v1.Pod: (
        GatedFields(
            gate="DRANodeAllocatableResources", places=(_place("status", "node_allocatable_resource_claim_statuses"),)
        ),
        GatedFields(gate="ResourceHealthStatus", places=_HEALTH),
        GatedFields(gate="ResourceHealthStatusMessage", places=_HEALTH_MESSAGE),
    ),
}

KindStruct = TypeVar("KindStruct", bound=APIStruct)


def owned_by(type_: type) -> tuple[GatedFields, ...]:
    """The gated fields of a kind, except in the templates of workloads."""
    return (*_SPEC_FIELDS.get(type_, ()), *_STATUS_FIELDS.get(type_, ()))


def drop_spec_fields(new: KindStruct, old: KindStruct | None, gates: FeatureGates) -> KindStruct:
    """The object without the spec fields of gates that are off."""
    if isinstance(new, scheduling_v1.Workload):
        # Templates nest, so no single path reaches them all.
        old_spec = old.spec if isinstance(old, scheduling_v1.Workload) else scheduling_v1.WorkloadSpec()
        return msgspec.structs.replace(new, spec=_drop_templates(new.spec, old_spec, gates))
    return _drop(new, old, _SPEC_FIELDS.get(type(new), ()), gates)


def drop_status_fields(new: KindStruct, old: KindStruct | None, gates: FeatureGates) -> KindStruct:
    """The object without the status fields of gates that are off."""
    return _drop(new, old, _STATUS_FIELDS.get(type(new), ()), gates)


def _drop(new: T, old: T | None, owned: tuple[GatedFields, ...], gates: FeatureGates) -> T:
    for fields in owned:
        if fields.gate in gates or not any(_uses(new, place.path, place.fields) for place in fields.places):
            continue
        if old is not None and any(_uses(old, place.path, place.fields) for place in fields.places + fields.also_used):
            continue
        for place in fields.places:
            new = _cleared(new, place.path, place.fields)
    return new


def _is_set(struct: Any, field: str) -> bool:
    value = getattr(struct, field)
    return value is not None and value != () and value != {}


def _uses(value: Any, path: tuple[str, ...], fields: tuple[str, ...]) -> bool:
    # Runs on every write: loops instead of generators, exact types instead of instance checks.
    for position in range(len(path) + 1):
        if value is None or value is EMPTY:
            return False
        kind = type(value)
        if kind is tuple or kind is dict:
            rest = path[position:]
            for item in value if kind is tuple else value.values():  # noqa: SIM110
                if _uses(item, rest, fields):
                    return True
            return False
        if position < len(path):
            value = getattr(value, path[position])
    for field in fields:  # noqa: SIM110
        if _is_set(value, field):
            return True
    return False


def _cleared(value: Any, path: tuple[str, ...], fields: tuple[str, ...]) -> Any:
    """The value with those fields unset; the same instance if none was set."""
    if not _uses(value, path, fields):
        return value
    if isinstance(value, tuple):
        return tuple(_cleared(item, path, fields) for item in value)
    if isinstance(value, Mapping):
        return {name: _cleared(item, path, fields) for name, item in value.items()}
    if path:
        return msgspec.structs.replace(value, **{path[0]: _cleared(getattr(value, path[0]), path[1:], fields)})
    type_: type = type(value)
    defaults = defaults_of(type_)
    return msgspec.structs.replace(value, **{field: defaults[field] for field in fields})


# --- workloads ---

_TEMPLATE = tuple(
    GatedFields(gate=fields.gate, places=(_place("", *fields.places[0].fields),)) for fields in _POD_GROUP[:3]
)
_COMPOSITE_TEMPLATE = (_TEMPLATE[2],)
# The same with their JSON names.
TEMPLATE_FIELDS = (
    ("TopologyAwareWorkloadScheduling", "schedulingConstraints"),
    ("DRAWorkloadResourceClaims", "resourceClaims"),
    ("PodGroupPreemptionPolicy", "preemptionPolicy"),
)
COMPOSITE_TEMPLATE_FIELD = TEMPLATE_FIELDS[2]

_Templates = scheduling_v1.WorkloadSpec | scheduling_v1.CompositePodGroupTemplate
TemplatesT = TypeVar("TemplatesT", scheduling_v1.WorkloadSpec, scheduling_v1.CompositePodGroupTemplate)


def _drop_templates(new: TemplatesT, old: _Templates, gates: FeatureGates) -> TemplatesT:
    """Both template lists of a workload or composite template, and nested ones."""
    before = dict(enumerate(old.pod_group_templates))
    templates = tuple(
        _drop(template, before.get(position), _TEMPLATE, gates)
        for position, template in enumerate(new.pod_group_templates)
    )
    composites: tuple[scheduling_v1.CompositePodGroupTemplate, ...] = ()
    if "CompositePodGroup" in gates or old.composite_pod_group_templates:
        named = {template.name: template for template in old.composite_pod_group_templates}
        composites = tuple(
            _drop_composite(template, named.get(template.name), gates) for template in new.composite_pod_group_templates
        )
    return msgspec.structs.replace(new, pod_group_templates=templates, composite_pod_group_templates=composites)


def _drop_composite(
    new: scheduling_v1.CompositePodGroupTemplate,
    old: scheduling_v1.CompositePodGroupTemplate | None,
    gates: FeatureGates,
) -> scheduling_v1.CompositePodGroupTemplate:
    new = _drop(new, old, _COMPOSITE_TEMPLATE, gates)
    return _drop_templates(new, old or scheduling_v1.CompositePodGroupTemplate(), gates)
