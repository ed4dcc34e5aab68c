"""Reading and replacing parts of JSON objects that are shared and may be malformed.

Admission runs before validation, so what it reads may have any type; what does not fit is treated as absent and left for
validation to complain about.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from allot.core.json_objects import mapping

Object = dict[str, Any]

_EMPTY: Mapping[str, Any] = {}


def sequence(value: Any) -> Sequence[Any]:
    """The value if it is a JSON list, otherwise an empty list."""
    return value if isinstance(value, list) else ()


def text(value: Any) -> str:
    """The value if it is a string, otherwise an empty string."""
    return value if isinstance(value, str) else ""


def field(object_: Mapping[str, Any] | None, *names: str) -> Any:
    """The value below the names, or None."""
    value: Any = object_
    for name in names:
        if not isinstance(value, dict):
            return None
        value = value.get(name)
    return value


def metadata(object_: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """metadata of an object."""
    return mapping(field(object_, "metadata"))


def annotations_of(object_: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """metadata.annotations of an object."""
    return mapping(metadata(object_).get("annotations"))


def labels_of(object_: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """metadata.labels of an object."""
    return mapping(metadata(object_).get("labels"))


def replaced(object_: Mapping[str, Any], path: Sequence[str], value: Any) -> Object:
    """The object with another value at a path; what is not on the path is shared, the rest is new."""
    name = path[0]
    if len(path) > 1:
        value = replaced(mapping(object_.get(name)), path[1:], value)
    return {**object_, name: value}


def named(items: Any) -> dict[str, Mapping[str, Any]]:
    """The items of a list of objects by their names."""
    return {text(item.get("name")): item for item in sequence(items) if isinstance(item, dict)}


def containers(pod: Mapping[str, Any], kind: str = "containers") -> list[Mapping[str, Any]]:
    """The containers of a pod; kind: containers, initContainers or ephemeralContainers."""
    return [item for item in sequence(field(pod, "spec", kind)) if isinstance(item, dict)]
