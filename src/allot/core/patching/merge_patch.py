"""JSON Merge Patch (RFC 7386): members of the patch replace those of the object, null removes them."""

from __future__ import annotations

from typing import Any

from allot.core.patching.bounds import check_patch_bounds
from allot.core.patching.errors import malformed


def merge_patch(object_: dict[str, Any], patch: Any) -> dict[str, Any]:
    """The object with the patch merged into it; PatchError if the patch is no object. Input is never changed."""
    if not isinstance(patch, dict):
        raise malformed("Invalid JSON Patch")
    check_patch_bounds(patch)
    return _merged(object_, patch)


def _merged(target: Any, patch: dict[str, Any]) -> dict[str, Any]:
    merged = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        elif isinstance(value, dict):
            merged[name] = _merged(merged.get(name), value)
        else:
            merged[name] = _without_nulls(value)
    return merged


def _without_nulls(value: Any) -> Any:
    """Objects in lists lose their nulls too: the RFC would keep them, Kubernetes' library does not."""
    if isinstance(value, dict):
        return {name: _without_nulls(item) for name, item in value.items() if item is not None}
    return [_without_nulls(item) for item in value] if isinstance(value, list) else value


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
