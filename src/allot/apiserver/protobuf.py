"""Request bodies in Kubernetes' protobuf format, read into the JSON value that they stand for.

Typed clients of client-go since 1.32, kubectl among them, send protobuf unless told otherwise, and take JSON for an answer.
Field numbers come from a table made from Kubernetes' sources. Nothing is written in this format.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files
from typing import Any

import msgspec

MAGIC = b"k8s\0"
_DEPTH_MAX = 100
_META = "apimachinery.pkg.apis.meta.v1"
_EXTENSIONS = "apiextensions_apiserver.pkg.apis.apiextensions"
_GROUPS = {
    "": "core",
    "internal.apiserver.k8s.io": "apiserverinternal",
    "apiextensions.k8s.io": _EXTENSIONS,
}
_YEAR_MAX = 253402300799

# JSON name, type, flags: see proto/kubernetes_fields.py.
Field = tuple[str, str, str]
Message = dict[int, Field]
# Lengths and positions are checked by slicing: what is cut off is noticed.
Raw = memoryview


class Unreadable(ValueError):
    """A body that is not what it says."""


@cache
def _messages() -> dict[str, Message]:
    data = files("allot.wire").joinpath("kubernetes_fields.json").read_bytes()
    return msgspec.json.decode(data, type=dict[str, dict[int, tuple[str, str, str]]])


def read(body: bytes) -> dict[str, Any]:
    """The object in a body; Unreadable if it is none, or one of a kind that is not in the table."""
    if not body.startswith(MAGIC):
        raise Unreadable("does not begin as Kubernetes' protobuf does")
    api_version = kind = ""
    raw: Raw | bytes = b""
    for number, value in _fields(memoryview(body)[len(MAGIC) :]):
        if number == 1 and isinstance(value, memoryview):
            meta = {each: bytes(text).decode() for each, text in _fields(value) if isinstance(text, memoryview)}
            api_version, kind = meta.get(1, ""), meta.get(2, "")
        elif number == 2 and isinstance(value, memoryview):
            raw = value
        elif number == 3 and isinstance(value, memoryview) and len(value):
            raise Unreadable("has an unknown encoding")
    name = message_name(api_version, kind)
    if name is None:
        raise Unreadable(f"kind {kind!r} of {api_version!r} is not known in this format")
    value = _message(memoryview(raw), name, 0)
    assert isinstance(value, dict), "objects are structs"
    return {"apiVersion": api_version, "kind": kind, **value}


def message_name(api_version: str, kind: str) -> str | None:
    """The message of a kind; None if it is not in the table."""
    group, _, version = api_version.rpartition("/")
    package = _GROUPS.get(group) or group.split(".", 1)[0]
    for name in (f"{package}.{version}.{kind}", f"{_META}.{kind}"):
        if name in _messages():
            return name
    return None


# --- the wire ---


def _fields(data: Raw) -> Iterator[tuple[int, int | float | Raw]]:
    """Field numbers and values: an integer, a double, or bytes."""
    position, end = 0, len(data)
    while position < end:
        tag, position = _varint(data, position)
        number, wire = tag >> 3, tag & 7
        if wire == 0:
            value, position = _varint(data, position)
            yield number, value
        elif wire == 2:
            length, position = _varint(data, position)
            if position + length > end:
                raise Unreadable("ends in the middle of a field")
            yield number, data[position : position + length]
            position += length
        elif wire in (1, 5):
            size, form = (8, "<d") if wire == 1 else (4, "<f")
            if position + size > end:
                raise Unreadable("ends in the middle of a field")
            yield number, struct.unpack(form, data[position : position + size])[0]
            position += size
        else:
            raise Unreadable(f"has a field of unknown form {wire}")


def _varint(data: Raw, position: int) -> tuple[int, int]:
    result = shift = 0
    while True:
        if position >= len(data) or shift > 63:
            raise Unreadable("ends in the middle of a number")
        byte = data[position]
        position += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return result & 0xFFFFFFFFFFFFFFFF, position
        shift += 7


# --- values ---


def _message(data: Raw, name: str, depth: int) -> Any:
    if depth > _DEPTH_MAX:
        raise Unreadable("is nested too deeply")
    special = _SPECIAL.get(name)
    if special is not None:
        return special(data, depth)
    known = _messages().get(name)
    if known is None:
        raise Unreadable(f"refers to an unknown message {name!r}")
    if len(known) == 1 and known.get(1) == ("items", "s", "r"):
        return [_text(value) for _, value in _fields(data)]
    told: dict[str, Any] = {}
    for number, value in _fields(data):
        field = known.get(number)
        if field is not None:
            _put(told, field, value, depth)
    return told


def _put(told: dict[str, Any], field: Field, value: int | float | Raw, depth: int) -> None:
    name, type_, flags = field
    if type_[0] == "<":
        key, item = _entry(value, type_[1:-1], depth)
        told.setdefault(name, {})[key] = item
        return
    read_ = _value(value, type_, depth)
    if "r" in flags:
        told.setdefault(name, []).append(read_)
    elif "l" in flags:
        if isinstance(read_, dict):
            told |= read_
    elif read_ is not None and not ("o" in flags and _is_zero(read_)):
        told[name] = read_


def _is_zero(value: Any) -> bool:
    """Fields without pointers are sent even if nobody set them; an empty struct is what JSON shows as {}."""
    return value is False or value == 0 or value == ""


def _value(value: int | float | Raw, type_: str, depth: int) -> Any:
    match type_:
        case "s":
            return _text(value)
        case "i":
            if not isinstance(value, int):
                raise Unreadable("has no number where one is expected")
            return value - 2**64 if value >= 2**63 else value
        case "?":
            return bool(value)
        case "d":
            if isinstance(value, memoryview):
                raise Unreadable("has no number where one is expected")
            return float(value)
        case "b":
            return base64.b64encode(_bytes(value)).decode()
    return _message(memoryview(_bytes(value)), type_, depth + 1)


def _entry(value: int | float | Raw, type_: str, depth: int) -> tuple[str, Any]:
    key, item = "", None
    for number, part in _fields(memoryview(_bytes(value))):
        if number == 1:
            key = _text(part)
        elif number == 2:
            item = _value(part, type_, depth + 1)
    if item is None:
        item = {"s": "", "b": "", "i": 0, "?": False}.get(type_)
    return key, item


def _bytes(value: int | float | Raw) -> bytes:
    if not isinstance(value, memoryview):
        raise Unreadable("has a number where text or a message is expected")
    return bytes(value)


def _text(value: int | float | Raw) -> str:
    try:
        return _bytes(value).decode()
    except UnicodeDecodeError:
        raise Unreadable("has text that is not UTF-8") from None


# --- messages with a form of their own in JSON ---


def _single(data: Raw, number: int) -> int | float | Raw | None:
    found: int | float | Raw | None = None
    for each, value in _fields(data):
        if each == number:
            found = value
    return found


def _time(data: Raw, _depth: int) -> str | None:
    seconds, _ = _moment(data)
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _micro_time(data: Raw, _depth: int) -> str | None:
    seconds, nanos = _moment(data)
    if seconds is None:
        return None
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S") + f".{nanos // 1000:06d}Z"


def _moment(data: Raw) -> tuple[int | None, int]:
    seconds: int | None = None
    nanos = 0
    for number, value in _fields(data):
        if number == 1 and isinstance(value, int):
            seconds = value - 2**64 if value >= 2**63 else value
        elif number == 2 and isinstance(value, int):
            nanos = value
    # The zero time of Go, or nothing at all, is no time.
    if seconds is None or not 0 <= seconds <= _YEAR_MAX or not 0 <= nanos < 10**9:
        return None, 0
    return seconds, nanos


def _quantity(data: Raw, _depth: int) -> str:
    value = _single(data, 1)
    return "0" if value is None else _text(value)


def _int_or_string(data: Raw, _depth: int) -> int | str:
    fields = dict(_fields(data))
    if fields.get(1, 0) == 1:
        return _text(fields.get(3, memoryview(b"")))
    number = fields.get(2, 0)
    if not isinstance(number, int):
        raise Unreadable("has no number where one is expected")
    return number - 2**64 if number >= 2**63 else number


def _json(data: Raw, _depth: int) -> Any:
    value = _single(data, 1)
    if value is None:
        return None
    raw = _bytes(value)
    try:
        return read(raw) if raw.startswith(MAGIC) else msgspec.json.decode(raw) if raw else None
    except (msgspec.DecodeError, RecursionError):
        raise Unreadable("has an embedded value that is not JSON") from None


def _duration(data: Raw, _depth: int) -> str:
    value = _single(data, 1)
    nanos = value if isinstance(value, int) else 0
    return f"{nanos / 1e9:.9f}".rstrip("0").rstrip(".") + "s"


def _schema_or_array(data: Raw, depth: int) -> Any:
    schemas = [
        _message(memoryview(_bytes(v)), f"{_EXTENSIONS}.v1.JSONSchemaProps", depth + 1)
        for n, v in _fields(data)
        if n == 2
    ]
    one = _single(data, 1)
    return schemas if one is None else _message(memoryview(_bytes(one)), f"{_EXTENSIONS}.v1.JSONSchemaProps", depth + 1)


def _schema_or_bool(data: Raw, depth: int) -> Any:
    schema = _single(data, 2)
    if schema is not None:
        return _message(memoryview(_bytes(schema)), f"{_EXTENSIONS}.v1.JSONSchemaProps", depth + 1)
    return bool(_single(data, 1))


def _schema_or_texts(data: Raw, depth: int) -> Any:
    schema = _single(data, 1)
    if schema is not None:
        return _message(memoryview(_bytes(schema)), f"{_EXTENSIONS}.v1.JSONSchemaProps", depth + 1)
    return [_text(value) for number, value in _fields(data) if number == 2]


_SPECIAL = {
    f"{_META}.Time": _time,
    f"{_META}.MicroTime": _micro_time,
    f"{_META}.Duration": _duration,
    f"{_META}.FieldsV1": _json,
    "apimachinery.pkg.api.resource.Quantity": _quantity,
    "apimachinery.pkg.util.intstr.IntOrString": _int_or_string,
    "apimachinery.pkg.runtime.RawExtension": _json,
    f"{_EXTENSIONS}.v1.JSON": _json,
    f"{_EXTENSIONS}.v1.JSONSchemaPropsOrArray": _schema_or_array,
    f"{_EXTENSIONS}.v1.JSONSchemaPropsOrBool": _schema_or_bool,
    f"{_EXTENSIONS}.v1.JSONSchemaPropsOrStringArray": _schema_or_texts,
}
