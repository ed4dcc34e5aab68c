"""CEL's grammar, rule by rule, read the way upstream's generated parser reads it.

Used only for text that the fast parser rejects. Each rule is a generator that yields the rules it calls; `parse_tree`
runs them with its own stack, so nesting costs no Python frames. Every place where a token is taken, an alternative
chosen or a rule called has a name, under which `grammar_places` lists the tokens that can come there.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, Concatenate, ParamSpec

from allot.core.cel.antlr.error_recovery import DecisionPoint, Recovery, Reporter, RuleFailed, TokenReader, TokenSet
from allot.core.cel.antlr.grammar_places import (
    EXPR,
    FIELD,
    LITERALS,
    MEMBER,
    OPTIONAL_EXPR,
    OPTIONAL_FIELD,
    PRODUCTS,
    RELATIONS,
    SETS,
    SUFFIX,
    SUMS,
)
from allot.core.cel.syntax.errors import Issues
from allot.core.cel.syntax.lexer import END, FLOAT, IDENTIFIER, INT, Token
from allot.core.cel.syntax.limits import NESTING_MAX


class Tree:
    """A node of the parse tree: which alternative was read, where it starts, and its parts by name (absent: missing)."""

    __slots__ = ("kind", "parts", "start")

    def __init__(self, kind: str, start: int) -> None:
        self.kind = kind
        self.start = start
        self.parts: dict[str, Any] = {}

    def get(self, name: str) -> Any:
        """A part: a token, a tree, or a list of those; None if it was not read."""
        return self.parts.get(name)


Rule = Generator["Rule", Any, Tree]
_Arguments = ParamSpec("_Arguments")


def _rule(
    body: Callable[Concatenate[_Grammar, Tree, _Arguments], Rule],
) -> Callable[Concatenate[_Grammar, str, _Arguments], Rule]:
    """A rule that reports its failure and lets its caller continue with what was read so far."""
    name = body.__name__

    def run(self: _Grammar, call: str, /, *args: _Arguments.args, **kwargs: _Arguments.kwargs) -> Rule:
        self.enter(name, call)
        tree = Tree(name, self.reader.token().start)
        try:
            tree = yield from body(self, tree, *args, **kwargs)
        except RuleFailed as error:
            self.recovery.rule_failed(error)
        self.leave(name)
        return tree

    return run


class _Grammar:
    """The rules, in the grammar's order."""

    def __init__(self, source: str, issues: Issues) -> None:
        self.report = Reporter(issues)
        self.reader = TokenReader(source, self.report)
        self.recovery = Recovery(self.reader, self.report, SETS)
        self.depths: dict[str, int] = {}

    def enter(self, rule: str, call: str) -> None:
        depth = self.depths.get(rule, 0) + 1
        if depth > NESTING_MAX:
            raise self.report.give_up(f"expression recursion limit exceeded: {NESTING_MAX}")
        self.depths[rule] = depth
        self.recovery.calls.append(call)

    def leave(self, rule: str) -> None:
        self.depths[rule] -= 1
        self.recovery.place = self.recovery.calls.pop()

    def match(self, place: str, kind: str) -> Token:
        return self.recovery.match(place, kind)

    def start(self) -> Rule:
        """The outermost rule, which nothing calls."""
        tree = Tree("start", 0)
        try:
            tree.parts["expr"] = yield self.expr("start expr")
            self.match("start end", END)
        except RuleFailed as error:
            self.recovery.rule_failed(error)
        return tree

    @_rule
    def expr(self, tree: Tree) -> Rule:
        tree.parts["condition"] = yield self.or_("expr or")
        self.recovery.sync("expr choice")
        if self.reader.kind() == "?":
            tree.parts["op"] = self.match("expr ?", "?")
            tree.parts["then"] = yield self.or_("expr then")
            self.match("expr :", ":")
            tree.parts["else"] = yield self.expr("expr else")
        return tree

    @_rule
    def or_(self, tree: Tree) -> Rule:
        terms, ops = tree.parts.setdefault("terms", []), tree.parts.setdefault("ops", [])
        terms.append((yield self.and_("or and")))
        while self.reader.kind() == "||":
            ops.append(self.match("or ||", "||"))
            terms.append((yield self.and_("or and")))
        return tree

    @_rule
    def and_(self, tree: Tree) -> Rule:
        terms, ops = tree.parts.setdefault("terms", []), tree.parts.setdefault("ops", [])
        terms.append((yield self.relation("and relation", 0)))
        while self.reader.kind() == "&&":
            ops.append(self.match("and &&", "&&"))
            terms.append((yield self.relation("and relation", 0)))
        return tree

    @_rule
    def relation(self, tree: Tree, strength: int) -> Rule:
        tree.parts["operand"] = yield self.calc("relation calc", 0)
        while self.reader.kind() in RELATIONS and strength <= 1:
            _wrap(tree, tree.kind, "left")
            tree.parts["op"] = self.recovery.take()
            tree.parts["right"] = yield self.relation("relation right", 2)
        return tree

    @_rule
    def calc(self, tree: Tree, strength: int) -> Rule:
        tree.parts["operand"] = yield self.unary("calc unary")
        while True:
            kind = self.reader.kind()
            if kind in PRODUCTS and strength <= 2:
                call, right_strength = "calc product", 3
            elif kind in SUMS and strength <= 1:
                call, right_strength = "calc sum", 2
            else:
                return tree
            _wrap(tree, tree.kind, "left")
            tree.parts["op"] = self.recovery.take()
            tree.parts["right"] = yield self.calc(call, right_strength)

    @_rule
    def unary(self, tree: Tree) -> Rule:
        self.recovery.sync("unary")
        first = self.reader.kind()
        second = self.reader.kind(2) if first == "-" else ""
        if first == "!":
            tree.kind = "not"
            ops = tree.parts.setdefault("ops", [])
            while self.reader.kind() == "!":
                ops.append(self.match("not !", "!"))
                self.recovery.sync("not more", DecisionPoint.LOOP)
            tree.parts["member"] = yield self.member("not member")
        elif first == "-" and second not in (INT, FLOAT):
            if second not in MEMBER:
                raise self.recovery.no_viable(2)
            tree.kind = "negate"
            self.minuses(tree.parts.setdefault("ops", []))
            tree.parts["member"] = yield self.member("negate member")
        elif first in MEMBER:
            tree.kind = "operand"
            tree.parts["member"] = yield self.member("unary member")
        else:
            raise self.recovery.no_viable()
        return tree

    def minuses(self, ops: list[Token]) -> None:
        """One or more minus signs; unless it is the only one, the last may not belong to a number."""
        ops.append(self.match("negate -", "-"))
        while True:
            self.recovery.sync("negate more", DecisionPoint.LOOP)
            kind = self.reader.kind()
            if kind != "-":
                if kind not in MEMBER:
                    raise self.recovery.no_viable()
                return
            if self.reader.kind(2) not in MEMBER:
                raise self.recovery.no_viable(2)
            ops.append(self.match("negate -", "-"))

    @_rule
    def member(self, tree: Tree) -> Rule:
        tree.parts["primary"] = yield self.primary("member primary")
        while self.reader.kind() in SUFFIX:
            if self.reader.kind() == "[":
                suffix, read = "index", self.index
            elif self.is_method():
                suffix, read = "method", self.method
            else:
                suffix, read = "select", self.select
            _wrap(tree, suffix, "member")
            yield from read(tree)
        return tree

    def is_method(self) -> bool:
        following = self.reader.kind(2)
        if following not in OPTIONAL_FIELD:
            raise self.recovery.no_viable(2)
        return following == IDENTIFIER and self.reader.kind(3) == "("

    def select(self, tree: Tree) -> Generator[Rule, Any, None]:
        tree.parts["op"] = self.match("select .", ".")
        self.recovery.sync("select choice")
        if self.reader.kind() == "?":
            tree.parts["optional"] = self.match("select ?", "?")
        tree.parts["field"] = yield self.escape("select field")

    def method(self, tree: Tree) -> Generator[Rule, Any, None]:
        self.match("method .", ".")
        tree.parts["name"] = self.match("method name", IDENTIFIER)
        tree.parts["op"] = self.match("method (", "(")
        self.recovery.sync("method choice")
        if self.reader.kind() in EXPR:
            tree.parts["args"] = yield self.args("method args")
        self.match("method )", ")")

    def index(self, tree: Tree) -> Generator[Rule, Any, None]:
        tree.parts["op"] = self.match("index [", "[")
        self.recovery.sync("index choice")
        if self.reader.kind() == "?":
            tree.parts["optional"] = self.match("index ?", "?")
        tree.parts["index"] = yield self.expr("index expr")
        self.match("index ]", "]")

    @_rule
    def primary(self, tree: Tree) -> Rule:
        self.recovery.sync("primary")
        tree.kind = self.primary_kind()
        yield from _PRIMARIES[tree.kind](self, tree)
        return tree

    def primary_kind(self) -> str:
        """Which alternative the next tokens start. A name turns out to be a message's only at its brace."""
        kind = self.reader.kind()
        if kind in _OPENERS:
            return _OPENERS[kind]
        if kind == "-" or kind in LITERALS:
            return "constant"
        ahead = 1
        if kind == ".":
            ahead = 2
            if self.reader.kind(2) != IDENTIFIER:
                raise self.recovery.no_viable(2)
        elif kind != IDENTIFIER:
            raise self.recovery.no_viable()
        if self.reader.kind(ahead + 1) == "(":
            return "call"
        while self.reader.kind(ahead + 1) == "." and self.reader.kind(ahead + 2) == IDENTIFIER:
            ahead += 2
        return "message" if self.reader.kind(ahead + 1) == "{" else "ident"

    def leading_dot(self, tree: Tree) -> None:
        self.recovery.sync("dot choice")
        if self.reader.kind() == ".":
            tree.parts["dot"] = self.match("dot .", ".")

    def ident(self, tree: Tree) -> Generator[Rule, Any, None]:
        yield from ()
        self.leading_dot(tree)
        tree.parts["name"] = self.match("ident name", IDENTIFIER)

    def call(self, tree: Tree) -> Generator[Rule, Any, None]:
        self.leading_dot(tree)
        tree.parts["name"] = self.match("call name", IDENTIFIER)
        tree.parts["op"] = self.match("call (", "(")
        self.recovery.sync("call choice")
        if self.reader.kind() in EXPR:
            tree.parts["args"] = yield self.args("call args")
        self.match("call )", ")")

    def nested(self, tree: Tree) -> Generator[Rule, Any, None]:
        self.match("nested (", "(")
        tree.parts["expr"] = yield self.expr("nested expr")
        self.match("nested )", ")")

    def list(self, tree: Tree) -> Generator[Rule, Any, None]:
        tree.parts["op"] = self.match("list [", "[")
        self.recovery.sync("list choice")
        if self.reader.kind() in OPTIONAL_EXPR:
            tree.parts["elements"] = yield self.elements("list elements")
        self.close("list", "]")

    def map(self, tree: Tree) -> Generator[Rule, Any, None]:
        tree.parts["op"] = self.match("map {", "{")
        self.recovery.sync("map choice")
        if self.reader.kind() in OPTIONAL_EXPR:
            tree.parts["entries"] = yield self.entries("map entries")
        self.close("map", "}")

    def message(self, tree: Tree) -> Generator[Rule, Any, None]:
        self.leading_dot(tree)
        names = tree.parts.setdefault("names", [])
        names.append(self.match("message name", IDENTIFIER))
        self.recovery.sync("message first")
        while self.reader.kind() == ".":
            self.match("message .", ".")
            names.append(self.match("message part", IDENTIFIER))
            self.recovery.sync("message more", DecisionPoint.LOOP)
        tree.parts["op"] = self.match("message {", "{")
        self.recovery.sync("message choice")
        if self.reader.kind() in OPTIONAL_FIELD:
            tree.parts["fields"] = yield self.fields("message fields")
        self.close("message", "}")

    def close(self, what: str, closer: str) -> None:
        """The closing bracket, optionally after a comma."""
        self.recovery.sync(f"{what} comma choice")
        if self.reader.kind() == ",":
            self.match(f"{what} ,", ",")
        self.match(f"{what} {closer}", closer)

    def constant(self, tree: Tree) -> Generator[Rule, Any, None]:
        tree.parts["literal"] = yield self.literal("primary literal")

    @_rule
    def args(self, tree: Tree) -> Rule:
        items = tree.parts.setdefault("items", [])
        items.append((yield self.expr("args first")))
        while self.reader.kind() == ",":
            self.match("args ,", ",")
            items.append((yield self.expr("args next")))
        return tree

    @_rule
    def elements(self, tree: Tree) -> Rule:
        items = tree.parts.setdefault("items", [])
        items.append((yield self.optional("elements first")))
        while self.another(OPTIONAL_EXPR):
            self.match("elements ,", ",")
            items.append((yield self.optional("elements next")))
        return tree

    def another(self, starts: TokenSet) -> bool:
        """Whether a comma is followed by something other than the closing bracket."""
        return self.reader.kind() == "," and self.reader.kind(2) in starts

    @_rule
    def fields(self, tree: Tree) -> Rule:
        names, colons = tree.parts.setdefault("names", []), tree.parts.setdefault("colons", [])
        values = tree.parts.setdefault("values", [])
        while True:
            names.append((yield self.field("fields name")))
            colons.append(self.match("fields :", ":"))
            values.append((yield self.expr("fields value")))
            if not self.another(OPTIONAL_FIELD):
                return tree
            self.match("fields ,", ",")

    @_rule
    def entries(self, tree: Tree) -> Rule:
        keys, colons = tree.parts.setdefault("keys", []), tree.parts.setdefault("colons", [])
        values = tree.parts.setdefault("values", [])
        while True:
            keys.append((yield self.optional("entries key")))
            colons.append(self.match("entries :", ":"))
            values.append((yield self.expr("entries value")))
            if not self.another(OPTIONAL_EXPR):
                return tree
            self.match("entries ,", ",")

    @_rule
    def field(self, tree: Tree) -> Rule:
        self.recovery.sync("field choice")
        if self.reader.kind() == "?":
            tree.parts["optional"] = self.match("field ?", "?")
        tree.parts["field"] = yield self.escape("field name")
        return tree

    @_rule
    def escape(self, tree: Tree) -> Rule:
        yield from ()
        self.recovery.sync("escape")
        kind = self.reader.kind()
        if kind not in FIELD:
            raise self.recovery.no_viable()
        tree.parts["name"] = self.match("escape plain" if kind == IDENTIFIER else "escape escaped", kind)
        return tree

    @_rule
    def optional(self, tree: Tree) -> Rule:
        self.recovery.sync("optional choice")
        if self.reader.kind() == "?":
            tree.parts["optional"] = self.match("optional ?", "?")
        tree.parts["expr"] = yield self.expr("optional expr")
        return tree

    @_rule
    def literal(self, tree: Tree) -> Rule:
        yield from ()
        self.recovery.sync("literal")
        kind = self.reader.kind()
        if kind == "-":
            kind = self.reader.kind(2)
            if kind not in (INT, FLOAT):
                raise self.recovery.no_viable(2)
            tree.parts["sign"] = self.match("literal sign", "-")
        elif kind not in LITERALS:
            raise self.recovery.no_viable()
        tree.parts["token"] = self.match(f"literal {kind}", kind)
        return tree


