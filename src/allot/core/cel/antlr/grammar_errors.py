"""Why an expression cannot be parsed, in upstream's words.

Takes over from the fast parser: reads the text again with `grammar`, which recovers from errors and leaves a parse tree
with holes, then walks that tree for errors visible only there: reserved words, literals out of range, macros
with wrong arguments. If nothing is wrong after all, returns the tree like the fast parser.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

from allot.core.cel.antlr.error_recovery import Abandoned
from allot.core.cel.antlr.grammar import Tree, parse_tree, run
from allot.core.cel.syntax import lexer
from allot.core.cel.syntax.ast import (
    BINARY_FUNCTIONS,
    Call,
    Expr,
    FieldInit,
    Ident,
    ListExpr,
    Literal,
    MapEntry,
    MapExpr,
    Parsed,
    Select,
    StructExpr,
)
from allot.core.cel.syntax.builder import MacroError, TreeBuilder, balanced
from allot.core.cel.syntax.errors import Issues
from allot.core.cel.syntax.lexer import BadLiteral, Token
from allot.core.cel.syntax.limits import NESTING_MAX, RESERVED
from allot.core.cel.syntax.macros import MacroSet


def diagnose(source: str, macros: MacroSet, optional_syntax: bool) -> Parsed:
    """Raises CelCompileError with all errors of the text; returns the tree if there are none."""
    issues = Issues(source)
    builder = TreeBuilder(macros)
    root: Expr | None = None
    try:
        root = run(_Visitor(issues, builder, optional_syntax).visit(parse_tree(source, issues).get("expr")))
    except Abandoned:
        pass
    issues.raise_any()
    assert root is not None, "an abandoned expression has a reason"
    return Parsed(source=source, root=root, offsets=builder.offsets, macro_calls=builder.macro_calls)


# A visit yields the visits it depends on.
Visit = Generator[Any, Any, Expr]


class _Visitor:
    """Builds nodes from a parse tree with possibly missing parts."""

    def __init__(self, issues: Issues, builder: TreeBuilder, optional_syntax: bool) -> None:
        self.issues = issues
        self.builder = builder
        self.optional_syntax = optional_syntax
        self.depth = 0

    def visit(self, tree: Tree | None) -> Visit:
        """The node for any tree."""
        tree = _without_wrapping(tree)
        if tree is None or tree.kind not in _VISITS:
            return self.placeholder(-1)
        counted = tree.kind in _COUNTED
        if counted:
            self.depth += 1
            if self.depth > NESTING_MAX:
                self.issues.report(-1, "max recursion depth exceeded")
                raise Abandoned
        node = yield from _VISITS[tree.kind](self, tree)
        if counted:
            self.depth -= 1
        return node

    def placeholder(self, offset: int) -> Expr:
        """Stands for something that could not be read; never part of a result."""
        return StructExpr(id=self.builder.new_id(offset), type_name="")

    def error(self, offset: int, message: str) -> Expr:
        self.issues.report(offset, message)
        return self.placeholder(offset)

    def call(self, op: Token | None, function: str, target: Expr | None, args: list[Expr], node_id: int) -> Expr:
        try:
            return self.builder.call(node_id, function, target, args)
        except MacroError as error:
            offset = self.builder.offsets.get(error.node_id, -1 if op is None else op.start)
            self.builder.drop_id(node_id)
            return self.error(offset, str(error))

    def expr(self, tree: Tree) -> Visit:
        condition = yield self.visit(tree.get("condition"))
        node_id = self.builder.new_id(tree.get("op").start)
        then = yield self.visit(tree.get("then"))
        otherwise = yield self.visit(tree.get("else"))
        return Call(id=node_id, function="_?_:_", args=(condition, then, otherwise))

    def logical(self, tree: Tree) -> Visit:
        terms = [(yield self.visit(tree.get("terms")[0]))]
        ids: list[int] = []
        for op, term in zip(tree.get("ops"), tree.get("terms")[1:], strict=False):
            terms.append((yield self.visit(term)))
            ids.append(self.builder.new_id(op.start))
        return balanced("_||_" if tree.kind == "or_" else "_&&_", terms, ids)

    def binary(self, tree: Tree) -> Visit:
        op = tree.get("op")
        left = yield self.visit(tree.get("left"))
        node_id = self.builder.new_id(op.start)
        right = yield self.visit(tree.get("right"))
        return Call(id=node_id, function=BINARY_FUNCTIONS[op.text], args=(left, right))

    def unary(self, tree: Tree) -> Visit:
        yield from ()
        return Literal(id=self.builder.new_id(tree.start), value="<<error>>")

    def prefix(self, tree: Tree) -> Visit:
        ops = tree.get("ops")
        if len(ops) % 2 == 0:
            member: Expr = yield self.visit(tree.get("member"))
            return member
        node_id = self.builder.new_id(ops[0].start)
        operand = yield self.visit(tree.get("member"))
        return Call(id=node_id, function="!_" if tree.kind == "not" else "-_", args=(operand,))

    def select(self, tree: Tree) -> Visit:
        operand = yield self.visit(tree.get("member"))
        op, field = tree.get("op"), tree.get("field")
        if op is None or field is None:
            return self.placeholder(tree.start)
        name = self.field_name(field, field.start) or ""
        if tree.get("optional") is None:
            return Select(id=self.builder.new_id(op.start), operand=operand, field=name)
        if not self.optional_syntax:
            return self.error(op.start, "unsupported syntax '.?'")
        literal = Literal(id=self.builder.new_id(field.start), value=name)
        return Call(id=self.builder.new_id(op.start), function="_?._", args=(operand, literal))

    def field_name(self, tree: Tree | None, offset: int) -> str | None:
        name = None if tree is None else tree.get("name")
        if name is None:
            self.error(offset, "unsupported ident kind")
            return None
        return str(name.text[1:-1] if name.kind == lexer.ESCAPED_IDENTIFIER else name.text)

    def method(self, tree: Tree) -> Visit:
        operand = yield self.visit(tree.get("member"))
        name, op = tree.get("name"), tree.get("op")
        if name is None:
            return self.placeholder(tree.start)
        node_id = self.builder.new_id(-1 if op is None else op.start)
        args = yield self.items(tree.get("args"))
        return self.call(op, name.text, operand, args, node_id)

    def items(self, tree: Tree | None) -> Generator[Any, Any, list[Expr]]:
        found: list[Expr] = []
        for item in [] if tree is None else tree.get("items"):
            found.append((yield self.visit(item)))
        return found

    def index(self, tree: Tree) -> Visit:
        operand = yield self.visit(tree.get("member"))
        op = tree.get("op")
        if op is None:
            return self.placeholder(tree.start)
        node_id = self.builder.new_id(op.start)
        index = yield self.visit(tree.get("index"))
        if tree.get("optional") is None:
            return Call(id=node_id, function="_[_]", args=(operand, index))
        if not self.optional_syntax:
            return self.error(op.start, "unsupported syntax '[?'")
        return Call(id=node_id, function="_[?_]", args=(operand, index))

    def ident(self, tree: Tree) -> Visit:
        yield from ()
        name = tree.get("name")
        if name is None:
            return self.placeholder(tree.start)
        if name.text in RESERVED:
            return self.error(tree.start, f"reserved identifier: {name.text}")
        dot = "" if tree.get("dot") is None else "."
        return Ident(id=self.builder.new_id(name.start), name=dot + name.text)

    def global_call(self, tree: Tree) -> Visit:
        name, op = tree.get("name"), tree.get("op")
        if name is None:
            return self.placeholder(tree.start)
        if name.text in RESERVED:
            return self.error(tree.start, f"reserved identifier: {name.text}")
        dot = "" if tree.get("dot") is None else "."
        node_id = self.builder.new_id(-1 if op is None else op.start)
        args = yield self.items(tree.get("args"))
        return self.call(op, dot + name.text, None, args, node_id)

    def list(self, tree: Tree) -> Visit:
        op = tree.get("op")
        node_id = self.builder.new_id(-1 if op is None else op.start)
        elements: list[Expr] = []
        optional: list[int] = []
        items = tree.get("elements")
        for index, item in enumerate([] if items is None else items.get("items")):
            elements.append((yield self.visit(item.get("expr"))))
            mark = item.get("optional")
            if mark is not None and not self.optional_syntax:
                self.error(mark.start, "unsupported syntax '?'")
            elif mark is not None:
                optional.append(index)
        return ListExpr(id=node_id, elements=tuple(elements), optional_indices=tuple(optional))

    def map(self, tree: Tree) -> Visit:
        op, entries = tree.get("op"), tree.get("entries")
        node_id = self.builder.new_id(-1 if op is None else op.start)
        made: list[MapEntry] = []
        if entries is not None:
            for key, colon, value in zip(
                entries.get("keys"), entries.get("colons"), entries.get("values"), strict=False
            ):
                entry_id = self.builder.new_id(colon.start)
                optional = key.get("optional") is not None
                if optional and not self.optional_syntax:
                    self.error(key.start, "unsupported syntax '?'")
                    continue
                key_node = yield self.visit(key.get("expr"))
                value_node = yield self.visit(value)
                made.append(MapEntry(id=entry_id, key=key_node, value=value_node, optional=optional))
        return MapExpr(id=node_id, entries=tuple(made))

    def message(self, tree: Tree) -> Visit:
        op, fields = tree.get("op"), tree.get("fields")
        name = ("" if tree.get("dot") is None else ".") + ".".join(part.text for part in tree.get("names") or ())
        node_id = self.builder.new_id(-1 if op is None else op.start)
        made: list[FieldInit] = []
        if fields is not None:
            for field, colon, value in zip(
                fields.get("names"), fields.get("colons"), fields.get("values"), strict=False
            ):
                entry_id = self.builder.new_id(colon.start)
                optional = field.get("optional") is not None
                if optional and not self.optional_syntax:
                    self.error(field.start, "unsupported syntax '?'")
                    continue
                field_name = self.field_name(field.get("field"), fields.start)
                if field_name is None:
                    continue
                value_node = yield self.visit(value)
                made.append(FieldInit(id=entry_id, field=field_name, value=value_node, optional=optional))
        return StructExpr(id=node_id, type_name=name, fields=tuple(made))

    def literal(self, tree: Tree) -> Visit:
        yield from ()
        token = tree.get("token")
        if token is None:
            return self.placeholder(tree.start)
        try:
            value = _literal_value(token, tree.get("sign") is not None)
        except BadLiteral as error:
            return self.error(tree.start, str(error))
        return Literal(id=self.builder.new_id(tree.start), value=value)


def _literal_value(token: Token, negative: bool) -> bool | int | float | str | bytes | None:
    match token.kind:
        case lexer.INT:
            return lexer.int_value(token.text, negative)
        case lexer.UINT:
            return lexer.uint_value(token.text)
        case lexer.FLOAT:
            return lexer.double_value(token.text, negative)
        case lexer.STRING:
            return lexer.string_value(token.text)
        case lexer.BYTES:
            return lexer.bytes_value(token.text)
        case kind:
            return {"true": True, "false": False}.get(kind)


def _without_wrapping(tree: Tree | None) -> Tree | None:
    """The first significant tree: skips parentheses and pass-through rules."""
    while tree is not None:
        if tree.kind in ("or_", "and_"):
            if tree.get("ops"):
                return tree
            terms = tree.get("terms")
            tree = terms[0] if terms else None
        elif tree.kind in _PASSED_ON and tree.get("op") is None:
            tree = tree.get(_PASSED_ON[tree.kind])
        else:
            return tree
    return None


# The only part of a rule without an operator.
_PASSED_ON = {
    "expr": "condition",
    "relation": "operand",
    "calc": "operand",
    "operand": "member",
    "member": "primary",
    "nested": "expr",
    "constant": "literal",
}
_COUNTED = frozenset(("expr", "relation", "calc", "select", "method", "index"))
_VISITS: dict[str, Callable[[_Visitor, Tree], Visit]] = {
    "expr": _Visitor.expr,
    "or_": _Visitor.logical,
    "and_": _Visitor.logical,
    "relation": _Visitor.binary,
    "calc": _Visitor.binary,
    "unary": _Visitor.unary,
    "not": _Visitor.prefix,
    "negate": _Visitor.prefix,
    "select": _Visitor.select,
    "method": _Visitor.method,
    "index": _Visitor.index,
    "ident": _Visitor.ident,
    "call": _Visitor.global_call,
    "list": _Visitor.list,
    "map": _Visitor.map,
    "message": _Visitor.message,
    "literal": _Visitor.literal,
}
