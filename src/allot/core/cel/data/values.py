"""Values as expressions see them at run time: their classes, their type names, and how maps find keys.

CEL value -> Python value: null None, bool bool, int int, uint UInt, double float, string str, bytes bytes, list
list or tuple, map dict, the rest classes from here, core.quantity and core.semver. Knows no function, no environment
and no device. Equality and order are in `comparison`, texts of values in `text`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from allot.core.cel.data.authorization import Authorizer, Decision, GroupCheck, PathCheck, ResourceCheck
from allot.core.cel.syntax.ast import UInt
from allot.core.quantity import Quantity
from allot.core.semver import Semver

INT_MIN: Final = -(2**63)
INT_MAX: Final = 2**63 - 1
UINT_MAX: Final = 2**64 - 1
NO_SUCH_OVERLOAD: Final = "no such overload"
COST_EXCEEDED: Final = "operation cancelled: actual cost limit exceeded"

# What a CEL value may be is open-ended (lists of maps of ...): the functions here check the class.
Value = Any


class EvaluationError(Exception):
    """Evaluating an expression failed; the message is cel-go's."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class CelError(EvaluationError):
    """An error inside the language: `||` and `&&` absorb it when the other side decides."""


class EvaluationAborted(EvaluationError):
    """An error that ends the evaluation at once: too expensive, or where upstream's process would panic."""


class Duration(msgspec.Struct, frozen=True, order=True):
    """A span of time, 64-bit nanoseconds."""

    nanoseconds: int


class Timestamp(msgspec.Struct, frozen=True):
    """A moment: nanoseconds since 1970 UTC. The zone offset it was written with is kept for its text only."""

    nanoseconds: int
    offset_s: int = 0


class TypeValue(msgspec.Struct, frozen=True):
    """A type as a value: what type(x) gives."""

    name: str


class Optional:
    """A value that may be absent."""

    __slots__ = ("present", "value")

    def __init__(self, value: Value = None, present: bool = True) -> None:
        self.value = value
        self.present = present


NONE: Final = Optional(None, False)


class Message:
    """A value of a named object type that an expression constructed: `Object.spec{replicas: 3}`."""

    __slots__ = ("fields", "name")

    def __init__(self, name: str, fields: dict[str, Value]) -> None:
        self.name = name
        self.fields = fields


class IP(msgspec.Struct, frozen=True):
    """An IP address: the number and whether it is version 4 or 6."""

    version: int
    number: int


class CIDR(msgspec.Struct, frozen=True):
    """An address with a prefix length; bits after the prefix may be set."""

    address: IP
    bits: int


class URL(msgspec.Struct, frozen=True, kw_only=True):
    """A parsed absolute URL. `text` is what Go prints for it, by which URLs are equal."""

    text: str
    scheme: str = ""
    host: str = ""
    escaped_path: str = ""
    raw_query: str = ""


class NamedFormat(msgspec.Struct, frozen=True):
    """A Kubernetes string format such as dns1123Label; `regex_size` prices its use."""

    name: str
    key: str
    regex_size: int


class ComputedQuantity(Quantity):
    """A quantity from add() or sub(): upstream holds it by reference, which affects equality."""

    __slots__ = ()


class ConcatList(list[Value]):
    """Two lists joined by `+`: unlike others, it reports errors from comparing elements."""

    __slots__ = ()


class MutableList(list[Value]):
    """An accumulator that began as an empty list: `+` changes it in place."""

    __slots__ = ()


class KeyedMap(dict[Any, Value]):
    """A map made by an expression; keys are encoded by `map_key`. A plain dict has string keys only."""

    __slots__ = ()


class MutableMap(KeyedMap):
    """An accumulator that began as an empty map: inserting changes it in place."""

    __slots__ = ()


_EMPTY: Final[dict[str, Value]] = {}


class DefaultMap(dict[str, Value]):
    """The outer maps of a device: looking up an unknown domain gives an empty map, but `in` is false."""

    __slots__ = ()

    def __missing__(self, key: str) -> dict[str, Value]:
        return _EMPTY


LIST_CLASSES: Final[frozenset[type]] = frozenset((list, tuple, ConcatList, MutableList))
MAP_CLASSES: Final[frozenset[type]] = frozenset((dict, KeyedMap, MutableMap, DefaultMap))
NUMBER_CLASSES: Final[frozenset[type]] = frozenset((int, UInt, float))

TYPE_NAMES: Final[dict[type, str]] = {
    bool: "bool",
    int: "int",
    UInt: "uint",
    float: "double",
    str: "string",
    bytes: "bytes",
    type(None): "null_type",
    Duration: "google.protobuf.Duration",
    Timestamp: "google.protobuf.Timestamp",
    TypeValue: "type",
    Optional: "optional_type",
    Quantity: "kubernetes.Quantity",
    ComputedQuantity: "kubernetes.Quantity",
    Semver: "kubernetes.Semver",
    IP: "net.IP",
    CIDR: "net.CIDR",
    URL: "kubernetes.URL",
    NamedFormat: "kubernetes.NamedFormat",
    Authorizer: "kubernetes.authorization.Authorizer",
    PathCheck: "kubernetes.authorization.PathCheck",
    GroupCheck: "kubernetes.authorization.GroupCheck",
    ResourceCheck: "kubernetes.authorization.ResourceCheck",
    Decision: "kubernetes.authorization.Decision",
    **dict.fromkeys(LIST_CLASSES, "list"),
    **dict.fromkeys(MAP_CLASSES, "map"),
}

