"""From a definition to rows of the registry: one per served version."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from allot.apiserver.customresources.conversion_webhooks import Conversions, ConversionWebhook
from allot.apiserver.customresources.strategy import CustomStrategy, CustomVersion, renamed
from allot.apiserver.printing.tables import UnreadableColumn, custom_printer
from allot.apiserver.registry import Convert, ScalePaths, Served
from allot.apiserver.resources import Object, Resource, Subresource
from allot.core.customresources.conditions import is_terminating
from allot.core.customresources.definition import storage_version, versions_of
from allot.core.customresources.field_paths import PathError, field_path, read_text
from allot.core.customresources.structural import any_schema
from allot.core.schema import Schemas

VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
# No new objects while the definition is being deleted.
_VERBS_TERMINATING = tuple(verb for verb in VERBS if verb != "create")
_READ_WRITE = ("get", "patch", "update")
# The schema of objects that may have any field.
_EVERYTHING: Mapping[str, Any] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


def custom_rows(definition: Mapping[str, Any], schemas: Schemas, conversions: Conversions) -> list[Served]:
    """The rows of an accepted definition."""
    strategy = (definition["spec"].get("conversion") or {}).get("strategy")
    webhook = conversions.webhook(definition) if strategy == "Webhook" else None
    stored = storage_version(definition)
    # Only definitions first written as v1beta1 may say so.
    keeps_all = definition["spec"].get("preserveUnknownFields") is True
    versions = {str(one.get("name")): _version(one, schemas, keeps_all=keeps_all) for one in versions_of(definition)}
    storage = versions.get(stored)
    if storage is None:
        return []
    return [
        _row(definition, one, versions[str(one["name"])], storage, webhook)
        for one in versions_of(definition)
        if one.get("served") is True
    ]


def _version(one: Mapping[str, Any], schemas: Schemas, *, keeps_all: bool) -> CustomVersion:
    """A version; without a schema, its objects may have any field."""
    raw = (one.get("schema") or {}).get("openAPIV3Schema") or {}
    fields = _EVERYTHING if keeps_all or not raw else raw
    return CustomVersion(str(one.get("name")), raw, schemas.from_structural(fields))


def _row(
    definition: Mapping[str, Any],
    one: Mapping[str, Any],
    version: CustomVersion,
    storage: CustomVersion,
    webhook: ConversionWebhook | None,
) -> Served:
    resource = _resource(definition, one, version, storage.name)
    try:
        printer = custom_printer(one.get("additionalPrinterColumns") or ())
    except UnreadableColumn:
        printer = custom_printer(())
    return Served(
        resource,
        CustomStrategy(resource, version, storage, webhook),
        lambda: version.schema,
        _convert(resource, version, definition, webhook),
        _scale(one),
        dict(version.raw),
        printer,
        webhook,
    )


def _resource(definition: Mapping[str, Any], one: Mapping[str, Any], version: CustomVersion, stored: str) -> Resource:
    spec = definition["spec"]
    names = (definition.get("status") or {}).get("acceptedNames") or spec["names"]
    group, plural = spec["group"], names["plural"]
    warning = ""
    if one.get("deprecated") is True:
        warning = one.get("deprecationWarning") or f"{group}/{version.name} {names['kind']} is deprecated"
    return Resource(
        group=group,
        version=version.name,
        kind=names["kind"],
        plural=plural,
        singular=names.get("singular") or names["kind"].lower(),
        namespaced=spec.get("scope") == "Namespaced",
        storage_version=stored,
        storage_resource=f"{group}/{plural}",
        short_names=tuple(names.get("shortNames") or ()),
        categories=tuple(names.get("categories") or ()),
        subresources=_subresources(one),
        selectable_fields=_selectable(one, version),
        unconditional_update=False,
        verbs=_VERBS_TERMINATING if is_terminating(definition) else VERBS,
        warning=warning,
    )


def _subresources(one: Mapping[str, Any]) -> dict[str, Subresource]:
    declared = one.get("subresources") or {}
    found: dict[str, Subresource] = {}
    if "status" in declared:
        found["status"] = Subresource("status", _READ_WRITE)
    if "scale" in declared:
        found["scale"] = Subresource("scale", _READ_WRITE, group="autoscaling", version="v1", kind="Scale")
    return found


def _scale(one: Mapping[str, Any]) -> ScalePaths | None:
    scale = (one.get("subresources") or {}).get("scale")
    if not isinstance(scale, dict):
        return None
    read = {name: tuple(str(scale.get(name) or "").strip(".").split(".")) for name in scale}
    selector = read.get("labelSelectorPath", ())
    return ScalePaths(
        read.get("specReplicasPath", ("spec", "replicas")),
        read.get("statusReplicasPath", ("status", "replicas")),
        selector if selector != ("",) else (),
    )


def _selectable(one: Mapping[str, Any], version: CustomVersion) -> dict[str, Callable[[Object], str]]:
    found: dict[str, Callable[[Object], str]] = {}
    for field in one.get("selectableFields") or ():
        try:
            path = field_path(str(field.get("jsonPath")), version.raw, allow_index=False)
        except PathError:
            continue
        found[path.path] = _reader(path.steps)
    return found


def _reader(steps: tuple[str, ...]) -> Callable[[Object], str]:
    return lambda object_: read_text(object_, steps)


def _convert(
    resource: Resource, version: CustomVersion, definition: Mapping[str, Any], webhook: ConversionWebhook | None
) -> Convert | None:
    """Stored objects in the version of the row: converted by the webhook, or else renamed to the version, and with what its
    schema says today.

    Objects may have been stored when the schema had other fields and defaults, and in another version; in the only
    version that ever was stored, without defaults, they are served as they are.
    """
    has_defaults = any_schema(version.raw, lambda one: one.get("default") is not None)
    stored = {*((definition.get("status") or {}).get("storedVersions") or ()), resource.storage_version}
    if stored == {resource.version} and not has_defaults:
        return None

    def converted(objects: Sequence[Object]) -> list[Object]:
        return [version.completed(each) for each in renamed(objects, resource.api_version, webhook)]

    return converted
