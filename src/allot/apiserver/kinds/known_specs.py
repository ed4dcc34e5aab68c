"""Specs that were found in order: objects made from one template need not be looked at again and again.

Validation of a spec depends on nothing but the spec, so what was in order once is in order for ever. Workloads create the
same pod and claim thousands of times; comparing a spec with known ones costs a tenth of validating it.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

_SPECS_MAX = 256
_SPEC_SIZE_MAX = 8 * 1024

# Every pod gets the volume for its token under a name of its own.
_token_volume = re.compile(rb"kube-api-access-[a-z0-9]{5}\b")


class KnownSpecs:
    """Some specs of one kind, those seen last."""

    __slots__ = ("_specs",)

    def __init__(self) -> None:
        self._specs: dict[bytes, None] = {}

    @staticmethod
    def key(object_: dict[str, Any]) -> bytes | None:
        """What stands for the object's spec; None when it is too large to be kept."""
        try:
            encoded = msgspec.json.encode(object_.get("spec"))
        except (TypeError, ValueError):
            # What JSON cannot carry is for validation to refuse.
            return None
        if len(encoded) > _SPEC_SIZE_MAX:
            return None
        # With several such names it matters which is which.
        if len(set(_token_volume.findall(encoded))) == 1:
            encoded = _token_volume.sub(b"kube-api-access-", encoded)
        return encoded

    def __contains__(self, key: bytes | None) -> bool:
        return key is not None and key in self._specs

    def add(self, key: bytes | None) -> None:
        """Remember a spec, and forget the oldest when there are too many."""
        if key is None:
            return
        if len(self._specs) >= _SPECS_MAX:
            del self._specs[next(iter(self._specs))]
        self._specs[key] = None
