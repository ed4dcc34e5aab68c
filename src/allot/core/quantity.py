"""Exact amounts as Kubernetes writes them: `16Gi`, `500m`, `1e3`.

Knows: the three notations, rounding to the smallest unit (1n, away from zero), canonical text, order and sums.
Does not know what is counted. An amount is a whole number of nano units, so there is no rounding anywhere after
parsing.

Kubernetes keeps an amount either as a 64-bit integer with a decimal scale or as a decimal of any length, and some
answers depend on which of the two it was (`quantity("1.5Ki").asInteger()` fails although the amount is 1536). `scale`
and `big` remember that choice. Where Kubernetes would lose the amount it differs on purpose: it has no suffix above
`E` and `Ei` and prints 1000E as `1`; here it stays `1000E`. Exponents that no machine can write out are refused.
"""

from __future__ import annotations

import math
import re
from enum import StrEnum
from functools import lru_cache
from typing import ClassVar, NoReturn

INT64_MIN = -(2**63)
INT64_MAX = 2**63 - 1

# Both bound the work that one quantity can cause; no real quantity has a thousand digits.
TEXT_LENGTH_MAX = 1024
DIGITS_MAX = 1024

_NANO_DIGITS = 9
_ONE = 10**_NANO_DIGITS
# Decimal digits that Kubernetes stores in a 64-bit integer.
_INT64_DIGITS = 18
_CACHED_TEXT_LENGTH_MAX = 32

# Possessive quantifiers: a long run of digits is read once, whatever follows it.
_PARTS = re.compile(r"([+-]?)([0-9]*+)(?:\.([0-9]*+))?+([eEinumkKMGTP]*+[-+]?+[0-9]*+)")
_PLAIN_INTEGER = re.compile(r"[1-9][0-9]{0,16}")

_DECIMAL_SUFFIXES = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_DECIMAL_SUFFIX_OF = {exponent: suffix for suffix, exponent in _DECIMAL_SUFFIXES.items()}
_BINARY_SUFFIXES = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_BINARY_SUFFIX_OF = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_DECIMAL_EXPONENT_MAX = 18

_FORMAT_WRONG = (
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"  # upstream's text
)
_NUMERIC_WRONG = "unable to parse numeric part of quantity"
_SUFFIX_WRONG = "unable to parse quantity's suffix"


class QuantityError(ValueError):
    """A text that is not a quantity."""


class Format(StrEnum):
    """Notation in which a quantity was written and is printed again."""

    DECIMAL_SI = "DecimalSI"
    BINARY_SI = "BinarySI"
    DECIMAL_EXPONENT = "DecimalExponent"


