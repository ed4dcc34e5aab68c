"""Manifests to the typed objects that allocation needs, checked as the API server would check them.

Older API versions are converted and defaults filled in. An object that the server would refuse is refused here, with all
its errors, because an answer about it would be worthless. Objects that do not matter for allocation are ignored.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import msgspec

from allot.core.features import ALL_GATES
from allot.core.model import core_v1, resource_v1
from allot.core.model.codec import DecodeError, decode_object
from allot.core.model.convert import ConversionError
from allot.core.model.kinds import UnknownKind, kind_of
from allot.core.model.meta import APIStruct
from allot.core.validation.validate import DEFAULT_NAMESPACE, prepare_create, validate_create
from allot.reading.errors import Invalid, Unreadable
from allot.reading.listener import Listener
from allot.reading.manifests import Manifest, check_unique

T = TypeVar("T", bound=APIStruct)

ERRORS_SHOWN_MAX = 20
# Kinds that are validated before use; nodes are not validated.
_VALIDATED: tuple[type[APIStruct], ...] = (
    core_v1.Pod,
    resource_v1.DeviceClass,
    resource_v1.DeviceTaintRule,
    resource_v1.ResourceClaim,
    resource_v1.ResourceClaimTemplate,
    resource_v1.ResourceSlice,
)


class Cluster(msgspec.Struct, frozen=True):
    """The objects in the manifests, in order."""

    objects: tuple[APIStruct, ...]

    def of(self, type_: type[T]) -> list[T]:
        """The objects of one kind."""
        return [found for found in self.objects if isinstance(found, type_)]


def cluster_from(manifests: Sequence[Manifest], listener: Listener) -> Cluster:
    """All objects that matter for allocation; Unreadable or Invalid if one is unusable."""
    check_unique(manifests)
    objects: list[APIStruct] = []
    refusals: list[str] = []
    with listener.progress("checking objects", len(manifests)) as advance:
        for manifest in manifests:
            advance()
            if not _takes_part(manifest, listener):
                continue
            object_, errors = _typed(manifest, listener)
            refusals.extend(f"{manifest}: {error}" for error in errors)
            objects.append(object_)
    if refusals:
        raise Invalid(_listed(refusals), "allot validate shows all errors of all objects")
    return Cluster(tuple(objects))


def _listed(refusals: Sequence[str]) -> str:
    shown = refusals[:ERRORS_SHOWN_MAX]
    more = len(refusals) - len(shown)
    return "\nerror: ".join([*shown, f"and {more} more errors"] if more else shown)


def _takes_part(manifest: Manifest, listener: Listener) -> bool:
    try:
        type_ = kind_of(manifest.api_version, manifest.kind).type
    except UnknownKind as error:
        if manifest.group == resource_v1.GROUP:
            raise Unreadable(f"{manifest.origin}: {error}") from None
        listener.note(f"{manifest} ({manifest.api_version}) does not matter for allocation and is ignored")
        return False
    return type_ is core_v1.Node or type_ in _VALIDATED


def _typed(manifest: Manifest, listener: Listener) -> tuple[APIStruct, tuple[str, ...]]:
    """The object, and the API server's objections."""
    type_ = kind_of(manifest.api_version, manifest.kind).type
    try:
        if type_ not in _VALIDATED:
            return decode_object(manifest.value).object, ()
        # With every gate on, no field is dropped: the allocator decides which features count.
        prepared = prepare_create(manifest.value, gates=ALL_GATES, now=None, namespace=DEFAULT_NAMESPACE)
        created: APIStruct = prepared.object
        if isinstance(created, resource_v1.ResourceClaim):
            created = _with_status(created, manifest)
    except (DecodeError, ConversionError) as error:
        raise Unreadable(f"{manifest.origin}: {error}") from None
    for warning in prepared.warnings:
        listener.warn(f"{manifest}: {warning} ({manifest.origin})")
    return created, tuple(str(error) for error in validate_create(prepared, gates=ALL_GATES))


def _with_status(claim: resource_v1.ResourceClaim, manifest: Manifest) -> resource_v1.ResourceClaim:
    """Creating a claim clears its status, but here the status matters: it records what is in use."""
    read = decode_object(manifest.value).object
    assert isinstance(read, resource_v1.ResourceClaim), f"{manifest} is no claim"
    return msgspec.structs.replace(claim, status=read.status)
