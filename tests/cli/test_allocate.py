"""`allot allocate` end to end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from cli.command import allot
from cli.manifest_texts import claim, device, device_class, node, pod, resource_slice, text

# Scenario lines are taken as they are: what the API server would default has to be there.
EXACT = {"allocationMode": "ExactCount"}
SCENARIO: dict[str, Any] = {
    "name": "one",
    "features": "all",
    "node": {"metadata": {"name": "n1"}},
    "classes": [{"metadata": {"name": "gpu"}, "spec": {}}],
    "slices": [{"metadata": {"name": "s"}, "spec": resource_slice()["spec"]}],
    "claims": [claim(**EXACT)],
    "allocated": [],
}


def devices(line: dict[str, Any]) -> list[str]:
    return [result["device"] for allocation in line["results"] for result in allocation["devices"]["results"]]


def test_a_claim_gets_the_first_device_that_fits() -> None:
    result = allot("allocate", "-", stdin=text(device_class(), resource_slice(), node(), claim()))
    assert result.code == 0, result.stderr
    assert result.stdout.splitlines() == [
        "CLAIM   NODE   REQUEST   DEVICE                     TAKES",
        "ml/c1   n1     gpu       gpu.example.com/n1/gpu-0   whole device",
    ]


def test_json_has_what_kubernetes_stores() -> None:
    result = allot("allocate", "-", "-o", "json", stdin=text(device_class(), resource_slice(), node(), claim()))
    (line,) = result.lines
    assert (line["name"], line["node"], line["error"], line["reasons"]) == ("ml/c1", "n1", None, [])
    (allocation,) = line["results"]
    assert allocation["devices"]["results"] == [
        {"request": "gpu", "driver": "gpu.example.com", "pool": "n1", "device": "gpu-0"}
    ]
    assert allocation["nodeSelector"]["nodeSelectorTerms"][0]["matchFields"][0]["values"] == ["n1"]


def test_yaml_says_the_same_as_json() -> None:
    manifests = text(device_class(), resource_slice(), node(), claim("a"), claim("b"))
    as_json = allot("allocate", "-", "-o", "json", stdin=manifests).lines
    as_yaml = allot("allocate", "-", "-o", "yaml", stdin=manifests)
    assert list(yaml.safe_load_all(as_yaml.stdout)) == as_json


def test_claims_are_allocated_one_after_another() -> None:
    manifests = text(device_class(), resource_slice(), node(), claim("a"), claim("b"), claim("c"))
    result = allot("allocate", "-", "-o", "json", stdin=manifests)
    assert result.code == 1
    first, second, third = result.lines
    assert (devices(first), devices(second), third["results"]) == (["gpu-0"], ["gpu-1"], None)
    assert third["reasons"][0]["request"] == "gpu"
    assert third["reasons"][0]["node"] == "n1"
    assert "in use" in third["reasons"][0]["message"]


def test_a_claim_with_an_allocation_holds_its_device() -> None:
    holder = claim("holder")
    holder["status"] = {
        "allocation": {
            "devices": {"results": [{"request": "gpu", "driver": "gpu.example.com", "pool": "n1", "device": "gpu-0"}]}
        }
    }
    result = allot("allocate", "-", "-o", "json", stdin=text(device_class(), resource_slice(), node(), holder, claim()))
    assert [devices(line) for line in result.lines] == [["gpu-1"]]


def test_each_node_is_tried_in_turn() -> None:
    manifests = text(
        device_class(),
        resource_slice("n1"),
        resource_slice("n2"),
        node("n2"),
        node("n1"),
        claim("a", count=2),
        claim("b"),
    )
    result = allot("allocate", "-", "-o", "json", stdin=manifests)
    assert [line["node"] for line in result.lines] == ["n2", "n1"]


def test_without_nodes_one_is_assumed_for_each_that_a_slice_names() -> None:
    result = allot("allocate", "-", "-o", "json", stdin=text(device_class(), resource_slice("n7"), claim()))
    assert [line["node"] for line in result.lines] == ["n7"]


def test_a_node_can_be_named() -> None:
    manifests = text(device_class(), resource_slice("n1"), resource_slice("n2"), claim())
    assert allot("allocate", "-", "--node", "n2", "-o", "json", stdin=manifests).lines[0]["node"] == "n2"


def test_a_node_that_is_not_there_is_refused() -> None:
    result = allot("allocate", "-", "--node", "n9", stdin=text(device_class(), resource_slice(), node(), claim()))
    assert result.code == 2
    assert "error: node 'n9' is not in the input: expected one of n1" in result.stderr


def test_what_does_not_fit_is_explained_for_each_node() -> None:
    manifests = text(device_class(), resource_slice("n1"), resource_slice("n2"), claim(count=3))
    result = allot("allocate", "-", stdin=manifests)
    assert result.code == 1
    assert "ml/c1: does not fit on any of 2 nodes" in result.stdout
    assert "n1, n2: request" in result.stdout
    assert "2 devices in class gpu" in result.stdout


def test_claims_of_a_pod_are_allocated_together_on_one_node() -> None:
    template = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": "one-gpu", "namespace": "ml"},
        "spec": {"spec": claim()["spec"]},
    }
    user = pod("p", own={"resourceClaimTemplateName": "one-gpu"}, shared={"resourceClaimName": "c1"})
    slices = (resource_slice("n1", device("only")), resource_slice("n2"))
    result = allot("allocate", "-", "-o", "json", stdin=text(device_class(), *slices, template, claim(), user))
    (line,) = result.lines
    assert (line["name"], line["node"], line["claims"]) == ("pod ml/p", "n2", ["ml/p-own", "ml/c1"])


def test_pods_that_share_a_claim_go_to_its_node() -> None:
    users = [pod(name, shared={"resourceClaimName": "c1"}) for name in ("p", "q")]
    manifests = text(device_class(), resource_slice("n1"), resource_slice("n2"), claim(), *users)
    first, second = allot("allocate", "-", "-o", "json", stdin=manifests).lines
    assert (first["node"], first["claims"]) == ("n1", ["ml/c1"])
    assert (second["node"], second["claims"], second["results"]) == ("n1", [], [])


def test_a_pod_whose_claim_is_missing_is_refused() -> None:
    user = pod("p", gpu={"resourceClaimName": "nope"})
    result = allot("allocate", "-", stdin=text(device_class(), resource_slice(), user))
    assert result.code == 2
    assert "pod ml/p: resource claim 'gpu': ResourceClaim 'nope' of namespace 'ml' is not in the input" in result.stderr


def test_claims_can_be_required_to_be_together() -> None:
    slices = (resource_slice("n1", device("only")), resource_slice("n2"))
    manifests = text(device_class(), *slices, claim("a"), claim("b"))
    (line,) = allot("allocate", "-", "--together", "-o", "json", stdin=manifests).lines
    assert (line["node"], line["claims"]) == ("n2", ["ml/a", "ml/b"])


def test_older_versions_are_converted() -> None:
    old = claim()
    old["apiVersion"] = "resource.k8s.io/v1beta1"
    old["spec"]["devices"]["requests"] = [{"name": "gpu", "deviceClassName": "gpu"}]
    result = allot("allocate", "-", "-o", "json", stdin=text(device_class(), resource_slice(), old))
    assert result.code == 0, result.stderr
    assert devices(result.lines[0]) == ["gpu-0"]


def test_an_object_that_the_server_would_refuse_is_refused_with_all_its_errors() -> None:
    bad = claim(count=-1, adminAccess="yes")
    bad["spec"]["devices"]["requests"][0]["exactly"]["adminAccess"] = None
    bad["metadata"]["name"] = "Bad_Name"
    result = allot("allocate", "-", stdin=text(device_class(), resource_slice(), bad))
    assert result.code == 1
    assert result.stderr.count("error: ResourceClaim ml/Bad_Name: ") >= 2


def test_a_missing_class_ends_the_attempt() -> None:
    result = allot("allocate", "-", stdin=text(resource_slice(), claim()))
    assert result.code == 1
    assert "ml/c1: cannot be allocated: " in result.stdout
    assert "gpu" in result.stdout


def test_a_taint_rule_keeps_claims_away_and_a_toleration_lets_them() -> None:
    rule = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceTaintRule",
        "metadata": {"name": "broken"},
        "spec": {"deviceSelector": {"device": "gpu-0"}, "taint": {"key": "broken", "effect": "NoSchedule"}},
    }
    tolerant = claim("tolerant", tolerations=[{"key": "broken", "operator": "Exists"}])
    manifests = text(device_class(), resource_slice(), rule, claim(), tolerant)
    first, second = allot("allocate", "-", "-o", "json", stdin=manifests).lines
    assert (devices(first), devices(second)) == (["gpu-1"], ["gpu-0"])


def test_objects_of_other_groups_are_passed_over() -> None:
    other = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}}
    result = allot("allocate", "-", stdin=text(device_class(), resource_slice(), claim(), other))
    assert result.code == 0
    assert "note: Deployment web (apps/v1) does not matter for allocation and is ignored" in result.stderr


def test_an_unknown_kind_of_the_group_is_refused() -> None:
    other = {"apiVersion": "resource.k8s.io/v1alpha2", "kind": "ResourceClass", "metadata": {"name": "gpu"}}
    result = allot("allocate", "-", stdin=text(device_class(), resource_slice(), claim(), other))
    assert result.code == 2
    assert "unknown kind 'ResourceClass'" in result.stderr


def test_nothing_to_allocate_is_said() -> None:
    result = allot("allocate", "-", stdin=text(device_class(), resource_slice()))
    assert result.code == 2
    assert "nothing to allocate: expected a ResourceClaim" in result.stderr


def test_an_unknown_feature_is_refused() -> None:
    result = allot("allocate", "-", "--features", "Nope", stdin=text(claim()))
    assert result.code == 2
    assert "unknown allocator feature 'Nope'" in result.stderr


def test_features_can_be_switched_off() -> None:
    manifests = text(device_class(), resource_slice(), claim(adminAccess=True))
    assert allot("allocate", "-", "--features", "AdminAccess", stdin=manifests).code == 0
    assert allot("allocate", "-", "--features", "PrioritizedList", stdin=manifests).code == 1


@pytest.mark.parametrize("policy", ["first-fit", "pack"])
def test_every_policy_answers(policy: str) -> None:
    manifests = text(device_class(), resource_slice(), claim())
    assert allot("allocate", "-", "--policy", policy, stdin=manifests).code == 0


# --- scenario lines ---


def test_a_scenario_line_gets_a_line() -> None:
    result = allot("allocate", "-", stdin=json.dumps(SCENARIO))
    assert result.code == 0
    (line,) = result.lines
    assert set(line) == {"name", "results", "error", "reasons"}
    assert (line["name"], devices(line), line["error"], line["reasons"]) == ("one", ["gpu-0"], None, [])


def test_a_scenario_that_does_not_fit_is_an_answer() -> None:
    result = allot("allocate", "-", stdin=json.dumps({**SCENARIO, "claims": [claim(count=5, **EXACT)]}))
    assert result.code == 0
    (line,) = result.lines
    assert (line["results"], line["error"]) == (None, None)
    assert "2 devices in class gpu" in line["reasons"][0]["message"]


def test_a_scenario_that_fails_has_an_error() -> None:
    (line,) = allot("allocate", "-", stdin=json.dumps({**SCENARIO, "classes": []})).lines
    assert line["results"] is None
    assert "gpu" in line["error"]


def test_share_ids_are_not_shown_in_scenarios() -> None:
    shareable = resource_slice("n1", device("d", allowMultipleAllocations=True, capacity={"memory": {"value": "8Gi"}}))
    amounts = claim(capacity={"requests": {"memory": "2Gi"}}, **EXACT)
    scenario = {**SCENARIO, "slices": [{"metadata": {"name": "s"}, "spec": shareable["spec"]}], "claims": [amounts]}
    (line,) = allot("allocate", "-", stdin=json.dumps(scenario)).lines
    (result,) = line["results"][0]["devices"]["results"]
    assert (result["shareID"], result["consumedCapacity"]) == ("*", {"memory": "2Gi"})


def test_a_line_that_cannot_be_read_is_answered_and_the_others_too(tmp_path: Path) -> None:
    file = tmp_path / "s.jsonl"
    wrong = {**SCENARIO, "name": "wrong", "slices": 5}
    file.write_text("\n".join([json.dumps(SCENARIO), "{nonsense", "", json.dumps(wrong), json.dumps(SCENARIO)]))
    result = allot("allocate", str(file))
    assert result.code == 2
    first, second, third, fourth = result.lines
    assert (first["error"], fourth["error"]) == (None, None)
    assert f"{file} line 2" in second["error"]
    assert (third["name"], third["error"]) == ("wrong", f"{file} line 4: slices: expected a list of objects")


def test_scenarios_and_manifests_cannot_be_mixed(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(json.dumps(SCENARIO))
    (tmp_path / "b.yaml").write_text(text(claim()))
    result = allot("allocate", str(tmp_path / "a.jsonl"), str(tmp_path / "b.yaml"))
    assert result.code == 2
    assert "expected one of the two" in result.stderr
