"""Objects by who controls them, as the server sent them."""

from __future__ import annotations

from typing import Any

from allot.core.model.meta import ObjectMeta
from allot.core.workloads.ownership import orphans_of

Object = dict[str, Any]

# The index of caches of plain objects by who controls them, shared by all who have it.
BY_SOURCE_CONTROLLER = "controller"


def source_controller(object_: Object) -> Object | None:
    """The ownerReference that says who controls an object."""
    for owner in object_["metadata"].get("ownerReferences") or ():
        if owner.get("controller"):
            found: Object = owner
            return found
    return None


def source_controller_keys(object_: Object) -> tuple[str, ...]:
    """The uid of who controls an object, or where orphans are found; an index of caches."""
    owner = source_controller(object_)
    if owner is not None:
        return (str(owner.get("uid", "")),)
    return (orphans_of(object_["metadata"].get("namespace", "")),)


def written_metadata(object_: Object) -> ObjectMeta:
    """What tells an object that was written from others, and from earlier states of it."""
    metadata = object_["metadata"]
    return ObjectMeta(
        name=metadata["name"],
        namespace=metadata.get("namespace", ""),
        uid=metadata["uid"],
        resource_version=metadata.get("resourceVersion", ""),
    )
