"""Takes part of another server's OpenAPI document (version 2), to be joined with one's own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

_REFERENCE = "$ref"
_PREFIX = "#/definitions/"
_DEPTH_MAX = 100


class OwnPart(NamedTuple):
    """Some paths of a document, and the definitions that these refer to."""

    definitions: Mapping[str, Any]
    paths: Mapping[str, Any]


def own_part(document: Mapping[str, Any], prefix: str) -> OwnPart:
    """The paths below a prefix, with what they need."""
    paths, definitions = document.get("paths"), document.get("definitions")
    if not isinstance(paths, dict) or not isinstance(definitions, dict):
        return OwnPart({}, {})
    chosen = {path: each for path, each in paths.items() if path.startswith(prefix)}
    needed: dict[str, Any] = {}
    waiting = sorted(_references(chosen))
    while waiting:
        name = waiting.pop()
        if name in definitions and name not in needed:
            needed[name] = definitions[name]
            waiting += sorted(_references(definitions[name]))
    return OwnPart(needed, chosen)


def renamed(part: OwnPart, known: Mapping[str, Any]) -> OwnPart:
    """The part without definitions that are known; one that differs from the known one of its name gets another name."""
    names: dict[str, str] = {}
    for name, definition in part.definitions.items():
        if name not in known:
            continue
        number = 2
        while f"{name}_v{number}" in known or f"{name}_v{number}" in part.definitions:
            number += 1
        names[name] = name if known[name] == definition else f"{name}_v{number}"
    if not names:
        return part

    def led(reference: str) -> str:
        name = reference.removeprefix(_PREFIX)
        return _PREFIX + names.get(name, name)

    kept = {names.get(name, name): each for name, each in part.definitions.items() if names.get(name) != name}
    return OwnPart(_with_references(kept, led), _with_references(part.paths, led))


def _references(value: Any) -> set[str]:
    """The names of all definitions that a value refers to, however deep."""
    found: set[str] = set()
    waiting = [value]
    while waiting:
        each = waiting.pop()
        if isinstance(each, dict):
            reference = each.get(_REFERENCE)
            if isinstance(reference, str) and reference.startswith(_PREFIX):
                found.add(reference.removeprefix(_PREFIX))
            waiting += each.values()
        elif isinstance(each, list):
            waiting += each
    return found


def _with_references(value: Any, led: Callable[[str], str], depth: int = 0) -> Any:
    if depth > _DEPTH_MAX:
        return {}
    if isinstance(value, dict):
        return {
            key: led(each) if key == _REFERENCE and isinstance(each, str) else _with_references(each, led, depth + 1)
            for key, each in value.items()
        }
    return [_with_references(each, led, depth + 1) for each in value] if isinstance(value, list) else value
