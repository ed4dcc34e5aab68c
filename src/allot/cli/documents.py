"""Text to plain JSON values: YAML streams, JSON, and JSON values one after another, each with the line it starts on.

Input is not trusted. Size, nesting and the number of values are bounded, aliases count as what they expand to, and a
key that occurs twice is an error rather than a silent loss. YAML is built from libyaml's events instead of PyYAML's
loader, which resolves scalars differently from Kubernetes (`allot.core.yaml_scalars`), keeps the last of two equal
keys and recurses.

Does not know what a manifest is; that is `allot.cli.manifests`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, NoReturn

import msgspec
import yaml

from allot.cli.errors import Unreadable
from allot.core.yaml_scalars import NUMBER_CHARACTERS_MAX, NotJSON, key_text, resolve_plain, resolve_tagged

BYTES_MAX = 64 * 1024 * 1024
DEPTH_MAX = 200
VALUES_MAX = 10_000_000
ALIASED_VALUES_MAX = 1_000_000

_EventParser: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_DASHES = "\u2010\u2011\u2012\u2013\u2014\u2015\u2212"
_ODD_SEPARATOR = re.compile(rf"^(?=[-{_DASHES}]*[{_DASHES}])[-{_DASHES}]{{1,3}}\s*$", re.MULTILINE)
_PLAIN_CACHE_MAX = 50_000


class Document(msgspec.Struct, frozen=True):
    """One document of a stream: its value, its number from 1, and where it starts."""

    value: Any
    number: int
    line: int
    # Lines of the members of a top-level `items` list; empty when the text was JSON.
    item_lines: tuple[int, ...] = ()


def parse_documents(data: bytes, source: str) -> list[Document]:
    """Every document in the data, which is YAML, JSON or JSON values in a row; raises Unreadable naming the place."""
    text = _decoded(data, source)
    if text.lstrip()[:1] in ("{", "["):
        return _json_or_flow_yaml(text, source)
    return list(_YAMLStream(text, source).documents())


def _decoded(data: bytes, source: str) -> str:
    if len(data) > BYTES_MAX:
        raise Unreadable(f"{source}: {len(data)} bytes: expected at most {BYTES_MAX} (64 MiB)")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise Unreadable(
            f"{source}: line {line}: byte 0x{data[error.start]:02x} is not UTF-8: expected UTF-8 text"
        ) from None
    nul = text.find("\0")
    if nul >= 0:
        raise Unreadable(f"{source}: line {_line_at(text, nul)}: contains a NUL byte: expected text")
    return text


def _line_at(text: str, offset: int) -> int:
    return text.count("\n", 0, offset) + 1


# --- JSON ---


class _DuplicateKey(ValueError):
    pass


class _NotJSONNumber(ValueError):
    pass


def _json_or_flow_yaml(text: str, source: str) -> list[Document]:
    """JSON when it is JSON. Otherwise YAML, whose flow style begins with the same brackets."""
    if text.count(",") + text.count("{") + text.count("[") > VALUES_MAX:
        raise Unreadable(f"{source}: more than {VALUES_MAX} values: expected fewer in one file")
    try:
        return _json_documents(text, source)
    except RecursionError:
        raise Unreadable(f"{source}: nested deeper than {DEPTH_MAX} levels") from None
    except _DuplicateKey as error:
        # JSON's decoder does not say where; the YAML reader, which also reads JSON, does.
        list(_YAMLStream(text, source).documents())
        raise Unreadable(f"{source}: {error}") from None
    except json.JSONDecodeError as error:
        if source.endswith((".json", ".jsonl")):
            raise _json_error(error, source) from None
        return list(_YAMLStream(text, source).documents())


def _json_error(error: json.JSONDecodeError, source: str) -> Unreadable:
    return Unreadable(f"{source}: line {error.lineno}, column {error.colno}: not JSON: {_lower_first(error.msg)}")


def _json_documents(text: str, source: str) -> list[Document]:
    decoder = json.JSONDecoder(
        object_pairs_hook=_object, parse_int=_json_integer, parse_float=_json_float, parse_constant=_json_constant
    )
    documents: list[Document] = []
    offset, line, end = 0, 1, len(text)
    blank = re.compile(r"[ \t\r\n]*")
    while True:
        match = blank.match(text, offset)
        assert match is not None, "a pattern that matches the empty string always matches"
        line += text.count("\n", offset, match.end())
        offset = match.end()
        if offset == end:
            return documents
        try:
            value, after = decoder.raw_decode(text, offset)
        except json.JSONDecodeError as error:
            if not documents:
                raise
            raise _json_error(error, source) from None
        except _NotJSONNumber as error:
            raise Unreadable(f"{source}: line {line}: {error}") from None
        _check_depth(value, f"{source}: line {line}")
        if _LONE_SURROGATE.search(text, offset, after) or "\\ud" in text[offset:after].lower():
            value = _without_surrogates(value)
        documents.append(Document(value, len(documents) + 1, line))
        line += text.count("\n", offset, after)
        offset = after


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise _DuplicateKey(f"key {key!r} occurs twice in one object")
            seen.add(key)
    return value


def _json_integer(text: str) -> int | str:
    return int(text) if len(text) <= NUMBER_CHARACTERS_MAX else text


def _json_float(text: str) -> float | str:
    value = float(text)
    return text if value in (float("inf"), float("-inf")) else value


def _json_constant(text: str) -> NoReturn:
    raise _NotJSONNumber(f"{text} is not a JSON value: expected a finite number")


def _check_depth(value: Any, where: str) -> None:
    level: list[Any] = [value]
    for _ in range(DEPTH_MAX + 1):
        below: list[Any] = []
        for container in level:
            if container.__class__ is dict:
                below += [child for child in container.values() if child.__class__ in (dict, list)]
            elif container.__class__ is list:
                below += [child for child in container if child.__class__ in (dict, list)]
        if not below:
            return
        level = below
    raise Unreadable(f"{where}: nested deeper than {DEPTH_MAX} levels")


def _without_surrogates(value: Any) -> Any:
    """Half a UTF-16 pair cannot be written out again; Go's decoder replaces it, and so does this."""
    if isinstance(value, str):
        return _LONE_SURROGATE.sub("\ufffd", value)
    if isinstance(value, dict):
        return {_without_surrogates(key): _without_surrogates(member) for key, member in value.items()}
    if isinstance(value, list):
        return [_without_surrogates(member) for member in value]
    return value


