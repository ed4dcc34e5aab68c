"""Example objects made from OpenAPI schemas, so that a kind that is served is a kind that is fuzzed.

A first guess has what the schema requires; `repaired` changes it by what the server says is wrong with it. Knows what names of
fields usually mean, and no kinds.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from typing import Any

from fuzz.values import copied

Schema = Mapping[str, Any]

_DEPTH_MAX = 9
_INDEX = re.compile(r"\[([^\]]*)\]")
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"')
# What a field of a name usually takes, whatever the kind.
_HINTS: dict[str, Any] = {
    "matchLabels": {"a": "b"},
    "labels": {"a": "b"},
    "selector": {"a": "b"},
    "name": "fuzz-a",
    "namespace": "fuzz-a",
    "image": "busybox:1",
    "apiVersion": "v1",
    "kind": "Pod",
    "apiGroup": "rbac.authorization.k8s.io",
    "apiGroups": [""],
    "apiVersions": ["v1"],
    "resources": ["pods"],
    "verbs": ["get"],
    "operations": ["CREATE"],
    "schedule": "0 0 * * *",
    "restartPolicy": "Never",
    "storage": "1Gi",
    "capacity": {"storage": "1Gi"},
    "accessModes": ["ReadWriteOnce"],
    "expression": "true",
    "messageExpression": "'a'",
    "url": "https://127.0.0.1:1/",
    "driver": "fuzz.example.com",
    "provisioner": "fuzz.example.com",
    "key": "fuzz.example.com/a",
    "mountPath": "/a",
    "path": "/a",
    "addresses": ["192.0.2.1"],
    "addressType": "IPv4",
    "ip": "192.0.2.1",
    "port": 80,
    "containerPort": 80,
    "cidr": "192.0.2.0/24",
    "deviceClassName": "fuzz.example.com",
    "nodeName": "fuzz-node",
    "admissionReviewVersions": ["v1"],
    "sideEffects": "None",
    "signerName": "fuzz.example.com/a",
    "usages": ["client auth"],
}
_TEXTS = (
    *("a", "fuzz.example.com", "fuzz.example.com/a", "1", "192.0.2.1", "192.0.2.0/24", "/a", "v1", "1Gi", "*", "10%"),
    *(
        "true",
        "2026-01-01T00:00:00Z",
        "2026-01-01T00:00:00.000000Z",
        "0 0 * * *",
        "YQ==",
        "uid-1",
        "a:b",
        "https://fuzz.example.com/",
        "A",
    ),
)
_NUMBERS = (1, 80, 0, 100, 1000, 3600, 30000)


class Schemas:
    """The definitions of an OpenAPI document, version 3."""

    def __init__(self) -> None:
        self._definitions: dict[str, Schema] = {}
        self._kinds: dict[tuple[str, str, str], str] = {}

    def add(self, document: Mapping[str, Any]) -> None:
        """What a document of a group and version has."""
        for name, schema in document["components"]["schemas"].items():
            self._definitions[name] = schema
            for kind in schema.get("x-kubernetes-group-version-kind", ()):
                self._kinds[kind["group"], kind["version"], kind["kind"]] = name

    def of_kind(self, group: str, version: str, kind: str) -> Schema:
        """The schema of a kind, an empty one if it has none."""
        return self._definitions.get(self._kinds.get((group, version, kind), ""), {})

    def resolved(self, schema: Schema) -> Schema:
        """A schema without references at its top."""
        while True:
            parts = schema.get("allOf")
            if parts and len(parts) == 1:
                schema = {**{key: value for key, value in schema.items() if key != "allOf"}, **parts[0]}
            reference = schema.get("$ref")
            if reference is None:
                return schema
            schema = self._definitions.get(reference.rpartition("/")[2], {})

    def at(self, schema: Schema, path: list[str | int]) -> tuple[Schema, bool]:
        """The schema of a field, and whether its parent requires it."""
        required = False
        for part in path:
            schema = self.resolved(schema)
            if isinstance(part, int):
                schema, required = schema.get("items", {}), False
            else:
                required = part in schema.get("required", ())
                schema = schema.get("properties", {}).get(part) or schema.get("additionalProperties") or {}
                if not isinstance(schema, dict):
                    schema = {}
        return self.resolved(schema), required

    def example(
        self, schema: Schema, dice: random.Random, *, optional: float = 0.0, name: str = "", depth: int = 0
    ) -> Any:
        """A value of a schema; optional: how likely it has a field that it need not have."""
        schema = self.resolved(schema)
        if name in _HINTS and _fits(_HINTS[name], schema):
            return copied(_HINTS[name])
        if schema.get("enum"):
            return dice.choice(schema["enum"])
        if "default" in schema and schema["default"] not in ({}, "", None):
            return copied(schema["default"])
        for choices in ("oneOf", "anyOf"):
            if schema.get(choices) and "type" not in schema:
                return self.example(dice.choice(schema[choices]), dice, optional=optional, name=name, depth=depth + 1)
        match schema.get("type"):
            case "string":
                return _text(schema, name, dice)
            case "integer" | "number":
                return dice.choice(_NUMBERS) if optional else 1
            case "boolean":
                return bool(optional) and dice.random() < 0.5
            case "array":
                if depth > _DEPTH_MAX:
                    return []
                return [
                    self.example(
                        schema.get("items", {}), dice, optional=optional, name=name.rstrip("s"), depth=depth + 1
                    )
                ]
            case "object" | None:
                return self._object(schema, dice, optional, depth)
        return None

    def _object(self, schema: Schema, dice: random.Random, optional: float, depth: int) -> dict[str, Any]:
        value: dict[str, Any] = {}
        required = schema.get("required", ())
        for name, inner in schema.get("properties", {}).items():
            if name in required or (depth < _DEPTH_MAX and dice.random() < optional * 0.85**depth):
                value[name] = self.example(inner, dice, optional=optional, name=name, depth=depth + 1)
        inner = schema.get("additionalProperties")
        if isinstance(inner, dict) and not schema.get("properties"):
            value["a"] = self.example(inner, dice, optional=optional, depth=depth + 1)
        return value


def _fits(hint: Any, schema: Schema) -> bool:
    kinds = {"string": str, "integer": int, "array": list, "object": dict}
    wanted = kinds.get(schema.get("type", ""))
    if wanted is None or not isinstance(hint, wanted) or schema.get("enum"):
        return False
    # A map takes a hint that is one; a struct knows better.
    return wanted is not dict or "additionalProperties" in schema


def _text(schema: Schema, name: str, dice: random.Random) -> str:
    match schema.get("format"):
        case "date-time":
            return "2026-01-01T00:00:00Z"
        case "byte":
            return "YQ=="
    if name.endswith("Time"):
        return "2026-01-01T00:00:00.000000Z"
    return dice.choice(_TEXTS[:3]) if schema.get("type") else "a"


# --- repairs ---


def path_of(field: str) -> list[str | int]:
    """The parts of a path such as spec.containers[0].image or metadata.labels[a.b/c]."""
    parts: list[str | int] = []
    keys = [key.group(1) for key in _INDEX.finditer(field)]
    plain = _INDEX.sub("\0", field)
    for part in plain.replace("\0", ".\0").split("."):
        if part == "\0":
            key = keys.pop(0)
            parts.append(int(key) if key.isdigit() else key)
        elif part:
            parts.append(part)
    return parts


def _parent(value: Any, path: list[str | int], schemas: Schemas, schema: Schema) -> Any:
    """What holds the last part of a path, made on the way if it does not exist; None if the path leads nowhere."""
    for depth, part in enumerate(path[:-1]):
        ahead = path[depth + 1]
        if isinstance(value, dict) and isinstance(part, str):
            if not isinstance(value.get(part), dict | list):
                value[part] = [] if isinstance(ahead, int) else {}
            value = value[part]
        elif isinstance(value, list) and isinstance(part, int):
            while len(value) <= part < 10:
                value.append({} if schemas.at(schema, path[: depth + 1])[0].get("type") != "string" else "a")
            if part >= len(value):
                return None
            value = value[part]
        else:
            return None
    return value


def repaired(
    value: dict[str, Any],
    schemas: Schemas,
    schema: Schema,
    causes: list[dict[str, str]],
    tried: dict[str, int],
    dice: random.Random,
) -> None:
    """Change an object by what a server found wrong with it. tried: how often each field was changed already."""
    for cause in causes:
        field = cause.get("field", "")
        path = path_of(field)
        if not path or path[0] in ("apiVersion", "kind"):
            continue
        tries = tried[field] = tried.get(field, -1) + 1
        parent, last = _parent(value, path, schemas, schema), path[-1]
        inner, required = schemas.at(schema, path)
        if isinstance(parent, dict) and isinstance(last, str):
            found = _other_value(schemas, inner, cause, parent.get(last), tries, dice, name=last, required=required)
            if found is _NOTHING:
                parent.pop(last, None)
            else:
                parent[last] = found
        elif isinstance(parent, list) and isinstance(last, int) and last <= len(parent):
            present = parent[last] if last < len(parent) else None
            found = _other_value(schemas, inner, cause, present, tries, dice, name="", required=required)
            parent[last : last + 1] = [] if found is _NOTHING else [found]


_NOTHING = object()


def _other_value(
    schemas: Schemas,
    schema: Schema,
    cause: Mapping[str, str],
    present: Any,
    tries: int,
    dice: random.Random,
    *,
    name: str,
    required: bool,
) -> Any:
    """What to put instead of a value that was refused; _NOTHING if the field had better not be there."""
    reason, message = cause.get("reason", ""), cause.get("message", "")
    supported = _QUOTED.findall(message.partition("supported values")[2])
    if supported:
        return supported[tries % len(supported)]
    if reason == "FieldValueRequired" and not present:
        found = schemas.example(schema, dice, optional=0.3 if tries else 0.0, name=name)
        return _TEXTS[tries % len(_TEXTS)] if isinstance(found, str) and tries else found
    if reason == "FieldValueForbidden" or (not required and reason != "FieldValueRequired" and tries % 2 == 0):
        return _NOTHING
    match schema.get("type"):
        case "integer" | "number":
            return _NUMBERS[tries % len(_NUMBERS)]
        case "boolean":
            return not present
        case "string":
            return _TEXTS[tries % len(_TEXTS)]
    return (
        _TEXTS[tries % len(_TEXTS)]
        if isinstance(present, str)
        else schemas.example(schema, dice, optional=0.4, name=name)
    )
