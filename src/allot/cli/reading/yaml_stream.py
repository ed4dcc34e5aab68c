"""YAML streams to plain JSON values, each document with the line it starts on and, if asked, the place of each field.

Built from libyaml's events instead of PyYAML's loader, which resolves scalars differently from Kubernetes
(`allot.core.yaml_scalars`), keeps the last of two equal keys and recurses. Input is not trusted: nesting and the number
of values are bounded, aliases count as what they expand to, and a key that occurs twice is an error.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec
import yaml

from allot.cli.errors import Unreadable
from allot.core.advice.places import Path, Place, Places
from allot.core.advice.typography import ODD_SEPARATOR
from allot.core.yaml_scalars import NotJSON, key_text, resolve_plain, resolve_tagged

DEPTH_MAX = 200
VALUES_MAX = 10_000_000
ALIASED_VALUES_MAX = 1_000_000
# Of the fields beyond, only the first fields around them have a place.
PLACES_MAX = 1_000_000
LONE_SURROGATE = re.compile("[\ud800-\udfff]")

_EventParser: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_PLAIN_CACHE_MAX = 50_000


class Document(msgspec.Struct, frozen=True):
    """One document of a stream: its value, its number from 1, and where it starts."""

    value: Any
    number: int
    line: int
    # Lines of the members of a top-level `items` list; empty when the text was JSON.
    item_lines: tuple[int, ...] = ()
    # Where each field is, when asked for; offsets count in the decoded text (`decoded`).
    places: Places = msgspec.field(default_factory=dict)


class NotYAML(Unreadable):
    """Text that cannot be read as YAML: where it stops making sense, and why."""

    def __init__(self, source: str, line: int, column: int, problem: str, hint: str | None = None) -> None:
        super().__init__(f"{source}: line {line}, column {column}: {problem}", hint)
        self.line = line
        self.column = column
        self.problem = problem


def line_at(text: str, offset: int) -> int:
    """The number of the line, from 1, that the offset is on."""
    return text.count("\n", 0, offset) + 1


def lower_first(text: str) -> str:
    """As messages begin."""
    return text[:1].lower() + text[1:]


_EXPECTS_KEY: Any = object()
_MERGE: Any = object()


class _Frame:
    """A mapping or sequence that is still open."""

    __slots__ = ("anchor", "end", "first_value", "key", "key_event", "line", "merged", "path", "start", "value")

    def __init__(self, value: Any, event: Any, line: int, first_value: int, path: Path) -> None:
        self.value = value
        self.anchor: str | None = event.anchor
        self.line = line
        self.first_value = first_value
        self.path = path
        self.start = event.start_mark
        # Where the last value in it ended.
        self.end: int = event.end_mark.index
        self.key: Any = _EXPECTS_KEY
        self.key_event: Any = None
        self.merged: list[dict[str, Any]] | None = None

    @property
    def next_path(self) -> Path:
        """The path of the value that comes next."""
        return (*self.path, len(self.value) if self.value.__class__ is list else self.key)


class YAMLStream:
    """Builds values from a parser's events, without recursion.

    `first_line` and `first_offset` say where the text begins in the file, when it is only a part of it.
    """

    def __init__(
        self, text: str, source: str, *, places: bool = False, first_line: int = 1, first_offset: int = 0
    ) -> None:
        self._text = text
        self._source = source
        self._with_places = places
        self._first_line = first_line
        self._first_offset = first_offset
        self._places: dict[Path, Place] = {}
        self._values = 0
        self._aliased = 0
        self._plain: dict[str, Any] = {}

    def documents(self) -> Iterator[Document]:
        """Each document in turn, also the empty ones, so that the numbers are the ones a reader counts."""
        number = 0
        try:
            # The constructor already reads and checks the first characters.
            parser = _EventParser(self._text)
            while True:
                event = parser.get_event()
                if event is None or event.__class__ is yaml.StreamEndEvent:
                    return
                if event.__class__ is yaml.DocumentStartEvent:
                    number += 1
                    yield self._document(parser, number)
        except yaml.MarkedYAMLError as error:
            raise self._syntax_error(error) from None
        except yaml.YAMLError as error:
            raise NotYAML(self._source, self._first_line, 1, f"not YAML: {lower_first(str(error))}") from None

    def _document(self, parser: Any, number: int) -> Document:
        stack: list[_Frame] = []
        anchors: dict[str, tuple[Any, int]] = {}
        item_lines: list[int] = []
        self._places = {}
        line = 0
        while True:
            event = parser.get_event()
            kind = event.__class__
            start, end = event.start_mark, event.end_mark.index
            if kind is yaml.ScalarEvent:
                self._count(event)
                value = self._scalar(event, stack)
                if event.anchor is not None:
                    anchors[event.anchor] = (value, 1)
            elif kind is yaml.MappingStartEvent or kind is yaml.SequenceStartEvent:
                self._open(event, stack, item_lines)
                line = line or stack[0].line
                continue
            elif kind is yaml.MappingEndEvent or kind is yaml.SequenceEndEvent:
                frame = stack.pop()
                value = self._close(frame, anchors)
                # The end of a block in indented style is where the next thing begins, with comments in between.
                start, end = frame.start, end if end > event.start_mark.index else frame.end
            elif kind is yaml.AliasEvent:
                value = self._alias(event, anchors)
            else:
                assert kind is yaml.DocumentEndEvent, f"unexpected event {event!r}"
                return Document(value, number, line or self._line(start), tuple(item_lines), self._places)
            if stack:
                if self._with_places:
                    self._note(stack[-1], start, end, event)
                self._attach(stack[-1], value, event)
            else:
                line = line or self._line(start)
                if self._with_places:
                    self._places[()] = self._place(start, start.index, end, None)

    def _line(self, mark: Any) -> int:
        line: int = mark.line + self._first_line
        return line

    def _note(self, frame: _Frame, start: Any, end: int, event: Any) -> None:
        """Where the key or value is that is about to be attached."""
        if frame.value.__class__ is dict and frame.key is _EXPECTS_KEY:
            frame.key_event = event
            return
        frame.end = end
        if frame.key is _MERGE or len(self._places) >= PLACES_MAX:
            return
        key = frame.key_event
        self._places[frame.next_path] = self._place(key.start_mark if key is not None else start, start.index, end, key)

    def _place(self, mark: Any, start: int, end: int, key_event: Any) -> Place:
        first = self._first_offset
        key = (key_event.start_mark.index + first, key_event.end_mark.index + first) if key_event is not None else None
        return Place(self._line(mark), mark.column + 1, (start + first, end + first), key)

    def _count(self, event: Any) -> None:
        self._values += 1
        if self._values > VALUES_MAX:
            raise self._at(event, f"more than {VALUES_MAX} values: expected fewer in one file")

    def _open(self, event: Any, stack: list[_Frame], item_lines: list[int]) -> None:
        self._count(event)
        if len(stack) >= DEPTH_MAX:
            raise self._at(event, f"nested deeper than {DEPTH_MAX} levels")
        container: Any = {} if event.__class__ is yaml.MappingStartEvent else []
        if event.tag is not None and event.tag not in ("!", "tag:yaml.org,2002:map", "tag:yaml.org,2002:seq"):
            raise self._at(event, f"tag {event.tag!r} is not supported on a mapping or sequence")
        line = self._line(event.start_mark)
        if len(stack) == 2 and stack[0].key == "items" and stack[1].value.__class__ is list:
            item_lines.append(line)
        path = stack[-1].next_path if stack and self._with_places else ()
        stack.append(_Frame(container, event, line, self._values + self._aliased, path))

    def _close(self, frame: _Frame, anchors: dict[str, tuple[Any, int]]) -> Any:
        if frame.merged is not None:
            own = dict(frame.value)
            frame.value.clear()
            # The earlier of several merged mappings wins, and what the mapping says itself wins over all of them.
            for merged in reversed(frame.merged):
                frame.value.update(merged)
            frame.value.update(own)
        if frame.anchor is not None:
            anchors[frame.anchor] = (frame.value, self._values + self._aliased - frame.first_value + 1)
        return frame.value

    def _alias(self, event: Any, anchors: dict[str, tuple[Any, int]]) -> Any:
        if event.anchor not in anchors:
            raise self._at(event, f"alias *{event.anchor} has no anchor before it, or contains itself")
        value, size = anchors[event.anchor]
        self._aliased += size
        if self._aliased > ALIASED_VALUES_MAX:
            raise self._at(event, f"aliases expand to more than {ALIASED_VALUES_MAX} values")
        return value

    def _scalar(self, event: Any, stack: list[_Frame]) -> Any:
        text: str = event.value
        if event.tag is not None and event.tag != "!":
            try:
                return resolve_tagged(event.tag, text)
            except ValueError as error:
                raise self._at(event, str(error)) from None
        if event.style or event.tag == "!":
            return LONE_SURROGATE.sub("\ufffd", text) if event.style == '"' else text
        if text in self._plain:
            return self._plain[text]
        if text == "<<" and stack and stack[-1].key is _EXPECTS_KEY and stack[-1].value.__class__ is dict:
            return _MERGE
        try:
            value = resolve_plain(text)
        except NotJSON as error:
            raise self._at(event, str(error)) from None
        # "<<" means two things, depending on where it stands.
        if len(self._plain) < _PLAIN_CACHE_MAX and text != "<<":
            self._plain[text] = value
        return value

    def _attach(self, frame: _Frame, value: Any, event: Any) -> None:
        container = frame.value
        if container.__class__ is list:
            container.append(value)
        elif frame.key is _EXPECTS_KEY:
            frame.key = value if value.__class__ is str else self._key(value, event)
            if frame.key is not _MERGE and frame.key in container:
                raise self._at(event, f"key {frame.key!r} occurs twice in one mapping")
        elif frame.key is _MERGE:
            self._merge(frame, value, event)
            frame.key = _EXPECTS_KEY
        else:
            container[frame.key] = value
            frame.key = _EXPECTS_KEY

    def _key(self, value: Any, event: Any) -> Any:
        if value is _MERGE:
            return value
        if isinstance(value, dict | list):
            raise self._at(event, "a mapping or sequence cannot be a key: expected a string")
        try:
            return key_text(value)
        except ValueError as error:
            raise self._at(event, str(error)) from None

    def _merge(self, frame: _Frame, value: Any, event: Any) -> None:
        sources = value if isinstance(value, list) else [value]
        if not all(isinstance(source, dict) for source in sources):
            raise self._at(event, "merge key << needs a mapping or a list of mappings")
        # Merging copies the members, so they count like an alias does.
        self._aliased += sum(len(source) for source in sources)
        if self._aliased > ALIASED_VALUES_MAX:
            raise self._at(event, f"aliases expand to more than {ALIASED_VALUES_MAX} values")
        frame.merged = [*(frame.merged or []), *sources]

    def _at(self, event: Any, message: str) -> Unreadable:
        mark = event.start_mark
        return NotYAML(self._source, self._line(mark), mark.column + 1, message)

    def _syntax_error(self, error: yaml.MarkedYAMLError) -> Unreadable:
        mark = error.problem_mark or error.context_mark
        problem = error.problem or error.context or "malformed"
        context = f" ({error.context})" if error.context and error.problem else ""
        line, column = (self._line(mark), mark.column + 1) if mark is not None else (self._first_line, 1)
        return NotYAML(self._source, line, column, f"{lower_first(problem)}{context}", self._hint(mark))

    def _hint(self, mark: Any) -> str | None:
        separator = ODD_SEPARATOR.search(self._text)
        if separator is not None:
            line = line_at(self._text, separator.start()) + self._first_line - 1
            return f"line {line} is {separator.group().strip()!r}, written with a dash that is no hyphen: did you mean '---'?"
        lines = self._text.split("\n", mark.line + 1) if mark is not None else []
        if (
            len(lines) > mark.line
            and "\t" in lines[mark.line][: len(lines[mark.line]) - len(lines[mark.line].lstrip())]
        ):
            return f"line {self._line(mark)} is indented with a tab: YAML allows only spaces"
        return None
