"""Actual costs: prices of the steps of an evaluation, as cel-go's tracker and Kubernetes' library charge them.

Used by the interpreter, which adds up and stops at the limit. Knows values, not expressions.
How the steps are charged:

- A chain of selections and indices on something that is not such a chain (`device.attributes["x"].y`, `f(x).y`) is one
  step: `ATTRIBUTE_COST` for the chain and `QUALIFIER_COST` for each selection or index that was tried, the one that
  failed included. An optional one that finds nothing (`.?y`, `[?"y"]` and all after it) is not charged. A variable is a
  chain without selections. The index itself, when it is a chain, is charged for its selections only.
- has(a.b) is charged for its selections, without the `ATTRIBUTE_COST`.
- A conditional is charged for the condition and the branch taken, without the `ATTRIBUTE_COST` of a branch that is a
  chain or of selections behind the conditional.
- Constants are free, names of types among them, and folded ones: list and map literals of constants, conversions of
  constants. So is `in` with a list of constants of scalar types (other than bytes): that is a lookup, and only the left
  operand is charged; with an empty list not even that.
- `&&`, `||`, `or` and `orValue` are free apart from the operands evaluated. Creating a list, map or message is charged
  even when an element fails. A loop is charged for its range, for the initial value when that is read for the
  first time, and for each condition and step evaluated; cel.bind is such a loop.
- Every other call is charged `call_cost`, also when it fails or when an argument failed; it is free when an argument
  was not evaluated because one before it failed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final

from allot.core.cel.costs.budget import check_work
from allot.core.cel.costs.calls import (
    LIST_CREATE_COST,
    MAP_CREATE_COST,
    REGEX_LENGTH_FACTOR,
    STRING_TRAVERSAL_FACTOR,
    STRUCT_CREATE_COST,
)
from allot.core.cel.costs.functions import SORTABLE
from allot.core.cel.costs.kubernetes import (
    AUTHORIZATION_CHECK_COST,
    ESCAPE,
    NOMINAL,
    OVER_ELEMENTS,
    PARSED,
    SELECTOR_REQUIREMENT_COST,
    SELECTOR_REQUIREMENTS_PER_CHARACTER,
    TRANSFORMS,
)
from allot.core.cel.data.values import (
    CIDR,
    IP,
    LIST_CLASSES,
    MAP_CLASSES,
    URL,
    ComputedQuantity,
    NamedFormat,
    Optional,
    Value,
    decoded_key,
)
from allot.core.quantity import Quantity
from allot.core.semver import Semver

__all__ = [
    "ATTRIBUTE_COST",
    "LIST_CREATE_COST",
    "MAP_CREATE_COST",
    "QUALIFIER_COST",
    "STRUCT_CREATE_COST",
    "Price",
    "call_cost",
    "call_price",
]

ATTRIBUTE_COST: Final = 1
QUALIFIER_COST: Final = 1

# From the arguments (receiver first; an exception stands for an argument that failed) and the result (an exception when
# the call failed) to the cost.
Price = Callable[[Sequence[Value], Value], int]

_SIZED: Final = LIST_CLASSES | MAP_CLASSES | {str, bytes}
# Kubernetes' own classes, which compare at a fixed price.
_FIXED_SIZE: Final = frozenset((Quantity, ComputedQuantity, IP, CIDR, NamedFormat, URL, Semver))


def call_price(function: str, overload_id: str) -> Price:
    """The price of a call; overload_id is empty if several overloads remain after checking."""
    return _BY_OVERLOAD.get(overload_id) or _BY_FUNCTION.get(function) or _STANDARD.get(overload_id) or _one


def call_cost(function: str, overload_id: str, args: Sequence[Value], result: Value) -> int:
    """What one call cost."""
    return call_price(function, overload_id)(args, result)


# --- sizes ------------------------------------------------------------------------------------------------------------


def _size(value: Value) -> int:
    value_class = value.__class__
    if value_class in _SIZED:
        return len(value)
    if value_class is IP:
        return 4 if value.version == 4 else 16
    if value_class is CIDR:
        return -(-int(value.bits) // 8)
    return 1


def _unwrapped_size(value: Value) -> int:
    while value.__class__ is Optional and value.present:
        value = value.value
    return _size(value)


def _traversal_cost(value: Value) -> int:
    """What reading a whole value costs: a tenth of each string's bytes, rounded down, and one for each other leaf."""
    cost, steps, rest = 0, 0, [value]
    while rest:
        value = rest.pop()
        steps += 1
        # Collections that share elements can be exponentially larger than what was charged.
        check_work(steps)
        value_class = value.__class__
        if value_class is str:
            cost += int(len(value.encode("utf-8", "surrogatepass")) * STRING_TRAVERSAL_FACTOR)
        elif value_class is bytes:
            cost += int(len(value) * STRING_TRAVERSAL_FACTOR)
        elif value_class in LIST_CLASSES:
            rest.extend(value)
        elif value_class in MAP_CLASSES:
            for key, element in value.items():
                rest += (decoded_key(key), element)
        else:
            cost += 1
    return cost


