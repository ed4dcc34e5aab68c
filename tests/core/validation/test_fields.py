"""Field errors print values as Go does."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allot.core.quantity import Quantity
from allot.core.validation import fields


@pytest.mark.parametrize(
    ("text", "quoted"),
    [
        ("plain", '"plain"'),
        ('say "hi"', '"say \\"hi\\""'),
        ("a\\b", '"a\\\\b"'),
        ("tab\tnew\n", '"tab\\tnew\\n"'),
        ("\x00\x7f", '"\\x00\\x7f"'),
        ("grün 日本", '"grün 日本"'),
        ("\u00a0", '"\\u00a0"'),
        ("\U000e0001", '"\\U000e0001"'),
    ],
)
def test_texts_are_quoted_as_by_go(text: str, quoted: str) -> None:
    assert fields.quote(text) == quoted


@given(st.text())
def test_go_json_is_json_without_html_characters(text: str) -> None:
    printed = fields.go_json(text)
    assert not set("<>&\u2028\u2029") & set(printed)
    assert json.loads(printed) == text.encode("utf-8", "replace").decode()


@pytest.mark.parametrize(
    ("value", "rendered"),
    [
        (None, "null"),
        (True, "true"),
        (-3, "-3"),
        (["a"], '["a"]'),
        ({"A": "<x>"}, '{"A":"\\u003cx\\u003e"}'),
        (Quantity.parse("1024Mi"), '"1Gi"'),
    ],
)
def test_bad_values_are_rendered(value: object, rendered: str) -> None:
    assert fields.render(value) == rendered


def test_a_lone_surrogate_does_not_break_a_message() -> None:
    message = fields.invalid("a", "\ud800", "odd").error.message
    assert message.encode()
    assert fields.not_supported("a", "\ud800", ["x"]).error.message.encode()


def test_every_error_type_has_its_text() -> None:
    found = [
        fields.required("a.b"),
        fields.required("a", "now"),
        fields.forbidden("a"),
        fields.too_many("a", 5, 1),
        fields.too_long("a", 63, unit="characters"),
        fields.duplicate("a[1]", "x"),
        fields.not_supported("a", "z", ["b", "a"]),
        fields.not_found("a", "x", "gone"),
    ]
    assert [str(finding.error) for finding in found] == [
        "a.b: Required value",
        "a: Required value: now",
        "a: Forbidden",
        "a: Too many: 5: must have at most 1 item",
        "a: Too long: may not be more than 63 characters",
        'a[1]: Duplicate value: "x"',
        'a: Unsupported value: "z": supported values: "a", "b"',
        'a: Not found: "x": gone',
    ]


def test_lengths_are_bytes_even_of_what_is_no_utf8() -> None:
    assert fields.byte_length("abc") == 3
    assert fields.byte_length("ü") == 2
    assert fields.byte_length("\ud800") == 3
