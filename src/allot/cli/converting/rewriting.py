"""Rewrites a document for a new value: unchanged parts keep their text, with comments, order and style.

Entries that moved, such as the fields of a request under `exactly`, take their lines along. The result is parsed again and
compared; if it differs from the value (anchors, unusual layouts), the document is written again without its comments.
"""

from __future__ import annotations

import json
from typing import Any

from allot.cli.errors import Unreadable
from allot.core.advice.places import Path, Place, Places, Span
from allot.reading.documents import parse_documents
from allot.yaml_values.writer import yaml_text

_INDENT = 2


def extent(text: str, places: Places) -> Span:
    """The span of a document's own text: from its first character to the end of its last line."""
    start, end = places[()].value
    end = start + len(text[start:end].rstrip())
    line_end = text.find("\n", end)
    return start, line_end if line_end >= 0 else len(text)


def rewritten(text: str, places: Places, old: Any, new: Any) -> str:
    """The document's own text for the new value."""
    start, end = extent(text, places)
    if old == new:
        return text[start:end]
    if text[start] in "{[":
        return json.dumps(new, ensure_ascii=False, indent=2)
    if isinstance(old, dict) and isinstance(new, dict):
        first = text.rfind("\n", 0, start) + 1
        try:
            made = "\n".join(_Rewriting(text[first:end], _moved_back(places, first), old).mapping(new, (), 0))
            (document,) = parse_documents(f"{made}\n".encode(), "")
        except (_Unlike, Unreadable, ValueError):
            return written(new)
        if document.value == new:
            return made
    return written(new)


def _moved_back(places: Places, by: int) -> Places:
    """Places shifted to a later start."""

    def span(given: Span) -> Span:
        return given[0] - by, given[1] - by

    return {
        path: Place(place.line, place.column, span(place.value), None if place.key is None else span(place.key))
        for path, place in places.items()
    }


def written(value: Any) -> str:
    """A new document's text."""
    return yaml_text(value).rstrip("\n")


class _Unlike(Exception):
    """The layout is none that lines can be taken from."""


