"""Uniqueness of items in sets and keyed lists."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from allot.core.validation.fields import INVALID, FieldError, duplicate, go_json, render

Schema = Mapping[str, Any]


def check_list_types(value: Any, schema: Schema, path: str = "") -> list[FieldError]:
    """Everything that occurs twice where it may not."""
    if isinstance(value, dict):
        return _check_members(value, schema, path)
    if isinstance(value, list):
        return _check_items(value, schema, path)
    return []


def _check_members(value: Mapping[str, Any], schema: Schema, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    properties, additional = schema.get("properties"), schema.get("additionalProperties")
    for name in sorted(value):
        if isinstance(properties, dict) and isinstance(properties.get(name), dict):
            errors += check_list_types(value[name], properties[name], f"{path}.{name}" if path else name)
        elif isinstance(additional, dict):
            errors += check_list_types(value[name], additional, f"{path}[{name}]")
    return errors


def _check_items(value: list[Any], schema: Schema, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    match schema.get("x-kubernetes-list-type"):
        case "set":
            errors += [duplicate(f"{path}[{at}]", value[at]).error for at in _repeated(value)]
        case "map":
            errors += _check_keyed(value, schema.get("x-kubernetes-list-map-keys") or (), path)
    items = schema.get("items")
    if isinstance(items, dict):
        for position, item in enumerate(value):
            errors += check_list_types(item, items, f"{path}[{position}]")
    return errors


def _check_keyed(value: list[Any], keys: Any, path: str) -> list[FieldError]:
    for position, item in enumerate(value):
        if item is not None and not isinstance(item, dict):
            text = f"Invalid value: {render(item)}: must be an object for an array of list-type map"
            return [FieldError(f"{path}[{position}]", INVALID, text)]
    found = [{key: item[key] for key in keys if key in item} if item else {} for item in value]
    return [duplicate(f"{path}[{at}]", found[at]).error for at in _repeated(found)]


def _repeated(items: list[Any]) -> list[int]:
    """Where something occurs for the second time; further times are not told."""
    times: dict[str, int] = {}
    found = []
    for position, item in enumerate(items):
        text = go_json(item)
        times[text] = times.get(text, 0) + 1
        if times[text] == 2:
            found.append(position)
    return found
