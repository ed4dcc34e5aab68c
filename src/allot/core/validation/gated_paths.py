"""Gated fields as paths in JSON: what is dropped from kinds that stay JSON, and the warning to the client.

Typed kinds drop their fields through `gated_fields`, which also provides the paths. A gate that `core.features` lacks is one
of Kubernetes 1.37 that is off by default and that allot does not use: its fields are dropped as upstream.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any, get_args, get_origin

import msgspec

from allot.core.features import GATES, FeatureGates
from allot.core.model.kinds import UnknownKind, kind_of
from allot.core.validation import gated_fields

Object = dict[str, Any]

# Stands for the items of a map. Lists on the path stand for their items without a marker.
EACH = "*"
# How deep the templates of a workload nest in the reported paths.
_LEVELS = 4


class GatedPath(msgspec.Struct, frozen=True):
    """A gated field: its path and its gate."""

    gate: str
    path: tuple[str, ...]

    @property
    def is_status(self) -> bool:
        """Whether it belongs to the status."""
        return self.path[0] == "status"


def gated_paths(group: str, version: str, kind: str) -> tuple[GatedPath, ...]:
    """All gated fields of a kind, in its storage version."""
    found = _JSON_KINDS.get((group, kind))
    if found is not None:
        return found
    try:
        type_ = kind_of(f"{group}/{version}" if group else version, kind).type
    except UnknownKind:
        return ()
    owned = gated_fields.owned_by(type_)
    return (*_of_workload(), *_of_type(type_, owned)) if kind == "Workload" else tuple(_of_type(type_, owned))


def turned_off(paths: Iterable[GatedPath], gates: FeatureGates) -> tuple[GatedPath, ...]:
    """The fields whose gate is off."""
    return tuple(each for each in paths if each.gate not in GATES or each.gate not in gates)


def without_gated(value: Object, old: Object | None, off: Iterable[GatedPath]) -> Object:
    """An object without the fields of gates that are off, unless the stored one uses them. The same instance if it has none."""
    for each in off:
        if first_use(value, each.path) and (old is None or not first_use(old, each.path)):
            value = _without(value, each.path)
    return value


def dropped(given: Object, kept: Object, off: Iterable[GatedPath]) -> tuple[str, ...]:
    """Warnings about dropped fields of an object."""
    told = []
    for each in off:
        place = first_use(given, each.path)
        if place and not first_use(kept, each.path):
            why = "is disabled" if each.gate in GATES else "allot does not have"
            told.append(f"{place}: dropped: it needs feature gate {each.gate}, which {why}")
    return tuple(told)


def first_use(value: Any, path: tuple[str, ...]) -> str:
    """The path of a field's first use, for display; empty if it is unset."""
    # Runs on writes: builds nothing unless the field is set.
    for position, name in enumerate(path):
        kind = type(value)
        if kind is list:
            return _first_item(enumerate(value), path[:position], path[position:])
        if kind is not dict:
            return ""
        if name == EACH:
            return _first_item(value.items(), path[:position], path[position + 1 :])
        value = value.get(name)
        if value is None:
            return ""
    return "" if value == [] or value == {} or value == "" else ".".join(path)


def _first_item(items: Iterable[tuple[Any, Any]], before: tuple[str, ...], rest: tuple[str, ...]) -> str:
    for key, item in items:
        if found := first_use(item, rest):
            return f"{'.'.join(before)}[{key}].{found}"
    return ""


def _without(value: Any, path: tuple[str, ...]) -> Any:
    """A value without the field at a path, wherever it occurs."""
    if isinstance(value, list):
        return [_without(item, path) for item in value]
    if not isinstance(value, dict):
        return value
    if path[0] == EACH:
        return {name: _without(item, path[1:]) for name, item in value.items()}
    if path[0] not in value:
        return value
    if len(path) == 1:
        return {name: member for name, member in value.items() if name != path[0]}
    return {**value, path[0]: _without(value[path[0]], path[1:])}


# --- typed kinds ---


def _of_type(type_: type, owned: Iterable[gated_fields.GatedFields]) -> Iterator[GatedPath]:
    for fields in owned:
        for place in fields.places:
            for field in place.fields:
                yield GatedPath(fields.gate, tuple(_json_path(type_, (*place.path, field))))


def _json_path(type_: Any, names: tuple[str, ...]) -> Iterator[str]:
    for position, name in enumerate(names):
        field = _fields(type_)[name]
        yield field.encode_name
        if position == len(names) - 1:
            return
        type_, is_map = _struct_in(field.type)
        if is_map:
            yield EACH


@cache
def _fields(type_: Any) -> Mapping[str, msgspec.structs.FieldInfo]:
    """Fields by name. Reading annotations is slow, and every path begins at the same few types."""
    return {each.name: each for each in msgspec.structs.fields(type_)}


