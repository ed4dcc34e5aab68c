"""The text form of values in messages and in string(), as Go prints them.

Knows Go's %v, %q and float formats; knows neither string.format nor any function.
"""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Final

from allot.core.cel.data import times
from allot.core.cel.data.values import (
    CIDR,
    IP,
    LIST_CLASSES,
    MAP_CLASSES,
    URL,
    Duration,
    Optional,
    Timestamp,
    TypeValue,
    Value,
    decoded_key,
)

_PARTS_MAX: Final = 10_000


def shortest_double(value: float) -> str:
    """Go's %g with the fewest digits that read back the same."""
    special = _special_double(value)
    if special:
        return special
    digits = Decimal(repr(value)).normalize()
    exponent = digits.adjusted()
    if value == 0:
        return "-0" if math.copysign(1, value) < 0 else "0"
    if -4 <= exponent < 6:
        return format(digits, "f")
    mantissa = str(abs(int(digits.scaleb(-digits.as_tuple().exponent))))  # type: ignore[operator]
    fraction = "." + mantissa[1:] if len(mantissa) > 1 else ""
    sign = "-" if value < 0 else ""
    return f"{sign}{mantissa[0]}{fraction}e{'-' if exponent < 0 else '+'}{abs(exponent):02d}"


def fixed_double(value: float) -> str:
    """Go's %f with the fewest digits that read back the same: never an exponent."""
    special = _special_double(value)
    if special:
        return special
    text = format(Decimal(repr(value)), "f")
    return text.rstrip("0").rstrip(".") if "." in text else text


def _special_double(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return ""


def seconds_text(duration: Duration) -> str:
    """A duration in seconds as string() gives it: `5400s`, `1.5s`."""
    # Go computes the seconds as whole seconds plus a fraction, each as a double.
    sign = -1 if duration.nanoseconds < 0 else 1
    whole, rest = divmod(abs(duration.nanoseconds), times.SECOND)
    return fixed_double(sign * float(whole) + sign * rest / 1e9) + "s"


def go_text(value: Value) -> str:
    """Go's %v of a value, as messages show it; very long ones are truncated."""
    return _text(value, [_PARTS_MAX])


def _text(value: Value, parts_left: list[int]) -> str:
    # A list can contain the same list many times over, so the output is counted.
    parts_left[0] -= 1
    if parts_left[0] < 0:
        return "…"
    value_class = value.__class__
    if value_class is str:
        return str(value)
    if value_class is bool:
        return "true" if value else "false"
    if value_class is float:
        return shortest_double(value)
    if value is None:
        return "0"
    if value_class is bytes:
        return "[" + " ".join(str(byte) for byte in value) + "]"
    if value_class in LIST_CLASSES:
        return "[" + ", ".join([_text(element, parts_left) for element in value[:_PARTS_MAX]]) + "]"
    if value_class in MAP_CLASSES:
        entries = [f"{_text(decoded_key(key), parts_left)}: {_text(item, parts_left)}" for key, item in value.items()]
        return "{" + ", ".join(entries) + "}"
    if isinstance(value, int):
        return str(int(value))
    if value_class is Optional:
        return f"optional({_text(value.value, parts_left)})" if value.present else "optional.none()"
    if value_class is TypeValue:
        return str(value.name)
    if value_class is URL:
        return str(value.text)
    return _time_or_network_text(value)


def _time_or_network_text(value: Value) -> str:
    if isinstance(value, Duration):
        return times.go_duration_text(value)
    if isinstance(value, Timestamp):
        return times.go_timestamp_text(value)
    if isinstance(value, IP | CIDR):
        return network_text(value)
    return str(value)


def network_text(value: IP | CIDR) -> str:
    """The canonical text of an address or prefix."""
    if isinstance(value, CIDR):
        return f"{network_text(value.address)}/{value.bits}"
    if value.version == 4:
        return ".".join(str(value.number >> shift & 255) for shift in (24, 16, 8, 0))
    return _version_6_text(value.number)


def _version_6_text(number: int) -> str:
    groups = [number >> shift & 0xFFFF for shift in range(112, -1, -16)]
    # The longest run of at least two zero groups is written as "::", the first if several are equally long.
    best_start, best_length, start = -1, 1, 0
    while start < 8:
        end = start
        while end < 8 and groups[end] == 0:
            end += 1
        if end - start > best_length:
            best_start, best_length = start, end - start
        start = end + 1
    if best_start < 0:
        return ":".join(f"{group:x}" for group in groups)
    head = ":".join(f"{group:x}" for group in groups[:best_start])
    tail = ":".join(f"{group:x}" for group in groups[best_start + best_length :])
    return f"{head}::{tail}"
