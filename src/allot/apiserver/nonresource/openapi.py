"""OpenAPI documents: what kubectl explain, completion and validation read.

Version 3 is complete: one document per group and version, made from the shipped definitions and from custom resources'
schemas when it is first asked for. Version 2 has all definitions and no operations, as JSON; in protobuf, which older
kubectls ask for before they fall back to version 3, only the frame.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import msgspec

from allot.apiserver.registry import Registry
from allot.apiserver.resources import Resource
from allot.core.schema import Schemas

Object = dict[str, Any]

_REFERENCE = "$ref"
_INT_OR_STRING = "io.k8s.apimachinery.pkg.util.intstr.IntOrString"
_QUANTITY = "io.k8s.apimachinery.pkg.api.resource.Quantity"
_INFO = {"title": "Kubernetes", "version": "v1.37.0"}
_TYPE_EXTENSION = "x-kubernetes-group-version-kind"
_STATUS = "io.k8s.apimachinery.pkg.apis.meta.v1.Status"
_DELETE_OPTIONS = "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions"
_OBJECT_META = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
_LIST_META = "io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta"
_DEPTH_MAX = 100


class Row(Protocol):
    """A resource and the schema that it brings along, if it does."""

    @property
    def resource(self) -> Resource:
        """What is served."""

    @property
    def openapi(self) -> Object | None:
        """Its schema; None for built-in kinds, whose schemas are known."""


class OpenApi:
    """Documents made from the registry's rows, kept until these change."""

    def __init__(self, registry: Registry, schemas: Schemas, unstored: Sequence[Row] = ()) -> None:
        """unstored: rows besides the registry's."""
        self._registry = registry
        self._unstored = unstored
        self._schemas = schemas
        self._generation = -1
        self._documents: dict[str, tuple[str, bytes]] = {}
        self._swagger: bytes | None = None

    def _refresh(self) -> None:
        if self._generation != self._registry.generation:
            self._generation = self._registry.generation
            self._documents.clear()
            self._swagger = None

    def index(self) -> Object:
        """/openapi/v3: where the documents are. The hash in an address changes with the document."""
        self._refresh()
        paths = {}
        served = [(group, version) for group, versions in self._registry.groups().items() for version in versions]
        served += dict.fromkeys((row.resource.group, row.resource.version) for row in self._unstored)
        for group, version in served:
            path = f"apis/{group}/{version}" if group else f"api/{version}"
            digest = self._digest(group, version)
            paths[path] = {"serverRelativeURL": f"/openapi/v3/{path}?hash={digest}"}
        return {"paths": paths}

    def _rows_of(self, group: str, version: str) -> Sequence[Row]:
        found = (row for row in self._unstored if (row.resource.group, row.resource.version) == (group, version))
        return self._registry.rows_of(group, version) or tuple(found)

    def _digest(self, group: str, version: str) -> str:
        """A hash of what the document is made from, without making it."""
        rows = self._rows_of(group, version)
        told = [(row.resource.plural, row.resource.kind, row.openapi) for row in rows]
        return hashlib.sha256(msgspec.json.encode([_INFO, told])).hexdigest()[:32].upper()

    def document(self, path: str) -> tuple[str, bytes] | None:
        """The document of a path like apis/apps/v1, and its ETag."""
        self._refresh()
        found = self._documents.get(path)
        if found is not None:
            return found
        parts = path.split("/")
        group, version = ("", parts[1]) if parts[0] == "api" and len(parts) == 2 else ("", "")
        if parts[0] == "apis" and len(parts) == 3:
            group, version = parts[1], parts[2]
        rows = self._rows_of(group, version) if version else ()
        if not rows:
            return None
        body = msgspec.json.encode(self._made(rows))
        found = self._documents[path] = (f'"{self._digest(group, version)}"', body)
        return found

    def _made(self, rows: Sequence[Row]) -> Object:
        collected: dict[str, Object] = {}
        paths: Object = {}
        for row in rows:
            name = self._collect_row(row, collected)
            paths |= _paths(row, name)
        for name in (_STATUS, _DELETE_OPTIONS):
            self._collect(name, collected)
        return {"openapi": "3.0.0", "info": _INFO, "paths": paths, "components": {"schemas": collected}}

    def _collect_row(self, row: Row, collected: dict[str, Object]) -> str:
        resource = row.resource
        name = self._schemas.name_of_kind(resource.group, resource.version, resource.kind)
        if row.openapi is None and name is not None:
            self._collect(name, collected)
            listed = self._schemas.name_of_kind(resource.group, resource.version, resource.list_kind)
            if listed is not None:
                self._collect(listed, collected)
            for subresource in resource.subresources.values():
                other = self._schemas.name_of_kind(
                    subresource.group, subresource.version or resource.version, subresource.kind or resource.kind
                )
                if other is not None:
                    self._collect(other, collected)
            return name
        return self._collect_custom(row, collected)

    def _collect_custom(self, row: Row, collected: dict[str, Object]) -> str:
        resource = row.resource
        reverse = ".".join(reversed(resource.group.split(".")))
        name = f"{reverse}.{resource.version}.{resource.kind}"
        kind = {"group": resource.group, "version": resource.version, "kind": resource.kind}
        self._collect(_OBJECT_META, collected)
        self._collect(_LIST_META, collected)
        schema: Object = dict(row.openapi or {"type": "object", "x-kubernetes-preserve-unknown-fields": True})
        properties = dict(schema.get("properties") or {})
        properties |= {
            "apiVersion": {"type": "string", "description": _API_VERSION_TEXT},
            "kind": {"type": "string", "description": _KIND_TEXT},
            "metadata": {"description": _METADATA_TEXT, "allOf": [_reference(_OBJECT_META)]},
        }
        collected[name] = {**schema, "properties": properties, _TYPE_EXTENSION: [kind]}
        collected[f"{name}List"] = {
            "description": f"{resource.kind}List is a list of {resource.kind}",
            "type": "object",
            "required": ["items"],
            "properties": {
                "apiVersion": {"type": "string"},
                "kind": {"type": "string"},
                "metadata": _reference(_LIST_META),
                "items": {"type": "array", "items": _reference(name)},
            },
            _TYPE_EXTENSION: [{**kind, "kind": resource.list_kind}],
        }
        return name

    def _collect(self, name: str, collected: dict[str, Object]) -> None:
        """A definition and everything that it refers to."""
        waiting = [name]
        while waiting:
            name = waiting.pop()
            if name in collected:
                continue
            raw = self._schemas.definitions.get(name)
            references: list[str] = []
            collected[name] = _well_known(name, version=3) or _cleaned(raw or {}, references, 0)
            waiting += references

    # --- version 2 ---

    def swagger(self) -> bytes:
        """/openapi/v2 as JSON."""
        self._refresh()
        if self._swagger is None:
            definitions = {}
            for name, raw in self._schemas.definitions.items():
                definitions[name] = _well_known(name, version=2) or _cleaned(raw, [], 0, prefix="#/definitions/")
            document = {"swagger": "2.0", "info": _INFO, "paths": {}, "definitions": definitions}
            self._swagger = msgspec.json.encode(document)
        return self._swagger

    def swagger_protobuf(self) -> bytes:
        """/openapi/v2 as protobuf: swagger (1), info (2) with title (1) and version (2), and no definitions."""
        title, version = _INFO["title"].encode(), _INFO["version"].encode()
        info = b"\x0a" + bytes([len(title)]) + title + b"\x12" + bytes([len(version)]) + version
        # Empty paths (8) and definitions (9), which clients expect to be there.
        return b"\x0a\x032.0" + b"\x12" + bytes([len(info)]) + info + b"\x42\x00" + b"\x4a\x00"


