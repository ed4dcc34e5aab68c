"""A whole body: four bytes that mark Kubernetes' protobuf, and a message that names the object's type and holds it."""

from __future__ import annotations

from typing import Any

from allot.core.model.decoding import DecodeError, check_bounds
from allot.wire.kubernetes.decoding import read_message
from allot.wire.kubernetes.table import object_message
from allot.wire.kubernetes.wire import BYTES, Malformed, Wire

MAGIC = b"k8s\0"
_MEDIA_TYPE = "application/vnd.kubernetes.protobuf"
_TYPE, _OBJECT, _ENCODING, _CONTENT_TYPE = 1, 2, 3, 4
_API_VERSION, _KIND = 1, 2
_NAME_TOLD_MAX = 100


class NotReadable(ValueError):
    """An object that is not in the table, or one in another format inside the envelope."""


def read(body: bytes) -> dict[str, Any]:
    """The object in a body, as a JSON value; Malformed or NotReadable."""
    if not body.startswith(MAGIC):
        raise Malformed(f"provided data does not appear to be a protobuf message, expected prefix {list(MAGIC)}")
    if len(body) == len(MAGIC):
        raise Malformed("empty body")
    wire = Wire(body)
    parts = _parts(wire, len(MAGIC), len(body))
    type_ = _parts(wire, *parts.get(_TYPE, (0, 0)))
    api_version, kind = (wire.text(*type_.get(number, (0, 0))) for number in (_API_VERSION, _KIND))
    if not kind or not api_version:
        raise Malformed(f"Object '{'apiVersion' if kind else 'Kind'}' is missing")
    told = kind[:_NAME_TOLD_MAX], api_version[:_NAME_TOLD_MAX]
    if wire.text(*parts.get(_ENCODING, (0, 0))) or wire.text(*parts.get(_CONTENT_TYPE, (0, 0))) not in (
        "",
        _MEDIA_TYPE,
    ):
        raise NotReadable(f"{told[0]!r} of {told[1]!r} is in another format inside the protobuf body")
    name = object_message(api_version, kind)
    if name is None:
        raise NotReadable(f"{told[0]!r} of {told[1]!r} is not read as protobuf")
    try:
        value = read_message(wire, name, *parts.get(_OBJECT, (0, 0)))
        check_bounds(value)
    except (Malformed, DecodeError) as error:
        version = api_version.rpartition("/")[2]
        text = f'{kind} in version "{version}" cannot be handled as a {kind}: protobuf: {error}'
        raise Malformed(text) from None
    return {"apiVersion": api_version, "kind": kind, **value}


def _parts(wire: Wire, start: int, end: int) -> dict[int, tuple[int, int]]:
    parts: dict[int, tuple[int, int]] = {}
    for number, form, first, second in wire.fields(start, end):
        if form != BYTES or number in parts or number > _CONTENT_TYPE:
            raise Malformed(f"field {number} does not belong in the envelope of a protobuf body")
        parts[number] = first, second
    return parts
