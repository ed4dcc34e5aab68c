"""Finds the parts of an updated object that equal the stored one, because updates mostly repeat it.

Equal parts are made identical objects, so that every later step can tell with one comparison what it may
skip: they were checked, defaulted and validated when they were stored.
"""

from __future__ import annotations

from typing import Any

import msgspec

Object = dict[str, Any]

# Null differs from absent.
_MISSING = object()


def sharing(new: Object, old: Object) -> Object:
    """The new object, with the parts of the old one wherever they are identical, and copies of the others: the
    sender may continue using them."""
    if type(new) is not dict:
        # An object with duplicate fields must be checked as written.
        return new
    shared = {}
    for name, value in new.items():
        before = old.get(name)
        if value is not before:
            if name == "metadata" and type(value) is dict and type(before) is dict:
                value = _sharing_members(value, before)
            else:
                value = before if _is_same(value, before) else _copied(value)
        shared[name] = value
    return shared


def _sharing_members(new: Object, old: Object) -> Object:
    shared = dict(new)
    for name, value in new.items():
        before = old.get(name)
        if value is not before:
            shared[name] = before if _is_same(value, before) else _copied(value)
    return shared


def _copied(value: Any) -> Any:
    if type(value) is not dict and type(value) is not list:
        return value
    try:
        return msgspec.to_builtins(value)
    except (TypeError, ValueError, RecursionError):
        # Not JSON: the checks refuse it.
        return value


def _is_same(value: Any, before: Any) -> bool:
    type_ = type(value)
    if value is before or type_ is not type(before):
        return value is before
    if type_ is not dict and type_ is not list:
        return bool(value == before)
    try:
        # Equality is not enough: 1, 1.0 and true are equal.
        return len(value) == len(before) and msgspec.json.encode(value) == msgspec.json.encode(before)
    except (TypeError, ValueError):
        return False


def changed_parts(new: Object, old: Object) -> Object:
    """The parts not shared with the old object; of metadata, only the members that are not."""
    changed = {name: value for name, value in new.items() if value is not old.get(name, _MISSING)}
    metadata, before = changed.get("metadata"), old.get("metadata")
    if isinstance(metadata, dict) and isinstance(before, dict):
        changed["metadata"] = {
            name: value for name, value in metadata.items() if value is not before.get(name, _MISSING)
        }
    return changed