def _string_cost(size: int) -> int:
    return math.ceil(size * STRING_TRAVERSAL_FACTOR)


def _two_string_costs(size: int) -> int:
    return math.ceil(size * 2 * STRING_TRAVERSAL_FACTOR)


def _matching_cost(text: int, pattern: int) -> int:
    return math.ceil((1.0 + text) * STRING_TRAVERSAL_FACTOR) * math.ceil(pattern * REGEX_LENGTH_FACTOR)


def _one(_args: Sequence[Value], _result: Value) -> int:
    return 1


# --- the standard library ---------------------------------------------------------------------------------------------


def _second_traversed(args: Sequence[Value], _result: Value) -> int:
    return _string_cost(_unwrapped_size(args[1]))


def _first_traversed(args: Sequence[Value], _result: Value) -> int:
    return _string_cost(_unwrapped_size(args[0]))


def _in_list(args: Sequence[Value], _result: Value) -> int:
    return _unwrapped_size(args[1])


def _compared(args: Sequence[Value], _result: Value) -> int:
    return _string_cost(min(_unwrapped_size(args[0]), _unwrapped_size(args[1])))


def _concatenated(args: Sequence[Value], _result: Value) -> int:
    return _string_cost(_unwrapped_size(args[0]) + _unwrapped_size(args[1]))


def _matches(args: Sequence[Value], _result: Value) -> int:
    return _matching_cost(_unwrapped_size(args[0]), _unwrapped_size(args[1]))


def _contains(args: Sequence[Value], _result: Value) -> int:
    return _string_cost(_unwrapped_size(args[0])) * _string_cost(_unwrapped_size(args[1]))


_STANDARD: Final[dict[str, Price]] = {
    "starts_with_string": _second_traversed,
    "ends_with_string": _second_traversed,
    "string_to_bytes": _first_traversed,
    "bytes_to_string": _first_traversed,
    "strings_quote": _first_traversed,
    "string_format": _first_traversed,
    "in_list": _in_list,
    "equals": _compared,
    "not_equals": _compared,
    "add_string": _concatenated,
    "add_bytes": _concatenated,
    "matches": _matches,
    "matches_string": _matches,
    "contains_string": _contains,
    **{
        f"{relation}_{kind}": _compared
        for relation in ("less", "less_equals", "greater", "greater_equals")
        for kind in ("string", "bytes")
    },
}


# --- cel-go's lists and sets ------------------------------------------------------------------------------------------


def _list_cost(factor: float, size: int) -> int:
    return int(size * (factor if factor >= 0 else 1.0)) + 1 + LIST_CREATE_COST


def _listed(_args: Sequence[Value], result: Value) -> int:
    return _list_cost(1, _size(result))


def _flattened(args: Sequence[Value], _result: Value) -> int:
    depth = args[1] if len(args) == 2 else 1
    return _list_cost(float(depth) if depth.__class__ is int else 1.0, _size(args[0]))


def _self_compared(elements: Value) -> int:
    """The price of comparing each element with each other.

    Upstream's process panics here when there is no list because computing it failed, and reports an internal error
    instead of the cause, even where `||` would have absorbed it. Not worth imitating: one element is charged.
    """
    kind = elements.__class__
    if kind not in LIST_CLASSES or not elements:
        return _list_cost(2, _size(elements) ** 2)
    return _list_cost(2.1 if elements[0].__class__ in (str, bytes) else 2, len(elements) ** 2)


