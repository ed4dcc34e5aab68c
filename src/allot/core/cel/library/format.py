"""string.format(), in the two editions of cel-go's string library.

Kubernetes uses the older edition (version 2 of the library), which formats numbers the American way; the newer
one (version 4 and up) is that of the CEL specification.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Final

from allot.core.cel.costs.budget import check_size, check_work
from allot.core.cel.data import times
from allot.core.cel.data.text import fixed_double, seconds_text
from allot.core.cel.data.values import (
    CelError,
    Duration,
    Timestamp,
    TypeValue,
    Value,
    decoded_key,
    is_list,
    is_map,
    type_name,
)
from allot.core.cel.library.standard import to_string
from allot.core.cel.syntax.ast import UInt
from allot.core.quoting import quoted

_PRECISION_DEFAULT: Final = 6
_PRECISION_MAX: Final = 100
_CLAUSE: Final = re.compile(r"(?:\.([0-9]*))?(.)?", re.DOTALL)
_INTEGERS: Final = (int, UInt)
_SPELLED_OUT: Final = ("NaN", "Infinity", "-Infinity")
_SUPERSCRIPT: Final = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")

_STRING_ARGUMENTS: Final = (
    "string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, durations, and"
    " timestamps, was given "
)

# What one clause does with its argument and precision (None: not given).
Clause = Callable[[Value, "int | None"], str]


class _Edition:
    """The clauses of one edition."""

    def __init__(self, clauses: dict[str, Clause], precision_max: int) -> None:
        self.clauses = clauses
        self.precision_max = precision_max

    def format(self, template: str, arguments: Value) -> str:
        """Replaces each clause by its argument."""
        parts: list[str] = []
        length, used, position = 0, 0, 0
        while True:
            percent = template.find("%", position)
            text = template[position:] if percent < 0 else template[position:percent]
            if percent >= 0 and template[percent + 1 : percent + 2] == "%":
                text, position = text + "%", percent + 2
            elif percent >= 0:
                parts.append(text)
                text, position = self._clause(template, percent + 1, arguments, used)
                used += 1
            parts.append(text)
            length += len(text)
            check_size(length)
            if percent < 0:
                return "".join(parts)

    def _clause(self, template: str, position: int, arguments: Value, used: int) -> tuple[str, int]:
        if used >= len(arguments):
            raise CelError(f"index {used} out of range")
        if position >= len(template):
            raise CelError("unexpected end of string")
        match = _CLAUSE.match(template, position)
        assert match is not None, "every part of the pattern is optional"
        precision = self._precision(match)
        clause = self.clauses.get(match[2])
        if clause is None:
            # Upstream reads bytes here, so it shows the first byte of a longer character.
            shown = match[2] if match[2].isascii() else chr(match[2].encode(errors="replace")[0])
            raise CelError(f'could not parse formatting clause: unrecognized formatting clause "{shown}"')
        try:
            return clause(arguments[used], precision), match.end()
        except _ArgumentError as error:
            raise CelError(f"error during formatting: {error}") from None

    def _precision(self, match: re.Match[str]) -> int | None:
        digits = match[1]
        if digits is None:
            return None
        problem = ""
        if match[2] is None:
            problem = "could not find end of precision specifier"
        elif not digits or len(digits) > 18:
            reason = "value out of range" if digits else "invalid syntax"
            problem = f'error while converting precision to integer: strconv.Atoi: parsing "{digits}": {reason}'
        elif self.precision_max and int(digits) > self.precision_max:
            problem = f"precision {int(digits)} exceeds maximum allowed precision {self.precision_max}"
        if problem:
            raise CelError(f"could not parse formatting clause: error while parsing precision: {problem}")
        check_size(int(digits))
        return int(digits)


class _ArgumentError(Exception):
    """An argument of a type that its clause does not accept."""


class _Writer:
    """Writes lists and maps, with a bound on the number of values: a list may contain the same list many times."""

    def __init__(self, write_scalar: Callable[[Value, bool], str], separator: str) -> None:
        self._write_scalar = write_scalar
        self._separator = separator
        self._written = 0

    def write(self, value: Value, nested: bool = False) -> str:
        self._written += 1
        check_work(self._written)
        if is_list(value):
            return "[" + ", ".join([self.write(element, True) for element in value]) + "]"
        if is_map(value):
            entries = [(self.write(decoded_key(key), True), self.write(item, True)) for key, item in value.items()]
            # By key only, as upstream: entries of equal key texts stay in order.
            entries.sort(key=lambda entry: entry[0])
            return "{" + ", ".join(f"{key}{self._separator}{item}" for key, item in entries) + "}"
        return self._write_scalar(value, nested)


# --- clauses that both editions share ---


def _hexadecimal(upper: bool, allowed: str) -> Clause:
    def clause(value: Value, _: int | None) -> str:
        if value.__class__ in _INTEGERS:
            text = format(int(value), "x")
        elif value.__class__ is str:
            text = value.encode(errors="surrogatepass").hex()
        elif value.__class__ is bytes:
            text = value.hex()
        else:
            raise _ArgumentError(f"only {allowed} can be formatted as hex, was given {type_name(value)}")
        return text.upper() if upper else text

    return clause


def _binary(allowed: str) -> Clause:
    def clause(value: Value, _: int | None) -> str:
        if value.__class__ not in (int, UInt, bool):
            raise _ArgumentError(f"only {allowed} can be formatted as binary, was given {type_name(value)}")
        return format(int(value), "b")

    return clause


def _octal(allowed: str) -> Clause:
    def clause(value: Value, _: int | None) -> str:
        if value.__class__ not in _INTEGERS:
            raise _ArgumentError(f"octal clause can only be used on {allowed}, was given {type_name(value)}")
        return format(int(value), "o")

    return clause


# --- the older edition ---


def _old_string(value: Value, _: int | None) -> str:
    return _Writer(_old_scalar, ":").write(value)


def _old_scalar(value: Value, nested: bool) -> str:
    value_class = value.__class__
    if value is None:
        return "null"
    if not nested:
        if value_class not in (int, UInt, float, bool, str, Timestamp, bytes, Duration, TypeValue):
            raise _ArgumentError(_STRING_ARGUMENTS + type_name(value))
        return to_string(value)
    if value_class is str:
        return quoted(value)
    if value_class is bytes:
        return "b" + quoted(to_string(value))
    if value_class is float:
        return f"{value:.6f}" if math.isfinite(value) else quoted(fixed_double(value))
    if value_class is Timestamp or value_class is Duration:
        return f"{'timestamp' if value_class is Timestamp else 'duration'}({quoted(to_string(value))})"
    if value_class not in (int, UInt, bool, TypeValue):
        raise _ArgumentError(f"no formatting function for {type_name(value)}")
    return to_string(value)


def _old_decimal(value: Value, _: int | None) -> str:
    if value.__class__ not in _INTEGERS:
        raise _ArgumentError(f"decimal clause can only be used on integers, was given {type_name(value)}")
    return str(int(value))


def _old_double(value: Value, clause: str) -> float:
    if value.__class__ is str and value in _SPELLED_OUT:
        return float(value)
    if value.__class__ is not float:
        raise _ArgumentError(f"{clause} clause can only be used on doubles, was given {type_name(value)}")
    return float(value)


def _old_fixed(value: Value, precision: int | None) -> str:
    number = _old_double(value, "fixed-point")
    if math.isnan(number):
        return "NaN"
    if math.isinf(number):
        return "∞" if number > 0 else "-∞"
    return f"{number:,.{_PRECISION_DEFAULT if precision is None else precision}f}"


def _old_scientific(value: Value, _: int | None) -> str:
    number = _old_double(value, "scientific")
    if not math.isfinite(number):
        return _old_fixed(value, None)
    # Upstream passes the precision as a width by mistake, so there are always six digits.
    mantissa, _separator, exponent = f"{number:.6e}".partition("e")
    sign = "-" if exponent[0] == "-" else ""
    return f"{mantissa}\u202f×\u202f10{(sign + exponent[1:]).translate(_SUPERSCRIPT)}"


# --- the newer edition ---


def _new_string(value: Value, _: int | None) -> str:
    return _Writer(_new_scalar, ": ").write(value)


def _new_scalar(value: Value, _: bool) -> str:
    value_class = value.__class__
    if value is None:
        return "null"
    if value_class is float:
        return _new_double_text(value)
    if value_class is bytes:
        return bytes(value).decode(errors="replace")
    if value_class is Duration:
        return seconds_text(value)
    if value_class is Timestamp:
        return times.timestamp_text(Timestamp(value.nanoseconds))
    if value_class not in (int, UInt, bool, str, TypeValue):
        raise _ArgumentError(_STRING_ARGUMENTS + type_name(value))
    return to_string(value)


def _new_double_text(number: float, spec: str = "") -> str:
    if math.isnan(number):
        return "NaN"
    if math.isinf(number):
        return "Infinity" if number > 0 else "-Infinity"
    return format(number, spec) if spec else fixed_double(number)


def _new_number(value: Value, clause: str) -> float:
    if value.__class__ not in (int, UInt, float):
        raise _ArgumentError(
            f"{clause} clause can only be used on ints, uints, and doubles, was given {type_name(value)}"
        )
    return float(value)


def _new_decimal(value: Value, _: int | None) -> str:
    number = _new_number(value, "decimal")
    return _new_double_text(number) if value.__class__ is float else str(int(value))


def _new_fixed(value: Value, precision: int | None) -> str:
    number = _new_number(value, "fixed-point")
    return _new_double_text(number, f".{_PRECISION_DEFAULT if precision is None else precision}f")


def _new_scientific(value: Value, precision: int | None) -> str:
    number = _new_number(value, "scientific")
    return _new_double_text(number, f".{_PRECISION_DEFAULT if precision is None else precision}e")


_OLD_HEX: Final = "integers, byte buffers, and strings"
_NEW_HEX: Final = "ints, uints, bytes, and strings"

format_old: Final = _Edition(
    {
        "s": _old_string,
        "d": _old_decimal,
        "f": _old_fixed,
        "e": _old_scientific,
        "b": _binary("integers and bools"),
        "x": _hexadecimal(False, _OLD_HEX),
        "X": _hexadecimal(True, _OLD_HEX),
        "o": _octal("integers"),
    },
    0,
).format

format_new: Final = _Edition(
    {
        "s": _new_string,
        "d": _new_decimal,
        "f": _new_fixed,
        "e": _new_scientific,
        "b": _binary("ints, uints, and bools"),
        "x": _hexadecimal(False, _NEW_HEX),
        "X": _hexadecimal(True, _NEW_HEX),
        "o": _octal("ints and uints"),
    },
    _PRECISION_MAX,
).format
