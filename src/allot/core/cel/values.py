"""Values as expressions see them at run time: their classes, their type names, when they are equal and how they order.

CEL value -> Python value: null None, bool bool, int int, uint UInt, double float, string str, bytes bytes, list
list or tuple, map dict, the rest classes from here, core.quantity and core.semver. Knows no function, no environment
and no device. Texts of values are in `text`.

Equality follows cel-go to the letter, also where that is odd: comparing a version or a quantity with something else
is an error when it stands on the left and false when it stands on the right.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from allot.core.cel.ast import UInt
from allot.core.quantity import Quantity
from allot.core.semver import Semver

INT_MIN: Final = -(2**63)
INT_MAX: Final = 2**63 - 1
UINT_MAX: Final = 2**64 - 1
NO_SUCH_OVERLOAD: Final = "no such overload"
COST_EXCEEDED: Final = "operation cancelled: actual cost limit exceeded"
# Elements compared in one comparison: a list can contain the same list many times over, at no cost.
COMPARED_MAX: Final = 100_000

# What a CEL value may be is open-ended (lists of maps of ...): the functions here look at the class.
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
    """A quantity that add() or sub() made: upstream holds it by reference, and equality can tell."""

    __slots__ = ()


class ConcatList(list[Value]):
    """Two lists joined by `+`: unlike others it reports errors met while comparing elements."""

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
    """The outer maps of a device: looking up an unknown domain gives an empty map, `in` tells the truth."""

    __slots__ = ()

    def __missing__(self, key: str) -> dict[str, Value]:
        return _EMPTY


LIST_CLASSES: Final[frozenset[type]] = frozenset((list, tuple, ConcatList, MutableList))
MAP_CLASSES: Final[frozenset[type]] = frozenset((dict, KeyedMap, MutableMap, DefaultMap))
_NUMBER_CLASSES: Final[frozenset[type]] = frozenset((int, UInt, float))

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
    return TYPE_NAMES[value.__class__]


def no_such_overload(function: str, *arguments: Value) -> CelError:
    """The error for arguments that no overload of a function takes."""
    return CelError(f"no such overload: {function}({', '.join(map(type_name, arguments))})")


# --- numbers ---


def _double_int(double: float, integer: int) -> int:
    """Order of a double and an integer: outside the integer's range by range, inside as doubles, which loses digits."""
    low, high = (0.0, 2.0**64) if integer.__class__ is UInt else (-(2.0**63), 2.0**63)
    if double < low:
        return -1
    if double > high:
        return 1
    as_double = float(integer)
    return (double > as_double) - (double < as_double)


def compare_numbers(left: float, right: float) -> int:
    """-1, 0 or 1 for int, uint and double in any mix; NaN must have been excluded."""
    if left.__class__ is float:
        if right.__class__ is float:
            return (left > right) - (left < right)
        return _double_int(left, right)  # type: ignore[arg-type]
    if right.__class__ is float:
        return -_double_int(right, left)  # type: ignore[arg-type]
    return (left > right) - (left < right)


# --- equality ---


