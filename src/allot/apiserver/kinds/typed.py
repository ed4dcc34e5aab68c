"""Strategies on top of the typed validation in `core.validation`: device allocation, gangs, pods.

An object is decoded once per step. Decoding takes the quick way when everything is in order, and the careful one, which
treats null as absent and finds every wrong value, when it is not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from allot.apiserver.kinds.generic import RESOURCE_VERSION_MISSING, GenericStrategy, bare_entries, errors_of, read_meta
from allot.apiserver.kinds.known_specs import KnownSpecs, SpecKeys, exact_key
from allot.apiserver.kinds.versions import to_storage
from allot.apiserver.resources import Object, Refused, Resource
from allot.core.features import FeatureGates
from allot.core.model.codec import DecodeError, Envelope, decode_object, encode
from allot.core.model.kinds import Kind, UnknownKind, kind_of
from allot.core.model.meta import APIStruct, RawJSON
from allot.core.quantity import Quantity, QuantityError
from allot.core.validation import claim, claim_status, strategy, validate
from allot.core.validation.builtin.values import given, items, members
from allot.core.validation.defaults import with_defaults
from allot.core.validation.fields import FieldError, Findings
from allot.core.validation.object_meta import check_object_meta, check_object_meta_update
from allot.core.validation.ordinary import is_ordinary_metadata
from allot.core.validation.pod import MIRROR_POD_ANNOTATION

Clock = Callable[[], str | None]

_CLAIM, _TEMPLATE = "ResourceClaim", "ResourceClaimTemplate"
_EMPTY: Object = {}


class TypedStrategy:
    """A kind that `core.model` has complete types for."""

    def __init__(self, resource: Resource, gates: FeatureGates, now: Clock) -> None:
        self._resource = resource
        self._gates = gates
        self._now = now
        self._kind = kind_of(resource.api_version, resource.kind)

    def read(self, object_: Object) -> Object:
        """The object with the defaults of the version it is written in, in the storage version."""
        typed = {**object_, "apiVersion": self._resource.api_version, "kind": self._resource.kind}
        filled = with_defaults(typed, gates=self._gates, now=self._now())
        return to_storage(_without_removed_selectors(filled, self._kind), self._resource)

    def prepare_create(self, object_: Object) -> Object:
        """A new object without status and without what gates do not allow."""
        new = strategy.prepare_create(self._decoded(object_), self._gates)
        return self._stored(new, object_)

    def prepare_update(self, object_: Object, old: Object, subresource: str) -> Object:
        """A changed object with what it keeps from the stored one."""
        new, before = self._decoded(object_), self._decoded(old)
        if subresource == "status":
            new = strategy.prepare_status_update(new, before, self._gates)
        else:
            new = strategy.prepare_update(new, before, self._gates, self._now())
        stored = self._stored(new, object_)
        metadata = stored["metadata"]
        if self._resource.unconditional_update and not metadata.get("resourceVersion"):
            version = members(old, "metadata").get("resourceVersion")
            if version:
                metadata["resourceVersion"] = version
        return stored

    def validate_create(self, object_: Object) -> tuple[FieldError, ...]:
        """All field errors of a new object; admin access is looked at by `admin_access_errors`."""
        return validate.validate_create(self._prepared(object_), gates=self._gates)

    def validate_update(self, object_: Object, old: Object, subresource: str) -> tuple[FieldError, ...]:
        """All field errors of a changed object."""
        if not members(object_, "metadata").get("resourceVersion"):
            return (RESOURCE_VERSION_MISSING,)
        check = validate.validate_status_update if subresource == "status" else validate.validate_update
        return check(self._prepared(object_), self._prepared(old).envelope, gates=self._gates)

    def warnings(self, object_: Object) -> tuple[str, ...]:
        """What the writer should know."""
        driver = members(object_, "spec").get("driver")
        if self._kind.name == "ResourceSlice" and isinstance(driver, str) and driver != driver.lower():
            return (f'spec.driver: driver names should be lowercase; "{driver}" contains uppercase characters',)
        return ()

    def _decoded(self, object_: Object) -> Any:
        return decode_typed(object_, self._kind)

    def _prepared(self, object_: Object) -> validate.Prepared:
        envelope = Envelope(kind=self._kind, api_version=self._resource.api_version, object=self._decoded(object_))
        return validate.Prepared(envelope=envelope)

    def _stored(self, new: APIStruct, source: Object) -> Object:
        document = encode(new)
        document["apiVersion"] = self._resource.storage_api_version
        managed = members(source, "metadata").get("managedFields")
        if managed:
            document["metadata"]["managedFields"] = managed
        return document


class ClaimStrategy(TypedStrategy):
    """Claims. Those with a spec that was seen before, which most are, differ in metadata only."""

    def __init__(self, resource: Resource, gates: FeatureGates, now: Clock) -> None:
        super().__init__(resource, gates, now)
        # Specs as written and with defaults; specs and the status they start with as stored; valid ones.
        self._read: KnownSpecs[Any] = KnownSpecs()
        self._new: KnownSpecs[tuple[Any, Any]] = KnownSpecs()
        self._valid: KnownSpecs[bool] = KnownSpecs()
        self._same_version = resource.api_version == resource.storage_api_version
        # The metadata that was found to be in order last: preparing and validating both ask.
        self._fine: Any = None

    def read(self, object_: Object) -> Object:
        """The claim with defaults, in the storage version."""
        if not self._same_version or object_.get("status", _EMPTY) != _EMPTY or "spec" not in object_:
            return super().read(object_)
        key = exact_key(object_["spec"])
        spec = self._read.get(key)
        if spec is None:
            spec = self._read.put(key, super().read(object_)["spec"])
        return {**object_, "spec": spec}

    def prepare_create(self, object_: Object) -> Object:
        """A new claim without status and without what gates do not allow."""
        key = exact_key(object_.get("spec"))
        known = self._new.get(key)
        metadata = members(object_, "metadata")
        if known is None or not is_ordinary_metadata(metadata):
            stored = super().prepare_create(object_)
            self._new.put(key, (stored.get("spec"), stored.get("status")))
            return stored
        self._fine = metadata
        return {
            "apiVersion": self._resource.storage_api_version,
            "kind": self._resource.kind,
            "metadata": metadata,
            "spec": known[0],
            "status": known[1],
        }

    def validate_create(self, object_: Object) -> tuple[FieldError, ...]:
        """All field errors of a new claim."""
        key = None if object_.get("status") else exact_key(object_.get("spec"))
        if key in self._valid:
            return () if object_["metadata"] is self._fine else new_metadata_errors(object_)
        errors = super().validate_create(object_)
        if not errors:
            self._valid.put(key, True)
        return errors


def new_metadata_errors(object_: Object) -> tuple[FieldError, ...]:
    """All field errors in the metadata of a new object in a namespace."""
    if is_ordinary_metadata(members(object_, "metadata")):
        return ()
    return errors_of(check_object_meta(read_meta(object_), namespaced=True))


def _without_removed_selectors(value: Object, kind: Kind) -> Object:
    """A taint rule of Kubernetes 1.33 as 1.37 reads it: selecting by class or expression is selecting everything."""
    selector = members(value, "spec", "deviceSelector")
    if kind.name != "DeviceTaintRule" or not {"deviceClassName", "selectors"} & selector.keys():
        return value
    kept = {name: item for name, item in selector.items() if name not in ("deviceClassName", "selectors")}
    return {**value, "spec": {**members(value, "spec"), "deviceSelector": kept}}


# --- decoding ---


def decode_typed(object_: Object, kind: Kind) -> Any:
    """The object in the type of its kind, without what field managers own; Refused when it cannot be read."""
    document = {name: value for name, value in object_.items() if name not in ("apiVersion", "kind")}
    metadata = document.get("metadata")
    if isinstance(metadata, dict) and "managedFields" in metadata:
        document["metadata"] = {**metadata, "managedFields": bare_entries(metadata["managedFields"])}
    try:
        return msgspec.convert(document, kind.type, dec_hook=_custom)
    except (msgspec.ValidationError, QuantityError):
        pass
    try:
        return decode_object({**document, "apiVersion": kind.hub_api_version, "kind": kind.name}).object
    except (DecodeError, UnknownKind, ValueError) as error:
        raise Refused(str(error)) from error


def _custom(type_: type, value: Any) -> Any:
    if type_ is Quantity and isinstance(value, str) and len(value) < 32:
        return Quantity.parse(value)
    if type_ is RawJSON:
        return RawJSON(value)
    raise msgspec.ValidationError(f"{value!r} needs a closer look")


# --- admin access ---


def needs_namespace_labels(resource: Resource, object_: Object, subresource: str) -> bool:
    """Whether `admin_access_errors` has something to look at in a write."""
    if resource.kind not in (_CLAIM, _TEMPLATE) or resource.group != "resource.k8s.io":
        return False
    if subresource == "status":
        results = members(object_, "status", "allocation", "devices").get("results")
        return any(isinstance(item, dict) and bool(item.get("adminAccess")) for item in results or ())
    spec = members(object_, "spec") if resource.kind == _CLAIM else members(object_, "spec", "spec")
    requests = members(spec, "devices").get("requests")
    return any(isinstance(item, dict) and bool(members(item, "exactly").get("adminAccess")) for item in requests or ())


def admin_access_errors(
    resource: Resource, object_: Object, old: Object | None, subresource: str, namespace_labels: Mapping[str, str]
) -> tuple[FieldError, ...]:
    """Errors of a claim or template, in the storage version, that asks for admin access in a namespace not labelled for
    it. On create and on status updates; they come before the other field errors."""
    new = decode_typed(object_, kind_of(resource.api_version, resource.kind))
    found: Findings = []
    if subresource == "status" and old is not None and resource.kind == _CLAIM:
        before = decode_typed(old, kind_of(resource.api_version, resource.kind))
        found = claim_status.check_status_admin_access(new.status, before.status, namespace_labels)
    elif old is None:
        spec = new.spec if resource.kind == _CLAIM else new.spec.spec
        found = claim.check_admin_access(spec.devices.requests, namespace_labels)
    return tuple(finding.error for finding in found)


# --- pods ---


class PodStrategy(GenericStrategy):
    """Pods: JSON with the rules of `core.validation.builtin`, and the typed checks of what device allocation needs."""

    def __init__(self, resource: Resource, gates: FeatureGates) -> None:
        super().__init__(resource)
        self._gates = gates
        self._kind = kind_of(resource.api_version, resource.kind)
        # Specs as written and with defaults; the status that a spec starts with; valid ones.
        self._read: KnownSpecs[Any] = KnownSpecs()
        self._statuses: KnownSpecs[Any] = KnownSpecs()
        self._valid: KnownSpecs[bool] = KnownSpecs()
        self._keys = SpecKeys()

    def read(self, object_: Object) -> Object:
        """The pod with defaults."""
        if "spec" not in object_ or "status" in object_:
            return super().read(object_)
        key = exact_key(object_["spec"])
        spec = self._read.get(key)
        if spec is None:
            spec = self._read.put(key, super().read(object_)["spec"])
        return {**object_, "spec": spec}

    def prepare_create(self, object_: Object) -> Object:
        """A new pod."""
        spec, metadata = members(object_, "spec"), members(object_, "metadata")
        if "schedulingGroup" in spec and "GenericWorkload" not in self._gates:
            spec = {name: value for name, value in spec.items() if name != "schedulingGroup"}
            object_ = {**object_, "spec": spec}
        key = self._keys.key(spec)
        status = self._statuses.get(key)
        if status is None:
            assert self._rules.initial_status is not None, "pods start with a status"
            status = self._statuses.put(key, self._rules.initial_status(object_))
        return {**object_, "metadata": {**metadata, "generation": 1}, "status": status}

    def prepare_update(self, object_: Object, old: Object, subresource: str) -> Object:
        """A changed pod."""
        value = super().prepare_update(object_, old, subresource)
        status, before = members(value, "status"), members(old, "status")
        name = "nodeAllocatableResourceClaimStatuses"
        if "DRANodeAllocatableResources" not in self._gates and not before.get(name):
            status.pop(name, None)
        return value

    def validate_create(self, object_: Object) -> tuple[FieldError, ...]:
        """All field errors of a new pod."""
        key = None if _depends_on_metadata(object_) else self._keys.key(object_.get("spec"))
        if key in self._valid:
            return new_metadata_errors(object_)
        typed = validate.validate_create(self._prepared(object_), gates=self._gates)
        errors = _merged(typed, self._rules.check(object_))
        if not errors:
            self._valid.put(key, True)
        return errors

    def validate_update(self, object_: Object, old: Object, subresource: str) -> tuple[FieldError, ...]:
        """All field errors of a changed pod."""
        typed: tuple[FieldError, ...] = ()
        if subresource == "":
            if not _depends_on_metadata(object_) and self._only_metadata_changed(object_, old):
                return ()
            typed = validate.validate_update(self._prepared(object_), self._prepared(old).envelope, gates=self._gates)
        elif subresource == "status":
            typed = validate.validate_status_update(
                self._prepared(object_), self._prepared(old).envelope, gates=self._gates
            )
        return _merged(typed, self._rules.check_update(object_, old, subresource))

    def _only_metadata_changed(self, object_: Object, old: Object) -> bool:
        """Whether an update changes nothing but metadata, all of which is in order, of a pod with a spec known to be in
        order. False only means that all has to be looked at."""
        if object_.get("spec") != old.get("spec") or object_.get("status") != old.get("status"):
            return False
        if self._keys.key(object_.get("spec")) not in self._valid or not object_["metadata"].get("resourceVersion"):
            return False
        meta = read_meta(object_)
        return not check_object_meta(meta, namespaced=True) and not check_object_meta_update(meta, read_meta(old))

    def _prepared(self, object_: Object) -> validate.Prepared:
        decoded = decode_typed(object_, self._kind)
        envelope = Envelope(kind=self._kind, api_version="v1", object=decoded, source=object_)
        return validate.Prepared(envelope=envelope)


def _depends_on_metadata(pod: Object) -> bool:
    """Whether the rules for a pod's spec look at its name or annotations."""
    mirrored = MIRROR_POD_ANNOTATION in members(pod, "metadata", "annotations")
    return mirrored or any(given(volume, "ephemeral") for volume in items(pod, "spec", "volumes"))


def _merged(typed: tuple[FieldError, ...], untyped: Findings) -> tuple[FieldError, ...]:
    return tuple(dict.fromkeys((*typed, *(finding.error for finding in untyped))))
