"""The code generator: turns a plan into one Python function that takes a few hundred nanoseconds per device.

The generated source is fixed text and generated names (`k0`, `t1`, `v2`); user input is bound as the value of
a parameter and never becomes source text. Costs are not counted, so generated code is for expressions whose worst case
is known to be affordable. Its outcomes, messages included, are those of `interpret`; test_generate and the fuzz tests
verify that. A plan with unusual constructs is not translated (`Untranslatable`) and left to the interpreter.

The only known variable is `device`: it is the parameter, and its maps are read directly.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from allot.core.cel.codegen import runtime
from allot.core.cel.codegen.calls import call, equal, membership
from allot.core.cel.codegen.generator import Code, Emitter, Untranslatable
from allot.core.cel.codegen.loops import fold
from allot.core.cel.data.values import DefaultMap, Optional, Value
from allot.core.cel.device import DeviceView
from allot.core.cel.evaluation.plan_nodes import (
    And,
    Call,
    Chain,
    Conditional,
    Constant,
    Equal,
    Fold,
    ListNode,
    MapNode,
    Membership,
    Node,
    Operand,
    OptionalOr,
    Or,
    Qualifier,
    Variable,
)
from allot.core.quantity import Quantity

__all__ = ["Untranslatable", "generate"]

# Deeper plans would exceed the nesting limit of Python's compiler.
_HEIGHT_MAX: Final = 40
_SIZE_MAX: Final = 60_000
# Each attempt costs a second pass over the operands, which must not double at every level.
_INLINE_HEIGHT_MAX: Final = 4

# Field of `device` -> attribute of the view and what it holds.
_FIELDS: Final[dict[str, tuple[str, type]]] = {
    "driver": ("driver", str),
    "allowMultipleAllocations": ("allow_multiple_allocations", bool),
    "attributes": ("attributes", DefaultMap),
    "capacity": ("capacity", DefaultMap),
}


def generate(
    plan: Node,
    oversized: Callable[[DeviceView], Value],
    convert: Callable[[Value], Value] | None = None,
    unconverted: type | None = None,
) -> Callable[[DeviceView], Value]:
    """A function from device to result. Devices beyond the API's limits are handed to `oversized`.

    `convert` is applied to the result, unless that is known to be of the class `unconverted`.
    """
    if plan.height > _HEIGHT_MAX:
        raise Untranslatable(f"nested {plan.height} levels")
    emitter = Emitter(_VISITORS)
    slow = emitter.constant(oversized)
    emitter.line(f"if d.oversized: return {slow}(d)")
    emitter.line("try:")
    with emitter.block():
        _return(emitter, plan, convert, unconverted)
    emitter.line("except KeyError as e:")
    with emitter.block():
        emitter.line(f"raise {emitter.helper(runtime.as_error)}(e) from None")
    return emitter.function(_SIZE_MAX)


def _return(emitter: Emitter, node: Node, convert: Callable[[Value], Value] | None, unconverted: type | None) -> None:
    if isinstance(node, And | Or) and (convert is None or unconverted is bool):
        _logical(emitter, node, lambda text: emitter.line(f"return {text}"))
        return
    code = emitter.value(node)
    if convert is None or (unconverted is not None and code.cls is unconverted):
        emitter.line(f"return {code.text}")
    else:
        emitter.line(f"return {emitter.helper(convert)}({code.text})")


# --- logic ---


def _terms(node: And | Or) -> list[Node]:
    """The operands of a chain of one operator, in order, nested ones flattened."""
    terms: list[Node] = []
    stack: list[Node] = [node]
    while stack:
        term = stack.pop()
        if term.__class__ is node.__class__:
            assert isinstance(term, And | Or), "of the class of the node"
            stack.extend(reversed(term.terms))
        else:
            terms.append(term)
    return terms


def _logical(emitter: Emitter, node: And | Or, leave: Callable[[str], None]) -> None:
    """Emits the operands in turn; `leave` emits what to do with the result and must end the path."""
    decisive = isinstance(node, Or)
    error = ""
    for term in _terms(node):
        mark = emitter.mark()
        emitter.line("try:")
        with emitter.block():
            body = emitter.mark()
            code = emitter.value(term)
            raises = code.raises or emitter.mark() != body
            if code.cls is bool:
                emitter.line(f"if {code.text}:" if decisive else f"if not {code.text}:")
                with emitter.block():
                    leave(str(decisive))
            else:
                raises = True
                name = emitter.named(code)
                emitter.line(f"if {name} is {decisive}:")
                with emitter.block():
                    leave(str(decisive))
                emitter.line(f"if {name} is not {not decisive}: {emitter.helper(runtime.no_overload)}()")
        if not raises:
            emitter.unwrap(mark)
            continue
        if not error:
            error = emitter.temporary()
            emitter.insert(mark, f"{error} = None")
        emitter.catch(_keep_first(emitter, error))
    if error:
        emitter.line(f"if {error} is not None: raise {emitter.helper(runtime.as_error)}({error})")
    leave(str(not decisive))


def _keep_first(emitter: Emitter, error: str) -> Callable[[str], None]:
    return lambda caught: emitter.line(f"if {error} is None: {error} = {caught}")


def _logical_value(emitter: Emitter, node: And | Or) -> Code:
    parts = emitter.inline(_terms(node)) if node.height <= _INLINE_HEIGHT_MAX else None
    if parts is not None and all(code.cls is bool and not code.raises for code in parts):
        operator = " and " if isinstance(node, And) else " or "
        return Code(f"({operator.join(code.text for code in parts)})", bool, False)
    result = emitter.temporary()

    def leave(text: str) -> None:
        emitter.line(f"{result} = {text}")
        emitter.line("break")

    emitter.line("while True:")
    with emitter.block():
        _logical(emitter, node, leave)
    # Any failure has already been raised.
    return Code(result, bool, False)


def _optional_or(emitter: Emitter, node: OptionalOr) -> Code:
    code = emitter.optional(node.left) if node.unwrapped else None
    if code is None:
        take = emitter.helper(runtime.or_value if node.unwrapped else runtime.or_other)
        code = Code(f"{take}({emitter.value(node.left).text})", None, True)
    name = emitter.temporary()
    emitter.line(f"{name} = {code.text}")
    emitter.line(f"if {name} is {emitter.missing}:")
    with emitter.block():
        emitter.line(f"{name} = {emitter.value(node.right).text}")
    return Code(name, None, False)


# --- chains ---


def _constant(emitter: Emitter, node: Constant) -> Code:
    return emitter.constant_code(node.value)


def _chain(emitter: Emitter, node: Chain) -> Code:
    source = node.source
    if isinstance(source, Conditional):
        return _conditional(emitter, source, node.test)
    code, rest = _start(emitter, node)
    if node.test and len(rest) > 1 and any(qualifier.optional for qualifier in rest):
        raise Untranslatable("has() behind an optional selection")
    for qualifier in rest:
        code = _qualified(emitter, code, qualifier)
    return code


def _start(emitter: Emitter, node: Chain) -> tuple[Code, tuple[Qualifier, ...]]:
    """What a chain begins with, and the qualifiers that are left."""
    source = node.source
    if isinstance(source, Operand):
        return emitter.value(source.node), node.qualifiers
    assert isinstance(source, Variable), "conditionals are handled before"
    if source.name != "device":
        return emitter.local(source.name), node.qualifiers
    if emitter.is_local("device"):
        return emitter.local("device"), node.qualifiers
    first = node.qualifiers[0] if node.qualifiers else None
    field = _FIELDS.get(first.key) if first is not None and first.key.__class__ is str else None
    if first is None or field is None or first.optional or first.test:
        return Code("d.variables['device']", dict, False), node.qualifiers
    return Code(f"d.{field[0]}", field[1], False, path=(str(first.key),)), node.qualifiers[1:]


def _qualified(emitter: Emitter, code: Code, qualifier: Qualifier) -> Code:
    if qualifier.index is None and qualifier.key.__class__ is str:
        direct = _direct(emitter, code, qualifier)
        if direct is not None:
            return direct
    key = emitter.constant(qualifier.key)
    if qualifier.index is not None:
        # A conditional index must be evaluated after the value, so keep the order.
        value, index = emitter.ordered([lambda: code, lambda: emitter.value(_index(qualifier))])
        code, key = value, index.text
    if qualifier.test:
        return Code(f"{emitter.helper(runtime.has)}({code.text}, {key})", bool, True)
    helper = runtime.select_optionally if qualifier.optional else runtime.select
    return Code(f"{emitter.helper(helper)}({code.text}, {key})", Optional if qualifier.optional else None, True)


def _index(qualifier: Qualifier) -> Node:
    assert qualifier.index is not None, "asked for only when there is one"
    return qualifier.index


def _direct(emitter: Emitter, code: Code, qualifier: Qualifier) -> Code | None:
    """Selection of a constant name from a device's maps, which are dicts."""
    key = emitter.constant(qualifier.key)
    if code.cls is DefaultMap:
        # A domain always exists, if only as an empty map.
        if qualifier.test:
            return Code("True", bool, code.raises) if not code.raises else None
        inner = Code(f"{code.text}[{key}]", dict, code.raises, path=(*code.path, str(qualifier.key)))
        return None if qualifier.optional else inner
    if code.cls is dict and code.path:
        if qualifier.test:
            return Code(f"({key} in {code.text})", bool, code.raises)
        if not qualifier.optional:
            leaf = Quantity if code.path[0] == "capacity" else None
            return Code(f"{code.text}[{key}]", leaf, True)
    return None


