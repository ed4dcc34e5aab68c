"""Updates of claims and pods that are in order at first sight, and what is stored for them.

The rules are those of `core.validation.ordinary`. Everything else goes the long way through a strategy.
"""

from __future__ import annotations

from typing import Any

from allot.apiserver.resources import Object
from allot.core.validation.ordinary import (
    are_ordinary_managers,
    is_ordinary_claim_status,
    is_ordinary_metadata_change,
    is_ordinary_pod_status,
)
from allot.core.validation.pod import MIRROR_POD_ANNOTATION

_MEMBERS = frozenset(("apiVersion", "kind", "metadata", "spec", "status"))


class OrdinaryClaims:
    """Claims that get or lose metadata (also the finalizer that is their end), an allocation of plain devices, or users."""

    def recognizes(self, object_: Object, old: Object, subresource: str) -> bool:
        """Whether an update is in order. The object shares with the stored one what is the same."""
        if not _has_spec_of(object_, old, may_end=subresource == ""):
            return False
        if subresource == "status":
            return is_ordinary_claim_status(object_.get("status"), old.get("status") or {}, old["spec"])
        return subresource == "" and object_.get("status") is old.get("status")

    def stored(self, object_: Object, old: Object, subresource: str) -> Object | None:
        """A recognized update as it is stored; None if it has to be looked at after all."""
        metadata = object_["metadata"]
        if not _has_ordinary_managers(metadata):
            return None
        if subresource == "":
            return object_
        kept = {**old["metadata"], "resourceVersion": metadata["resourceVersion"]}
        return {**old, "metadata": _with_managers(kept, metadata), "status": object_["status"]}


class OrdinaryPods:
    """Pods that get metadata or are told the names of their claims."""

    def recognizes(self, object_: Object, old: Object, subresource: str) -> bool:
        """Whether an update is in order. The object shares with the stored one what is the same."""
        if not _has_spec_of(object_, old) or _is_mirror(object_) or _is_mirror(old):
            return False
        if subresource == "status":
            owners = object_["metadata"].get("ownerReferences") is old["metadata"].get("ownerReferences")
            return owners and is_ordinary_pod_status(object_.get("status"), old.get("status"), old["spec"])
        return subresource == "" and object_.get("status") is old.get("status")

    def stored(self, object_: Object, old: Object, subresource: str) -> Object | None:  # noqa: ARG002
        """A recognized update as it is stored; None if it has to be looked at after all."""
        return object_ if _has_ordinary_managers(object_["metadata"]) else None


def _has_spec_of(object_: Object, old: Object, *, may_end: bool = False) -> bool:
    """Whether there is the stored spec, metadata in order, and nothing but what objects have."""
    spec = object_.get("spec")
    if type(spec) is not dict or spec is not old.get("spec") or not object_.keys() <= _MEMBERS:
        return False
    if object_.get("apiVersion") != old["apiVersion"] or object_.get("kind") != old["kind"]:
        return False
    return is_ordinary_metadata_change(object_["metadata"], old["metadata"], may_end=may_end)


def _is_mirror(pod: Object) -> bool:
    annotations: Any = pod["metadata"].get("annotations")
    return bool(annotations) and MIRROR_POD_ANNOTATION in annotations


def _has_ordinary_managers(metadata: Object) -> bool:
    return "managedFields" not in metadata or are_ordinary_managers(metadata["managedFields"])


def _with_managers(metadata: Object, source: Object) -> Object:
    if "managedFields" in source:
        metadata["managedFields"] = source["managedFields"]
    else:
        metadata.pop("managedFields", None)
    return metadata
