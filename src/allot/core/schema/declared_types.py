"""From structural schemas to what CEL rules see: the types of values, and the values themselves.

Names that are no CEL identifiers are escaped (`__namespace__`, `my__dash__field`); what a schema does not describe cannot be
reached by rules.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from typing import Any

from allot.core.cel.checking.types import (
    BOOL,
    BYTES,
    DOUBLE,
    DURATION,
    DYN,
    INT,
    STRING,
    TIMESTAMP,
    CelType,
    Kind,
    list_of,
    map_of,
)
from allot.core.cel.data.times import parse_duration, parse_timestamp
from allot.core.cel.syntax.limits import RESERVED

Schema = Mapping[str, Any]
Objects = dict[str, Mapping[str, CelType]]

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ESCAPABLE = re.compile(r"[A-Za-z_.\-/][A-Za-z0-9_.\-/]*")
# Words of the language that are not reserved as field names stay as they are.
_ESCAPED_WORDS = RESERVED
_META: Schema = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "generateName": {"type": "string"}},
}
_SCALARS = {"boolean": BOOL, "number": DOUBLE, "integer": INT}
_STRINGS = {"date-time": TIMESTAMP, "date": TIMESTAMP, "duration": DURATION, "byte": BYTES}


def escaped(name: str) -> str | None:
    """A field's name in expressions; None if it has none."""
    if not name or not _ESCAPABLE.fullmatch(name):
        return None
    if name in _ESCAPED_WORDS:
        return f"__{name}__"
    text = (
        name.replace("__", "__underscores__").replace(".", "__dot__").replace("-", "__dash__").replace("/", "__slash__")
    )
    return text if _IDENTIFIER.fullmatch(text) else None


def with_object_fields(schema: Schema) -> Schema:
    """A schema whose values are objects of their own: with apiVersion, kind and what rules may see of metadata."""
    properties = schema.get("properties")
    known = properties if isinstance(properties, dict) else {}
    return {
        **schema,
        "properties": {**known, "apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": _META},
    }


def declared_type(schema: Schema, name: str, objects: Objects) -> CelType | None:
    """The type of a schema's values; None if rules cannot see them. Fields of object types are added to objects."""
    if schema.get("x-kubernetes-int-or-string") is True:
        return DYN
    match schema.get("type"):
        case "array":
            items = schema.get("items")
            element = declared_type(items, f"{name}.@idx", objects) if isinstance(items, dict) else None
            return list_of(element) if element is not None else None
        case "object":
            return _object_type(schema, name, objects)
    return scalar_type(schema)


def scalar_type(schema: Schema) -> CelType | None:
    """The type of values that are neither objects nor lists; None if the schema does not say which."""
    if schema.get("type") == "string":
        return _STRINGS.get(str(schema.get("format")), STRING)
    return _SCALARS.get(str(schema.get("type")))


def _object_type(schema: Schema, name: str, objects: Objects) -> CelType | None:
    additional = schema.get("additionalProperties")
    if isinstance(additional, dict):
        element = declared_type(additional, f"{name}.@elem", objects)
        return map_of(STRING, element) if element is not None else None
    if schema.get("x-kubernetes-embedded-resource") is True:
        schema = with_object_fields(schema)
    properties = schema.get("properties")
    fields: dict[str, CelType] = {}
    for field, below in properties.items() if isinstance(properties, dict) else ():
        shown = escaped(field)
        found = declared_type(below, f"{name}.{field}", objects) if isinstance(below, dict) and shown else None
        if shown and found is not None:
            fields[shown] = found
    objects[name] = fields
    return CelType(Kind.OBJECT, name)


def as_value(value: Any, schema: Schema) -> Any:
    """A JSON value as rules see it. What does not fit its schema stays as it is."""
    if isinstance(value, dict):
        return _as_map(value, schema)
    if isinstance(value, list):
        items = schema.get("items")
        return [as_value(item, items) for item in value] if isinstance(items, dict) else value
    if isinstance(value, str) and schema.get("type") == "string":
        return _as_text(value, str(schema.get("format")))
    if isinstance(value, int) and not isinstance(value, bool) and schema.get("type") == "number":
        return float(value)
    return value


def _as_map(value: Mapping[str, Any], schema: Schema) -> dict[str, Any]:
    additional = schema.get("additionalProperties")
    if isinstance(additional, dict):
        return {name: as_value(item, additional) for name, item in value.items()}
    if schema.get("x-kubernetes-embedded-resource") is True:
        schema = with_object_fields(schema)
    properties = schema.get("properties")
    known = properties if isinstance(properties, dict) else {}
    found = {}
    for name, item in value.items():
        below = known.get(name)
        shown = escaped(name)
        if isinstance(below, dict) and shown and (item is not None or below.get("nullable") is True):
            found[shown] = as_value(item, below)
        elif not known and schema.get("x-kubernetes-preserve-unknown-fields") is True:
            found[name] = item
    return found


def _as_text(value: str, format_: str) -> Any:
    if format_ == "byte":
        try:
            return base64.b64decode(value, validate=True)
        except (ValueError, binascii.Error):
            return value
    if format_ == "duration":
        return parse_duration(value) or value
    if format_ == "date-time":
        return parse_timestamp(value) or value
    if format_ == "date":
        return parse_timestamp(f"{value}T00:00:00Z") or value
    return value
