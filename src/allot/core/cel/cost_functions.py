"""What a call is estimated to cost before it runs, without the cost of its arguments.

Prices come from three places, asked in this order: cel-go's list and set libraries by overload id, Kubernetes' library by
function name, and the standard library by overload id. Whatever none of them knows costs one. Prices that depend on the
cost of the arguments (`&&`, `||`, `?:`) or change what is known about elements (`+`) are in `cost`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import msgspec

from allot.core.cel import types
from allot.core.cel.ast import Expr, Literal
from allot.core.cel.cost_range import INFINITE, ONE, UNKNOWN, CostEstimate, Range, SizeEstimate, exactly
from allot.core.cel.cost_sizes import EMPTY_PATH, ITEMS, Path, SizeEstimates
from allot.core.cel.types import CelType, Kind

LIST_CREATE_COST = 10
MAP_CREATE_COST = 30
STRUCT_CREATE_COST = 40
STRING_TRAVERSAL_FACTOR = 0.1
REGEX_LENGTH_FACTOR = 0.25
# Two authorization checks are meant to fit into one expression.
AUTHORIZATION_CHECK_COST = 350_000
# What reading a selector costs: a list, and for every two characters one requirement.
SELECTOR_REQUIREMENTS_PER_CHARACTER = 0.5
SELECTOR_REQUIREMENT_COST = LIST_CREATE_COST + STRUCT_CREATE_COST
# The longest expression behind a named format, and the longest name of a format.
FORMAT_REGEX_LENGTH_MAX = 128
FORMAT_LENGTH_MAX = 64
# An address has 4 or 16 bytes.
_ADDRESS_SIZE = Range(4, 16)
_WRAP = 2**64


class Operand(msgspec.Struct, frozen=True):
    """An argument or the receiver of a call, as far as prices depend on it."""

    expr: Expr
    type: CelType
    path: Path
    # None when nothing bounds it.
    size: SizeEstimate | None


class CallEstimate(msgspec.Struct, frozen=True):
    """The cost of a call and the size of its result when it has one that is known."""

    cost: CostEstimate
    result_size: SizeEstimate | None = None


class Call(msgspec.Struct, frozen=True):
    """A call to be priced."""

    function: str
    overload_id: str
    target: Operand | None
    args: Sequence[Operand]
    sizes: SizeEstimates

    def element_size(self, operand: Operand) -> SizeEstimate:
        """The size of an element of a list, UNKNOWN in doubt."""
        path = operand.path.extended_apart(ITEMS) if operand.path else EMPTY_PATH
        return self.sizes.estimate(path) or UNKNOWN


Price = Callable[[Call], CallEstimate | None]


def library_estimate(call: Call) -> CallEstimate | None:
    """The price by cel-go's extension libraries or Kubernetes' library, None when neither knows the function."""
    price = _BY_OVERLOAD.get(call.overload_id)
    estimate = price(call) if price else None
    if estimate is None:
        price = _BY_FUNCTION.get(call.function)
        estimate = price(call) if price else None
    return estimate


def standard_estimate(call: Call) -> CallEstimate:
    """The price by the standard library, one when it has none."""
    price = _STANDARD.get(call.overload_id)
    estimate = price(call) if price else None
    return estimate or CallEstimate(ONE)


def equality_estimate(left: Operand, right: Operand) -> CallEstimate:
    """The price of comparing: the shorter operand is traversed."""
    shorter = min(_size(left).max, _size(right).max)
    return CallEstimate(Range(min(shorter, 1), shorter).scaled(STRING_TRAVERSAL_FACTOR))


def _size(operand: Operand) -> SizeEstimate:
    return operand.size or UNKNOWN


def _nominal(_call: Call) -> CallEstimate:
    return CallEstimate(ONE)


def _traversal(size: SizeEstimate) -> CostEstimate:
    return size.scaled(STRING_TRAVERSAL_FACTOR)


def _two_traversals(size: SizeEstimate) -> CostEstimate:
    return size.scaled(2 * STRING_TRAVERSAL_FACTOR)


def _matching(text: SizeEstimate, pattern: SizeEstimate) -> CostEstimate:
    # An empty text is not free: the expression is still read.
    return _traversal(text + ONE) * pattern.scaled(REGEX_LENGTH_FACTOR)


# --- the standard library ---------------------------------------------------------------------------------------------


def _format_string(call: Call) -> CallEstimate | None:
    return CallEstimate(_traversal(_size(call.target))) if call.target else None


def _string_to_bytes(call: Call) -> CallEstimate:
    size = _size(call.args[0])
    # A character has up to four bytes. Upstream's product wraps around.
    return CallEstimate(_traversal(size), Range(size.min, size.max * 4 % _WRAP))


def _bytes_to_string(call: Call) -> CallEstimate:
    size = _size(call.args[0])
    return CallEstimate(_traversal(size), Range(size.min // 4, size.max))


def _quote(call: Call) -> CallEstimate:
    size = _size(call.args[0])
    # Every character may be escaped, and two quotes are added. Upstream's sum wraps around.
    return CallEstimate(_traversal(size), Range((size.min + 2) % _WRAP, (size.max * 2 + 2) % _WRAP))


def _affix(call: Call) -> CallEstimate:
    return CallEstimate(_traversal(_size(call.args[0])))


def _in_list(call: Call) -> CallEstimate:
    return CallEstimate(_size(call.args[1]).scaled(1))


def _matches(call: Call) -> CallEstimate:
    text, pattern = (call.target, call.args[0]) if call.target else (call.args[0], call.args[1])
    return CallEstimate(_matching(_size(text), _size(pattern)))


def _contains(call: Call) -> CallEstimate | None:
    if call.target is None:
        return None
    return CallEstimate(_traversal(_size(call.target)) * _traversal(_size(call.args[0])))


def _compare(call: Call) -> CallEstimate:
    return equality_estimate(call.args[0], call.args[1])


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
    end = _literal_int(call.args[1], _size(call.target).max)
    # Upstream's difference wraps around when the end is before the start.
    return _list_estimate(1, exactly((end - start) % _WRAP))


def _range(call: Call) -> CallEstimate:
    return _list_estimate(1, exactly(_literal_int(call.args[0], INFINITE)))


def _reverse(call: Call) -> CallEstimate | None:
    return _list_estimate(1, _size(call.target)) if call.target else None


def _flatten(call: Call) -> CallEstimate | None:
    if call.target is None:
        return None
    depth = _literal_int(call.args[0], INFINITE) if call.args else 1
    return _list_estimate(float(depth), _size(call.target))


def _self_compared(size: SizeEstimate, factor: float) -> CallEstimate:
    # Upstream takes the number of comparisons for the size of the result, too.
    return _list_estimate(factor, size * size)


def _distinct(call: Call) -> CallEstimate | None:
    return _self_compared(_size(call.target), 2) if call.target else None


def _sort(factor: float) -> Price:
    def price(call: Call) -> CallEstimate | None:
        return _self_compared(_size(call.target), factor) if call.target else None

    return price


def _sort_by_keys(factor: float) -> Price:
    def price(call: Call) -> CallEstimate | None:
        return _self_compared(_size(call.args[0]), factor) if call.target else None

    return price


def _set_operation(factor: float) -> Price:
    def price(call: Call) -> CallEstimate:
        return CallEstimate((_size(call.args[0]) * _size(call.args[1])).scaled(factor) + ONE)

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


# --- Kubernetes' library ----------------------------------------------------------------------------------------------


def _authorization_check(_call: Call) -> CallEstimate:
    return CallEstimate(exactly(AUTHORIZATION_CHECK_COST))


def _selector(call: Call) -> CallEstimate | None:
    if len(call.args) != 1:
        return None
    length = _size(call.args[0])
    requirements = length.scaled(SELECTOR_REQUIREMENTS_PER_CHARACTER).scaled(SELECTOR_REQUIREMENT_COST)
    return CallEstimate(exactly(LIST_CREATE_COST) + _traversal(length) + requirements)


def _over_elements(call: Call) -> CallEstimate | None:
    if call.target is None:
        return None
    if call.target.type.params:
        element = call.target.type.params[0]
        cost = ONE
        if element.kind in (Kind.STRING, Kind.BYTES):
            cost = ONE + _traversal(call.element_size(call.target))
        return CallEstimate(_size(call.target) * cost)
    if call.function == "includes":
        return CallEstimate(_size(call.target))
    # indexOf and lastIndexOf of a string.
    return CallEstimate(_traversal(_size(call.target)))


def _url(call: Call) -> CallEstimate | None:
    if len(call.args) != 1:
        return None
    size = _size(call.args[0])
    return CallEstimate(_traversal(size), size)


def _transform(call: Call) -> CallEstimate | None:
    if call.target is None:
        return None
    size = _size(call.target)
    return CallEstimate(_traversal(size), size)


def _replacements(text: int, replaced: int) -> int:
    """How often a text of that length contains what is replaced. Computed in floating point, as upstream does."""
    count = math.ceil(float(text) / float(replaced))
    # What the processor makes of a number that does not fit.
    return count if count < _WRAP else 2**63


def _replace(call: Call) -> CallEstimate | None:
    if call.target is None or len(call.args) < 2:
        return None
    text, old, new = _size(call.target), _size(call.args[0]), _size(call.args[1])
    # The longest result. An empty old text puts the new one around every character.
    count_max, kept_max = 0, 0
    if old.min == 0:
        count_max, kept_max = min(text.max + 1, INFINITE), text.max
    elif new.max <= old.min:
        kept_max = text.max
    else:
        count_max = _replacements(text.max, old.min)
    # The shortest result.
    count_min, kept_min = 0, 0
    if old.max == 0:
        count_min, kept_min = min(text.min + 1, INFINITE), text.min
    elif old.max <= new.min:
        kept_min = text.min
    else:
        count_min = _replacements(text.min, old.max)
    size = Range(count_min, count_max) * new + Range(kept_min, kept_max)
    return CallEstimate(_two_traversals(text), size)


def _split(call: Call) -> CallEstimate | None:
    if call.target is None:
        return None
    size = _size(call.target)
    parts = size.max
    if len(call.args) > 1:
        limit = call.args[1].expr
        if isinstance(limit, Literal) and type(limit.value) is int:
            # No limit is written as -1, which upstream reads as an unsigned number.
            parts = limit.value % _WRAP
    return CallEstimate(_two_traversals(size), Range(0, parts))


def _join(call: Call) -> CallEstimate | None:
    if call.target is None:
        return None
    elements = _size(call.target)
    size = elements * call.element_size(call.target) if call.target.type.params else exactly(0)
    if call.args:
        separators = Range(max(elements.min - 1, 0), max(elements.max - 1, 0))
        size = size + _size(call.args[0]) * separators
    return CallEstimate(_traversal(size), size)


def _find(call: Call) -> CallEstimate | None:
    if call.target is None or not call.args:
        return None
    size = _size(call.target)
    return CallEstimate(_matching(size, _size(call.args[0])), Range(0, size.max))


def _parsed(call: Call) -> CallEstimate | None:
    return CallEstimate(_traversal(_size(call.args[0]))) if call.args else None


def _ip(call: Call) -> CallEstimate | None:
    # cidr(...).ip() reads a field.
    return CallEstimate(ONE) if call.overload_id == "cidr_ip" else _parsed(call)


def _is_canonical(call: Call) -> CallEstimate | None:
    return CallEstimate(_two_traversals(_size(call.args[0]))) if call.args else None


def _contains_ip(call: Call) -> CallEstimate | None:
    if not call.args:
        return None
    cost = _traversal(_ADDRESS_SIZE + _ADDRESS_SIZE)
    if call.overload_id == "cidr_contains_ip_string":
        cost += _traversal(_size(call.args[0]))
    return CallEstimate(cost)


def _contains_cidr(call: Call) -> CallEstimate | None:
    if not call.args:
        return None
    # The address is masked and the prefix lengths are compared.
    cost = _traversal(_ADDRESS_SIZE + _ADDRESS_SIZE) + _traversal(_ADDRESS_SIZE) + ONE
    if call.overload_id == "cidr_contains_cidr_string":
        cost += _traversal(_size(call.args[0]))
    return CallEstimate(cost)


def _validate(call: Call) -> CallEstimate | None:
    if not call.args:
        return None
    text = _traversal(_size(call.args[0]))
    return CallEstimate(text.scaled(FORMAT_REGEX_LENGTH_MAX * REGEX_LENGTH_FACTOR))


def _equals(call: Call) -> CallEstimate | None:
    if len(call.args) != 2 or call.args[0].type != call.args[1].type:
        return None
    compared = call.args[0].type
    if compared in (types.IP, types.CIDR, types.QUANTITY, types.SEMVER):
        return CallEstimate(ONE)
    if compared == types.FORMAT:
        return CallEstimate(_traversal(Range(1, FORMAT_LENGTH_MAX)))
    if compared == types.URL:
        # Upstream asks the right operand only.
        size = call.args[1].size
        return CallEstimate(_traversal(Range(1, size.max if size else 1)))
    return None


_BY_FUNCTION: dict[str, Price] = {
    "check": _authorization_check,
    "fieldSelector": _selector,
    "labelSelector": _selector,
    "url": _url,
    "replace": _replace,
    "split": _split,
    "join": _join,
    "find": _find,
    "findAll": _find,
    "ip": _ip,
    "ip.isCanonical": _is_canonical,
    "containsIP": _contains_ip,
    "containsCIDR": _contains_cidr,
    "validate": _validate,
    "_==_": _equals,
}
OVER_ELEMENTS = ("isSorted", "sum", "max", "min", "indexOf", "lastIndexOf", "includes")
TRANSFORMS = ("lowerAscii", "upperAscii", "substring", "trim")
PARSED = ("cidr", "isIP", "isCIDR", "quantity", "isQuantity", "semver", "isSemver")
# Accessors and arithmetic on values of fixed size.
NOMINAL = (
    *("serviceAccount", "path", "group", "resource", "subresource", "namespace", "name"),
    *("allowed", "reason", "error", "errored"),
    *("masked", "prefixLength", "family", "isUnspecified", "isLoopback"),
    *("isLinkLocalMulticast", "isLinkLocalUnicast", "isGlobalUnicast"),
    "format.named",
    *("sign", "asInteger", "isInteger", "asApproximateFloat", "isGreaterThan", "isLessThan", "compareTo"),
    *("add", "sub", "major", "minor", "patch"),
    *("getScheme", "getHostname", "getHost", "getPort", "getEscapedPath", "getQuery"),
)
for _names, _price in (
    (OVER_ELEMENTS, _over_elements),
    (TRANSFORMS, _transform),
    (PARSED, _parsed),
    (NOMINAL, _nominal),
):
    _BY_FUNCTION.update(dict.fromkeys(_names, _price))
