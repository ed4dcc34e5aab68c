"""cel-go's math and encoders libraries. Kubernetes does not enable them; the conformance suite does."""

from __future__ import annotations

import base64
import binascii
import json
import math
from collections.abc import Callable
from functools import reduce
from typing import Final

from allot.core.cel.data import times
from allot.core.cel.data.comparison import compare
from allot.core.cel.data.text import fixed_double, seconds_text
from allot.core.cel.data.values import (
    INT_MIN,
    LIST_CLASSES,
    MAP_CLASSES,
    UINT_MAX,
    CelError,
    Duration,
    Timestamp,
    Value,
    decoded_key,
    type_name,
)
from allot.core.cel.syntax.ast import UInt

_NUMBERS: Final = (int, UInt, float)
_JSON_INTEGER_MAX: Final = 2**53 - 1


def _whole(round_: Callable[[float], float]) -> Callable[[float], float]:
    """Rounding that leaves infinities and NaN alone and keeps the sign of zero."""

    def rounded(value: float) -> float:
        return math.copysign(float(round_(value)), value) if math.isfinite(value) else value

    return rounded


def _half_away_from_zero(value: float) -> float:
    return (
        math.floor(abs(value) + 0.5) if abs(value) < 2.0**52 and abs(value) != 0.49999999999999994 else abs(value) // 1
    )


def absolute(value: Value) -> Value:
    """math.abs()"""
    if value.__class__ is int and value == INT_MIN:
        raise CelError("integer overflow")
    return value if value.__class__ is UInt else abs(value)


def sign(value: Value) -> Value:
    """math.sign(): -1, 0 or 1 of the same type."""
    if value != value:
        return value
    return value.__class__((value > 0) - (value < 0))


def square_root(value: Value) -> float:
    """math.sqrt()"""
    return math.sqrt(value) if value >= 0 else math.nan


def bit_not(value: Value) -> Value:
    """math.bitNot()"""
    return UInt(~int(value) & UINT_MAX) if value.__class__ is UInt else ~value


def _bits(operation: Callable[[int, int], int]) -> Callable[[Value, Value], Value]:
    def combined(left: Value, right: Value) -> Value:
        return left.__class__(operation(int(left), int(right)))

    return combined


def _signed(bits: int) -> int:
    return bits - 2**64 if bits >= 2**63 else bits


def shift_left(value: Value, offset: int) -> Value:
    """math.bitShiftLeft(): bits beyond 64 fall off."""
    if offset < 0:
        raise CelError(f"math.bitShiftLeft() negative offset: {offset}")
    bits = (int(value) << offset) & UINT_MAX if offset < 64 else 0
    return UInt(bits) if value.__class__ is UInt else _signed(bits)


def shift_right(value: Value, offset: int) -> Value:
    """math.bitShiftRight(): shifts in zeros, even for negative numbers."""
    if offset < 0:
        raise CelError(f"math.bitShiftRight() negative offset: {offset}")
    bits = (int(value) & UINT_MAX) >> offset if offset < 64 else 0
    return UInt(bits) if value.__class__ is UInt else _signed(bits)


def _extreme(name: str, replaced_when: int) -> tuple[Callable[[Value, Value], Value], Callable[[Value], Value]]:
    def of_pair(left: Value, right: Value) -> Value:
        try:
            return right if compare(left, right) == replaced_when else left
        except CelError as error:
            raise CelError(f"{error.message}: math.@{name}") from None

    def of_list(numbers: Value) -> Value:
        if not numbers:
            raise CelError(f"math.@{name}(list) argument must not be empty")
        result = reduce(of_pair, numbers)
        if result.__class__ not in _NUMBERS:
            raise CelError(f"no such overload: math.@{name}")
        return result

    return of_pair, of_list


_min_pair, _min_list = _extreme("min", 1)
_max_pair, _max_list = _extreme("max", -1)