def _wrap(tree: Tree, kind: str, part: str) -> None:
    """Makes what was read so far part of a larger tree, which replaces it, so that it is kept if parsing fails."""
    inner = Tree(tree.kind, tree.start)
    inner.parts = tree.parts
    tree.kind = kind
    tree.parts = {part: inner}


_OPENERS = {"(": "nested", "[": "list", "{": "map"}
_PRIMARIES: dict[str, Callable[[_Grammar, Tree], Generator[Rule, Any, None]]] = {
    "ident": _Grammar.ident,
    "call": _Grammar.call,
    "nested": _Grammar.nested,
    "list": _Grammar.list,
    "map": _Grammar.map,
    "message": _Grammar.message,
    "constant": _Grammar.constant,
}


def parse_tree(source: str, issues: Issues) -> Tree:
    """Everything that could be parsed; reports syntax errors. Raises Abandoned if it cannot continue."""
    tree: Tree = run(_Grammar(source, issues).start())
    return tree


def run(generator: Generator[Any, Any, Any]) -> Any:
    """Runs a generator that yields the generators it calls."""
    stack = [generator]
    value: Any = None
    while True:
        try:
            called = stack[-1].send(value)
        except StopIteration as stop:
            stack.pop()
            value = stop.value
            if not stack:
                return value
        else:
            stack.append(called)
            value = None
