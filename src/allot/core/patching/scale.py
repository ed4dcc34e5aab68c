"""Ownership of the number of replicas, as the scale subresource sees it and as the resource itself does.

A Scale is another kind with one field that matters. Its managedFields are those of the resource which own the replicas, with
the path and version of a Scale; after a write they are turned back.
"""

from __future__ import annotations

from typing import Any

from allot.core.patching.fieldset import Path, Tree, difference, from_paths, has
from allot.core.patching.managed import Entries, encoded, stored_entries

Object = dict[str, Any]

SCALE_API_VERSION = "autoscaling/v1"
_SCALE_REPLICAS: Path = ("f:spec", "f:replicas")


def _entries(managed_fields: Any) -> Entries:
    return stored_entries({"metadata": {"managedFields": managed_fields}})


def scale_managed_fields(managed_fields: Any, replicas: Path) -> list[Object] | None:
    """managedFields for the Scale of a resource whose replicas are at a path (("f:spec", "f:replicas"))."""
    owners = {
        identity: entry._replace(api_version=SCALE_API_VERSION, fields=from_paths(_SCALE_REPLICAS), source=None)
        for identity, entry in _entries(managed_fields).items()
        if has(entry.fields, replicas)
    }
    return encoded(owners)


def resource_managed_fields(
    managed_fields: Any, scale_fields: Any, api_version: str, replicas: Path
) -> list[Object] | None:
    """managedFields of the resource after its Scale was written and has got the given ones."""
    before, scaled = _entries(managed_fields), _entries(scale_fields)
    # The same manager has another identity in a Scale if it is an updater, because that includes the version.
    owners = {(entry.manager, entry.operation, entry.subresource) for entry in scaled.values()}
    path: Tree = from_paths(replicas)
    result: Entries = {}
    for identity, entry in before.items():
        owner = (entry.manager, entry.operation, entry.subresource)
        if not has(entry.fields, replicas):
            result[identity] = entry
        elif owner in owners:
            owners.discard(owner)
            result[identity] = entry
        else:
            left = difference(entry.fields, path)
            if left:
                result[identity] = entry.with_fields(left)
    for entry in scaled.values():
        if (entry.manager, entry.operation, entry.subresource) in owners and has(entry.fields, _SCALE_REPLICAS):
            mine = entry._replace(api_version=api_version, fields=path, source=None)
            result[mine.identity] = mine
    return encoded(result)
