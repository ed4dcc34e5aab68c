"""Defaults that a schema states, filled in as for custom resources.

A default stands for an absent member, and for null where null is not allowed. A null that is not allowed and has no default
is removed. Defaults of built-in kinds are not in their schemas: `core.validation` has those.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from allot.core.model.decoding import DEPTH_MAX
from allot.core.schema.node import Schema


def apply_defaults(object_: dict[str, Any], schema: Schema) -> dict[str, Any]:
    """The object with its defaults; the same object if it needs none. Input is never changed."""
    defaulted = _defaulted(object_, schema, 0)
    assert isinstance(defaulted, dict)
    return defaulted


def _defaulted(value: Any, schema: Schema, depth: int) -> Any:
    if depth < DEPTH_MAX:
        if isinstance(value, dict):
            return _defaulted_members(value, schema, depth + 1)
        if isinstance(value, list) and schema.items is not None:
            items = [_item(item, schema.items, depth + 1) for item in value]
            return value if all(new is old for new, old in zip(items, value, strict=True)) else items
    return value


def _item(value: Any, schema: Schema, depth: int) -> Any:
    if value is None and not schema.nullable and schema.has_default:
        value = deepcopy(schema.default)
    return _defaulted(value, schema, depth)


def _defaulted_members(value: dict[str, Any], schema: Schema, depth: int) -> dict[str, Any]:
    changed: dict[str, Any] = {}
    removed = []
    for name, item in value.items():
        node = schema.member(name)
        if node is None:
            continue
        if item is None and not node.nullable and not node.has_default and name in schema.properties:
            removed.append(name)
            continue
        new = _item(item, node, depth)
        if new is not item:
            changed[name] = new
    for name, node in schema.properties.items():
        if name not in value and node.has_default and node.default is not None:
            changed[name] = _defaulted(deepcopy(node.default), node, depth)
    if not changed and not removed:
        return value
    return {name: item for name, item in value.items() if name not in removed} | changed
