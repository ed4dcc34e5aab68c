"""Objects as the API server keeps them: without fields that their kind does not have.

For built-in kinds also without what a Go server would lose on the way through its structs: nulls, and empty lists and maps in
optional fields. For custom resources null and empty count and stay. Input is never changed; what needs no change is shared.
"""

from __future__ import annotations

from typing import Any

from allot.core.model.decoding import DEPTH_MAX
from allot.core.schema.node import Kind, Schema

# What null becomes as an element of a list or map.
_ZERO: dict[Kind, Any] = {
    Kind.STRING: "",
    Kind.BYTES: "",
    Kind.BOOLEAN: False,
    Kind.INTEGER: 0,
    Kind.NUMBER: 0,
    Kind.QUANTITY: "0",
    Kind.INT_OR_STRING: 0,
}


def prune(object_: dict[str, Any], schema: Schema) -> dict[str, Any]:
    """The object without unknown fields; the same object if there are none."""
    pruned = _pruned(object_, schema, 0)
    assert isinstance(pruned, dict)
    return pruned


def _pruned(value: Any, schema: Schema, depth: int) -> Any:
    if isinstance(value, dict) and depth < DEPTH_MAX:
        if schema.kind in (Kind.OBJECT, Kind.MAP):
            return _pruned_members(value, schema, depth + 1)
    elif isinstance(value, list) and schema.items is not None and depth < DEPTH_MAX:
        return _pruned_items(value, schema, depth + 1)
    return value


def _pruned_members(value: dict[str, Any], schema: Schema, depth: int) -> dict[str, Any]:
    kept: dict[str, Any] | None = None
    for name, item in value.items():
        node = schema.properties.get(name, schema.additional)
        if node is None:
            keep, new = schema.preserve_unknown, item
        else:
            new = _pruned(item, node, depth) if item is not None else _for_null(schema, node)
            keep = not _is_lost(new, node, name, schema)
        if keep and new is item:
            if kept is not None:
                kept[name] = item
            continue
        if kept is None:
            # Everything before this member is as it was.
            kept = {}
            for before in value:
                if before == name:
                    break
                kept[before] = value[before]
        if keep:
            kept[name] = new
    return value if kept is None else kept


def _for_null(schema: Schema, node: Schema) -> Any:
    """Null in a map of built-in values is the zero value; elsewhere it stays null, to be kept or lost."""
    return _ZERO.get(node.kind) if schema.kind is Kind.MAP and not schema.structural else None


def _is_lost(value: Any, node: Schema, name: str, schema: Schema) -> bool:
    if schema.structural or schema.kind is Kind.MAP:
        return False
    if value is None:
        return True
    return not value and node.kind in (Kind.LIST, Kind.MAP) and name not in schema.kept_empty


def _pruned_items(value: list[Any], schema: Schema, depth: int) -> list[Any]:
    items = schema.items
    assert items is not None
    pruned = []
    same = True
    for item in value:
        if item is None and not schema.structural:
            new = {} if items.kind in (Kind.OBJECT, Kind.MAP) else _ZERO.get(items.kind)
        else:
            new = _pruned(item, items, depth)
        same = same and new is item
        pruned.append(new)
    return value if same else pruned
