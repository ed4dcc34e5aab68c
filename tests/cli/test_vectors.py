"""The commands give the answers that Kubernetes gave, on everything that was recorded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cli.command import allot
from vectors import vectors_dir

VECTORS = vectors_dir()
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(VECTORS is None, reason="no vectors: set ALLOT_VECTORS to their folder"),
]

# Scenarios in which the answer differs on purpose; docs/reference/differences.md has the reasons.
DIFFERENT = frozenset(("N06-timeout",))


def folder() -> Path:
    assert VECTORS is not None
    return VECTORS


@pytest.mark.parametrize("file", ["table.jsonl", "rules.jsonl", "random.jsonl"])
def test_scenarios_get_upstreams_results_and_errors(file: str) -> None:
    path = folder() / "allocator" / file
    expected = [json.loads(line) for line in path.read_text().splitlines()]
    result = allot("allocate", str(path))
    assert result.code == 0, result.stderr
    answers = result.lines
    assert [answer["name"] for answer in answers] == [scenario["name"] for scenario in expected]
    wrong = [
        scenario["name"]
        for scenario, answer in zip(expected, answers, strict=True)
        if answer["results"] != scenario["expect"]["results"]
        or (answer["error"] is None) != (scenario["expect"]["error"] is None)
    ]
    different = {scenario["name"] for scenario in expected} & DIFFERENT
    assert set(wrong) == different, f"{len(wrong)} of {len(expected)} differ: {wrong[:20]}"


def test_what_does_not_fit_always_has_a_reason() -> None:
    for file in ("rules.jsonl", "random.jsonl"):
        for answer in allot("allocate", str(folder() / "allocator" / file)).lines:
            if answer["results"] is None and answer["error"] is None:
                assert answer["reasons"], answer["name"]
                assert all(reason["message"] for reason in answer["reasons"])


def _outcome(case: dict[str, Any]) -> Any:
    return case.get("compile_error") or case.get("error") or case.get("match")


def test_cases_get_upstreams_outcomes_and_costs() -> None:
    path = folder() / "cel" / "fuzz.json"
    cases = json.loads(path.read_text())["cases"]
    answers = allot("cel", "--cases", str(path)).lines
    assert [answer["expression"] for answer in answers] == [case["expression"] for case in cases]
    pairs = list(zip(cases, answers, strict=True))
    wrong = [case["expression"] for case, answer in pairs if _outcome(case) != _outcome(answer)]
    priced = [case["expression"] for case, answer in pairs if case["max_cost"] != answer["maxCost"]]
    assert not wrong, wrong[:10]
    assert not priced, priced[:10]


def test_every_accepted_example_is_valid() -> None:
    result = allot("validate", *(str(path) for path in sorted((folder() / "api").glob("*.yaml"))))
    assert result.code == 0, result.stdout


def test_rejected_objects_have_the_servers_errors() -> None:
    cases = json.loads((folder() / "api" / "invalid.json").read_text())
    # Cases that need a stored object, a namespace or a gate that is off are the library's to answer.
    asked = [case for case in cases if case["operation"] == "create" and case.get("errors")]
    wrong = []
    for case in asked:
        gates = "all" if case.get("gates") else "default"
        result = allot("validate", "-", "-o", "json", "--feature-gates", gates, stdin=json.dumps(case["object"]))
        found = {(error["field"], error["type"]) for line in result.lines for error in line["errors"]}
        if found != {(error["field"], error["type"]) for error in case["errors"]}:
            wrong.append(case["id"])
    assert set(wrong) == {
        # Needs the namespace's labels.
        "claim-admin-access-unlabelled",
        "template-admin-access-unlabelled",
        # Needs the cluster's priority classes.
        "podgroup-priority-class-system",
    }


def test_accepted_oddities_are_valid() -> None:
    for case in json.loads((folder() / "api" / "accepted-oddities.json").read_text()):
        result = allot("validate", "-", "--feature-gates", "default", stdin=json.dumps(case["object"]))
        assert result.code == 0, f"{case.get('id')}: {result.stdout}"
