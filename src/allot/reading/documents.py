"""Text to plain JSON values: YAML streams, JSON, and JSON values one after another, each with the line it starts on.

Input is not trusted. Size, nesting and the number of values are bounded, aliases count as what they expand to, and a
key that occurs twice is an error rather than a silent loss. YAML is read by `allot.yaml_values.reader`.

Does not know what a manifest is; that is `allot.reading.manifests`.
"""

from __future__ import annotations

import json
import re
from typing import Any, NoReturn

from allot.core.advice.places import Places
from allot.core.advice.typography import ODD_SEPARATOR
from allot.core.model.decoding import DEPTH_MAX
from allot.reading.errors import Unreadable
from allot.yaml_values.reader import LONE_SURROGATE, STREAM_VALUES_MAX, Document, NotYAML, documents
from allot.yaml_values.scalars import NUMBER_CHARACTERS_MAX

BYTES_MAX = 64 * 1024 * 1024


class Malformed(Unreadable):
    """Text that is invalid from some place on: where, and why."""

    def __init__(self, source: str, line: int, column: int, problem: str, hint: str | None = None) -> None:
        super().__init__(f"{source}: line {line}, column {column}: {problem}", hint)
        self.line = line
        self.column = column
        self.problem = problem


def parse_documents(data: bytes, source: str, *, places: bool = False) -> list[Document]:
    """Every document in the data, which is YAML, JSON or concatenated JSON values; Unreadable names the place.

    With `places`, each document also says where its fields are, by line, column and offset in the decoded text.
    """
    text = decoded(data, source)
    if text.lstrip()[:1] in ("{", "["):
        return _json_or_flow_yaml(text, source, places)
    return yaml_documents(text, source, places=places)


def decoded(data: bytes, source: str) -> str:
    """The data as text, without a byte order mark."""
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


# --- YAML ---


def yaml_documents(
    text: str, source: str, *, places: bool = False, first_line: int = 1, first_offset: int = 0
) -> list[Document]:
    """The documents of a text that is YAML; Malformed. See `allot.yaml_values.reader.documents`."""
    try:
        return list(documents(text, places=places, first_line=first_line, first_offset=first_offset))
    except NotYAML as error:
        raise Malformed(source, error.line, error.column, error.problem, _hint(text, error.line, first_line)) from None


def _hint(text: str, line: int, first_line: int) -> str | None:
    separator = ODD_SEPARATOR.search(text)
    if separator is not None:
        where = _line_at(text, separator.start()) + first_line - 1
        return f"line {where} is {separator.group().strip()!r}, written with a dash that is not a hyphen: did you mean '---'?"
    lines = text.split("\n", line - first_line + 1)[line - first_line :]
    if lines and "\t" in lines[0][: len(lines[0]) - len(lines[0].lstrip())]:
        return f"line {line} is indented with a tab: YAML allows only spaces"
    return None


# --- JSON ---


class _DuplicateKey(ValueError):
    pass


class _NotJSONNumber(ValueError):
    pass


def _json_or_flow_yaml(text: str, source: str, places: bool) -> list[Document]:
    """JSON if valid; otherwise YAML, whose flow style begins with the same brackets."""
    if text.count(",") + text.count("{") + text.count("[") > STREAM_VALUES_MAX:
        raise Unreadable(f"{source}: too large: expected at most {STREAM_VALUES_MAX} values")
    try:
        return _json_documents(text, source, places)
    except RecursionError:
        raise Unreadable(f"{source}: nested too deeply: expected at most {DEPTH_MAX} levels") from None
    except _DuplicateKey as error:
        # The JSON decoder does not report the place; the YAML reader, which also reads JSON, does.
        yaml_documents(text, source)
        raise Unreadable(f"{source}: {error}") from None
    except json.JSONDecodeError as error:
        if source.endswith((".json", ".jsonl")):
            raise _json_error(error, source) from None
        return yaml_documents(text, source, places=places)


def _json_error(error: json.JSONDecodeError, source: str) -> Malformed:
    return Malformed(source, error.lineno, error.colno, f"not JSON: {error.msg[:1].lower()}{error.msg[1:]}")


def _json_documents(text: str, source: str, places: bool) -> list[Document]:
    decoder = json.JSONDecoder(
        object_pairs_hook=_object, parse_int=_json_integer, parse_float=_json_float, parse_constant=_json_constant
    )
    found: list[Document] = []
    offset, line, end = 0, 1, len(text)
    blank = re.compile(r"[ \t\r\n]*")
    while True:
        match = blank.match(text, offset)
        assert match is not None, "a pattern that matches the empty string always matches"
        line += text.count("\n", offset, match.end())
        offset = match.end()
        if offset == end:
            return found
        try:
            value, after = decoder.raw_decode(text, offset)
        except json.JSONDecodeError as error:
            if not found:
                raise
            raise _json_error(error, source) from None
        except _NotJSONNumber as error:
            raise Unreadable(f"{source}: line {line}: {error}") from None
        _check_depth(value, f"{source}: line {line}")
        if LONE_SURROGATE.search(text, offset, after) or "\\ud" in text[offset:after].lower():
            value = _without_surrogates(value)
        fields = _places_in_json(text, offset, after, line) if places else {}
        found.append(Document(value, len(found) + 1, line, places=fields))
        line += text.count("\n", offset, after)
        offset = after


def _places_in_json(text: str, start: int, end: int, line: int) -> Places:
    """Places from the YAML reader; the few JSON texts that are not YAML have none."""
    try:
        return next(documents(text[start:end], places=True, first_line=line, first_offset=start)).places
    except NotYAML:
        return {}


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
    raise Unreadable(f"{where}: nested too deeply: expected at most {DEPTH_MAX} levels")


def _without_surrogates(value: Any) -> Any:
    """Replace unpaired surrogates, which cannot be encoded, as Go's decoder does."""
    if isinstance(value, str):
        return LONE_SURROGATE.sub("\ufffd", value)
    if isinstance(value, dict):
        return {_without_surrogates(key): _without_surrogates(member) for key, member in value.items()}
    if isinstance(value, list):
        return [_without_surrogates(member) for member in value]
    return value