def _optional_chain(emitter: Emitter, node: Node) -> Code | None:
    """An optional selection from a device's maps as a value or MISSING, without making an optional; None if it is not."""
    if not isinstance(node, Chain) or isinstance(node.source, Conditional) or node.test:
        return None
    source = node.source
    if not isinstance(source, Variable) or source.name != "device" or emitter.is_local("device"):
        return None
    code, rest = _start(emitter, node)
    if len(rest) != 2 or code.cls is not DefaultMap or any(item.key.__class__ is not str for item in rest):
        return None
    domain, name = (emitter.constant(item.key) for item in rest)
    if not rest[0].optional and not rest[1].optional:
        return None
    return Code(f"{code.text}[{domain}].get({name}, {emitter.missing})", None, False)


def _conditional(emitter: Emitter, source: Conditional, test: bool) -> Code:
    condition = emitter.value(source.condition)
    if test:
        raise Untranslatable("has() behind a conditional")
    name, result = emitter.named(condition), emitter.temporary()
    classes: list[type | None] = []
    emitter.line(f"if {name}:" if condition.cls is bool else f"if {name} is True:")
    for branch in (source.truthy, source.falsy):
        with emitter.block():
            code = emitter.value(_plain(branch))
            emitter.line(f"{result} = {code.text}")
            classes.append(code.cls)
        if branch is source.truthy:
            emitter.line("else:" if condition.cls is bool else f"elif {name} is False:")
    if condition.cls is not bool:
        emitter.line(f"else: {emitter.helper(runtime.no_overload)}()")
    return Code(result, classes[0] if classes[0] is classes[1] else None, False)


