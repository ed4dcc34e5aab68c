"""A change to an object of a cluster, as data: it can be proposed, tried and applied."""

from __future__ import annotations

import re
from typing import Any

import msgspec
from msgspec.structs import replace

from allot.core.model import resource_v1
from allot.core.model.convert import from_hub

# Versions of resource.k8s.io in which a request has no `exactly`, and a device has `basic`.
_FLAT_VERSIONS = ("v1beta1", "v1alpha3")
_EXACTLY = re.compile(r"(/devices/requests/\d+)/exactly(?=/|$)")
_DEVICE = re.compile(r"^(/spec/devices/\d+)/(?!name$|basic(?:/|$))")


class Patch(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A change to one object, ready to be applied to its v1 form, or to that of apiVersion."""

    # patch, create, delete; gate: a feature gate of the control plane.
    action: str
    kind: str = ""
    namespace: str = ""
    name: str = ""
    # For patch: JSON patch operations (RFC 6902).
    patch: tuple[dict[str, Any], ...] = ()
    # For create.
    object: dict[str, Any] | None = None
    # For gate.
    enabled: bool | None = None
    # The field is immutable: the object must be deleted and recreated.
    recreate: bool = False
    # The version that the paths refer to, if it is not v1.
    api_version: str = ""


def in_version(patch: Patch, version: str) -> Patch:
    """The same change for a server with a version of resource.k8s.io before v1. Changes are tried in v1."""
    api_version = f"{resource_v1.GROUP}/{version}"
    if patch.object is not None and patch.object.get("apiVersion") == f"{resource_v1.GROUP}/v1":
        return replace(patch, object=from_hub(patch.object, api_version))
    if patch.kind not in _RENAMED or not patch.patch or version not in _FLAT_VERSIONS:
        return patch
    pattern, new = _RENAMED[patch.kind]
    operations = tuple({**each, "path": pattern.sub(new, each["path"])} for each in patch.patch)
    return replace(patch, patch=operations, api_version=api_version)


_RENAMED = {
    "ResourceClaim": (_EXACTLY, r"\1"),
    "ResourceClaimTemplate": (_EXACTLY, r"\1"),
    "ResourceSlice": (_DEVICE, r"\1/basic/"),
}
