"""Values against schemas, in upstream's words."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allot.core.customresources.list_types import check_list_types
from allot.core.customresources.openapi import check_value
from allot.core.customresources.string_formats import has_format, is_known_format


def told(value: Any, schema: dict[str, Any]) -> list[str]:
    return [str(error) for error in check_value({"a": value}, {"type": "object", "properties": {"a": schema}})]


@pytest.mark.parametrize(
    ("value", "schema", "expected"),
    [
        (1, {"type": "string"}, 'a: Invalid value: "integer": a in body must be of type string: "integer"'),
        (None, {"type": "string"}, 'a: Invalid value: "null": a in body must be of type string: "null"'),
        (1.5, {"type": "integer"}, 'a: Invalid value: "number": a in body must be of type integer: "number"'),
        ("abc", {"type": "string", "maxLength": 2}, "a: Too long: may not be more than 2 bytes"),
        ("a", {"type": "string", "minLength": 2}, 'a: Invalid value: "a": a in body should be at least 2 chars long'),
        ("b", {"type": "string", "pattern": "^a$"}, "a: Invalid value: \"b\": a in body should match '^a$'"),
        ("x", {"type": "string", "format": "date-time"}, 'a: Invalid value: "x": a in body must be of type date-time: "x"'),
        (5, {"type": "integer", "maximum": 4}, "a: Invalid value: 5: a in body should be less than or equal to 4"),
        (4, {"type": "integer", "maximum": 4, "exclusiveMaximum": True}, "a: Invalid value: 4: a in body should be less than 4"),
        (3, {"type": "integer", "multipleOf": 2}, "a: Invalid value: 3: a in body should be a multiple of 2"),
        ([1], {"type": "array", "minItems": 2}, "a: Invalid value: 1: a in body should have at least 2 items"),
        ([1, 2], {"type": "array", "maxItems": 1}, "a: Too many: 2: must have at most 1 item"),
        ({}, {"type": "object", "minProperties": 1}, "a: Invalid value: 0: a in body should have at least 1 properties"),
        ({}, {"type": "object", "required": ["b"]}, "a.b: Required value"),
        (["x"], {"type": "array", "items": {"type": "integer"}}, 'a[0]: Invalid value: "string": a[0] in body must be of type integer: "string"'),
        ({"k": 1}, {"type": "object", "additionalProperties": {"type": "string"}}, 'a.k: Invalid value: "integer": a.k in body must be of type string: "integer"'),
        ("x", {"enum": ["b", 1]}, 'a: Unsupported value: "x": supported values: "1", "b"'),
        (1, {"not": {"type": "integer"}}, '<nil>: Invalid value: "": "a" must not validate the schema (not)'),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_told(value: Any, schema: dict[str, Any], expected: str) -> None:
    assert told(value, schema) == [expected]


@pytest.mark.parametrize(
    ("value", "schema"),
    [
        (1.0, {"type": "integer"}),
        (1, {"type": "number"}),
        (None, {"type": "string", "nullable": True}),
        ("8080", {"x-kubernetes-int-or-string": True}),
        ("x", {"type": "string", "format": "no-such-format"}),
        ("10.0.0.1", {"type": "string", "format": "ipv4"}),
        ("x", {"anyOf": [{"type": "integer"}, {"type": "string"}]}),
    ],
)
def test_what_fits_passes(value: Any, schema: dict[str, Any]) -> None:
    assert told(value, schema) == []


def test_alternatives_tell_which_came_closest() -> None:
    errors = told("x", {"oneOf": [{"type": "integer"}, {"type": "string", "minLength": 2}]})
    assert errors[0] == '<nil>: Invalid value: "": "a" must validate one and only one schema (oneOf). Found none valid'
    both = told("x", {"oneOf": [{"type": "string"}, {"minLength": 1}]})
    assert both == [
        '<nil>: Invalid value: "": "a" must validate one and only one schema (oneOf). Found 2 valid alternatives'
    ]


def test_deep_values_end() -> None:
    schema: dict[str, Any] = {"type": "object"}
    value: dict[str, Any] = {}
    for _ in range(200):
        schema, value = {"type": "object", "properties": {"a": schema}}, {"a": value}
    assert "nested too deeply" in str(check_value(value, schema)[0])


def test_keyed_lists_have_each_key_once() -> None:
    schema = {
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["name"],
        "items": {"type": "object"},
    }
    errors = check_list_types(
        {"a": [{"name": "x"}, {"name": "y"}, {"name": "x"}, {"name": "x"}]}, {"properties": {"a": schema}}
    )
    assert [str(error) for error in errors] == ['a[2]: Duplicate value: {"name":"x"}']


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("date", "2024-02-29", "2023-02-29"),
        ("datetime", "2024-02-29T00:00:00Z", "2024-02-29"),
        ("duration", "1h30m", "soon"),
        ("ipv6", "::1", "1.2.3.4"),
        ("cidr", "10.0.0.0/8", "10.0.0.0"),
        ("uuid4", "123e4567-e89b-42d3-a456-426614174000", "123e4567-e89b-12d3-a456-426614174000"),
        ("email", "a@example.com", "a.example.com"),
        ("byte", "YWJj", "***"),
        ("hostname", "a.example.com", "a_b"),
        ("isbn13", "978-3-16-148410-0", "978-3-16-148410-1"),
        ("k8s-short-name", "abc", "Abc"),
        ("mac", "00:00:5e:00:53:01", "00:00"),
    ],
)
def test_formats(name: str, good: str, bad: str) -> None:
    assert is_known_format(name) and has_format(name, good) and not has_format(name, bad)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-100, 100) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=10,
)


@given(JSON, JSON)
def test_no_value_and_no_schema_breaks_the_checks(value: Any, schema: Any) -> None:
    whole = {"type": "object", "properties": {"a": schema if isinstance(schema, dict) else {}}}
    check_value({"a": value}, whole)
    check_list_types({"a": value}, whole)
