"""Findings as a whole: their order, what is ignored, and what the rules promise."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allot.core.advice.lint.finding import Edit, Severity, apply_edits
from allot.core.advice.lint.linter import lint
from allot.core.advice.lint.rules import RULES
from allot.reading.sources import read_source
from core.advice.lint.linting import NOTHING, SERVER, claim, findings, told
from vectors import vectors_dir

_WRONG = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\ndada: {}\n"
_PROJECT = Path(__file__).resolve().parents[4]


def test_findings_come_in_the_order_of_the_texts() -> None:
    sources = [read_source(_WRONG.encode(), name) for name in ("b.yaml", "a.yaml")]
    assert [finding.source for finding in lint(sources, NOTHING, SERVER)] == ["b.yaml", "a.yaml"]


def test_a_comment_on_the_line_keeps_a_finding_back() -> None:
    assert told(_WRONG.replace("dada: {}", "dada: {} # allot-lint: ignore=unknown-field")) == []
    assert told(_WRONG.replace("dada: {}", "dada: {} # allot-lint: ignore=old-form, unknown-field")) == []
    assert told(_WRONG.replace("dada: {}", "dada: {} # allot-lint: ignore=old-form")) == [(4, "unknown-field")]


def test_a_comment_before_the_line_keeps_a_finding_back() -> None:
    assert told(_WRONG.replace("dada", "# allot-lint: ignore=unknown-field\n# as it was\ndada")) == []


def test_a_comment_at_the_key_of_a_block_of_text_counts_for_its_lines() -> None:
    text = claim("device.driver = 1")
    assert told(text) == [(14, "cel-error")]
    assert told(text.replace("expression: |", "expression: | # allot-lint: ignore=cel-error")) == []


def test_names_of_rules_are_unique_and_of_one_form() -> None:
    names = [rule.name for rule in RULES]
    assert len(set(names)) == len(names)
    assert all(name == name.lower() and " " not in name for name in names)


def test_edits_that_overlap_are_made_one_at_a_time() -> None:
    assert apply_edits("abcdef", [Edit(1, 4, "X"), Edit(2, 3, "Y"), Edit(4, 5, "Z")]) == ("aXZf", 2)
    assert apply_edits("ab", [Edit(1, 1, "x"), Edit(1, 1, "x")]) == ("axb", 1)


# --- no false errors ---


def _valid_files() -> list[Path]:
    files = sorted((_PROJECT / "examples").rglob("*.yaml"))
    folder = vectors_dir()
    return files + (sorted((folder / "api").glob("*.yaml")) if folder is not None else [])


@pytest.mark.parametrize("file", _valid_files(), ids=lambda file: file.name)
def test_what_is_valid_has_no_errors(file: Path) -> None:
    found = lint([read_source(file.read_bytes(), file.name)], NOTHING, SERVER)
    assert [finding for finding in found if finding.severity is Severity.ERROR] == []


_YAML_BLOCK = re.compile(r"^ *```ya?ml\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)


def _pages() -> list[Path]:
    """Pages with manifests. That of the rules shows what is wrong, and so do those that walk through documents of others."""
    pages = [*_PROJECT.glob("*.md"), *_PROJECT.glob("docs/**/*.md"), *_PROJECT.glob("examples/**/*.md")]
    return sorted(
        page
        for page in pages
        if page.name != "lint.md" and page.parent.name != "documents" and _YAML_BLOCK.search(page.read_text())
    )


@pytest.mark.parametrize("page", _pages(), ids=lambda page: page.name)
def test_manifests_on_pages_have_no_errors(page: Path) -> None:
    blocks = [block for block in _YAML_BLOCK.findall(page.read_text()) if "apiVersion:" in block]
    assert [found for block in blocks for found in findings(block) if found.severity is Severity.ERROR] == []


@pytest.mark.slow
def test_what_is_valid_has_no_errors_together() -> None:
    sources = [read_source(file.read_bytes(), str(file)) for file in _valid_files()]
    found = lint(sources, NOTHING, SERVER)
    assert [finding for finding in found if finding.severity is Severity.ERROR] == []


# --- whatever is given ---

_TEXTS = st.text(alphabet="abc:-–—{}[]\"'“”\u00a0\t\n |>&*!#%@,.0", max_size=60)


@pytest.mark.slow
@settings(max_examples=150)
@given(_TEXTS)
def test_any_text_gives_findings_and_no_failure(text: str) -> None:
    for finding in lint([read_source(text.encode(), "f.yaml")], NOTHING, SERVER):
        assert 1 <= finding.line <= text.count("\n") + 2


_FIELDS = (
    *("spec", "devices", "requests", "exactly", "firstAvailable", "selectors", "cel", "expression", "name", "config"),
    *("opaque", "parameters", "constraints", "containers", "resources", "claims", "resourceClaims", "template"),
)
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.sampled_from(["", "x", "16Gi", "device.driver == 'a'", "All"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(_FIELDS), inner, max_size=4),
    max_leaves=12,
)
_KINDS = st.sampled_from(
    (
        ("resource.k8s.io/v1", "ResourceClaim"),
        ("resource.k8s.io/v1beta1", "ResourceClaimTemplate"),
        ("resource.k8s.io/v1", "DeviceClass"),
        ("resource.k8s.io/v1alpha2", "ResourceClaim"),
        ("v1", "Pod"),
        ("apps/v1", "Deployment"),
    )
)


@pytest.mark.slow
@settings(max_examples=100)
@given(_KINDS, _VALUES)
def test_objects_of_any_form_give_findings_and_no_failure(kind: tuple[str, str], spec: object) -> None:
    text = json.dumps({"apiVersion": kind[0], "kind": kind[1], "metadata": {"name": "x"}, "spec": spec})
    findings(text)
