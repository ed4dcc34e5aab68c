"""YAML text to JSON values, as Kubernetes reads it.

Built from libyaml's events instead of PyYAML's loader, which resolves scalars differently from Kubernetes
(`allot.yaml_values.scalars`), silently keeps the last of two equal keys and recurses without limit. Input is not
trusted: nesting and the number of values are bounded, and an alias counts as what it expands to.

`read_yaml` is for one value, as the API server wants it; `documents` has the rest: whole streams, places of fields.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec
import yaml

from allot.core.advice.places import Path, Place, Places
from allot.core.model.decoding import DEPTH_MAX, ObjectWithDuplicates
from allot.core.quoting import quoted
from allot.yaml_values.scalars import key_text, resolve_plain, resolve_tagged

BODY_VALUES_MAX = 1_000_000
# The limit of a body with expanded aliases.
BODY_BYTES_MAX = 3 * 1024 * 1024
STREAM_VALUES_MAX = 10_000_000
# The limit of what aliases add to a stream, in characters.
STREAM_ALIASED_MAX = 3 * 1024 * 1024
# Fields beyond this limit have no place.
PLACES_MAX = 1_000_000
LONE_SURROGATE = re.compile("[\ud800-\udfff]")

_Parser: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_COLLECTION_TAGS = (None, "!", "tag:yaml.org,2002:map", "tag:yaml.org,2002:seq")
_TWICE_MAX = 100
_CONTAINERS = (dict, list, ObjectWithDuplicates)
# In characters: as in JSON, with a comma.
_CONTAINER_SIZE = 3
_PLAIN_CACHE_MAX = 50_000
_NO_KEY: Any = object()
_MERGE: Any = object()
_TOO_DEEP = f"nested too deeply: expected at most {DEPTH_MAX} levels"


class NotYAML(ValueError):
    """Text that is not YAML, or has no JSON form: where, and why. The wording is that of Kubernetes' reader."""

    def __init__(self, line: int, column: int, problem: str) -> None:
        super().__init__(f"yaml: line {line}: {problem}")
        self.line = line
        self.column = column
        self.problem = problem


class Document(msgspec.Struct, frozen=True):
    """One document of a stream: its value, its number from 1, and where it starts."""

    value: Any
    number: int
    line: int
    # Lines of the members of a top-level `items` list.
    item_lines: tuple[int, ...] = ()
    # Where each field is, when asked for; offsets count in the text.
    places: Places = msgspec.field(default_factory=dict)


def read_yaml(data: bytes) -> Any:
    """The value of the first document, None if there is none; keys that occur twice are noted (ObjectWithDuplicates).

    As in Kubernetes, only the first document counts, and the last of equal keys: the request decides whether duplicates
    are refused (fieldValidation).
    """
    aliased_max = max(0, BODY_BYTES_MAX - len(data))
    reader = _Reader(data, notes_duplicates=True, values_max=BODY_VALUES_MAX, aliased_max=aliased_max)
    first = next(reader.documents(), None)
    value = first.value if first is not None else None
    if not reader.twice or not isinstance(value, dict):
        return value
    marked = value if isinstance(value, ObjectWithDuplicates) else ObjectWithDuplicates(value)
    marked.yaml_problem = "\n  ".join(("yaml: unmarshal errors:", *reader.twice))
    return marked


def documents(text: str, *, places: bool = False, first_line: int = 1, first_offset: int = 0) -> Iterator[Document]:
    """Each document in turn, including empty ones, so that the numbers match what a reader counts.

    A key that occurs twice is an error: one of the two values would be lost without notice.
    `first_line` and `first_offset` say where the text begins in the file, when it is only a part of it.
    """
    return _Reader(text, places=places, first_line=first_line, first_offset=first_offset).documents()


class _Frame:
    """A mapping or sequence that is still open."""

    key: Any = _NO_KEY
    key_event: Any = None
    merged: list[dict[str, Any]] | None = None
    duplicates: list[str] | None = None

    def __init__(self, value: Any, event: Any, size_before: int) -> None:
        self.value = value
        self.event = event
        self.size_before = size_before
        self.path: Path = ()
        # Where its last value ended.
        self.end: int = event.end_mark.index

    @property
    def expects_key(self) -> bool:
        """Whether a key comes next."""
        return self.key is _NO_KEY and self.value.__class__ is dict

    @property
    def next_path(self) -> Path:
        """The path of the next value."""
        return (*self.path, len(self.value) if self.value.__class__ is list else self.key)


