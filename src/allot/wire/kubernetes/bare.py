"""Objects as bare messages without the envelope, as in protocols besides the API.

Writes the set fields of Nodes and slices; times are left out, and fields that the table does not know are an error.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from allot.wire.kubernetes.decoding import read_message
from allot.wire.kubernetes.table import BOOLEAN, INTEGER, TEXT, Field, message_of
from allot.wire.kubernetes.wire import Wire

NODE, SLICE = "core.v1.Node", "resource.v1.ResourceSlice"
_QUANTITY = "apimachinery.pkg.api.resource.Quantity"
_TIME = "apimachinery.pkg.apis.meta.v1.Time"
_BYTES_FORM, _VARINT_FORM = 2, 0


def read_bare(data: bytes, message: str) -> dict[str, Any]:
    """The JSON value of a message. Malformed, DecodeError."""
    value = read_message(Wire(data), message, 0, len(data))
    assert isinstance(value, dict), "an object is a mapping"
    return value


def write_bare(value: Mapping[str, Any], message: str) -> bytes:
    """The message of a JSON value."""
    by_name = {field.name: (number, field) for number, field in message_of(message).fields.items()}
    out = bytearray()
    for name, each in value.items():
        if name in ("apiVersion", "kind") or each is None:
            continue
        number, field = by_name[name]
        out += _field(number, field, each)
    return bytes(out)


def _field(number: int, field: Field, value: Any) -> bytes:
    if field.type_ == _TIME:
        return b""
    if field.map_:
        entries = (_value(1, TEXT, key) + _value(2, field.type_, each) for key, each in value.items())
        return b"".join(_given(number, entry) for entry in entries)
    items: Sequence[Any] = value if field.repeated else (value,)
    return b"".join(_value(number, field.type_, each) for each in items)


def _value(number: int, type_: str, value: Any) -> bytes:
    if type_ == TEXT:
        return _given(number, str(value).encode())
    if type_ in (INTEGER, BOOLEAN):
        return _varint(number << 3 | _VARINT_FORM) + _varint(int(value))
    if type_ == _QUANTITY:
        return _given(number, _given(1, str(value).encode()))
    assert len(type_) > 1, f"{type_} is not written"
    return _given(number, write_bare(value, type_))


def _given(number: int, data: bytes) -> bytes:
    return _varint(number << 3 | _BYTES_FORM) + _varint(len(data)) + data


def _varint(value: int) -> bytes:
    value &= 2**64 - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
