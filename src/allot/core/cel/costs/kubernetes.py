"""Kubernetes' static prices of its functions, by function name: texts, lists, addresses, quantities, versions and more."""

from __future__ import annotations

import math

from allot.core.cel.checking import types
from allot.core.cel.checking.types import Kind
from allot.core.cel.costs.calls import (
    LIST_CREATE_COST,
    REGEX_LENGTH_FACTOR,
    STRUCT_CREATE_COST,
    WRAP,
    Call,
    CallEstimate,
    Price,
    matching,
    size_of,
    traversal,
    two_traversals,
)
from allot.core.cel.costs.ranges import INFINITE, ONE, Range, exactly
from allot.core.cel.syntax.ast import Literal

# One expression should be able to afford two authorization checks.
AUTHORIZATION_CHECK_COST = 350_000
# The cost of parsing a selector: a list, plus one requirement per two characters.
SELECTOR_REQUIREMENTS_PER_CHARACTER = 0.5
SELECTOR_REQUIREMENT_COST = LIST_CREATE_COST + STRUCT_CREATE_COST
# The longest expression behind a named format, and the longest name of a format.
FORMAT_REGEX_LENGTH_MAX = 128
FORMAT_LENGTH_MAX = 64
# An address has 4 or 16 bytes.
_ADDRESS_SIZE = Range(4, 16)


def kubernetes_estimate(call: Call) -> CallEstimate | None:
    """The price of a call; None if Kubernetes has none."""
    price = _BY_FUNCTION.get(call.function)
    return price(call) if price else None


def _nominal(_call: Call) -> CallEstimate:
    return CallEstimate(ONE)


def _authorization_check(_call: Call) -> CallEstimate:
    return CallEstimate(exactly(AUTHORIZATION_CHECK_COST))


def _selector(call: Call) -> CallEstimate | None:
    if len(call.args) != 1:
        return None
    length = size_of(call.args[0])
    requirements = length.scaled(SELECTOR_REQUIREMENTS_PER_CHARACTER).scaled(SELECTOR_REQUIREMENT_COST)
    return CallEstimate(exactly(LIST_CREATE_COST) + traversal(length) + requirements)


def _over_elements(call: Call) -> CallEstimate | None:
    if call.target is None:
        return None
    if call.target.type.params:
        element = call.target.type.params[0]
        cost = ONE
        if element.kind in (Kind.STRING, Kind.BYTES):
            cost = ONE + traversal(call.element_size(call.target))
        return CallEstimate(size_of(call.target) * cost)
    if call.function == "includes":
        return CallEstimate(size_of(call.target))
    # indexOf and lastIndexOf of a string.
    return CallEstimate(traversal(size_of(call.target)))


def _url(call: Call) -> CallEstimate | None:
    if len(call.args) != 1:
        return None
    size = size_of(call.args[0])
    return CallEstimate(traversal(size), size)


def _transform(call: Call) -> CallEstimate | None:
    if call.target is None:
        return None
    size = size_of(call.target)
    return CallEstimate(traversal(size), size)


def _replacements(text: int, replaced: int) -> int:
    """How often a text of that length can contain the replaced text. Computed in floating point, as upstream does."""
    count = math.ceil(float(text) / float(replaced))
    # The processor's result for a number that does not fit.
    return count if count < WRAP else 2**63


def _replace(call: Call) -> CallEstimate | None:
    if call.target is None or len(call.args) < 2:
        return None
    text, old, new = size_of(call.target), size_of(call.args[0]), size_of(call.args[1])
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
    return CallEstimate(two_traversals(text), size)


def _split(call: Call) -> CallEstimate | None:
    if call.target is None:
        return None
    size = size_of(call.target)
    parts = size.max
    if len(call.args) > 1:
        limit = call.args[1].expr
        if isinstance(limit, Literal) and type(limit.value) is int:
            # No limit is written as -1, which upstream reads as an unsigned number.
            parts = limit.value % WRAP
    return CallEstimate(two_traversals(size), Range(0, parts))


def _join(call: Call) -> CallEstimate | None:
    if call.target is None:
        return None
    elements = size_of(call.target)
    size = elements * call.element_size(call.target) if call.target.type.params else exactly(0)
    if call.args:
        separators = Range(max(elements.min - 1, 0), max(elements.max - 1, 0))
        size = size + size_of(call.args[0]) * separators
    return CallEstimate(traversal(size), size)


def _find(call: Call) -> CallEstimate | None:
    if call.target is None or not call.args:
        return None
    size = size_of(call.target)
    return CallEstimate(matching(size, size_of(call.args[0])), Range(0, size.max))


def _parsed(call: Call) -> CallEstimate | None:
    return CallEstimate(traversal(size_of(call.args[0]))) if call.args else None


def _escaped(call: Call) -> CallEstimate | None:
    size = size_of(call.args[0])
    return CallEstimate(traversal(size), size)


def _ip(call: Call) -> CallEstimate | None:
    # cidr(...).ip() reads a field.
    return CallEstimate(ONE) if call.overload_id == "cidr_ip" else _parsed(call)


def _is_canonical(call: Call) -> CallEstimate | None:
    return CallEstimate(two_traversals(size_of(call.args[0]))) if call.args else None


def _contains_ip(call: Call) -> CallEstimate | None:
    if not call.args:
        return None
    cost = traversal(_ADDRESS_SIZE + _ADDRESS_SIZE)
    if call.overload_id == "cidr_contains_ip_string":
        cost += traversal(size_of(call.args[0]))
    return CallEstimate(cost)


def _contains_cidr(call: Call) -> CallEstimate | None:
    if not call.args:
        return None
    # The address is masked and the prefix lengths are compared.
    cost = traversal(_ADDRESS_SIZE + _ADDRESS_SIZE) + traversal(_ADDRESS_SIZE) + ONE
    if call.overload_id == "cidr_contains_cidr_string":
        cost += traversal(size_of(call.args[0]))
    return CallEstimate(cost)


def _validate(call: Call) -> CallEstimate | None:
    if not call.args:
        return None
    text = traversal(size_of(call.args[0]))
    return CallEstimate(text.scaled(FORMAT_REGEX_LENGTH_MAX * REGEX_LENGTH_FACTOR))


def _equals(call: Call) -> CallEstimate | None:
    if len(call.args) != 2 or call.args[0].type != call.args[1].type:
        return None
    compared = call.args[0].type
    if compared in (types.IP, types.CIDR, types.QUANTITY, types.SEMVER):
        return CallEstimate(ONE)
    if compared == types.FORMAT:
        return CallEstimate(traversal(Range(1, FORMAT_LENGTH_MAX)))
    if compared == types.URL:
        # Upstream considers only the right operand.
        size = call.args[1].size
        return CallEstimate(traversal(Range(1, size.max if size else 1)))
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
ESCAPE = "jsonpatch.escapeKey"
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
    ((ESCAPE,), _escaped),
    (PARSED, _parsed),
    (NOMINAL, _nominal),
):
    _BY_FUNCTION.update(dict.fromkeys(_names, _price))
