"""All schemas of an API server: definitions by name, kinds by group, version and kind.

Knows how definitions refer to each other and which kind each one describes. Definitions stay as they were given; nodes are
made and kept on demand.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from allot.core.schema.node import ALWAYS_THERE, ROOT, Raw, Schema

_OBJECT_META = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
_TYPE_META: Mapping[str, Raw] = {
    "apiVersion": {"type": "string"},
    "kind": {"type": "string"},
}
# Notes beside a reference that say nothing about the value.
_REMARKS = frozenset({"$ref", "description"})


class Schemas:
    """Schemas made from OpenAPI definitions (name -> definition)."""

    def __init__(self, definitions: Mapping[str, Any]) -> None:
        self.definitions = definitions
        self._nodes: dict[str, Schema] = {}
        self._always_there: dict[str, Schema] = {}
        self._kinds: dict[tuple[str, str, str], str] | None = None
        self.any = Schema({}, self, "", structural=True, tolerant=True)

    def for_kind(self, group: str, version: str, kind: str) -> Schema | None:
        """The schema of a kind; None if the definitions do not have it."""
        name = self._index().get((group, version, kind))
        return self.named(name) if name is not None else None

    def named(self, name: str) -> Schema:
        """The schema of a definition; the one that allows everything if there is no such definition."""
        node = self._nodes.get(name)
        if node is None:
            node = self._nodes[name] = Schema(self.definition(name), self, name, structural=False)
        return node

    def kinds(self) -> Iterator[tuple[str, str, str]]:
        """Group, version and kind of everything that `for_kind` finds."""
        return iter(self._index())

    def name_of_kind(self, group: str, version: str, kind: str) -> str | None:
        """The name of the definition of a kind."""
        return self._index().get((group, version, kind))

    def from_structural(self, schema: Raw) -> Schema:
        """The schema of a custom resource from its openAPIV3Schema; apiVersion, kind and metadata are added."""
        return Schema({"type": "object", **schema, ROOT: True}, self, "", structural=True)

    # --- for nodes ---

    def definition(self, reference: str) -> Raw:
        """A definition by its name or by a reference to it; an empty one if it is missing."""
        found = self.definitions.get(reference.rpartition("/")[2])
        return found if isinstance(found, Mapping) else {}

    def node(self, raw: Raw, structural: bool, tolerant: bool) -> Schema:
        """The node for a raw schema. Plain references share one node, so schemas may contain themselves."""
        raw = _without_single_all_of(raw)
        reference = raw.get("$ref")
        if structural or not isinstance(reference, str):
            return Schema(raw, self, "", structural, tolerant and structural)
        name = reference.rpartition("/")[2]
        said = raw.keys() - _REMARKS
        if not said:
            return self.named(name)
        if said == {ALWAYS_THERE}:
            if name not in self._always_there:
                self._always_there[name] = Schema({**self.definition(name), ALWAYS_THERE: True}, self, name, False)
            return self._always_there[name]
        return Schema({**self.definition(name), **{key: raw[key] for key in said}}, self, name, structural=False)

    def object_properties(self) -> dict[str, Schema]:
        """What every object has."""
        members = {name: Schema(raw, self, "", structural=True) for name, raw in _TYPE_META.items()}
        there = {"$ref": f"#/{_OBJECT_META}", ALWAYS_THERE: True}
        return members | {"metadata": self.node(there, structural=False, tolerant=False)}

    def _index(self) -> dict[tuple[str, str, str], str]:
        if self._kinds is None:
            kinds = {}
            for name, definition in self.definitions.items():
                for each in definition.get("x-kubernetes-group-version-kind") or ():
                    kinds[each.get("group", ""), each.get("version", ""), each.get("kind", "")] = name
            self._kinds = kinds
        return self._kinds


def _without_single_all_of(raw: Raw) -> Raw:
    """OpenAPI v3 wraps a reference that has neighbours into allOf."""
    wrapped = raw.get("allOf")
    if "$ref" in raw or not isinstance(wrapped, list) or len(wrapped) != 1 or "$ref" not in wrapped[0]:
        return raw
    return {key: value for key, value in raw.items() if key != "allOf"} | {"$ref": wrapped[0]["$ref"]}