def base64_decode(text: str) -> bytes:
    """Standard base64, padding optional."""
    unpadded = text.rstrip("=")
    if len(text) - len(unpadded) not in (0, -len(unpadded) % 4):
        raise CelError(f"illegal base64 data at input byte {len(unpadded)}")
    try:
        return base64.b64decode(unpadded + "=" * (-len(unpadded) % 4), validate=True)
    except (binascii.Error, ValueError):
        raise CelError("illegal base64 data at input byte 0") from None


def base64_encode(data: bytes) -> str:
    """Standard base64 with padding."""
    return base64.b64encode(data).decode()


def json_encode(value: Value) -> str:
    """The value as JSON, by the protobuf mapping."""
    return json.dumps(_json(value), separators=(",", ":"), ensure_ascii=False)


def _json(value: Value) -> Value:
    value_class = value.__class__
    if value_class in LIST_CLASSES:
        return [_json(element) for element in value]
    if value_class in MAP_CLASSES:
        return {_json_key(decoded_key(key)): _json(item) for key, item in value.items()}
    if value_class is int or value_class is UInt:
        return int(value) if abs(value) <= _JSON_INTEGER_MAX else str(int(value))
    if value_class is float:
        return float(value) if not value.is_integer() else json.loads(fixed_double(value))
    if value_class is bytes:
        return base64_encode(value)
    if value_class is Duration:
        return seconds_text(value)
    if value_class is Timestamp:
        return times.timestamp_text(Timestamp(value.nanoseconds))
    if value is None or value_class is bool or value_class is str:
        return value
    raise CelError(f"type conversion error from '{type_name(value)}' to 'google.protobuf.Value'")


def _json_key(key: Value) -> str:
    if key.__class__ is str:
        return str(key)
    return ("true" if key else "false") if key.__class__ is bool else str(int(key))


def _identity(value: Value) -> Value:
    return value


def _pairs(names: str, pair: Callable[[Value, Value], Value]) -> dict[str, Callable[..., Value]]:
    kinds = ("int", "uint", "double")
    return {f"math_@{names}_{left}_{right}": pair for left in kinds for right in kinds}


OVERLOADS: Final[dict[str, Callable[..., Value]]] = {
    **{f"math_@{name}_{kind}": _identity for name in ("min", "max") for kind in ("int", "uint", "double")},
    **_pairs("min", _min_pair),
    **_pairs("max", _max_pair),
    **{f"math_@min_list_{kind}": _min_list for kind in ("int", "uint", "double")},
    **{f"math_@max_list_{kind}": _max_list for kind in ("int", "uint", "double")},
    "math_ceil_double": _whole(math.ceil),
    "math_floor_double": _whole(math.floor),
    "math_round_double": _whole(_half_away_from_zero),
    "math_trunc_double": _whole(math.trunc),
    "math_isInf_double": math.isinf,
    "math_isNaN_double": math.isnan,
    "math_isFinite_double": math.isfinite,
    **{f"math_abs_{kind}": absolute for kind in ("int", "uint", "double")},
    **{f"math_sign_{kind}": sign for kind in ("int", "uint", "double")},
    **{f"math_sqrt_{kind}": square_root for kind in ("int", "uint", "double")},
    **{f"math_bitAnd_{kind}_{kind}": _bits(int.__and__) for kind in ("int", "uint")},
    **{f"math_bitOr_{kind}_{kind}": _bits(int.__or__) for kind in ("int", "uint")},
    **{f"math_bitXor_{kind}_{kind}": _bits(int.__xor__) for kind in ("int", "uint")},
    **{f"math_bitNot_{kind}_{kind}": bit_not for kind in ("int", "uint")},
    **{f"math_bitShiftLeft_{kind}_int": shift_left for kind in ("int", "uint")},
    **{f"math_bitShiftRight_{kind}_int": shift_right for kind in ("int", "uint")},
    "base64_decode_string": base64_decode,
    "base64_encode_bytes": base64_encode,
    "json_encode_dyn": json_encode,
}
