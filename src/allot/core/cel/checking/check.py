"""The type checker: finds the type of every node, what names refer to and which overloads a call may mean.

Works with its own stack instead of recursion, since expressions nest deeper than Python. Names that turn out to
be qualified (`a.b` a variable, `optional.of` a function) are replaced in the tree by what they refer to, as cel-go
does. All errors of an expression are reported at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from allot.core.cel.checking.environment import Environment
from allot.core.cel.checking.inference import (
    Bindings,
    TypeTooComplex,
    cannot_match,
    describe,
    describe_signature,
    is_dynamic,
    limit_size,
    most_general,
    unwrap_optional,
)
from allot.core.cel.checking.types import (
    BOOL,
    BYTES,
    DOUBLE,
    DYN,
    ERROR,
    INT,
    NULL,
    STRING,
    UINT,
    CelType,
    Checked,
    Function,
    Kind,
    Reference,
    list_of,
    map_of,
    optional_of,
    type_of,
)
from allot.core.cel.syntax.ast import (
    Call,
    Comprehension,
    Expr,
    Ident,
    ListExpr,
    Literal,
    MapExpr,
    Parsed,
    Select,
    StructExpr,
    UInt,
)
from allot.core.cel.syntax.builder import replaced
from allot.core.cel.syntax.errors import Issues

_LITERAL_TYPES: dict[type, CelType] = {
    type(None): NULL,
    bool: BOOL,
    int: INT,
    UInt: UINT,
    float: DOUBLE,
    str: STRING,
    bytes: BYTES,
}


def check(parsed: Parsed, environment: Environment) -> Checked:
    """Types and references of an expression; raises CelCompileError with all its errors."""
    return _Checker(parsed, environment).run()


class _Checker:
    """One run over one expression."""

    def __init__(self, parsed: Parsed, environment: Environment) -> None:
        self.parsed = parsed
        self.environment = environment
        self.issues = Issues(parsed.source)
        self.bindings = Bindings()
        self.types: dict[int, CelType] = {}
        self.references: dict[int, Reference] = {}
        # Nodes that mean something other than their syntax suggests.
        self.replacements: dict[int, Expr] = {}
        # Variables of the comprehensions around the current node, innermost last.
        self.scopes: list[dict[str, CelType]] = []
        # Pending steps, the next one last.
        self.work: list[tuple[Callable[[_Checker, Any], None], Any]] = []

    def run(self) -> Checked:
        parsed, work = self.parsed, self.work
        work.append((_VISIT[type(parsed.root)], parsed.root))
        try:
            while work:
                step, subject = work.pop()
                step(self, subject)
            resolve = self.bindings.resolve
            types = {node_id: resolve(found, free_as_dyn=True) for node_id, found in self.types.items()}
        except TypeTooComplex:
            self.issues.report(0, "types nest too deeply or have too many parts to be checked")
        self.issues.raise_any()
        if self.replacements:
            root = replaced(parsed.root, self.replacements)
            parsed = msgspec.structs.replace(parsed, root=root)
        return Checked(parsed=parsed, types=types, references=self.references)

    def then(self, step: Callable[[_Checker, Any], None], subject: Any, children: Sequence[Expr]) -> None:
        """First check the children in order, then take the step."""
        work = self.work
        work.append((step, subject))
        for child in reversed(children):
            work.append((_VISIT[type(child)], child))

    def error(self, node_id: int, message: str) -> None:
        self.issues.report(self.parsed.offsets.get(node_id, -1), message)

    def mismatch(self, node_id: int, expected: CelType, found: CelType) -> None:
        self.error(node_id, f"expected type '{describe(expected)}' but found '{describe(found)}'")

    def undeclared(self, node_id: int, name: str) -> None:
        self.error(node_id, f"undeclared reference to '{name}' (in container '{self.environment.container}')")
        self.types[node_id] = ERROR

    # Names.

    def candidates(self, name: str) -> tuple[str, ...]:
        """What a name may mean: itself within the container, within its parents, and alone."""
        if name.startswith("."):
            return (name[1:],)
        container = self.environment.container
        if not container:
            return (name,)
        parts = container.split(".")
        return (*(".".join((*parts[:count], name)) for count in range(len(parts), 0, -1)), name)

    def local(self, name: str) -> CelType | None:
        for scope in reversed(self.scopes):
            if name in scope:
                return scope[name]
        return None

    def resolve_global(self, name: str) -> tuple[str, CelType] | None:
        environment = self.environment
        for candidate in self.candidates(name):
            variable = environment.variables.get(candidate)
            if variable is not None:
                return candidate, variable
            named = environment.types.get(candidate)
            if named is not None:
                return candidate, type_of(named)
        return None

    def function(self, name: str) -> Function | None:
        functions = self.environment.functions
        for candidate in self.candidates(name):
            function = functions.get(candidate)
            if function is not None:
                return function
        return None

    # Leaves.

    def visit_literal(self, node: Literal) -> None:
        self.types[node.id] = _LITERAL_TYPES[type(node.value)]

    def visit_ident(self, node: Ident) -> None:
        name = node.name
        local = self.local(name)
        if local is not None:
            self.types[node.id] = local
            self.references[node.id] = Reference(name)
            return
        found = self.resolve_global(name)
        if found is None:
            self.undeclared(node.id, name)
            return
        self.refer(node, *found, self.local(name.removeprefix(".")) is not None)

    def refer(self, node: Expr, name: str, found: CelType, shadowed: bool) -> None:
        """The node stands for a variable or type of the environment. A leading dot skips a local of that name."""
        name = f".{name}" if shadowed else name
        self.types[node.id] = found
        self.references[node.id] = Reference(name)
        if not (isinstance(node, Ident) and node.name == name):
            self.replacements[node.id] = Ident(id=node.id, name=name)

    # Field selection.

    def visit_select(self, node: Select) -> None:
        qualified = None if node.test_only else qualified_name(node)
        if qualified is not None:
            first = qualified.partition(".")[0]
            if first and self.local(first) is not None:
                qualified = None
        if qualified is not None:
            found = self.resolve_global(qualified)
            if found is not None:
                self.refer(node, *found, False)
                return
        self.then(_Checker.finish_select, node, (node.operand,))

    def finish_select(self, node: Select) -> None:
        found = self.select_field(node.id, node.operand, node.field, False)
        self.types[node.id] = BOOL if node.test_only else self.bindings.resolve(found)

    def select_field(self, node_id: int, operand: Expr, field: str, optional: bool) -> CelType:
        operand_type, was_optional = unwrap_optional(self.bindings.resolve(self.types[operand.id]))
        kind = operand_type.kind
        if kind is Kind.MAP:
            result = operand_type.params[1]
        elif kind is Kind.OBJECT:
            result = self.field_type(node_id, operand_type.name, field)
        else:
            if kind is Kind.TYPE_PARAM:
                self.bindings.assign(DYN, operand_type)
            elif kind is not Kind.ERROR and not is_dynamic(operand_type):
                self.error(node_id, f"type '{describe(operand_type)}' does not support field selection")
            result = DYN
        return optional_of(result) if was_optional or optional else result

    def field_type(self, node_id: int, type_name: str, field: str) -> CelType:
        fields = self.environment.objects.get(type_name)
        if fields is None:
            self.error(node_id, f"unexpected failed resolution of '{type_name}'")
            return ERROR
        found = fields.get(field)
        if found is None:
            self.error(node_id, f"undefined field '{field}'")
            return ERROR
        return found

    # Calls.

    def visit_call(self, node: Call) -> None:
        if node.function == "_?._":
            self.then(_Checker.finish_optional_select, node, node.args[:1])
        elif node.target is None:
            self.then(_Checker.finish_global_call, node, node.args)
        else:
            namespace = qualified_name(node.target)
            function = None if namespace is None else self.function(f"{namespace}.{node.function}")
            if function is None:
                self.then(_Checker.finish_member_call, node, (*node.args, node.target))
            else:
                # The target was only the first part of the function's name.
                call = Call(id=node.id, function=function.name, args=node.args)
                self.replacements[node.id] = call
                self.then(_Checker.finish_global_call, call, node.args)

    def finish_optional_select(self, node: Call) -> None:
        operand, field = node.args
        assert isinstance(field, Literal), "the parser makes a literal of the field's name"
        found = self.select_field(node.id, operand, str(field.value), True)
        self.types[node.id] = self.bindings.resolve(found)
        self.types[field.id] = STRING
        self.references[node.id] = Reference(overload_ids=("select_optional_field",))

    def finish_global_call(self, node: Call) -> None:
        function = self.function(node.function)
        if function is None:
            self.undeclared(node.id, node.function)
            return
        if function.name != node.function:
            self.replacements[node.id] = Call(id=node.id, function=function.name, args=node.args)
        self.resolve_overload(node, function, node.args)

    def finish_member_call(self, node: Call) -> None:
        function = self.function(node.function)
        if function is None:
            self.undeclared(node.id, node.function)
            return
        assert node.target is not None, "only calls on a target come here"
        self.resolve_overload(node, function, (node.target, *node.args))

    def resolve_overload(self, node: Call, function: Function, operands: Sequence[Expr]) -> None:
        types = self.types
        args = [types[operand.id] for operand in operands]
        if function.name in ("_&&_", "_||_"):
            self.logical(node, function, operands, args)
            return
        is_member = len(operands) != len(node.args)
        matching: list[str] = []
        result: CelType | None = None
        bindings = self.bindings
        for overload in function.overloads:
            if overload.member is not is_member or len(overload.params) != len(args):
                continue
            if cannot_match(overload.params, args):
                continue
            params, overload_result = bindings.instantiate(overload)
            if not bindings.assign_all(args, params):
                continue
            matching.append(overload.id)
            overload_result = bindings.resolve(overload_result)
            if result is None:
                result = overload_result
            elif not is_dynamic(result) and result != overload_result:
                result = DYN
        if result is None:
            signature = describe_signature([bindings.resolve(arg, free_as_dyn=True) for arg in args], is_member)
            self.error(node.id, f"found no matching overload for '{function.name}' applied to '{signature}'")
            types[node.id] = ERROR
            return
        if result.params:
            limit_size(result)
        types[node.id] = result
        self.references[node.id] = Reference(overload_ids=tuple(matching))

    def logical(self, node: Call, function: Function, operands: Sequence[Expr], args: Sequence[CelType]) -> None:
        """&& and || report the operand that is not a bool instead of the call."""
        failed = False
        for operand, arg in zip(operands, args, strict=True):
            if not self.bindings.assign(arg, BOOL):
                self.mismatch(operand.id, BOOL, arg)
                failed = True
        self.types[node.id] = ERROR if failed else BOOL
        if not failed:
            self.references[node.id] = Reference(overload_ids=(function.overloads[0].id,))

    # Literals of lists, maps and messages.

    def visit_list(self, node: ListExpr) -> None:
        self.then(_Checker.finish_list, node, node.elements)

    def finish_list(self, node: ListExpr) -> None:
        joined: CelType | None = None
        for index, element in enumerate(node.elements):
            found = self.types[element.id]
            if index in node.optional_indices:
                found = self.optional_value(element, found)
            joined = self.join(element, joined, found)
        self.set_aggregate(node, list_of(self.bindings.fresh() if joined is None else joined))

    def set_aggregate(self, node: Expr, found: CelType) -> None:
        limit_size(found)
        self.types[node.id] = found

    def optional_value(self, node: Expr, found: CelType) -> CelType:
        """The type of what `?value` contributes; the value must be an optional."""
        value, was_optional = unwrap_optional(found)
        if not was_optional and not is_dynamic(value):
            self.mismatch(node.id, optional_of(value), value)
        return value

    def join(self, node: Expr, previous: CelType | None, current: CelType) -> CelType:
        if previous is None:
            return current
        if self.bindings.assign(previous, current):
            return most_general(previous, current)
        if not self.environment.homogeneous_literals:
            return DYN
        self.mismatch(node.id, previous, current)
        return ERROR

    def visit_map(self, node: MapExpr) -> None:
        parts = [part for entry in node.entries for part in (entry.key, entry.value)]
        self.then(_Checker.finish_map, node, parts)

    def finish_map(self, node: MapExpr) -> None:
        key_type: CelType | None = None
        value_type: CelType | None = None
        for entry in node.entries:
            key_type = self.join(entry.key, key_type, self.types[entry.key.id])
            found = self.types[entry.value.id]
            if entry.optional:
                found = self.optional_value(entry.value, found)
            value_type = self.join(entry.value, value_type, found)
        if key_type is None or value_type is None:
            key_type, value_type = self.bindings.fresh(), self.bindings.fresh()
        self.set_aggregate(node, map_of(key_type, value_type))

    def visit_struct(self, node: StructExpr) -> None:
        found = self.message_type(node)
        if found is None:
            self.undeclared(node.id, node.type_name)
            return
        name, message = found
        self.references[node.id] = Reference(name)
        if name != node.type_name:
            self.replacements[node.id] = StructExpr(id=node.id, type_name=name, fields=node.fields)
        if message.kind is not Kind.OBJECT:
            self.error(node.id, f"'{message.name or message.kind.value}' is not a message type")
            message = ERROR
        self.types[node.id] = message
        self.then(_Checker.finish_struct, node, [field.value for field in node.fields])

    def message_type(self, node: StructExpr) -> tuple[str, CelType] | None:
        for candidate in self.candidates(node.type_name):
            named = self.environment.types.get(candidate)
            if named is not None:
                return candidate, named
            if candidate in self.environment.objects:
                return candidate, CelType(Kind.OBJECT, candidate)
        return None

    def finish_struct(self, node: StructExpr) -> None:
        message = self.types[node.id]
        for field in node.fields:
            expected = ERROR if message is ERROR else self.field_type(field.id, message.name, field.field)
            found = self.types[field.value.id]
            if field.optional:
                found = self.optional_value(field.value, found)
            if not self.bindings.assign(expected, found):
                self.error(
                    field.id,
                    f"expected type of field '{field.field}' is '{describe(expected)}'"
                    f" but provided type is '{describe(found)}'",
                )

    # Comprehensions.

    def visit_comprehension(self, node: Comprehension) -> None:
        self.then(_Checker.enter_loop, node, (node.iter_range, node.accu_init))

    def enter_loop(self, node: Comprehension) -> None:
        """Range and initial value are known: declare the variables, check condition and step."""
        first, second = self.iteration_types(node)
        self.scopes.append({node.accu_var: self.types[node.accu_init.id]})
        self.scopes.append({node.iter_var: first, node.iter_var2: second} if node.iter_var2 else {node.iter_var: first})
        self.work.append((_Checker.leave_loop, node))
        self.then(_Checker.finish_step, node, (node.loop_step,))
        self.then(_Checker.finish_condition, node, (node.loop_condition,))

    def iteration_types(self, node: Comprehension) -> tuple[CelType, CelType]:
        """Types of the iteration variables."""
        range_type = self.bindings.resolve(self.types[node.iter_range.id])
        match range_type.kind:
            case Kind.LIST if node.iter_var2:
                return INT, range_type.params[0]
            case Kind.LIST:
                return range_type.params[0], ERROR
            case Kind.MAP:
                return range_type.params[0], range_type.params[1]
            case Kind.DYN | Kind.ERROR | Kind.TYPE_PARAM:
                # A type that is still unknown must not be bound to something else later.
                self.bindings.assign(DYN, range_type)
                return DYN, DYN
            case _:
                self.error(
                    node.iter_range.id,
                    f"expression of type '{describe(range_type)}' cannot be range of a comprehension"
                    " (must be list, map, or dynamic)",
                )
                return ERROR, ERROR

    def finish_condition(self, node: Comprehension) -> None:
        self.require(node.loop_condition, BOOL)

    def finish_step(self, node: Comprehension) -> None:
        self.require(node.loop_step, self.types[node.accu_init.id])

    def require(self, node: Expr, expected: CelType) -> None:
        found = self.types[node.id]
        if not self.bindings.assign(expected, found):
            self.mismatch(node.id, expected, found)

    def leave_loop(self, node: Comprehension) -> None:
        """The result sees the accumulator, but no iteration variable."""
        self.scopes.pop()
        self.then(_Checker.finish_comprehension, node, (node.result,))

    def finish_comprehension(self, node: Comprehension) -> None:
        self.scopes.pop()
        self.types[node.id] = self.bindings.resolve(self.types[node.result.id])


def qualified_name(node: Expr) -> str | None:
    """`a.b.c` if the node is a chain of plain selections from a name."""
    parts: list[str] = []
    while isinstance(node, Select) and not node.test_only:
        parts.append(node.field)
        node = node.operand
    if not isinstance(node, Ident):
        return None
    parts.append(node.name)
    return ".".join(reversed(parts))


_VISIT: dict[type, Callable[[_Checker, Any], None]] = {
    Literal: _Checker.visit_literal,
    Ident: _Checker.visit_ident,
    Select: _Checker.visit_select,
    Call: _Checker.visit_call,
    ListExpr: _Checker.visit_list,
    MapExpr: _Checker.visit_map,
    StructExpr: _Checker.visit_struct,
    Comprehension: _Checker.visit_comprehension,
}
