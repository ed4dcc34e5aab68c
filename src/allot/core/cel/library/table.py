"""Which implementation a call runs: by overload when checking left one, else by looking at the arguments.

Knows cel-go's dispatch rules and the errors for arguments without a matching overload. The implementations are in the
other modules of this package, by overload id or, for functions with one implementation for all overloads, by function name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from allot.core.cel.checking.types import CelType, Function, Kind, Overload
from allot.core.cel.data import regex
from allot.core.cel.data.values import (
    NO_SUCH_OVERLOAD,
    TYPE_NAMES,
    CelError,
    Duration,
    Timestamp,
    Value,
    decoded_key,
    is_list,
    is_map,
    no_such_overload,
)
from allot.core.cel.library import authorization as functions_authorization
from allot.core.cel.library import collections as functions_collections
from allot.core.cel.library import format as functions_format
from allot.core.cel.library import kubernetes as functions_kubernetes
from allot.core.cel.library import math as functions_math
from allot.core.cel.library import named_formats
from allot.core.cel.library import network as functions_network
from allot.core.cel.library import standard as functions_standard
from allot.core.cel.library import strings as functions_strings
from allot.core.cel.library import time as functions_time
from allot.core.cel.library import url as functions_url

Implementation = Callable[..., Value]
# Whether a value may be passed for a parameter; None: any value may.
_Guard = Callable[[Value], bool]

# Overload id -> implementation.
Library = Mapping[str, Implementation]

OVERLOADS: Final[Library] = {
    **functions_standard.OVERLOADS,
    **functions_time.OVERLOADS,
    **functions_strings.OVERLOADS,
    **functions_collections.OVERLOADS,
    **functions_math.OVERLOADS,
    **functions_network.OVERLOADS,
    **functions_url.OVERLOADS,
    **functions_kubernetes.OVERLOADS,
    **functions_authorization.OVERLOADS,
    **named_formats.OVERLOADS,
    "string_format": functions_format.format_old,
}
# The declarations of the string library are the same in its two editions, string.format() is not.
OVERLOADS_NEW_STRINGS: Final[Library] = {**OVERLOADS, "string_format": functions_format.format_new}
SINGLETONS: Final[Mapping[str, tuple[Implementation, frozenset[type] | None]]] = {
    **functions_standard.SINGLETONS,
    **functions_collections.SINGLETONS,
}

# Functions that check the classes of their arguments themselves.
_UNGUARDED: Final = frozenset(("contains", "startsWith", "endsWith", "flatten"))
# Classes that upstream tries a second time before giving up, with a shorter message.
_RECEIVERS: Final[frozenset[type]] = frozenset((str, Duration, Timestamp))


class Binding(msgspec.Struct, frozen=True):
    """What a call runs."""

    call: Implementation
    # Arguments after the first failure are not evaluated.
    stops_at_error: bool = False


def bind(function: Function, overload_ids: Sequence[str], argument_count: int, library: Library) -> Binding | None:
    """The binding of a call; None if it has no implementation."""
    singleton = SINGLETONS.get(function.name)
    if singleton is not None:
        implementation, accepted = singleton
        checked = _for_classes(function.name, implementation, accepted) if accepted else implementation
        return Binding(checked, argument_count > 2)
    overloads = [overload for overload in function.overloads if overload.id in library]
    if len(overload_ids) == 1:
        overloads = [overload for overload in overloads if overload.id == overload_ids[0]]
    if not overloads:
        return None
    if len(overloads) == 1:
        overload = overloads[0]
        stops = argument_count > 2 or overload.id == "string_format"
        return Binding(_guarded(function, overload, library), stops)
    return Binding(_dispatched(function, overloads, library), True)


def bind_pattern(function: str, pattern: str) -> Binding | None:
    """The binding of a regular expression function whose pattern is a constant; PatternError if it is invalid."""
    if function not in _PATTERN_FUNCTIONS:
        return None
    compiled = regex.compile_pattern(pattern)
    return Binding(_PATTERN_FUNCTIONS[function](compiled), True)


def _matches(pattern: Value) -> Implementation:
    def matches(text: Value, _: Value) -> bool:
        if text.__class__ is not str:
            raise CelError(NO_SUCH_OVERLOAD)
        return regex.matches(pattern, text)

    return matches


def _find(pattern: Value) -> Implementation:
    def find(text: Value, _: Value) -> str:
        if text.__class__ is not str:
            raise CelError(NO_SUCH_OVERLOAD)
        return regex.find(pattern, text)

    return find


def _find_all(pattern: Value) -> Implementation:
    def find_all(text: Value, _: Value, limit: Value = -1) -> list[str]:
        if text.__class__ is not str or limit.__class__ is not int:
            raise CelError(NO_SUCH_OVERLOAD)
        return regex.find_all(pattern, text, limit)

    return find_all


_PATTERN_FUNCTIONS: Final[dict[str, Callable[[Value], Implementation]]] = {
    "matches": _matches,
    "find": _find,
    "findAll": _find_all,
}


# --- what may be passed ---


def _for_classes(name: str, implementation: Implementation, accepted: frozenset[type]) -> Implementation:
    def checked(first: Value, *rest: Value) -> Value:
        if first.__class__ not in accepted:
            raise CelError(NO_SUCH_OVERLOAD if first.__class__ in _RECEIVERS else f"{NO_SUCH_OVERLOAD}: {name}")
        return implementation(first, *rest)

    return checked


def _guard(declared: CelType) -> _Guard | None:
    kind = declared.kind
    if kind in (Kind.DYN, Kind.ANY, Kind.TYPE_PARAM):
        return None
    if kind is Kind.LIST:
        return _list_guard(_guard(declared.params[0]))
    if kind is Kind.MAP:
        return _map_guard(_guard(declared.params[0]), _guard(declared.params[1]))
    name = declared.name if kind in (Kind.OPAQUE, Kind.OBJECT) else kind.value
    classes = frozenset(value_class for value_class, its_name in TYPE_NAMES.items() if its_name == name)
    return lambda value: value.__class__ in classes


def _list_guard(element: _Guard | None) -> _Guard:
    """Only the first element is checked."""
    if element is None:
        return is_list
    return lambda value: is_list(value) and (not value or element(value[0]))


def _map_guard(key: _Guard | None, element: _Guard | None) -> _Guard:
    def accepts(value: Value) -> bool:
        if not is_map(value) or not value:
            return is_map(value)
        encoded, item = next(iter(value.items()))
        return (key is None or key(decoded_key(encoded))) and (element is None or element(item))

    return accepts


def _guards(function: Function, overload: Overload) -> list[tuple[int, _Guard]]:
    if function.name in _UNGUARDED:
        return []
    guards = ((position, _guard(declared)) for position, declared in enumerate(overload.params))
    return [(position, guard) for position, guard in guards if guard is not None]


def _guarded(function: Function, overload: Overload, library: Library) -> Implementation:
    implementation = library[overload.id]
    guards = _guards(function, overload)
    if not guards:
        return implementation

    def checked(*arguments: Value) -> Value:
        for position, guard in guards:
            if not guard(arguments[position]):
                raise no_such_overload(function.name, *arguments)
        return implementation(*arguments)

    return checked


def _dispatched(function: Function, overloads: Sequence[Overload], library: Library) -> Implementation:
    candidates = [(len(overload.params), _guards(function, overload), library[overload.id]) for overload in overloads]

    def dispatched(*arguments: Value) -> Value:
        for count, guards, implementation in candidates:
            if count == len(arguments) and all(guard(arguments[position]) for position, guard in guards):
                return implementation(*arguments)
        raise no_such_overload(function.name, *arguments)

    return dispatched
