"""Decodes files of plain values to structs: errors name the line and suggest a name."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from allot.core.advice.nearest import did_you_mean
from allot.core.advice.places import Places, nearest_place
from allot.reading.documents import parse_documents
from allot.reading.errors import Unreadable

T = TypeVar("T")
Field = tuple[str | int, ...]

_UNKNOWN_FIELD = re.compile(r"Object contains unknown field `([^`]*)`")
_AT = re.compile(r" - at `\$([^`]*)`$")
_STEP = re.compile(r"\.([^.\[]+)|\[(\d+|\.\.\.)\]")
# A member of a list or a mapping: the decoder does not report which.
_ANY = "..."


class Lines:
    """One document. source: its name in messages."""

    def __init__(self, value: Any, places: Places, source: str) -> None:
        self.value = value
        self._places = places
        self._source = source

    def convert(self, value: Any, type_: type[T], field: Field) -> T:
        """A value converted to a type; Unreadable names the line. field: its path."""
        try:
            return msgspec.convert(value, type_)
        except msgspec.ValidationError as error:
            steps, text = _reason(str(error))
            unknown = _UNKNOWN_FIELD.match(text)
            if unknown is None:
                raise self.at((*field, *steps), worded(error)) from None
            known = sorted(name for each in _below(_info(type_), steps) for name in _field_names(each))
            hint = did_you_mean(unknown[1], known) if known else None
            raise self.at((*field, *steps, unknown[1]), worded(error), hint) from None

    def at(self, field: Field, text: str, hint: str | None = None) -> Unreadable:
        """The error for a field."""
        place = next((place for path, place in self._places.items() if _matches(path, field)), None)
        if place is None:
            known = field[: field.index(_ANY)] if _ANY in field else field
            place = nearest_place(self._places, known)
        return Unreadable(f"{self._source}: line {place.line}: {text}", hint)


def worded(error: msgspec.ValidationError) -> str:
    """The decoder's error in our message format."""
    steps, text = _reason(str(error))
    unknown = _UNKNOWN_FIELD.match(text)
    if unknown is not None:
        return f"unknown field {unknown[1]!r}"
    where = ".".join(str(step) for step in steps if step != _ANY)
    text = text[0].lower() + text[1:]
    return f"{where}: {text}" if where else text


def read_bytes(path: Path, what: str) -> bytes:
    """The content of a file; Unreadable. what: for messages."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise Unreadable(f"{what} {path}: {(error.strerror or str(error)).lower()}") from None


def parse_document(data: bytes, source: str, expected: str) -> Lines:
    """The one document of a text; Unreadable. expected: for messages."""
    documents = parse_documents(data, source, places=True)
    if len(documents) != 1:
        raise Unreadable(f"{source}: {len(documents)} documents: expected one, {expected}")
    return Lines(documents[0].value, documents[0].places, source)


def _matches(path: Field, field: Field) -> bool:
    return len(path) == len(field) and all(theirs in (own, _ANY) for own, theirs in zip(path, field, strict=True))


def _reason(text: str) -> tuple[Field, str]:
    """Place and problem, from the decoder's message."""
    at = _AT.search(text)
    if at is None:
        return (), text
    steps: list[str | int] = []
    for match in _STEP.finditer(at[1]):
        steps.append(match[1] if match[1] is not None else _ANY if match[2] == _ANY else int(match[2]))
    return tuple(steps), text[: at.start()]


def _info(type_: Any) -> msgspec.inspect.Type:
    return msgspec.inspect.type_info(type_)


def _below(type_: msgspec.inspect.Type, steps: Field) -> Iterator[msgspec.inspect.Type]:
    """The type at the end of a path."""
    match type_:
        case msgspec.inspect.Metadata():
            yield from _below(type_.type, steps)
        case msgspec.inspect.UnionType():
            for each in type_.types:
                yield from _below(each, steps)
        case _ if not steps:
            yield type_
        case msgspec.inspect.StructType():
            for field in type_.fields:
                if field.encode_name == steps[0]:
                    yield from _below(field.type, steps[1:])
        case msgspec.inspect.VarTupleType() | msgspec.inspect.ListType():
            yield from _below(type_.item_type, steps[1:])
        case msgspec.inspect.DictType():
            yield from _below(type_.value_type, steps[1:])


def _field_names(type_: msgspec.inspect.Type) -> tuple[str, ...]:
    if not isinstance(type_, msgspec.inspect.StructType):
        return ()
    return tuple(field.encode_name for field in type_.fields)
