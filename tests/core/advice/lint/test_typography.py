"""Texts that word processors have been at."""

from __future__ import annotations

import pytest

from allot.core.advice.lint.finding import Severity
from allot.core.advice.typography import mended, pieces, slips
from core.advice.lint.linting import findings, fixed, the, told

_CONFIG_MAP = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {}\n"


@pytest.mark.parametrize("separator", ["–--", "—", "———", "–", "--–", "−−−"])
def test_a_separator_with_a_wrong_dash_is_told_and_both_documents_are_checked(separator: str) -> None:
    text = f"{_CONFIG_MAP.format('a')}dada: {{}}\n{separator}\n{_CONFIG_MAP.format('b')}dada: {{}}\n"
    assert told(text) == [(5, "unknown-field"), (6, "document-separator"), (11, "unknown-field")]
    assert "\n---\n" in fixed(text)


def test_a_document_that_is_no_yaml_does_not_hide_the_others() -> None:
    text = f"a: [1\n---\n{_CONFIG_MAP.format('b')}dada: {{}}\n"
    assert told(text) == [(2, "not-yaml"), (7, "unknown-field")]


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("a:\n\tb: 1\n", "line 2 is indented with a tab"),
        ("a: b: {{ .Values.x }}\n", "unfilled template"),
        ("```yaml\na: b: c\n```\n", "Markdown"),
        ("a: “b: c”: d\n", "typographic quotes"),
    ],
)
def test_the_likely_cause_is_told(text: str, cause: str) -> None:
    fix = the(text, "not-yaml").fix
    assert fix is not None
    assert cause in fix.text


def test_spaces_and_bullets_that_only_look_right_are_fixed() -> None:
    text = "apiVersion: v1\nkind: Pod\nmetadata:\n  name: p\nspec:\n  containers:\n  – name: c\n\u00a0\u00a0\u00a0 image: i\n"
    assert {finding.rule for finding in findings(text)} == {"typographic-character"}
    assert findings(fixed(text)) == []


@pytest.mark.parametrize("text", ["just words\n", "- a\n- b\n", "3\n"])
def test_what_is_no_mapping_is_no_object(text: str) -> None:
    assert told(text) == [(1, "not-an-object")]


def test_empty_documents_are_nothing() -> None:
    assert findings("---\n# only a comment\n---\n") == []


def test_objects_need_a_version_and_a_kind() -> None:
    assert the("kind: Pod\nmetadata: {}\n", "not-an-object").message.startswith("apiVersion is missing")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("apiVersion: 3\nkind: [Pod]\n", "apiVersion is 3: expected a string"),
        ("apiVersion: v1\nkind: {a: b}\n", 'kind is {"a": "b"}: expected a string'),
        ("kind: true\n", "kind is true: expected a string"),
    ],
)
def test_a_version_and_a_kind_are_text(text: str, message: str) -> None:
    found = the(text, "not-an-object")
    assert (found.severity, found.message) == (Severity.ERROR, message)


def test_pieces_are_the_text_without_odd_separators() -> None:
    text = "a\n---\nb\n–--\nc\n"
    assert [(piece.text, piece.line) for piece in pieces(text)] == [("a\n", 1), ("---\nb\n", 2), ("\nc\n", 4)]
    assert all(text[piece.start :].startswith(piece.text) for piece in pieces(text))


def test_mending_keeps_the_length() -> None:
    text = "a:\n\u00a0 – b\n"
    assert mended(text, slips(text)) == "a:\n  - b\n"


def test_json_that_is_broken_is_a_finding() -> None:
    assert told('{"apiVersion": "v1",, }') == [(1, "not-yaml")]


def test_yaml_that_is_something_else_is_passed_over_with_a_note() -> None:
    assert the("replicaCount: 3\nimage: x\n", "not-an-object").severity is Severity.NOTE
