"""Builds the nodes of an expression: assigns ids, records where each node came from, expands macros.

Used by both parsers (the fast one and the one that explains syntax errors) and by macros. Ids are assigned in cel-go's
order. Knows no tokens and no grammar.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from allot.core.cel.syntax.ast import (
    Call,
    Comprehension,
    Expr,
    FieldInit,
    Ident,
    ListExpr,
    Literal,
    MapEntry,
    MapExpr,
    Select,
    StructExpr,
    UInt,
)

# The accumulator of a macro's comprehension; source text cannot contain this name.
ACCUMULATOR = "@result"
# optMap and similar macros repeat their target, so a chain of them doubles the tree at each link. Upstream has no bound.
COPIED_NODES_MAX = 10_000

# Name, number of arguments (-1: any number), whether it is called on a target.
MacroKey = tuple[str, int, bool]


class MacroError(ValueError):
    """Invalid arguments of a macro; node_id says which."""

    def __init__(self, node_id: int, message: str) -> None:
        super().__init__(message)
        self.node_id = node_id


class TreeBuilder:
    """The state of one parse: ids, offsets, and the macro calls as written."""

    def __init__(self, macros: Mapping[MacroKey, Macro]) -> None:
        self.offsets: dict[int, int] = {}
        self.macro_calls: dict[int, Expr] = {}
        self._macros = macros
        self._macro_names = frozenset(name for name, _, _ in macros)
        self._next_id = 1
        self._copied = 0

    def new_id(self, offset: int) -> int:
        """An id for a node at an offset."""
        node_id = self._next_id
        self._next_id = node_id + 1
        self.offsets[node_id] = offset
        return node_id

    def call(self, node_id: int, function: str, target: Expr | None, args: Sequence[Expr]) -> Expr:
        """A call as written, or what it expands to if it calls a macro. Raises MacroError."""
        if function in self._macro_names:
            expanded = self._expand(node_id, function, target, args)
            if expanded is not None:
                return expanded
        return Call(id=node_id, function=function, target=target, args=tuple(args))

    def drop_id(self, node_id: int) -> None:
        """Forget a node that did not become part of the tree; its id is used again if it was the latest."""
        self.offsets.pop(node_id, None)
        if node_id == self._next_id - 1:
            self._next_id = node_id

    def _expand(self, node_id: int, function: str, target: Expr | None, args: Sequence[Expr]) -> Expr | None:
        is_member = target is not None
        macro = self._macros.get((function, len(args), is_member)) or self._macros.get((function, -1, is_member))
        if macro is None:
            return None
        expanded = macro(Expansion(self, self.offsets[node_id]), target, args)
        if expanded is None:
            return None
        self.macro_calls[expanded.id] = Call(id=0, function=function, target=target, args=tuple(args))
        self.drop_id(node_id)
        return expanded

    def count_copy(self, node: Expr) -> None:
        """Count one more repeated node; refuses excessive repetition."""
        self._copied += 1
        if self._copied > COPIED_NODES_MAX:
            raise MacroError(node.id, f"macro expansion repeats more than {COPIED_NODES_MAX} nodes")


class Expansion:
    """Builds nodes for one macro; all of them are located at the macro call."""

    def __init__(self, builder: TreeBuilder, offset: int) -> None:
        self._builder = builder
        self._offset = offset

    def _id(self) -> int:
        return self._builder.new_id(self._offset)

    def literal(self, value: bool | int | UInt | float | str | bytes | None) -> Literal:
        """A constant."""
        return Literal(id=self._id(), value=value)

    def ident(self, name: str) -> Ident:
        """A name."""
        return Ident(id=self._id(), name=name)

    def accumulator(self) -> Ident:
        """The variable in which the comprehension accumulates."""
        return Ident(id=self._id(), name=ACCUMULATOR)

    def list(self, *elements: Expr) -> ListExpr:
        """A list literal."""
        return ListExpr(id=self._id(), elements=elements)

    def empty_map(self) -> MapExpr:
        """An empty map literal."""
        return MapExpr(id=self._id())

    def call(self, function: str, *args: Expr) -> Call:
        """A global call."""
        return Call(id=self._id(), function=function, args=args)

    def member_call(self, function: str, target: Expr, *args: Expr) -> Call:
        """A call on a target."""
        return Call(id=self._id(), function=function, target=target, args=args)

    def presence_test(self, operand: Expr, field: str) -> Select:
        """has(operand.field)"""
        return Select(id=self._id(), operand=operand, field=field, test_only=True)

    def comprehension(
        self,
        iter_range: Expr,
        iter_vars: tuple[str, str],
        accu_var: str,
        accu_init: Expr,
        loop_condition: Expr,
        loop_step: Expr,
        result: Expr,
    ) -> Comprehension:
        """A fold over a list or map; the second variable is empty unless the macro has two."""
        return Comprehension(
            id=self._id(),
            iter_range=iter_range,
            iter_var=iter_vars[0],
            iter_var2=iter_vars[1],
            accu_var=accu_var,
            accu_init=accu_init,
            loop_condition=loop_condition,
            loop_step=loop_step,
            result=result,
        )

    def copy(self, node: Expr) -> Expr:
        """The same expression with new ids. Uses its own stack: expressions may nest deeper than Python."""
        done: list[Expr] = []
        # A node goes onto the stack twice: to number it and stack its children, and to build it from their copies.
        pending: list[tuple[Expr, int]] = [(node, 0)]
        while pending:
            original, copy_id = pending.pop()
            if copy_id:
                done.append(_rebuilt(original, copy_id, done, self._id))
                continue
            self._builder.count_copy(original)
            copy_id = self._builder.new_id(self._builder.offsets.get(original.id, self._offset))
            pending.append((original, copy_id))
            pending.extend((child, 0) for child in reversed(children(original)))
        return done.pop()


def children(node: Expr) -> tuple[Expr, ...]:
    """The direct sub-expressions of a node, in source order where there is one."""
    match node:
        case Select():
            return (node.operand,)
        case Call():
            return node.args if node.target is None else (node.target, *node.args)
        case ListExpr():
            return node.elements
        case MapExpr():
            return tuple(part for entry in node.entries for part in (entry.key, entry.value))
        case StructExpr():
            return tuple(field.value for field in node.fields)
        case Comprehension():
            return (node.iter_range, node.accu_init, node.loop_condition, node.loop_step, node.result)
        case _:
            return ()


def replaced(root: Expr, replacements: Mapping[int, Expr]) -> Expr:
    """The expression with some nodes replaced; children of a replacement are replaced in turn."""
    done: list[Expr] = []
    pending: list[tuple[Expr, bool]] = [(root, False)]
    while pending:
        node, children_done = pending.pop()
        if children_done:
            done.append(_rebuilt(node, node.id, done, None))
            continue
        node = replacements.get(node.id, node)
        pending.append((node, True))
        pending.extend((child, False) for child in reversed(children(node)))
    return done.pop()


def _rebuilt(node: Expr, copy_id: int, done: list[Expr], entry_id: Callable[[], int] | None) -> Expr:
    """A copy of node made of the copies of its children, which are the last ones done; entries may keep their ids."""
    count = len(children(node))
    parts = tuple(done[len(done) - count :])
    del done[len(done) - count :]
    match node:
        case Literal():
            return Literal(id=copy_id, value=node.value)
        case Ident():
            return Ident(id=copy_id, name=node.name)
        case Select():
            return Select(id=copy_id, operand=parts[0], field=node.field, test_only=node.test_only)
        case Call(target=None):
            return Call(id=copy_id, function=node.function, args=parts)
        case Call():
            return Call(id=copy_id, function=node.function, target=parts[0], args=parts[1:])
        case ListExpr():
            return ListExpr(id=copy_id, elements=parts, optional_indices=node.optional_indices)
        case MapExpr():
            entries = tuple(
                MapEntry(id=entry_id() if entry_id else entry.id, key=key, value=value, optional=entry.optional)
                for entry, key, value in zip(node.entries, parts[::2], parts[1::2], strict=True)
            )
            return MapExpr(id=copy_id, entries=entries)
        case StructExpr():
            fields = tuple(
                FieldInit(
                    id=entry_id() if entry_id else field.id, field=field.field, value=value, optional=field.optional
                )
                for field, value in zip(node.fields, parts, strict=True)
            )
            return StructExpr(id=copy_id, type_name=node.type_name, fields=fields)
        case Comprehension():
            return Comprehension(
                id=copy_id,
                iter_range=parts[0],
                iter_var=node.iter_var,
                iter_var2=node.iter_var2,
                accu_var=node.accu_var,
                accu_init=parts[1],
                loop_condition=parts[2],
                loop_step=parts[3],
                result=parts[4],
            )


def balanced(function: str, terms: list[Expr], ids: list[int]) -> Expr:
    """A chain of && or || as a tree of least height, as upstream builds it. ids are the operators', one between terms."""

    def build(low: int, high: int) -> Expr:
        middle = (low + high + 1) // 2
        left = terms[middle] if middle == low else build(low, middle - 1)
        right = terms[middle + 1] if middle == high else build(middle + 1, high)
        return Call(id=ids[middle], function=function, args=(left, right))

    return build(0, len(ids) - 1)


# What a macro makes of a call: an expression; None if it does not apply to the call; or it raises MacroError.
Macro = Callable[[Expansion, Expr | None, Sequence[Expr]], Expr | None]
