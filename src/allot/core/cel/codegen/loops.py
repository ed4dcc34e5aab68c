"""Code for comprehensions: the loops that the standard macros expand into, recognised by their shape.

Errors in a loop behave as in the expansion: `all` and `exists` keep the first and continue, since a later element may decide;
filters keep the last, since each step starts over from the condition.
"""

from __future__ import annotations

from collections.abc import Callable

from allot.core.cel.codegen import runtime
from allot.core.cel.codegen.generator import Code, Emitter, Untranslatable
from allot.core.cel.data.values import EvaluationError, KeyedMap
from allot.core.cel.evaluation.plan_nodes import (
    And,
    Call,
    Chain,
    Conditional,
    Constant,
    Equal,
    Fold,
    ListNode,
    Node,
    Operand,
    Or,
    Variable,
)
from allot.core.cel.library.collections import map_insert


def fold(emitter: Emitter, node: Fold) -> Code:
    """A comprehension."""
    if node.is_binding:
        return _binding(emitter, node)
    quantifier = _quantifier(node)
    if quantifier is not None:
        return _quantified(emitter, node, *quantifier)
    return _collected(emitter, node)


def _is_variable(node: Node, name: str) -> bool:
    return (
        isinstance(node, Chain)
        and isinstance(node.source, Variable)
        and (node.source.name == name and not node.qualifiers)
    )


def _is_constant(node: Node, value: object) -> bool:
    return isinstance(node, Constant) and node.value.__class__ is value.__class__ and node.value == value


# --- cel.bind ---


def _binding(emitter: Emitter, node: Fold) -> Code:
    name = emitter.temporary()
    mark = emitter.mark()
    emitter.line("try:")
    with emitter.block():
        body = emitter.mark()
        code = emitter.value(node.accu_init)
        raises = code.raises or emitter.mark() != body
        text = f"{emitter.helper(runtime.accumulator)}({code.text})" if _may_change(code) else code.text
        emitter.line(f"{name} = {text}")
    read = Code(name, code.cls, False, code.path)
    if raises:
        # The value is computed on first read; its error must not surface earlier.
        emitter.line(f"except ({emitter.helper(EvaluationError)}, KeyError) as e:")
        with emitter.block():
            emitter.line(f"{name} = {emitter.helper(runtime.Failed)}({emitter.helper(runtime.as_error)}(e))")
        failed = f"{name}.__class__ is {emitter.helper(runtime.Failed)}"
        read = Code(f"({name}.throw() if {failed} else {name})", code.cls, True, code.path)
    else:
        emitter.unwrap(mark)
    with emitter.variables(**{node.accu_var: read}):
        result = emitter.value(node.result)
    if not _may_change(code):
        return result
    return Code(f"{emitter.helper(runtime.frozen)}({result.text})", result.cls, result.raises)


def _may_change(code: Code) -> bool:
    """Whether the variable may hold an empty list, which `+` would change in place."""
    return code.cls is None or code.cls is list


# --- all and exists ---


def _quantifier(node: Fold) -> tuple[bool, Node] | None:
    """(True, predicate) for exists, (False, predicate) for all."""
    step, accumulated = node.step, node.accu_var
    if not _is_variable(node.result, accumulated) or not isinstance(node.condition, Call):
        return None
    if node.condition.function != "@not_strictly_false" or not isinstance(step, And | Or):
        return None
    exists = isinstance(step, Or)
    tested = node.condition.arguments[0]
    if exists:
        if not isinstance(tested, Call) or tested.function != "!_":
            return None
        tested = tested.arguments[0]
    if not _is_variable(tested, accumulated) or not _is_constant(node.accu_init, not exists):
        return None
    if len(step.terms) != 2 or not _is_variable(step.terms[0], accumulated):
        return None
    return exists, step.terms[1]


def _quantified(emitter: Emitter, node: Fold, exists: bool, predicate: Node) -> Code:
    result, error = emitter.temporary(), emitter.temporary()
    header = _header(emitter, node)
    emitter.line(f"{result} = {not exists}")
    emitter.line(f"{error} = None")
    emitter.line(header.text)
    with emitter.block(), emitter.variables(**header.variables):
        emitter.line("try:")
        with emitter.block():
            name = emitter.named(emitter.value(predicate))
            emitter.line(f"if {name} is {exists}:")
            with emitter.block():
                emitter.line(f"{result} = {exists}")
                emitter.line("break")
            emitter.line(f"if {name} is not {not exists}: {emitter.helper(runtime.no_overload)}()")
        emitter.catch(lambda caught: emitter.line(f"if {error} is None: {error} = {caught}"))
    emitter.line(f"if {error} is not None and {result} is {not exists}:")
    with emitter.block():
        emitter.line(f"raise {emitter.helper(runtime.as_error)}({error})")
    return Code(result, bool, False)


# --- map, filter, exists_one and the like ---