class _Work:
    """Counts the elements looked at in one comparison."""

    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = COMPARED_MAX

    def step(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise EvaluationAborted(COST_EXCEEDED)


def equal(left: Value, right: Value, work: _Work | None = None) -> bool | None:
    """Whether two values are equal; None where cel-go answers "no such overload"."""
    if left is None or right is None:
        return left is right
    return own_equal(left, right, work)


def own_equal(left: Value, right: Value, work: _Work | None = None) -> bool | None:
    """Equality as the left value's own class defines it, which is what membership tests ask."""
    left_class, right_class = left.__class__, right.__class__
    if left_class is str or left_class is bool or left_class is bytes:
        return right_class is left_class and bool(left == right)
    if left_class in _NUMBER_CLASSES:
        return right_class in _NUMBER_CLASSES and _numbers_equal(left, right)
    if left_class in LIST_CLASSES:
        return right_class in LIST_CLASSES and _lists_equal(left, right, work or _Work())
    if left_class in MAP_CLASSES:
        return right_class in MAP_CLASSES and _maps_equal(left, right, work or _Work())
    if left_class is Quantity or left_class is ComputedQuantity:
        return bool(left == right) if right_class is Quantity else None
    if left_class is Semver or left_class is IP or left_class is CIDR or left_class is URL or left_class is NamedFormat:
        return bool(left == right) if right_class is left_class else None
    if left is None:
        return right is None
    if left_class is Timestamp:
        return right_class is Timestamp and left.nanoseconds == right.nanoseconds
    if left_class is Optional:
        return right_class is Optional and _optionals_equal(left, right, work)
    return right_class is left_class and bool(left == right)


def is_equal(left: Value, right: Value) -> bool:
    """Whether two values are equal, an error counting as no."""
    return equal(left, right) is True


def equals(left: Value, right: Value) -> bool:
    """The `==` operator."""
    result = equal(left, right)
    if result is None:
        raise CelError(NO_SUCH_OVERLOAD)
    return result


def _numbers_equal(left: float, right: float) -> bool:
    if left.__class__ is not float and right.__class__ is not float:
        return left == right
    if left != left or right != right:
        return False
    return compare_numbers(left, right) == 0


def _lists_equal(left: Value, right: Value, work: _Work) -> bool | None:
    if len(left) != len(right):
        return False
    failed = False
    for mine, other in zip(left, right, strict=True):
        work.step()
        same = equal(mine, other, work)
        if same is False:
            return False
        failed = failed or same is None
    # Only a concatenated list reports elements that cannot be compared; any other takes them for equal.
    return None if failed and left.__class__ is ConcatList else True


def _maps_equal(left: Value, right: Value, work: _Work) -> bool:
    if len(left) != len(right):
        return False
    for encoded, mine in left.items():
        work.step()
        other = find(right, decoded_key(encoded))
        if other is MISSING or equal(mine, other, work) is False:
            return False
    return True


def _optionals_equal(left: Optional, right: Optional, work: _Work | None) -> bool | None:
    if not left.present or not right.present:
        return left.present == right.present
    return own_equal(left.value, right.value, work)


# --- order ---

COMPARABLE: Final[frozenset[type]] = frozenset((bool, int, UInt, float, str, bytes, Duration, Timestamp))


def compare(left: Value, right: Value) -> int:
    """-1, 0 or 1; left must be of a comparable class."""
    left_class, right_class = left.__class__, right.__class__
    if left_class in _NUMBER_CLASSES:
        if left != left:
            raise CelError("NaN values cannot be ordered")
        if right_class not in _NUMBER_CLASSES:
            raise CelError(NO_SUCH_OVERLOAD)
        if right != right:
            raise CelError("NaN values cannot be ordered")
        return compare_numbers(left, right)
    if right_class is not left_class:
        raise CelError(NO_SUCH_OVERLOAD)
    if left_class is str:
        # Go orders strings by bytes; code points order alike.
        return int(left > right) - int(left < right)
    if left_class is Timestamp:
        left, right = left.nanoseconds, right.nanoseconds
    return int(left > right) - int(left < right)


# --- lists and maps ---


class _Missing:
    __slots__ = ()


MISSING: Final = _Missing()


class _Identity:
    """A map key that equals nothing but itself: what Go does with keys held by reference."""

    __slots__ = ("value",)

    def __init__(self, value: Value) -> None:
        self.value = value


def contains(elements: Value, wanted: Value) -> bool:
    """Whether a list has an element equal to the wanted value."""
    return any(own_equal(wanted, element) is True for element in elements)


def map_key(key: Value) -> Any:
    """The dict key for a CEL map key: `1`, `1u`, `1.0` and `true` are four keys, though Python takes them for one."""
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
    if found is MISSING and key.__class__ in _NUMBER_CLASSES:
        return _find_number(mapping, key)
    return found


def has_key(mapping: Value, key: Value) -> bool:
    """The `in` operator on maps: unlike a lookup it does not invent domains."""
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
    """Whether optional.ofNonZeroValue takes the value for absent."""
    value_class = value.__class__
    if value is None:
        return True
    if value_class in _NUMBER_CLASSES or value_class is bool:
        return bool(value == 0)
    if value_class in LIST_CLASSES or value_class in MAP_CLASSES or value_class is str or value_class is bytes:
        return len(value) == 0
    if value_class is Duration:
        return bool(value.nanoseconds == 0)
    # Go's zero time is the year 1, the first moment CEL can express.
    return value_class is Timestamp and value.nanoseconds == -62135596800 * 10**9
