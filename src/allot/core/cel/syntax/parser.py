"""From source text to syntax tree.

An operator-precedence parser with its own stack: one pass over the tokens, no recursion, so nesting costs no Python
frames. It only knows correct expressions; whenever anything is wrong it stops at once and leaves the expression to
`grammar_errors`, which is slow but reports every syntax error in upstream's words.

Two limits are upstream's: 250 nested expressions, and 250 nested operations in the tree as written.
"""

from __future__ import annotations

from collections.abc import Callable

from allot.core.cel.antlr.grammar_errors import diagnose
from allot.core.cel.syntax import lexer
from allot.core.cel.syntax.ast import (
    BINARY_FUNCTIONS,
    PRODUCT_FUNCTIONS,
    RELATION_FUNCTIONS,
    SUM_FUNCTIONS,
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
from allot.core.cel.syntax.builder import MacroError, TreeBuilder, balanced, children
from allot.core.cel.syntax.errors import Issues
from allot.core.cel.syntax.lexer import BadLiteral
from allot.core.cel.syntax.limits import EXPRESSION_SIZE_MAX, NESTING_MAX, RESERVED
from allot.core.cel.syntax.macros import KUBERNETES_MACROS, MacroSet

# Binding strength. Openers (parentheses, calls, …) stay on the stack until they are closed.
_OPENER, _TERNARY, _OR, _AND, _RELATION, _SUM, _PRODUCT, _UNARY = range(8)
_BINARY = {
    **{symbol: (_RELATION, function) for symbol, function in RELATION_FUNCTIONS.items()},
    **{symbol: (_SUM, function) for symbol, function in SUM_FUNCTIONS.items()},
    **{symbol: (_PRODUCT, function) for symbol, function in PRODUCT_FUNCTIONS.items()},
}
_LOGICAL = {"||": (_OR, "_||_"), "&&": (_AND, "_&&_")}
_CLOSER = {"(": ")", "call": ")", "[": "]", "index": "]", "{": "}", "struct": "}"}


def parse(source: str, *, macros: MacroSet = KUBERNETES_MACROS, optional_syntax: bool = True) -> Parsed:
    """The tree of an expression; raises CelCompileError with every syntax error in it."""
    source = _without_surrogates(source)
    if len(source) > EXPRESSION_SIZE_MAX:
        issues = Issues(source)
        issues.report(-1, f"expression code point size exceeds limit: size: {len(source)}, limit {EXPRESSION_SIZE_MAX}")
        issues.raise_any()
    tokens = lexer.scan(source)
    if tokens is not None:
        try:
            return _Parse(source, tokens, macros, optional_syntax).run()
        except (_Stuck, MacroError, BadLiteral):
            pass
    return diagnose(source, macros, optional_syntax)


def _without_surrogates(source: str) -> str:
    """Replaces lone surrogates, which JSON can smuggle in, as Go does."""
    if source.isascii():
        return source
    return source.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


class _Stuck(Exception):
    """The fast parser gives up; not an error message."""


class _Pending:
    """An operator that waits for its right side, or an opener that waits for its closer."""

    __slots__ = ("entries", "field", "fields", "id", "items", "kind", "level", "marks", "name", "target")

    def __init__(self, level: int, kind: str, node_id: int = 0, name: str = "", target: Expr | None = None) -> None:
        self.level = level
        self.kind = kind
        self.id = node_id
        self.name = name
        self.target = target
        # Arguments, elements, operands of && and ||.
        self.items: list[Expr] = []
        # Ids of operators; positions of optional elements; the id of a map entry that is being read.
        self.marks: list[int] = []
        self.entries: list[MapEntry] = []
        self.fields: list[FieldInit] = []
        # The name before the colon of the field that is being read.
        self.field = ""


class _Parse:
    """One run over one expression."""

    def __init__(
        self, source: str, tokens: tuple[list[str], list[str], list[int]], macros: MacroSet, optional_syntax: bool
    ) -> None:
        self.source = source
        self.kinds, self.texts, self.starts = tokens
        self.at = 0
        self.builder = TreeBuilder(macros)
        self.optional_syntax = optional_syntax
        self.values: list[Expr] = []
        self.pending: list[_Pending] = []
        self.operand_next = True
        self.has_braces = "{" in self.kinds

    def run(self) -> Parsed:
        kinds = self.kinds
        while True:
            kind = kinds[self.at]
            handler = (_OPERAND if self.operand_next else _OPERATOR).get(kind)
            if handler is None:
                if kind == lexer.END and not self.operand_next:
                    break
                raise _Stuck
            handler(self)
        self.reduce(_TERNARY)
        if self.pending:
            raise _Stuck
        root = self.values.pop()
        builder = self.builder
        # Each nested operation takes a token of its own, so short expressions cannot be too deep.
        if len(kinds) > NESTING_MAX and _height(root, builder.macro_calls) > NESTING_MAX:
            raise _Stuck
        return Parsed(source=self.source, root=root, offsets=builder.offsets, macro_calls=builder.macro_calls)

    # Operands.

    def identifier(self) -> None:
        self.name("", self.at)

    def leading_dot(self) -> None:
        if self.kinds[self.at + 1] != lexer.IDENTIFIER:
            raise _Stuck
        self.name(".", self.at + 1)

    def name(self, prefix: str, at: int) -> None:
        """A variable, a call or a message literal, from its first identifier on."""
        text, following = self.texts[at], self.kinds[at + 1]
        if self.has_braces and self.message(prefix, at):
            return
        if text in RESERVED:
            raise _Stuck
        if following == "(":
            self.at = at + 1
            self.open_call(prefix + text, None)
            return
        self.values.append(Ident(id=self.builder.new_id(self.starts[at]), name=prefix + text))
        self.at = at + 1
        self.operand_next = False

    def message(self, prefix: str, at: int) -> bool:
        """Opens `Type.Name{`, if present here."""
        kinds, start = self.kinds, at
        while kinds[at + 1] == "." and kinds[at + 2] == lexer.IDENTIFIER:
            at += 2
        if kinds[at + 1] != "{":
            return False
        name = prefix + "".join(self.texts[start : at + 1])
        self.at = at + 1
        opener = self.open("struct", self.builder.new_id(self.starts[self.at]), name)
        if not self.closes_empty("}"):
            self.field(opener)
        return True

    def field(self, opener: _Pending) -> None:
        """`name:` or `?name:` of a message literal."""
        optional = self.question_mark()
        name = self.field_name()
        if self.kinds[self.at] != ":":
            raise _Stuck
        opener.marks = [self.builder.new_id(self.starts[self.at]), optional]
        opener.field = name
        self.at += 1
        self.operand_next = True

    def field_name(self) -> str:
        kind, text = self.kinds[self.at], self.texts[self.at]
        self.at += 1
        if kind == lexer.IDENTIFIER:
            return text
        if kind == lexer.ESCAPED_IDENTIFIER:
            return text[1:-1]
        raise _Stuck

    def question_mark(self) -> bool:
        if self.kinds[self.at] != "?":
            return False
        if not self.optional_syntax:
            raise _Stuck
        self.at += 1
        return True

    def literal(self) -> None:
        kind, text, start = self.kinds[self.at], self.texts[self.at], self.starts[self.at]
        value: bool | int | float | str | bytes | None
        if kind == lexer.STRING:
            value = lexer.string_value(text)
        elif kind == lexer.INT:
            value = lexer.int_value(text, False)
        else:
            value = _LITERALS[kind](text)
        self.value(Literal(id=self.builder.new_id(start), value=value))

    def value(self, node: Expr) -> None:
        """A complete operand."""
        self.values.append(node)
        self.at += 1
        self.operand_next = False

    def nots(self) -> None:
        self.signs("!", "!_")
        if self.kinds[self.at] == "-" and self.kinds[self.at + 1] not in (lexer.INT, lexer.FLOAT):
            raise _Stuck

    def minuses(self) -> None:
        start = self.at
        following = self.kinds[start + 1]
        if following in (lexer.INT, lexer.FLOAT):
            self.negative(following)
            return
        self.signs("-", "-_")
        if self.kinds[self.at] == "!":
            raise _Stuck

    def negative(self, kind: str) -> None:
        """A single sign before a literal belongs to it."""
        text, start = self.texts[self.at + 1], self.starts[self.at]
        value = lexer.int_value(text, True) if kind == lexer.INT else lexer.double_value(text, True)
        self.at += 1
        self.value(Literal(id=self.builder.new_id(start), value=value))

    def signs(self, sign: str, function: str) -> None:
        """A run of equal signs; an even number cancels out."""
        start = self.at
        while self.kinds[self.at] == sign:
            self.at += 1
        if (self.at - start) % 2:
            node_id = self.builder.new_id(self.starts[start])
            self.pending.append(_Pending(_UNARY, sign, node_id, function))

    def open_group(self) -> None:
        self.open("(")
        self.at += 1

    def open_list(self) -> None:
        opener = self.open("[", self.builder.new_id(self.starts[self.at]))
        if not self.closes_empty("]") and self.question_mark():
            opener.marks.append(0)

    def open_map(self) -> None:
        opener = self.open("{", self.builder.new_id(self.starts[self.at]))
        if not self.closes_empty("}"):
            self.open_entry(opener)

    def open_entry(self, opener: _Pending) -> None:
        """The entry's id comes before those of its key; its colon's position is known later."""
        opener.marks = [self.builder.new_id(0), self.question_mark()]

    def closes_empty(self, closer: str) -> bool:
        """Goes past the opener; true if it is closed at once, a lone comma allowed."""
        self.at += 1
        if self.kinds[self.at] == "," and self.kinds[self.at + 1] == closer:
            self.at += 1
        if self.kinds[self.at] != closer:
            return False
        self.operand_next = False
        opener = self.pending.pop()
        self.close(opener)
        return True

    def open(self, kind: str, node_id: int = 0, name: str = "", target: Expr | None = None) -> _Pending:
        opener = _Pending(_OPENER, kind, node_id, name, target)
        self.wait(opener)
        return opener

    def wait(self, pending: _Pending) -> None:
        """Upstream limits recursive rules; while fewer are pending here, no limit is exceeded."""
        self.pending.append(pending)
        if len(self.pending) >= NESTING_MAX - 1:
            raise _Stuck

    def open_call(self, name: str, target: Expr | None) -> None:
        """Goes past the opening parenthesis."""
        self.open("call", self.builder.new_id(self.starts[self.at]), name, target)
        self.at += 1
        self.operand_next = True
        if self.kinds[self.at] == ")":
            opener = self.pending.pop()
            self.close(opener)

    # Operators.

    def dot(self) -> None:
        """A selection or a call on what precedes it."""
        dot = self.starts[self.at]
        self.at += 1
        optional = self.question_mark()
        is_identifier, name_start = self.kinds[self.at] == lexer.IDENTIFIER, self.starts[self.at]
        name = self.field_name()
        operand = self.values.pop()
        if self.kinds[self.at] == "(" and is_identifier and not optional:
            self.open_call(name, operand)
        elif optional:
            literal = Literal(id=self.builder.new_id(name_start), value=name)
            node_id = self.builder.new_id(dot)
            self.values.append(Call(id=node_id, function="_?._", args=(operand, literal)))
        else:
            self.values.append(Select(id=self.builder.new_id(dot), operand=operand, field=name))

    def open_index(self) -> None:
        node_id = self.builder.new_id(self.starts[self.at])
        self.at += 1
        function = "_[?_]" if self.question_mark() else "_[_]"
        self.open("index", node_id, function, self.values.pop())
        self.operand_next = True

    def binary(self) -> None:
        level, function = _BINARY[self.kinds[self.at]]
        self.reduce(level)
        self.wait(_Pending(level, "", self.builder.new_id(self.starts[self.at]), function))
        self.at += 1
        self.operand_next = True

    def logical(self) -> None:
        """&& and || are kept as a flat list until the chain ends."""
        level, function = _LOGICAL[self.kinds[self.at]]
        self.reduce(level + 1)
        chain = self.pending[-1] if self.pending else None
        if chain is None or chain.level != level:
            chain = _Pending(level, "", name=function)
            self.pending.append(chain)
        else:
            chain.marks[-1] = self.builder.new_id(chain.marks[-1])
        chain.items.append(self.values.pop())
        # The operator's id comes after its right operand's; until then its offset is kept.
        chain.marks.append(self.starts[self.at])
        self.at += 1
        self.operand_next = True

    def question(self) -> None:
        self.reduce(_OR)
        # The part between ? and : is not a full expression: a second ? there is an error.
        if self.pending and self.pending[-1].kind == "?":
            raise _Stuck
        node_id = self.builder.new_id(self.starts[self.at])
        self.pending.append(_Pending(_OPENER, "?", node_id, target=self.values.pop()))
        self.at += 1
        self.operand_next = True

    def colon(self) -> None:
        self.reduce(_TERNARY)
        if not self.pending:
            raise _Stuck
        opener = self.pending[-1]
        if opener.kind == "?":
            opener.level, opener.kind = _TERNARY, ":"
            opener.items.append(self.values.pop())
        elif opener.kind == "{" and not opener.items:
            self.builder.offsets[opener.marks[0]] = self.starts[self.at]
            opener.items.append(self.values.pop())
        else:
            raise _Stuck
        self.at += 1
        self.operand_next = True

    def comma(self) -> None:
        self.reduce(_TERNARY)
        if not self.pending:
            raise _Stuck
        opener = self.pending[-1]
        if opener.kind not in ("call", "[", "{", "struct"):
            raise _Stuck
        self.take(opener)
        self.at += 1
        if opener.kind != "call" and self.kinds[self.at] == _CLOSER[opener.kind]:
            self.pending.pop()
            self.close(opener)
            return
        self.operand_next = True
        if opener.kind == "[" and self.question_mark():
            opener.marks.append(len(opener.items))
        elif opener.kind == "{":
            self.open_entry(opener)
        elif opener.kind == "struct":
            self.field(opener)

    def closer(self) -> None:
        self.reduce(_TERNARY)
        if not self.pending:
            raise _Stuck
        opener = self.pending.pop()
        if _CLOSER.get(opener.kind) != self.kinds[self.at]:
            raise _Stuck
        if opener.kind == "(":
            self.at += 1
            return
        self.take(opener)
        self.close(opener)

    def take(self, opener: _Pending) -> None:
        """The expression before a comma or closer becomes part of what was opened."""
        value = self.values.pop()
        if opener.kind == "{":
            if not opener.items:
                raise _Stuck
            entry_id, optional = opener.marks
            entry = MapEntry(id=entry_id, key=opener.items.pop(), value=value, optional=bool(optional))
            opener.entries.append(entry)
        elif opener.kind == "struct":
            entry_id, optional = opener.marks
            field = FieldInit(id=entry_id, field=opener.field, value=value, optional=bool(optional))
            opener.fields.append(field)
        else:
            opener.items.append(value)

    def close(self, opener: _Pending) -> None:
        """The node for what was opened; its closer is the current token."""
        kind, node_id = opener.kind, opener.id
        node: Expr
        if kind == "call":
            node = self.builder.call(node_id, opener.name, opener.target, opener.items)
        elif kind == "index":
            assert opener.target is not None, "an index is opened with the indexed expression"
            node = Call(id=node_id, function=opener.name, args=(opener.target, *opener.items))
        elif kind == "[":
            node = ListExpr(id=node_id, elements=tuple(opener.items), optional_indices=tuple(opener.marks))
        elif kind == "{":
            node = MapExpr(id=node_id, entries=tuple(opener.entries))
        elif kind == "struct":
            node = StructExpr(id=node_id, type_name=opener.name, fields=tuple(opener.fields))
        else:
            raise _Stuck
        self.value(node)

    def reduce(self, level: int) -> None:
        """Give every waiting operator that binds at least as strongly its right side."""
        pending, values = self.pending, self.values
        while pending and pending[-1].level >= level:
            operator = pending.pop()
            right = values.pop()
            if operator.level > _AND:
                args = (right,) if operator.level == _UNARY else (values.pop(), right)
                values.append(Call(id=operator.id, function=operator.name, args=args))
            elif operator.level == _TERNARY:
                assert operator.target is not None, "a condition stands before the question mark"
                args3 = (operator.target, operator.items[0], right)
                values.append(Call(id=operator.id, function="_?_:_", args=args3))
            else:
                operator.items.append(right)
                operator.marks[-1] = self.builder.new_id(operator.marks[-1])
                values.append(balanced(operator.name, operator.items, operator.marks))


# Operations that upstream counts when it limits the depth of a tree; lists, maps and logical operators are not.
_COUNTED = frozenset(("_?_:_", "_[_]", "_[?_]", "_?._", *BINARY_FUNCTIONS.values()))


def _height(root: Expr, macro_calls: dict[int, Expr]) -> int:
    """The number of counted operations on the longest path down the tree as written."""
    deepest = 0
    stack = [(root, 0)]
    while stack:
        node, depth = stack.pop()
        written = macro_calls.get(node.id, node)
        if isinstance(written, Select) or (
            isinstance(written, Call) and (written.target is not None or written.function in _COUNTED)
        ):
            depth += 1
            deepest = max(deepest, depth)
        stack.extend((child, depth) for child in children(written))
    return deepest


_LITERALS: dict[str, Callable[[str], bool | int | float | str | bytes | None]] = {
    lexer.UINT: lexer.uint_value,
    lexer.FLOAT: lambda text: lexer.double_value(text, False),
    lexer.BYTES: lexer.bytes_value,
    "true": lambda _: True,
    "false": lambda _: False,
    "null": lambda _: None,
}
_OPERAND: dict[str, Callable[[_Parse], None]] = {
    lexer.IDENTIFIER: _Parse.identifier,
    lexer.STRING: _Parse.literal,
    lexer.INT: _Parse.literal,
    **dict.fromkeys(_LITERALS, _Parse.literal),
    ".": _Parse.leading_dot,
    "!": _Parse.nots,
    "-": _Parse.minuses,
    "(": _Parse.open_group,
    "[": _Parse.open_list,
    "{": _Parse.open_map,
}
_OPERATOR: dict[str, Callable[[_Parse], None]] = {
    ".": _Parse.dot,
    "[": _Parse.open_index,
    **dict.fromkeys(_BINARY, _Parse.binary),
    **dict.fromkeys(_LOGICAL, _Parse.logical),
    "?": _Parse.question,
    ":": _Parse.colon,
    ",": _Parse.comma,
    **dict.fromkeys((")", "]", "}"), _Parse.closer),
}
