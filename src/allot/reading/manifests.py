"""Kubernetes objects from files, directories and stdin, each with its place.

Lists are expanded, both `kind: List` as kubectl prints it and typed ones (`ResourceSliceList`), whose items have no
kind. Objects stay plain JSON values here: `allot.core` checks their contents.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from allot.core.model.plain import PlainObject
from allot.reading.documents import BYTES_MAX, parse_documents
from allot.reading.errors import Unreadable
from allot.yaml_values.reader import Document

STDIN = "-"
_SUFFIXES = (".yaml", ".yml", ".json")


class Origin(msgspec.Struct, frozen=True):
    """Where an object was written."""

    source: str
    document: int
    line: int
    item: int | None = None

    def __str__(self) -> str:
        place = f"{self.source} document {self.document}, line {self.line}"
        return place if self.item is None else f"{place}, items[{self.item}]"


class Manifest(PlainObject, frozen=True):
    """One object as written, and where."""

    origin: Origin

    def __str__(self) -> str:
        return f"{self.kind} {self.qualified_name}" if self.name else f"{self.kind} without a name"


def read_manifests(paths: Sequence[str]) -> list[Manifest]:
    """Every object in the files, in the order given; folders are searched for YAML and JSON, `-` is stdin."""
    return [manifest for source, data in read_sources(paths) for manifest in manifests_in(data, source)]


def read_sources(paths: Sequence[str]) -> Iterator[tuple[str, bytes]]:
    """Each file's name and content."""
    for path in paths:
        if not path:
            raise Unreadable("'': not a file name")
        if path == STDIN:
            yield "stdin", _read_stdin()
            continue
        for file in _files_under(Path(path)):
            yield str(file), read_file(file)


def _read_stdin() -> bytes:
    return _bounded(sys.stdin.buffer.read(BYTES_MAX + 1), "stdin")


def read_file(path: Path) -> bytes:
    """The file's content; Unreadable if it is missing or too large."""
    try:
        with path.open("rb") as stream:
            return _bounded(stream.read(BYTES_MAX + 1), str(path))
    except ValueError:
        raise Unreadable(f"{str(path)!r}: not a file name") from None
    except OSError as error:
        raise Unreadable(f"{path}: {(error.strerror or str(error)).lower()}") from None


def _bounded(data: bytes, source: str) -> bytes:
    # Read one byte over the limit to detect more; an endless pipe is not read to its end.
    if len(data) > BYTES_MAX:
        raise Unreadable(f"{source}: larger than {BYTES_MAX} bytes (64 MiB)", "split it into several files")
    return data


def _files_under(path: Path) -> list[Path]:
    try:
        if not path.is_dir():
            return [path]
        files = sorted(file for file in path.rglob("*") if _is_manifest_file(file, path))
    except ValueError:
        raise Unreadable(f"{str(path)!r}: not a file name") from None
    except OSError as error:
        raise Unreadable(f"{path}: {(error.strerror or str(error)).lower()}") from None
    if not files:
        raise Unreadable(f"{path}: directory without manifests: expected files that end in {', '.join(_SUFFIXES)}")
    return files


def _is_manifest_file(file: Path, folder: Path) -> bool:
    """By its name; hidden files, and those in hidden folders, are ignored."""
    hidden = any(part.startswith(".") for part in file.relative_to(folder).parts)
    return file.suffix in _SUFFIXES and not hidden and file.is_file()


def manifests_in(data: bytes, source: str) -> Iterator[Manifest]:
    """Every object in one file's content."""
    for document in parse_documents(data, source):
        if document.value is not None:
            yield from _expand(document, source)


def _expand(document: Document, source: str) -> Iterator[Manifest]:
    """The document's object, or the members if it is a list, including nested lists."""
    lines = document.item_lines
    pending: list[Manifest] = [_manifest(document.value, Origin(source, document.number, document.line))]
    while pending:
        manifest = pending.pop()
        items = manifest.value.get("items")
        if not manifest.kind.endswith("List") or not isinstance(items, list | None):
            yield manifest
            continue
        members = [
            _manifest(_member(item, manifest), _member_origin(manifest.origin, index, lines))
            for index, item in enumerate(items or ())
        ]
        lines = ()
        pending.extend(reversed(members))


def _manifest(value: Any, origin: Origin) -> Manifest:
    if not isinstance(value, dict):
        raise Unreadable(f"{origin}: is {_type_name(value)}: expected a Kubernetes object with apiVersion and kind")
    for field in ("apiVersion", "kind"):
        found = value.get(field)
        if not isinstance(found, str) or not found:
            given = "is missing" if found is None else f"is {found!r}"
            raise Unreadable(f"{origin}: {field} {given}: expected a Kubernetes object with apiVersion and kind")
    return Manifest(value, origin)


def _member(item: Any, parent: Manifest) -> Any:
    """Members of a typed list get the kind that the list's name implies."""
    if parent.kind == "List" or not isinstance(item, dict) or "kind" in item:
        return item
    return {"apiVersion": parent.api_version, "kind": parent.kind.removesuffix("List"), **item}


def _member_origin(origin: Origin, index: int, lines: tuple[int, ...]) -> Origin:
    line = lines[index] if index < len(lines) else origin.line
    return Origin(origin.source, origin.document, line, index)


def _type_name(value: object) -> str:
    names = {str: "text", bool: "a boolean", int: "a number", float: "a number", list: "a list"}
    return names.get(type(value), type(value).__name__)


def check_unique(manifests: Iterable[Manifest]) -> None:
    """Unreadable if two objects have the same name, since the second would silently replace the first."""
    seen: dict[tuple[str, str, str], Manifest] = {}
    for manifest in manifests:
        if not manifest.name or manifest.name.endswith("*"):
            continue
        key = (manifest.group, manifest.kind, manifest.qualified_name)
        if key in seen:
            raise Unreadable(f"{manifest}: defined twice, in {seen[key].origin} and in {manifest.origin}")
        seen[key] = manifest
