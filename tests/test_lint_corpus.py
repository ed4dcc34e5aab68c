"""Manifests in the shapes of the projects that users copy from: lint finds nothing wrong where nothing is.

Each file of `lint_corpus/` says in comments which findings are right, as `# expect: LINE SEVERITY RULE`; there are none else, and
none is an error. Notes, which are only things to know, are not listed.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from allot.core.advice.lint.finding import Severity
from allot.core.advice.lint.knowledge import Knowledge
from allot.core.advice.lint.linter import lint
from allot.core.advice.pod_templates import pod_spec_paths
from allot.reading.sources import read_source
from core.advice.lint.linting import NOTHING, SERVER, by_rule, fixed, hardware

_FILES = sorted((Path(__file__).parent / "lint_corpus").glob("*.yaml"))
_EXPECTED = re.compile(r"^# expect: (\d+) (warning) ([a-z-]+)$", re.MULTILINE)
_FILES_MIN = 25


def _told(file: Path, knowledge: Knowledge) -> list[tuple[int, Severity, str, str]]:
    found = lint([read_source(file.read_bytes(), file.name)], knowledge, SERVER)
    return [(each.line, each.severity, each.rule, each.message) for each in found if each.severity is not Severity.NOTE]


def test_there_are_enough_of_them() -> None:
    assert len(_FILES) >= _FILES_MIN


@pytest.mark.parametrize("file", _FILES, ids=lambda file: file.stem)
def test_what_public_projects_have_is_in_order(file: Path) -> None:
    expected = [(int(line), severity, rule) for line, severity, rule in _EXPECTED.findall(file.read_text())]
    assert [told[:3] for told in _told(file, NOTHING)] == expected, _told(file, NOTHING)


@pytest.mark.slow
def test_together_they_have_no_errors_either() -> None:
    """Against hardware too: what needs other hardware than this is a warning."""
    sources = [read_source(file.read_bytes(), file.name) for file in _FILES]
    for knowledge in (NOTHING, hardware("h100x8")):
        found = lint(sources, knowledge, SERVER)
        assert [each for each in found if each.severity is Severity.ERROR] == []


@pytest.mark.parametrize("file", _FILES, ids=lambda file: file.stem)
def test_the_pods_in_them_are_found(file: Path) -> None:
    """Wherever there are containers with an image, but for those that have no pod around them."""
    values = [document.value for document in read_source(file.read_bytes(), file.name).documents]
    specs = sum(1 for value in values for _ in pod_spec_paths(value))
    assert bool(specs) is (file.stem not in ("dynamo", "gpu-operator"))


@pytest.mark.parametrize("file", _FILES, ids=lambda file: file.stem)
def test_nothing_in_them_is_changed(file: Path) -> None:
    text = file.read_text()
    assert fixed(text) == text


_USE = re.compile(r"(?<=claims: \[\{name: )([a-z]+)(?=[,}].*\n(?:.*\n)*? +resourceClaims: \[\{name: \1[,}])")
_USING = [file for file in _FILES if _USE.search(file.read_text())]


@pytest.mark.parametrize("file", _USING, ids=lambda file: file.stem)
def test_a_misspelt_claim_is_found_in_whatever_kind_it_is(file: Path) -> None:
    text = _USE.sub(r"\1x", file.read_text(), count=1)
    (found,) = by_rule(text, "invalid-value")
    assert found.fix is not None
    assert found.fix.text.startswith("did you mean")