def _collected(emitter: Emitter, node: Fold) -> Code:
    """Loops that add something to the accumulator for each element, or for those that pass a filter."""
    if not _is_constant(node.condition, True):
        raise Untranslatable("loop with a condition")
    step, filtered = node.step, None
    if isinstance(step, Chain) and isinstance(step.source, Conditional) and not step.test:
        filtered = step.source.condition
        falsy, truthy = step.source.falsy, step.source.truthy
        if not _is_variable(falsy, node.accu_var) or not isinstance(truthy.source, Operand) or truthy.qualifiers:
            raise Untranslatable("loop with a choice")
        step = truthy.source.node
    start, add, finish = _accumulation(emitter, node, step)
    result, error = emitter.temporary(), emitter.temporary()
    header = _header(emitter, node)
    emitter.line(f"{result} = {start}")
    if filtered is not None:
        emitter.line(f"{error} = None")
    emitter.line(header.text)
    with emitter.block(), emitter.variables(**header.variables):
        if filtered is None:
            add(result)
        else:
            _filtered(emitter, filtered, error, lambda: add(result))
    if filtered is not None:
        emitter.line(f"if {error} is not None: raise {emitter.helper(runtime.as_error)}({error})")
    return finish(result)


def _filtered(emitter: Emitter, condition: Node, error: str, add: Callable[[], None]) -> None:
    emitter.line("try:")
    with emitter.block():
        name = emitter.named(emitter.value(condition))
        emitter.line(f"if {name} is False: continue")
        emitter.line(f"if {name} is not True: {emitter.helper(runtime.no_overload)}()")
        # Anything added after an error would be lost, along with its own error.
        emitter.line(f"if {error} is not None: continue")
        add()
    emitter.catch(lambda caught: emitter.line(f"{error} = {caught}"))


def _accumulation(emitter: Emitter, node: Fold, step: Node) -> tuple[str, Callable[[str], None], Callable[[str], Code]]:
    """How an accumulator starts, is added to, and becomes the result."""
    if not isinstance(step, Call):
        raise Untranslatable("unknown loop")
    accumulated, arguments = node.accu_var, step.arguments
    if not arguments or not _is_variable(arguments[0], accumulated):
        raise Untranslatable("unknown loop")
    if step.function == "_+_" and _is_constant(node.accu_init, []) and _is_variable(node.result, accumulated):
        return "[]", _appending(emitter, arguments[1]), lambda result: Code(result, list, False)
    counted = step.function == "_+_" and _is_constant(node.accu_init, 0) and _is_constant(arguments[1], 1)
    if counted and _is_one(node.result, accumulated):
        return (
            "0",
            lambda result: emitter.line(f"{result} += 1"),
            lambda result: Code(f"({result} == 1)", bool, False),
        )
    empty_map = isinstance(node.accu_init, Constant) and node.accu_init.value.__class__ is KeyedMap
    if (
        step.function == "cel.@mapInsert"
        and len(arguments) == 3
        and empty_map
        and _is_variable(node.result, accumulated)
    ):
        return _inserting(emitter, arguments)
    raise Untranslatable("unknown loop")


def _is_one(node: Node, name: str) -> bool:
    return (
        isinstance(node, Equal) and not node.negated and _is_variable(node.left, name) and _is_constant(node.right, 1)
    )


def _appending(emitter: Emitter, added: Node) -> Callable[[str], None]:
    if isinstance(added, ListNode) and len(added.elements) == 1 and not added.optional:
        element = added.elements[0]
        return lambda result: emitter.line(f"{result}.append({emitter.value(element).text})")
    if isinstance(added, Constant) and added.value.__class__ is list and len(added.value) == 1:
        constant = added.value[0]
        return lambda result: emitter.line(f"{result}.append({emitter.constant(constant)})")
    raise Untranslatable("unknown loop")


def _inserting(
    emitter: Emitter, arguments: tuple[Node, ...]
) -> tuple[str, Callable[[str], None], Callable[[str], Code]]:
    def add(result: str) -> None:
        key, value = emitter.in_order(arguments[1:])
        emitter.line(f"{result} = {emitter.helper(map_insert)}({result}, {key.text}, {value.text})")

    start = f"{emitter.helper(runtime.accumulator)}({emitter.helper(KeyedMap)}())"
    return start, add, lambda result: Code(f"{emitter.helper(runtime.frozen)}({result})", None, False)


class _Header:
    """The first line of a loop and the variables it sets."""

    def __init__(self, text: str, variables: dict[str, Code]) -> None:
        self.text = text
        self.variables = variables


def _header(emitter: Emitter, node: Fold) -> _Header:
    code = emitter.value(node.iter_range)
    first, second = emitter.temporary(), emitter.temporary()
    if node.iter_var2:
        walked = emitter.named(Code(f"{emitter.helper(runtime.entries)}({code.text})", None, True))
        variables = {node.iter_var: Code(first, None, False), node.iter_var2: Code(second, None, False)}
        return _Header(f"for {first}, {second} in {walked}:", variables)
    plain = code.cls is list or (code.cls is dict and bool(code.path))
    text = code.text if plain else f"{emitter.helper(runtime.elements)}({code.text})"
    walked = emitter.named(Code(text, None, True))
    known = str if code.cls is dict and code.path else None
    return _Header(f"for {first} in {walked}:", {node.iter_var: Code(first, known, False)})
