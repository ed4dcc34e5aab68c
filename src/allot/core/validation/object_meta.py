"""Metadata rules that hold for every kind: names, labels, annotations, owners, finalizers, conditions.

Knows create and update of ObjectMeta and the rules of metav1.Condition. Does not know kinds: the name format and
whether a namespace is needed are arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from allot.core.model.meta import Condition, ManagedFieldsEntry, ObjectMeta, OwnerReference
from allot.core.validation import formats
from allot.core.validation.fields import (
    Findings,
    GoValue,
    byte_length,
    child,
    duplicate,
    forbidden,
    go_json,
    index,
    invalid,
    not_supported,
    quote,
    required,
    too_long,
)
from allot.core.validation.formats import Messages
from allot.core.validation.item_text import item_text
from allot.core.validation.struct_defaults import defaults_of

ANNOTATIONS_SIZE_MAX = 256 * 1024
FIELD_MANAGER_LENGTH_MAX = 128
SUBRESOURCE_LENGTH_MAX = 256
# Each of these errors prints all owners.
OWNER_ERRORS_MAX = 100
CONDITION_REASON_LENGTH_MAX = 1024
CONDITION_MESSAGE_LENGTH_MAX = 32 * 1024
CONDITION_STATUSES = ("False", "True", "Unknown")
IMMUTABLE_TEXT = "field is immutable"
NEGATIVE_TEXT = "must be greater than or equal to 0"

_ORPHAN = "orphan"
_FOREGROUND = "foregroundDeletion"
_STANDARD_FINALIZERS = ("kubernetes", _ORPHAN, _FOREGROUND)

NameFormat = Callable[[str], Messages]


def masked_prefix(name: str) -> str:
    """A prefix may end in a dash, since something will be appended."""
    return name[:-2] + "a" if len(name) > 1 and name.endswith("-") else name


def check_object_meta(
    meta: ObjectMeta,
    *,
    namespaced: bool,
    name_format: NameFormat = formats.dns_subdomain,
    path: str = "metadata",
    free_finalizers: bool = False,
) -> Findings:
    """Metadata of a new object. free_finalizers: finalizer names need no domain."""
    found: Findings = []
    if meta.generate_name:
        for message in name_format(masked_prefix(meta.generate_name)):
            found.append(invalid(child(path, "generateName"), meta.generate_name, message))
    if not meta.name and not meta.generate_name:
        found.append(required(child(path, "name"), "name or generateName is required"))
    elif meta.name:
        found += [invalid(child(path, "name"), meta.name, message) for message in name_format(meta.name)]
    found += _check_namespace(meta, namespaced, path)
    found += _check_generation(meta, path)
    found += check_labels(meta.labels, child(path, "labels"))
    found += check_annotations(meta.annotations, child(path, "annotations"))
    found += _check_owners(meta.owner_references, child(path, "ownerReferences"))
    found += check_finalizers(meta.finalizers, child(path, "finalizers"))
    found += _check_managed_fields(meta.managed_fields, child(path, "managedFields"))
    return found if free_finalizers else found + check_qualified(meta.finalizers, child(path, "finalizers"))


def check_object_meta_update(
    new: ObjectMeta, old: ObjectMeta, path: str = "metadata", *, free_finalizers: bool = False
) -> Findings:
    """Forbidden changes to metadata. free_finalizers: finalizer names need no domain."""
    found: Findings = []
    if old.deletion_timestamp is not None:
        added = sorted(set(new.finalizers) - set(old.finalizers))
        if added:
            listed = "[]string{" + ", ".join(quote(name) for name in added) + "}"
            detail = f"no new finalizers can be added if the object is being deleted, found new finalizers {listed}"
            found.append(forbidden(child(path, "finalizers"), detail))
    if not new.resource_version:
        found.append(invalid(child(path, "resourceVersion"), "", "must be specified for an update"))
    found += _check_generation(new, path)
    if new.generation < old.generation:
        found.append(invalid(child(path, "generation"), new.generation, "must not be decremented"))
    for attribute, name in _IMMUTABLE_META.items():
        value = getattr(new, attribute)
        if value != getattr(old, attribute):
            found.append(invalid(child(path, name), value, IMMUTABLE_TEXT))
    found += check_labels(new.labels, child(path, "labels"))
    found += check_annotations(new.annotations, child(path, "annotations"))
    found += _check_owners(new.owner_references, child(path, "ownerReferences"))
    found += _check_managed_fields(new.managed_fields, child(path, "managedFields"))
    return found if free_finalizers else found + check_qualified(new.finalizers, child(path, "finalizers"))


_IMMUTABLE_META = {
    "name": "name",
    "namespace": "namespace",
    "uid": "uid",
    "creation_timestamp": "creationTimestamp",
    "deletion_timestamp": "deletionTimestamp",
    "deletion_grace_period_seconds": "deletionGracePeriodSeconds",
}


def check_template_meta(meta: ObjectMeta, path: str) -> Findings:
    """Metadata in a template: labels and annotations only."""
    found = check_annotations(meta.annotations, child(path, "annotations"))
    found += check_labels(meta.labels, child(path, "labels"))
    defaults = defaults_of(ObjectMeta)
    for attribute, wire_name in zip(meta.__struct_fields__, meta.__struct_encode_fields__, strict=True):
        if attribute in ("labels", "annotations") or getattr(meta, attribute) == defaults[attribute]:
            continue
        # Upstream lower-cases the first letter of the Go field name, which differs from JSON for UID.
        name = "uID" if attribute == "uid" else wire_name
        found.append(forbidden(child(path, name), "cannot be set"))
    return found


def _check_namespace(meta: ObjectMeta, namespaced: bool, path: str) -> Findings:
    where = child(path, "namespace")
    if not namespaced:
        return [forbidden(where, "not allowed on this type")] if meta.namespace else []
    if not meta.namespace:
        return [required(where)]
    return [invalid(where, meta.namespace, message) for message in formats.dns_label(meta.namespace)]


def _check_generation(meta: ObjectMeta, path: str) -> Findings:
    return [invalid(child(path, "generation"), meta.generation, NEGATIVE_TEXT)] if meta.generation < 0 else []


def check_labels(labels: Mapping[str, str], path: str) -> Findings:
    """Keys and values of labels; errors are reported on the map."""
    found: Findings = []
    for name, value in labels.items():
        found += [invalid(path, name, message) for message in formats.label_key(name)]
        found += [invalid(path, value, message) for message in formats.label_value(value)]
    return found


def check_annotations(annotations: Mapping[str, str], path: str) -> Findings:
    """Keys of annotations and their total size."""
    found: Findings = []
    size = 0
    for name, value in annotations.items():
        size += byte_length(name) + byte_length(value)
        found += [invalid(path, name, message) for message in formats.label_key(name.lower())]
    if size > ANNOTATIONS_SIZE_MAX:
        found.append(too_long(path, ANNOTATIONS_SIZE_MAX))
    return found


def _check_owners(owners: Sequence[OwnerReference], path: str) -> Findings:
    found: Findings = []
    controller, shown = "", GoValue("")
    for position, owner in enumerate(owners):
        found += _check_owner(owner, index(path, position))
        if not owner.controller:
            continue
        name = f"{owner.kind}/{owner.name}"
        if controller and len(found) < OWNER_ERRORS_MAX:
            detail = (
                'Only one reference can have Controller set to true. Found "true" in references for '
                f"{controller} and {name}"
            )
            shown = shown if shown.text else GoValue(go_json(item_text(owners)))
            found.append(invalid(path, shown, detail))
        elif not controller:
            controller = name
    return found


def _check_owner(owner: OwnerReference, path: str) -> Findings:
    found: Findings = []
    group, _, version = owner.api_version.rpartition("/")
    if not owner.api_version:
        found.append(required(child(path, "apiVersion"), "must not be empty"))
    elif not version or "/" in group:
        found.append(invalid(child(path, "apiVersion"), owner.api_version, "must be <group>/<version> or <version>"))
    for name in ("kind", "name", "uid"):
        if not getattr(owner, name):
            found.append(required(child(path, name), "must not be empty"))
    if owner.api_version == "v1" and owner.kind == "Event":
        text = GoValue(go_json(item_text(owner)))
        found.append(invalid(path, text, "/v1, Kind=Event is disallowed from being an owner"))
    return found


def check_finalizers(finalizers: Sequence[str], path: str) -> Findings:
    """Names of finalizers, and the two mutually exclusive ones."""
    found = [invalid(path, name, message) for name in finalizers for message in formats.label_key(name)]
    if _ORPHAN in finalizers and _FOREGROUND in finalizers:
        detail = f"finalizer {_ORPHAN} and {_FOREGROUND} cannot be both set"
        found.append(invalid(path, list(finalizers), detail))
    return found


def check_qualified(finalizers: Sequence[str], path: str) -> Findings:
    """Finalizers of built-in kinds: a few known names, others with a domain (validateKubeFinalizerName in
    pkg/apis/core/validation, 1.37)."""
    places = enumerate(finalizers)
    return [found for position, name in places for found in check_qualified_name(name, index(path, position))]


def check_qualified_name(name: str, path: str) -> Findings:
    """One such finalizer."""
    if "/" in name or name in _STANDARD_FINALIZERS:
        return []
    return [invalid(path, name, "name is neither a standard finalizer name nor is it fully qualified")]


def _check_managed_fields(entries: Sequence[ManagedFieldsEntry], path: str) -> Findings:
    found: Findings = []
    for position, entry in enumerate(entries):
        where = index(path, position)
        if not entry.operation:
            found.append(required(child(where, "operation"), "must not be empty"))
        elif entry.operation not in ("Apply", "Update"):
            found.append(not_supported(child(where, "operation"), entry.operation, ("Apply", "Update")))
        if entry.fields_type and entry.fields_type != "FieldsV1":
            found.append(invalid(child(where, "fieldsType"), entry.fields_type, "must be `FieldsV1`"))
        if byte_length(entry.manager) > FIELD_MANAGER_LENGTH_MAX:
            found.append(too_long(child(where, "manager"), FIELD_MANAGER_LENGTH_MAX))
        if not entry.manager.isprintable():
            detail = "should only contain printable characters"
            found.append(invalid(child(where, "manager"), entry.manager, detail))
        if byte_length(entry.subresource) > SUBRESOURCE_LENGTH_MAX:
            found.append(too_long(child(where, "subresource"), SUBRESOURCE_LENGTH_MAX))
    return found


def check_conditions(conditions: Sequence[Condition], path: str) -> Findings:
    """A list of conditions, unique by type."""
    found: Findings = []
    types = set()
    for position, condition in enumerate(conditions):
        if condition.type in types:
            found.append(duplicate(index(path, position), condition.type))
        types.add(condition.type)
        found += _check_condition(condition, index(path, position))
    return found


def _check_condition(condition: Condition, path: str) -> Findings:
    found: Findings = []
    if not condition.type:
        found.append(required(child(path, "type"), "is required"))
    else:
        found += check_label_key(condition.type, child(path, "type"))
    if not condition.status:
        found.append(required(child(path, "status")))
    elif condition.status not in CONDITION_STATUSES:
        found.append(not_supported(child(path, "status"), condition.status, CONDITION_STATUSES))
    if condition.observed_generation < 0:
        detail = "must be greater than or equal to zero"
        found.append(invalid(child(path, "observedGeneration"), condition.observed_generation, detail))
    if condition.last_transition_time is None:
        found.append(required(child(path, "lastTransitionTime")))
    if not condition.reason:
        found.append(required(child(path, "reason")))
    else:
        for message in formats.condition_reason(condition.reason):
            found.append(invalid(child(path, "reason"), condition.reason, message))
        if byte_length(condition.reason) > CONDITION_REASON_LENGTH_MAX:
            found.append(too_long(child(path, "reason"), CONDITION_REASON_LENGTH_MAX))
    if byte_length(condition.message) > CONDITION_MESSAGE_LENGTH_MAX:
        found.append(too_long(child(path, "message"), CONDITION_MESSAGE_LENGTH_MAX))
    return found


def check_label_key(value: str, path: str, *, covered: bool = False) -> Findings:
    """A label key in a separate field."""
    return [
        invalid(path, value, message, origin="format=k8s-label-key", covered=covered)
        for message in formats.label_key(value)
    ]