class Quantity:
    """An amount, equal to and ordered with others by value whatever the notation."""

    __slots__ = ("_text", "big", "format", "nano", "scale")

    nano: int
    format: Format
    scale: int
    big: bool
    _text: str | None

    ZERO: ClassVar[Quantity]

    def __init__(
        self, nano: int, format: Format = Format.DECIMAL_SI, scale: int = 0, big: bool = False, text: str | None = None
    ) -> None:
        """For this module; others use `parse`, `from_int` or `from_nano`."""
        set_field = object.__setattr__
        set_field(self, "nano", nano)
        set_field(self, "format", format)
        set_field(self, "scale", scale)
        set_field(self, "big", big)
        set_field(self, "_text", text)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"Quantity is immutable: cannot set {name!r}")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"Quantity is immutable: cannot delete {name!r}")

    def __reduce__(self) -> tuple[type[Quantity], tuple[int, Format, int, bool, str | None]]:
        return Quantity, (self.nano, self.format, self.scale, self.big, self._text)

    # --- making quantities ---

    @staticmethod
    def parse(text: str) -> Quantity:
        """The quantity in `text`; QuantityError with Kubernetes' message if invalid."""
        if len(text) <= _CACHED_TEXT_LENGTH_MAX:
            return _parse_cached(text)
        return _parse(text)

    @staticmethod
    def from_int(amount: int, format: Format = Format.DECIMAL_SI) -> Quantity:
        """A whole amount."""
        return Quantity(amount * _ONE, format, 0, not INT64_MIN <= amount <= INT64_MAX)

    @staticmethod
    def from_nano(nano: int, format: Format = Format.DECIMAL_SI) -> Quantity:
        """An amount given in billionths."""
        whole, rest = divmod(nano, _ONE)
        if not rest:
            return Quantity.from_int(whole, format)
        return Quantity(nano, format, -_NANO_DIGITS, not INT64_MIN <= nano <= INT64_MAX)

    # --- arithmetic ---

    def add(self, other: Quantity) -> Quantity:
        """The sum, in this quantity's notation unless this is zero."""
        return self._plus(other, other.nano)

    def sub(self, other: Quantity) -> Quantity:
        """The difference, in this quantity's notation unless this is zero."""
        return self._plus(other, -other.nano)

    def _plus(self, other: Quantity, nano: int) -> Quantity:
        format = self.format if self.nano else other.format
        total = self.nano + nano
        if self.big or other.big:
            return Quantity(total, format, min(self.scale, other.scale), True)
        if not nano:
            return Quantity(total, format, self.scale)
        if not self.nano:
            return Quantity(total, format, other.scale)
        scale = min(self.scale, other.scale)
        unit = 10 ** (_NANO_DIGITS + scale) if scale else _ONE
        # Each operand must fit at the common scale too, not only the sum: otherwise Kubernetes switches to a decimal.
        least, most = min(self.nano, nano, total), max(self.nano, nano, total)
        return Quantity(total, format, scale, least < INT64_MIN * unit or most > INT64_MAX * unit)

    # --- answers ---

    def sign(self) -> int:
        """-1, 0 or 1."""
        return (self.nano > 0) - (self.nano < 0)

    def value(self) -> int:
        """The amount rounded away from zero to a whole number, clamped to 64 bits."""
        return _saturate(_divide_away_from_zero(self.nano, _ONE))

    def milli_value(self) -> int:
        """The amount in thousandths, rounded away from zero, clamped to 64 bits."""
        return _saturate(_divide_away_from_zero(self.nano, _ONE // 1000))

    def as_int64(self) -> int | None:
        """The amount when Kubernetes holds it as a whole 64-bit number, else None, even for some whole amounts."""
        if self.big or self.scale < 0:
            return None
        amount = self.nano // _ONE
        return amount if INT64_MIN <= amount <= INT64_MAX else None

    def is_integer(self) -> bool:
        """CEL's isInteger: whether `as_int64` returns a number."""
        return self.as_int64() is not None

    def as_approximate_float(self) -> float:
        """The nearest double, with the rounding of mantissa times power of ten; infinite beyond the range."""
        if not self.nano:
            return 0.0
        mantissa, rest = divmod(self.nano, 10 ** (_NANO_DIGITS + self.scale))
        assert rest == 0, f"quantity of {self.nano} nano units does not have scale {self.scale}"
        try:
            base = float(mantissa)
        except OverflowError:
            return math.inf if self.nano > 0 else -math.inf
        return base * _power_of_ten(self.scale) if self.scale else base

    # --- value semantics ---

    def __eq__(self, other: object) -> bool:
        return self.nano == other.nano if isinstance(other, Quantity) else NotImplemented

    def __lt__(self, other: Quantity) -> bool:
        return self.nano < other.nano if isinstance(other, Quantity) else NotImplemented

    def __le__(self, other: Quantity) -> bool:
        return self.nano <= other.nano if isinstance(other, Quantity) else NotImplemented

    def __gt__(self, other: Quantity) -> bool:
        return self.nano > other.nano if isinstance(other, Quantity) else NotImplemented

    def __ge__(self, other: Quantity) -> bool:
        return self.nano >= other.nano if isinstance(other, Quantity) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.nano)

    def __str__(self) -> str:
        text = self._text
        if text is None:
            text = _canonical(self.nano, self.format)
            object.__setattr__(self, "_text", text)
        return text

    def __repr__(self) -> str:
        return f"Quantity({str(self)!r})"


Quantity.ZERO = Quantity(0, text="0")


def _parse(text: str) -> Quantity:
    if _PLAIN_INTEGER.fullmatch(text):
        # Text that ends in 000 is printed with a suffix, so it is not kept.
        return Quantity(int(text) * _ONE, text=None if text.endswith("000") else text)
    if text == "0":
        return Quantity.ZERO
    if len(text) > TEXT_LENGTH_MAX:
        raise QuantityError(f"quantity of {len(text)} characters is too long: expected at most {TEXT_LENGTH_MAX}")
    parts = _PARTS.fullmatch(text)
    if not parts or not text:
        raise QuantityError(_FORMAT_WRONG)
    sign, whole, fraction, suffix = parts[1], parts[2].lstrip("0"), parts[3] or "", parts[4]
    read = _binary if suffix in _BINARY_SUFFIXES else _decimal
    quantity = read(text, sign, whole or "0", fraction, suffix)
    if quantity.big and not parts[2] and not fraction:
        # "Ki" alone is zero, but "Pi" alone is an error: only the slow parser notices the missing digits.
        raise QuantityError(_NUMERIC_WRONG)
    return quantity


# Devices of one kind repeat a handful of amounts thousands of times. Errors are not cached.
_parse_cached = lru_cache(maxsize=8192)(_parse)


def _decimal(text: str, sign: str, whole: str, fraction: str, suffix: str) -> Quantity:
    """A quantity with a decimal suffix or exponent."""
    exponent, format = _decimal_exponent(suffix)
    digits = whole + fraction
    scale = exponent - len(fraction)
    nano = _scaled(digits, scale + _NANO_DIGITS)
    if sign == "-":
        nano = -nano
    if len(digits) > _INT64_DIGITS or scale < -_NANO_DIGITS:
        return Quantity(nano, format, -_NANO_DIGITS, big=True)
    # Kubernetes keeps the spelling when it looks canonical to it; a sign, leading zeros and a point slip through.
    kept = scale % 3 == 0 and not digits.endswith("000") and not digits.startswith("0")
    return Quantity(nano, format, scale, text=text if kept else None)


def _decimal_exponent(suffix: str) -> tuple[int, Format]:
    exponent = _DECIMAL_SUFFIXES.get(suffix)
    if exponent is not None:
        return exponent, Format.DECIMAL_SI
    if suffix[0] not in "eE" or not re.fullmatch(r"[+-]?[0-9]+", suffix[1:]):
        raise QuantityError(_SUFFIX_WRONG)
    exponent = int(suffix[1:])
    if not INT64_MIN <= exponent <= INT64_MAX:
        raise QuantityError(_SUFFIX_WRONG)
    return exponent, Format.DECIMAL_EXPONENT


def _scaled(digits: str, shift: int) -> int:
    """The digits times ten to the power of `shift`, rounded up; bounded work for any shift."""
    significant = digits.lstrip("0")
    if not significant:
        return 0
    if len(significant) + shift > DIGITS_MAX:
        raise QuantityError(f"quantity is too large: expected fewer than {DIGITS_MAX - _NANO_DIGITS} digits")
    if shift >= 0:
        return int(significant) * int(10**shift)
    kept, dropped = significant[:shift], significant[shift:]
    return int(kept or "0") + (dropped.strip("0") != "")


def _binary(text: str, sign: str, whole: str, fraction: str, suffix: str) -> Quantity:
    """A quantity with a suffix that is a power of 1024."""
    exponent = _BINARY_SUFFIXES[suffix]
    # Digits that Kubernetes expects to fit into 64 bits after the shift: a bit is three tenths of a digit.
    if not fraction and len(whole) + exponent * 3 // 10 <= 14:
        amount = int(whole) << exponent
        nano = -amount * _ONE if sign == "-" else amount * _ONE
        return Quantity(nano, Format.BINARY_SI, 0, text=text if int(whole) & 7 else None)
    nano = -(-(int(whole + fraction) << exponent) * _ONE // 10 ** len(fraction))
    scale, format = -_NANO_DIGITS, Format.BINARY_SI
    if nano > INT64_MAX * _ONE:
        nano, scale = INT64_MAX * _ONE, 0
    elif 0 < nano < _ONE:
        format = Format.DECIMAL_SI
    return Quantity(-nano if sign == "-" else nano, format, scale, big=True)


def _canonical(nano: int, format: Format) -> str:
    """The shortest exact text without a fraction, in `format` where that loses nothing."""
    if not nano:
        return "0"
    if format is Format.BINARY_SI and abs(nano) >= 1024 * _ONE and nano % _ONE == 0:
        amount, times = nano // _ONE, 0
        while amount % 1024 == 0 and times < len(_BINARY_SUFFIX_OF) - 1:
            amount, times = amount // 1024, times + 1
        return f"{amount}{_BINARY_SUFFIX_OF[times]}"
    amount, exponent = nano, -_NANO_DIGITS
    while amount % 1000 == 0 and (format is Format.DECIMAL_EXPONENT or exponent < _DECIMAL_EXPONENT_MAX):
        amount, exponent = amount // 1000, exponent + 3
    if format is Format.DECIMAL_EXPONENT:
        return f"{amount}e{exponent}" if exponent else str(amount)
    return f"{amount}{_DECIMAL_SUFFIX_OF[exponent]}"


def _divide_away_from_zero(amount: int, unit: int) -> int:
    return -(-amount // unit) if amount >= 0 else amount // unit


def _saturate(amount: int) -> int:
    return max(INT64_MIN, min(INT64_MAX, amount))


def _power_of_ten(exponent: int) -> float:
    """Ten to the power of `exponent` with the rounding of Go's math.Pow10, which works in steps of 32."""
    if exponent > 308:
        return math.inf
    steps, rest = divmod(abs(exponent), 32)
    power, remainder = float(f"1e{steps * 32}"), float(f"1e{rest}")
    return power * remainder if exponent >= 0 else 1 / power / remainder
