"""The allocator gives the answers that Kubernetes' allocator gave."""

from __future__ import annotations

import json
from typing import Any

import pytest

from vectors import vectors_dir

from .scenarios import run

# Scenarios in which the answer differs on purpose; each is explained in docs/reference/differences.md.
DIFFERENT = {
    # Upstream searches until its deadline; the claims do not fit, which is answered here.
    "N06-timeout",
}


def scenarios(name: str) -> list[dict[str, Any]]:
    folder = vectors_dir()
    if folder is None:
        pytest.skip("no vectors: put them beside the repository or name their folder in ALLOT_VECTORS")
    with (folder / "allocator" / f"{name}.jsonl").open() as lines:
        return [json.loads(line) for line in lines]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["table", "rules", "random"])
def test_results_and_errors_are_those_of_kubernetes(name: str) -> None:
    wrong = []
    cases = scenarios(name)
    for scenario in cases:
        if scenario["name"] in DIFFERENT:
            continue
        results, error, _ = run(scenario)
        expected = scenario["expect"]
        if (error is None) != (expected["error"] is None) or (error is None and results != expected["results"]):
            wrong.append(
                f"{scenario['name']}: {error or results} instead of {expected['error'] or expected['results']}"
            )
    assert not wrong, f"{len(wrong)} of {len(cases)} differ:\n" + "\n".join(wrong[:20])


@pytest.mark.parametrize("name", ["table", "rules"])
def test_error_texts_are_those_of_kubernetes(name: str) -> None:
    wrong = []
    for scenario in scenarios(name):
        expected = scenario["expect"]["error"]
        if expected is None or scenario["name"] in DIFFERENT or "could not retrieve device class" in expected:
            continue
        _, error, _ = run(scenario)
        if error != expected:
            wrong.append(f"{scenario['name']}: {error!r} instead of {expected!r}")
    assert not wrong, "\n".join(wrong)
