"""Tokens of CEL source text.

One compiled pattern recognizes every token, so scanning is linear. `scan` is the fast way for well-formed text and
gives up (returns None) at the first character that starts no token; `next_token` continues from any offset and says
which characters upstream's lexer would complain about. Literals are decoded here too. Knows no grammar.
"""

from __future__ import annotations

import math
import re

import msgspec

from allot.core.cel.syntax.ast import UInt

# Kinds of tokens that are not their own text.
IDENTIFIER = "IDENTIFIER"
ESCAPED_IDENTIFIER = "ESC_IDENTIFIER"
FLOAT = "NUM_FLOAT"
INT = "NUM_INT"
UINT = "NUM_UINT"
STRING = "STRING"
BYTES = "BYTES"
END = "<EOF>"

KEYWORDS = frozenset(("in", "true", "false", "null"))

_ESCAPE = r"""\\(?:[abfnrtv"'\\?`]|[xX][0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[0-3][0-7]{2})"""
_QUOTED = (
    rf'"""(?:{_ESCAPE}|[^\\])*?"""' + rf"|'''(?:{_ESCAPE}|[^\\])*?'''"
    rf'|"(?:[^\\"\n\r]|{_ESCAPE})*"' + rf"|'(?:[^\\'\n\r]|{_ESCAPE})*'"
)
_RAW = r"""[rR](?:\"{3}[\s\S]*?\"{3}|'{3}[\s\S]*?'{3}|"[^"\n\r]*"|'[^'\n\r]*')"""
# In the order of the groups below. Where two alternatives match, the longer one comes first, as upstream's lexer
# prefers it: strings with a prefix before identifiers, floats before integers, comments before the slash.
_TOKEN = re.compile(
    r"(?:[ \t\r\n\f]+|//[^\n]*)*"
    rf"(?:({_QUOTED}|{_RAW})|([bB](?:{_QUOTED}|{_RAW}))"
    r"|([A-Za-z_][A-Za-z0-9_]*)"
    r"|([0-9]+\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+|\.[0-9]+(?:[eE][+-]?[0-9]+)?)"
    r"|((?:0x[0-9a-fA-F]+|[0-9]+)[uU])|(0x[0-9a-fA-F]+|[0-9]+)"
    r"|(==|!=|<=|>=|&&|\|\||[\[\]{}().,\-!?:+*/%<>])"
    r"|(`[A-Za-z0-9_./ -]+`)|(\Z)|([\s\S]))"
)
_KIND_OF_GROUP = ("", STRING, BYTES, IDENTIFIER, FLOAT, UINT, INT, "", ESCAPED_IDENTIFIER, END, "")
_IDENTIFIER_GROUP, _OPERATOR_GROUP, _END_GROUP, _BAD_GROUP = 3, 7, 9, 10

# The longest start of a token among the characters that complete none; the character after it is the one that
# upstream reports and skips.
_UNFINISHED = re.compile(
    r'"(?:[^\\"\n\r]|' + _ESCAPE + r")*(?:\\(?:[xX][0-9a-fA-F]?|u[0-9a-fA-F]{0,3}|U[0-9a-fA-F]{0,7}|[0-3][0-7]?)?)?"
    r"|'(?:[^\\'\n\r]|" + _ESCAPE + r")*(?:\\(?:[xX][0-9a-fA-F]?|u[0-9a-fA-F]{0,3}|U[0-9a-fA-F]{0,7}|[0-3][0-7]?)?)?"
    r"|`[A-Za-z0-9_./ -]*|[&|=]|"
)


class Token(msgspec.Struct, frozen=True):
    """A token: its kind (operators, keywords: their text), its text, where it starts (in code points)."""

    kind: str
    text: str
    start: int


class Unrecognized(msgspec.Struct, frozen=True):
    """Characters that start no token."""

    text: str
    start: int


class BadLiteral(ValueError):
    """A literal that is well-formed but has no value, such as an integer out of range."""


def scan(source: str) -> tuple[list[str], list[str], list[int]] | None:
    """Kinds, texts and offsets of all tokens, the end included; None if the text contains anything else."""
    kinds: list[str] = []
    texts: list[str] = []
    starts: list[int] = []
    kind_of = _KIND_OF_GROUP
    for match in _TOKEN.finditer(source):
        group = match.lastindex
        assert group is not None, "every match ends in one of the groups"
        text = match.group(group)
        if group == _OPERATOR_GROUP or (group == _IDENTIFIER_GROUP and text in KEYWORDS):
            kinds.append(text)
        elif group == _BAD_GROUP:
            return None
        else:
            kinds.append(kind_of[group])
        texts.append(text)
        starts.append(match.start(group))
        if group == _END_GROUP:
            break
    return kinds, texts, starts