class _Rewriting:
    """One document."""

    def __init__(self, text: str, places: Places, old: dict[str, Any]) -> None:
        self.text = text
        self.places = places
        self.old = old
        self.lines = text.split("\n")
        self.starts = [0]
        for line in self.lines:
            self.starts.append(self.starts[-1] + len(line) + 1)
        # Text before the document is not part of it.
        self.top = self._line_of(places[()].value[0])
        self.used: set[Path] = set()
        # Entries of block mappings by key and value, to find those that moved.
        self.by_content: dict[tuple[str, str], list[Path]] = {}
        self._index(old, ())

    def _index(self, value: Any, path: Path) -> None:
        if path and not self._is_block(path):
            return
        if isinstance(value, dict):
            for key, item in value.items():
                below = (*path, key)
                if below in self.places:
                    self.by_content.setdefault((key, _canonical(item)), []).append(below)
                    self._index(item, below)
        elif isinstance(value, list):
            for number, item in enumerate(value):
                if (*path, number) in self.places:
                    self._index(item, (*path, number))

    # --- lines of the old text ---

    def _is_block(self, path: Path) -> bool:
        place = self.places.get(path)
        return place is not None and self.text[place.value[0] : place.value[0] + 1] not in ("{", "[", "*", "&", "!")

    def _line_of(self, offset: int) -> int:
        """The number of the line, from 0, with the offset."""
        low, high = 0, len(self.lines) - 1
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self.starts[middle] <= offset else (low, middle - 1)
        return low

    def _place(self, path: Path) -> Place:
        place = self.places.get(path)
        if place is None or place.key is None:
            raise _Unlike
        return place

    def _last_line(self, path: Path) -> int:
        start, end = self.places[path].value
        key = self.places[path].key
        # A block scalar ends where the next line begins, which may be beyond the document.
        end = min(end, len(self.text))
        while end > start and self.text[end - 1] in " \t\r\n":
            end -= 1
        # An empty value is where its key is.
        return self._line_of(max(end - 1, key[0] if key is not None else start))

    def _first_line(self, path: Path) -> int:
        """The first line of an entry, with the comments directly above it."""
        key = self._place(path).key
        assert key is not None
        line = self._line_of(key[0])
        column = key[0] - self.starts[line]
        return line if self.lines[line][:column].strip() else self._with_comments(line, column)

    def _with_comments(self, line: int, column: int) -> int:
        """The first of the comments directly above a line with the same indentation."""
        while line > self.top:
            above = self.lines[line - 1]
            if not above.lstrip().startswith("#") or len(above) - len(above.lstrip()) != column:
                break
            line -= 1
        return line

    def _column(self, path: Path) -> int:
        key = self._place(path).key
        assert key is not None
        return key[0] - self.starts[self._line_of(key[0])]

    def _entry(self, path: Path, indent: int) -> list[str]:
        """All lines of an entry, at another indentation."""
        first, last, column = self._first_line(path), self._last_line(path), self._column(path)
        lines = self.lines[first : last + 1]
        key = self._place(path).key
        assert key is not None
        if first == self._line_of(key[0]):
            lines = [" " * column + lines[0][column:], *lines[1:]]
        self.used.add(path)
        return [_shifted(line, indent - column) for line in lines]

    def _head(self, path: Path, indent: int) -> list[str]:
        """The lines of an entry up to its key and the colon, comments included; for values in block style."""
        key = self._place(path).key
        assert key is not None
        first, line = self._first_line(path), self._line_of(key[0])
        if self._line_of(self.places[path].value[0]) == line:
            raise _Unlike
        column = self._column(path)
        lines = [*self.lines[first:line], " " * column + self.lines[line][column:]]
        return [_shifted(each, indent - column) for each in lines]

    # --- the new lines ---

    def mapping(self, new: dict[str, Any], path: Path | None, indent: int) -> list[str]:
        """Lines of the entries of a mapping; path: of the old mapping."""
        old = self._at(path) if path is not None else None
        lines: list[str] = []
        for key, value in new.items():
            below = (*path, key) if path is not None and isinstance(old, dict) and key in old else None
            lines += self._value(key, value, below, indent)
        return lines

    def _value(self, key: str, value: Any, path: Path | None, indent: int) -> list[str]:
        if path is not None and path in self.places:
            old = self._at(path)
            if old == value and type(old) is type(value):
                return self._entry(path, indent)
            if _are_alike(old, value) and self._is_block(path):
                return [*self._head(path, indent), *self._inside(value, path, indent)]
            if not isinstance(value, dict | list) and not isinstance(old, dict | list):
                return self._changed_scalar(key, value, path, indent)
        moved = self._moved(key, value)
        if moved is not None:
            return self._entry(moved, indent)
        if isinstance(value, dict | list) and value:
            return [*_dumped({key: None}, indent, "null"), *self._inside(value, None, indent)]
        return _dumped({key: value}, indent)

    def _changed_scalar(self, key: str, value: Any, path: Path, indent: int) -> list[str]:
        first, line = self._first_line(path), self._line_of(self._place(path).value[0])
        column = self._column(path)
        comments = [_shifted(each, indent - column) for each in self.lines[first:line] if each.lstrip().startswith("#")]
        return [*comments, *_dumped({key: value}, indent)]

    def _moved(self, key: str, value: Any) -> Path | None:
        """An entry that was elsewhere in the old text and moved."""
        if not isinstance(value, dict | list) and not isinstance(value, str):
            return None
        for path in self.by_content.get((key, _canonical(value)), ()):
            if path not in self.used:
                return path
        return None

    def _inside(self, value: Any, path: Path | None, indent: int) -> list[str]:
        if isinstance(value, dict):
            return self.mapping(value, path, self._inner_indent(path, indent))
        return self._sequence(value, path, indent)

    def _inner_indent(self, path: Path | None, indent: int) -> int:
        if path is not None:
            for key in self._at(path):
                inner, outer = self._column((*path, key)), self._column_of_owner(path)
                return indent + inner - outer
        return indent + _INDENT

    def _column_of_owner(self, path: Path) -> int:
        return self._column(path) if self.places[path].key is not None else self._dash(path)

    def _sequence(self, value: list[Any], path: Path | None, indent: int) -> list[str]:
        old = self._at(path) if path is not None else []
        if path is not None and old and self.places[path].key is not None:
            indent += self._dash((*path, 0)) - self._column(path)
        lines: list[str] = []
        for number, item in enumerate(value):
            below = (
                (*path, number) if path is not None and number < len(old) and (*path, number) in self.places else None
            )
            lines += self._item(item, below, indent)
        return lines

    def _dash(self, path: Path) -> int:
        """The column of the dash before a member."""
        start = self.places[path].value[0]
        line = self._line_of(start)
        before = self.lines[line][: start - self.starts[line]]
        if not before.rstrip().endswith("-"):
            raise _Unlike
        return before.rindex("-")

    def _item(self, item: Any, path: Path | None, indent: int) -> list[str]:
        comments: list[str] = []
        if path is not None:
            dash, line = self._dash(path), self._line_of(self.places[path].value[0])
            above = self.lines[self._with_comments(line, dash) : line]
            comments = [_shifted(each, indent - dash) for each in above]
            if self._at(path) == item and not (isinstance(item, dict) and self._is_block(path)):
                own = self.lines[line : self._last_line(path) + 1]
                return [*comments, *(_shifted(each, indent - dash) for each in own)]
        if not isinstance(item, dict) or not item:
            return [*comments, *_dumped([item], indent)]
        is_mapping = path is not None and isinstance(self._at(path), dict) and self._is_block(path)
        lines = self.mapping(item, path if is_mapping else None, indent + _INDENT)
        first = next(index for index, line in enumerate(lines) if not line.lstrip().startswith("#"))
        lines[first] = f"{' ' * indent}- {lines[first][indent + _INDENT :]}"
        return [*comments, *(_shifted(line, -_INDENT) for line in lines[:first]), *lines[first:]]

    def _at(self, path: Path) -> Any:
        value: Any = self.old
        for step in path:
            value = value[step]
        return value


def _are_alike(old: Any, new: Any) -> bool:
    """Both mappings or both lists, with something in them."""
    return (
        bool(old)
        and bool(new)
        and ((isinstance(old, dict) and isinstance(new, dict)) or (isinstance(old, list) and isinstance(new, list)))
    )


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=str)


def _shifted(line: str, by: int) -> str:
    if not line.strip() or by == 0:
        return line
    if by > 0:
        return " " * by + line
    blank = len(line) - len(line.lstrip(" "))
    return line[min(-by, blank) :]


def _dumped(value: Any, indent: int, cut: str = "") -> list[str]:
    """Lines of a new entry; `cut` is left out at the end of the last one."""
    text = yaml_text(value).rstrip("\n")
    text = text.removesuffix(cut).rstrip() if cut else text
    return [f"{' ' * indent}{line}" if line.strip() else line for line in text.split("\n")]
