"""Lists, sets, maps and optional values: cel-go's libraries of that name and Kubernetes' list library."""

from __future__ import annotations

from collections.abc import Callable
from functools import cmp_to_key
from typing import Final

from allot.core.cel.costs.budget import check_work, cost_exceeded
from allot.core.cel.data.comparison import COMPARABLE, compare, contains, own_equal
from allot.core.cel.data.text import go_text
from allot.core.cel.data.values import (
    LIST_CLASSES,
    MISSING,
    NO_SUCH_OVERLOAD,
    NONE,
    CelError,
    Duration,
    EvaluationAborted,
    KeyedMap,
    MutableMap,
    Optional,
    Value,
    decoded_key,
    find,
    is_list,
    is_zero,
    map_key,
    type_name,
)
from allot.core.cel.library.standard import ADDERS, add
from allot.core.cel.syntax.ast import UInt

_RANGE_MAX: Final = 10_000_000
_RANGE_AFFORDABLE_MAX: Final = 1_000_000


# --- cel-go's lists ---


def slice_list(elements: Value, start: int, end: int) -> list[Value]:
    """The elements from start up to end."""
    problem = ""
    if start < 0 or end < 0:
        problem = "negative indexes not supported"
    elif start > end:
        problem = "start index must be less than or equal to end index"
    elif len(elements) < end:
        problem = f"list is length {len(elements)}"
    if problem:
        raise CelError(f"cannot slice({start}, {end}), {problem}")
    return list(elements[start:end])


def flatten(elements: Value, depth: Value = 1) -> list[Value]:
    """Replaces lists in the list by their elements, `depth` levels down."""
    if not is_list(elements) or depth.__class__ is not int:
        raise CelError(f"no such overload: {type_name(elements)}.flatten({type_name(depth)})")
    if depth < 0:
        raise CelError("level must be non-negative")
    flat: list[Value] = []
    _flatten_into(flat, elements, depth, 0)
    return flat


def _flatten_into(flat: list[Value], elements: Value, depth: int, seen: int) -> int:
    for element in elements:
        seen += 1
        check_work(seen)
        if depth and is_list(element):
            seen = _flatten_into(flat, element, depth - 1, seen)
        else:
            flat.append(element)
    return seen


def lists_range(size: int) -> list[int]:
    """0, 1, ... size - 1."""
    if size < 0:
        raise CelError(f"lists.range: size must be non-negative, got {size}")
    if size > _RANGE_MAX:
        raise CelError(f"lists.range: size {size} exceeds maximum allowed ({_RANGE_MAX})")
    if size > _RANGE_AFFORDABLE_MAX:
        # Upstream builds the list and only then finds it too expensive.
        raise cost_exceeded()
    return list(range(size))


def reverse(elements: Value) -> list[Value]:
    """The elements in reverse order."""
    return list(reversed(elements))


def distinct(elements: Value) -> list[Value]:
    """The elements without repetitions, in order of first appearance."""
    check_work(2 * len(elements) ** 2)
    unique: list[Value] = []
    for element in elements:
        if not contains(unique, element):
            unique.append(element)
    return unique


def sort(elements: Value) -> Value:
    """The elements in ascending order."""
    return sort_by_keys(elements, elements)


def sort_by_keys(elements: Value, keys: Value) -> Value:
    """The elements in the order of the keys at the same positions."""
    if not is_list(elements) or not is_list(keys):
        raise EvaluationAborted("internal error: interface conversion: not a list")
    if len(elements) != len(keys):
        raise CelError(
            "@sortByAssociatedKeys() expected a list of the same size as the associated keys list, but got"
            f" {len(elements)} and {len(keys)} elements respectively"
        )
    if not elements:
        return elements
    check_work(2 * len(keys) ** 2)
    if keys[0].__class__ not in COMPARABLE:
        raise CelError("list elements must be comparable")
    key_type = type_name(keys[0])
    if any(type_name(key) != key_type for key in keys):
        raise CelError("list elements must have the same type")
    order = sorted(range(len(keys)), key=cmp_to_key(lambda left, right: _order(keys[left], keys[right])))
    return [elements[index] for index in order]


def _order(left: Value, right: Value) -> int:
    try:
        return compare(left, right)
    except CelError:
        return 0


# --- Kubernetes' lists ---


def is_sorted(elements: Value) -> bool:
    """Whether no element is greater than the next."""
    for position, element in enumerate(elements):
        if element.__class__ not in COMPARABLE:
            raise CelError(NO_SUCH_OVERLOAD)
        if position and _order(elements[position - 1], element) > 0:
            return False
    return True


def _sum(zero: Value) -> Callable[[Value], Value]:
    def total(elements: Value) -> Value:
        result = zero
        for element in elements:
            if element.__class__ not in ADDERS:
                raise CelError(NO_SUCH_OVERLOAD)
            result = add(result, element)
        return result

    return total


def _extreme(name: str, replaced_when: int) -> Callable[[Value], Value]:
    def extreme(elements: Value) -> Value:
        result: Value = MISSING
        for element in elements:
            if element.__class__ not in COMPARABLE:
                raise CelError(NO_SUCH_OVERLOAD)
            # An incomparable element does not replace the best so far, and upstream reports no error.
            if result is MISSING or _order(result, element) == replaced_when:
                result = element
        if result is MISSING:
            raise CelError(f"{name} called on empty list")
        return result

    return extreme