# Names that Go's %T prints, for the messages that contain them.
GO_TYPES: Final[dict[type, str]] = {
    type(None): "types.Null",
    bytes: "types.Bytes",
    Duration: "types.Duration",
    Timestamp: "types.Timestamp",
    TypeValue: "*types.Type",
    Optional: "*types.Optional",
    Quantity: "cel.Quantity",
    ComputedQuantity: "*cel.Quantity",
    Semver: "cel.Semver",
    IP: "cel.IP",
    CIDR: "cel.CIDR",
    URL: "cel.URL",
    NamedFormat: "cel.Format",
    Message: "*dynamic.ObjectVal",
    Authorizer: "library.authorizerVal",
    PathCheck: "library.pathCheckVal",
    GroupCheck: "library.groupCheckVal",
    ResourceCheck: "library.resourceCheckVal",
    Decision: "library.decisionVal",
    list: "*types.baseList",
    tuple: "*types.baseList",
    ConcatList: "*types.concatList",
    MutableList: "*types.mutableList",
    dict: "*types.baseMap",
    KeyedMap: "*types.baseMap",
    MutableMap: "*types.mutableMap",
    DefaultMap: "cel.mapper",
    bool: "types.Bool",
    int: "types.Int",
    UInt: "types.Uint",
    float: "types.Double",
    str: "types.String",
}

_UNHASHABLE: Final[frozenset[type]] = frozenset((bytes, Semver, NamedFormat))


def is_list(value: Value) -> bool:
    """Whether the value is a CEL list."""
    return value.__class__ in LIST_CLASSES


def is_map(value: Value) -> bool:
    """Whether the value is a CEL map."""
    return value.__class__ in MAP_CLASSES


def type_name(value: Value) -> str:
    """Name of the value's CEL type, without parameters."""
    return value.name if value.__class__ is Message else TYPE_NAMES[value.__class__]


def no_such_overload(function: str, *arguments: Value) -> CelError:
    """The error for arguments that match no overload of a function."""
    return CelError(f"no such overload: {function}({', '.join(map(type_name, arguments))})")


# --- lists and maps ---


class _Missing:
    __slots__ = ()


MISSING: Final = _Missing()


class _Identity:
    """A map key that equals nothing but itself: what Go does with keys held by reference."""

    __slots__ = ("value",)

    def __init__(self, value: Value) -> None:
        self.value = value


def map_key(key: Value) -> Any:
    """The dict key for a CEL map key: `1`, `1u`, `1.0` and `true` are four keys, though Python treats them as one."""
    key_class = key.__class__
    if key_class is str or key_class is int:
        return key
    if key_class in _UNHASHABLE:
        raise EvaluationAborted(f"internal error: runtime error: hash of unhashable type {GO_TYPES[key_class]}")
    if key_class in (bool, UInt, float, type(None)):
        return (TYPE_NAMES[key_class], key)
    return ("", _Identity(key))


def decoded_key(encoded: Any) -> Value:
    """The CEL map key that `map_key` encoded."""
    if encoded.__class__ is tuple:
        key = encoded[1]
        return key.value if key.__class__ is _Identity else key
    return encoded


def keys(mapping: Value) -> Iterator[Value]:
    """The keys of a map, as CEL values."""
    return map(decoded_key, mapping)


def find(mapping: Value, key: Value) -> Value:
    """The value under a key, or MISSING; numbers find each other across int, uint and double."""
    map_class = mapping.__class__
    if map_class is dict:
        return mapping.get(key, MISSING) if key.__class__ is str else MISSING
    if map_class is DefaultMap:
        return mapping.get(key, _EMPTY) if key.__class__ is str else _EMPTY
    if not mapping:
        return MISSING
    found = mapping.get(map_key(key), MISSING)
    if found is MISSING and key.__class__ in NUMBER_CLASSES:
        return _find_number(mapping, key)
    return found


def has_key(mapping: Value, key: Value) -> bool:
    """The `in` operator on maps: unlike a lookup, it does not create domains."""
    if mapping.__class__ is DefaultMap:
        return key.__class__ is str and key in mapping
    return find(mapping, key) is not MISSING


def _find_number(mapping: KeyedMap, key: Any) -> Value:
    number = key
    if key.__class__ is float:
        if not math.isfinite(key) or not key.is_integer():
            return MISSING
        number = int(key)
        if INT_MIN < number < 2**63:
            found = mapping.get(number, MISSING)
            if found is not MISSING:
                return found
    if key.__class__ is UInt:
        return mapping.get(int(number), MISSING) if number <= INT_MAX else MISSING
    if 0 <= number <= UINT_MAX:
        return mapping.get(("uint", UInt(number)), MISSING)
    return MISSING


def is_zero(value: Value) -> bool:
    """Whether optional.ofNonZeroValue treats the value as absent."""
    value_class = value.__class__
    if value is None:
        return True
    if value_class in NUMBER_CLASSES or value_class is bool:
        return bool(value == 0)
    if value_class in LIST_CLASSES or value_class in MAP_CLASSES or value_class is str or value_class is bytes:
        return len(value) == 0
    if value_class is Duration:
        return bool(value.nanoseconds == 0)
    if value_class is Message:
        return not value.fields
    # Go's zero time is the year 1, the first moment CEL can express.
    return value_class is Timestamp and value.nanoseconds == -62135596800 * 10**9
