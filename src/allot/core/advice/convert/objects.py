"""The objects of the input during conversion, and helpers for JSON values.

Values of unexpected types count as absent and stay in place: validation reports them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from allot.core.advice.convert.changes import Notebook
from allot.core.advice.places import Path

RESOURCE_GROUP = "resource.k8s.io"
RESOURCE_V1 = "resource.k8s.io/v1"
DEFAULT_NAMESPACE = "default"


class Object:
    """One object of the input: its value as converted so far, and its notes. A value of None: it was dropped."""

    def __init__(self, value: dict[str, Any], book: Notebook) -> None:
        self.value: dict[str, Any] | None = value
        self.given = value
        self.book = book
        # New objects that it needs; they precede it.
        self.needs: list[dict[str, Any]] = []

    @property
    def present(self) -> dict[str, Any]:
        """The value of an object that was not dropped."""
        assert self.value is not None, "asked for the value of an object that was dropped"
        return self.value

    @property
    def kind(self) -> str:
        """The kind as given."""
        return text(self.given.get("kind"))

    @property
    def api_version(self) -> str:
        """The version as given."""
        return text(self.given.get("apiVersion"))

    @property
    def group(self) -> str:
        """The API group as given."""
        return self.api_version.rpartition("/")[0]

    @property
    def name(self) -> str:
        """The name, if found."""
        return text(mapping(mapping(self.value or self.given).get("metadata")).get("name"))

    @property
    def namespace(self) -> str:
        """The namespace; `default` for an object without one."""
        return text(mapping(mapping(self.value or self.given).get("metadata")).get("namespace")) or DEFAULT_NAMESPACE

    def __str__(self) -> str:
        return f"{self.kind} {self.name}" if self.name else self.kind


def mapping(value: Any) -> dict[str, Any]:
    """The value if it is a mapping, else an empty one."""
    return value if isinstance(value, dict) else {}


def members(value: Any) -> list[Any]:
    """The value if it is a list, else an empty one."""
    return value if isinstance(value, list) else []


def text(value: Any) -> str:
    """The value if it is text, else an empty one."""
    return value if isinstance(value, str) else ""


def without(value: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """The mapping without some keys."""
    return {key: item for key, item in value.items() if key not in names}


def at(value: Any, path: Path) -> Any:
    """The value at the path; None if there is none."""
    for step in path:
        if isinstance(step, str):
            value = mapping(value).get(step)
        else:
            items = members(value)
            value = items[step] if step < len(items) else None
    return value


def put(value: Any, path: Path, new: Any) -> Any:
    """The value with a new value at the path; the parents are copied, and must exist except for the last key."""
    if not path:
        return new
    step = path[0]
    if isinstance(step, int):
        return [put(item, path[1:], new) if index == step else item for index, item in enumerate(value)]
    return {**value, step: put(value.get(step), path[1:], new)}


def leaves(value: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Every scalar and every empty collection, with its path."""
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from leaves(item, (*path, key))
    elif isinstance(value, list) and value:
        for index, item in enumerate(value):
            yield from leaves(item, (*path, index))
    else:
        yield path, value
