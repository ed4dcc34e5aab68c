"""Field ownership: metadata.managedFields of writes other than apply."""

from __future__ import annotations

from typing import Any

from allot.apiserver.kinds.versions import convert_to
from allot.apiserver.objects.options import WriteOptions
from allot.apiserver.registry import Registry, Served
from allot.apiserver.resources import Refused
from allot.apiserver.server_context import ServerContext
from allot.core.patching.fieldset import Tree
from allot.core.patching.managed import Convert
from allot.core.patching.resets import reset_fields
from allot.core.patching.tracking import track_update
from allot.core.schema import Schema

Object = dict[str, Any]


def track(
    context: ServerContext, served: Served, old: Object | None, new: Object, options: WriteOptions, subresource: str
) -> Object:
    """The new object, in the storage version, with managedFields that say who changed what."""
    schema = served.schema
    if schema is None:
        return new
    managed = track_update(
        None if old is None else served.present(old),
        served.present(new),
        manager=options.field_manager,
        schema=schema,
        api_version=served.resource.api_version,
        now=context.clock.now(),
        subresource=subresource,
        reset=resets(served, subresource),
        convert=converter(context.registry, served),
    )
    return with_managed_fields(new, managed)


def converter(registry: Registry, served: Served) -> Convert | None:
    """Converts objects of a row to the other versions of their kind, in which others may have written them; None if
    there are no others."""
    kept = served.converter
    if kept is None or kept[0] != registry.generation:
        kept = served.converter = (registry.generation, _converter(registry, served))
    return kept[1]


def _converter(registry: Registry, served: Served) -> Convert | None:
    # The rows as they are now: when one comes or goes, this is recreated.
    versions = dict(registry.versions_of(served))
    if len(versions) < 2:
        return None
    resource = served.resource

    def convert(object_: Object, api_version: str) -> tuple[Object, Schema] | None:
        row = versions.get(api_version)
        schema = None if row is None else row.schema
        if row is None or schema is None:
            return None
        try:
            # The object in today's storage version, whichever version it was converted to before.
            if served.custom:
                stored = served.strategy.current(object_)
            else:
                given = object_.get("apiVersion", "")
                stored = convert_to(object_, resource.kind, given, resource.storage_api_version)
            return row.present(stored), schema
        except Refused:
            return None

    return convert


def resets(served: Served, subresource: str) -> Tree:
    """The fields that a write of the resource or one of its subresources cannot change."""
    resource = served.resource
    return reset_fields(resource.group, resource.plural, subresource, "status" in resource.subresources)


def with_managed_fields(object_: Object, managed: list[Object] | None) -> Object:
    """The object with these managedFields."""
    metadata = object_["metadata"]
    if managed is None:
        if "managedFields" not in metadata:
            return object_
        return {**object_, "metadata": {name: each for name, each in metadata.items() if name != "managedFields"}}
    return {**object_, "metadata": {**metadata, "managedFields": managed}}
