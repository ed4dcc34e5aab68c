"""`allot top`, `get`, `tree` and `plan` on dumps: what they print, and how they end."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli.command import allot

DUMP = ("-f", "examples/cluster")
CLAIM = "examples/claims/1-any-gpu.yaml"


@pytest.fixture(autouse=True)
def _from_the_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(__file__).resolve().parents[2])


@pytest.mark.parametrize("by", ["class", "node", "model", "driver", "pool"])
def test_devices_are_counted_by_what_is_asked_for(by: str) -> None:
    result = allot("top", "devices", "--by", by, *DUMP)
    assert result.code == 0
    assert result.stdout.startswith(by.upper())
    answer = allot("top", "devices", "--by", by, "-o", "json", *DUMP).lines[0]
    assert answer["by"] == by
    assert sum(row["total"] for row in answer["rows"]) == answer["units"] == 26
    assert {"name", "total", "free", "partly", "inUse", "unavailable", "fragmentation", "holders"} <= set(
        answer["rows"][0]
    )
    assert {"partition", "fits", "inUse"} <= set(answer["partitions"][0])


def test_rows_are_sorted_and_holders_chosen_by_namespace() -> None:
    rows = allot("top", "devices", "--sort-by", "free", "-n", "nobody", "-o", "json", *DUMP).lines[0]["rows"]
    assert [row["free"] for row in rows] == sorted((row["free"] for row in rows), reverse=True)
    assert not any(row["holders"] for row in rows)


def test_claims_of_a_namespace_or_of_all() -> None:
    assert "train-0" in allot("top", "claims", "-n", "ml", *DUMP).stdout
    assert "train-0" not in allot("top", "claims", *DUMP).stdout
    claims = allot("top", "claims", "-A", "--idle", "-o", "json", *DUMP).lines[0]["claims"]
    assert {claim["state"] for claim in claims} == {"idle"}


def test_nodes_are_listed() -> None:
    nodes = allot("top", "nodes", "-o", "json", "--sort-by", "name", *DUMP).lines[0]["nodes"]
    assert [(node["name"], node["devices"], node["free"]) for node in nodes] == [("node-a", 12, 9), ("node-b", 13, 13)]


@pytest.mark.parametrize(
    ("memory", "shown"), [("24682416Ki", "23.5Gi"), ("64Gi", "64Gi"), ("900Mi", "900Mi"), ("2Ti", "2Ti"), ("7", "7")]
)
def test_memory_of_nodes_is_shown_in_a_unit_that_can_be_read(memory: str, shown: str) -> None:
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "n"},
        "status": {"allocatable": {"memory": memory}},
    }
    result = allot("top", "nodes", "-f", "-", stdin=json.dumps(node))
    assert f" 0 of {shown} " in result.stdout
    exact = allot("top", "nodes", "-f", "-", "-o", "json", stdin=json.dumps(node)).lines[0]["nodes"][0]["memory"]
    assert exact == {"total": memory, "requested": "0"}


def test_a_dump_cannot_be_watched() -> None:
    result = allot("top", "nodes", "--watch", *DUMP)
    assert result.code == 2
    assert "error: --watch needs a cluster" in result.stderr


def test_devices_are_listed_with_attributes_as_columns() -> None:
    result = allot("get", "devices", "-o", "wide", "--free", "-l", 'device.driver == "gpu.example.com"', *DUMP)
    assert result.code == 0
    header, *rows = result.stdout.splitlines()
    assert {"MODEL", "DRIVERVERSION", "PCIEROOT", "MEMORY"} <= set(header.split())
    assert len(rows) == 13


def test_a_selector_that_is_no_cel_is_refused() -> None:
    result = allot("get", "devices", "-l", "device.", *DUMP)
    assert result.code == 1
    assert result.stderr.startswith("error: selector:")


def test_devices_on_which_the_selector_fails_are_left_out_with_a_note() -> None:
    result = allot("get", "devices", "-l", 'device.attributes["gpu.example.com"].model == "X80"', "-o", "json", *DUMP)
    assert result.code == 0
    assert "note: the selector fails on 16 devices" in result.stderr
    assert {device["model"] for device in result.lines[0]["devices"]} == {"X80"}


def test_pools_are_listed() -> None:
    assert "node-b-board-0" in allot("get", "pools", *DUMP).stdout
    assert len(allot("get", "pools", "-o", "json", *DUMP).lines[0]["pools"]) == 6


def test_a_tree_is_drawn_from_a_claim_node_or_device() -> None:
    result = allot("tree", "claim/train-0", "-n", "ml", *DUMP)
    assert result.code == 0
    assert "└─ device gpu.example.com/node-a/gpu-5: model X80" in result.stdout
    assert "claim ml/train-0" in allot("tree", "node/node-a", *DUMP).stdout
    assert allot("tree", "device/node-a/gpu-5", "-o", "json", *DUMP).lines[0]["children"][0]["name"] == "ml/train-0"


def test_facts_of_a_tree_have_the_names_of_fields_for_programs() -> None:
    (claim,) = allot("tree", "claim/train-0", "-n", "ml", "-o", "json", *DUMP).lines
    assert set(claim["facts"]) == {"state", "node"}
    assert set(claim["children"][0]["facts"]) == {"asksFor"}


@pytest.mark.parametrize("subject", ["pod/gone", "gone", "claim/gone", "node/gone", "device/gone"])
def test_what_is_not_there_has_no_tree(subject: str) -> None:
    result = allot("tree", subject, *DUMP)
    assert result.code == 1
    assert "not found" in result.stderr


def test_a_tree_of_something_else_is_refused() -> None:
    assert allot("tree", "service/x", *DUMP).code == 2


def test_copies_are_counted_and_the_next_one_s_block_is_told() -> None:
    result = allot("plan", CLAIM, *DUMP)
    assert result.code == 0
    assert "The next one is blocked: 0/2 nodes are available" in result.stdout
    answer = allot("plan", CLAIM, "-o", "json", *DUMP).lines[0]
    assert answer["now"]["scheduled"] == 13
    assert answer["now"]["maximum"] == {"copies": 13, "isExact": True, "reason": ""}
    assert answer["changed"] is None
    assert {share["node"]: share["pods"] for share in answer["now"]["placement"]} == {"node-a": 5, "node-b": 8}


def test_other_clusters_are_planned_beside_the_one_that_is_there() -> None:
    changes = ("--add-like", "node-b=2", "--remove", "node-a", "--add", "h100x8=1")
    answer = allot("plan", CLAIM, *changes, "-o", "json", *DUMP).lines[0]
    assert (answer["now"]["scheduled"], answer["changed"]["scheduled"]) == (13, 24)
    assert (answer["now"]["nodes"], answer["changed"]["nodes"]) == (2, 4)
    assert answer["changes"] == ["add h100x8=1", "add-like node-b=2", "remove node-a"]


def test_none_fits_is_an_exit_code(tmp_path: Path) -> None:
    manifest = tmp_path / "claim.json"
    request = {"name": "r", "exactly": {"deviceClassName": "gpu.example.com", "count": 30}}
    claim = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "c"}}
    manifest.write_text(json.dumps({**claim, "spec": {"devices": {"requests": [request]}}}))
    result = allot("plan", str(manifest), *DUMP)
    assert result.code == 1
    assert "No copy fits. If one were created:" in result.stdout
    explanation = allot("plan", str(manifest), "-o", "json", *DUMP).lines[0]["explanation"]
    assert explanation["reason"] == "TooFewDevices"


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("--drain", "gone"), 1, "'gone': no node has this name or these labels"),
        (("--add-like", "gone=2"), 1, "node gone is not in the cluster"),
        (("--add-like", "node-a=x"), 2, "'x' is not a number of nodes"),
        (("--add", "h100x99=1"), 2, "unknown machine"),
        (("--max", "0"), 2, "invalid value for '--max'"),
    ],
)
def test_changes_that_cannot_be_made_are_refused(arguments: tuple[str, ...], code: int, message: str) -> None:
    result = allot("plan", CLAIM, *arguments, *DUMP)
    assert result.code == code
    assert message in result.stderr


def test_there_is_nothing_to_plan_in_an_empty_file() -> None:
    result = allot("plan", "-", *DUMP)
    assert (result.code, result.stderr) == (2, "error: -: no objects: expected at least one\n")
