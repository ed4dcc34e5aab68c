"""`allot explain` and `allot snapshot` as commands: what they print, and how they end."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from allot.cli.up.instance import Instance, InstanceState
from allot.node.runtimes.shim import start_time
from cli.command import allot
from core.advice.explain.clusters import (
    asks,
    claim,
    device_class,
    gpus,
    holding,
    node,
    pod,
    pool,
    running,
    templated,
)

CLUSTER: list[dict[str, Any]] = [
    node("n"),
    pool("n", gpus(1)),
    device_class(),
    claim("held", asks(), status=holding("n", "gpu-0", users=("other",))),
    running("other", "n", "held"),
    *templated("train", asks()),
]
CAUSE = "default/train is pending because the only device of class gpu (gpu-0 on node n) is in use by pod default/other"


def listed(items: list[dict[str, Any]]) -> str:
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": items})


@pytest.fixture
def dump(tmp_path: Path) -> str:
    path = tmp_path / "dump.yaml"
    path.write_text(listed(CLUSTER))
    return str(path)


@pytest.mark.parametrize("target", [("train",), ("pod/train",), ("pods/train",), ("pod", "train"), ("Pod/train",)])
def test_the_first_line_is_the_cause(dump: str, target: tuple[str, ...]) -> None:
    result = allot("explain", *target, "-f", dump)
    assert result.code == 1
    assert result.stdout.splitlines()[0] == CAUSE


def test_what_a_dump_lacks_is_noted_and_not_taken_for_deleted_without_a_word(tmp_path: Path) -> None:
    path = tmp_path / "pods.json"
    path.write_text(listed([made for made in CLUSTER if made["kind"] == "Pod"]))
    result = allot("explain", "train", "-f", str(path))
    assert result.stdout.splitlines()[0] == (
        "default/train is pending because its claim default/train-gpu-x does not exist, "
        "nor does ResourceClaimTemplate default/train-template, from which it was created"
    )
    assert result.stderr == (
        "note: the dump has no Node and no DeviceClass and no ResourceSlice: "
        "answers are those for a cluster that has none\n"
    )


def test_the_rest_tells_what_would_help_requests_nodes_and_the_nearest_miss(dump: str) -> None:
    lines = allot("explain", "train", "-f", dump).stdout.splitlines()
    assert "  1. delete pod default/other on node n, or wait until it ends   -> node n" in lines
    assert 'Request "gpu" of claim default/train-gpu-x needs 1 device of class gpu:' in lines
    # Of the only node all has been said.
    assert not [line for line in lines if line.startswith(("Nodes", "Nearest miss"))]


def test_nodes_that_differ_are_told_apart_and_the_nearest_with_its_numbers(tmp_path: Path) -> None:
    path = tmp_path / "dump.yaml"
    waiting = pod("large", cpu="40")
    path.write_text(listed([*CLUSTER, node("cordoned", unschedulable=True), waiting]))
    lines = allot("explain", "large", "-f", str(path)).stdout.splitlines()
    assert "Nodes (2 in the cluster):" in lines
    assert "Nearest miss: node n" in lines
    assert any("cpu: " in line and ", 40 needed" in line for line in lines)


def test_json_has_every_field_and_changes_that_can_be_applied(dump: str) -> None:
    (found,) = allot("explain", "train", "-f", dump, "-o", "json").lines
    assert found["cause"] == CAUSE
    assert set(found) == {
        "kind",
        "namespace",
        "name",
        "state",
        "reason",
        "cause",
        "details",
        "changes",
        "requests",
        "nodes",
        "nodeCount",
        "nearest",
        "autoscaler",
        "schedulerSaid",
        "node",
        "devices",
        "queue",
    }
    assert found["changes"][0] == {
        "text": "delete pod default/other on node n, or wait until it ends",
        "verified": True,
        "node": "n",
        "patches": [{"action": "delete", "kind": "Pod", "namespace": "default", "name": "other"}],
        "expression": "",
        "leaving": [],
        "waits": False,
    }


def test_yaml_says_the_same_as_json(dump: str) -> None:
    (found,) = allot("explain", "train", "-f", dump, "-o", "json").lines
    assert yaml.safe_load(allot("explain", "train", "-f", dump, "-o", "yaml").stdout) == found


def test_claims_are_explained_too(dump: str) -> None:
    waiting = allot("explain", "claim/train-gpu-x", "-f", dump)
    assert waiting.code == 1
    assert waiting.stdout.startswith("claim default/train-gpu-x has no devices yet: ")
    held = allot("explain", "resourceclaim/held", "-f", dump)
    assert (held.code, held.stdout.splitlines()[0]) == (
        0,
        "claim default/held is allocated: device gpu.nvidia.com/n/gpu-0, used by pod default/other",
    )


def test_without_a_name_every_pod_that_waits_is_told_in_a_line(dump: str) -> None:
    result = allot("explain", "-A", "-f", dump)
    assert (result.code, result.stdout) == (1, f"{CAUSE}\n")
    assert allot("explain", "-n", "ml", "-f", dump).stdout == "nothing waits in namespace ml\n"
    assert [line["name"] for line in allot("explain", "-f", dump, "-o", "json").lines] == ["train"]


def test_a_pod_that_runs_is_no_failure(dump: str) -> None:
    result = allot("explain", "other", "-f", dump)
    assert (result.code, result.stdout.splitlines()[0]) == (
        0,
        "default/other runs on node n with device gpu.nvidia.com/n/gpu-0",
    )


def test_what_is_not_there_is_refused_with_a_hint(dump: str) -> None:
    result = allot("explain", "trian", "-f", dump)
    assert result.code == 1
    assert result.stderr == "error: pod default/trian: not found\nhint: did you mean train?\n"


def test_a_kind_that_cannot_be_explained(dump: str) -> None:
    result = allot("explain", "secret/n", "-f", dump)
    assert result.code == 2
    assert result.stderr.startswith(
        "error: kind 'secret' cannot be explained: expected pod, claim, podgroup, queue, deploy, "
    )


def test_a_dump_may_come_from_stdin_in_several_files_and_in_old_versions(tmp_path: Path) -> None:
    old = next(each for each in CLUSTER if each["kind"] == "ResourceClaimTemplate")
    request = old["spec"]["spec"]["devices"]["requests"][0]
    flat = {"name": "gpu", **request["exactly"]}
    beta = {**old, "apiVersion": "resource.k8s.io/v1beta1", "spec": {"spec": {"devices": {"requests": [flat]}}}}
    rest = [each for each in CLUSTER if each is not old]
    path = tmp_path / "template.json"
    path.write_text(json.dumps(beta))
    result = allot("explain", "train", "-f", str(path), "-f", "-", stdin=listed(rest))
    assert result.stdout.splitlines()[0] == CAUSE


def test_objects_that_do_not_matter_are_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "dump.yaml"
    extra = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "c"}}
    path.write_text(listed([*CLUSTER, extra]))
    result = allot("explain", "train", "-f", str(path))
    assert result.stdout.splitlines()[0] == CAUSE
    assert result.stderr == "note: not read: 1 ServiceAccount\n"


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("kind: PodTemplate\napiVersion: v1\n", "nothing of a cluster's state is in there"),
        ("[", "while parsing a flow node"),
        ("{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {containers: 7}}", "spec.containers"),
    ],
)
def test_a_dump_that_cannot_be_read(tmp_path: Path, text: str, error: str) -> None:
    path = tmp_path / "dump.yaml"
    path.write_text(text)
    result = allot("explain", "p", "-f", str(path))
    assert result.code == 2
    assert error in result.stderr


@pytest.mark.slow
def test_a_cluster_that_cannot_be_reached(tmp_path: Path) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    cluster = {"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}
    context = {"name": "c", "context": {"cluster": "c", "user": "u"}}
    users = [{"name": "u", "user": {}}]
    config = {"clusters": [cluster], "contexts": [context], "users": users, "current-context": "c"}
    kubeconfig.write_text(json.dumps(config))
    result = allot("explain", "p", "--kubeconfig", str(kubeconfig))
    assert result.code == 3
    assert result.stderr.startswith("error: cannot connect to http://127.0.0.1:1 (kubeconfig ")
    assert result.stderr.count("http://127.0.0.1:1") == 1


# --- snapshot ---


def test_a_snapshot_has_what_explain_needs_and_nothing_private(tmp_path: Path, dump: str) -> None:
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "stringData": {"a": "secret"}}
    raw = tmp_path / "raw.yaml"
    private = json.loads(json.dumps(CLUSTER))
    private[4]["spec"]["containers"][0]["env"] = [{"name": "A", "value": "secret"}]
    for each in private:
        each["metadata"]["annotations"] = {"tool.example.com/state": "secret"}
    raw.write_text(listed([*private, secret]))
    result = allot("snapshot", "-f", str(raw))
    assert result.code == 0
    assert result.stderr == (
        "note: 8 objects; left out: commands and environment of containers, and unnecessary annotations (--keep-annotations)\n"
    )
    assert "secret" not in result.stdout
    assert "tool.example.com/state: secret" in allot("snapshot", "-f", str(raw), "--keep-annotations").stdout
    again = allot("explain", "train", "-f", "-", stdin=result.stdout)
    assert again.stdout == allot("explain", "train", "-f", dump).stdout


def test_a_snapshot_is_the_same_in_whatever_order_objects_come(tmp_path: Path) -> None:
    texts = []
    for number, items in enumerate((CLUSTER, CLUSTER[::-1])):
        path = tmp_path / f"{number}.yaml"
        path.write_text(listed(items))
        texts.append(allot("snapshot", "-f", str(path), "-o", "json").stdout)
    assert texts[0] == texts[1]


def test_who_has_no_kubeconfig_is_told_of_the_cluster_on_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    assert "hint: set a kubeconfig with --kubeconfig" in allot("explain", "train").stderr
    instance = Instance(tmp_path / "allot")
    instance.folder.mkdir()
    with instance.held():
        instance.write(
            InstanceState(pid=os.getpid(), began=start_time(os.getpid()), since=0.0, kubeconfig="/data/admin")
        )
        hint = "hint: for the cluster of allot up on this machine: export KUBECONFIG=/data/admin"
        assert hint in allot("explain", "train").stderr