# --- YAML ---

_EXPECTS_KEY: Any = object()
_MERGE: Any = object()


class _Frame:
    """A mapping or sequence that is still open."""

    __slots__ = ("anchor", "first_value", "key", "line", "merged", "value")

    def __init__(self, value: Any, anchor: str | None, line: int, first_value: int) -> None:
        self.value = value
        self.anchor = anchor
        self.line = line
        self.first_value = first_value
        self.key: Any = _EXPECTS_KEY
        self.merged: list[dict[str, Any]] | None = None


class _YAMLStream:
    """Builds values from a parser's events, without recursion."""

    def __init__(self, text: str, source: str) -> None:
        self._text = text
        self._source = source
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
            raise Unreadable(f"{self._source}: not YAML: {_lower_first(str(error))}") from None

    def _document(self, parser: Any, number: int) -> Document:
        stack: list[_Frame] = []
        anchors: dict[str, tuple[Any, int]] = {}
        item_lines: list[int] = []
        line = 0
        while True:
            event = parser.get_event()
            kind = event.__class__
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
                value = self._close(stack, anchors)
            elif kind is yaml.AliasEvent:
                value = self._alias(event, anchors)
            else:
                assert kind is yaml.DocumentEndEvent, f"unexpected event {event!r}"
                return Document(value, number, line or event.start_mark.line + 1, tuple(item_lines))
            if stack:
                self._attach(stack[-1], value, event)
            else:
                line = line or event.start_mark.line + 1

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
        line = event.start_mark.line + 1
        if len(stack) == 2 and stack[0].key == "items" and stack[1].value.__class__ is list:
            item_lines.append(line)
        stack.append(_Frame(container, event.anchor, line, self._values + self._aliased))

    def _close(self, stack: list[_Frame], anchors: dict[str, tuple[Any, int]]) -> Any:
        frame = stack.pop()
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
            return _LONE_SURROGATE.sub("\ufffd", text) if event.style == '"' else text
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
        return Unreadable(f"{self._source}: line {mark.line + 1}, column {mark.column + 1}: {message}")

    def _syntax_error(self, error: yaml.MarkedYAMLError) -> Unreadable:
        mark = error.problem_mark or error.context_mark
        place = f"line {mark.line + 1}, column {mark.column + 1}: " if mark is not None else ""
        problem = error.problem or error.context or "malformed"
        context = f" ({error.context})" if error.context and error.problem else ""
        return Unreadable(f"{self._source}: {place}{_lower_first(problem)}{context}", self._hint(mark))

    def _hint(self, mark: Any) -> str | None:
        separator = _ODD_SEPARATOR.search(self._text)
        if separator is not None:
            line = _line_at(self._text, separator.start())
            return f"line {line} is {separator.group().strip()!r}, written with a dash that is no hyphen: did you mean '---'?"
        lines = self._text.split("\n", mark.line + 1) if mark is not None else []
        if (
            len(lines) > mark.line
            and "\t" in lines[mark.line][: len(lines[mark.line]) - len(lines[mark.line].lstrip())]
        ):
            return f"line {mark.line + 1} is indented with a tab: YAML allows only spaces"
        return None


def _lower_first(text: str) -> str:
    return text[:1].lower() + text[1:]