_API_VERSION_TEXT = "APIVersion defines the versioned schema of this representation of an object."
_KIND_TEXT = "Kind is a string value representing the REST resource this object represents."
_METADATA_TEXT = "Standard object's metadata."


def _reference(name: str, prefix: str = "#/components/schemas/") -> Object:
    return {_REFERENCE: prefix + name}


def _well_known(name: str, *, version: int) -> Object | None:
    if name == _INT_OR_STRING:
        if version == 2:
            return {"type": "string", "format": "int-or-string"}
        return {"format": "int-or-string", "oneOf": [{"type": "integer"}, {"type": "string"}]}
    if name == _QUANTITY:
        if version == 2:
            return {"type": "string"}
        return {"oneOf": [{"type": "string"}, {"type": "number"}]}
    return None


def _cleaned(
    raw: Mapping[str, Any], references: list[str], depth: int, prefix: str = "#/components/schemas/"
) -> Object:
    """A definition as OpenAPI has it: no null among the types, references that lead to the document's own schemas."""
    told: Object = {}
    if depth > _DEPTH_MAX:
        return told
    for key, value in raw.items():
        if key == _REFERENCE:
            name = str(value).rpartition("/")[2]
            references.append(name)
            if len(raw) == 1 or prefix == "#/definitions/":
                told[key] = prefix + name
            else:
                told["allOf"] = [_reference(name, prefix)]
        elif key == "type" and isinstance(value, list):
            told[key] = next((each for each in value if each != "null"), "object")
        elif key == "enum" and isinstance(value, list) and None in value:
            told[key] = [each for each in value if each is not None]
        elif key == "properties" and isinstance(value, dict):
            told[key] = {name: _cleaned(each, references, depth + 1, prefix) for name, each in value.items()}
            for name in ("apiVersion", "kind"):
                if name in told[key]:
                    told[key][name].pop("enum", None)
        elif key in ("items", "additionalProperties") and isinstance(value, dict):
            told[key] = _cleaned(value, references, depth + 1, prefix)
        elif key in ("oneOf", "anyOf", "allOf") and isinstance(value, list):
            told[key] = [_cleaned(each, references, depth + 1, prefix) for each in value]
        else:
            told[key] = value
    return told


