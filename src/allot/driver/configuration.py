"""Opaque configuration: from the parameters in classes and claims to a driver's own types, for each allocated device.

Decoding is strict, as it is upstream: an unknown field, a wrong type or a kind that the driver does not have fails the claim
with a message that names it. A kind with a schema instead of a type is checked in the same way. Configuration of the class comes first, then that of the claim; the later one wins. Configuration
for a request also applies to its alternatives (`request/subrequest`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from allot.core.customresources.openapi import check_value
from allot.core.model.resource_v1 import FROM_CLAIM, FROM_CLASS, DeviceAllocationConfiguration
from allot.core.quantity import Quantity
from allot.core.schema import Schemas, apply_defaults, check_fields

T = TypeVar("T")

_UNKNOWN_FIELD = re.compile(r"Object contains unknown field `(.*?)`(?: - at `\$\.?(.*)`)?")
_PLACE = re.compile(r"(.*) - at `\$\.?(.*)`", re.DOTALL)


class ConfigError(ValueError):
    """Parameters that the driver does not understand."""


class ConfigKind(msgspec.Struct, frozen=True):
    """A kind of parameters. Both names empty: parameters without apiVersion and kind.

    The type is a `msgspec.Struct`; unknown fields are always refused. A ValueError in its `__post_init__`
    refuses a value. Without a type, give `dict` and a schema as in a CustomResourceDefinition: its defaults are
    filled in, and apiVersion and kind stay in the value.
    """

    api_version: str
    kind: str
    type: type[Any]
    schema: Mapping[str, Any] | None = None


class Config(msgspec.Struct, frozen=True):
    """Parameters that apply to a device. requests: those named in the claim; empty for all."""

    value: Any
    source: str
    requests: tuple[str, ...] = ()


class _TypeMeta(msgspec.Struct, frozen=True, rename="camel"):
    api_version: str = ""
    kind: str = ""


def base_request(request: str) -> str:
    """The request that a pod can name: without the chosen alternative."""
    return request.partition("/")[0]


def decode_configs(
    driver: str, entries: Sequence[DeviceAllocationConfiguration], kinds: Sequence[ConfigKind]
) -> tuple[Config, ...]:
    """The driver's parameters in an allocation, lowest precedence first; ConfigError names the first invalid ones."""
    decoded = []
    for position, entry in enumerate(entries):
        if entry.opaque is None or entry.opaque.driver != driver:
            continue
        if entry.source not in (FROM_CLASS, FROM_CLAIM):
            raise ConfigError(f"config {position}: source {entry.source!r}, expected {FROM_CLASS!r} or {FROM_CLAIM!r}")
        data = entry.opaque.parameters.data if entry.opaque.parameters is not None else b"null"
        try:
            value = decode_parameters(data, kinds)
        except ConfigError as error:
            raise ConfigError(f"config {position} ({entry.source}): {error}") from None
        decoded.append(Config(value, entry.source, entry.requests))
    # The sort is stable: within a source the order of the allocation stays.
    return tuple(sorted(decoded, key=lambda config: config.source == FROM_CLAIM))


def configs_for(request: str, configs: Sequence[Config]) -> tuple[Config, ...]:
    """The parameters for devices of a request (`name` or `name/alternative`)."""
    meant = (request, base_request(request))
    return tuple(config for config in configs if not config.requests or any(each in meant for each in config.requests))


def decode_parameters(data: bytes, kinds: Sequence[ConfigKind]) -> Any:
    """One set of parameters."""
    try:
        meta = msgspec.json.decode(data, type=_TypeMeta)
    except msgspec.MsgspecError as error:
        raise ConfigError(f"cannot be read: {error}") from None
    for kind in kinds:
        if (kind.api_version, kind.kind) == (meta.api_version, meta.kind):
            return _decode(data, kind)
    expected = ", ".join(f"{kind.kind} of {kind.api_version}" for kind in kinds) or "no parameters"
    raise ConfigError(f"kind {meta.kind!r} of apiVersion {meta.api_version!r}: expected {expected}")


def _decode(data: bytes, kind: ConfigKind) -> Any:
    name = f"{kind.kind}: " if kind.kind else ""
    value = msgspec.json.decode(data)
    if kind.schema is not None:
        return _fitting(value, kind.schema, name)
    if isinstance(value, dict):
        known = getattr(kind.type, "__struct_encode_fields__", ())
        value = {key: item for key, item in value.items() if key not in ("apiVersion", "kind") or key in known}
    try:
        decoded = msgspec.convert(value, kind.type, dec_hook=_read_quantity)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{name}{_explained(str(error))}") from None
    unknown = _unknown_field(value, kind.type, "")
    if unknown:
        raise ConfigError(f'{name}strict decoding error: unknown field "{unknown}"')
    return decoded


def _fitting(value: dict[str, Any], schema: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The parameters with the defaults of their schema; ConfigError lists all violations."""
    node = Schemas({}).from_structural(schema)
    if unknown := check_fields(value, node).unknown:
        raise ConfigError(f"{name}strict decoding error: " + ", ".join(f'unknown field "{each}"' for each in unknown))
    filled = apply_defaults(value, node)
    if errors := check_value(filled, schema):
        raise ConfigError(name + "; ".join(str(error) for error in errors))
    return filled


def _explained(text: str) -> str:
    """A decoding error in Kubernetes' wording, if it has one."""
    match = _UNKNOWN_FIELD.fullmatch(text)
    if match is not None:
        field = f"{match[2]}.{match[1]}" if match[2] else match[1]
        return f'strict decoding error: unknown field "{field}"'
    place = _PLACE.fullmatch(text)
    return f"{place[2]}: {place[1]}" if place is not None and place[2] else text


def _unknown_field(value: Any, type_: Any, path: str) -> str:
    """The first unknown field of a value whose type would accept unknown fields."""
    if not (isinstance(value, dict) and isinstance(type_, type) and issubclass(type_, msgspec.Struct)):
        return ""
    fields = {field.encode_name: field.type for field in msgspec.structs.fields(type_)}
    for key, item in value.items():
        where = f"{path}.{key}" if path else str(key)
        if key not in fields:
            return where
        found = _unknown_field(item, _struct_type(fields[key]), where)
        if found:
            return found
    return ""


def _struct_type(type_: Any) -> Any:
    """The struct in `Struct` or `Struct | None`; None for other types."""
    among = [
        each
        for each in (type_, *getattr(type_, "__args__", ()))
        if isinstance(each, type) and issubclass(each, msgspec.Struct)
    ]
    return among[0] if len(among) == 1 else None


def _read_quantity(type_: type, value: Any) -> Any:
    if type_ is Quantity and isinstance(value, str | int):
        return Quantity.parse(str(value))
    raise ValueError(f"expected {type_.__name__}, got {value!r}")
