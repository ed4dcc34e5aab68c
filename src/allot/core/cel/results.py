"""Interprets an expression's result: a match, an attribute's value, or upstream's error about its type."""

from __future__ import annotations

from typing import Any, Final

from allot.core.cel.checking.types import CelType, Kind
from allot.core.cel.data.authorization import Authorizer, Decision, GroupCheck, PathCheck, ResourceCheck
from allot.core.cel.data.values import (
    CIDR,
    IP,
    URL,
    ComputedQuantity,
    Duration,
    EvaluationError,
    NamedFormat,
    Optional,
    Timestamp,
    TypeValue,
    Value,
    is_list,
    is_map,
    type_name,
)
from allot.core.cel.syntax.ast import UInt
from allot.core.quantity import Quantity
from allot.core.semver import Semver

# Upstream's errors when converting a value to bool.
_NOT_BOOL: Final[dict[type, str]] = {
    str: "unsupported native conversion from string to 'bool'",
    int: "unsupported type conversion from 'int' to bool",
    UInt: "unsupported type conversion from 'uint' to bool",
    float: "type conversion error from Double to 'bool'",
    bytes: "type conversion error from Bytes to 'bool'",
    type(None): "type conversion error from 'null_type' to 'bool'",
    Duration: "type conversion error from 'Duration' to 'bool'",
    Timestamp: "type conversion error from 'Timestamp' to 'bool'",
    Quantity: "type conversion error from 'Quantity' to 'bool'",
    ComputedQuantity: "type conversion error from 'Quantity' to 'bool'",
    Semver: "type conversion error from 'Semver' to 'bool'",
    IP: "type conversion error from 'IP' to 'bool'",
    CIDR: "type conversion error from 'CIDR' to 'bool'",
    URL: "type conversion error from 'URL' to 'bool'",
    NamedFormat: "type conversion error from 'Format' to 'bool'",
    TypeValue: "type conversion not supported for 'type'",
    **dict.fromkeys(
        (Authorizer, PathCheck, GroupCheck, ResourceCheck, Decision), "type conversion not supported to 'bool'"
    ),
}
# The Go types of values, for messages.
_NATIVE: Final[dict[type, str]] = {
    bool: "bool",
    int: "int64",
    str: "string",
    Semver: "semver.Version",
    UInt: "uint64",
    float: "float64",
    bytes: "[]uint8",
    type(None): "structpb.NullValue",
    Duration: "time.Duration",
    Timestamp: "time.Time",
    Quantity: "*resource.Quantity",
    ComputedQuantity: "*resource.Quantity",
    IP: "netip.Addr",
    CIDR: "netip.Prefix",
    URL: "*url.URL",
    NamedFormat: "cel.Format",
    TypeValue: "string",
}
_KINDS: Final[dict[type, tuple[str, str]]] = {
    bool: ("bool", "bool"),
    int: ("int", "int"),
    str: ("string", "string"),
    Semver: ("version", "semver"),
}


def as_bool(value: Value) -> bool:
    """The result of a selector as a bool."""
    if value.__class__ is bool:
        return bool(value)
    inner = value
    while inner.__class__ is Optional and inner.present:
        inner = inner.value
    if inner.__class__ is bool:
        return bool(inner)
    if inner.__class__ is Optional:
        reason = "optional.none() dereference"
    elif is_list(inner):
        reason = "type conversion error from list to 'bool'"
    elif is_map(inner):
        reason = "type conversion error from map to 'bool'"
    else:
        reason = _NOT_BOOL[inner.__class__]
    raise EvaluationError(f"CEL result of type {type_name(value)} could not be converted to bool: {reason}")


def as_attribute(value: Value) -> tuple[str, Any]:
    """The result of a derived attribute as (kind, value); versions as text."""
    while value.__class__ is Optional and value.present:
        value = value.value
    if value.__class__ is TypeValue:
        return "string", value.name
    if value.__class__ in _KINDS:
        return _KINDS[value.__class__][0], _plain(value)
    if is_list(value):
        return _as_list(value)
    raise EvaluationError(f"unsupported CEL return type: {_native(value)}")


def _as_list(elements: Value) -> tuple[str, Any]:
    if not elements:
        return "strings", []
    first = elements[0].__class__
    if first not in _KINDS:
        raise EvaluationError(f"unsupported list element type: {_native(elements[0])}")
    kind, wanted = _KINDS[first]
    for position, element in enumerate(elements):
        if element.__class__ is not first:
            raise EvaluationError(f"expected list element at index {position} to be {wanted}, got {_native(element)}")
    return f"{kind}s", [_plain(element) for element in elements]


def _plain(value: Value) -> Any:
    return str(value) if value.__class__ is Semver else value


def _native(value: Value) -> str:
    if is_list(value):
        return "[]ref.Val"
    if is_map(value):
        return "map[ref.Val]ref.Val"
    return _NATIVE.get(value.__class__, "<nil>")


def type_text(declared: CelType) -> str:
    """A type as cel-go prints it."""
    kind = declared.kind
    if kind is Kind.TYPE_PARAM:
        return f"<{declared.name}>"
    name = (
        declared.name
        if kind in (Kind.OPAQUE, Kind.OBJECT)
        else "google.protobuf.Any"
        if kind is Kind.ANY
        else kind.value
    )
    return f"{name}({', '.join(map(type_text, declared.params))})" if declared.params else name
