"""Protobuf bytes for tests, made with the protobuf library from descriptors that are built here.

The descriptors come from the same table as the reader's, read in another way; the bytes come from somebody else's code.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any

import msgspec
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import Message

MAGIC = b"k8s\0"
META = "apimachinery.pkg.apis.meta.v1"
_FIELD = descriptor_pb2.FieldDescriptorProto
_SCALARS = {
    "s": _FIELD.TYPE_STRING,
    "b": _FIELD.TYPE_BYTES,
    "i": _FIELD.TYPE_INT64,
    "?": _FIELD.TYPE_BOOL,
    "d": _FIELD.TYPE_DOUBLE,
}


@cache
def rows() -> dict[str, dict[str, list[str]]]:
    """The table as it is in its file."""
    value = msgspec.json.decode(files("allot.wire").joinpath("kubernetes_fields.json").read_bytes())
    assert isinstance(value, dict)
    return value


def _flat(name: str) -> str:
    return name.replace(".", "_")


def _describe(field: Any, type_: str) -> None:
    if type_ in _SCALARS:
        field.type = _SCALARS[type_]
    else:
        field.type, field.type_name = _FIELD.TYPE_MESSAGE, f".t.{_flat(type_)}"


@cache
def _pool() -> descriptor_pool.DescriptorPool:
    file = descriptor_pb2.FileDescriptorProto(name="t.proto", package="t", syntax="proto2")
    for name, fields in rows().items():
        message = file.message_type.add(name=_flat(name))
        for number, (_, type_, flags) in fields.items():
            label = _FIELD.LABEL_REPEATED if "r" in flags or type_[0] == "<" else _FIELD.LABEL_OPTIONAL
            field = message.field.add(name=f"f{number}", number=int(number), label=label)
            if type_[0] != "<":
                _describe(field, type_)
                continue
            entry = message.nested_type.add(name=f"F{number}Entry")
            entry.options.map_entry = True
            entry.field.add(name="key", number=1, label=_FIELD.LABEL_OPTIONAL, type=_FIELD.TYPE_STRING)
            _describe(entry.field.add(name="value", number=2, label=_FIELD.LABEL_OPTIONAL), type_[1:-1])
            field.type, field.type_name = _FIELD.TYPE_MESSAGE, f".t.{_flat(name)}.F{number}Entry"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return pool


def new(name: str) -> Message:
    """An empty message."""
    return message_factory.GetMessageClass(_pool().FindMessageTypeByName(f"t.{_flat(name)}"))()


def enveloped(api_version: str, kind: str, raw: bytes, *, encoding: str = "", content_type: str = "") -> bytes:
    """A body."""
    unknown: Any = new("apimachinery.pkg.runtime.Unknown")
    unknown.f1.f1, unknown.f1.f2, unknown.f2 = api_version, kind, raw
    unknown.f3, unknown.f4 = encoding, content_type
    return MAGIC + bytes(unknown.SerializeToString())
