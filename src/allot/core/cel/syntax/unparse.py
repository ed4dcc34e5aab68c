"""The source text of a part of an expression, for messages that show it.

Literals are repeated as they were written and macros as they were called; spacing and parentheses are normalized.
Beyond a certain depth an ellipsis stands for the rest: the text is for display.
"""

from __future__ import annotations

from collections.abc import Sequence

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
from allot.core.cel.syntax.lexer import BYTES, FLOAT, INT, STRING, UINT, Token, next_token

DEPTH_MAX = 60

_TERNARY, _OR, _AND, _RELATION, _SUM, _PRODUCT, _UNARY, _MEMBER = range(8)
_BINARY = {
    "_||_": (_OR, "||"),
    "_&&_": (_AND, "&&"),
    "_==_": (_RELATION, "=="),
    "_!=_": (_RELATION, "!="),
    "_<_": (_RELATION, "<"),
    "_<=_": (_RELATION, "<="),
    "_>_": (_RELATION, ">"),
    "_>=_": (_RELATION, ">="),
    "@in": (_RELATION, "in"),
    "_+_": (_SUM, "+"),
    "_-_": (_SUM, "-"),
    "_*_": (_PRODUCT, "*"),
    "_/_": (_PRODUCT, "/"),
    "_%_": (_PRODUCT, "%"),
}
_PREFIX = {"!_": "!", "-_": "-"}
_LITERAL_TOKENS = (STRING, BYTES, INT, UINT, FLOAT)


def unparse(node: Expr, parsed: Parsed) -> str:
    """The text of a node of the parsed expression."""
    return _Unparser(parsed).text(node, _TERNARY, 0)


class _Unparser:
    def __init__(self, parsed: Parsed) -> None:
        self.parsed = parsed

    def text(self, node: Expr, level: int, depth: int) -> str:
        """The text of a node, in parentheses if it binds less than the level."""
        if depth > DEPTH_MAX:
            return "…"
        written = self.parsed.macro_calls.get(node.id, node)
        text, own_level = self.bare(written, depth + 1)
        return f"({text})" if own_level < level else text

    def bare(self, node: Expr, depth: int) -> tuple[str, int]:
        match node:
            case Literal():
                text = self.literal(node)
                return text, _UNARY if text.startswith("-") else _MEMBER
            case Ident():
                return node.name, _MEMBER
            case Select(test_only=True):
                return f"has({self.text(node.operand, _MEMBER, depth)}.{_field(node.field)})", _MEMBER
            case Select():
                return f"{self.text(node.operand, _MEMBER, depth)}.{_field(node.field)}", _MEMBER
            case Call():
                return self.call(node, depth)
            case ListExpr():
                return f"[{self.elements(node, depth)}]", _MEMBER
            case MapExpr():
                entries = [
                    f"{'?' * entry.optional}{self.text(entry.key, 0, depth)}: {self.text(entry.value, 0, depth)}"
                    for entry in node.entries
                ]
                return f"{{{', '.join(entries)}}}", _MEMBER
            case StructExpr():
                fields = [
                    f"{'?' * field.optional}{_field(field.field)}: {self.text(field.value, 0, depth)}"
                    for field in node.fields
                ]
                return f"{node.type_name}{{{', '.join(fields)}}}", _MEMBER
            case Comprehension():
                # Only macros create these, and the macro call is shown instead.
                return self.text(node.result, _MEMBER, depth), _MEMBER

    def call(self, node: Call, depth: int) -> tuple[str, int]:
        function, args = node.function, node.args
        if node.target is not None:
            return f"{self.text(node.target, _MEMBER, depth)}.{function}({self.list(args, depth)})", _MEMBER
        if function in _BINARY and len(args) == 2:
            level, symbol = _BINARY[function]
            # && and || are associative; the others group to the left.
            right_level = level if level in (_OR, _AND) else level + 1
            left, right = self.text(args[0], level, depth), self.text(args[1], right_level, depth)
            return f"{left} {symbol} {right}", level
        if function in _PREFIX:
            return f"{_PREFIX[function]}{self.text(args[0], _UNARY + 1, depth)}", _UNARY
        if function == "_?_:_":
            condition, yes = self.text(args[0], _OR, depth), self.text(args[1], _OR, depth)
            return f"{condition} ? {yes} : {self.text(args[2], _TERNARY, depth)}", _TERNARY
        if function in ("_[_]", "_[?_]"):
            mark = "?" if function == "_[?_]" else ""
            return f"{self.text(args[0], _MEMBER, depth)}[{mark}{self.text(args[1], 0, depth)}]", _MEMBER
        if function == "_?._" and isinstance(args[1], Literal):
            return f"{self.text(args[0], _MEMBER, depth)}.?{_field(str(args[1].value))}", _MEMBER
        return f"{function}({self.list(args, depth)})", _MEMBER

    def list(self, nodes: Sequence[Expr], depth: int) -> str:
        return ", ".join([self.text(node, 0, depth) for node in nodes])

    def elements(self, node: ListExpr, depth: int) -> str:
        marks = ["?" if index in node.optional_indices else "" for index in range(len(node.elements))]
        return ", ".join(
            [mark + self.text(element, 0, depth) for mark, element in zip(marks, node.elements, strict=True)]
        )

    def literal(self, node: Literal) -> str:
        value = node.value
        if value is None:
            return "null"
        if isinstance(value, bool):
            return "true" if value else "false"
        offset = self.parsed.offsets.get(node.id, -1)
        if offset >= 0:
            token, end = next_token(self.parsed.source, offset)
            if isinstance(token, Token) and token.start == offset and token.kind in _LITERAL_TOKENS:
                return token.text
            if isinstance(token, Token) and token.kind == "-" and token.start == offset:
                number, _ = next_token(self.parsed.source, end)
                return f"-{number.text}"
        return _made_up(value)


def _made_up(value: int | float | str | bytes) -> str:
    """A literal without source text."""
    if isinstance(value, bytes):
        return repr(value)
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r")
        return f'"{escaped}"'
    return repr(value) if isinstance(value, float | UInt) else str(value)


def _field(name: str) -> str:
    """A field name, in backticks if it is not a plain identifier."""
    return name if name.isidentifier() and name.isascii() else f"`{name}`"
