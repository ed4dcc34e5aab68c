"""The abstract syntax tree of a CEL expression.

Nodes have an id (unique within one expression, assigned in parse order as cel-go does) under which the source offset, the
checked type and the resolved overloads are kept in side tables, so that the tree itself stays immutable.

Operators are calls to functions with cel-go's names (`_+_`, `_==_`, `_&&_`, `_?_:_`, `!_`, `-_`, `_[_]`, `@in`, `_?._`, `_[?_]`).
Macros are expanded by the parser into `Comprehension`, `Select(test_only=True)` and so on; what the user
wrote is kept in `Parsed.macro_calls` for messages, explanations and cost.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

# The functions that binary operators call.
RELATION_FUNCTIONS = {
    "==": "_==_",
    "!=": "_!=_",
    "<": "_<_",
    "<=": "_<=_",
    ">": "_>_",
    ">=": "_>=_",
    "in": "@in",
}
SUM_FUNCTIONS = {"+": "_+_", "-": "_-_"}
PRODUCT_FUNCTIONS = {"*": "_*_", "/": "_/_", "%": "_%_"}
BINARY_FUNCTIONS = {**RELATION_FUNCTIONS, **SUM_FUNCTIONS, **PRODUCT_FUNCTIONS}


class UInt(int):
    """An unsigned CEL integer. Its own class because CEL tells 1u from 1 in types and overloads."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"{int(self)}u"


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """Base of all nodes."""

    id: int


class Literal(Node, frozen=True, kw_only=True):
    """A constant: None, bool, int, UInt, float, str or bytes. Since `True == 1` in Python, check for the exact class."""

    value: bool | int | UInt | float | str | bytes | None


class Ident(Node, frozen=True, kw_only=True):
    """A name; a leading dot (`.x`) is kept in the name."""

    name: str


class Select(Node, frozen=True, kw_only=True):
    """`operand.field`, or `has(operand.field)` when test_only."""

    operand: Expr
    field: str
    test_only: bool = False


class Call(Node, frozen=True, kw_only=True):
    """A global call, or a member call when target is set."""

    function: str
    target: Expr | None = None
    args: tuple[Expr, ...] = ()


class ListExpr(Node, frozen=True, kw_only=True):
    """`[a, ?b]`; optional_indices are the positions written with `?`."""

    elements: tuple[Expr, ...] = ()
    optional_indices: tuple[int, ...] = ()


class MapEntry(Node, frozen=True, kw_only=True):
    """`key: value` or `?key: value`."""

    key: Expr
    value: Expr
    optional: bool = False


class MapExpr(Node, frozen=True, kw_only=True):
    """`{k: v}`."""

    entries: tuple[MapEntry, ...] = ()


class FieldInit(Node, frozen=True, kw_only=True):
    """`field: value` in a message literal."""

    field: str
    value: Expr
    optional: bool = False


class StructExpr(Node, frozen=True, kw_only=True):
    """`Type{field: value}`."""

    type_name: str
    fields: tuple[FieldInit, ...] = ()


class Comprehension(Node, frozen=True, kw_only=True):
    """What macros such as all, exists, map and filter (one and two variables) and cel.bind expand into."""

    iter_range: Expr
    iter_var: str
    iter_var2: str = ""
    accu_var: str
    accu_init: Expr
    loop_condition: Expr
    loop_step: Expr
    result: Expr


Expr = Literal | Ident | Select | Call | ListExpr | MapExpr | StructExpr | Comprehension


class Parsed(msgspec.Struct, frozen=True, kw_only=True):
    """A parsed expression."""

    source: str
    root: Expr
    # Offset in code points of each node: for calls of operators the operator, for member calls the opening
    # parenthesis, for selects the dot, as in cel-go (messages point there).
    offsets: Mapping[int, int]
    # Id of an expanded macro's root node -> the call as written (arguments may refer to other expanded ids).
    macro_calls: Mapping[int, Expr]
