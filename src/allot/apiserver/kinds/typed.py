"""Strategies on top of the typed validation in `core.validation`: device allocation, gangs, pods.

An object is decoded once per step. Decoding takes the fast path when everything is valid, and the careful one, which
treats null as absent and finds every wrong value, when it is not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from allot.apiserver.kinds.generic import RESOURCE_VERSION_MISSING, bare_entries, errors_of, read_meta
from allot.apiserver.kinds.versions import to_storage
from allot.apiserver.resources import Object, Refused, Resource, Strategy, WriteCheck
from allot.core.features import FeatureGates
from allot.core.model.codec import DecodeError, Envelope, decode_object, encode
from allot.core.model.kinds import Kind, UnknownKind, kind_of
from allot.core.model.meta import APIStruct, RawJSON
from allot.core.quantity import Quantity, QuantityError
from allot.core.validation import strategy, validate
from allot.core.validation.builtin.values import members
from allot.core.validation.defaults import with_defaults
from allot.core.validation.fast_path import accepts_metadata
from allot.core.validation.fields import FieldError
from allot.core.validation.gated_paths import dropped, gated_paths, turned_off
from allot.core.validation.object_meta import check_object_meta

Clock = Callable[[], str | None]

_CLAIM, _TEMPLATE = "ResourceClaim", "ResourceClaimTemplate"
_EMPTY: Object = {}


class TypedStrategy(Strategy):
    """A kind that `core.model` has complete types for."""

    def __init__(
        self, resource: Resource, gates: FeatureGates, now: Clock, write_check: WriteCheck | None = None
    ) -> None:
        self._resource = resource
        self.write_check = write_check
        self._gates = gates
        self._now = now
        self._kind = kind_of(resource.api_version, resource.kind)
        off = turned_off(gated_paths(resource.group, resource.storage_version, resource.kind), gates)
        self._off = tuple(each for each in off if not each.is_status)
        self._off_status = tuple(each for each in off if each.is_status)

    def read(self, object_: Object) -> Object:
        """The object with the defaults of the version it is written in, in the storage version."""
        typed = {**object_, "apiVersion": self._resource.api_version, "kind": self._resource.kind}
        filled = with_defaults(typed, gates=self._gates, now=self._now())
        return to_storage(_without_removed_selectors(filled, self._kind), self._resource)

    def prepare_create(self, object_: Object) -> Object:
        """A new object without status and without gated fields."""
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
        """All field errors of a new object; admin access is checked by `admin_access_errors`."""
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

    def dropped(self, given: Object, kept: Object, old: Object | None, subresource: str) -> tuple[str, ...]:  # noqa: ARG002
        """What the writer should know about fields whose feature gate is off."""
        return dropped(given, kept, self._off_status if subresource == "status" else self._off)

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


def new_metadata_errors(object_: Object) -> tuple[FieldError, ...]:
    """All field errors in the metadata of a new object in a namespace."""
    if accepts_metadata(members(object_, "metadata")):
        return ()
    return errors_of(check_object_meta(read_meta(object_), namespaced=True))


def _without_removed_selectors(value: Object, kind: Kind) -> Object:
    """A taint rule of Kubernetes 1.33 as 1.37 reads it: a selector by class or expression selects everything."""
    selector = members(value, "spec", "deviceSelector")
    if kind.name != "DeviceTaintRule" or not {"deviceClassName", "selectors"} & selector.keys():
        return value
    kept = {name: item for name, item in selector.items() if name not in ("deviceClassName", "selectors")}
    return {**value, "spec": {**members(value, "spec"), "deviceSelector": kept}}


# --- decoding ---


def decode_typed(object_: Object, kind: Kind) -> Any:
    """The object in the type of its kind, with managedFields without fields and time; Refused if it cannot be read."""
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
