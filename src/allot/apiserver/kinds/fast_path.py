"""The fast path for updates of claims and pods, and what is stored for them.

The rules are those of `core.validation.fast_path`. Everything else takes the full path through the strategy.
"""

from __future__ import annotations

from typing import Any

from allot.apiserver.resources import Object
from allot.core.validation.fast_path import (
    accepts_claim_status,
    accepts_managers,
    accepts_metadata_change,
    accepts_pod_status,
)
from allot.core.validation.pod import MIRROR_POD_ANNOTATION

_MEMBERS = frozenset(("apiVersion", "kind", "metadata", "spec", "status"))


class ClaimFastPath:
    """Claims that gain or lose metadata (even their last finalizer), an allocation of plain devices, or consumers."""

    def accepts(self, object_: Object, old: Object, subresource: str) -> bool:
        """Whether an update is certainly valid. The object shares unchanged parts with the stored one."""
        if not _has_spec_of(object_, old, may_end=subresource == ""):
            return False
        if subresource == "status":
            return accepts_claim_status(object_.get("status"), old.get("status") or {}, old["spec"])
        return subresource == "" and object_.get("status") is old.get("status")

    def stored(self, object_: Object, old: Object, subresource: str) -> Object | None:
        """An accepted update as stored; None if it needs the full path after all."""
        metadata = object_["metadata"]
        if not _has_accepted_managers(metadata):
            return None
        if subresource == "":
            return object_
        kept = {**old["metadata"], "resourceVersion": metadata["resourceVersion"]}
        return {**old, "metadata": _with_managers(kept, metadata), "status": object_["status"]}


class PodFastPath:
    """Pods that gain metadata or the names of their claims."""

    def accepts(self, object_: Object, old: Object, subresource: str) -> bool:
        """Whether an update is certainly valid. The object shares unchanged parts with the stored one."""
        if not _has_spec_of(object_, old) or _is_mirror(object_) or _is_mirror(old):
            return False
        if subresource == "status":
            owners = object_["metadata"].get("ownerReferences") is old["metadata"].get("ownerReferences")
            return owners and accepts_pod_status(object_.get("status"), old.get("status"), old["spec"])
        return subresource == "" and object_.get("status") is old.get("status")

    def stored(self, object_: Object, old: Object, subresource: str) -> Object | None:  # noqa: ARG002
        """An accepted update as stored; None if it needs the full path after all."""
        return object_ if _has_accepted_managers(object_["metadata"]) else None


def _has_spec_of(object_: Object, old: Object, *, may_end: bool = False) -> bool:
    """Whether the spec is the stored one, the metadata is valid, and there are no unknown members."""
    spec = object_.get("spec")
    if type(spec) is not dict or spec is not old.get("spec") or not object_.keys() <= _MEMBERS:
        return False
    if object_.get("apiVersion") != old["apiVersion"] or object_.get("kind") != old["kind"]:
        return False
    return accepts_metadata_change(object_["metadata"], old["metadata"], may_end=may_end)


def _is_mirror(pod: Object) -> bool:
    annotations: Any = pod["metadata"].get("annotations")
    return bool(annotations) and MIRROR_POD_ANNOTATION in annotations


def _has_accepted_managers(metadata: Object) -> bool:
    return "managedFields" not in metadata or accepts_managers(metadata["managedFields"])


def _with_managers(metadata: Object, source: Object) -> Object:
    if "managedFields" in source:
        metadata["managedFields"] = source["managedFields"]
    else:
        metadata.pop("managedFields", None)
    return metadata
