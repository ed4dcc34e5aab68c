"""The schema of a custom resource in OpenAPI v2, by upstream's rules.

Version 2 has neither alternatives nor null, and kubectl rejects everything that a schema does not name: so what cannot be
expressed is left open.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Schema = Mapping[str, Any]

_PRESERVES = "x-kubernetes-preserve-unknown-fields"
# What every object has.
_TYPED = {
    "apiVersion": {"type": "string"},
    "kind": {"type": "string"},
    "metadata": {"$ref": "#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"},
}
# What version 2 does not know, and defaults, which clients would take for the server's.
_UNTOLD = ("allOf", "anyOf", "default", "not", "nullable", "oneOf")


def schema_v2(schema: Schema) -> dict[str, Any] | None:
    """The schema; None if nothing can be told, since every field is allowed."""
    return None if not schema or schema.get(_PRESERVES) is True else _told(schema)


def _told(schema: Schema) -> dict[str, Any]:
    told = {name: value for name, value in schema.items() if name not in _UNTOLD}
    is_open = schema.get(_PRESERVES) is True
    if schema.get("nullable") is True:
        told.pop("type", None)
    if schema.get("nullable") is True or is_open:
        told.pop("items", None)
        told.pop("properties", None)
    if (told.get("type") == "array" and "items" not in told) or (is_open and told.get("type") == "object"):
        del told["type"]
    properties = told.get("properties")
    if isinstance(properties, dict):
        told["properties"] = {name: _told(each) for name, each in properties.items()}
        needed = [each for each in told.get("required") or () if not (properties.get(each) or {}).get("nullable")]
        told["required"] = needed
    if schema.get("x-kubernetes-embedded-resource") is True and not is_open:
        told["properties"] = {**(told.get("properties") or {}), **_TYPED}
        told["required"] = [*(told.get("required") or ()), "kind", "apiVersion"]
    if isinstance(told.get("items"), dict):
        told["items"] = _told(told["items"])
    additional = told.get("additionalProperties")
    if isinstance(additional, dict):
        told["additionalProperties"] = _told(additional)
        if additional.get("nullable") is True:
            told["required"] = []
    if not told.get("required"):
        told.pop("required", None)
    return told
