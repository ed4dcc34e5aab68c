"""Messages to JSON values, by the table.

The value is what Go's JSON encoder would have written for the same object: a field without pointer that is zero is left out
where JSON says omitempty, and a list that does not exist is null where it does not. Stricter than protobuf readers are: a field that the table does not know would be lost, so unless
it is empty the body is refused, as it is for fields of the wrong wire type and for single fields that come twice.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from allot.core.model.codec import DecodeError, parse_json
from allot.core.model.decoding import check_bounds
from allot.wire.kubernetes.table import (
    BOOLEAN,
    BYTES,
    DOUBLE,
    EXTENSIONS,
    INTEGER,
    META,
    TEXT,
    Field,
    Message,
    message_of,
)
from allot.wire.kubernetes.wire import BYTES as LENGTH_GIVEN
from allot.wire.kubernetes.wire import FIXED64, VARINT, Malformed, Wire, signed

Object = dict[str, Any]

# Only schemas of custom resources are recursive; everything else is less than 20 deep.
DEPTH_MAX = 60
_WIRE_NAMES = {0: "a number", 1: "8 bytes", 2: "a length and bytes", 5: "4 bytes"}
_EXPECTED_WIRE = {INTEGER: VARINT, BOOLEAN: VARINT, DOUBLE: FIXED64}
_SCHEMA = f"{EXTENSIONS}.v1.JSONSchemaProps"
# The only non-pointer time that is left out if zero (omitzero, v1.37.0-rc.1); the others are null.
_OMITTED_TIME = "creationTimestamp"
_TIMES = (f"{META}.Time", f"{META}.MicroTime")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# The first second of year 1, Go's zero time, and the last of year 9999.
_SECONDS_ZERO = -62135596800
_SECONDS_MAX = 253402300799


def read_message(wire: Wire, name: str, start: int, end: int, depth: int = 0) -> Any:
    """The JSON value of a message."""
    if depth > DEPTH_MAX:
        raise Malformed(f"nested too deeply: expected at most {DEPTH_MAX} levels")
    special = _SPECIAL.get(name)
    if special is not None:
        return special(wire, start, end, depth)
    message = message_of(name)
    told: Object = {}
    for number, form, first, second in wire.fields(start, end):
        field = message.fields.get(number)
        if field is None:
            _check_says_nothing(message, number, form, first, second)
            continue
        try:
            _put(told, field, wire, form, first, second, depth)
        except Malformed as error:
            raise error.within(field.name) from None
    if message.is_list:
        return told.get("items", [])
    for absent in message.never_omitted:
        told.setdefault(absent, None)
    return told


def _check_says_nothing(message: Message, number: int, form: int, first: int, second: int) -> None:
    """Older clients still send fields that Kubernetes has removed; empty ones can be dropped without loss."""
    if first != (0 if form == VARINT else second):
        short = message.name.rpartition(".")[2]
        raise Malformed(f"field {number} of {short} is unknown in the version of Kubernetes that is served")


def _put(told: Object, field: Field, wire: Wire, form: int, first: int, second: int, depth: int) -> None:
    name = field.name
    if field.map_:
        key, item = _entry(wire, field, form, first, second, depth)
        entries = told.setdefault(name, {})
        if key in entries:
            raise Malformed(f"key {key[:100]!r} occurs twice")
        entries[key] = item
        return
    if field.repeated:
        items = told.setdefault(name, [])
        if form == LENGTH_GIVEN and _EXPECTED_WIRE.get(field.type_) == VARINT:
            items.extend(_number(field.type_, value) for value in wire.varints(first, second))
        else:
            items.append(_value(wire, field.type_, form, first, second, depth))
        return
    value = _value(wire, field.type_, form, first, second, depth)
    if field.inline:
        if not told.keys().isdisjoint(value):
            raise Malformed("occurs twice")
        told.update(value)
        return
    if name in told:
        raise Malformed("occurs twice")
    if value is None and (name == _OMITTED_TIME or field.type_ not in _TIMES):
        return
    if value or not field.omitted_if_zero:
        told[name] = value


def _entry(wire: Wire, field: Field, form: int, first: int, second: int, depth: int) -> tuple[str, Any]:
    """Key and value of a map entry; missing ones are empty."""
    _expect(LENGTH_GIVEN, form)
    key, place = "", (LENGTH_GIVEN, first, first)
    for number, inner, start, end in wire.fields(first, second):
        if number == 1:
            _expect(LENGTH_GIVEN, inner)
            key = wire.text(start, end)
        elif number == 2:
            place = (inner, start, end)
        else:
            raise Malformed(f"an entry has a field {number}, expected 1 (key) and 2 (value)")
    return key, _value(wire, field.type_, *place, depth)


def _value(wire: Wire, type_: str, form: int, first: int, second: int, depth: int) -> Any:
    _expect(_EXPECTED_WIRE.get(type_, LENGTH_GIVEN), form)
    if type_ == TEXT:
        return wire.text(first, second)
    if type_ in (INTEGER, BOOLEAN):
        return _number(type_, first)
    if type_ == BYTES:
        return base64.b64encode(wire.data[first:second]).decode()
    if type_ == DOUBLE:
        return _double(wire.data[first:second])
    return read_message(wire, type_, first, second, depth + 1)


def _expect(expected: int, form: int) -> None:
    if form != expected:
        raise Malformed(f"has {_WIRE_NAMES[form]}, expected {_WIRE_NAMES[expected]}")


def _number(type_: str, value: int) -> int | bool:
    return value != 0 if type_ == BOOLEAN else signed(value)


def _double(data: bytes) -> float:
    value: float = struct.unpack("<d", data)[0]
    if value - value != 0:
        raise Malformed(f"{value} is not a number that JSON has")
    return value


# --- messages with a special JSON form ---


def _parts(wire: Wire, start: int, end: int, forms: Mapping[int, int]) -> dict[int, tuple[int, int]]:
    """The last field of each number, in a message with only these numbers and wire types."""
    found = {}
    for number, form, first, second in wire.fields(start, end):
        if number not in forms:
            raise Malformed(f"has a field {number}, expected one of {', '.join(map(str, forms))}")
        _expect(forms[number], form)
        found[number] = first, second
    return found


def _time(wire: Wire, start: int, end: int, _depth: int) -> str | None:
    moment = _moment(wire, start, end)
    # Fractions are dropped, as Kubernetes does.
    return None if moment is None else f"{moment[0].replace(tzinfo=None).isoformat()}Z"


def _micro_time(wire: Wire, start: int, end: int, _depth: int) -> str | None:
    moment = _moment(wire, start, end)
    return None if moment is None else f"{moment[0].replace(tzinfo=None).isoformat()}.{moment[1] // 1000:06d}Z"


def _moment(wire: Wire, start: int, end: int) -> tuple[datetime, int] | None:
    """A time in whole seconds and its nanoseconds; None for Go's zero time, which is sent as an empty message."""
    parts = _parts(wire, start, end, {1: VARINT, 2: VARINT})
    if not parts:
        return None
    seconds, nanos = (signed(parts.get(number, (0, 0))[0]) for number in (1, 2))
    if not _SECONDS_ZERO <= seconds <= _SECONDS_MAX:
        raise Malformed(f"{seconds} seconds since 1970 are not between the years 1 and 9999")
    if not 0 <= nanos < 10**9:
        raise Malformed(f"{nanos} nanoseconds are not between 0 and a second")
    if seconds == _SECONDS_ZERO and not nanos:
        return None
    return _EPOCH + timedelta(seconds=seconds), nanos


