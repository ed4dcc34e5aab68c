"""JSON values to structs, with every problem found and named.

The careful path: reports unknown and duplicate fields, treats null as absent as Kubernetes does, rewrites times,
and reports all wrong values of an object at once. `model.codec` has the fast path for well-formed bytes.
Input is any JSON value; depth and size are bounded before anything else is done with it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

import msgspec

from allot.core.model.meta import APIStruct, RawJSON
from allot.core.model.schema import Shape, Value, schema_of
from allot.core.quantity import DIGITS_MAX, Quantity, QuantityError

DEPTH_MAX = 200
# Lists and objects in one object: far above what fits into a stored object, low enough to stop a bomb of YAML aliases.
CONTAINERS_MAX = 1_000_000
PROBLEMS_MAX = 100

# Nearly all times: in UTC, on days that every month has.
_PLAIN_TIME = re.compile(
    r"[12]\d{3}-(?:0[1-9]|1[012])-(?:0[1-9]|1\d|2[0-8])T(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d{1,9})?Z", re.ASCII
)
_TIME_LENGTH = len("2006-01-02T15:04:05Z")
_TIME = re.compile(
    r"(\d{4})-(\d{2})-(\d{2})T(\d{2}):(\d{2}):(\d{2})(?:[.,]\d{1,100})?(?:Z|([+-])(\d{2}):(\d{2}))", re.ASCII
)
_INTEGER_RANGES = {Shape.INT32: (-(2**31), 2**31 - 1), Shape.INT64: (-(2**63), 2**63 - 1)}
_NUMBERS = (*_INTEGER_RANGES, Shape.INT_OR_STRING)
_VALUE_TEXT_LENGTH_MAX = 80


class Problem(msgspec.Struct, frozen=True):
    """One wrong value: where it is, and what is wrong with it."""

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


class DecodeError(ValueError):
    """A value that is not an object of the expected type; `problems` lists everything found."""

    def __init__(self, problems: tuple[Problem, ...], subject: str = "") -> None:
        self.problems = problems
        self.subject = subject
        texts = "; ".join(map(str, problems))
        super().__init__(f"{subject}: {texts}" if subject else texts)


class ObjectWithDuplicates(dict[str, Any]):
    """A JSON object with duplicate keys, here or nested; the last value counts.

    Parsers create these. `duplicates` are those of the object itself; `yaml_problem` is Go's message about all duplicates in a
    YAML text, known only for its outermost object.
    """

    duplicates: tuple[str, ...] = ()
    yaml_problem: str = ""

    def holding(self, value: dict[str, Any]) -> ObjectWithDuplicates:
        """Another object from the same text."""
        marked = ObjectWithDuplicates(value)
        marked.duplicates, marked.yaml_problem = self.duplicates, self.yaml_problem
        return marked


# A place in the value, as (place of the parent, how it is reached, name or index); None is the root.
_Place = tuple[Any, str, str | int] | None


class _Findings:
    """What a decode has found so far."""

    __slots__ = ("duplicates", "problems", "unknown")

    def __init__(self) -> None:
        self.problems: list[Problem] = []
        self.unknown: list[str] = []
        self.duplicates: list[str] = []

    def report(self, place: _Place, message: str) -> None:
        if len(self.problems) < PROBLEMS_MAX:
            self.problems.append(Problem(_path(place), message))


_Decoder = Callable[[Any, _Place, _Findings], Any]


class Careful(msgspec.Struct, frozen=True):
    """Result of the careful path."""

    object: Any
    unknown_fields: tuple[str, ...]
    duplicate_fields: tuple[str, ...]


def decode_carefully(value: object, type_: type[APIStruct], ignored: frozenset[str] = frozenset()) -> Careful:
    """An object of the type from a JSON value; DecodeError with all problems if that fails.

    `ignored` names fields of the outermost object that belong to it but not to the type (apiVersion and kind).
    """
    check_bounds(value)
    if not isinstance(value, dict):
        raise DecodeError((Problem("", f"expected object, got {describe(value)}"),))
    findings = _Findings()
    decoded = _struct_decoder(type_)(value, None, findings)
    if findings.problems:
        raise DecodeError(tuple(findings.problems))
    unknown = tuple(name for name in findings.unknown if name not in ignored)
    return Careful(decoded, unknown, tuple(findings.duplicates))


def check_bounds(value: object) -> None:
    """Refuse what is nested too deeply or too large to be an object."""
    level: list[Any] = [value] if isinstance(value, (dict, list)) else []
    containers = depth = 0
    while level:
        containers += len(level)
        depth += 1
        if depth > DEPTH_MAX:
            raise DecodeError((Problem("", f"nested too deeply: expected at most {DEPTH_MAX} levels"),))
        if containers > CONTAINERS_MAX:
            raise DecodeError((Problem("", f"too large: expected at most {CONTAINERS_MAX} objects and arrays"),))
        level = [item for container in level for item in _members(container) if isinstance(item, (dict, list))]


def _members(container: dict[Any, Any] | list[Any]) -> Iterable[Any]:
    return container.values() if isinstance(container, dict) else container


def describe(value: object) -> str:
    """A value for a message: its JSON type, and the value itself when it is a short scalar."""
    if value is None:
        return "null"
    if isinstance(value, dict):
        return "object"
    if isinstance(value, (list, tuple)):
        return "array"
    if isinstance(value, bool):
        return f"boolean {str(value).lower()}"
    if isinstance(value, int):
        return f"number {value}" if value.bit_length() <= 256 else f"number of {value.bit_length()} bits"
    if isinstance(value, float):
        return f"number {value!r}"
    if isinstance(value, str):
        shown = value if len(value) <= _VALUE_TEXT_LENGTH_MAX else value[:_VALUE_TEXT_LENGTH_MAX] + "..."
        return f'string "{shown}"'.encode(errors="backslashreplace").decode()
    return f"value of type {type(value).__name__}"


# --- structs ---


@cache
def _struct_decoder(type_: type[APIStruct]) -> _Decoder:
    schema = schema_of(type_)
    # Filled on first use: types may contain themselves.
    decoders: dict[str, tuple[str, _Decoder]] = {}

    def decode(value: Any, place: _Place, findings: _Findings) -> Any:
        if not isinstance(value, dict):
            return findings.report(place, f"expected object, got {describe(value)}")
        if not decoders:
            decoders.update({field.wire_name: (field.name, _decoder(field.value)) for field in schema.fields})
        if isinstance(value, ObjectWithDuplicates):
            findings.duplicates += [_wire_path((place, ".", name)) for name in value.duplicates]
        members = {}
        for key, item in value.items():
            known = decoders.get(key)
            if known is None:
                if not isinstance(key, str):
                    findings.report(place, f"expected a string as key, got {describe(key)}")
                elif not schema.partial:
                    findings.unknown.append(_wire_path((place, ".", key)))
            elif item is not None:
                members[known[0]] = known[1](item, (place, ".", key), findings)
        return type_(**members) if not findings.problems else None

    return decode


def _decoder(value: Value) -> _Decoder:
    if value.shape is Shape.STRUCT:
        assert value.struct is not None
        return _struct_decoder(value.struct)
    if value.shape is Shape.LIST:
        assert value.item is not None
        return _list_decoder(value.item)
    if value.shape is Shape.MAP:
        assert value.item is not None
        return _map_decoder(value.item)
    return _SCALARS[value.shape]


def _list_decoder(item: Value) -> _Decoder:
    decode_item, empty = _decoder(item), _empty(item)

    def decode(value: Any, place: _Place, findings: _Findings) -> Any:
        if not isinstance(value, list):
            return findings.report(place, f"expected array, got {describe(value)}")
        return tuple(
            empty if each is None else decode_item(each, (place, "[", index), findings)
            for index, each in enumerate(value)
        )

    return decode


def _map_decoder(item: Value) -> _Decoder:
    decode_item, empty = _decoder(item), _empty(item)

    def decode(value: Any, place: _Place, findings: _Findings) -> Any:
        if not isinstance(value, dict):
            return findings.report(place, f"expected object, got {describe(value)}")
        if isinstance(value, ObjectWithDuplicates):
            findings.duplicates += [_wire_path((place, ".", name)) for name in value.duplicates]
        members = {}
        for key, each in value.items():
            if not isinstance(key, str):
                findings.report(place, f"expected a string as key, got {describe(key)}")
            elif _text(key, place, findings) is not None:
                members[key] = empty if each is None else decode_item(each, (place, "{", key), findings)
        return members

    return decode


def _empty(value: Value) -> Any:
    """What null stands for inside a list or map."""
    if value.struct is not None and value.shape is Shape.STRUCT:
        return value.struct()
    empty: dict[Shape, Any] = {Shape.LIST: (), Shape.MAP: {}, Shape.BOOLEAN: False, Shape.QUANTITY: Quantity.ZERO}
    return empty.get(value.shape, 0 if value.shape in _NUMBERS else "")


# --- scalars ---


def _text(value: Any, place: _Place, findings: _Findings) -> Any:
    if not isinstance(value, str):
        return findings.report(place, f"expected string, got {describe(value)}")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            return findings.report(place, f"expected Unicode text, got {describe(value)}")
    return value


def _boolean(value: Any, place: _Place, findings: _Findings) -> Any:
    return value if isinstance(value, bool) else findings.report(place, f"expected boolean, got {describe(value)}")


def _integer_decoder(shape: Shape) -> _Decoder:
    low, high = _INTEGER_RANGES[shape]

    def decode(value: Any, place: _Place, findings: _Findings) -> Any:
        if isinstance(value, bool) or not isinstance(value, int):
            return findings.report(place, f"expected {shape.value}, got {describe(value)}")
        if not low <= value <= high:
            return findings.report(place, f"expected {shape.value} (from {low} to {high}), got {describe(value)}")
        return value

    return decode


_int32 = _integer_decoder(Shape.INT32)


def _int_or_string(value: Any, place: _Place, findings: _Findings) -> Any:
    return _text(value, place, findings) if isinstance(value, str) else _int32(value, place, findings)


def _time(value: Any, place: _Place, findings: _Findings) -> Any:
    text = _text(value, place, findings)
    if text is None:
        return None
    normalized = utc_time(text)
    if normalized is None:
        findings.report(place, f'expected a time such as "2006-01-02T15:04:05Z", got {describe(value)}')
    return normalized


def utc_time(text: str) -> str | None:
    """A time in RFC 3339 as Kubernetes stores it, in UTC and without fractions of a second; None if invalid."""
    if _PLAIN_TIME.fullmatch(text):
        return text if len(text) == _TIME_LENGTH else f"{text[: _TIME_LENGTH - 1]}Z"
    match = _TIME.fullmatch(text)
    if not match:
        return None
    year, month, day, hour, minute, second = map(int, match.group(1, 2, 3, 4, 5, 6))
    offset = timedelta(hours=int(match[8] or 0), minutes=int(match[9] or 0))
    if offset >= timedelta(days=1) or int(match[9] or 0) > 59:
        return None
    try:
        moment = datetime(year, month, day, hour, minute, second, tzinfo=UTC)
        moment = moment + offset if match[7] == "-" else moment - offset
    except (ValueError, OverflowError):
        return None
    return f"{moment.year:04}-{moment:%m-%dT%H:%M:%SZ}"


def _quantity(value: Any, place: _Place, findings: _Findings) -> Any:
    try:
        return to_quantity(value)
    except QuantityError as error:
        return findings.report(place, f"expected quantity, got {describe(value)}: {error}")


def to_quantity(value: object) -> Quantity:
    """A quantity from a JSON string or number; QuantityError for anything else."""
    if isinstance(value, str):
        return Quantity.parse(value.strip())
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise QuantityError("expected a string or a number")
    # A number too long to be a quantity is not even written out.
    if isinstance(value, int) and value.bit_length() > DIGITS_MAX * 4:
        raise QuantityError(f"quantity is too large: expected fewer than {DIGITS_MAX} digits")
    return Quantity.parse(repr(value))


def _raw(value: Any, place: _Place, findings: _Findings) -> Any:
    try:
        return RawJSON(value)
    except (TypeError, ValueError, OverflowError) as error:
        return findings.report(place, f"expected a JSON value: {error}")


_SCALARS: Mapping[Shape, _Decoder] = {
    Shape.TEXT: _text,
    Shape.TIME: _time,
    Shape.INT32: _int32,
    Shape.INT64: _integer_decoder(Shape.INT64),
    Shape.INT_OR_STRING: _int_or_string,
    Shape.BOOLEAN: _boolean,
    Shape.QUANTITY: _quantity,
    Shape.RAW: _raw,
}


# --- places ---


def _steps(place: _Place) -> list[tuple[str, str | int]]:
    steps = []
    while place is not None:
        place, how, what = place
        steps.append((how, what))
    return steps[::-1]


def _path(place: _Place) -> str:
    """The path as in Kubernetes' field errors: keys of maps in brackets."""
    return _joined([(".", what) if how == "." else ("[", what) for how, what in _steps(place)])


def _wire_path(place: _Place) -> str:
    """The path as in Kubernetes' strict decoding errors: keys of maps after a dot."""
    return _joined([("[", what) if how == "[" else (".", what) for how, what in _steps(place)])


def _joined(steps: list[tuple[str, str | int]]) -> str:
    text = "".join(f"[{what}]" if how == "[" else f".{what}" for how, what in steps).removeprefix(".")
    return text.encode(errors="backslashreplace").decode()
