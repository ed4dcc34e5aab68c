"""The manifests of the documents as they stand: `allot lint` names each mistake, `allot convert` makes each valid.

What they say, and the converted manifests, are in `goldens`. With ALLOT_WRITE_GOLDENS=1 the tests write them anew.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from cli.command import Result, allot
from e2e.seeds.documents import AKS, GA, GKE, MISSING, RISEUNION, document, seeds_dir

pytestmark = pytest.mark.skipif(seeds_dir() is None, reason=MISSING)

# Where each is gone through, step by step: `tests/test_docs.py` runs these pages.
PAGES = {"riseunion": "stock-prediction.md", "aks": "two-pods-one-gpu.md", "ga": "dra-goes-ga.md"}
GUIDES = Path(__file__).resolve().parents[3] / "docs" / "guides" / "documents"
GOLDENS = Path(__file__).resolve().parent / "goldens"
_WRITE = "ALLOT_WRITE_GOLDENS"

TITLES = {"riseunion": RISEUNION, "aks": AKS, "ga": GA}
of_each_document = pytest.mark.parametrize("name", TITLES)

# What is wrong with them: block, line in it, rule.
MISTAKES = {
    "riseunion": {
        (1, 1, "old-api-version"),
        (2, 1, "old-api-version"),
        (2, 13, "text-compared-as-size"),
    },
    "aks": {
        (1, 1, "old-api-version"),
        (1, 3, "old-form"),
        (1, 9, "old-api-version"),
        (1, 15, "old-form"),
        (1, 17, "document-separator"),
        (1, 38, "unknown-field"),
    },
    "ga": {
        (1, 1, "old-api-version"),
        (1, 8, "old-form"),
        (2, 1, "old-api-version"),
        (2, 6, "old-form"),
        (2, 10, "old-form"),
        (2, 14, "old-form"),
        (4, 1, "foreign-pod-group"),
    },
}


def blocks(folder: Path, name: str) -> list[str]:
    """The manifests of a document as files."""
    files = []
    for number, text in enumerate(document(TITLES[name]).manifests, 1):
        file = folder / f"{number}.yaml"
        file.write_text(text)
        files.append(str(file))
    return files


def golden(file: str, text: str) -> str:
    """What a text was before."""
    if os.environ.get(_WRITE):
        (GOLDENS / file).write_text(text)
    return (GOLDENS / file).read_text()


def converted(folder: Path, name: str) -> Result:
    result = allot("convert", *blocks(folder, name), *_options(name))
    assert result.code == 0, result.stderr
    return result


def _options(name: str) -> tuple[str, ...]:
    """The third document's gang is of another project than Kubernetes."""
    return ("--gangs",) if name == "ga" else ()


def test_everything_that_is_meant_for_a_cluster_is_found() -> None:
    found = [document(title) for title in (RISEUNION, GKE, AKS, GA)]
    assert [len(each.manifests) for each in found] == [3, 0, 1, 4]
    assert [len(each.commands) for each in found] == [0, 0, 5, 4]


@of_each_document
def test_its_page_goes_through_a_document_as_it_stands(name: str) -> None:
    page, found = (GUIDES / PAGES[name]).read_text(), document(TITLES[name])
    for manifest in found.manifests:
        assert manifest.strip() in page
    for command in found.commands:
        # People page through long outputs; and the end of one pod's name is the node's.
        wanted = command.removesuffix(" | less").replace("kube-scheduler- ", "kube-scheduler-allot-control-plane ")
        assert f"\n$ {wanted}\n" in page, command


@of_each_document
def test_lint_names_each_mistake(tmp_path: Path, name: str) -> None:
    result = allot("lint", *blocks(tmp_path, name), "-o", "json")
    assert result.code == 1
    findings: list[dict[str, Any]] = json.loads(result.stdout)["findings"]
    wrong = [each for each in findings if each["severity"] != "note"]
    named = {(int(Path(each["file"]).stem), each["line"], each["rule"]) for each in wrong}
    assert named >= MISTAKES[name]


@of_each_document
def test_lint_says_about_them_what_it_said_before(tmp_path: Path, name: str) -> None:
    printed = allot("lint", *blocks(tmp_path, name)).stdout.replace(f"{tmp_path}/", "")
    assert printed == golden(f"{name}.findings.txt", printed)


@of_each_document
def test_convert_makes_of_them_what_it_made_before_and_says_why(tmp_path: Path, name: str) -> None:
    result = converted(tmp_path, name)
    assert result.stdout == golden(f"{name}.yaml", result.stdout)
    told = result.stderr.replace(f"{tmp_path}/", "")
    assert told == golden(f"{name}.changes.txt", told)


@of_each_document
def test_what_was_converted_is_valid_and_needs_no_further_change(tmp_path: Path, name: str) -> None:
    text = converted(tmp_path, name).stdout
    file = tmp_path / "converted.yaml"
    file.write_text(text)
    assert allot("validate", "--strict", str(file)).code == 0
    findings = json.loads(allot("lint", str(file), "-o", "json").stdout)["findings"]
    assert [each for each in findings if each["severity"] == "error"] == []
    assert list(yaml.safe_load_all(allot("convert", str(file)).stdout)) == list(yaml.safe_load_all(text))
