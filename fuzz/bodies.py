"""Values as request bodies: JSON, YAML, Kubernetes' protobuf."""

from __future__ import annotations

import base64
import random
import struct
from collections.abc import Mapping
from typing import Any

import msgspec
import yaml

from allot.wire.kubernetes.table import BOOLEAN, BYTES, DOUBLE, INTEGER, TEXT, Field, message_of, object_message

JSON = "application/json"
YAML = "application/yaml"
PROTOBUF = "application/vnd.kubernetes.protobuf"
_QUANTITY, _INT_OR_STRING = "resource.Quantity", "intstr.IntOrString"
_TIMES = ("v1.Time", "v1.MicroTime", "v1.Timestamp")

_YAML_ODDITIES = (
    b"a: &a [*a]\n",
    b"a: &a [1,1,1,1,1,1,1,1,1]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b]\nd: [*c,*c,*c,*c,*c,*c,*c]\n",
    b"<<: {a: 1}\n",
    b"? [a, b]\n: c\n",
    b"? {a: b}\n: c\n",
    b"a: !!python/object/apply:os.system [true]\n",
    b"a: !!binary YQ==\n",
    b"a: !!set {b, c}\n",
    b"a: 2026-01-01\nb: 1_000\nc: 0o17\nd: .inf\ne: .nan\nf: 1:30\n",
    b"---\na: 1\n---\nb: 2\n",
    b"%YAML 1.1\n---\na: 1\n",
    b"a: 1\na: 2\n",
    b"\xef\xbb\xbfa: 1\n",
    b"a: |\n" + b"  x\n" * 2000,
    b"- " * 3000 + b"a\n",
    b"{" * 3000,
    b"a: '\n",
    b"\t\n",
    b"a: &b\n*b : 1\n",
    b"1: 2\ntrue: false\nnull: ~\n",
)


def as_json(value: Any) -> bytes:
    """JSON, with what is raw as it is."""
    return msgspec.json.encode(value)


def as_yaml(value: Any, dice: random.Random) -> bytes:
    """YAML in one of its styles; JSON is YAML too."""
    if dice.random() < 0.05:
        return dice.choice(_YAML_ODDITIES)
    try:
        style = dice.choice((True, False, None))
        text: str = yaml.dump(
            value, Dumper=yaml.CSafeDumper, default_flow_style=style, allow_unicode=dice.random() < 0.5
        )
        return text.encode("utf-8", "surrogatepass")
    except (yaml.YAMLError, RecursionError):
        return as_json(value)


def as_protobuf(value: Any) -> bytes:
    """Kubernetes' protobuf; JSON where a value has no such form."""
    try:
        api_version, kind = value["apiVersion"], value["kind"]
        name = object_message(api_version, kind)
        if name is None:
            return as_json(value)
        type_ = _delimited(1, api_version.encode()) + _delimited(2, kind.encode())
        return b"k8s\0" + _delimited(1, type_) + _delimited(2, _message(name, value))
    except (TypeError, ValueError, KeyError, AttributeError, struct.error, RecursionError):
        return as_json(value)


def _varint(number: int) -> bytes:
    number &= (1 << 64) - 1
    data = bytearray()
    while number > 0x7F:
        data.append(number & 0x7F | 0x80)
        number >>= 7
    data.append(number)
    return bytes(data)


def _delimited(number: int, data: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def _message(name: str, value: Any) -> bytes:
    if name.endswith(_QUANTITY):
        return _delimited(1, str(value).encode())
    if name.endswith(_INT_OR_STRING):
        if isinstance(value, str):
            return _varint(1 << 3) + _varint(1) + _delimited(3, value.encode())
        return _varint(1 << 3) + _varint(0) + _varint(2 << 3) + _varint(value)
    if name.endswith(_TIMES):
        return _varint(1 << 3) + _varint(1767225600)
    message = message_of(name)
    if message.is_list and isinstance(value, list):
        value = {"items": value}
    if set(message.fields) == {1} and message.fields[1].name in ("Raw", "raw"):
        return _delimited(1, as_json(value))
    return b"".join(_field(number, field, value) for number, field in message.fields.items())


def _field(number: int, field: Field, value: Mapping[str, Any]) -> bytes:
    if field.inline:
        return _delimited(number, _message(field.type_, value))
    found = value.get(field.name)
    if found is None:
        return b""
    if field.map_:
        return b"".join(
            _delimited(number, _delimited(1, key.encode()) + _value(2, field.type_, item))
            for key, item in found.items()
        )
    if field.repeated:
        return b"".join(_value(number, field.type_, item) for item in found)
    return _value(number, field.type_, found)


def _value(number: int, type_: str, value: Any) -> bytes:
    if type_ == TEXT:
        return _delimited(number, value.encode("utf-8", "surrogatepass"))
    if type_ == BYTES:
        return _delimited(number, base64.b64decode(value))
    if type_ in (INTEGER, BOOLEAN):
        return _varint(number << 3) + _varint(int(value))
    if type_ == DOUBLE:
        return _varint(number << 3 | 1) + struct.pack("<d", value)
    return _delimited(number, _message(type_, value))
