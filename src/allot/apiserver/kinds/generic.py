"""The strategy of kinds without types: metadata, status and generation as for every kind, rules as data."""

from __future__ import annotations

from typing import Any

import msgspec

from allot.apiserver.kinds.versions import to_storage
from allot.apiserver.resources import Object, Resource, Strategy, WriteCheck
from allot.core.features import DEFAULT_GATES, FeatureGates
from allot.core.model.codec import DecodeError, decode
from allot.core.model.meta import ObjectMeta
from allot.core.validation import formats
from allot.core.validation.builtin.registry import rules_for
from allot.core.validation.builtin.rules import Rules
from allot.core.validation.builtin.values import copied, members, same
from allot.core.validation.fast_path import accepts_metadata, accepts_metadata_change
from allot.core.validation.fields import FieldError, Findings, invalid
from allot.core.validation.gated_paths import dropped, gated_paths, turned_off, without_gated
from allot.core.validation.object_meta import check_object_meta, check_object_meta_update

RESOURCE_VERSION_MISSING = invalid("metadata.resourceVersion", 0, "must be specified for an update").error


class GenericStrategy(Strategy):
    """Defaults, status split, generation and validation of a kind without its own types."""

    def __init__(
        self,
        resource: Resource,
        rules: Rules | None = None,
        write_check: WriteCheck | None = None,
        gates: FeatureGates = DEFAULT_GATES,
    ) -> None:
        self._resource = resource
        self._gates = gates
        self.write_check = write_check
        self._rules = rules or rules_for(resource.storage_api_version.rpartition("/")[0], resource.kind)
        self._has_status = "status" in resource.subresources
        # Most kinds have none, so their objects need not be copied.
        self._fills_in = self._rules.defaults is not Rules().defaults
        self._prepares = self._rules.prepare_create is not Rules().prepare_create
        off = turned_off(gated_paths(resource.group, resource.storage_version, resource.kind), gates)
        self._off = tuple(each for each in off if not each.is_status)
        self._off_status = tuple(each for each in off if each.is_status)

    def read(self, object_: Object) -> Object:
        """The object with defaults, in the storage version."""
        value = to_storage(object_, self._resource)
        if self._fills_in:
            value = copied(value)
            self._rules.defaults(value)
        return value

    def prepare_create(self, object_: Object) -> Object:
        """A new object with a fresh status."""
        rules = self._rules
        value: Object = copied(object_) if self._prepares else dict(object_)
        if rules.initial_status is not None:
            value["status"] = rules.initial_status(value)
        elif self._has_status and self._resource.kind not in _BRING_STATUS:
            value["status"] = {}
        if rules.generation_of:
            value["metadata"] = {**members(value, "metadata"), "generation": 1}
        rules.prepare_create(value)
        return without_gated(value, None, self._off)

    def prepare_update(self, object_: Object, old: Object, subresource: str) -> Object:
        """A changed object with what it keeps."""
        value: Object = copied(object_)
        if subresource in ("status", "approval"):
            value = {**copied(old), "metadata": value.get("metadata"), "status": value.get("status", {})}
        elif self._has_status:
            value["status"] = copied(old.get("status", {}))
        value["metadata"] = carried_over(members(value, "metadata"), members(old, "metadata"), self._resource)
        self._rules.prepare_update(value, old, subresource)
        value = without_gated(value, old, self._off_status if subresource == "status" else self._off)
        counted = self._rules.generation_of if subresource in _CHANGE_SPEC else ()
        if not all(same(value.get(name), old.get(name)) for name in counted):
            generation = members(old, "metadata").get("generation")
            value["metadata"]["generation"] = (generation if isinstance(generation, int) else 0) + 1
        return value

    def validate_create(self, object_: Object) -> tuple[FieldError, ...]:
        """All field errors of a new object."""
        found = self._rules.check(object_)
        rules = self._rules
        name_format = rules.name_format if rules.name_format_of is None else rules.name_format_of(object_)
        if not self._resource.namespaced or not accepts_metadata(members(object_, "metadata"), name_format):
            namespaced = self._resource.namespaced
            free = self._resource.group in _FREE_FINALIZERS
            meta = read_meta(object_)
            found = (
                check_object_meta(meta, namespaced=namespaced, name_format=name_format, free_finalizers=free) + found
            )
        return errors_of(found)

    def validate_update(self, object_: Object, old: Object, subresource: str) -> tuple[FieldError, ...]:
        """All field errors of a changed object."""
        found: Findings = []
        if not accepts_metadata_change(members(object_, "metadata"), members(old, "metadata")):
            meta, old_meta = read_meta(object_), read_meta(old)
            if not meta.resource_version and not self._resource.unconditional_update:
                return (RESOURCE_VERSION_MISSING,)
            free = self._resource.group in _FREE_FINALIZERS
            found = check_object_meta(
                meta, namespaced=self._resource.namespaced, name_format=formats.path_segment, free_finalizers=True
            ) + check_object_meta_update(meta, old_meta, free_finalizers=free)
        if subresource == "":
            recheck = self._rules.recheck
            found += self._rules.check(object_) if recheck is None else recheck(object_, old)
        found += self._rules.check_update(object_, old, subresource)
        return errors_of(found)

    def warnings(self, object_: Object) -> tuple[str, ...]:
        """What the writer should know."""
        return self._rules.warnings(object_)

    def dropped(self, given: Object, kept: Object, old: Object | None, subresource: str) -> tuple[str, ...]:  # noqa: ARG002
        """What the writer should know about fields whose feature gate is off."""
        return dropped(given, kept, self._off_status if subresource == "status" else self._off)


