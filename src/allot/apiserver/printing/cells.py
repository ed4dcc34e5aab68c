"""Builds cells from objects, in kubectl's formats: ages, selectors, short lists."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

import msgspec

from allot.apiserver.resources import Column
from allot.core.validation.builtin.values import flag, given, items, members, number, text, texts

Object = dict[str, Any]
Cells = list[Any]

__all__ = ["flag", "given", "items", "members", "number", "text", "texts"]

NONE = "<none>"
UNKNOWN = "<unknown>"
UNSET = "<unset>"

_MINUTE, _HOUR, _DAY, _YEAR = 60, 3600, 86400, 365 * 86400


@lru_cache(maxsize=4096)
def seconds_of(timestamp: str) -> float | None:
    """Seconds since 1970 of a time as Kubernetes writes it."""
    try:
        moment = datetime.fromisoformat(timestamp)
    except ValueError:
        return None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def duration(seconds: float) -> str:
    """A duration with two or three significant digits, as kubectl prints ages."""
    whole = int(seconds)
    if whole < -1:
        return "<invalid>"
    if whole < 2 * _MINUTE:
        return f"{max(whole, 0)}s"
    if whole < 10 * _MINUTE:
        return _two(whole, _MINUTE, "m", 1, "s")
    if whole < 3 * _HOUR:
        return f"{whole // _MINUTE}m"
    if whole < 8 * _HOUR:
        return _two(whole, _HOUR, "h", _MINUTE, "m")
    if whole < 2 * _DAY:
        return f"{whole // _HOUR}h"
    if whole < 8 * _DAY:
        return _two(whole, _DAY, "d", _HOUR, "h")
    if whole < 2 * _YEAR:
        return f"{whole // _DAY}d"
    if whole < 8 * _YEAR:
        return _two(whole, _YEAR, "y", _DAY, "d")
    return f"{whole // _YEAR}y"


def _two(seconds: int, unit: int, name: str, smaller: int, smaller_name: str) -> str:
    rest = seconds % unit // smaller
    return f"{seconds // unit}{name}" + (f"{rest}{smaller_name}" if rest else "")


class Moment(msgspec.Struct, frozen=True):
    """The time for which a table is built."""

    seconds: float

    def since(self, timestamp: Any) -> str:
        """How long ago a time was."""
        then = seconds_of(timestamp) if isinstance(timestamp, str) and timestamp else None
        return UNKNOWN if then is None else duration(self.seconds - then)

    def until(self, timestamp: Any) -> str:
        """How far away a time is."""
        then = seconds_of(timestamp) if isinstance(timestamp, str) and timestamp else None
        return UNKNOWN if then is None else duration(then - self.seconds)

    def age(self, object_: Object) -> str:
        """How old an object is."""
        return self.since(members(object_, "metadata").get("creationTimestamp"))


class Printer(msgspec.Struct, frozen=True):
    """The columns of a kind, and how its cells are read from an object in the storage version."""

    columns: tuple[Column, ...]
    cells: Callable[[Object, Moment], Cells]
    # Conditions from which clients tell which rows are done.
    conditions: Callable[[Object], list[Object]] = lambda _: []
    # Reads as much of an object's JSON as the two need.
    read: Callable[[bytes], Object] = msgspec.json.decode


NAME = Column("Name", "string", "name", "Name of the object, unique among those of its kind in a namespace.")
AGE = Column("Age", "string", "", "Time since the object was created.")


def column(name: str, type_: str = "string", priority: int = 0) -> Column:
    """A column described by its name."""
    return Column(name, type_, "", "", priority)


def columns(names: str) -> tuple[Column, ...]:
    """Columns from a list of names: `#` at the end is for whole numbers, `?` for booleans, `+` for wide output."""
    made = []
    for name in names.split("|"):
        priority, type_ = 0, "string"
        if name.endswith("+"):
            name, priority = name[:-1], 1
        if name.endswith("#"):
            name, type_ = name[:-1], "integer"
        elif name.endswith("?"):
            name, type_ = name[:-1], "boolean"
        known = {"Name": NAME, "Age": AGE}.get(name)
        made.append(msgspec.structs.replace(known, priority=priority) if known else column(name, type_, priority))
    return tuple(made)


def name_of(object_: Object) -> str:
    """The name of an object."""
    return text(object_, "metadata", "name")


def integer(value: Any, *path: str) -> int:
    """The integer at a path, or 0."""
    return number(value, *path) or 0


def count(value: Any, *path: str) -> int:
    """How many items or members there are at a path."""
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return len(value) if isinstance(value, list | dict) else 0


def scalar(value: Any, default: str = "") -> str:
    """A number or text as text."""
    return default if value is None or isinstance(value, dict | list) else str(value)


def labels(pairs: Any) -> str:
    """Labels as `a=b,c=d`."""
    pairs = pairs if isinstance(pairs, dict) else {}
    return ",".join(f"{name}={scalar(pairs[name])}" for name in sorted(pairs)) or NONE


def selector_text(selector: Any) -> str:
    """A label selector in the form that `-l` takes."""
    pairs = members(selector, "matchLabels")
    parts = {(name, f"{name}={scalar(value)}") for name, value in pairs.items()}
    for requirement in items(selector, "matchExpressions"):
        name, values = text(requirement, "key"), sorted(texts(requirement, "values"))
        match text(requirement, "operator"):
            case "In":
                parts.add((name, f"{name} in ({','.join(values)})"))
            case "NotIn":
                parts.add((name, f"{name} notin ({','.join(values)})"))
            case "Exists":
                parts.add((name, name))
            case "DoesNotExist":
                parts.add((name, f"!{name}"))
    return ",".join(part for _, part in sorted(parts))


def selector(value: Any) -> str:
    """A label selector as most kinds show it."""
    return selector_text(value) or NONE


def containers(template: Any) -> tuple[str, str]:
    """Names and images of the containers of a pod template."""
    found = items(template, "spec", "containers")
    return ",".join(text(item, "name") for item in found), ",".join(text(item, "image") for item in found)


def shortened(values: Sequence[str], limit: int = 3) -> str:
    """The first few of a list, and how many more there are."""
    if not values:
        return NONE if limit == 3 else ""
    shown = ",".join(values[:limit])
    return f"{shown} + {len(values) - limit} more..." if len(values) > limit else shown


def condition(object_: Object, type_: str) -> Object | None:
    """A condition of a status."""
    return next((item for item in items(object_, "status", "conditions") if item.get("type") == type_), None)


def is_true(found: Object | None) -> bool:
    """Whether a condition holds."""
    return found is not None and found.get("status") == "True"


def is_default(class_: Object, annotation: str) -> bool:
    """Whether a class is marked as the default."""
    return members(class_, "metadata", "annotations").get(annotation) == "true"
