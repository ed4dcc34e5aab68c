"""Objects that are decoded into structs and written back as the server sent them, so that no field is lost.

The kinds of workloads are not in `model.kinds`: their structs have only the fields that controllers use.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from allot.core.lifecycle.actions import Resource, Update
from allot.core.model.codec import decode_served
from allot.core.model.encoding import encode_struct, merge_back
from allot.core.model.meta import APIStruct, ObjectMeta

Object = Mapping[str, Any]


class HasMetadata(Protocol):
    """An object."""

    @property
    def metadata(self) -> ObjectMeta:
        """Its metadata."""


T = TypeVar("T", bound=APIStruct)


class Whole(msgspec.Struct, Generic[T], frozen=True):
    """An object as a struct, and as it was sent."""

    resource: Resource
    value: T
    source: Object

    @property
    def metadata(self) -> ObjectMeta:
        """Its metadata."""
        found: ObjectMeta = self.value.metadata  # type: ignore[attr-defined]
        return found

    @property
    def reference(self) -> Object:
        """The reference for events."""
        metadata = self.metadata
        return {
            "apiVersion": self.resource.api_version,
            "kind": self.resource.kind,
            "metadata": {
                "name": metadata.name,
                "namespace": metadata.namespace,
                "uid": metadata.uid,
                "resourceVersion": metadata.resource_version,
            },
        }

    def with_parts(self, **parts: Any) -> dict[str, Any]:
        """The whole object with parts replaced (metadata, spec, status)."""
        head = {"apiVersion": self.resource.api_version, "kind": self.resource.kind}
        return {**self.source, **head, **parts}

    def with_annotations(self, annotations: Mapping[str, str]) -> dict[str, Any]:
        """Its metadata with other annotations."""
        return {**self.source["metadata"], "annotations": dict(annotations)}

    def update_status(self, status: APIStruct, **parts: Any) -> Update:
        """Replace the status; fields that its struct lacks are kept. Only if the object has not changed since it was read."""
        encoded = merge_back(self.source.get("status") or {}, encode_struct(status), type(status))
        return Update(resource=self.resource, object=self.with_parts(status=encoded, **parts), subresource="status")


def whole(resource: Resource, type_: type[T], source: Object) -> Whole[T]:
    """An object as the server sent it. DecodeError if it is not of that type."""
    metadata = source.get("metadata") or {}
    if "managedFields" in metadata:
        # Field managers are not needed here, and an update without managedFields leaves them unchanged.
        source = {**source, "metadata": {key: part for key, part in metadata.items() if key != "managedFields"}}
    return Whole(resource, decode_served(source, type_), source)
