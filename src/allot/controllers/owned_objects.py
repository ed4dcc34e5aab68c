"""Objects by controller, as the server sent them."""

from __future__ import annotations

from typing import Any

from allot.core.model.meta import ObjectMeta
from allot.core.workloads.ownership import orphans_of

Object = dict[str, Any]

# The shared index of plain objects by controller.
BY_SOURCE_CONTROLLER = "controller"


def source_controller(object_: Object) -> Object | None:
    """The controller reference of an object."""
    for owner in object_["metadata"].get("ownerReferences") or ():
        if owner.get("controller"):
            found: Object = owner
            return found
    return None


def source_controller_keys(object_: Object) -> tuple[str, ...]:
    """The uid of an object's controller, or the key of orphans; an index of caches."""
    owner = source_controller(object_)
    if owner is not None:
        return (str(owner.get("uid", "")),)
    return (orphans_of(object_["metadata"].get("namespace", "")),)


def written_metadata(object_: Object) -> ObjectMeta:
    """The identity and version of a written object."""
    metadata = object_["metadata"]
    return ObjectMeta(
        name=metadata["name"],
        namespace=metadata.get("namespace", ""),
        uid=metadata["uid"],
        resource_version=metadata.get("resourceVersion", ""),
    )
