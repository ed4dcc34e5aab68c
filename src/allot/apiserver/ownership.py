"""Who set which fields: metadata.managedFields of writes that are no applies."""

from __future__ import annotations

from typing import Any

from allot.apiserver.options import WriteOptions
from allot.apiserver.registry import Served
from allot.core.patching.fieldset import Tree
from allot.core.patching.resets import reset_fields
from allot.core.patching.tracking import track_update
from allot.process.clock import Clock

Object = dict[str, Any]


def track(
    served: Served, old: Object | None, new: Object, options: WriteOptions, subresource: str, clock: Clock
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
        now=clock.now(),
        subresource=subresource,
        reset=resets(served, subresource),
    )
    return with_managed_fields(new, managed)


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
