"""Quotas limit a plan as admission would limit the copies."""

from __future__ import annotations

from typing import Any

import pytest

from . import world
from .world import device_class, gpus, node, plan, pod, request, slices, snapshot, template


def _quota(hard: dict[str, str], namespace: str = "default", **spec: Any) -> world.Object:
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "q", "namespace": namespace},
        "spec": {"hard": hard, **spec},
        "status": {"hard": hard, "used": dict.fromkeys(hard, "0")},
    }


def _cluster(*more: Any) -> Any:
    return snapshot(device_class(), node("n0"), slices("n0", gpus(8)), template("t", request(count=2)), *more)


_POD = pod(cpu="1", templates=("t",))


def test_without_a_quota_devices_decide() -> None:
    outcome = plan(_cluster(), _POD)
    assert (outcome.scheduled, outcome.quota) == (4, None)


def test_a_quota_blocks_in_the_words_of_admission() -> None:
    outcome = plan(_cluster(_quota({"pods": "3"})), _POD)
    assert (outcome.scheduled, outcome.maximum.copies, outcome.maximum.is_exact) == (3, 3, True)
    assert outcome.blocked is not None
    assert outcome.blocked.message == "exceeded quota: q, requested: pods=1, used: pods=3, limited: pods=3"
    assert outcome.is_blocked_by_quota


@pytest.mark.parametrize(
    ("hard", "copies"),
    [
        ({"gpu.deviceclass.resource.k8s.io/devices": "5"}, 2),
        ({"count/resourceclaims.resource.k8s.io": "1"}, 1),
        ({"requests.cpu": "3500m"}, 3),
        ({"pods": "0"}, 0),
        ({"services": "0", "configmaps": "0"}, 4),
        ({"pods": "100"}, 4),
    ],
)
def test_pods_claims_and_amounts_are_counted(hard: dict[str, str], copies: int) -> None:
    assert plan(_cluster(_quota(hard)), _POD).scheduled == copies


def test_extended_resources_are_counted() -> None:
    cards = {**device_class(), "spec": {"extendedResourceName": "example.com/gpu"}}
    cluster = snapshot(cards, node("n0"), slices("n0", gpus(8)), _quota({"requests.example.com/gpu": "4"}))
    wanting = pod()
    amounts = {"example.com/gpu": "2"}
    wanting["spec"]["containers"][0]["resources"] = {"requests": amounts, "limits": amounts}
    assert plan(cluster, wanting).scheduled == 2


def test_quotas_of_other_namespaces_and_other_scopes_do_not_count() -> None:
    assert plan(_cluster(_quota({"pods": "1"}, "other")), _POD).scheduled == 4
    important = {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "In", "values": ["high"]}]}
    assert plan(_cluster(_quota({"pods": "1"}, scopeSelector=important)), _POD).scheduled == 4
    high = pod(cpu="1", templates=("t",), priorityClassName="high")
    assert plan(_cluster(_quota({"pods": "1"}, scopeSelector=important)), high).scheduled == 1


def test_the_tightest_of_several_quotas_counts() -> None:
    other = _quota({"requests.cpu": "2"})
    other["metadata"]["name"] = "r"
    outcome = plan(_cluster(_quota({"pods": "3"}), other), _POD)
    assert outcome.quota is not None
    assert (outcome.scheduled, outcome.quota.name) == (2, "r")


def test_a_gang_is_charged_as_a_whole() -> None:
    group = {
        "apiVersion": "scheduling.k8s.io/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": "g", "namespace": "default"},
        "spec": {"schedulingPolicy": {"gang": {"minCount": 2}}},
    }
    member = pod(cpu="1", templates=("t",), schedulingGroup={"podGroupName": "g"})
    assert plan(_cluster(_quota({"pods": "3"})), group, member).scheduled == 1
    assert plan(_cluster(_quota({"count/podgroups.scheduling.k8s.io": "0"})), group, member).scheduled == 0


def test_claims_alone_are_not_charged_for_a_pod() -> None:
    alone = world.claim("c", request(count=2))
    assert plan(_cluster(_quota({"pods": "0"})), alone).scheduled == 4
    assert plan(_cluster(_quota({"count/resourceclaims.resource.k8s.io": "1"})), alone).scheduled == 1


def test_what_a_limit_range_may_fill_in_is_not_counted_and_said_so() -> None:
    outcome = plan(_cluster(_quota({"requests.cpu": "1"})), pod(templates=("t",)))
    assert outcome.scheduled == 4
    assert "LimitRange" in outcome.notes[0]
