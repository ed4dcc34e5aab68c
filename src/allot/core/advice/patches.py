"""A change to an object of a cluster, as data: what is proposed, tried out, and can be applied."""

from __future__ import annotations

from typing import Any

import msgspec


class Patch(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A change to one object, ready to be applied to its v1 form."""

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
    # The API does not let the field be changed in place: the object has to be deleted and made again.
    recreate: bool = False
