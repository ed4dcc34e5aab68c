"""The types that expressions of a policy see, from the OpenAPI schemas of a server.

An object type is named after the place of its schema (`Pod.spec.containers.@idx`) and resolved when an expression reaches it: a
pod has thousands. What has no single type cannot be reached, as upstream; quantities are among it. A schema that contains
itself ends there as an object without fields.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from allot.core.cel.checking.types import DYN, STRING, CelType, Kind, list_of, map_of
from allot.core.schema.declared_types import escaped, scalar_type, with_object_fields

Schema = Mapping[str, Any]

_EMBEDDED = "x-kubernetes-embedded-resource"
_GROUP_VERSION_KIND = "x-kubernetes-group-version-kind"
_TYPED_META = ("name", "generateName")


class ObjectTypes(Mapping[str, Mapping[str, CelType]]):
    """The fields of object types by name."""

    def __init__(self, schemas: Mapping[str, Schema]) -> None:
        """schemas: components of an OpenAPI document, by name."""
        self._schemas = schemas
        # Schemas of object types, with the references on the way there.
        self._places: dict[str, tuple[Schema, tuple[str, ...]]] = {}
        self._fields: dict[str, Mapping[str, CelType]] = {}

    def declare(self, group: str, version: str, kind: str, name: str) -> CelType | None:
        """The type of the objects of a kind, under a name; None if there is no schema of it."""
        told = {"group": group, "version": version, "kind": kind}
        for reference, schema in self._schemas.items():
            if told in (schema.get(_GROUP_VERSION_KIND) or ()):
                return self._type(schema, name, (reference,), is_root=True)
        return None

    def __getitem__(self, name: str) -> Mapping[str, CelType]:
        if name not in self._fields:
            schema, above = self._places[name]
            self._fields[name] = {
                shown: found
                for field, below in _properties(schema).items()
                if (shown := escaped(field)) and (found := self._type(below, f"{name}.{field}", above)) is not None
            }
        return self._fields[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)

    def _type(self, schema: Schema, name: str, above: tuple[str, ...], *, is_root: bool = False) -> CelType | None:
        schema, above = self._resolved(schema, above)
        if schema.get("format") == "int-or-string" or schema.get("x-kubernetes-int-or-string") is True:
            return DYN
        if is_root or schema.get(_EMBEDDED) is True:
            schema = self._with_meta(schema, above)
        match schema.get("type"):
            case "array":
                items = schema.get("items")
                element = self._type(items, f"{name}.@idx", above) if isinstance(items, Mapping) else None
                return None if element is None else list_of(element)
            case "object":
                values = schema.get("additionalProperties")
                if isinstance(values, Mapping):
                    value = self._type(values, f"{name}.@elem", above)
                    return None if value is None else map_of(STRING, value)
                self._places[name] = schema, above
                return CelType(Kind.OBJECT, name)
        return scalar_type(schema)

    def _resolved(self, schema: Schema, above: tuple[str, ...]) -> tuple[Schema, tuple[str, ...]]:
        """The schema that a reference means, which stands alone or, to have a description, in allOf."""
        reference = _reference(schema)
        if not reference:
            return schema, above
        name = reference.rpartition("/")[2]
        if name in above:
            return {"type": "object"}, above
        return self._resolved(self._schemas.get(name, {}), (*above, name))

    def _with_meta(self, schema: Schema, above: tuple[str, ...]) -> Schema:
        """Every object has a type and a name, even if its schema does not say so."""
        found = {name: self._resolved(below, above)[0] for name, below in _properties(schema).items()}
        metadata = _properties(found.get("metadata") or {})
        texts = (found.get("kind"), found.get("apiVersion"), *(metadata.get(name) for name in _TYPED_META))
        is_complete = all(each is not None and each.get("type") == "string" for each in texts)
        return schema if is_complete else with_object_fields(schema)


def _reference(schema: Schema) -> str:
    if isinstance(schema.get("$ref"), str):
        return str(schema["$ref"])
    for part in schema.get("allOf") or ():
        found = _reference(part)
        if found:
            return found
    return ""


def _properties(schema: Schema) -> Mapping[str, Schema]:
    properties = schema.get("properties")
    return properties if isinstance(properties, Mapping) else {}
