"""Kubernetes' quantity, semver and regex libraries."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from allot.core.cel.data import regex
from allot.core.cel.data.values import CelError, ComputedQuantity, Value
from allot.core.quantity import Format, Quantity, QuantityError
from allot.core.semver import Semver, SemverError

# --- quantities ---


def parse_quantity(text: str) -> Quantity:
    """quantity()"""
    try:
        return Quantity.parse(text)
    except QuantityError as error:
        raise CelError(str(error)) from None


def is_quantity(text: str) -> bool:
    """isQuantity()"""
    try:
        Quantity.parse(text)
    except QuantityError:
        return False
    return True


def compare_quantities(left: Quantity, right: Quantity) -> int:
    """compareTo(): -1, 0 or 1."""
    return (left.nano > right.nano) - (left.nano < right.nano)


def quantity_is_greater(left: Quantity, right: Quantity) -> bool:
    """isGreaterThan()"""
    return left.nano > right.nano


def quantity_is_less(left: Quantity, right: Quantity) -> bool:
    """isLessThan()"""
    return left.nano < right.nano


def quantity_as_integer(quantity: Quantity) -> int:
    """asInteger()"""
    amount = quantity.as_int64()
    if amount is None:
        raise CelError("cannot convert value to integer")
    return amount


def _computed(quantity: Quantity) -> ComputedQuantity:
    return ComputedQuantity(quantity.nano, quantity.format, quantity.scale, quantity.big)


def add_quantities(left: Quantity, right: Quantity) -> Quantity:
    """add()"""
    return _computed(left.add(right))


def subtract_quantities(left: Quantity, right: Quantity) -> Quantity:
    """sub()"""
    return _computed(left.sub(right))


def add_integer(left: Quantity, right: int) -> Quantity:
    """add() of a number"""
    return _computed(left.add(Quantity.from_int(right, Format.DECIMAL_EXPONENT)))


def subtract_integer(left: Quantity, right: int) -> Quantity:
    """sub() of a number"""
    return _computed(left.sub(Quantity.from_int(right, Format.DECIMAL_EXPONENT)))


# --- versions ---


def parse_semver(text: str, normalize: bool = False) -> Semver:
    """semver()"""
    try:
        return Semver.parse(text, normalize)
    except SemverError as error:
        raise CelError(str(error)) from None


def is_semver(text: str, normalize: bool = False) -> bool:
    """isSemver()"""
    try:
        Semver.parse(text, normalize)
    except SemverError:
        return False
    return True


def _wrapped(number: int) -> int:
    """An unsigned 64-bit number read as signed, as upstream does without checking."""
    return number - 2**64 if number >= 2**63 else number


def semver_is_greater(left: Semver, right: Semver) -> bool:
    """isGreaterThan()"""
    return left > right


def semver_is_less(left: Semver, right: Semver) -> bool:
    """isLessThan()"""
    return left < right


# --- regular expressions ---


def _pattern(pattern: str) -> Value:
    try:
        return regex.compile_pattern(pattern)
    except regex.PatternError as error:
        raise CelError(f"Illegal regex: {error}") from None


def find(text: str, pattern: str) -> str:
    """The first match, or the empty string."""
    return regex.find(_pattern(pattern), text)


def find_all(text: str, pattern: str, limit: int = -1) -> list[str]:
    """All matches, at most `limit` unless negative."""
    return regex.find_all(_pattern(pattern), text, limit)


OVERLOADS: Final[dict[str, Callable[..., Value]]] = {
    "string_to_quantity": parse_quantity,
    "is_quantity_string": is_quantity,
    "quantity_sign": Quantity.sign,
    "quantity_is_greater_than": quantity_is_greater,
    "quantity_is_less_than": quantity_is_less,
    "quantity_compare_to": compare_quantities,
    "quantity_get_float": Quantity.as_approximate_float,
    "quantity_get_int": quantity_as_integer,
    "quantity_is_integer": Quantity.is_integer,
    "quantity_add": add_quantities,
    "quantity_add_int": add_integer,
    "quantity_sub": subtract_quantities,
    "quantity_sub_int": subtract_integer,
    "string_to_semver": parse_semver,
    "string_bool_to_semver": parse_semver,
    "is_semver_string": is_semver,
    "is_semver_string_bool": is_semver,
    "semver_is_greater_than": semver_is_greater,
    "semver_is_less_than": semver_is_less,
    "semver_compare_to": Semver.compare,
    "semver_major": lambda version: _wrapped(version.major),
    "semver_minor": lambda version: _wrapped(version.minor),
    "semver_patch": lambda version: _wrapped(version.patch),
    "string_jsonpatch_escapeKey_string": lambda key: key.replace("~", "~0").replace("/", "~1"),
    "string_find_string": find,
    "string_find_all_string": find_all,
    "string_find_all_string_int": find_all,
}
