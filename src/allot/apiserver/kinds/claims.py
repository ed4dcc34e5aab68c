"""Claims and their templates: equal specs are processed once, and some writes need more permissions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from allot.apiserver.kinds.fast_path import ClaimFastPath
from allot.apiserver.kinds.generic import errors_of
from allot.apiserver.kinds.known_specs import KnownSpecs, SpecKeys, exact_key
from allot.apiserver.kinds.typed import Clock, TypedStrategy, decode_typed, new_metadata_errors
from allot.apiserver.request import ApiRequest
from allot.apiserver.resources import Object, Resource
from allot.apiserver.server_context import ServerContext
from allot.core.access.claim_status import check_claim_status_write
from allot.core.features import FeatureGates
from allot.core.model.classic import CONTROLLER
from allot.core.validation import claim, claim_status
from allot.core.validation.builtin.values import members
from allot.core.validation.fast_path import accepts_metadata
from allot.core.validation.fields import FieldError, invalid

_STATUS_GATE = "DRAResourceClaimGranularStatusAuthorization"
_EMPTY: Object = {}


class ClaimStrategy(TypedStrategy):
    """Claims. Most have a known spec and differ only in metadata."""

    fast_path = ClaimFastPath()

    def __init__(self, resource: Resource, gates: FeatureGates, now: Clock) -> None:
        super().__init__(resource, gates, now, self._check_write)
        # Specs as written and with defaults; specs and the status they start with as stored; valid ones.
        self._read: KnownSpecs[Any] = KnownSpecs()
        self._new: KnownSpecs[tuple[Any, Any]] = KnownSpecs()
        self._valid: KnownSpecs[bool] = KnownSpecs()
        self._dropped: KnownSpecs[tuple[str, ...]] = KnownSpecs()
        self._same_version = resource.api_version == resource.storage_api_version
        # Keys of specs with defaults and as stored: claims of one template share them.
        self._read_keys, self._stored_keys = SpecKeys(), SpecKeys()
        # The metadata last found valid: preparing and validating both check it.
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
        """A new claim without status and without gated fields."""
        key = self._read_keys.key(object_.get("spec"))
        known = self._new.get(key)
        metadata = members(object_, "metadata")
        if known is None or not accepts_metadata(metadata):
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
        key = None if object_.get("status") else self._stored_keys.key(object_.get("spec"))
        if key in self._valid:
            return () if object_["metadata"] is self._fine else new_metadata_errors(object_)
        errors = super().validate_create(object_)
        if not errors:
            self._valid.put(key, True)
        return errors

    def dropped(self, given: Object, kept: Object, old: Object | None, subresource: str) -> tuple[str, ...]:
        """What the writer should know about fields whose feature gate is off."""
        if old is not None:
            return super().dropped(given, kept, old, subresource)
        key = self._read_keys.key(given.get("spec"))
        told = self._dropped.get(key)
        return self._dropped.put(key, super().dropped(given, kept, old, subresource)) if told is None else told

    async def _check_write(
        self, context: ServerContext, request: ApiRequest, object_: Object, old: Object | None, subresource: str
    ) -> tuple[FieldError, ...]:
        """Not every writer of a claim's status may allocate or release it; admin access needs a labelled namespace."""
        if subresource == "status":
            errors: tuple[FieldError, ...] = ()
            if _STATUS_GATE in self._gates:
                before = old.get("status") if old is not None else None
                asked = request.attributes()
                errors = check_claim_status_write(context.authorizer.authorize, asked, object_.get("status"), before)
            if old is None or not _is_any_admin(members(object_, "status", "allocation", "devices").get("results")):
                return errors
            return errors + self.admin_status_errors(object_, old, await _namespace_labels(context, request))
        if old is not None:
            return _controller_errors(object_, old)
        if not asks_for_admin_access(members(object_, "spec")):
            return ()
        return self.admin_access_errors(object_, await _namespace_labels(context, request))

    def admin_access_errors(self, object_: Object, namespace_labels: Mapping[str, str]) -> tuple[FieldError, ...]:
        """Errors of a new claim that asks for admin access in a namespace not labelled for it."""
        requests = decode_typed(object_, self._kind).spec.devices.requests
        return errors_of(claim.check_admin_access(requests, namespace_labels))

    def admin_status_errors(
        self, object_: Object, old: Object, namespace_labels: Mapping[str, str]
    ) -> tuple[FieldError, ...]:
        """The same for the allocation of one."""
        new, before = decode_typed(object_, self._kind), decode_typed(old, self._kind)
        return errors_of(claim_status.check_status_admin_access(new.status, before.status, namespace_labels))


class ClaimTemplateStrategy(TypedStrategy):
    """Templates of claims."""

    def __init__(self, resource: Resource, gates: FeatureGates, now: Clock) -> None:
        super().__init__(resource, gates, now, self._check_write)

    async def _check_write(
        self, context: ServerContext, request: ApiRequest, object_: Object, old: Object | None, subresource: str
    ) -> tuple[FieldError, ...]:
        """Admin access needs a labelled namespace."""
        if subresource or old is not None or not asks_for_admin_access(members(object_, "spec", "spec")):
            return ()
        return self.admin_access_errors(object_, await _namespace_labels(context, request))

    def admin_access_errors(self, object_: Object, namespace_labels: Mapping[str, str]) -> tuple[FieldError, ...]:
        """Errors of a new template that asks for admin access in a namespace not labelled for it."""
        requests = decode_typed(object_, self._kind).spec.spec.devices.requests
        return errors_of(claim.check_admin_access(requests, namespace_labels))


def _controller_errors(object_: Object, old: Object) -> tuple[FieldError, ...]:
    """The controller that allocates a claim is part of its spec in v1alpha3, and immutable."""
    new, before = (members(each, "metadata", "annotations").get(CONTROLLER) for each in (object_, old))
    return () if new == before else (invalid("spec.controller", new or "", "field is immutable").error,)


def asks_for_admin_access(spec: Object) -> bool:
    """Whether a claim's spec requests devices that others use."""
    for item in members(spec, "devices").get("requests") or ():
        if isinstance(item, dict) and members(item, "exactly").get("adminAccess"):
            return True
    return False


def _is_any_admin(results: Any) -> bool:
    return any(isinstance(item, dict) and bool(item.get("adminAccess")) for item in results or ())


async def _namespace_labels(context: ServerContext, request: ApiRequest) -> Mapping[str, str]:
    namespaces = context.registry.storage_row("", "namespaces")
    assert namespaces is not None, "namespaces are served"
    entry = await context.store.get(namespaces.key("", request.namespace))
    return (entry.object["metadata"].get("labels") or {}) if entry is not None else {}