def _quantity(wire: Wire, start: int, end: int, _depth: int) -> str:
    place = _parts(wire, start, end, {1: LENGTH_GIVEN}).get(1)
    return "0" if place is None else wire.text(*place)


def _int_or_string(wire: Wire, start: int, end: int, _depth: int) -> int | str:
    parts = _parts(wire, start, end, {1: VARINT, 2: VARINT, 3: LENGTH_GIVEN})
    type_ = parts.get(1, (0, 0))[0]
    if type_ not in (0, 1):
        raise Malformed(f"has type {type_}, expected 0 (number) or 1 (text)")
    return wire.text(*parts.get(3, (start, start))) if type_ else signed(parts.get(2, (0, 0))[0])


def _json(wire: Wire, start: int, end: int, _depth: int) -> Any:
    first, second = _parts(wire, start, end, {1: LENGTH_GIVEN}).get(1, (start, start))
    if first == second:
        return None
    try:
        value = parse_json(wire.data[first:second])
        check_bounds(value)
    except DecodeError as error:
        raise Malformed(f"embedded JSON: {error}") from None
    return value


def _schemas(wire: Wire, start: int, end: int, depth: int, number: int) -> list[Any]:
    places = [(first, second) for found, _, first, second in wire.fields(start, end) if found == number]
    return [read_message(wire, _SCHEMA, first, second, depth + 1) for first, second in places]


def _schema_or_array(wire: Wire, start: int, end: int, depth: int) -> Any:
    forms = {1: LENGTH_GIVEN, 2: LENGTH_GIVEN}
    number = 1 if 1 in _parts(wire, start, end, forms) else 2
    schemas = _schemas(wire, start, end, depth, number)
    return schemas[-1] if number == 1 else schemas


def _schema_or_bool(wire: Wire, start: int, end: int, depth: int) -> Any:
    parts = _parts(wire, start, end, {1: VARINT, 2: LENGTH_GIVEN})
    if 2 in parts:
        return read_message(wire, _SCHEMA, *parts[2], depth + 1)
    return parts.get(1, (0, 0))[0] != 0


def _schema_or_texts(wire: Wire, start: int, end: int, depth: int) -> Any:
    parts = _parts(wire, start, end, {1: LENGTH_GIVEN, 2: LENGTH_GIVEN})
    if 1 in parts:
        return read_message(wire, _SCHEMA, *parts[1], depth + 1)
    return [wire.text(first, second) for _, _, first, second in wire.fields(start, end)]


_SPECIAL: dict[str, Callable[[Wire, int, int, int], Any]] = {
    f"{META}.Time": _time,
    f"{META}.MicroTime": _micro_time,
    f"{META}.FieldsV1": _json,
    "apimachinery.pkg.api.resource.Quantity": _quantity,
    "apimachinery.pkg.util.intstr.IntOrString": _int_or_string,
    "apimachinery.pkg.runtime.RawExtension": _json,
    f"{EXTENSIONS}.v1.JSON": _json,
    f"{EXTENSIONS}.v1.JSONSchemaPropsOrArray": _schema_or_array,
    f"{EXTENSIONS}.v1.JSONSchemaPropsOrBool": _schema_or_bool,
    f"{EXTENSIONS}.v1.JSONSchemaPropsOrStringArray": _schema_or_texts,
}
