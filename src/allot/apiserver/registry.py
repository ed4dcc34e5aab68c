"""The kinds that the server currently serves: rows with everything that handlers need.

Built-in kinds are static; custom resources change. Knows keys, versions and schemas; reads and writes
nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, ParamSpec, Protocol, TypeVar

import msgspec

from allot.apiserver.printing.cells import Printer
from allot.apiserver.resources import Resource, Strategy
from allot.core.lifecycle.api_services import group_priority
from allot.core.schema import Schema
from allot.store.port import Entry

Object = dict[str, Any]
P = ParamSpec("P")
T = TypeVar("T")
# Objects as stored -> the same in the version of a row.
Convert = Callable[[Sequence[Object]], list[Object]]

# Built-in groups whose keys are below their name, like those of custom resources.
_GROUPS_WITH_FOLDER = ("apiextensions.k8s.io", "apiregistration.k8s.io")
_STAGES = {"": 0, "beta": 1, "alpha": 2}


class Beside(Protocol):
    """Runs work that has to wait."""

    async def run(self, work: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        """The result of the work."""


class ScalePaths(msgspec.Struct, frozen=True):
    """Where an object keeps its desired replicas, its current replicas, and the selector of its pods."""

    spec: tuple[str, ...] = ("spec", "replicas")
    status: tuple[str, ...] = ("status", "replicas")
    selector: tuple[str, ...] = ("spec", "selector")


class Served:
    """One row with its strategy, schema and conversion."""

    __slots__ = (
        "_convert",
        "_schema",
        "beside",
        "convert_needed",
        "converter",
        "custom",
        "folder",
        "openapi",
        "printer",
        "resource",
        "scale",
        "strategy",
        "type_prefix",
    )

    def __init__(
        self,
        resource: Resource,
        strategy: Strategy,
        schema: Callable[[], Schema | None],
        convert: Convert | None = None,
        scale: ScalePaths | None = None,
        openapi: Object | None = None,
        printer: Printer | None = None,
        beside: Beside | None = None,
    ) -> None:
        self.resource = resource
        self.strategy = strategy
        self._schema: Callable[[], Schema | None] | Schema | None = schema
        self._convert = convert
        # Runs conversions that have to wait for a webhook; see `run_for`.
        self.beside = beside
        self.scale = scale or ScalePaths()
        # The schema from a custom resource's definition, for OpenAPI documents.
        self.openapi = openapi
        # How tables show a custom resource; built-in kinds have theirs by name.
        self.printer = printer
        self.convert_needed = convert is not None
        # Converts objects to other versions; valid for this generation of the registry.
        self.converter: tuple[int, Callable[[Object, str], tuple[Object, Schema] | None] | None] | None = None
        # Whether it is a custom resource.
        own_folder = resource.storage_resource.startswith(f"{resource.group}/")
        self.custom = own_folder and resource.group not in _GROUPS_WITH_FOLDER
        self.folder = f"/registry/{resource.storage_resource}/"
        # How the JSON of a stored object starts: lists of built-in kinds omit it from their items.
        self.type_prefix = f'{{"apiVersion":"{resource.api_version}","kind":"{resource.kind}",'.encode()

    @property
    def schema(self) -> Schema | None:
        """The schema of the row's version, loaded on first use."""
        schema = self._schema
        if callable(schema):
            schema = self._schema = schema()
        return schema

    def prefix(self, namespace: str) -> str:
        """Where the keys of a namespace, or of all objects, begin."""
        return f"{self.folder}{namespace}/" if namespace and self.resource.namespaced else self.folder

    def key(self, namespace: str, name: str) -> str:
        """The key of an object."""
        return f"{self.folder}{namespace}/{name}" if self.resource.namespaced else self.folder + name

    def present(self, object_: Object) -> Object:
        """A stored object in the version of the row."""
        return object_ if self._convert is None else self._convert((object_,))[0]

    def present_entry(self, entry: Entry) -> Entry:
        """A stored entry in the version of the row."""
        return entry if self._convert is None else self.present_entries((entry,))[0]

    def present_entries(self, entries: Sequence[Entry]) -> Sequence[Entry]:
        """Stored entries in the version of the row."""
        if self._convert is None:
            return entries
        shown = self._convert([entry.object for entry in entries])
        return [Entry(entry.key, object_, entry.revision) for entry, object_ in zip(entries, shown, strict=True)]


