"""The depth limit of patches and objects, reported as a refusal of the patch."""

from __future__ import annotations

import msgspec

from allot.core.model.decoding import DEPTH_MAX, DecodeError, check_bounds
from allot.core.patching.errors import malformed


def check_patch_bounds(value: object) -> None:
    """PatchError (400) if a value is nested too deeply to be worked on."""
    if _is_small(value):
        return
    try:
        check_bounds(value)
    except DecodeError as error:
        raise malformed(f"invalid patch: {error}") from None


def _is_small(value: object) -> bool:
    """Whether a value has so few brackets that they cannot be nested deeply."""
    try:
        encoded = msgspec.json.encode(value)
    except (TypeError, ValueError, RecursionError):
        return False
    return encoded.count(b"{") + encoded.count(b"[") < DEPTH_MAX
