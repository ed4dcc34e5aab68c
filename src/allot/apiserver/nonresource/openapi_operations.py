"""Operations in OpenAPI documents: enough for clients that check what a path takes, and whether a server supports dry run and field
validation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from allot.apiserver.resources import Resource, Subresource

Object = dict[str, Any]

V2_PREFIX = "#/definitions/"
V3_PREFIX = "#/components/schemas/"
TYPE_EXTENSION = "x-kubernetes-group-version-kind"
_QUERY = {
    "dryRun": "When present, indicates that modifications should not be persisted.",
    "fieldManager": "fieldManager is a name associated with the actor or entity that is making these changes.",
    "fieldValidation": "fieldValidation instructs the server on how to handle unknown or duplicate fields.",
}
# Kubernetes' verb -> method, and what upstream calls the action.
_OPERATIONS = {
    "get": ("get", "get"),
    "update": ("put", "put"),
    "patch": ("patch", "patch"),
    "delete": ("delete", "delete"),
    "list": ("get", "list"),
    "create": ("post", "post"),
    "deletecollection": ("delete", "deletecollection"),
}
_ONE = ("get", "update", "patch", "delete")
_MANY = ("list", "create", "deletecollection")
_PATCHES = (
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
)


def paths(resource: Resource, name: str, version: int, *, custom: bool = False) -> Object:
    """The operations of a resource. name: of its schema; version: of OpenAPI; custom: it takes no strategic patches."""
    root = f"/apis/{resource.group}/{resource.version}" if resource.group else f"/api/{resource.version}"
    base = f"{root}/namespaces/{{namespace}}/{resource.plural}" if resource.namespaced else f"{root}/{resource.plural}"
    patches = tuple(each for each in _PATCHES if not custom or "strategic" not in each)
    writer = (_Version2 if version == 2 else _Version3)(resource, name, patches)
    found: Object = {}
    names = ("name", *(("namespace",) if resource.namespaced else ()))
    rows = [
        (f"{base}/{{name}}", _ONE, resource.verbs, names),
        (base, _MANY, resource.verbs, names[1:]),
        *((f"{base}/{{name}}/{part.name}", _ONE, part.verbs, names) for part in _told_parts(resource)),
    ]
    if resource.namespaced:
        rows.append((f"{root}/{resource.plural}", ("list",), resource.verbs, ()))
    for path, verbs, allowed, inside in rows:
        operations = {_OPERATIONS[verb][0]: writer.operation(verb) for verb in verbs if verb in allowed}
        if not operations:
            continue
        # Not an empty list: readers that re-encode the document omit it, and then see a difference.
        shared = {"parameters": [writer.parameter(each, "path") for each in inside]} if inside else {}
        found[path] = {**operations, **shared}
    return found


def _told_parts(resource: Resource) -> Iterator[Subresource]:
    """Subresources with the object's own shape; others appear only in discovery."""
    return (part for part in resource.subresources.values() if not part.kind)


class _Version3:
    """OpenAPI 3: contents by media type."""

    prefix = V3_PREFIX

    def __init__(self, resource: Resource, name: str, patches: tuple[str, ...]) -> None:
        self._resource = resource
        self._name = name
        self._patches = patches

    def operation(self, verb: str) -> Object:
        """One operation."""
        resource = self._resource
        return {
            "operationId": f"{verb}{resource.version.capitalize()}{resource.kind}",
            "x-kubernetes-action": _OPERATIONS[verb][1],
            TYPE_EXTENSION: {"group": resource.group, "version": resource.version, "kind": resource.kind},
            **self._contents(verb, {"$ref": self.prefix + (f"{self._name}List" if verb == "list" else self._name)}),
        }

    def parameter(self, name: str, place: str, description: str = "") -> Object:
        """A parameter of a path or a query."""
        told: Object = {"name": name, "in": place, **self._text()}
        if place == "path":
            told["required"] = True
        return {**told, "description": description} if description else told

    def _options(self) -> list[Object]:
        return [self.parameter(name, "query", text) for name, text in _QUERY.items()]

    def _text(self) -> Object:
        return {"schema": {"type": "string", "uniqueItems": True}}

    def _contents(self, verb: str, schema: Object) -> Object:
        content = {"application/json": {"schema": schema}}
        told: Object = {"responses": {"200": {"description": "OK", "content": content}}}
        if verb in ("create", "update", "patch"):
            given = {each: {"schema": schema} for each in self._patches} if verb == "patch" else content
            told |= {"parameters": self._options(), "requestBody": {"content": given, "required": True}}
        return told


class _Version2(_Version3):
    """OpenAPI 2: bodies are parameters."""

    prefix = V2_PREFIX

    def _text(self) -> Object:
        return {"type": "string", "uniqueItems": True}

    def _contents(self, verb: str, schema: Object) -> Object:
        told: Object = {
            "consumes": list(self._patches) if verb == "patch" else ["*/*"],
            "produces": ["application/json", "application/yaml"],
            "responses": {"200": {"description": "OK", "schema": schema}},
        }
        if verb in ("create", "update", "patch"):
            told["parameters"] = [{"name": "body", "in": "body", "required": True, "schema": schema}, *self._options()]
        return told
