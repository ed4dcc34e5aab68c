"""Reads and fills in JSON values, tolerating unexpected types."""

from __future__ import annotations

from typing import Any

import msgspec

Object = dict[str, Any]


def copied(value: Any) -> Any:
    """A copy that shares no dict or list with the value."""
    # Thirty times as fast as a recursion in Python.
    return msgspec.to_builtins(value)


def members(value: Any, *names: str) -> Object:
    """The object at a path; an empty one if there is none."""
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else {}


def items(value: Any, *names: str) -> list[Object]:
    """The objects in the list at a path."""
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def text(value: Any, *names: str) -> str:
    """The text at a path; empty if there is none."""
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value if isinstance(value, str) else ""


def texts(value: Any, *names: str) -> list[str]:
    """The texts in the list at a path."""
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []


def number(value: Any, *names: str) -> int | None:
    """The whole number at a path."""
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def flag(value: Any, *names: str) -> bool:
    """Whether the value at a path is true."""
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value is True


def given(value: Any, *names: str) -> bool:
    """Whether there is a non-null value at a path."""
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value is not None


def fill(object_: Object, **defaults: Any) -> None:
    """Adds fields that are absent or null."""
    for name, default in defaults.items():
        if object_.get(name) is None:
            object_[name] = default


def fill_text(object_: Object, **defaults: str) -> None:
    """Adds texts that are absent, null or empty."""
    for name, default in defaults.items():
        if not object_.get(name):
            object_[name] = default


def present(object_: Object, name: str) -> Object:
    """The object in a field, created if absent. A value of another type is replaced only for the caller."""
    member = object_.get(name)
    if member is None:
        member = object_[name] = {}
    return member if isinstance(member, dict) else {}


def same(left: Any, right: Any) -> bool:
    """Equality as Kubernetes compares specs: absent, null and empty lists or maps are the same."""
    if left == right and type(left) is type(right):
        return True
    if isinstance(left, dict) and isinstance(right, dict):
        return all(same(left.get(name), right.get(name)) for name in left.keys() | right.keys())
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(same(one, other) for one, other in zip(left, right, strict=True))
    empty: tuple[Any, ...] = (None, {}, [])
    return any(left is item or left == item for item in empty) and any(right is item or right == item for item in empty)
