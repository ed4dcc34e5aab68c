"""Strategies: what happens to an object between reading and validating it, per kind and operation.

Knows who owns status and generation, what an update keeps from the stored object, which stale device reports are dropped
and when a taint's time is renewed. Refuses nothing; that is left to validation.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from allot.core.features import FeatureGates
from allot.core.model import core_v1, resource_v1, scheduling_v1
from allot.core.model.kinds import kind_of_type
from allot.core.model.meta import APIStruct, ObjectMeta
from allot.core.validation.claim_status import device_key
from allot.core.validation.gated_fields import drop_spec_fields, drop_status_fields
from allot.core.validation.struct_defaults import defaults_of

KindT = TypeVar("KindT", bound=APIStruct)

# Kinds whose metadata.generation counts spec changes.
_GENERATED = (resource_v1.DeviceClass, resource_v1.ResourceSlice, resource_v1.DeviceTaintRule, core_v1.Pod)

_UNCONDITIONAL = (
    resource_v1.DeviceClass,
    resource_v1.ResourceClaim,
    resource_v1.ResourceClaimTemplate,
    resource_v1.ResourceSlice,
    core_v1.Pod,
    core_v1.Node,
    core_v1.Namespace,
    scheduling_v1.PriorityClass,
)


def allows_unconditional_update(type_: type[APIStruct], api_version: str) -> bool:
    """Whether an update may omit metadata.resourceVersion."""
    if type_ is resource_v1.DeviceTaintRule:
        return api_version != f"{resource_v1.GROUP}/v1"
    return type_ in _UNCONDITIONAL


def prepare_create(new: KindT, gates: FeatureGates) -> KindT:
    """A new object as it will be validated and stored."""
    new = _with_empty_status(new)
    if isinstance(new, _GENERATED):
        new = _with_meta(new, generation=1)
    return drop_spec_fields(new, None, gates)


def _with_empty_status(new: KindT) -> KindT:
    """Users cannot set the status on create."""
    if isinstance(new, core_v1.Pod):
        return _replaced(new, status=core_v1.PodStatus(phase="Pending"))
    kind = kind_of_type(type(new))
    if not kind.has_status or isinstance(new, core_v1.Node | core_v1.Namespace):
        return new
    return _replaced(new, status=defaults_of(type(new))["status"])


def prepare_update(new: KindT, old: KindT, gates: FeatureGates, now: str | None) -> KindT:
    """A changed object with what it inherits from the stored one."""
    meta, old_meta = _meta(new), _meta(old)
    new = _with_meta(
        new,
        generation=old_meta.generation,
        uid=meta.uid or old_meta.uid,
        creation_timestamp=old_meta.creation_timestamp or meta.creation_timestamp,
        deletion_timestamp=old_meta.deletion_timestamp or meta.deletion_timestamp,
        deletion_grace_period_seconds=meta.deletion_grace_period_seconds
        if meta.deletion_grace_period_seconds is not None
        else old_meta.deletion_grace_period_seconds,
    )
    if kind_of_type(type(new)).has_status:
        new = _replaced(new, status=_member(old, "status"))
    new = _with_taint_time(new, old, now)
    # A slice's spec is compared before gated fields are dropped, other kinds' after, as upstream.
    dropped = drop_spec_fields(new, old, gates)
    compared = new if isinstance(new, resource_v1.ResourceSlice) else dropped
    new = dropped
    if isinstance(new, _GENERATED) and not _same_spec(compared, old):
        new = _with_meta(new, generation=old_meta.generation + 1)
    return new


def _same_spec(new: APIStruct, old: APIStruct) -> bool:
    """Semantic equality: for a slice's devices and counters an absent list equals an empty one."""
    if isinstance(new, resource_v1.ResourceSlice) and isinstance(old, resource_v1.ResourceSlice):
        return _without_empty_lists(new.spec) == _without_empty_lists(old.spec)
    return bool(_member(new, "spec") == _member(old, "spec"))


def _without_empty_lists(spec: resource_v1.ResourceSliceSpec) -> resource_v1.ResourceSliceSpec:
    return msgspec.structs.replace(spec, devices=spec.devices or None, shared_counters=spec.shared_counters or None)


def _with_taint_time(new: KindT, old: KindT, now: str | None) -> KindT:
    """A changed effect resets a taint rule's time, unless the client set another one."""
    if not isinstance(new, resource_v1.DeviceTaintRule) or not isinstance(old, resource_v1.DeviceTaintRule):
        return new
    taint, before = new.spec.taint, old.spec.taint
    if now is None or taint.effect == before.effect or taint.time_added != before.time_added:
        return new
    spec = msgspec.structs.replace(new.spec, taint=msgspec.structs.replace(taint, time_added=now))
    return _replaced(new, spec=spec)


def prepare_status_update(new: KindT, old: KindT, gates: FeatureGates) -> KindT:
    """A status write; everything except the status stays as stored."""
    meta, old_meta = _meta(new), _meta(old)
    # managedFields and the resource version come from the request, the rest from the stored object.
    kept = msgspec.structs.replace(
        old_meta,
        name=meta.name,
        namespace=meta.namespace,
        uid=meta.uid or old_meta.uid,
        resource_version=meta.resource_version,
        managed_fields=meta.managed_fields,
    )
    new = _replaced(new, metadata=kept, spec=_member(old, "spec"))
    return _without_stale_devices(drop_status_fields(new, old, gates), old)


def _without_stale_devices(new: KindT, old: KindT) -> KindT:
    """Drops device reports together with the devices, so that clients unaware of reports can deallocate."""
    if not isinstance(new, resource_v1.ResourceClaim) or not isinstance(old, resource_v1.ResourceClaim):
        return new
    stale = _allocated(old) - _allocated(new)
    devices = tuple(device for device in new.status.devices if device_key(device) not in stale)
    if len(devices) == len(new.status.devices):
        return new
    return _replaced(new, status=msgspec.structs.replace(new.status, devices=devices))


def _allocated(claim: resource_v1.ResourceClaim) -> frozenset[tuple[str, str, str, str]]:
    allocation = claim.status.allocation
    return frozenset(device_key(result) for result in allocation.devices.results) if allocation else frozenset()


# --- structs of any kind ---


def _member(object_: APIStruct, name: str) -> Any:
    return getattr(object_, name)


def _meta(object_: APIStruct) -> ObjectMeta:
    metadata = _member(object_, "metadata")
    assert isinstance(metadata, ObjectMeta)
    return metadata


def _replaced(object_: KindT, **members: Any) -> KindT:
    return msgspec.structs.replace(object_, **members)


def _with_meta(object_: KindT, **members: Any) -> KindT:
    return _replaced(object_, metadata=msgspec.structs.replace(_meta(object_), **members))
