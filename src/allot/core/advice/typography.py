"""Repairs YAML from word processors and web pages: dashes, spaces and quotes that only look right.

Works on text, before parsing. A repair keeps the length of a piece, so places stay valid.
"""

from __future__ import annotations

import re

import msgspec

_DASHES = "\u2010\u2011\u2012\u2013\u2014\u2015\u2212"
# A line of one to three dashes, at least one of which is not a hyphen.
ODD_SEPARATOR = re.compile(rf"^(?=[-{_DASHES}]*[{_DASHES}])[-{_DASHES}]{{1,3}}[ \t\r]*$", re.MULTILINE)
_SEPARATOR = re.compile(rf"^(?:---(?=\s|$)|(?=[-{_DASHES}]*[{_DASHES}])[-{_DASHES}]{{1,3}}(?=[ \t\r]*$))", re.MULTILINE)
_ODD_BULLET = re.compile(rf"^[ \u00a0]*([{_DASHES}\u2022])(?=[ \u00a0]\S)", re.MULTILINE)
_SPACES = "\u00a0\u2002\u2003\u2009\u202f\u3000"
_INDENTATION = re.compile(rf"^[ \t]*[{_SPACES}][ \t{_SPACES}]*", re.MULTILINE)
_ODD_STARTS = frozenset((*_DASHES, "\u2022", *_SPACES))
_QUOTES = {"\u201c": '"', "\u201d": '"', "\u201e": '"', "\u201f": '"', "\u2018": "'", "\u2019": "'", "\u201a": "'"}
_QUOTED_VALUE = re.compile("([\u201c\u201d\u201e\u201f\u2018\u2019\u201a]).*([\u201c\u201d\u2018\u2019])", re.DOTALL)


class Piece(msgspec.Struct, frozen=True):
    """A part of a stream between separators: where its text begins, and the separator before it if that is invalid."""

    text: str
    start: int
    line: int
    odd_separator: tuple[int, int] | None = None


class Slip(msgspec.Struct, frozen=True):
    """A character that is not what it looks like. Its line counts from 0 in the piece, its column from 1."""

    start: int
    end: int
    right: str
    what: str
    line: int
    column: int


def pieces(text: str) -> list[Piece]:
    """The stream split at its separators. A valid separator stays with the piece that it begins; an invalid one does not."""
    cuts = [match for match in _SEPARATOR.finditer(text) if match.start() > 0 or match.group() != "---"]
    found: list[Piece] = []
    start, line, odd = 0, 1, None
    for cut in [*cuts, None]:
        end = cut.start() if cut is not None else len(text)
        found.append(Piece(text[start:end], start, line, odd))
        if cut is None:
            break
        is_odd = cut.group() != "---"
        # Separators contain no line break.
        line += text.count("\n", start, end)
        start, odd = (cut.end(), cut.span()) if is_odd else (cut.start(), None)
    return found


def slips(text: str) -> list[Slip]:
    """Bullets and indentation in characters that YAML does not accept. Each keeps its length."""
    wrong = [(match.span(1), "-", "a bullet that is not a hyphen") for match in _ODD_BULLET.finditer(text)]
    for match in _INDENTATION.finditer(text):
        right = " " * (match.end() - match.start())
        wrong.append((match.span(), right, "indentation with a space that is not the normal one"))
    found: list[Slip] = []
    line = seen = 0
    for (start, end), right, what in sorted(wrong):
        line += text.count("\n", seen, start)
        seen = start
        column = start - (text.rfind("\n", 0, start) + 1) + 1
        found.append(Slip(start, end, right, what, line, column))
    return found


def is_odd_start(text: str) -> bool:
    """Whether a text begins with a character that only looks like a bullet or a space."""
    return text[:1] in _ODD_STARTS if text else False


def mended(text: str, found: list[Slip]) -> str:
    """The text with the right characters."""
    parts, end = [], 0
    for slip in found:
        parts += [text[end : slip.start], slip.right]
        end = slip.end
    return "".join([*parts, text[end:]])


def has_typographic_quotes(text: str) -> bool:
    """Whether the text contains typographic quotes."""
    return any(quote in text for quote in _QUOTES)


def is_quoted_in_print(text: str) -> bool:
    """Whether the whole text is in typographic quotes."""
    return _QUOTED_VALUE.fullmatch(text) is not None


def with_plain_quotes(text: str) -> str:
    """The text with straight quotes."""
    return text.translate({ord(quote): plain for quote, plain in _QUOTES.items()})