def _first_self_compared(args: Sequence[Value], _result: Value) -> int:
    return _self_compared(args[0])


def _second_self_compared(args: Sequence[Value], _result: Value) -> int:
    return _self_compared(args[1])


def _set_operation(args: Sequence[Value], _result: Value) -> int:
    return 1 + _size(args[0]) * _size(args[1])


def _set_equivalence(args: Sequence[Value], _result: Value) -> int:
    return 1 + 2 * _size(args[0]) * _size(args[1])


_BY_OVERLOAD: Final[dict[str, Price]] = {
    "list_slice": _listed,
    "lists_range": _listed,
    "list_reverse": _listed,
    "list_flatten": _flattened,
    "list_flatten_int": _flattened,
    "list_distinct": _first_self_compared,
    "list_sets_contains_list": _set_operation,
    "list_sets_intersects_list": _set_operation,
    "list_sets_equivalent_list": _set_equivalence,
    **{f"list_{name}_sort": _first_self_compared for name in SORTABLE},
    **{f"list_{name}_sortByAssociatedKeys": _second_self_compared for name in SORTABLE},
}


# --- Kubernetes' library ----------------------------------------------------------------------------------------------


def _authorization_check(_args: Sequence[Value], _result: Value) -> int:
    return AUTHORIZATION_CHECK_COST


def _selector(args: Sequence[Value], _result: Value) -> int:
    length = _size(args[1])
    requirements = math.ceil(length * SELECTOR_REQUIREMENTS_PER_CHARACTER) * SELECTOR_REQUIREMENT_COST
    return LIST_CREATE_COST + _string_cost(length) + requirements


def _over_elements(args: Sequence[Value], _result: Value) -> int:
    return _traversal_cost(args[0])


def _parsed(args: Sequence[Value], _result: Value) -> int:
    return _string_cost(_size(args[0]))


def _rebuilt(args: Sequence[Value], _result: Value) -> int:
    return _two_string_costs(_size(args[0]))


def _joined(_args: Sequence[Value], result: Value) -> int:
    return _two_string_costs(_size(result))


def _found(args: Sequence[Value], _result: Value) -> int:
    return _matching_cost(_size(args[0]), _size(args[1]))


def _contains_ip(args: Sequence[Value], _result: Value) -> int:
    return _string_cost(2 * _size(args[0]))


def _contains_cidr(args: Sequence[Value], _result: Value) -> int:
    return _string_cost(2 * _size(args[0])) + _string_cost(_size(args[0])) + 1


def _contains_ip_string(args: Sequence[Value], result: Value) -> int:
    return _contains_ip(args, result) + _string_cost(_size(args[1]))


def _contains_cidr_string(args: Sequence[Value], result: Value) -> int:
    return _contains_cidr(args, result) + _string_cost(_size(args[1]))


def _validate(args: Sequence[Value], _result: Value) -> int:
    named_format, text = args
    if named_format.__class__ is not NamedFormat:
        return 1
    return _matching_cost(_size(text), named_format.regex_size)


def _equals(args: Sequence[Value], result: Value) -> int:
    return 1 if args[0].__class__ in _FIXED_SIZE else _compared(args, result)


_BY_FUNCTION: Final[dict[str, Price]] = {
    "check": _authorization_check,
    "fieldSelector": _selector,
    "labelSelector": _selector,
    "replace": _rebuilt,
    "split": _rebuilt,
    "ip.isCanonical": _rebuilt,
    "join": _joined,
    "find": _found,
    "findAll": _found,
    "url": _parsed,
    "ip": _parsed,
    "containsIP": _contains_ip,
    "containsCIDR": _contains_cidr,
    "validate": _validate,
    "_==_": _equals,
    **dict.fromkeys(OVER_ELEMENTS, _over_elements),
    **dict.fromkeys((*PARSED, *TRANSFORMS, ESCAPE), _parsed),
    **dict.fromkeys(NOMINAL, _one),
}
# Kubernetes' functions whose overloads differ in price.
_BY_OVERLOAD.update(
    cidr_ip=_one, cidr_contains_ip_string=_contains_ip_string, cidr_contains_cidr_string=_contains_cidr_string
)
