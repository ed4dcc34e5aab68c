"""Values with the wrong shape for their field: a list instead of an object, a quoted number, a level too many or too few.

Worded in terms of the manifest, with the fix if there is only one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from allot.core.advice.lint.context import Context
from allot.core.advice.lint.finding import Edit, Fix
from allot.core.advice.lint.source import Subject, path_text
from allot.core.advice.places import Path, Place
from allot.core.schema import Kind, Schema

_DEPTH_MAX = 60
# How deep a field may be below the place where it was written by mistake.
_BELONGS_DEPTH_MAX = 3
_INTEGER = re.compile(r"[+-]?[0-9]{1,18}")
_PLAIN_SCALAR = re.compile(r"[A-Za-z0-9.+-]+")
_LINE_START = re.compile(r"\n(?=[^\r\n])")
_BOOLEANS = ("true", "false")
_WANTED = {
    Kind.STRING: "text",
    Kind.INTEGER: "a whole number",
    Kind.NUMBER: "a number",
    Kind.BOOLEAN: "true or false",
    Kind.OBJECT: "one object",
    Kind.MAP: "an object",
    Kind.LIST: "a list",
    Kind.BYTES: "a base64 string",
}


def check_shapes(context: Context, subject: Subject, schema: Schema) -> None:
    """Reports every value with the wrong shape for its field."""
    for path, value, node in _misfits(subject.value, schema, (), 0):
        name = path_text(path[-1:] if isinstance(path[-1], str) else path[-2:]) if path else subject.kind
        message = f"{name} is {_given(value)}: expected {_WANTED[node.kind]}"
        context.report(subject, "invalid-value", path, message, _fix(subject, path, value, node))


def _misfits(value: Any, schema: Schema, path: Path, depth: int) -> Iterator[tuple[Path, Any, Schema]]:
    kind = schema.kind
    if kind not in _WANTED or value is None or depth > _DEPTH_MAX:
        return
    if not _fits(value, kind):
        yield path, value, schema
    elif kind in (Kind.OBJECT, Kind.MAP):
        for name, item in value.items():
            member = schema.member(name)
            if member is not None:
                yield from _misfits(item, member, (*path, name), depth + 1)
    elif kind is Kind.LIST and schema.items is not None:
        for index, item in enumerate(value):
            yield from _misfits(item, schema.items, (*path, index), depth + 1)


def _fits(value: Any, kind: Kind) -> bool:
    if kind in (Kind.OBJECT, Kind.MAP):
        return isinstance(value, dict)
    if kind is Kind.LIST:
        return isinstance(value, list)
    if kind is Kind.BOOLEAN:
        return isinstance(value, bool)
    if kind is Kind.INTEGER:
        # The server checks its range.
        return type(value) is int
    if kind is Kind.NUMBER:
        return isinstance(value, int | float) and not isinstance(value, bool)
    return isinstance(value, str)


def _given(value: Any) -> str:
    if isinstance(value, list):
        return "a list"
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{_short(value)}"' if isinstance(value, str) else f"the number {value}"


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 40 else f"{line[:39]}…"


# --- fixes ---


def _fix(subject: Subject, path: Path, value: Any, node: Schema) -> Fix | None:
    kind = node.kind
    if kind in (Kind.STRING, Kind.BYTES) and isinstance(value, bool | int | float):
        return _quoting(subject, path)
    if isinstance(value, list) and kind is Kind.OBJECT:
        return _not_a_list(subject, path, value)
    if isinstance(value, str) and (
        (kind is Kind.INTEGER and _INTEGER.fullmatch(value)) or (kind is Kind.BOOLEAN and value in _BOOLEANS)
    ):
        return Fix(f"write {value} without quotes", _replaced(subject, path, value))
    if kind is Kind.LIST and node.items is not None:
        return _as_list(subject, path, value, node)
    if isinstance(value, str) and kind is Kind.OBJECT and "name" in node.properties and isinstance(path[-1], int):
        return Fix(f"write {{name: {value}}}", _replaced(subject, path, f"{{name: {value}}}"))
    return None


def _quoting(subject: Subject, path: Path) -> Fix | None:
    """A word or number that YAML does not read as a string."""
    place = subject.exact_place(path)
    raw = _raw(subject, place)
    if place is None or _PLAIN_SCALAR.fullmatch(raw) is None:
        return None
    return Fix(f'{raw} is not a string in YAML: write "{raw}"', (Edit(*place.value, f'"{raw}"'),))


def _not_a_list(subject: Subject, path: Path, value: list[Any]) -> Fix:
    if len(value) != 1 or not isinstance(value[0], dict):
        return Fix("keep one of its items; for alternatives, use firstAvailable" if value else "write an object")
    return Fix('remove the "-"', _without_dash(subject, path))


def _without_dash(subject: Subject, path: Path) -> tuple[Edit, ...]:
    """The only member of a list instead of the list."""
    outer, inner = subject.exact_place(path), subject.exact_place((*path, 0))
    if outer is None or inner is None:
        return ()
    if _raw(subject, outer)[:1] == "[":
        return (Edit(*outer.value, _raw(subject, inner)),)
    text = subject.source.text
    dash = text.rfind("-", 0, inner.value[0])
    if dash < outer.value[0] or text[dash + 1 : inner.value[0]].strip(" "):
        return ()
    return (Edit(dash, dash + 1, " "),)


def _as_list(subject: Subject, path: Path, value: Any, node: Schema) -> Fix | None:
    items = node.items
    assert items is not None
    place = subject.exact_place(path)
    raw = _raw(subject, place)
    if isinstance(value, dict) and items.kind is Kind.OBJECT and set(value) <= set(items.properties):
        edits: tuple[Edit, ...] = ()
        if place is not None and raw[:1] == "{":
            edits = (Edit(*place.value, f"[{raw}]"),)
        elif place is not None and raw and not _is_alias(raw):
            edits = (Edit(*place.value, f"- {_deeper(raw)}"),)
        return Fix('put "- " before its first field', edits)
    if isinstance(value, str) and items.kind is Kind.STRING:
        return Fix(f"write [{raw or value}]", _replaced(subject, path, f"[{raw}]") if "\n" not in raw else ())
    if isinstance(value, str) and "name" in items.properties:
        return Fix(f"write [{{name: {value}}}]", _replaced(subject, path, f"[{{name: {value}}}]"))
    return None


def _replaced(subject: Subject, path: Path, text: str) -> tuple[Edit, ...]:
    place = subject.exact_place(path)
    raw = _raw(subject, place)
    if place is None or not raw or "\n" in raw or _is_alias(raw):
        return ()
    return (Edit(*place.value, text),)


def _raw(subject: Subject, place: Place | None) -> str:
    return subject.source.text[slice(*place.value)] if place is not None else ""


def _is_alias(raw: str) -> bool:
    return raw[:1] in ("*", "&", "!")


# --- a level too few ---


def belongs(schema: Schema, path: Path) -> Path | None:
    """The relative path of a field that was written one or more levels too high; None if ambiguous."""
    name = str(path[-1])
    layer: list[tuple[Path, Schema]] = [((), schema)]
    for _ in range(_BELONGS_DEPTH_MAX):
        layer = [
            ((*above, key), member)
            for above, node in layer
            for key, member in node.properties.items()
            if member.kind is Kind.OBJECT
        ]
        found = [(*above, name) for above, node in layer if name in node.properties]
        if found:
            return found[0] if len(found) == 1 else None
    return None


def owner_above(schema: Schema, path: Path) -> Path | None:
    """The surrounding object of a field that was written too deep; None if there is none."""
    name = str(path[-1])
    found: Path | None = None
    node: Schema | None = schema
    for length, part in enumerate(path[:-1]):
        assert node is not None
        if name in node.properties and length:
            found = path[:length]
        node = node.items if isinstance(part, int) else node.member(part)
        if node is None:
            break
    return found


def moved_into(subject: Subject, parent: Path, names: Sequence[str], wrapper: str) -> tuple[Edit, ...]:
    """The edit that nests adjacent fields in an object of their own."""
    inside = subject.at(parent)
    places = [subject.exact_place((*parent, name)) for name in names]
    spans = [(place.key[0], place.value[1]) for place in places if place is not None and place.key is not None]
    if not isinstance(inside, dict) or wrapper in inside or len(spans) != len(names):
        return ()
    start, end = min(span[0] for span in spans), max(span[1] for span in spans)
    others = [subject.exact_place((*parent, name)) for name in inside if name not in names]
    if any(place is None or place.key is None or start < place.key[0] < end for place in others):
        return ()
    text = subject.source.text
    outer = subject.exact_place(parent)
    moved = text[start:end]
    if outer is None or any(_is_alias(text[place.value[0] :]) for place in places if place is not None):
        return ()
    if text[outer.value[0]] == "{":
        return (Edit(start, end, f"{wrapper}: {{{moved}}}"),)
    indentation = " " * (start - (text.rfind("\n", 0, start) + 1))
    return (Edit(start, end, f"{wrapper}:\n{indentation}  {_deeper(moved)}"),)


# --- a level too many ---


def is_level_too_many(subject: Subject, path: Path, parent: Schema | None) -> bool:
    """Whether an unknown field repeats the name of its parent and contains what belongs there."""
    value = subject.at(path)
    return (
        parent is not None
        and path[-1:] == path[-2:-1]
        and isinstance(value, dict)
        and bool(value)
        and set(value) <= set(parent.properties)
    )


def unwrapped(subject: Subject, path: Path) -> tuple[Edit, ...]:
    """The edit that replaces an object with its contents."""
    place = subject.exact_place(path)
    raw = _raw(subject, place)
    inside, beside = subject.at(path), subject.at(path[:-1])
    if place is None or place.key is None or not raw or _is_alias(raw) or set(inside) & set(beside):
        return ()
    if raw[:1] == "{":
        return (Edit(place.key[0], place.value[1], raw[1:-1].strip()),) if len(beside) == 1 else ()
    text = subject.source.text
    start, first = place.key[0], place.value[0]
    less = (first - text.rfind("\n", 0, first)) - (start - text.rfind("\n", 0, start))
    lines = raw.split("\n")
    if less <= 0 or any(line.strip() and line[:less].strip() for line in lines[1:]):
        return ()
    return (Edit(start, place.value[1], "\n".join((lines[0], *(line[less:] for line in lines[1:])))),)


def _deeper(text: str) -> str:
    """The lines after the first one, indented by two more spaces."""
    return _LINE_START.sub("\n  ", text)
