"""The bound on how deep patches and objects may be nested, told as a refusal of the patch."""

from __future__ import annotations

from allot.core.model.decoding import DecodeError, check_bounds
from allot.core.patching.errors import malformed


def check_patch_bounds(value: object) -> None:
    """PatchError (400) if a value is nested too deeply to be worked on."""
    try:
        check_bounds(value)
    except DecodeError as error:
        raise malformed(f"invalid patch: {error}") from None
