"""Workloads run end to end and report what they have shown."""

from __future__ import annotations

import msgspec
import pytest
from click.testing import CliRunner

from allot.cli.commands.bench import bench

QUICK = (
    "SchedulingWithResourceClaimTemplate/fast",
    "SchedulingWithResourceClaim/fast",
    "ConsumableCapacity/fast",
    "ExtendedResourceScoring/fast",
    "SharedPodGroupResourceClaimTemplate/fast",
)


@pytest.mark.slow
def test_workloads_are_run_and_reported_as_a_list_of_objects() -> None:
    answer = CliRunner().invoke(bench, ["scheduling", *QUICK, "-o", "json"])
    assert answer.exit_code == 0, answer.output
    outcomes = msgspec.json.decode(answer.stdout)
    assert {outcome["workload"] for outcome in outcomes} == set(QUICK)
    for outcome in outcomes:
        assert outcome["podsPerSecond"] > 0
        assert outcome["writesPerPod"] > 1
        assert outcome["latencyMilliseconds"]["count"] == outcome["pods"]
        assert outcome["peakMemoryMebibytes"] > 0


def test_an_unknown_workload_is_an_error_that_names_the_nearest() -> None:
    answer = CliRunner().invoke(bench, ["scheduling", "SchedulingWithResourceClaimTemplate/5000pod_500nodes"])
    assert answer.exit_code == 2
    assert "did you mean SchedulingWithResourceClaimTemplate/5000pods_500nodes?" in answer.output


def test_nothing_is_run_unless_something_is_named() -> None:
    answer = CliRunner().invoke(bench, ["scheduling"])
    assert answer.exit_code == 2
    assert "--label" in answer.output


def test_workloads_are_listed_with_nodes_pods_and_labels() -> None:
    answer = CliRunner().invoke(bench, ["scheduling", "--list", "Partitionable"])
    assert answer.exit_code == 0
    lines = answer.output.splitlines()
    assert lines[0].split() == ["WORKLOAD", "NODES", "PODS", "MODE", "LABELS"]
    assert len(lines) == 10
