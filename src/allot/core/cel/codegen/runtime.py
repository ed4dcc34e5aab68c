"""Helpers for generated code: the interpreter's semantics, in forms that are fast to call.

Errors are raised here instead of returned. A missing key of a device's map reaches generated code as Python's KeyError
and is turned into CEL's error by `as_error`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NoReturn

from allot.core.cel.data.comparison import contains
from allot.core.cel.data.values import (
    GO_TYPES,
    MISSING,
    NO_SUCH_OVERLOAD,
    NONE,
    CelError,
    EvaluationError,
    KeyedMap,
    MutableList,
    MutableMap,
    Optional,
    Value,
    is_list,
    is_map,
    keys,
    map_key,
)
from allot.core.cel.evaluation.interpret import qualified

_KEY_CLASSES = frozenset(("bool", "int", "UInt", "float", "str"))


class Failed:
    """An error from computing a variable, raised where the variable is read."""

    __slots__ = ("error",)

    def __init__(self, error: EvaluationError) -> None:
        self.error = error

    def throw(self) -> NoReturn:
        """Raise the error."""
        raise self.error


def as_error(error: Exception) -> EvaluationError:
    """CEL's error for what generated code caught."""
    if isinstance(error, EvaluationError):
        return error
    return CelError(f"no such key: {error.args[0]}")


def no_overload(*_: Value) -> NoReturn:
    """Operands of the wrong class."""
    raise CelError(NO_SUCH_OVERLOAD)


def select(value: Value, key: Value) -> Value:
    """`value[key]` or `value.key`."""
    if key.__class__.__name__ not in _KEY_CLASSES:
        raise CelError(f"invalid qualifier type: {GO_TYPES[key.__class__]}")
    if value.__class__ is Optional:
        return _select_optional(value, key)
    found = qualified(value, key, False)
    if found.__class__ is CelError:
        raise found
    return found


def _select_optional(value: Optional, key: Value) -> Optional:
    if not value.present:
        return value
    found = qualified(value.value, key, True)
    if found.__class__ is CelError:
        raise found
    return NONE if found is MISSING else Optional(found)


def select_optionally(value: Value, key: Value) -> Optional:
    """`value[?key]` or `value.?key`."""
    return _select_optional(value if value.__class__ is Optional else Optional(value), _valid_key(key))


def _valid_key(key: Value) -> Value:
    if key.__class__.__name__ not in _KEY_CLASSES:
        raise CelError(f"invalid qualifier type: {GO_TYPES[key.__class__]}")
    return key


def has(value: Value, key: Value) -> bool:
    """has(value.key)"""
    if value.__class__ is Optional:
        return _select_optional(value, key).present
    found = qualified(value, key, True)
    if found.__class__ is CelError:
        raise found
    return found is not MISSING


def member_test(elements: tuple[Value, ...]) -> Callable[[Value], bool]:
    """`in` with a list of constants."""

    def is_member(wanted: Value) -> bool:
        map_key(wanted)  # upstream panics for values that cannot be keys
        return wanted.__class__.__name__ in _KEY_CLASSES and contains(elements, wanted)

    return is_member


def or_value(optional: Value) -> Value:
    """The value of an optional or MISSING, for `orValue`."""
    if optional.__class__ is not Optional:
        raise CelError(NO_SUCH_OVERLOAD)
    return optional.value if optional.present else MISSING


def or_other(optional: Value) -> Value:
    """A present optional or MISSING, for `or`."""
    if optional.__class__ is not Optional:
        raise CelError(NO_SUCH_OVERLOAD)
    return optional if optional.present else MISSING


def elements(iter_range: Value) -> Iterable[Value]:
    """What a loop with one variable iterates over."""
    if is_list(iter_range):
        return iter_range  # type: ignore[no-any-return]
    if is_map(iter_range):
        return keys(iter_range)
    raise CelError(f"got '{GO_TYPES[iter_range.__class__]}', expected iterable type")


def entries(iter_range: Value) -> Iterable[tuple[Value, Value]]:
    """What a loop with two variables iterates over."""
    if is_list(iter_range):
        return enumerate(iter_range)
    if is_map(iter_range):
        return zip(keys(iter_range), iter_range.values(), strict=True)
    raise CelError(f"unsupported comprehension range type: {GO_TYPES[iter_range.__class__]}")


def accumulator(value: Value) -> Value:
    """The initial value of a variable: an empty list or map can be changed in place."""
    if is_list(value) and not value:
        return MutableList()
    if is_map(value) and not value:
        return MutableMap()
    return value


def frozen(value: Value) -> Value:
    """A result that no longer changes."""
    if value.__class__ is MutableList:
        return list(value)
    return KeyedMap(value) if value.__class__ is MutableMap else value


def keyed_map(*flat: Any) -> KeyedMap:
    """A map literal: keys and values in turn."""
    return KeyedMap((map_key(flat[position]), flat[position + 1]) for position in range(0, len(flat), 2))
