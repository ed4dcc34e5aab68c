"""The standard functions: operators, size, membership, conversions between types and tests on strings.

Each function takes checked-enough values and returns a value or raises CelError with cel-go's message. `table`
chooses the implementation for the arguments.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any, Final

from allot.core.cel.costs.budget import check_size
from allot.core.cel.data import regex, times
from allot.core.cel.data.comparison import COMPARABLE, compare, contains
from allot.core.cel.data.text import network_text, seconds_text, shortest_double
from allot.core.cel.data.values import (
    CIDR,
    INT_MAX,
    INT_MIN,
    IP,
    LIST_CLASSES,
    MAP_CLASSES,
    NO_SUCH_OVERLOAD,
    UINT_MAX,
    CelError,
    ConcatList,
    Duration,
    MutableList,
    Timestamp,
    TypeValue,
    Value,
    has_key,
    is_list,
    is_map,
    type_name,
)
from allot.core.cel.syntax.ast import UInt

# Classes whose values take part in an operator as its first operand; others fail before the operation is tried.
ADDERS: Final[frozenset[type]] = LIST_CLASSES | {bytes, float, Duration, int, str, Timestamp, UInt}
SUBTRACTORS: Final[frozenset[type]] = frozenset((float, Duration, int, Timestamp, UInt))
MULTIPLIERS: Final[frozenset[type]] = frozenset((float, int, UInt))
MODDERS: Final[frozenset[type]] = frozenset((int, UInt))
NEGATORS: Final[frozenset[type]] = frozenset((bool, float, Duration, int))
SIZERS: Final[frozenset[type]] = LIST_CLASSES | MAP_CLASSES | {bytes, str}
MATCHERS: Final[frozenset[type]] = frozenset((str,))


# --- arithmetic ---


def _int(result: int) -> int:
    if INT_MIN <= result <= INT_MAX:
        return result
    raise CelError("integer overflow")


def _uint(result: int) -> UInt:
    if 0 <= result <= UINT_MAX:
        return UInt(result)
    raise CelError("unsigned integer overflow")


def _duration(nanoseconds: int) -> Duration:
    return Duration(_int(nanoseconds))


def _same_class(left: Value, right: Value) -> Any:
    if right.__class__ is not left.__class__:
        raise CelError(NO_SUCH_OVERLOAD)
    return left.__class__


def add(left: Value, right: Value) -> Value:
    """`+` on numbers, texts, lists and times."""
    left_class = left.__class__
    if is_list(left):
        return _joined(left, right)
    if left_class is Duration or left_class is Timestamp:
        return _add_time(left, right)
    if _same_class(left, right) is int:
        return _int(left + right)
    if left_class is UInt:
        return _uint(int(left) + int(right))
    if left_class is str or left_class is bytes:
        check_size(len(left) + len(right))
    return left + right


def _joined(left: Value, right: Value) -> Value:
    if not is_list(right):
        raise CelError(NO_SUCH_OVERLOAD)
    check_size(len(left) + len(right))
    if left.__class__ is MutableList:
        left.extend(right)
        return left
    if not left:
        return right
    if not right:
        return left
    return ConcatList((*left, *right))


def _add_time(left: Duration | Timestamp, right: Value) -> Value:
    right_class = right.__class__
    if right_class is Duration:
        if isinstance(left, Duration):
            return _duration(left.nanoseconds + right.nanoseconds)
        return times.moved(left, right.nanoseconds)
    if right_class is Timestamp and isinstance(left, Duration):
        return times.moved(right, left.nanoseconds)
    raise CelError(NO_SUCH_OVERLOAD)


def subtract(left: Value, right: Value) -> Value:
    """`-` on numbers and times."""
    left_class, right_class = left.__class__, right.__class__
    if left_class is Timestamp:
        if right_class is Duration:
            return times.moved(left, -_int(right.nanoseconds))
        if right_class is Timestamp:
            return _duration(left.nanoseconds - right.nanoseconds)
        raise CelError(NO_SUCH_OVERLOAD)
    if _same_class(left, right) is int:
        return _int(left - right)
    if left_class is UInt:
        return _uint(int(left) - int(right))
    if left_class is Duration:
        return _duration(left.nanoseconds - right.nanoseconds)
    return left - right


def multiply(left: Value, right: Value) -> Value:
    """`*` on numbers."""
    left_class = _same_class(left, right)
    if left_class is int:
        return _int(left * right)
    return _uint(int(left) * int(right)) if left_class is UInt else left * right


def divide(left: Value, right: Value) -> Value:
    """`/` on numbers, towards zero on integers."""
    left_class = _same_class(left, right)
    if left_class is float:
        return _divide_doubles(left, right)
    if right == 0:
        raise CelError("division by zero")
    if left_class is UInt:
        return UInt(int(left) // int(right))
    quotient = abs(left) // abs(right)
    return _int(quotient if (left < 0) == (right < 0) else -quotient)


def _divide_doubles(left: float, right: float) -> float:
    if right:
        return left / right
    if left == 0 or math.isnan(left):
        return math.nan
    return math.copysign(math.inf, left) * math.copysign(1.0, right)


def modulo(left: Value, right: Value) -> Value:
    """`%` on integers, with the sign of the left."""
    left_class = _same_class(left, right)
    if right == 0:
        raise CelError("modulus by zero")
    if left_class is UInt:
        return UInt(int(left) % int(right))
    if left == INT_MIN and right == -1:
        raise CelError("integer overflow")
    rest: int = abs(left) % abs(right)
    return -rest if left < 0 else rest


def negate(value: Value) -> Value:
    """Unary minus."""
    value_class = value.__class__
    if value_class is int:
        return _int(-value)
    if value_class is float:
        return -value
    if value_class is Duration:
        return _duration(-value.nanoseconds)
    raise CelError(NO_SUCH_OVERLOAD)


def logical_not(value: Value) -> bool:
    """`!`"""
    if value.__class__ is not bool:
        raise CelError(NO_SUCH_OVERLOAD)
    return not value


# --- order, membership, size ---


def less(left: Value, right: Value) -> bool:
    """`<`"""
    return compare(left, right) < 0


def less_equals(left: Value, right: Value) -> bool:
    """`<=`"""
    return compare(left, right) <= 0


def greater(left: Value, right: Value) -> bool:
    """`>`"""
    return compare(left, right) > 0


def greater_equals(left: Value, right: Value) -> bool:
    """`>=`"""
    return compare(left, right) >= 0


def is_in(wanted: Value, aggregate: Value) -> bool:
    """`in`"""
    if is_list(aggregate):
        return contains(aggregate, wanted)
    if is_map(aggregate):
        return has_key(aggregate, wanted)
    raise CelError(NO_SUCH_OVERLOAD)


def size(value: Value) -> int:
    """Elements, entries, code points or bytes."""
    return len(value)


# --- strings ---


def _string_test(test: Callable[[str, str], bool]) -> Callable[[Value, Value], bool]:
    def tested(text: Value, part: Value) -> bool:
        if text.__class__ is not str or part.__class__ is not str:
            raise CelError(NO_SUCH_OVERLOAD)
        return test(text, part)

    return tested


def matches(text: Value, pattern: Value) -> bool:
    """Whether an RE2 expression matches anywhere in the text."""
    if pattern.__class__ is not str:
        raise CelError(NO_SUCH_OVERLOAD)
    return regex.matches(regex.compiled(pattern), text)


# --- conversions ---

_SIGNED: Final = re.compile(r"[+-]?[0-9]{1,400}", re.ASCII)
_UNSIGNED: Final = re.compile(r"[0-9]{1,400}", re.ASCII)
_DOUBLE: Final = re.compile(
    r"[+-]?(?:(?:[0-9]++\.?+[0-9]*+|\.[0-9]++)(?:e[+-]?[0-9]+)?|inf(?:inity)?|nan)", re.ASCII | re.IGNORECASE
)
_HEX_DOUBLE: Final = re.compile(
    r"[+-]?0x(?:[0-9a-f]++\.?+[0-9a-f]*+|\.[0-9a-f]++)p[+-]?[0-9]{1,9}", re.ASCII | re.IGNORECASE
)
_DOUBLE_TEXT_MAX: Final = 4096
_TRUE_TEXTS: Final = frozenset(("1", "t", "T", "TRUE", "true", "True"))
_FALSE_TEXTS: Final = frozenset(("0", "f", "F", "FALSE", "false", "False"))


def _not_convertible(value: Value, target: str) -> CelError:
    return CelError(f"type conversion error from '{type_name(value)}' to '{target}'")


def to_int(value: Value) -> int:
    """int(): doubles are truncated, durations are nanoseconds, timestamps seconds."""
    value_class = value.__class__
    if value_class is str:
        number = int(value) if _SIGNED.fullmatch(value) else INT_MAX + 1
        if not INT_MIN <= number <= INT_MAX:
            raise _not_convertible(value, "int")
        return number
    if value_class is float:
        if not -(2.0**63) < value < 2.0**63:
            raise CelError("integer overflow")
        return int(value)
    if value_class is Duration:
        return int(value.nanoseconds)
    if value_class is Timestamp:
        return int(value.nanoseconds // times.SECOND)
    return _int(int(value))


def to_uint(value: Value) -> UInt:
    """uint()"""
    value_class = value.__class__
    if value_class is str:
        number = int(value) if _UNSIGNED.fullmatch(value) else UINT_MAX + 1
        if number > UINT_MAX:
            raise _not_convertible(value, "uint")
        return UInt(number)
    if value_class is float:
        if not 0 <= value < 2.0**64:
            raise CelError("unsigned integer overflow")
        return UInt(int(value))
    return _uint(int(value))


def to_double(value: Value) -> float:
    """double()"""
    if value.__class__ is not str:
        return float(value)
    number = _parsed_double(value)
    if number is None:
        raise _not_convertible(value, "double")
    return number


def _parsed_double(text: str) -> float | None:
    if len(text) > _DOUBLE_TEXT_MAX:
        return None
    if _DOUBLE.fullmatch(text):
        number = float(text)
        # Infinity is valid if spelled out, and an error if digits overflow to it.
        return None if math.isinf(number) and "n" not in text.lower() else number
    if _HEX_DOUBLE.fullmatch(text):
        try:
            return float.fromhex(text)
        except OverflowError:
            return None
    return None


def to_bool(value: Value) -> bool:
    """bool()"""
    if value.__class__ is bool:
        return bool(value)
    if value in _TRUE_TEXTS:
        return True
    if value in _FALSE_TEXTS:
        return False
    raise _not_convertible(value, "bool")


def to_bytes(value: Value) -> bytes:
    """bytes()"""
    return value.encode(errors="surrogatepass") if value.__class__ is str else value


def to_string(value: Value) -> str:
    """string()"""
    value_class = value.__class__
    if value_class is str:
        return str(value)
    if value_class is bool:
        return "true" if value else "false"
    if value_class is float:
        return shortest_double(value)
    if value_class is bytes:
        try:
            return str(value, "utf-8")
        except UnicodeDecodeError:
            raise CelError("invalid UTF-8 in bytes, cannot convert to string") from None
    if value_class is Duration:
        return seconds_text(value)
    if value_class is Timestamp:
        return times.timestamp_text(value)
    if value_class is TypeValue:
        return str(value.name)
    if isinstance(value, IP | CIDR):
        return network_text(value)
    return str(int(value))


def to_duration(value: Value) -> Duration:
    """duration()"""
    duration = times.parse_duration(value) if value.__class__ is str else value
    if duration is None:
        raise _not_convertible(value, "google.protobuf.Duration")
    return duration


def to_timestamp(value: Value) -> Timestamp:
    """timestamp(): from RFC 3339 text or seconds since 1970."""
    if value.__class__ is int:
        if not times.TIMESTAMP_MIN_S <= value <= times.TIMESTAMP_MAX_S:
            raise CelError("timestamp overflow")
        return Timestamp(value * times.SECOND)
    moment = times.parse_timestamp(value) if value.__class__ is str else value
    if moment is None:
        raise _not_convertible(value, "google.protobuf.Timestamp")
    return moment


def to_type(value: Value) -> TypeValue:
    """type()"""
    return TypeValue(type_name(value))


def identity(value: Value) -> Value:
    """dyn()"""
    return value


# Function name -> implementation for all overloads, and the classes its first argument must have (None: any).
SINGLETONS: Final[dict[str, tuple[Callable[..., Value], frozenset[type] | None]]] = {
    "!_": (logical_not, None),
    "_+_": (add, ADDERS),
    "_-_": (subtract, SUBTRACTORS),
    "_*_": (multiply, MULTIPLIERS),
    "_/_": (divide, MULTIPLIERS),
    "_%_": (modulo, MODDERS),
    "-_": (negate, NEGATORS),
    "_<_": (less, COMPARABLE),
    "_<=_": (less_equals, COMPARABLE),
    "_>_": (greater, COMPARABLE),
    "_>=_": (greater_equals, COMPARABLE),
    "@in": (is_in, None),
    "size": (size, SIZERS),
    "type": (to_type, None),
    "dyn": (identity, None),
    "matches": (matches, MATCHERS),
}

OVERLOADS: Final[dict[str, Callable[..., Value]]] = {
    **dict.fromkeys(("bool_to_bool", "string_to_bool"), to_bool),
    **dict.fromkeys(("bytes_to_bytes", "string_to_bytes"), to_bytes),
    **dict.fromkeys(("double_to_double", "int64_to_double", "string_to_double", "uint64_to_double"), to_double),
    **dict.fromkeys(("duration_to_duration", "string_to_duration"), to_duration),
    **dict.fromkeys(
        (
            "int64_to_int64",
            "double_to_int64",
            "duration_to_int64",
            "string_to_int64",
            "timestamp_to_int64",
            "uint64_to_int64",
        ),
        to_int,
    ),
    **dict.fromkeys(
        (
            "string_to_string",
            "bool_to_string",
            "bytes_to_string",
            "double_to_string",
            "duration_to_string",
            "int64_to_string",
            "timestamp_to_string",
            "uint64_to_string",
            "ip_to_string",
            "cidr_to_string",
        ),
        to_string,
    ),
    **dict.fromkeys(("timestamp_to_timestamp", "int64_to_timestamp", "string_to_timestamp"), to_timestamp),
    **dict.fromkeys(("uint64_to_uint64", "double_to_uint64", "int64_to_uint64", "string_to_uint64"), to_uint),
    "contains_string": _string_test(str.__contains__),
    "starts_with_string": _string_test(str.startswith),
    "ends_with_string": _string_test(str.endswith),
}
