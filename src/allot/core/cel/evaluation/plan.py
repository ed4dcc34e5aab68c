"""The evaluation plan of an expression: what the interpreter walks and the code generator translates.

Made from the checked tree as cel-go plans its programs, because errors and costs depend on it:

- a chain of selections and indices is one `Chain` with `Qualifier`s; a conditional with selections behind it passes
  them on to both branches;
- literals of constants and conversions of constants are computed once, so `int("")` is an error of compilation;
- `in` with a list of constants is a lookup; a constant pattern is compiled.

Node ids are those under which upstream's cost tracker keeps values. Plans are built with an explicit stack, bottom-up.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from allot.core.cel.checking.environment import Environment
from allot.core.cel.checking.types import DYN, Checked, Kind
from allot.core.cel.data import regex
from allot.core.cel.data.values import (
    GO_TYPES,
    CelError,
    EvaluationError,
    KeyedMap,
    TypeValue,
    Value,
    is_list,
    map_key,
)
from allot.core.cel.evaluation.plan_nodes import (
    And,
    Block,
    Call,
    Chain,
    Conditional,
    Constant,
    Equal,
    Fold,
    ListNode,
    MapNode,
    Membership,
    MessageNode,
    Node,
    Operand,
    OptionalOr,
    Or,
    Qualifier,
    Variable,
    chain_of,
)
from allot.core.cel.library.table import OVERLOADS, OVERLOADS_NEW_STRINGS, Binding, bind, bind_pattern
from allot.core.cel.syntax import ast
from allot.core.cel.syntax.ast import UInt

# Nesting depth: each level costs the interpreter a Python stack frame.
HEIGHT_MAX: Final = 600

_CONVERSIONS: Final = frozenset(
    ("bool", "bytes", "double", "duration", "dyn", "int", "string", "timestamp", "type", "uint")
)
_QUALIFIER_CLASSES: Final[frozenset[type]] = frozenset((str, int, UInt, bool, float))
_SET_CLASSES: Final[frozenset[type]] = frozenset((str, int, UInt, bool, float))


class PlanError(Exception):
    """An expression that cannot be made into a program; Kubernetes shows the text after "program instantiation failed: "."""


def plan(checked: Checked, environment: Environment) -> Node:
    """The plan of a checked expression."""
    return _Planner(checked, environment).run()


def children(node: ast.Expr) -> Iterator[ast.Expr]:
    """The nodes directly below a node."""
    if isinstance(node, ast.Select):
        yield node.operand
    elif isinstance(node, ast.Call):
        if node.target is not None:
            yield node.target
        yield from node.args
    elif isinstance(node, ast.ListExpr):
        yield from node.elements
    elif isinstance(node, ast.MapExpr):
        for entry in node.entries:
            yield entry.key
            yield entry.value
    elif isinstance(node, ast.StructExpr):
        for field in node.fields:
            yield field.value
    elif isinstance(node, ast.Comprehension):
        yield from (node.accu_init, node.iter_range, node.loop_condition, node.loop_step, node.result)


class _Planner:
    def __init__(self, checked: Checked, environment: Environment) -> None:
        self._root = checked.parsed.root
        self._types = checked.types
        self._references = checked.references
        self._environment = environment
        reverse = environment.functions.get("reverse")
        new_strings = reverse is not None and any(overload.id == "string_reverse" for overload in reverse.overloads)
        self._library = OVERLOADS_NEW_STRINGS if new_strings else OVERLOADS
        # By identity: copies of a sub-expression made by macros may share ids.
        self._planned: dict[int, Node] = {}

    def run(self) -> Node:
        stack: list[tuple[ast.Expr, bool]] = [(self._root, False)]
        while stack:
            node, ready = stack.pop()
            if ready:
                planned = self._plan(node)
                if planned.height > HEIGHT_MAX:
                    raise PlanError(f"expression nests too deeply: more than {HEIGHT_MAX} levels")
                self._planned[id(node)] = planned
            else:
                stack.append((node, True))
                if node.id not in self._references or not isinstance(node, ast.Select):
                    stack.extend((child, False) for child in reversed(list(children(node))))
        return self._planned[id(self._root)]

    def _of(self, node: ast.Expr) -> Node:
        return self._planned[id(node)]

    def _plan(self, node: ast.Expr) -> Node:
        if isinstance(node, ast.Literal):
            return Constant(node.id, node.value)
        if isinstance(node, ast.Ident):
            return self._name(node)
        if isinstance(node, ast.Select):
            return self._select(node)
        if isinstance(node, ast.Call):
            return self._call(node)
        if isinstance(node, ast.ListExpr):
            return self._list(node)
        if isinstance(node, ast.MapExpr):
            return self._map(node)
        if isinstance(node, ast.Comprehension):
            return self._fold(node)
        if isinstance(node, ast.StructExpr) and node.type_name.partition(".")[0] in self._environment.made_types:
            return self._message(node)
        raise PlanError(f"unknown type: {node.type_name}")

    # --- names and chains ---

    def _name(self, node: ast.Ident | ast.Select) -> Node:
        reference = self._references.get(node.id)
        name = reference.name if reference is not None else getattr(node, "name", "")
        if self._types.get(node.id, DYN).kind is Kind.TYPE and name.removeprefix(".") in self._environment.types:
            return Constant(node.id, TypeValue(name.removeprefix(".")))
        return Chain(node.id, Variable(name))

    def _select(self, node: ast.Select) -> Node:
        if node.id in self._references:
            return self._name(node)
        qualifier = Qualifier(node.id, key=node.field, test=node.test_only)
        return self._qualified(self._of(node.operand), qualifier, node.test_only)

    def _qualified(self, operand: Node, qualifier: Qualifier, test: bool = False) -> Chain:
        chain = operand if isinstance(operand, Chain) else Chain(operand.id, Operand(operand))
        return chain.extended(qualifier, test)

    def _index(self, node: ast.Call, optional: bool) -> Node:
        operand, index = (self._of(argument) for argument in node.args)
        if isinstance(index, Constant):
            if index.value.__class__ not in _QUALIFIER_CLASSES:
                raise PlanError(f"invalid qualifier type: {GO_TYPES[index.value.__class__]}")
            qualifier = Qualifier(node.id, key=index.value, optional=optional)
        else:
            qualifier = Qualifier(node.id, index=index, optional=optional)
        return self._qualified(operand, qualifier)

    # --- calls ---

    def _call(self, node: ast.Call) -> Node:
        function = node.function
        if function == "_[_]":
            return self._index(node, False)
        if function in ("_?._", "_[?_]"):
            return self._index(node, True)
        arguments = tuple(self._of(argument) for argument in node.args)
        if node.target is not None:
            arguments = (self._of(node.target), *arguments)
        if function == "_&&_":
            return And(node.id, arguments)
        if function == "_||_":
            return Or(node.id, arguments)
        if function == "_?_:_":
            condition, truthy, falsy = arguments
            return Chain(node.id, Conditional(condition, chain_of(truthy), chain_of(falsy)))
        if function in ("_==_", "_!=_"):
            return Equal(node.id, arguments[0], arguments[1], function == "_!=_")
        if function == "cel.@block":
            return self._block(arguments)
        reference = self._references.get(node.id)
        overload_ids = reference.overload_ids if reference is not None else ()
        overload_id = overload_ids[0] if len(overload_ids) == 1 else ""
        if function in ("or", "orValue") and len(arguments) == 2:
            return OptionalOr(node.id, arguments[0], arguments[1], function == "orValue")
        if overload_id == "in_list" and isinstance(arguments[1], Constant):
            membership = self._membership(node.id, arguments[0], arguments[1].value)
            if membership is not None:
                return membership
        return self._function_call(node.id, function, overload_id, overload_ids, arguments)

    def _function_call(
        self, node_id: int, function: str, overload_id: str, overload_ids: tuple[str, ...], arguments: tuple[Node, ...]
    ) -> Node:
        binding = self._pattern_binding(function, arguments)
        declared = self._environment.functions.get(function)
        if binding is None and declared is not None:
            binding = bind(declared, overload_ids, len(arguments), self._library)
        if binding is None and not arguments:
            raise PlanError(f"no such overload: {function}()")
        call = Call(node_id, function, overload_id, arguments, binding)
        if function in _CONVERSIONS and len(arguments) == 1 and isinstance(arguments[0], Constant) and binding:
            return _folded(call, binding, arguments[0].value)
        return call

    def _pattern_binding(self, function: str, arguments: tuple[Node, ...]) -> Binding | None:
        if len(arguments) < 2 or not isinstance(arguments[1], Constant) or arguments[1].value.__class__ is not str:
            return None
        try:
            return bind_pattern(function, arguments[1].value)
        except regex.PatternError as error:
            raise PlanError(str(error)) from None

    def _membership(self, node_id: int, wanted: Node, elements: Value) -> Node | None:
        if not is_list(elements):
            return None
        if not elements:
            # Nothing is in an empty list: the left operand is not even evaluated.
            return Constant(node_id, False)
        if any(element.__class__ not in _SET_CLASSES for element in elements):
            return None
        return Membership(node_id, wanted, tuple(elements))

    def _block(self, arguments: tuple[Node, ...]) -> Node:
        slots, result = arguments
        if isinstance(slots, Constant) and is_list(slots.value):
            constants = tuple(Constant(slots.id, value) for value in slots.value)
            return Block(constants, result) if constants else result
        if isinstance(slots, ListNode):
            return Block(slots.elements, result)
        raise PlanError("cel.@block expects a list constructor as the first argument")

    # --- literals and loops ---

    def _list(self, node: ast.ListExpr) -> Node:
        elements = tuple(self._of(element) for element in node.elements)
        if not node.optional_indices and all(isinstance(element, Constant) for element in elements):
            return Constant(node.id, [element.value for element in elements if isinstance(element, Constant)])
        return ListNode(node.id, elements, frozenset(node.optional_indices))

    def _map(self, node: ast.MapExpr) -> Node:
        keys = tuple(self._of(entry.key) for entry in node.entries)
        values = tuple(self._of(entry.value) for entry in node.entries)
        optional = tuple(entry.optional for entry in node.entries)
        if not any(optional) and all(isinstance(child, Constant) for child in (*keys, *values)):
            constants: Any = zip(keys, values, strict=True)
            try:
                return Constant(node.id, KeyedMap((map_key(key.value), value.value) for key, value in constants))
            except EvaluationError as error:
                raise PlanError(error.message) from None
        return MapNode(node.id, keys, values, optional)

    def _message(self, node: ast.StructExpr) -> Node:
        return MessageNode(
            node.id,
            node.type_name,
            names=tuple(field.field for field in node.fields),
            values=tuple(self._of(field.value) for field in node.fields),
            optional=tuple(field.optional for field in node.fields),
        )

    def _fold(self, node: ast.Comprehension) -> Node:
        return Fold(
            node.id,
            iter_range=self._of(node.iter_range),
            iter_var=node.iter_var,
            iter_var2=node.iter_var2,
            accu_var=node.accu_var,
            accu_init=self._of(node.accu_init),
            condition=self._of(node.loop_condition),
            step=self._of(node.loop_step),
            result=self._of(node.result),
        )


def _folded(call: Call, binding: Binding, argument: Value) -> Node:
    try:
        return Constant(call.id, binding.call(argument))
    except CelError as error:
        raise PlanError(error.message) from None


__all__ = ["HEIGHT_MAX", "PlanError", "children", "plan"]
