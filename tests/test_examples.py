"""The examples are valid, and say what their comments say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cli.command import allot

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
CLUSTER = str(EXAMPLES / "cluster")
# The others are drivers, and files that describe them.
MANIFESTS = (CLUSTER, str(EXAMPLES / "claims"), str(EXAMPLES / "does-not-fit.yaml"))


def answer(*files: str) -> dict[str, Any]:
    (line,) = allot("allocate", CLUSTER, *(str(EXAMPLES / file) for file in files), "-o", "json").lines
    return line


def devices(line: dict[str, Any]) -> list[tuple[str, str]]:
    results = [result for allocation in line["results"] for result in allocation["devices"]["results"]]
    return [(result["request"], result["device"]) for result in results]


def test_every_example_is_valid() -> None:
    result = allot("validate", *MANIFESTS, "--strict")
    assert result.code == 0, result.stdout
    assert result.stderr == ""


def test_every_example_is_valid_without_alpha_features() -> None:
    assert allot("validate", *MANIFESTS, "--feature-gates", "default").code == 0


def test_the_simplest_claim_gets_the_first_gpu() -> None:
    assert devices(answer("claims/1-any-gpu.yaml")) == [("gpu", "gpu-0")]


def test_gpu_and_nic_share_a_pcie_root() -> None:
    line = answer("claims/2-gpu-and-nearby-nic.yaml")
    assert line["node"] == "node-b"
    assert devices(line) == [("gpu", "gpu-6"), ("nic", "nic-3")]


def test_the_second_choice_is_taken_where_the_first_is_not_available() -> None:
    assert [request for request, _ in devices(answer("claims/3-first-available.yaml"))] == ["gpus/any"] * 4


def test_partitions_fill_the_board() -> None:
    assert devices(answer("claims/4-partitions.yaml")) == [
        ("half", "half-0"),
        ("quarters", "quarter-0"),
        ("quarters", "quarter-1"),
    ]


def test_bandwidth_is_rounded_up_to_a_step() -> None:
    line = answer("claims/5-shared-bandwidth.yaml")
    assert line["results"][0]["devices"]["results"][0]["consumedCapacity"] == {"bandwidth": "3G"}


def test_the_claim_that_does_not_fit_says_why() -> None:
    result = allot("allocate", CLUSTER, str(EXAMPLES / "does-not-fit.yaml"))
    assert result.code == 1
    assert "5 have memory 40Gi, need" in result.stdout
    assert "3 are in use (claims ml/train-0, ml/train-1, ml/train-2)" in result.stdout
    assert "4 are free, 5 are needed" in result.stdout


def test_scenarios_are_answered() -> None:
    fits, does_not = allot("allocate", str(EXAMPLES / "scenarios.jsonl")).lines
    assert devices(fits) == [("gpu", "gpu-0")]
    assert does_not["results"] is None
    assert does_not["reasons"]
