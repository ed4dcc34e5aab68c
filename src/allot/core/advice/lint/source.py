"""The input of lint: texts, their documents with the places of fields, and the objects in the documents."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from allot.core.advice.convert.objects import at
from allot.core.advice.lint.finding import Edit, Finding, Fix, Severity
from allot.core.advice.lint.text_values import token_edits
from allot.core.advice.places import Path, Place, Places, nearest_place
from allot.core.model.plain import PlainObject, plain_text

DEFAULT_NAMESPACE = "default"
_DEPTH_MAX = 64


class Flaw(msgspec.Struct, frozen=True, kw_only=True):
    """A problem of the text itself, found while reading it."""

    rule: str
    line: int
    column: int
    message: str
    fix: Fix | None = None


class Written(msgspec.Struct, frozen=True):
    """One document as written."""

    value: Any
    line: int
    places: Places


class Source(msgspec.Struct, frozen=True):
    """One text: its name, documents, flaws, and the namespace for objects without one."""

    name: str
    text: str
    documents: tuple[Written, ...]
    flaws: tuple[Flaw, ...] = ()
    namespace: str = DEFAULT_NAMESPACE


class Subject(PlainObject, frozen=True):
    """An object, its source and document, and its path: a list has several objects in one document."""

    source: Source
    document: Written
    path: Path = ()

    @property
    def home(self) -> str:
        """Its namespace."""
        return self.namespace or self.source.namespace

    @property
    def label(self) -> str:
        """Kind and name."""
        return f"{self.kind} {self.qualified_name}".rstrip()

    def place(self, path: Path) -> Place:
        """Where a field of the object is."""
        place = nearest_place(self.document.places, (*self.path, *path))
        return place if place.line > 1 or self.document.places else Place(self.document.line, 1, (0, 0))

    def exact_place(self, path: Path) -> Place | None:
        """Where a field of the object is, if it was written exactly there."""
        return self.document.places.get((*self.path, *path))

    def at(self, path: Path) -> Any:
        """The value of a field; None if there is none."""
        return at(self.value, path)

    def finding(
        self,
        rule: str,
        severity: Severity,
        path: Path,
        message: str,
        fix: Fix | None = None,
        *,
        line: int | None = None,
    ) -> Finding:
        """A finding about a field of the object."""
        place = self.place(path)
        return Finding(
            source=self.source.name,
            line=line or place.line,
            column=place.column if line is None else 1,
            severity=severity,
            rule=rule,
            message=message,
            object=self.label,
            field=path_text(path),
            fix=fix,
            field_line=place.line,
        )

    def text_edit(self, path: Path, new: str) -> tuple[Edit, ...]:
        """The edit that replaces a plain value; none if it was written elsewhere, or over several lines."""
        place = self.exact_place(path)
        raw = self.source.text[slice(*place.value)] if place is not None else ""
        if place is None or not raw or "\n" in raw or raw[0] in "&*!|>":
            return ()
        quote = raw[0] if raw[0] in "\"'" else ""
        return (Edit(*place.value, f"{quote}{new}{quote}"),)

    def replacement(self, path: Path, old: str, new: str) -> tuple[Edit, ...]:
        """The edits that turn one expression into another; none if it cannot be located in the source."""
        place = self.exact_place(path)
        if place is None or not old:
            return ()
        return token_edits(self.source.text[slice(*place.value)], place.value[0], old, new)


def path_text(path: Path) -> str:
    """As Kubernetes writes it: `spec.devices.requests[0].name`."""
    text = ""
    for part in path:
        if isinstance(part, int) or "." in part or "/" in part:
            text += f"[{part}]"
        else:
            text += f".{part}" if text else part
    return text


def subjects(source: Source) -> Iterator[Subject]:
    """The objects in a source, with lists replaced by their items."""
    for document in source.documents:
        yield from _members(document.value, source, document, (), 0)


def _members(value: Any, source: Source, document: Written, path: Path, depth: int) -> Iterator[Subject]:
    if not isinstance(value, dict) or depth > _DEPTH_MAX:
        return
    kind, items = plain_text(value.get("kind")), value.get("items")
    if not kind.endswith("List") or not isinstance(items, list):
        if kind and plain_text(value.get("apiVersion")):
            yield Subject(value, source, document, path)
        return
    for index, item in enumerate(items):
        if isinstance(item, dict) and kind != "List" and "kind" not in item:
            # Items of a typed list get their kind from the list's kind.
            item = {"apiVersion": value.get("apiVersion"), "kind": kind.removesuffix("List"), **item}
        yield from _members(item, source, document, (*path, "items", index), depth + 1)
