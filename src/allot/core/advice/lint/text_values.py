"""Edits a string value in place: maps the characters of a value to its YAML, in any style.

A multi-line expression keeps its lines: only differing tokens are changed. If a value cannot be mapped to its text, for example
because of a rare escape, there is no edit.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from difflib import SequenceMatcher

from allot.core.advice.lint.finding import Edit
from allot.core.cel.syntax import lexer

# The limit of compared tokens; the time to compare grows with their square.
_TOKENS_MAX = 600
_SPACE = re.compile(r"[ \t\n\r]+")
_BLOCK_HEADER = re.compile(r"[|>][+-]?[ \t]*(?:#[^\n]*)?\r?\n")
_ESCAPES = {'\\"': '"', "\\\\": "\\", "\\/": "/"}
_ESCAPED_SPACES = ("\\n", "\\t", "\\r", "\\ ")

_Token = tuple[str, int, int]  # text, start, end


def token_edits(raw: str, start: int, old: str, new: str) -> tuple[Edit, ...]:
    """The edits that turn one expression into another. raw: the YAML of the old one, which begins at that offset."""
    places = _places(raw, old)
    before, after = _tokens(old), _tokens(new)
    if places is None or before is None or after is None or max(len(before), len(after)) > _TOKENS_MAX:
        return ()
    matcher = SequenceMatcher(None, [token[0] for token in before], [token[0] for token in after], autojunk=False)
    edits = []
    for tag, first, last, new_first, new_last in matcher.get_opcodes():
        if tag == "equal":
            continue
        # Including the spaces before, so that inserted text is spaced as in the new expression.
        begin, end = _span(before, first, last)
        if tag == "delete" and not first and last < len(before):
            # The following spaces must not become indentation.
            begin, end = before[0][1], before[last][1]
        text = new[slice(*_span(after, new_first, new_last))]
        if old[begin:end][:1].isspace() and text[:1].isspace():
            begin += len(old[begin:end]) - len(old[begin:end].lstrip())
            text = text.lstrip()
        edits.append(Edit(start + places[begin], start + places[end], _escaped(_SPACE.sub(" ", text), raw[:1])))
    return tuple(edits)


def span_of(part: str, expression: str) -> tuple[int, int] | None:
    """The position of a part of an expression, regardless of spacing; None unless it occurs exactly once."""
    wanted, tokens = _tokens(part), _tokens(expression)
    if not wanted or tokens is None:
        return None
    texts, looked_for = [token[0] for token in tokens], [token[0] for token in wanted]
    found = [
        index
        for index in range(len(texts) - len(looked_for) + 1)
        if texts[index] == looked_for[0] and texts[index : index + len(looked_for)] == looked_for
    ]
    if len(found) != 1:
        return None
    return tokens[found[0]][1], tokens[found[0] + len(looked_for) - 1][2]


def _tokens(expression: str) -> list[_Token] | None:
    scanned = lexer.scan(expression)
    if scanned is None:
        return None
    return [(text, start, start + len(text)) for kind, text, start in zip(*scanned, strict=True) if kind != lexer.END]


def _span(tokens: list[_Token], first: int, last: int) -> tuple[int, int]:
    """From the end of the previous token to the end of the last one."""
    begin = tokens[first - 1][2] if first else 0
    return begin, tokens[last - 1][2] if last > first else begin


def _escaped(text: str, style: str) -> str:
    """The text as written in a scalar that begins with this character."""
    if style == '"':
        return text.replace("\\", "\\\\").replace('"', '\\"')
    return text.replace("'", "''") if style == "'" else text


# --- positions of characters ---


def _places(raw: str, value: str) -> list[int] | None:
    """The offset in the YAML of each character of the value, and of its end; None if it cannot be mapped."""
    found: list[int] = []
    position = _body(raw)
    for text, is_space in _pieces(value):
        if is_space:
            begin, position = position, _after_space(raw, position)
            if begin == position:
                return None
            # Line ends and indentation may fold into one space: only the ends of such a piece have a position.
            found += [begin] * len(text)
            continue
        if not found:
            position = _after_space(raw, position)
        for character in text:
            found.append(position)
            after = _after(raw, position, character)
            if after is None:
                return None
            position = after
    return [*found, position]


def _body(raw: str) -> int:
    header = _BLOCK_HEADER.match(raw)
    return header.end() if header is not None else 1 if raw[:1] in ('"', "'") else 0


def _pieces(value: str) -> Iterator[tuple[str, bool]]:
    end = 0
    for match in _SPACE.finditer(value):
        if match.start() > end:
            yield value[end : match.start()], False
        yield match.group(), True
        end = match.end()
    if end < len(value):
        yield value[end:], False


def _after_space(raw: str, position: int) -> int:
    while True:
        match = _SPACE.match(raw, position)
        if match is not None:
            position = match.end()
        elif raw[:1] == '"' and raw[position : position + 2] in (*_ESCAPED_SPACES, "\\\n"):
            position += 2
        else:
            return position


def _after(raw: str, position: int, character: str) -> int | None:
    """The position after a character of the value; None if another character is there."""
    style = raw[:1]
    pair = raw[position : position + 2]
    if style == "'" and character == "'":
        return position + 2 if pair == "''" else None
    if style == '"' and pair[:1] == "\\":
        return position + 2 if _ESCAPES.get(pair) == character else None
    return position + 1 if pair[:1] == character else None