async def run_for(served: Served, work: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
    """Run work that converts objects of a row: here, or outside the event loop if it has to wait."""
    if served.beside is None:
        return work(*arguments, **named)
    return await served.beside.run(work, *arguments, **named)


class Registry:
    """All rows. `generation` changes whenever a row does, so that what is derived from the rows can be cached.

    Rows change only on the event loop; `of_kind` and `versions_of` are also called outside it."""

    def __init__(self, rows: Iterable[Served] = ()) -> None:
        self._rows: dict[tuple[str, str, str], Served] = {}
        self.generation = 0
        self._stored: dict[tuple[str, str], Served] = {}
        self._stored_generation = -1
        self._versions: tuple[int, dict[str, dict[str, Served]]] = (-1, {})
        for row in rows:
            self.add(row)

    def add(self, row: Served) -> None:
        """Serve a row, replacing one with the same names."""
        resource = row.resource
        self._rows[resource.group, resource.version, resource.plural] = row
        self.generation += 1

    def remove(self, group: str, version: str, plural: str) -> None:
        """Stop serving a row."""
        if self._rows.pop((group, version, plural), None) is not None:
            self.generation += 1

    def find(self, group: str, version: str, plural: str) -> Served | None:
        """The row of a path."""
        return self._rows.get((group, version, plural))

    def storage_row(self, group: str, plural: str) -> Served | None:
        """A row of the resource in its storage version, otherwise in any."""
        if self._stored_generation != self.generation:
            self._stored_generation = self.generation
            self._stored.clear()
            for (row_group, _, row_plural), row in self._rows.items():
                if not row.convert_needed or (row_group, row_plural) not in self._stored:
                    self._stored[row_group, row_plural] = row
        return self._stored.get((group, plural))

    def versions_of(self, served: Served) -> Mapping[str, Served]:
        """The rows of the same objects in all their versions, by apiVersion."""
        generation, versions = self._versions
        if generation != self.generation:
            generation, versions = self.generation, {}
            for row in tuple(self._rows.values()):
                if row.resource.stored:
                    versions.setdefault(row.folder, {})[row.resource.api_version] = row
            self._versions = (generation, versions)
        return versions.get(served.folder, {})

    def of_kind(self, group: str, version: str, kind: str) -> Served | None:
        """The row of an object's type."""
        for row in tuple(self._rows.values()):
            resource = row.resource
            if resource.kind == kind and resource.version == version and resource.group == group:
                return row
        return None

    def knows_kind(self, api_version: str, kind: str) -> bool:
        """Whether objects of the type are served."""
        group, _, version = api_version.rpartition("/")
        return self.of_kind(group, version, kind) is not None

    def __iter__(self) -> Iterator[Served]:
        return iter(self._rows.values())

    def groups(self) -> Mapping[str, tuple[str, ...]]:
        """Groups in discovery's order with their versions, the preferred one first."""
        versions: dict[str, set[str]] = {}
        for group, version, _ in self._rows:
            versions.setdefault(group, set()).add(version)
        names = sorted(versions, key=lambda group: (group != "", -group_priority(group), group))
        return {group: tuple(sorted(versions[group], key=version_order)) for group in names}

    def rows_of(self, group: str, version: str) -> list[Served]:
        """The rows of a group and version by name."""
        rows = [row for key, row in self._rows.items() if key[0] == group and key[1] == version]
        return sorted(rows, key=lambda row: row.resource.plural)


def version_order(version: str) -> tuple[int, int, int, str]:
    """Sorts versions as Kubernetes prefers them: v2, v1, v1beta2, v1beta1, v1alpha3, then others by name."""
    text = version.removeprefix("v")
    number = ""
    while text[:1].isdigit():
        number, text = number + text[0], text[1:]
    stage = text.rstrip("0123456789")
    if not version.startswith("v") or not number or stage not in _STAGES:
        return 9, 0, 0, version
    return _STAGES[stage], -int(number), -int(text.removeprefix(stage) or 0), version