def _struct_in(type_: Any) -> tuple[Any, bool]:
    """The struct type that a field holds, singly or repeated, and whether in a map."""
    if isinstance(type_, type) and issubclass(type_, msgspec.Struct):
        return type_, False
    is_map = (
        get_origin(type_) is not None and isinstance(get_origin(type_), type) and issubclass(get_origin(type_), Mapping)
    )
    for argument in get_args(type_):
        found, below = _struct_in(argument)
        if found is not None:
            return found, is_map or below
    return None, False


def _of_workload() -> Iterator[GatedPath]:
    yield GatedPath("CompositePodGroup", ("spec", "compositePodGroupTemplates"))
    template = gated_fields.TEMPLATE_FIELDS
    for level in range(_LEVELS):
        place = ("spec", *(("compositePodGroupTemplates",) * level))
        for gate, field in template:
            yield GatedPath(gate, (*place, "podGroupTemplates", field))
        gate, field = gated_fields.COMPOSITE_TEMPLATE_FIELD
        yield GatedPath(gate, (*place, "compositePodGroupTemplates", field))


# --- kinds that stay JSON ---

_USER = "AtomicWriteVolumeUserFields"
_CROSS = "CrossNamespaceVolumeDataSource"
_PREEMPTION = "InPlacePodVerticalScalingSchedulerPreemption"
_LEADERS = "CoordinatedLeaderElection"
_FILES = ("configMap", "secret", "downwardAPI")


def _paths(gate: str, *paths: str) -> tuple[GatedPath, ...]:
    return tuple(GatedPath(gate, tuple(path.split("."))) for path in paths)


_POD_SPEC = (
    *_paths("GenericWorkload", "schedulingGroup"),
    *_paths("EvictionRequestAPI", "evictionResponders"),
    *_paths(_USER, *(f"volumes.{source}.defaultUser" for source in (*_FILES, "projected"))),
    *_paths(_USER, *(f"volumes.{source}.items.user" for source in _FILES)),
    *_paths(_USER, *(f"volumes.projected.sources.{source}.items.user" for source in _FILES)),
    *_paths(
        _USER,
        *(
            f"volumes.projected.sources.{source}.user"
            for source in ("serviceAccountToken", "clusterTrustBundle", "podCertificate")
        ),
    ),
    *_paths("EmptyDirVolumeMode", "volumes.emptyDir.mode"),
    *_paths(_CROSS, "volumes.ephemeral.volumeClaimTemplate.spec.dataSourceRef.namespace"),
    *_paths(
        "VolumeBindMountOptions",
        *(
            f"{containers}.volumeMounts.bindMountOptions"
            for containers in ("containers", "initContainers", "ephemeralContainers")
        ),
    ),
)
_CONTAINER_STATUSES = ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses")
_POD_STATUS = (
    *_paths("DRANodeAllocatableResources", "status.nodeAllocatableResourceClaimStatuses"),
    *_paths("ResourceHealthStatus", *(f"status.{each}.allocatedResourcesStatus" for each in _CONTAINER_STATUSES)),
    *_paths(
        "ResourceHealthStatusMessage",
        *(f"status.{each}.allocatedResourcesStatus.resources.message" for each in _CONTAINER_STATUSES),
    ),
)


def _below(*place: str) -> tuple[GatedPath, ...]:
    return tuple(GatedPath(each.gate, (*place, *each.path)) for each in _POD_SPEC)


_JOB = ("spec", "jobTemplate", "spec")
_JSON_KINDS: Mapping[tuple[str, str], tuple[GatedPath, ...]] = {
    ("", "Pod"): (*_below("spec"), *_POD_STATUS),
    ("", "PodTemplate"): _below("template", "spec"),
    ("", "ReplicationController"): _below("spec", "template", "spec"),
    ("apps", "Deployment"): _below("spec", "template", "spec"),
    ("apps", "ReplicaSet"): _below("spec", "template", "spec"),
    ("apps", "DaemonSet"): _below("spec", "template", "spec"),
    ("apps", "StatefulSet"): (
        *_below("spec", "template", "spec"),
        *_paths(_CROSS, "spec.volumeClaimTemplates.spec.dataSourceRef.namespace"),
    ),
    ("batch", "Job"): (*_paths("WorkloadWithJob", "spec.scheduling"), *_below("spec", "template", "spec")),
    ("batch", "CronJob"): (
        *_paths("WorkloadWithJob", "spec.jobTemplate.spec.scheduling"),
        *_below(*_JOB, "template", "spec"),
    ),
    ("", "PersistentVolumeClaim"): _paths(_CROSS, "spec.dataSourceRef.namespace"),
    ("", "Node"): _paths(_PREEMPTION, "spec.podPreemptionPolicy"),
    ("coordination.k8s.io", "Lease"): _paths(_LEADERS, "spec.strategy", "spec.preferredHolder"),
}
