"""JSON Merge Patch (RFC 7386): members of the patch replace those of the object, null removes them."""

from __future__ import annotations

from typing import Any

from allot.core.model.decoding import DEPTH_MAX
from allot.core.patching.errors import malformed


def merge_patch(object_: dict[str, Any], patch: Any) -> dict[str, Any]:
    """The object with the patch merged into it; PatchError if the patch is no object. Input is never changed."""
    if not isinstance(patch, dict):
        raise malformed("Invalid JSON Patch")
    return _merged(object_, patch, 0)


def _merged(target: Any, patch: dict[str, Any], depth: int) -> dict[str, Any]:
    if depth >= DEPTH_MAX:
        raise malformed(f"Invalid JSON Patch: nested too deeply, expected at most {DEPTH_MAX} levels")
    merged = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        elif isinstance(value, dict):
            merged[name] = _merged(merged.get(name), value, depth + 1)
        else:
            merged[name] = value
    return merged


def merge_diff(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """The merge patch that makes the new object of the old one. Null as a value in `new` cannot be said."""
    patch: dict[str, Any] = {name: None for name in old if name not in new}
    for name, value in new.items():
        before = old.get(name)
        if isinstance(value, dict) and isinstance(before, dict):
            below = merge_diff(before, value)
            if below:
                patch[name] = below
        elif name not in old or before != value or type(before) is not type(value):
            patch[name] = value
    return patch
