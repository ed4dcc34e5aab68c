"""Paths into objects as rules and selectable fields write them (`.spec.name`, `.labels['a.b']`), read against a schema."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

Schema = Mapping[str, Any]

_TOKEN = re.compile(r"'(?:[^'\\]|\\.)*'?|[.\[\]]|[^.\[\]]+")
_ESCAPE = re.compile(r"\\(.)")
_ESCAPES = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "'": "'", "\\": "\\"}


class PathError(ValueError):
    """A path that leads nowhere."""


class FieldPath(msgspec.Struct, frozen=True):
    """A path as errors show it, its steps, and the schema of what is there."""

    path: str
    steps: tuple[str, ...]
    schema: Schema


def field_path(text: str, schema: Schema, *, allow_index: bool = True) -> FieldPath:
    """The path; PathError with upstream's words."""
    tokens = _TOKEN.findall(text)
    path, steps, at = "", [], 0

    def following() -> str:
        nonlocal at
        at += 1
        if at >= len(tokens):
            raise PathError("unexpected end of JSON path")
        return str(tokens[at])

    while at < len(tokens):
        if tokens[at] == "[":
            if not allow_index:
                raise PathError("array notation is not allowed")
            name = _unquoted(following())
            named, schema = _below(schema, name)
            if following() != "]":
                raise PathError(f"expected ] but got {tokens[at]}")
        elif tokens[at] == ".":
            name = following()
            named, schema = _below(schema, name)
        else:
            raise PathError(f"expected [ or . but got: {tokens[at]}")
        steps.append(name)
        path += (f".{name}" if path else name) if named else f"[{name}]"
        at += 1
    return FieldPath(path, tuple(steps), schema)


def _below(schema: Schema, name: str) -> tuple[bool, Schema]:
    properties, additional = schema.get("properties"), schema.get("additionalProperties")
    if isinstance(properties, dict):
        if isinstance(properties.get(name), dict):
            return True, properties[name]
    elif isinstance(additional, dict):
        return False, additional
    raise PathError("does not refer to a valid field")


def _unquoted(token: str) -> str:
    if len(token) < 2 or token[0] != "'" or token[-1] != "'":
        raise PathError(f"expected single quoted string but got {token}")

    def plain(found: re.Match[str]) -> str:
        if found[1] not in _ESCAPES:
            raise PathError(f"invalid string literal: invalid escape char {found[0]}")
        return _ESCAPES[found[1]]

    return _ESCAPE.sub(plain, token[1:-1])


def read_text(object_: Any, steps: tuple[str, ...]) -> str:
    """The scalar at a path as field selectors compare it; empty if there is none."""
    for step in steps:
        if not isinstance(object_, dict):
            return ""
        object_ = object_.get(step)
    if isinstance(object_, bool):
        return "true" if object_ else "false"
    return str(object_) if isinstance(object_, str | int) else ""
