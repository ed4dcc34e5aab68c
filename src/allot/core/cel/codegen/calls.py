"""Code for comparisons and calls: plain Python operators where the operands' classes are known or cheap to test."""

from __future__ import annotations

from typing import Final

from allot.core.cel.codegen import runtime
from allot.core.cel.codegen.generator import Code, Emitter, Untranslatable, is_constant
from allot.core.cel.data.comparison import equals, is_equal
from allot.core.cel.data.values import MISSING, Duration, EvaluationError, Optional, Timestamp, Value, is_list, is_map
from allot.core.cel.evaluation.plan_nodes import Call, Constant, Equal, Membership, Node
from allot.core.cel.library.table import Binding
from allot.core.cel.syntax.ast import UInt
from allot.core.quantity import Quantity
from allot.core.semver import Semver

# Classes whose values are equal in CEL exactly when they are in Python, and unequal to all others without an error.
_PLAIN: Final = frozenset((str, bool, int))
_ORDER: Final = {"_<_": "<", "_<=_": "<=", "_>_": ">", "_>=_": ">="}
_TESTS: Final = {"startsWith": "startswith", "endsWith": "endswith"}
# Overload -> class of both operands and the Python operator.
_RELATIONS: Final[dict[str, tuple[type, str]]] = {
    "quantity_is_greater_than": (Quantity, ">"),
    "quantity_is_less_than": (Quantity, "<"),
    "semver_is_greater_than": (Semver, ">"),
    "semver_is_less_than": (Semver, "<"),
}
_ORDERED_BY: Final[dict[type, str]] = {Quantity: ".nano", Semver: ".order_key"}
_COMPARISONS: Final = frozenset(("quantity_compare_to", "semver_compare_to"))
_RESULTS: Final[dict[str, type]] = {
    **dict.fromkeys(("!_", "_<_", "_<=_", "_>_", "_>=_", "@in", "matches", "hasValue"), bool),
    **dict.fromkeys(("startsWith", "endsWith", "contains", "includes", "isGreaterThan", "isLessThan"), bool),
    **dict.fromkeys(("isQuantity", "isSemver", "isInteger", "isSorted", "isURL", "isIP", "isCIDR"), bool),
    **dict.fromkeys(("sets.contains", "sets.equivalent", "sets.intersects"), bool),
    **dict.fromkeys(("size", "compareTo", "major", "minor", "patch", "sign", "asInteger", "int"), int),
    **dict.fromkeys(("lowerAscii", "upperAscii", "replace", "substring", "trim", "join", "string", "charAt"), str),
    **dict.fromkeys(("format", "strings.quote", "find"), str),
    "quantity": Quantity,
    "semver": Semver,
    "optional.of": Optional,
    "optional.none": Optional,
    "double": float,
    "uint": UInt,
    "duration": Duration,
    "timestamp": Timestamp,
}


def equal(emitter: Emitter, node: Equal) -> Code:
    """`==` and `!=`"""
    left, right = emitter.in_order((node.left, node.right))
    raises = left.raises or right.raises
    if left.cls is right.cls and left.cls in _PLAIN:
        return Code(f"({left.text} {'!=' if node.negated else '=='} {right.text})", bool, raises)
    if right.cls in _PLAIN and is_constant(node.right):
        return _with_constant_right(emitter, node.negated, left, right)
    if left.cls in _PLAIN and is_constant(node.left):
        return _with_constant_left(emitter, node.negated, left, right)
    if node.negated:
        return Code(f"(not {emitter.helper(is_equal)}({left.text}, {right.text}))", bool, raises)
    return Code(f"{emitter.helper(equals)}({left.text}, {right.text})", bool, True)


def _with_constant_right(emitter: Emitter, negated: bool, left: Code, constant: Code) -> Code:
    name = emitter.temporary()
    same_class = f"({name} := {left.text}).__class__ is {emitter.helper(constant.cls)}"
    if negated and constant.cls is not int:
        return Code(f"(not ({same_class} and {name} == {constant.text}))", bool, left.raises)
    if negated:
        otherwise = f"not {emitter.helper(is_equal)}({name}, {constant.text})"
        return Code(f"({name} != {constant.text} if {same_class} else {otherwise})", bool, left.raises)
    # A version or quantity on the left makes it an error.
    otherwise = f"{emitter.helper(equals)}({name}, {constant.text})"
    return Code(f"({name} == {constant.text} if {same_class} else {otherwise})", bool, True)


def _with_constant_left(emitter: Emitter, negated: bool, constant: Code, right: Code) -> Code:
    name = emitter.temporary()
    same_class = f"({name} := {right.text}).__class__ is {emitter.helper(constant.cls)}"
    if constant.cls is int:
        text = f"({name} == {constant.text} if {same_class} else {emitter.helper(is_equal)}({constant.text}, {name}))"
    else:
        text = f"({same_class} and {name} == {constant.text})"
    return Code(f"(not {text})" if negated else text, bool, right.raises)


def membership(emitter: Emitter, node: Membership) -> Code:
    """`in` with a list of constants."""
    code = emitter.value(node.wanted)
    test = emitter.helper(runtime.member_test(node.elements))
    if all(element.__class__ is str for element in node.elements):
        elements = emitter.constant(frozenset(node.elements))
        if code.cls is str:
            return Code(f"({code.text} in {elements})", bool, code.raises)
        name = emitter.temporary()
        is_text = f"({name} := {code.text}).__class__ is {emitter.helper(str)}"
        return Code(f"({name} in {elements} if {is_text} else {test}({name}))", bool, True)
    return Code(f"{test}({code.text})", bool, True)