def next_token(source: str, position: int) -> tuple[Token | Unrecognized, int]:
    """The token at or after position, or what could not be recognized there, and where to continue."""
    match = _TOKEN.match(source, position)
    assert match is not None, "the pattern matches anywhere"
    group = match.lastindex
    assert group is not None, "every match ends in one of the groups"
    text, start = match.group(group), match.start(group)
    if group == _END_GROUP:
        return Token(END, END, len(source)), len(source)
    if group == _BAD_GROUP:
        unfinished = _UNFINISHED.match(source, start)
        assert unfinished is not None, "the pattern matches the empty string"
        stop = min(unfinished.end() + 1, len(source))
        return Unrecognized(source[start:stop], start), stop
    if group == _OPERATOR_GROUP or (group == _IDENTIFIER_GROUP and text in KEYWORDS):
        return Token(text, text, start), match.end()
    return Token(_KIND_OF_GROUP[group], text, start), match.end()


def int_value(text: str, negative: bool) -> int:
    """The value of an int literal."""
    value = _magnitude(text)
    value = -value if negative else value
    if not -(2**63) <= value < 2**63:
        raise BadLiteral("invalid int literal")
    return value


def uint_value(text: str) -> UInt:
    """The value of a uint literal, whose text ends in u."""
    value = _magnitude(text[:-1])
    if value >= 2**64:
        raise BadLiteral("invalid uint literal")
    return UInt(value)


def double_value(text: str, negative: bool) -> float:
    """The value of a floating point literal."""
    value = float(text)
    if math.isinf(value):
        raise BadLiteral("invalid double literal")
    return -value if negative else value


def _magnitude(text: str) -> int:
    """The number behind digits; anything beyond 64 bits becomes some number beyond 64 bits."""
    digits, base = (text[2:], 16) if text.startswith("0x") else (text, 10)
    digits = digits.lstrip("0")
    # More digits than any 64-bit number has; Python refuses to parse very long ones.
    return int(digits or "0", base) if len(digits) <= 20 else 2**80


def string_value(text: str) -> str:
    """The value of a string literal, quotes and prefix included in text."""
    body, raw = _body(text)
    if raw or "\\" not in body:
        return body
    return _ESCAPES.sub(_unescape_in_string, body)


def bytes_value(text: str) -> bytes:
    """The value of a bytes literal, quotes and prefix included in text."""
    body, raw = _body(text[1:])
    if raw or "\\" not in body:
        return body.encode()
    pieces: list[bytes] = []
    position = 0
    for match in _ESCAPES.finditer(body):
        pieces.append(body[position : match.start()].encode())
        pieces.append(_unescape_in_bytes(match))
        position = match.end()
    pieces.append(body[position:].encode())
    return b"".join(pieces)


def _body(text: str) -> tuple[str, bool]:
    """What is between the quotes, with line ends as \\n, and whether it is raw."""
    raw = text[0] in "rR"
    if raw:
        text = text[1:]
    quotes = 3 if len(text) >= 6 and text[:3] in ('"""', "'''") else 1
    body = text[quotes:-quotes]
    if "\r" in body:
        body = body.replace("\r\n", "\n").replace("\r", "\n")
    return body, raw


_ESCAPES = re.compile(r"\\(?:([abfnrtv\"'\\?`])|[xX](..)|u(.{4})|U(.{8})|([0-3]..))")
_SIMPLE = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


def _unescape_in_string(match: re.Match[str]) -> str:
    simple, byte, short, long, octal = match.groups()
    if simple is not None:
        return _SIMPLE.get(simple, simple)
    code = int(octal, 8) if octal is not None else int(byte or short or long, 16)
    if code > 0x10FFFF or 0xD800 <= code <= 0xDFFF:
        raise BadLiteral("invalid unicode code point")
    return chr(code)


def _unescape_in_bytes(match: re.Match[str]) -> bytes:
    simple, byte, short, long, octal = match.groups()
    if simple is not None:
        return _SIMPLE.get(simple, simple).encode()
    if short is not None or long is not None:
        raise BadLiteral("unable to unescape string")
    return bytes((int(octal, 8) if octal is not None else int(byte, 16),))