# Subresources whose writes count as changes of the spec; binding a pod does not.
_CHANGE_SPEC = ("", "ephemeralcontainers", "resize", "scale")
# Groups whose finalizers need no domain upstream: they check metadata only by apimachinery's rules (1.37).
_FREE_FINALIZERS = ("admissionregistration.k8s.io", "apiregistration.k8s.io", "coordination.k8s.io", "node.k8s.io")
# A new object may have a status: nodes register with it, and namespaces and volumes have their own rules.
_BRING_STATUS = ("Node", "CustomResourceDefinition")


def errors_of(found: Findings) -> tuple[FieldError, ...]:
    """The errors without duplicates."""
    return tuple(dict.fromkeys(finding.error for finding in found))


def read_meta(object_: Object) -> ObjectMeta:
    """The typed metadata; unreadable members count as absent."""
    metadata = members(object_, "metadata")
    if "managedFields" in metadata:
        # The server computed the owned fields; only what names the owners is checked.
        metadata = {**metadata, "managedFields": bare_entries(metadata["managedFields"])}
    try:
        return msgspec.convert(metadata, ObjectMeta)
    except (msgspec.ValidationError, TypeError):
        return _read_meta_carefully(metadata)


def bare_entries(entries: Any) -> Any:
    """Entries of managedFields without fields and time."""
    if not isinstance(entries, list):
        return entries
    return [
        {name: value for name, value in entry.items() if name not in ("fieldsV1", "time")}
        if isinstance(entry, dict)
        else entry
        for entry in entries
    ]


def _read_meta_carefully(metadata: Object) -> ObjectMeta:
    readable: dict[str, Any] = {}
    for name, value in metadata.items():
        try:
            decode({name: value}, ObjectMeta)
        except DecodeError:
            continue
        readable[name] = value
    return decode(readable, ObjectMeta).object


def carried_over(new: Object, old: Object, resource: Resource) -> Object:
    """The metadata of an update: what clients cannot change stays, what they left out is filled in."""
    metadata = {**new, "generation": old.get("generation")}
    if metadata["generation"] is None:
        del metadata["generation"]
    if not metadata.get("uid") and "uid" in old:
        metadata["uid"] = old["uid"]
    if not metadata.get("resourceVersion") and resource.unconditional_update and "resourceVersion" in old:
        metadata["resourceVersion"] = old["resourceVersion"]
    for name in ("creationTimestamp", "deletionTimestamp"):
        if old.get(name):
            metadata[name] = old[name]
    if metadata.get("deletionGracePeriodSeconds") is None and old.get("deletionGracePeriodSeconds") is not None:
        metadata["deletionGracePeriodSeconds"] = old["deletionGracePeriodSeconds"]
    return metadata