class _Reader:
    """Builds values from a parser's events, without recursion."""

    def __init__(
        self,
        text: str | bytes,
        *,
        places: bool = False,
        first_line: int = 1,
        first_offset: int = 0,
        notes_duplicates: bool = False,
        values_max: int = STREAM_VALUES_MAX,
        aliased_max: int = STREAM_ALIASED_MAX,
    ) -> None:
        self._text = text
        self._with_places = places
        self._first_line = first_line
        self._first_offset = first_offset
        self._notes_duplicates = notes_duplicates
        self._values_max = values_max
        self._aliased_max = aliased_max
        self._values = 0
        # Characters of the values so far, with expanded aliases, and how many of these come from aliases.
        self._size = 0
        self._aliased = 0
        self._plain: dict[str, Any] = {}
        self._stack: list[_Frame] = []
        # Values by anchor name, with their sizes; and, once computed, their nesting depth.
        self._anchors: dict[str, tuple[Any, int]] = {}
        self._levels: dict[str, int] = {}
        self._has_duplicates = False
        # Keys that occur twice, in Go's words.
        self.twice: list[str] = []
        self._item_lines: list[int] = []
        self._places: dict[Path, Place] = {}

    def documents(self) -> Iterator[Document]:
        number = 0
        try:
            # The constructor already reads and checks the first characters.
            parser = _Parser(self._text)
            while True:
                event = parser.get_event()
                if event is None or event.__class__ is yaml.StreamEndEvent:
                    return
                if event.__class__ is yaml.DocumentStartEvent:
                    number += 1
                    yield self._document(parser.get_event, number)
        except yaml.MarkedYAMLError as error:
            raise self._syntax_error(error) from None
        except yaml.reader.ReaderError as error:
            raise self._no_text(error.position, error.reason) from None
        except (yaml.YAMLError, UnicodeError) as error:
            raise self._no_text(0, f"{error}") from None

    def _document(self, next_event: Any, number: int) -> Document:
        self._stack, self._anchors, self._levels, self._item_lines, self._places = [], {}, {}, [], {}
        stack = self._stack
        while True:
            event = next_event()
            kind = event.__class__
            if kind is yaml.ScalarEvent:
                value, frame = self._scalar(event), None
            elif kind is yaml.MappingStartEvent or kind is yaml.SequenceStartEvent:
                self._open(event)
                continue
            elif kind is yaml.AliasEvent:
                value, frame = self._alias(event), None
            else:
                frame = stack.pop()
                value = self._close(frame)
            if self._with_places:
                self._note(event, frame)
            if not stack:
                assert next_event().__class__ is yaml.DocumentEndEvent, "a document has one value"
                line = self._line((frame.event if frame is not None else event).start_mark)
                return Document(value, number, line, tuple(self._item_lines), self._places)
            self._attach(stack[-1], value, event)

    # --- values ---

    def _count(self, event: Any, size: int) -> None:
        self._size += size
        self._values += 1
        if self._values > self._values_max:
            raise self._at(event, f"too large: expected at most {self._values_max} values")

    def _scalar(self, event: Any) -> Any:
        text: str = event.value
        self._count(event, len(text) + 1)
        if event.style or event.tag is not None:
            value = self._quoted_or_tagged(event, text)
        elif text in self._plain:
            value = self._plain[text]
        # Its meaning depends on where it is.
        elif text == "<<":
            value = text
        else:
            try:
                value = resolve_plain(text)
            except ValueError as error:
                raise self._at(event, str(error)) from None
            if len(self._plain) < _PLAIN_CACHE_MAX:
                self._plain[text] = value
        if event.anchor is not None:
            self._anchor(event.anchor, value, len(text) + 1)
        if text == "<<" and not event.style and event.tag is None and self._stack and self._stack[-1].expects_key:
            return _MERGE
        return value

    def _quoted_or_tagged(self, event: Any, text: str) -> Any:
        if event.tag is not None and event.tag != "!":
            try:
                return resolve_tagged(event.tag, text)
            except ValueError as error:
                raise self._at(event, str(error)) from None
        # Only the pure Python parser accepts unpaired surrogates.
        return text if text.isascii() else LONE_SURROGATE.sub("\ufffd", text)

    def _open(self, event: Any) -> None:
        stack = self._stack
        if len(stack) >= DEPTH_MAX:
            raise self._at(event, _TOO_DEEP)
        if event.tag not in _COLLECTION_TAGS:
            raise self._at(event, f"tag {event.tag} is not supported")
        frame = _Frame({} if event.__class__ is yaml.MappingStartEvent else [], event, self._size)
        self._count(event, _CONTAINER_SIZE)
        if len(stack) == 2 and stack[0].key == "items" and stack[1].value.__class__ is list:
            self._item_lines.append(self._line(event.start_mark))
        if self._with_places and stack:
            frame.path = stack[-1].next_path
        stack.append(frame)

    def _close(self, frame: _Frame) -> Any:
        value = frame.value
        if frame.merged is not None:
            # The first of several merged mappings wins, and the mapping's own keys win over all of them.
            own, value = value, {}
            for merged in reversed(frame.merged):
                value.update(merged)
            value.update(own)
        if frame.duplicates is not None:
            value = _with_duplicates(value, tuple(frame.duplicates))
            self._has_duplicates = True
        if frame.event.anchor is not None:
            self._anchor(frame.event.anchor, value, self._size - frame.size_before)
        return value

    def _anchor(self, name: str, value: Any, size: int) -> None:
        self._anchors[name] = (value, size)
        self._levels.pop(name, None)

    def _alias(self, event: Any) -> Any:
        """A copy of the anchor's value, so that changing one does not change the other."""
        if any(frame.event.anchor == event.anchor for frame in self._stack):
            raise self._at(event, f"anchor '{event.anchor}' value contains itself")
        if event.anchor not in self._anchors:
            raise self._at(event, f"unknown anchor '{event.anchor}' referenced")
        value, size = self._anchors[event.anchor]
        self._count(event, size)
        self._aliased += size
        if self._aliased > self._aliased_max:
            raise self._at(
                event,
                f"document contains excessive aliasing: expected at most {self._aliased_max} characters from aliases",
            )
        levels = self._levels.get(event.anchor)
        if levels is None:
            levels = self._levels[event.anchor] = _levels(value)
        if levels + len(self._stack) > DEPTH_MAX:
            raise self._at(event, _TOO_DEEP)
        # msgspec's copy is six times faster, but drops notes.
        return _copied(value) if self._has_duplicates else msgspec.to_builtins(value)

    def _attach(self, frame: _Frame, value: Any, event: Any) -> None:
        container = frame.value
        if container.__class__ is list:
            container.append(value)
        elif frame.key is _NO_KEY:
            frame.key = key = value if value.__class__ is str or value is _MERGE else self._key(value, event)
            if key in container:
                if not self._notes_duplicates:
                    raise self._at(event, f"key {key!r} occurs twice in one mapping")
                frame.duplicates = [*(frame.duplicates or ()), key]
                if len(self.twice) < _TWICE_MAX:
                    self.twice.append(f"line {self._line(event.start_mark)}: key {quoted(str(key))} already set in map")
        else:
            if frame.key is _MERGE:
                frame.merged = [*(frame.merged or ()), *self._merge_sources(value, event)]
            else:
                container[frame.key] = value
            frame.key = _NO_KEY

    def _key(self, value: Any, event: Any) -> str:
        if isinstance(value, dict | list):
            raise self._at(event, "invalid map key: expected a string")
        try:
            return key_text(value)
        except ValueError as error:
            raise self._at(event, str(error)) from None

    def _merge_sources(self, value: Any, event: Any) -> list[dict[str, Any]]:
        sources = value if isinstance(value, list) else [value]
        if not all(isinstance(source, dict) for source in sources):
            raise self._at(event, "map merge requires map or sequence of maps as the value")
        return sources

    # --- places ---

    def _line(self, mark: Any) -> int:
        line: int = mark.line + self._first_line
        return line

    def _note(self, event: Any, closed: _Frame | None) -> None:
        """Record the place of the key or value that is about to be attached."""
        start, end = event.start_mark, event.end_mark.index
        if closed is not None:
            # An indented block ends where the next token begins, after any comments.
            start, end = closed.event.start_mark, end if end > start.index else closed.end
        if not self._stack:
            self._places[()] = self._place(start, start.index, end, None)
            return
        frame = self._stack[-1]
        if frame.expects_key:
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

    # --- errors ---

    def _at(self, event: Any, problem: str) -> NotYAML:
        return NotYAML(self._line(event.start_mark), event.start_mark.column + 1, problem)

    def _syntax_error(self, error: yaml.MarkedYAMLError) -> NotYAML:
        mark = error.problem_mark or error.context_mark
        problem = error.problem or error.context or "malformed"
        context = f" ({error.context})" if error.context and error.problem else ""
        line, column = (self._line(mark), mark.column + 1) if mark is not None else (self._first_line, 1)
        return NotYAML(line, column, f"{problem[:1].lower()}{problem[1:]}{context}")

    def _no_text(self, offset: int, problem: str) -> NotYAML:
        """Bytes or characters that YAML does not allow."""
        data = self._text.encode(errors="replace") if isinstance(self._text, str) else self._text
        return NotYAML(data.count(b"\n", 0, offset) + self._first_line, 1, problem)


def _levels(value: Any) -> int:
    """The nesting depth of a value."""
    levels = 0
    level: list[Any] = [value] if value.__class__ in _CONTAINERS else []
    while level:
        levels += 1
        members = (member for each in level for member in (each if each.__class__ is list else each.values()))
        level = [member for member in members if member.__class__ in _CONTAINERS]
    return levels


def _copied(value: Any) -> Any:
    """A deep copy of the value that keeps its notes."""
    kind = value.__class__
    if kind not in _CONTAINERS:
        return value
    if kind is list:
        return [_copied(member) for member in value]
    copy = {key: _copied(member) for key, member in value.items()}
    return copy if kind is dict else _with_duplicates(copy, value.duplicates)


def _with_duplicates(value: dict[str, Any], duplicates: tuple[str, ...]) -> ObjectWithDuplicates:
    marked = ObjectWithDuplicates(value)
    marked.duplicates = duplicates
    return marked
