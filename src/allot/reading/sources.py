"""Texts for commands that give advice: reads as much as possible, and notes errors instead of raising them.

A text that is invalid YAML in one place may be valid in others: it is split at its separators, including typographic ones, and each
piece is read on its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from allot.core.advice.lint.finding import Edit, Fix
from allot.core.advice.lint.source import Flaw, Source, Written
from allot.core.advice.typography import Piece, Slip, has_typographic_quotes, is_odd_start, mended, pieces, slips
from allot.reading.documents import Malformed, decoded, parse_documents, yaml_documents
from allot.reading.errors import Unreadable
from allot.yaml_values.reader import Document

_TEMPLATE = re.compile(r"^[^#\n]*\{\{.*\}\}", re.MULTILINE)
_TAB = re.compile(r"^ *\t", re.MULTILINE)
_FENCE = re.compile(r"^```", re.MULTILINE)
_TEXT_RULE, _SEPARATOR_RULE, _CHARACTER_RULE = "not-yaml", "document-separator", "typographic-character"
DOCUMENTS_MAX = 200_000


def read_source(data: bytes, name: str) -> Source:
    """The documents of a text and its flaws. Unreadable only if it is not text at all."""
    text = decoded(data, name)
    if text.lstrip()[:1] in ("{", "["):
        try:
            return Source(name, text, tuple(map(_written, parse_documents(data, name, places=True))))
        except Malformed as error:
            return Source(name, text, (), (_flaw(error, text, 1),))
        except Unreadable as error:
            message = error.message.removeprefix(f"{name}: ")
            return Source(name, text, (), (Flaw(rule=_TEXT_RULE, line=1, column=1, message=message),))
    documents: list[Written] = []
    flaws: list[Flaw] = []
    found_pieces = pieces(text)
    if len(found_pieces) > DOCUMENTS_MAX:
        raise Unreadable(f"{name}: more than {DOCUMENTS_MAX} documents: expected fewer in one file")
    for piece in found_pieces:
        if piece.odd_separator is not None:
            flaws.append(_separator_flaw(piece, text))
        found, wrong = _read_piece(piece, name)
        documents += map(_written, found)
        flaws += wrong
    return Source(name, text, tuple(documents), tuple(flaws))


def _written(document: Document) -> Written:
    return Written(document.value, document.line, document.places)


def _read_piece(piece: Piece, name: str) -> tuple[list[Document], list[Flaw]]:
    found = slips(piece.text)
    try:
        documents = _documents(piece, piece.text, name)
    except Malformed as error:
        return _read_mended(piece, found, name) or ([], [_flaw(error, piece.text, piece.line)])
    # Text may contain any character, but no key begins with one of these.
    odd_lines = {
        place.line
        for document in documents
        for path, place in document.places.items()
        if path and isinstance(path[-1], str) and is_odd_start(path[-1])
    }
    found = [slip for slip in found if piece.line + slip.line in odd_lines]
    return _read_mended(piece, found, name) or (documents, [])


def _read_mended(piece: Piece, found: list[Slip], name: str) -> tuple[list[Document], list[Flaw]] | None:
    """The piece read with corrected characters; None if there are none to correct, or that does not help."""
    if not found:
        return None
    try:
        return _documents(piece, mended(piece.text, found), name), list(_slip_flaws(piece, found))
    except Malformed:
        return None


def _documents(piece: Piece, text: str, name: str) -> list[Document]:
    return yaml_documents(text, name, places=True, first_line=piece.line, first_offset=piece.start)


def _slip_flaws(piece: Piece, found: list[Slip]) -> Iterator[Flaw]:
    for slip in found:
        edit = Edit(piece.start + slip.start, piece.start + slip.end, slip.right)
        yield Flaw(
            rule=_CHARACTER_RULE,
            line=piece.line + slip.line,
            column=slip.column,
            message=slip.what,
            fix=Fix("use a plain hyphen or space", (edit,)),
        )


def _separator_flaw(piece: Piece, text: str) -> Flaw:
    assert piece.odd_separator is not None
    start, end = piece.odd_separator
    return Flaw(
        rule=_SEPARATOR_RULE,
        # The piece begins right after its separator.
        line=piece.line,
        column=1,
        message=f"{text[start:end]!r} is written with a dash that is not a hyphen: it does not separate documents",
        fix=Fix("write ---", (Edit(start, end, "---"),)),
    )


def _flaw(error: Malformed, text: str, first_line: int) -> Flaw:
    cause = error.hint or _likely_cause(text, first_line)
    return Flaw(
        rule=_TEXT_RULE,
        line=error.line,
        column=error.column,
        message=error.problem,
        fix=Fix(cause) if cause is not None else None,
    )


def _likely_cause(text: str, first_line: int) -> str | None:
    def line(match: re.Match[str]) -> int:
        return first_line + text.count("\n", 0, match.start())

    template, tab, fence = _TEMPLATE.search(text), _TAB.search(text), _FENCE.search(text)
    if template is not None:
        return f"line {line(template)} has an unfilled template: render it first, for example with helm template"
    if fence is not None:
        return f"line {line(fence)} is the fence of a Markdown block: give only what is inside"
    if tab is not None:
        return f"line {line(tab)} is indented with a tab: YAML allows only spaces"
    if has_typographic_quotes(text):
        return "typographic quotes (\u201c \u201d) are text in YAML: write \" or '"
    return None