def _plain(chain: Chain) -> Node:
    """The original node of a branch, before it became a chain."""
    if isinstance(chain.source, Operand) and not chain.qualifiers:
        return chain.source.node
    return chain


# --- literals ---


def _list(emitter: Emitter, node: ListNode) -> Code:
    if node.optional:
        raise Untranslatable("optional list elements")
    codes = emitter.in_order(node.elements)
    return Code(f"[{', '.join(code.text for code in codes)}]", list, any(code.raises for code in codes))


def _map(emitter: Emitter, node: MapNode) -> Code:
    if any(node.optional):
        raise Untranslatable("optional map entries")
    flat = [child for pair in zip(node.keys, node.values, strict=True) for child in pair]
    codes = emitter.in_order(flat)
    if any(code.cls is not str and code.cls is not int for code in codes[::2]):
        raise Untranslatable("computed map keys")
    text = f"{emitter.helper(runtime.keyed_map)}({', '.join(code.text for code in codes)})"
    return Code(text, None, any(code.raises for code in codes))


_VISITORS: Final[dict[type, Callable[[Emitter, Any], Any]]] = {
    Constant: _constant,
    Chain: _chain,
    And: _logical_value,
    Or: _logical_value,
    Equal: equal,
    Call: call,
    Membership: membership,
    OptionalOr: _optional_or,
    ListNode: _list,
    MapNode: _map,
    Fold: fold,
    # Not a node: how the emitter asks for an optional without making one.
    Optional: _optional_chain,
}
