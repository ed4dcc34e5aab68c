"""CEL types, declarations and the checker's results.

Shared by the checker, the cost estimator, the function library and the code generator; knows no specific function or
environment.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

import msgspec

from allot.core.cel.syntax.ast import Parsed


class Kind(Enum):
    """What sort of type."""

    NULL = "null_type"
    BOOL = "bool"
    INT = "int"
    UINT = "uint"
    DOUBLE = "double"
    STRING = "string"
    BYTES = "bytes"
    DURATION = "google.protobuf.Duration"
    TIMESTAMP = "google.protobuf.Timestamp"
    LIST = "list"
    MAP = "map"
    TYPE = "type"
    # `any` and `dyn` behave alike but print differently.
    ANY = "any"
    DYN = "dyn"
    ERROR = "!error!"
    # A named type without parameters (kubernetes.Quantity) or with (optional_type).
    OPAQUE = "opaque"
    # A type with declared fields (the device).
    OBJECT = "object"
    TYPE_PARAM = "type_param"


class CelType(msgspec.Struct, frozen=True):
    """A type: its kind, its name for OPAQUE, OBJECT and TYPE_PARAM, and its parameters."""

    kind: Kind
    name: str = ""
    params: tuple[CelType, ...] = ()


NULL = CelType(Kind.NULL)
BOOL = CelType(Kind.BOOL)
INT = CelType(Kind.INT)
UINT = CelType(Kind.UINT)
DOUBLE = CelType(Kind.DOUBLE)
STRING = CelType(Kind.STRING)
BYTES = CelType(Kind.BYTES)
DURATION = CelType(Kind.DURATION)
TIMESTAMP = CelType(Kind.TIMESTAMP)
ANY = CelType(Kind.ANY)
DYN = CelType(Kind.DYN)
ERROR = CelType(Kind.ERROR)


def list_of(element: CelType) -> CelType:
    """list(element)"""
    return CelType(Kind.LIST, params=(element,))


def map_of(key: CelType, value: CelType) -> CelType:
    """map(key, value)"""
    return CelType(Kind.MAP, params=(key, value))


def type_of(value: CelType) -> CelType:
    """type(value)"""
    return CelType(Kind.TYPE, params=(value,))


def opaque(name: str, *params: CelType) -> CelType:
    """A named abstract type such as kubernetes.Quantity or optional_type(T)."""
    return CelType(Kind.OPAQUE, name, params)


def optional_of(value: CelType) -> CelType:
    """optional_type(value)"""
    return opaque("optional_type", value)


def type_param(name: str) -> CelType:
    """A type variable in a declaration."""
    return CelType(Kind.TYPE_PARAM, name)


# Kubernetes declares these as objects, though without fields; messages about their fields depend on that.
QUANTITY = CelType(Kind.OBJECT, "kubernetes.Quantity")
SEMVER = CelType(Kind.OBJECT, "kubernetes.Semver")
URL = CelType(Kind.OBJECT, "kubernetes.URL")
FORMAT = CelType(Kind.OBJECT, "kubernetes.NamedFormat")
IP = opaque("net.IP")
CIDR = opaque("net.CIDR")


class Overload(msgspec.Struct, frozen=True):
    """One signature of a function. For a member overload the receiver is params[0]."""

    id: str
    params: tuple[CelType, ...]
    result: CelType
    member: bool = False
    # Whether it contains type parameters; overloads without them match faster.
    generic: bool = True


class Function(msgspec.Struct, frozen=True):
    """A function and its overloads, in the order in which they are tried."""

    name: str
    overloads: tuple[Overload, ...]


class Reference(msgspec.Struct, frozen=True):
    """What a node was resolved to: a variable or type (name), or the overloads that remain possible."""

    name: str = ""
    overload_ids: tuple[str, ...] = ()


class Checked(msgspec.Struct, frozen=True, kw_only=True):
    """A type-checked expression."""

    parsed: Parsed
    types: Mapping[int, CelType]
    references: Mapping[int, Reference]