def index_of(elements: Value, wanted: Value) -> int:
    """Position of the first equal element, or -1."""
    for position, element in enumerate(elements):
        if own_equal(element, wanted) is True:
            return position
    return -1


def last_index_of(elements: Value, wanted: Value) -> int:
    """Position of the last equal element, or -1."""
    for position in range(len(elements) - 1, -1, -1):
        if own_equal(elements[position], wanted) is True:
            return position
    return -1


def includes(target: Value, wanted: Value) -> bool:
    """Whether a list has an equal element, or another value is equal."""
    if is_list(target):
        return index_of(target, wanted) >= 0
    return own_equal(target, wanted) is True


# --- sets and maps ---


def sets_contains(elements: Value, wanted: Value) -> bool:
    """Whether every wanted element is there."""
    check_work(len(elements) * len(wanted))
    return all(contains(elements, element) for element in wanted)


def sets_equivalent(left: Value, right: Value) -> bool:
    """Whether each contains the other."""
    return sets_contains(left, right) and sets_contains(right, left)


def sets_intersects(left: Value, right: Value) -> bool:
    """Whether any element is in both."""
    check_work(len(left) * len(right))
    return any(contains(right, element) for element in left)


def map_insert(target: Value, key: Value, value: Value) -> Value:
    """The map with one more entry; an accumulator is changed in place."""
    if find(target, key) is not MISSING:
        raise CelError(f"insert failed: key {go_text(key)} already exists")
    if target.__class__ is not MutableMap:
        target = KeyedMap(target)
    target[map_key(key)] = value
    return target


def map_insert_all(target: Value, update: Value) -> Value:
    """The map with the entries of another."""
    for encoded, value in update.items():
        target = map_insert(target, decoded_key(encoded), value)
    return target


# --- optional values ---


def optional_of(value: Value) -> Optional:
    """Present, whatever the value."""
    return Optional(value)


def optional_of_non_zero(value: Value) -> Optional:
    """Present unless the value is a zero value."""
    return NONE if is_zero(value) else Optional(value)


def optional_none() -> Optional:
    """Absent."""
    return NONE


def optional_value(optional: Optional) -> Value:
    """The value, an error when absent."""
    if not optional.present:
        raise CelError("optional.none() dereference")
    return optional.value


def optional_has_value(optional: Optional) -> bool:
    """Whether there is a value."""
    return optional.present


def first(elements: Value) -> Optional:
    """The first element, if any."""
    return Optional(elements[0]) if elements else NONE


def last(elements: Value) -> Optional:
    """The last element, if any."""
    return Optional(elements[-1]) if elements else NONE


def unwrap(optionals: Value) -> list[Value]:
    """The values that are present."""
    unwrapped: list[Value] = []
    for optional in optionals:
        if optional.__class__ is not Optional:
            raise CelError(f"value {go_text(optional)} is not optional")
        if optional.present:
            unwrapped.append(optional.value)
    return unwrapped


_COMPARABLE_NAMES: Final = ("int", "uint", "double", "bool", "duration", "timestamp", "string", "bytes")

SINGLETONS: Final[dict[str, tuple[Callable[..., Value], frozenset[type] | None]]] = {
    "sort": (sort, LIST_CLASSES),
    "@sortByAssociatedKeys": (sort_by_keys, LIST_CLASSES),
}

OVERLOADS: Final[dict[str, Callable[..., Value]]] = {
    "list_slice": slice_list,
    "list_flatten": flatten,
    "list_flatten_int": flatten,
    "lists_range": lists_range,
    "list_reverse": reverse,
    "list_distinct": distinct,
    **{f"list_{name}_is_sorted_bool": is_sorted for name in _COMPARABLE_NAMES},
    **{f"list_{name}_min_{name}": _extreme("min", 1) for name in _COMPARABLE_NAMES},
    **{f"list_{name}_max_{name}": _extreme("max", -1) for name in _COMPARABLE_NAMES},
    "list_int_sum_int": _sum(0),
    "list_uint_sum_uint": _sum(UInt(0)),
    "list_double_sum_double": _sum(0.0),
    "list_duration_sum_duration": _sum(Duration(0)),
    "list_a_index_of_int": index_of,
    "list_a_last_index_of_int": last_index_of,
    "list_includes_dyn_dyn": includes,
    "list_sets_contains_list": sets_contains,
    "list_sets_equivalent_list": sets_equivalent,
    "list_sets_intersects_list": sets_intersects,
    "@mapInsert_map_key_value": map_insert,
    "@mapInsert_map_map": map_insert_all,
    "optional_of": optional_of,
    "optional_ofNonZeroValue": optional_of_non_zero,
    "optional_none": optional_none,
    "optional_value": optional_value,
    "optional_hasValue": optional_has_value,
    "list_first": first,
    "list_last": last,
    "optional_unwrap": unwrap,
    "optional_unwrapOpt": unwrap,
}
