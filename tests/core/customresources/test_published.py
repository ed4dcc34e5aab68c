"""Schemas of custom resources as OpenAPI of version 2 tells them."""

from __future__ import annotations

from typing import Any

import pytest

from allot.core.customresources.published import schema_v2

OPEN = {"x-kubernetes-preserve-unknown-fields": True}


def told(**properties: Any) -> Any:
    found = schema_v2({"type": "object", "properties": properties})
    assert found is not None
    return found["properties"]


@pytest.mark.parametrize(
    ("schema", "after"),
    [
        ({"type": "string", "default": "x", "enum": ["x"]}, {"type": "string", "enum": ["x"]}),
        ({"type": "object", "oneOf": [{}], "anyOf": [{}], "allOf": [{}], "not": {}}, {"type": "object"}),
        ({"type": "integer", "nullable": True, "minimum": 1}, {"minimum": 1}),
        ({"type": "object", "nullable": True, "properties": {"a": {"type": "string"}}}, {}),
        ({"type": "object", **OPEN, "properties": {"a": {"type": "string"}}}, OPEN),
        ({"type": "array", **OPEN}, OPEN),
        (
            {"type": "array", "items": {"type": "string", "default": "x"}},
            {"type": "array", "items": {"type": "string"}},
        ),
        (
            {"type": "object", "additionalProperties": {"type": "string", "nullable": True}, "required": ["a"]},
            {"type": "object", "additionalProperties": {}},
        ),
        ({"x-kubernetes-int-or-string": True}, {"x-kubernetes-int-or-string": True}),
    ],
)
def test_what_cannot_be_told_is_left_open(schema: dict[str, Any], after: dict[str, Any]) -> None:
    assert told(field=schema) == {"field": after}


def test_what_may_be_null_is_not_required() -> None:
    schema = {
        "type": "object",
        "required": ["a", "b"],
        "properties": {"a": {"type": "string"}, "b": {"type": "string", "nullable": True}},
    }
    assert told(spec=schema)["spec"]["required"] == ["a"]


def test_embedded_objects_have_a_type() -> None:
    found = told(template={"type": "object", "x-kubernetes-embedded-resource": True})["template"]
    assert set(found["properties"]) == {"apiVersion", "kind", "metadata"}
    assert found["required"] == ["kind", "apiVersion"]


def test_of_what_takes_every_field_nothing_is_told() -> None:
    assert schema_v2({}) is None
    assert schema_v2({"type": "object", **OPEN, "properties": {"a": {"type": "string"}}}) is None
