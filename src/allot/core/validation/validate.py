"""Entry points of validation: from a JSON value to an object that may be stored, or to all its errors.

An API server calls `prepare_*` and then `validate_*` for a write; `check_object` is the short form for tools. Preparing
decodes, defaults and drops fields, and raises only for values that cannot be decoded (DecodeError, UnknownKind) or whose priority
class is refused (PriorityRefused); validating returns field errors and never raises for what an object
contains.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from allot.core.features import FeatureGates
from allot.core.model import core_v1, resource_v1, scheduling_v1
from allot.core.model.codec import DecodeError, Envelope, Problem, decode_object, encode_envelope
from allot.core.model.convert import ConversionError
from allot.core.model.decoding import check_bounds
from allot.core.model.kinds import UnknownKind
from allot.core.model.meta import ObjectMeta
from allot.core.validation import (
    claim,
    claim_status,
    device_class,
    formats,
    pod,
    pod_group,
    pod_status,
    pool_status,
    rules_resource,
    rules_scheduling,
    strategy,
    taint_rule,
)
from allot.core.validation import slice as slice_
from allot.core.validation.declarative import Schema
from allot.core.validation.declarative import check as check_declarative
from allot.core.validation.defaults import with_defaults
from allot.core.validation.fields import FieldError, Findings, invalid
from allot.core.validation.object_meta import check_object_meta, check_object_meta_update
from allot.core.validation.outcome import merge
from allot.core.validation.priority import PriorityRefused, with_priority

__all__ = [
    "DecodeError",
    "FieldError",
    "Prepared",
    "PriorityRefused",
    "UnknownKind",
    "check_object",
    "invalid_message",
    "prepare_create",
    "prepare_status_update",
    "prepare_update",
    "validate_create",
    "validate_status_update",
    "validate_update",
]

DEFAULT_NAMESPACE = "default"

_REMOVED_SELECTORS = ("deviceClassName", "selectors")

# apiVersion and kind to the releases in which they are deprecated and removed.
_DEPRECATED: Mapping[tuple[str, str], tuple[str, str]] = {
    ("resource.k8s.io/v1beta1", "DeviceClass"): ("v1.35", "v1.38"),
    ("resource.k8s.io/v1beta1", "ResourceClaim"): ("v1.35", "v1.38"),
    ("resource.k8s.io/v1beta1", "ResourceClaimTemplate"): ("v1.35", "v1.38"),
    ("resource.k8s.io/v1beta1", "ResourceSlice"): ("v1.35", "v1.38"),
    ("resource.k8s.io/v1beta2", "DeviceClass"): ("v1.36", "v1.39"),
    ("resource.k8s.io/v1beta2", "ResourceClaim"): ("v1.36", "v1.39"),
    ("resource.k8s.io/v1beta2", "ResourceClaimTemplate"): ("v1.36", "v1.39"),
    ("resource.k8s.io/v1beta2", "ResourceSlice"): ("v1.36", "v1.39"),
    ("resource.k8s.io/v1alpha3", "DeviceTaintRule"): ("v1.36", "v1.39"),
}


class Prepared(msgspec.Struct, frozen=True, kw_only=True):
    """An object that was decoded, defaulted and stripped of gated fields."""

    envelope: Envelope
    warnings: tuple[str, ...] = ()

    @property
    def object(self) -> Any:
        """The object in the type of its kind."""
        return self.envelope.object

    @property
    def stored(self) -> dict[str, Any]:
        """The JSON that is stored and emitted, in the hub version."""
        return encode_envelope(self.envelope)


# --- preparing ---


def prepare_create(
    value: object, *, gates: FeatureGates, now: str | None, namespace: str | None = None,
    priority_classes: Mapping[str, scheduling_v1.PriorityClass] | None = None,
) -> Prepared:  # fmt: skip
    """A new object. `namespace` is that of the request, for objects without one; without `priority_classes`, the
    priority of pod groups is unchanged."""
    envelope = _read(value, gates, now)
    new = _in_namespace(envelope, namespace)
    if priority_classes is not None and isinstance(new, scheduling_v1.PodGroup | scheduling_v1.CompositePodGroup):
        new = with_priority(new, priority_classes)
    return _prepared(envelope, strategy.prepare_create(new, gates), _source_with_status(envelope.source, None))


def prepare_update(value: object, old: Envelope, *, gates: FeatureGates, now: str | None) -> Prepared:
    """A changed object; `old` is the stored one."""
    envelope = _read_like(value, old, gates, now)
    new = strategy.prepare_update(envelope.object, old.object, gates, now)
    new = _with_resource_version(new, old, envelope.api_version)
    return _prepared(envelope, new, _source_with_status(envelope.source, old.source))


def prepare_status_update(value: object, old: Envelope, *, gates: FeatureGates, now: str | None) -> Prepared:
    """A write to the status subresource; `old` is the stored object."""
    envelope = _read_like(value, old, gates, now)
    new = strategy.prepare_status_update(envelope.object, old.object, gates)
    new = _with_resource_version(new, old, envelope.api_version)
    return _prepared(envelope, new, _source_with_status(old.source, envelope.source))


def _read(value: object, gates: FeatureGates, now: str | None) -> Envelope:
    check_bounds(value)
    if not isinstance(value, dict):
        return decode_object(value)
    served, dropped = _without_removed_fields(with_defaults(value, gates=gates, now=now))
    try:
        envelope = decode_object(served)
    except ConversionError as error:
        raise DecodeError((Problem("", str(error)),)) from error
    return msgspec.structs.replace(envelope, unknown_fields=dropped + envelope.unknown_fields)


def _without_removed_fields(value: dict[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """A taint rule of Kubernetes 1.33 without the fields removed in 1.35, as a 1.37 server reads it: selecting by class then
    selects every device. Conversion refuses such rules; a server only warns."""
    spec = value.get("spec")
    selector = spec.get("deviceSelector") if isinstance(spec, dict) else None
    if value.get("kind") != "DeviceTaintRule" or not isinstance(spec, dict) or not isinstance(selector, dict):
        return value, ()
    dropped = tuple(f"spec.deviceSelector.{name}" for name in _REMOVED_SELECTORS if name in selector)
    kept = {name: item for name, item in selector.items() if name not in _REMOVED_SELECTORS}
    return {**value, "spec": {**spec, "deviceSelector": kept}}, dropped


def _read_like(value: object, old: Envelope, gates: FeatureGates, now: str | None) -> Envelope:
    envelope = _read(value, gates, now)
    if envelope.kind is not old.kind:
        text = f"expected a {old.kind.name} like the stored object, got a {envelope.kind.name}"
        raise DecodeError((Problem("kind", text),))
    # The namespace may come from the request's path, which is that of the stored object.
    return msgspec.structs.replace(envelope, object=_in_namespace(envelope, _meta(old.object).namespace))


def _in_namespace(envelope: Envelope, namespace: str | None) -> Any:
    meta = _meta(envelope.object)
    if not namespace or meta.namespace or not envelope.kind.namespaced:
        return envelope.object
    return msgspec.structs.replace(envelope.object, metadata=msgspec.structs.replace(meta, namespace=namespace))


def _with_resource_version(new: Any, old: Envelope, api_version: str) -> Any:
    """A write without a version refers to the stored one, if the kind permits that."""
    meta = _meta(new)
    if meta.resource_version or not strategy.allows_unconditional_update(type(new), api_version):
        return new
    version = _meta(old.object).resource_version
    return msgspec.structs.replace(new, metadata=msgspec.structs.replace(meta, resource_version=version))


def _source_with_status(
    source: Mapping[str, Any] | None, status_source: Mapping[str, Any] | None
) -> Mapping[str, Any] | None:
    """Fields that the types do not name, with the status from another object, since spec and status have different owners."""
    if source is None:
        return None
    status = {"status": status_source["status"]} if status_source is not None and "status" in status_source else {}
    return {name: value for name, value in source.items() if name != "status"} | status


def _prepared(envelope: Envelope, new: Any, source: Mapping[str, Any] | None) -> Prepared:
    prepared = msgspec.structs.replace(envelope, object=new, source=source)
    return Prepared(envelope=prepared, warnings=_warnings(envelope, new))


def _warnings(envelope: Envelope, new: Any) -> tuple[str, ...]:
    warnings = envelope.warnings
    lifecycle = _DEPRECATED.get((envelope.api_version, envelope.kind.name))
    if lifecycle is not None:
        since, gone = lifecycle
        name = f"{envelope.api_version} {envelope.kind.name}"
        warnings += (f"{name} is deprecated in {since}+, unavailable in {gone}+",)
    if isinstance(new, resource_v1.ResourceSlice) and new.spec.driver != new.spec.driver.lower():
        shown = f'driver names should be lowercase; "{new.spec.driver}" contains uppercase characters'
        warnings += (f"spec.driver: {shown}",)
    return warnings


def _meta(object_: Any) -> ObjectMeta:
    meta = object_.metadata
    assert isinstance(meta, ObjectMeta)
    return meta


# --- validating ---


def _schema(envelope: Envelope) -> Schema:
    if envelope.kind.group != resource_v1.GROUP:
        return rules_scheduling.SCHEMA
    flat = envelope.api_version == f"{resource_v1.GROUP}/v1beta1"
    return rules_resource.SCHEMA_V1BETA1 if flat else rules_resource.SCHEMA


def validate_create(
    prepared: Prepared, *, gates: FeatureGates, namespace_labels: Mapping[str, str] | None = None
) -> tuple[FieldError, ...]:
    """Everything wrong with a new object. Without `namespace_labels` admin access is not checked."""
    found = _admin_access_on_create(prepared.object, namespace_labels) + _check_create(prepared, gates)
    declarative = check_declarative(_schema(prepared.envelope), gates, prepared.object)
    return merge(found, declarative, gates)


def validate_update(prepared: Prepared, old: Envelope, *, gates: FeatureGates) -> tuple[FieldError, ...]:
    """Everything wrong with a changed object."""
    missing = _resource_version_missing(prepared)
    if missing:
        return missing
    declarative = check_declarative(_schema(prepared.envelope), gates, prepared.object, old.object)
    found = _check_common_update(prepared, old) + _check_update(prepared, old, gates)
    return merge(found, declarative, gates)


def validate_status_update(
    prepared: Prepared, old: Envelope, *, gates: FeatureGates, namespace_labels: Mapping[str, str] | None = None
) -> tuple[FieldError, ...]:
    """Everything wrong with a write to the status subresource."""
    missing = _resource_version_missing(prepared)
    if missing:
        return missing
    found = _check_common_update(prepared, old)
    new, before = prepared.object, old.object
    if namespace_labels is not None and isinstance(new, resource_v1.ResourceClaim):
        assert isinstance(before, resource_v1.ResourceClaim)
        found += claim_status.check_status_admin_access(new.status, before.status, namespace_labels)
    found += _check_status_update(new, before)
    declarative = check_declarative(_schema(prepared.envelope), gates, new, before)
    return merge(found, declarative, gates)


def _check_common_update(prepared: Prepared, old: Envelope) -> Findings:
    """Metadata rules for updates of every kind."""
    meta = _meta(prepared.object)
    found = check_object_meta(
        meta, namespaced=old.kind.namespaced, name_format=formats.path_segment, free_finalizers=True
    )
    return found + check_object_meta_update(meta, _meta(old.object))


def _resource_version_missing(prepared: Prepared) -> tuple[FieldError, ...]:
    if _meta(prepared.object).resource_version:
        return ()
    if strategy.allows_unconditional_update(type(prepared.object), prepared.envelope.api_version):
        return ()
    return (invalid("metadata.resourceVersion", 0, "must be specified for an update").error,)


def _admin_access_on_create(new: Any, namespace_labels: Mapping[str, str] | None) -> Findings:
    match new:
        case resource_v1.ResourceClaim() if namespace_labels is not None:
            return claim.check_admin_access(new.spec.devices.requests, namespace_labels)
        case resource_v1.ResourceClaimTemplate() if namespace_labels is not None:
            return claim.check_admin_access(new.spec.spec.devices.requests, namespace_labels)
        case _:
            return []


def _check_create(prepared: Prepared, gates: FeatureGates) -> Findings:
    match prepared.object:
        case resource_v1.DeviceClass() as new:
            return device_class.check_create(new, gates)
        case resource_v1.ResourceClaim() as new:
            return claim.check_create(new, gates)
        case resource_v1.ResourceClaimTemplate() as new:
            return claim.check_template_create(new, gates)
        case resource_v1.ResourceSlice() as new:
            return slice_.check_create(new, gates)
        case resource_v1.DeviceTaintRule() as new:
            return taint_rule.check_create(new)
        case resource_v1.ResourcePoolStatusRequest() as new:
            return pool_status.check_create(new)
        case core_v1.Pod() as new:
            return pod.check_create(new)
        case scheduling_v1.PodGroup() as new:
            return pod_group.check_create(new)
        case scheduling_v1.CompositePodGroup() as new:
            return pod_group.check_composite_create(new)
        case scheduling_v1.Workload() as new:
            return pod_group.check_workload_create(new)
        case new:
            name_format = formats.dns_label if isinstance(new, core_v1.Namespace) else formats.dns_subdomain
            namespaced = prepared.envelope.kind.namespaced
            return check_object_meta(_meta(new), namespaced=namespaced, name_format=name_format)


def _pod_specs(prepared: Prepared, old: Envelope) -> tuple[dict[str, Any], dict[str, Any]]:
    """The specs of a changed pod and of the stored one as JSON."""
    source, before = prepared.envelope.source, old.source
    new, stored = prepared.object, old.object
    assert isinstance(new, core_v1.Pod) and isinstance(stored, core_v1.Pod)
    if source is not None and before is not None and new.spec == stored.spec:
        spec = source.get("spec")
        if isinstance(spec, dict) and spec == before.get("spec"):
            # Objects that are equal as read are equal as stored.
            return spec, spec
    return prepared.stored["spec"], encode_envelope(old)["spec"]


def _check_update(prepared: Prepared, old: Envelope, gates: FeatureGates) -> Findings:
    match prepared.object, old.object:
        case resource_v1.DeviceClass() as new, resource_v1.DeviceClass() as before:
            return device_class.check_update(new, before, gates)
        case resource_v1.ResourceClaim() as new, resource_v1.ResourceClaim() as before:
            return claim.check_update(new, before)
        case resource_v1.ResourceClaimTemplate() as new, resource_v1.ResourceClaimTemplate() as before:
            return claim.check_template_update(new, before, gates)
        case resource_v1.ResourceSlice() as new, resource_v1.ResourceSlice() as before:
            return slice_.check_update(new, before, gates)
        case resource_v1.DeviceTaintRule() as new, resource_v1.DeviceTaintRule() as before:
            return taint_rule.check_update(new, before)
        case core_v1.Pod() as new, core_v1.Pod() as before:
            return pod.check_update(new, before, *_pod_specs(prepared, old))
        case scheduling_v1.Workload() as new, scheduling_v1.Workload() as before:
            return pod_group.check_workload_update(new, before)
        case new, before:
            return check_object_meta_update(_meta(new), _meta(before))


def _check_status_update(new: Any, old: Any) -> Findings:
    match new, old:
        case resource_v1.ResourceClaim(), resource_v1.ResourceClaim():
            return claim_status.check_status_update(new, old)
        case resource_v1.DeviceTaintRule(), resource_v1.DeviceTaintRule():
            return taint_rule.check_status_update(new, old)
        case resource_v1.ResourcePoolStatusRequest(), resource_v1.ResourcePoolStatusRequest():
            return pool_status.check_status_update(new, old)
        case core_v1.Pod(), core_v1.Pod():
            return pod_status.check_status_update(new, old)
        case scheduling_v1.PodGroup(), scheduling_v1.PodGroup():
            return pod_group.check_status_update(new, old)
        case scheduling_v1.CompositePodGroup(), scheduling_v1.CompositePodGroup():
            return pod_group.check_composite_status_update(new, old)
        case _:
            return check_object_meta_update(_meta(new), _meta(old))


# --- for tools and messages ---


def check_object(value: object, *, gates: FeatureGates) -> tuple[FieldError, ...]:
    """Everything wrong with a manifest, as if it were created now; admin access depends on the cluster and is not
    checked. UnknownKind lists the known kinds, DecodeError says what could not be decoded."""
    prepared = prepare_create(value, gates=gates, now=None, namespace=DEFAULT_NAMESPACE)
    return validate_create(prepared, gates=gates)


def invalid_message(prepared: Prepared, errors: tuple[FieldError, ...]) -> str:
    """The message of a Status of reason Invalid (422)."""
    kind = prepared.envelope.kind
    qualified = f"{kind.name}.{kind.group}" if kind.group else kind.name
    texts = [str(error) for error in dict.fromkeys(errors)]
    listed = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    return f'{qualified} "{_meta(prepared.object).name}" is invalid: {listed}'
