"""YAML bodies: from text to a JSON value as Kubernetes reads it, and back.

Built from libyaml's events, without recursion and within bounds: PyYAML's own loader recurses as deeply as a client likes,
and with it the process ends. Only the first document of a stream counts, as in Kubernetes.
"""

from __future__ import annotations

from typing import Any

import msgspec
import yaml

from allot.core.model.decoding import ObjectWithDuplicates
from allot.core.yaml_scalars import NotJSON, key_text, resolve_plain, resolve_tagged

DEPTH_MAX = 200
VALUES_MAX = 1_000_000
# What aliases may make of a body.
BYTES_WRITTEN_OUT_MAX = 3 * 1024 * 1024

_Parser: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_OPENING = (yaml.MappingStartEvent, yaml.SequenceStartEvent)
_CLOSING = (yaml.MappingEndEvent, yaml.SequenceEndEvent)
_COLLECTION_TAGS = (None, "!", "tag:yaml.org,2002:map", "tag:yaml.org,2002:seq")
_NO_KEY: Any = object()
_MERGE: Any = object()


class YamlError(ValueError):
    """A text that is not YAML, or says what JSON cannot."""


def read_yaml(data: bytes) -> Any:
    """The JSON value of the first document; YamlError if there is none."""
    try:
        value, aliased = _Document(_Parser(data)).read()
    except (yaml.YAMLError, UnicodeError) as error:
        raise YamlError(_told(error)) from None
    if not aliased:
        return value
    if _written_out(value, {}) > BYTES_WRITTEN_OUT_MAX:
        raise YamlError("yaml: document contains excessive aliasing")
    # Through JSON once: shared parts are no longer shared.
    return msgspec.json.decode(msgspec.json.encode(value))


def _told(error: Exception) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or getattr(error, "reason", None) or "malformed"
    return f"yaml: line {mark.line + 1}: {problem}" if mark is not None else f"yaml: {problem}"


class _Frame:
    """A mapping or sequence that is still open."""

    __slots__ = ("anchor", "depth", "duplicates", "key", "merged", "value")

    def __init__(self, value: Any, anchor: str | None) -> None:
        self.value = value
        self.anchor = anchor
        # How many levels there are below, so that aliases cannot add up.
        self.depth = 1
        self.key: Any = _NO_KEY
        self.duplicates: list[str] = []
        self.merged: list[Any] = []