def call(emitter: Emitter, node: Call) -> Code:
    """A call, in the fastest applicable form."""
    binding = node.binding
    if binding is None or node.function == "@not_strictly_false":
        raise Untranslatable(f"call of {node.function}")
    constant = constant_value(node)
    if constant is not MISSING:
        return emitter.constant_code(constant)
    ordered = _compared_with_zero(emitter, node)
    if ordered is not None:
        return ordered
    if node.function == "hasValue":
        present = emitter.optional(node.arguments[0])
        if present is not None:
            return Code(f"({present.text} is not {emitter.missing})", bool, present.raises)
    codes = emitter.in_order(node.arguments)
    quick = _quick(emitter, node, codes)
    if quick is not None:
        return quick
    arguments = ", ".join(code.text for code in codes)
    return Code(f"{emitter.helper(binding.call)}({arguments})", _result(node, codes), True)


def constant_value(node: Node) -> Value:
    """The value of a node computed only from constants, or MISSING; failing calls are left to run time."""
    if isinstance(node, Constant):
        return node.value
    if not isinstance(node, Call) or node.binding is None or not node.arguments:
        return MISSING
    arguments = [constant_value(argument) for argument in node.arguments]
    if any(argument is MISSING for argument in arguments):
        return MISSING
    try:
        value = node.binding.call(*arguments)
    except EvaluationError:
        return MISSING
    return MISSING if is_list(value) or is_map(value) else value


def _result(node: Call, codes: list[Code]) -> type | None:
    if node.function in ("_+_", "_-_", "_*_", "_/_", "_%_"):
        known = {code.cls for code in codes}
        return int if known == {int} else str if known == {str} else None
    if node.function == "-_":
        return int if codes[0].cls is int else None
    return _RESULTS.get(node.function)


def _quick(emitter: Emitter, node: Call, codes: list[Code]) -> Code | None:
    raises = any(code.raises for code in codes)
    if node.function == "!_" and codes[0].cls is bool:
        return Code(f"(not {codes[0].text})", bool, raises)
    if node.function in _ORDER and codes[0].cls is codes[1].cls and codes[0].cls in (int, str):
        return Code(f"({codes[0].text} {_ORDER[node.function]} {codes[1].text})", bool, raises)
    if node.function == "size" and codes[0].cls in (list, str, dict):
        return Code(f"{emitter.helper(len)}({codes[0].text})", int, raises)
    if node.function in _TESTS or node.function == "contains":
        return _string_test(emitter, node.function, codes)
    relation = _RELATIONS.get(node.overload_id)
    if relation is not None:
        return _related(emitter, node, codes, *relation)
    return None


def _string_test(emitter: Emitter, function: str, codes: list[Code]) -> Code | None:
    text, part = codes
    if part.cls is not str:
        return None
    if part.raises:
        # The text comes first, but is checked only after both are evaluated.
        text = Code(emitter.named(text), text.cls, False)
        part = Code(emitter.named(part), part.cls, False)
    name, test = text.text, ""
    if text.cls is not str:
        name = emitter.temporary()
        test = f"({name} := {text.text}).__class__ is {emitter.helper(str)}"
    tested = f"{part.text} in {name}" if function == "contains" else f"{name}.{_TESTS[function]}({part.text})"
    if not test:
        return Code(f"({tested})", bool, text.raises or part.raises)
    return Code(f"({tested} if {test} else {emitter.helper(runtime.no_overload)}())", bool, True)


def _related(emitter: Emitter, node: Call, codes: list[Code], cls: type, operator: str) -> Code | None:
    """isGreaterThan and isLessThan: a version or quantity against another."""
    left, right = codes
    if right.cls is not cls:
        return None
    suffix = _ORDERED_BY[cls]
    other = constant_value(node.arguments[1])
    against = f"{right.text}{suffix}"
    if other is not MISSING:
        against = emitter.constant(other.nano if cls is Quantity else other.order_key)
    if left.cls is cls:
        return Code(f"({left.text}{suffix} {operator} {against})", bool, left.raises or right.raises)
    if other is MISSING and not right.text.isidentifier():
        return None
    name = emitter.temporary()
    test = f"({name} := {left.text}).__class__ is {emitter.helper(cls)}"
    otherwise = f"{emitter.helper(_guarded(node))}({name}, {right.text})"
    return Code(f"({name}{suffix} {operator} {against} if {test} else {otherwise})", bool, True)


def _guarded(node: Call) -> Value:
    binding = node.binding
    assert isinstance(binding, Binding), "calls without binding are not translated"
    return binding.call


def _compared_with_zero(emitter: Emitter, node: Call) -> Code | None:
    """`a.compareTo(b) >= 0` is `a >= b`."""
    operator = _ORDER.get(node.function)
    if operator is None:
        return None
    compared, zero = node.arguments
    if not isinstance(compared, Call) or compared.overload_id not in _COMPARISONS or not isinstance(zero, Constant):
        return None
    if zero.value.__class__ is not int or zero.value != 0:
        return None
    cls = Quantity if compared.overload_id == "quantity_compare_to" else Semver
    codes = emitter.in_order(compared.arguments)
    return _related(emitter, compared, codes, cls, operator) if _fits(compared, codes, cls) else None


def _fits(compared: Call, codes: list[Code], cls: type) -> bool:
    # The guarded call of compareTo returns a number, not a bool: both classes must be known.
    return codes[0].cls is cls and codes[1].cls is cls and compared.binding is not None
