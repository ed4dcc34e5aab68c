"""Text to plain JSON values: YAML streams, JSON, and JSON values one after another, each with the line it starts on.

Input is not trusted. Size, nesting and the number of values are bounded, aliases count as what they expand to, and a
key that occurs twice is an error rather than a silent loss. YAML is read by `allot.cli.reading.yaml_stream`.

Does not know what a manifest is; that is `allot.cli.reading.manifests`.
"""

from __future__ import annotations

import json
import re
from typing import Any, NoReturn

from allot.cli.errors import Unreadable
from allot.cli.reading.yaml_stream import (
    ALIASED_VALUES_MAX,
    DEPTH_MAX,
    LONE_SURROGATE,
    VALUES_MAX,
    Document,
    NotYAML,
    YAMLStream,
    line_at,
    lower_first,
)
from allot.core.advice.places import Places
from allot.core.yaml_scalars import NUMBER_CHARACTERS_MAX

__all__ = ["ALIASED_VALUES_MAX", "BYTES_MAX", "DEPTH_MAX", "Document", "decoded", "parse_documents"]

BYTES_MAX = 64 * 1024 * 1024


def parse_documents(data: bytes, source: str, *, places: bool = False) -> list[Document]:
    """Every document in the data, which is YAML, JSON or JSON values in a row; raises Unreadable naming the place.

    With `places`, each document also says where its fields are, by line, column and offset in the decoded text.
    """
    text = decoded(data, source)
    if text.lstrip()[:1] in ("{", "["):
        return _json_or_flow_yaml(text, source, places)
    return list(YAMLStream(text, source, places=places).documents())


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
        raise Unreadable(f"{source}: line {line_at(text, nul)}: contains a NUL byte: expected text")
    return text


# --- JSON ---


class _DuplicateKey(ValueError):
    pass


class _NotJSONNumber(ValueError):
    pass


def _json_or_flow_yaml(text: str, source: str, places: bool) -> list[Document]:
    """JSON when it is JSON. Otherwise YAML, whose flow style begins with the same brackets."""
    if text.count(",") + text.count("{") + text.count("[") > VALUES_MAX:
        raise Unreadable(f"{source}: more than {VALUES_MAX} values: expected fewer in one file")
    try:
        return _json_documents(text, source, places)
    except RecursionError:
        raise Unreadable(f"{source}: nested deeper than {DEPTH_MAX} levels") from None
    except _DuplicateKey as error:
        # JSON's decoder does not say where; the YAML reader, which also reads JSON, does.
        list(YAMLStream(text, source).documents())
        raise Unreadable(f"{source}: {error}") from None
    except json.JSONDecodeError as error:
        if source.endswith((".json", ".jsonl")):
            raise _json_error(error, source) from None
        return list(YAMLStream(text, source, places=places).documents())


def _json_error(error: json.JSONDecodeError, source: str) -> NotYAML:
    return NotYAML(source, error.lineno, error.colno, f"not JSON: {lower_first(error.msg)}")


def _json_documents(text: str, source: str, places: bool) -> list[Document]:
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
        if LONE_SURROGATE.search(text, offset, after) or "\\ud" in text[offset:after].lower():
            value = _without_surrogates(value)
        found = _places_in_json(text, offset, after, line) if places else {}
        documents.append(Document(value, len(documents) + 1, line, places=found))
        line += text.count("\n", offset, after)
        offset = after


def _places_in_json(text: str, start: int, end: int, line: int) -> Places:
    """From reading it as YAML, which knows places; few texts are JSON and not YAML, and those have no places."""
    stream = YAMLStream(text[start:end], "", places=True, first_line=line, first_offset=start)
    try:
        return next(stream.documents()).places
    except Unreadable:
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
    raise Unreadable(f"{where}: nested deeper than {DEPTH_MAX} levels")


def _without_surrogates(value: Any) -> Any:
    """Half a UTF-16 pair cannot be written out again; Go's decoder replaces it, and so does this."""
    if isinstance(value, str):
        return LONE_SURROGATE.sub("\ufffd", value)
    if isinstance(value, dict):
        return {_without_surrogates(key): _without_surrogates(member) for key, member in value.items()}
    if isinstance(value, list):
        return [_without_surrogates(member) for member in value]
    return value