class _Document:
    """Builds one document."""

    def __init__(self, parser: Any) -> None:
        self._next = parser.get_event
        self._stack: list[_Frame] = []
        self._anchors: dict[str, tuple[Any, int]] = {}
        self._values = 0
        self._aliased = False

    def read(self) -> tuple[Any, bool]:
        """The value, and whether parts of it are shared."""
        event = self._next()
        while event.__class__ is yaml.StreamStartEvent:
            event = self._next()
        if event.__class__ is not yaml.DocumentStartEvent:
            return None, False
        while True:
            event = self._next()
            kind = event.__class__
            if kind in _OPENING:
                self._open(event)
                continue
            value = self._close() if kind in _CLOSING else self._leaf(event)
            if not self._stack:
                return value, self._aliased
            self._attach(self._stack[-1], value, event)

    def _leaf(self, event: Any) -> Any:
        self._count(event)
        if event.__class__ is yaml.AliasEvent:
            return self._alias(event)
        value = self._scalar(event)
        if event.anchor is not None:
            self._anchors[event.anchor] = (value, 0)
        return value

    def _count(self, event: Any) -> None:
        self._values += 1
        if self._values > VALUES_MAX:
            raise _at(event, f"too large: expected at most {VALUES_MAX} values")

    def _open(self, event: Any) -> None:
        self._count(event)
        if len(self._stack) >= DEPTH_MAX:
            raise _at(event, f"nested too deeply: expected at most {DEPTH_MAX} levels")
        if event.tag not in _COLLECTION_TAGS:
            raise _at(event, f"tag {event.tag} is not supported")
        self._stack.append(_Frame({} if event.__class__ is yaml.MappingStartEvent else [], event.anchor))

    def _close(self) -> Any:
        frame = self._stack.pop()
        value = frame.value
        if frame.merged:
            # The earlier of several merged mappings wins, and what the mapping says itself wins over all of them.
            own, value = value, {}
            for merged in reversed(frame.merged):
                value.update(merged)
            value.update(own)
        if frame.duplicates:
            value = ObjectWithDuplicates(value)
            value.duplicates = tuple(frame.duplicates)
        if frame.anchor is not None:
            self._anchors[frame.anchor] = (value, frame.depth)
        if self._stack:
            self._stack[-1].depth = max(self._stack[-1].depth, frame.depth + 1)
        return value

    def _alias(self, event: Any) -> Any:
        if any(frame.anchor == event.anchor for frame in self._stack):
            raise _at(event, f"anchor '{event.anchor}' value contains itself")
        if event.anchor not in self._anchors:
            raise _at(event, f"unknown anchor '{event.anchor}' referenced")
        self._aliased = True
        value, depth = self._anchors[event.anchor]
        if self._stack:
            if len(self._stack) + depth > DEPTH_MAX:
                raise _at(event, f"nested too deeply: expected at most {DEPTH_MAX} levels")
            self._stack[-1].depth = max(self._stack[-1].depth, depth + 1)
        return value

    def _scalar(self, event: Any) -> Any:
        text, tag = event.value, event.tag
        try:
            if tag is not None and tag != "!":
                return resolve_tagged(tag, text)
            if event.style or tag == "!":
                return text
            if text == "<<" and self._stack and self._stack[-1].key is _NO_KEY and type(self._stack[-1].value) is dict:
                return _MERGE
            return resolve_plain(text)
        except ValueError as error:
            raise _at(event, str(error)) from None

    def _attach(self, frame: _Frame, value: Any, event: Any) -> None:
        container = frame.value
        if type(container) is list:
            container.append(value)
        elif frame.key is _NO_KEY:
            frame.key = value if type(value) is str or value is _MERGE else _key(value, event)
            if frame.key in container:
                frame.duplicates.append(frame.key)
        else:
            if frame.key is _MERGE:
                frame.merged += _merged(value, event)
            else:
                container[frame.key] = value
            frame.key = _NO_KEY


def _key(value: Any, event: Any) -> str:
    try:
        if isinstance(value, dict | list):
            raise ValueError("invalid map key: expected a string")
        return key_text(value)
    except ValueError as error:
        raise _at(event, str(error)) from None


def _merged(value: Any, event: Any) -> list[Any]:
    sources = value if isinstance(value, list) else [value]
    if not all(isinstance(source, dict) for source in sources):
        raise _at(event, "map merge requires map or sequence of maps as the value")
    return sources


def _at(event: Any, problem: str) -> YamlError:
    return YamlError(f"yaml: line {event.start_mark.line + 1}: {problem}")


def _written_out(value: Any, known: dict[int, int]) -> int:
    """How long the value would be without aliases, at least; each shared part is looked at once."""
    if not isinstance(value, dict | list):
        return len(value) + 1 if isinstance(value, str) else 1
    found = known.get(id(value))
    if found is None:
        parts = value.values() if isinstance(value, dict) else value
        found = known[id(value)] = 1 + sum(_written_out(part, known) for part in parts)
    return found


# --- writing ---


class _Dumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]
    """Quotes what Kubernetes would otherwise read as something other than text."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002 - the signature is PyYAML's
        return True


def _represent_text(dumper: Any, text: str) -> Any:
    try:
        is_text = resolve_plain(text) == text
    except NotJSON:
        is_text = False
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=None if is_text else '"')


_Dumper.add_representer(str, _represent_text)


def write_yaml(value: Any) -> bytes:
    """A JSON value as YAML."""
    return bytes(yaml.dump(value, Dumper=_Dumper, sort_keys=True, allow_unicode=True, encoding="utf-8"))
