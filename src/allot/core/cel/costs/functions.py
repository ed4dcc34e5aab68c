"""The estimated cost of a call, excluding its arguments.

Prices come from three places, in this order: cel-go's list and set libraries by overload id, Kubernetes' library by
function name (`kubernetes`), and the standard library by overload id. Anything else costs one. Prices
that depend on the cost of the arguments (`&&`, `||`, `?:`) or change what is known about elements (`+`) are in `estimate`.
"""

from __future__ import annotations

from allot.core.cel.costs.calls import (
    LIST_CREATE_COST,
    WRAP,
    Call,
    CallEstimate,
    Operand,
    Price,
    matching,
    size_of,
    traversal,
)
from allot.core.cel.costs.kubernetes import kubernetes_estimate
from allot.core.cel.costs.ranges import INFINITE, ONE, Range, SizeEstimate, exactly
from allot.core.cel.syntax.ast import Literal


def library_estimate(call: Call) -> CallEstimate | None:
    """The price by cel-go's extension libraries or Kubernetes' library, None if neither knows the function."""
    price = _BY_OVERLOAD.get(call.overload_id)
    estimate = price(call) if price else None
    return estimate or kubernetes_estimate(call)


def standard_estimate(call: Call) -> CallEstimate:
    """The price in the standard library, or one."""
    price = _STANDARD.get(call.overload_id)
    estimate = price(call) if price else None
    return estimate or CallEstimate(ONE)


# --- the standard library ---------------------------------------------------------------------------------------------


def _format_string(call: Call) -> CallEstimate | None:
    return CallEstimate(traversal(size_of(call.target))) if call.target else None


def _string_to_bytes(call: Call) -> CallEstimate:
    size = size_of(call.args[0])
    # A character has up to four bytes. Upstream's product wraps around.
    return CallEstimate(traversal(size), Range(size.min, size.max * 4 % WRAP))


def _bytes_to_string(call: Call) -> CallEstimate:
    size = size_of(call.args[0])
    return CallEstimate(traversal(size), Range(size.min // 4, size.max))


def _quote(call: Call) -> CallEstimate:
    size = size_of(call.args[0])
    # Every character may be escaped, and two quotes are added. Upstream's sum wraps around.
    return CallEstimate(traversal(size), Range((size.min + 2) % WRAP, (size.max * 2 + 2) % WRAP))


def _affix(call: Call) -> CallEstimate:
    return CallEstimate(traversal(size_of(call.args[0])))


def _in_list(call: Call) -> CallEstimate:
    return CallEstimate(size_of(call.args[1]).scaled(1))


def _matches(call: Call) -> CallEstimate:
    text, pattern = (call.target, call.args[0]) if call.target else (call.args[0], call.args[1])
    return CallEstimate(matching(size_of(text), size_of(pattern)))


def _contains(call: Call) -> CallEstimate | None:
    if call.target is None:
        return None
    return CallEstimate(traversal(size_of(call.target)) * traversal(size_of(call.args[0])))


def _compare(call: Call) -> CallEstimate:
    # The shorter operand is traversed.
    shorter = min(size_of(call.args[0]).max, size_of(call.args[1]).max)
    return CallEstimate(traversal(Range(min(shorter, 1), shorter)))


_STANDARD: dict[str, Price] = {
    "string_format": _format_string,
    "string_to_bytes": _string_to_bytes,
    "bytes_to_string": _bytes_to_string,
    "strings_quote": _quote,
    "starts_with_string": _affix,
    "ends_with_string": _affix,
    "in_list": _in_list,
    "matches": _matches,
    "matches_string": _matches,
    "contains_string": _contains,
    "equals": _compare,
    "not_equals": _compare,
    **{
        f"{relation}_{kind}": _compare
        for relation in ("less", "less_equals", "greater", "greater_equals")
        for kind in ("string", "bytes")
    },
}


# --- cel-go's lists and sets ------------------------------------------------------------------------------------------


def _list_estimate(factor: float, size: SizeEstimate) -> CallEstimate:
    return CallEstimate(size.scaled(factor) + exactly(1 + LIST_CREATE_COST), size)


def _literal_int(operand: Operand, default: int) -> int:
    """The value of an int literal, at least 0; the default for every other expression."""
    if not isinstance(operand.expr, Literal) or type(operand.expr.value) is not int:
        return default
    return max(operand.expr.value, 0)


def _slice(call: Call) -> CallEstimate | None:
    if call.target is None or len(call.args) != 2:
        return None
    start = _literal_int(call.args[0], 0)
    end = _literal_int(call.args[1], size_of(call.target).max)
    # Upstream's difference wraps around when the end is before the start.
    return _list_estimate(1, exactly((end - start) % WRAP))


def _range(call: Call) -> CallEstimate:
    return _list_estimate(1, exactly(_literal_int(call.args[0], INFINITE)))


def _reverse(call: Call) -> CallEstimate | None:
    return _list_estimate(1, size_of(call.target)) if call.target else None


def _flatten(call: Call) -> CallEstimate | None:
    if call.target is None:
        return None
    depth = _literal_int(call.args[0], INFINITE) if call.args else 1
    return _list_estimate(float(depth), size_of(call.target))


def _self_compared(size: SizeEstimate, factor: float) -> CallEstimate:
    # Upstream also uses the number of comparisons as the size of the result.
    return _list_estimate(factor, size * size)


def _distinct(call: Call) -> CallEstimate | None:
    return _self_compared(size_of(call.target), 2) if call.target else None


def _sort(factor: float) -> Price:
    def price(call: Call) -> CallEstimate | None:
        return _self_compared(size_of(call.target), factor) if call.target else None

    return price


def _sort_by_keys(factor: float) -> Price:
    def price(call: Call) -> CallEstimate | None:
        return _self_compared(size_of(call.args[0]), factor) if call.target else None

    return price


def _set_operation(factor: float) -> Price:
    def price(call: Call) -> CallEstimate:
        return CallEstimate((size_of(call.args[0]) * size_of(call.args[1])).scaled(factor) + ONE)

    return price


SORTABLE = (
    *("int", "uint", "double", "bool", "string", "bytes"),
    *("google.protobuf.Duration", "google.protobuf.Timestamp"),
)

_BY_OVERLOAD: dict[str, Price] = {
    "list_slice": _slice,
    "list_flatten": _flatten,
    "list_flatten_int": _flatten,
    "lists_range": _range,
    "list_reverse": _reverse,
    "list_distinct": _distinct,
    "list_sets_contains_list": _set_operation(1),
    "list_sets_intersects_list": _set_operation(1),
    # Each of the two has to contain the other.
    "list_sets_equivalent_list": _set_operation(2),
}
for _name in SORTABLE:
    _factor = 2.1 if _name in ("string", "bytes") else 2.0
    _BY_OVERLOAD[f"list_{_name}_sort"] = _sort(_factor)
    _BY_OVERLOAD[f"list_{_name}_sortByAssociatedKeys"] = _sort_by_keys(_factor)