# --- operations ---

_QUERY = {
    "dryRun": "When present, indicates that modifications should not be persisted.",
    "fieldManager": "fieldManager is a name associated with the actor or entity that is making these changes.",
    "fieldValidation": "fieldValidation instructs the server on how to handle unknown or duplicate fields.",
}
_OPERATIONS = {
    "get": ("get", "get"),
    "update": ("put", "put"),
    "patch": ("patch", "patch"),
    "delete": ("delete", "delete"),
    "list": ("get", "list"),
    "create": ("post", "post"),
    "deletecollection": ("delete", "deletecollection"),
}


def _paths(row: Row, name: str) -> Object:
    """The operations of a row: enough for clients that ask whether a server knows dry run and field validation."""
    resource = row.resource
    root = f"/apis/{resource.group}/{resource.version}" if resource.group else f"/api/{resource.version}"
    base = f"{root}/namespaces/{{namespace}}/{resource.plural}" if resource.namespaced else f"{root}/{resource.plural}"
    kind = {"group": resource.group, "version": resource.version, "kind": resource.kind}
    one = {
        _OPERATIONS[verb][0]: _operation(verb, kind, name)
        for verb in ("get", "update", "patch", "delete")
        if verb in resource.verbs
    }
    many = {
        _OPERATIONS[verb][0]: _operation(verb, kind, name)
        for verb in ("list", "create", "deletecollection")
        if verb in resource.verbs
    }
    parameters = [_path_parameter("name")] + ([_path_parameter("namespace")] if resource.namespaced else [])
    paths: Object = {}
    if one:
        paths[f"{base}/{{name}}"] = {**one, "parameters": parameters}
    if many:
        paths[base] = {**many, "parameters": parameters[1:]}
    return paths


def _path_parameter(name: str) -> Object:
    return {"name": name, "in": "path", "required": True, "schema": {"type": "string", "uniqueItems": True}}


def _operation(verb: str, kind: Object, name: str) -> Object:
    content = {"application/json": {"schema": _reference(f"{name}List" if verb == "list" else name)}}
    told: Object = {
        "operationId": f"{verb}{kind['version'].capitalize()}{kind['kind']}",
        "responses": {"200": {"description": "OK", "content": content}},
        "x-kubernetes-action": _OPERATIONS[verb][1],
        _TYPE_EXTENSION: kind,
    }
    if verb in ("create", "update", "patch"):
        told["parameters"] = [
            {"name": each, "in": "query", "description": text, "schema": {"type": "string", "uniqueItems": True}}
            for each, text in _QUERY.items()
        ]
        told["requestBody"] = {"content": content, "required": True}
    return told
