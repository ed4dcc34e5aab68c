"""OpenAPI documents: what kubectl explain, completion and validation read.

Built from the shipped definitions and from custom resources' schemas on first use: version 3 is one document per
group and version, version 2 one for all, as JSON and in protobuf.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from allot.apiserver.nonresource import openapi_operations as operations
from allot.apiserver.nonresource.openapi_operations import TYPE_EXTENSION
from allot.apiserver.registry import Registry
from allot.apiserver.resources import Resource
from allot.core.customresources.published import schema_v2
from allot.core.schema import Schemas
from allot.core.schema.merging import OwnPart, renamed
from allot.wire import openapi_v2

Object = dict[str, Any]

_REFERENCE = "$ref"
_INT_OR_STRING = "io.k8s.apimachinery.pkg.util.intstr.IntOrString"
_QUANTITY = "io.k8s.apimachinery.pkg.api.resource.Quantity"
_INFO = {"title": "Kubernetes", "version": "v1.37.0"}
_STATUS = "io.k8s.apimachinery.pkg.apis.meta.v1.Status"
_DELETE_OPTIONS = "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions"
_OBJECT_META = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
_LIST_META = "io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta"
_DEPTH_MAX = 100


class Row(Protocol):
    """A resource and its own schema, if any."""

    @property
    def resource(self) -> Resource:
        """What is served."""

    @property
    def openapi(self) -> Object | None:
        """Its schema; None for built-in kinds, whose schemas are known."""


class ExtensionDocuments(Protocol):
    """What other servers tell about their groups."""

    @property
    def generation(self) -> int:
        """Changes with everything else here."""

    def openapi_v3(self) -> Iterable[tuple[str, str]]:
        """Paths of documents in version 3, and hashes that change with them."""

    def openapi_v2(self) -> Sequence[OwnPart]:
        """Parts of the document in version 2."""


class OpenApi:
    """Documents built from the registry's rows, cached until they change."""

    def __init__(
        self,
        registry: Registry,
        schemas: Schemas,
        unstored: Sequence[Row] = (),
        extensions: ExtensionDocuments | None = None,
    ) -> None:
        """unstored: rows besides the registry's. extensions: documents of other servers."""
        self._registry = registry
        self._unstored = unstored
        self._extensions = extensions
        self._schemas = schemas
        self._generation = (-1, -1)
        # By path, or by the form of version 2.
        self._documents: dict[str, tuple[str, bytes]] = {}
        # Definitions and paths of built-in kinds in version 2.
        self._builtin_json: tuple[bytes, ...] | None = None
        self._builtin_protobuf: tuple[bytes, bytes] | None = None

    def _newest(self) -> tuple[int, int]:
        return self._registry.generation, 0 if self._extensions is None else self._extensions.generation

    def _refresh(self) -> None:
        if self._generation != self._newest():
            self._generation = self._newest()
            self._documents.clear()

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
        for path, digest in () if self._extensions is None else self._extensions.openapi_v3():
            paths[path] = {"serverRelativeURL": f"/openapi/v3/{path}?hash={digest}"}
        return {"paths": paths}

    def _rows_of(self, group: str, version: str) -> Sequence[Row]:
        found = (row for row in self._unstored if (row.resource.group, row.resource.version) == (group, version))
        return self._registry.rows_of(group, version) or tuple(found)

    def _digest(self, group: str, version: str) -> str:
        """A hash of the document's sources, without building it."""
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
            paths |= operations.paths(row.resource, name, 3, custom=self._is_custom(row))
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
        name = _custom_name(resource)
        kind = {"group": resource.group, "version": resource.version, "kind": resource.kind}
        self._collect(_OBJECT_META, collected)
        self._collect(_LIST_META, collected)
        schema = row.openapi or {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        collected[name] = _with_type(schema, operations.V3_PREFIX) | {TYPE_EXTENSION: [kind]}
        collected[f"{name}List"] = _list_of(resource, name, operations.V3_PREFIX)
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

    def swagger(self) -> tuple[str, bytes]:
        """/openapi/v2 as JSON, and its ETag."""
        return self._swagger("json", self._encoded_json)

    def swagger_protobuf(self) -> tuple[str, bytes]:
        """/openapi/v2 as protobuf, and its ETag."""
        return self._swagger("protobuf", self._encoded_protobuf)

    def _swagger(self, form: str, encode: Callable[[Object, Object], bytes]) -> tuple[str, bytes]:
        self._refresh()
        found = self._documents.get(form)
        if found is None:
            generation = self._generation
            definitions: Object = {}
            paths: Object = {}
            for row in (*self._registry, *self._unstored):
                if self._is_custom(row):
                    paths |= operations.paths(row.resource, self._define_custom(row, definitions), 2, custom=True)
            self._add_extensions(definitions, paths)
            body = encode(definitions, paths)
            found = f'"{hashlib.sha256(body).hexdigest().upper()}"', body
            # Built outside the event loop; rows may have changed meanwhile.
            if generation == self._newest():
                self._documents[form] = found
        return found

    def _add_extensions(self, definitions: Object, paths: Object) -> None:
        parts = () if self._extensions is None else self._extensions.openapi_v2()
        if not any(part.paths for part in parts):
            return
        known, known_paths = self._builtin()
        for part in parts:
            added = renamed(part, {**known, **definitions})
            definitions |= added.definitions
            paths |= {path: each for path, each in added.paths.items() if path not in known_paths}

    def _is_custom(self, row: Row) -> bool:
        resource = row.resource
        known = self._schemas.name_of_kind(resource.group, resource.version, resource.kind)
        return row.openapi is not None or known is None

    def _builtin(self) -> tuple[Object, Object]:
        """Definitions and paths of built-in kinds, which never change."""
        definitions = {
            name: _well_known(name, version=2) or _cleaned(raw, [], 0, prefix=operations.V2_PREFIX)
            for name, raw in self._schemas.definitions.items()
        }
        paths: Object = {}
        for row in tuple(self._registry):
            resource = row.resource
            name = self._schemas.name_of_kind(resource.group, resource.version, resource.kind)
            if name is not None and not self._is_custom(row):
                paths |= operations.paths(resource, name, 2)
        return definitions, paths

    def _encoded_json(self, definitions: Object, paths: Object) -> bytes:
        if self._builtin_json is None:
            self._builtin_json = tuple(map(_members, self._builtin()))
        known, known_paths = self._builtin_json
        frame = msgspec.json.encode({"swagger": "2.0", "info": _INFO})[:-1]
        joined = [
            b",".join(filter(None, each)) for each in ((known, _members(definitions)), (known_paths, _members(paths)))
        ]
        return frame + b',"definitions":{' + joined[0] + b'},"paths":{' + joined[1] + b"}}"

    def _encoded_protobuf(self, definitions: Object, paths: Object) -> bytes:
        if self._builtin_protobuf is None:
            known, known_paths = self._builtin()
            self._builtin_protobuf = (
                openapi_v2.encode_definitions(known),
                openapi_v2.encode_paths(known_paths),
            )
        known_bytes, known_path_bytes = self._builtin_protobuf
        return openapi_v2.encode_document(
            _INFO,
            known_bytes + openapi_v2.encode_definitions(definitions),
            known_path_bytes + openapi_v2.encode_paths(paths),
        )

    def _define_custom(self, row: Row, definitions: Object) -> str:
        resource = row.resource
        name = _custom_name(resource)
        kind = {"group": resource.group, "version": resource.version, "kind": resource.kind}
        schema = schema_v2(row.openapi or {})
        if schema is None:
            definitions[name] = {"type": "object", TYPE_EXTENSION: [kind]}
        else:
            definitions[name] = _with_type(schema, operations.V2_PREFIX) | {TYPE_EXTENSION: [kind]}
        definitions[f"{name}List"] = _list_of(resource, name, operations.V2_PREFIX)
        return name


def _members(values: Object) -> bytes:
    """The members of a JSON object without its braces, so that they can be joined with others."""
    return msgspec.json.encode(values)[1:-1]


def _custom_name(resource: Resource) -> str:
    return f"{'.'.join(reversed(resource.group.split('.')))}.{resource.version}.{resource.kind}"


def _with_type(schema: Mapping[str, Any], prefix: str) -> Object:
    """The schema of a custom resource with what every object has."""
    properties = {
        **(schema.get("properties") or {}),
        "apiVersion": {"type": "string", "description": _API_VERSION_TEXT},
        "kind": {"type": "string", "description": _KIND_TEXT},
        "metadata": {"description": _METADATA_TEXT, **_beside(_OBJECT_META, prefix)},
    }
    return {**schema, "properties": properties}


def _list_of(resource: Resource, name: str, prefix: str) -> Object:
    kind = {"group": resource.group, "version": resource.version, "kind": resource.list_kind}
    return {
        "description": f"{resource.kind}List is a list of {resource.kind}",
        "type": "object",
        "required": ["items"],
        "properties": {
            "apiVersion": {"type": "string", "description": _API_VERSION_TEXT},
            "kind": {"type": "string", "description": _KIND_TEXT},
            "metadata": {"description": _METADATA_TEXT, **_beside(_LIST_META, prefix)},
            "items": {
                "description": f"List of {resource.plural}.",
                "type": "array",
                "items": _reference(name, prefix),
            },
        },
        TYPE_EXTENSION: [kind],
    }


def _beside(name: str, prefix: str) -> Object:
    """A reference next to a description, which version 3 does not allow."""
    return _reference(name, prefix) if prefix == operations.V2_PREFIX else {"allOf": [_reference(name, prefix)]}


_API_VERSION_TEXT = "APIVersion defines the versioned schema of this representation of an object."
_KIND_TEXT = "Kind is a string value representing the REST resource this object represents."
_METADATA_TEXT = "Standard object's metadata."


def _reference(name: str, prefix: str) -> Object:
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


def _cleaned(raw: Mapping[str, Any], references: list[str], depth: int, prefix: str = operations.V3_PREFIX) -> Object:
    """A definition in OpenAPI's form: no null among the types, and references to the document's own schemas."""
    told: Object = {}
    if depth > _DEPTH_MAX:
        return told

    def below(each: Mapping[str, Any]) -> Object:
        return _cleaned(each, references, depth + 1, prefix)

    for key, value in raw.items():
        if key == _REFERENCE:
            name = str(value).rpartition("/")[2]
            references.append(name)
            told |= _reference(name, prefix) if len(raw) == 1 else _beside(name, prefix)
        else:
            told[key] = _cleaned_keyword(key, value, below)
    return told


def _cleaned_keyword(key: str, value: Any, below: Callable[[Mapping[str, Any]], Object]) -> Any:
    """The cleaned value of a schema keyword. below: cleans a nested schema."""
    match key, value:
        case "type", list():
            return next((each for each in value if each != "null"), "object")
        case "enum", list():
            return [each for each in value if each is not None]
        case "properties", dict():
            told = {name: below(each) for name, each in value.items()}
            for name in ("apiVersion", "kind"):
                if name in told:
                    told[name].pop("enum", None)
            return told
        case "items" | "additionalProperties", dict():
            return below(value)
        case "oneOf" | "anyOf" | "allOf", list():
            return [below(each) for each in value]
    return value
