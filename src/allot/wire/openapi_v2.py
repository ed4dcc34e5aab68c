"""OpenAPI v2 documents in protobuf (gnostic's messages), for older clients of Kubernetes.

Messages are tables from the names of JSON to field numbers. Encoded parts of a document can be joined: fields that
come several times may be anywhere.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

MEDIA_TYPE = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"

Object = Mapping[str, Any]
# From field number and JSON value to the bytes of a field.
_Write = Callable[[int, Any], bytes]


def encode_document(info: Object, definitions: bytes, paths: bytes) -> bytes:
    """Encode a document; definitions and paths are already encoded."""
    return (
        _text(1, "2.0")
        + _part(2, _text(1, info["title"]) + _text(2, info["version"]))
        + _part(8, paths)
        + _part(9, definitions)
    )


def encode_definitions(definitions: Object) -> bytes:
    """Schemas by name."""
    return _named(definitions, _SCHEMA)


def encode_paths(paths: Object) -> bytes:
    """Operations by path."""
    return b"".join(_part(2, _text(1, name) + _part(2, _fields(item, _PATH_ITEM))) for name, item in paths.items())


# --- fields ---


def _varint(number: int) -> bytes:
    if number < 0x80:
        return bytes((number,))
    found = bytearray()
    while number >= 0x80:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)


def _part(number: int, encoded: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(encoded)) + encoded


def _text(number: int, value: Any) -> bytes:
    return _part(number, str(value).encode())


def _flag(number: int, value: Any) -> bytes:
    return _varint(number << 3) + b"\x01" if value is True else b""


def _integer(number: int, value: Any) -> bytes:
    return _varint(number << 3) + _varint(int(value) & (2**64 - 1))


def _double(number: int, value: Any) -> bytes:
    return _varint(number << 3 | 1) + struct.pack("<d", float(value))


def _texts(number: int, value: Any) -> bytes:
    return b"".join(_text(number, each) for each in value)


def _any(number: int, value: Any) -> bytes:
    """An untyped value, as YAML, which includes JSON."""
    return _part(number, _text(2, msgspec.json.encode(value).decode()))


def _every(number: int, value: Any) -> bytes:
    return b"".join(_any(number, each) for each in value)


# --- messages ---

_Fields = Mapping[str, tuple[int, _Write]]
# Fields, and the number of those that begin with x-.
_Message = tuple[_Fields, int]


def _fields(value: Object, message: _Message) -> bytes:
    fields, extension = message
    found = []
    for name, item in value.items():
        known = fields.get(name)
        if known is not None:
            found.append(known[1](known[0], item))
        elif name.startswith("x-"):
            found.append(_part(extension, _text(1, name) + _any(2, item)))
    return b"".join(found)


def _named(values: Object, message: _Message) -> bytes:
    return b"".join(_part(1, _text(1, name) + _part(2, _fields(each, message))) for name, each in values.items())


def _schema(number: int, value: Any) -> bytes:
    return _part(number, _fields(value, _SCHEMA))


def _schemas(number: int, value: Any) -> bytes:
    return b"".join(_schema(number, each) for each in value)


def _properties(number: int, value: Any) -> bytes:
    return _part(number, _named(value, _SCHEMA))


def _additional(number: int, value: Any) -> bytes:
    # A oneof, so false is also written.
    return _part(number, b"\x10" + bytes((value,)) if isinstance(value, bool) else _schema(1, value))


def _types(number: int, value: Any) -> bytes:
    return _part(number, _text(1, value))


def _items(number: int, value: Any) -> bytes:
    return _part(number, _schema(1, value))


def _operation(number: int, value: Any) -> bytes:
    return _part(number, _fields(value, _OPERATION))


_PLACES = {"query": 3, "path": 4}


def _parameters(number: int, value: Any) -> bytes:
    return b"".join(_part(number, _part(1, _parameter(each))) for each in value)


def _parameter(value: Object) -> bytes:
    if value["in"] == "body":
        return _part(1, _fields(value, _BODY))
    kind = _QUERY_PARAMETER if value["in"] == "query" else _PATH_PARAMETER
    return _part(2, _part(_PLACES[value["in"]], _fields(value, kind)))


def _responses(number: int, value: Any) -> bytes:
    return _part(
        number,
        b"".join(
            _part(1, _text(1, code) + _part(2, _part(1, _fields(each, _RESPONSE)))) for code, each in value.items()
        ),
    )


_SCHEMA: _Message = (
    {
        "$ref": (1, _text),
        "format": (2, _text),
        "title": (3, _text),
        "description": (4, _text),
        "default": (5, _any),
        "multipleOf": (6, _double),
        "maximum": (7, _double),
        "exclusiveMaximum": (8, _flag),
        "minimum": (9, _double),
        "exclusiveMinimum": (10, _flag),
        "maxLength": (11, _integer),
        "minLength": (12, _integer),
        "pattern": (13, _text),
        "maxItems": (14, _integer),
        "minItems": (15, _integer),
        "uniqueItems": (16, _flag),
        "maxProperties": (17, _integer),
        "minProperties": (18, _integer),
        "required": (19, _texts),
        "enum": (20, _every),
        "additionalProperties": (21, _additional),
        "type": (22, _types),
        "items": (23, _items),
        "allOf": (24, _schemas),
        "properties": (25, _properties),
        "readOnly": (27, _flag),
        "example": (30, _any),
    },
    31,
)
_OPERATION: _Message = (
    {
        "description": (3, _text),
        "operationId": (5, _text),
        "produces": (6, _texts),
        "consumes": (7, _texts),
        "parameters": (8, _parameters),
        "responses": (9, _responses),
    },
    13,
)
_PATH_ITEM: _Message = (
    {
        "get": (2, _operation),
        "put": (3, _operation),
        "post": (4, _operation),
        "delete": (5, _operation),
        "patch": (8, _operation),
        "parameters": (9, _parameters),
    },
    10,
)
_BODY: _Message = (
    {"description": (1, _text), "name": (2, _text), "in": (3, _text), "required": (4, _flag), "schema": (5, _schema)},
    6,
)
_PARAMETER: _Fields = {
    "required": (1, _flag),
    "in": (2, _text),
    "description": (3, _text),
    "name": (4, _text),
}
_QUERY_PARAMETER: _Message = ({**_PARAMETER, "type": (6, _text), "uniqueItems": (20, _flag)}, 23)
_PATH_PARAMETER: _Message = ({**_PARAMETER, "type": (5, _text), "uniqueItems": (19, _flag)}, 22)
_RESPONSE: _Message = (
    {"description": (1, _text), "schema": (2, lambda number, value: _part(number, _schema(1, value)))},
    5,
)
