"""Whether the pods of manifests would be placed, and where: decided one after another, as the scheduler would."""

from __future__ import annotations

from typing import Any

import pytest

from allot.core.advice.planning.placements import PlacementAnswer, placements_of

from . import world
from .test_maximum import _case, _planned_parts
from .world import Object, device_class, gpus, node, pod, request, slices, snapshot, template


def _cluster(*more: Any) -> Any:
    return snapshot(device_class(), node("n0"), node("n1"), slices("n0", gpus(2)), slices("n1", gpus(3)), *more)


def _workload(kind: str, spec: Object, member: Object) -> Object:
    inner = {"metadata": {"labels": {"app": "x"}}, "spec": member["spec"]}
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": "w"}, "spec": {**spec, "template": inner}}


def _nodes(answer: PlacementAnswer) -> list[str]:
    return [placed.node for placed in answer.pods]


_TEMPLATE = template("t", request(count=2))
_POD = pod(templates=("t",))


def test_pods_are_placed_one_after_another() -> None:
    deployment = _workload("Deployment", {"replicas": 3}, _POD)
    answer = placements_of([_TEMPLATE, deployment], _cluster())
    assert [(placed.owner, placed.pod) for placed in answer.pods] == [
        ("Deployment w", "default/w-0"),
        ("Deployment w", "default/w-1"),
        ("Deployment w", "default/w-2"),
    ]
    assert sorted(_nodes(answer)) == ["", "n0", "n1"]
    assert not answer.are_all_placed
    (reason,) = [placed.reason for placed in answer.pods if not placed.node]
    assert "needs 2 devices of class gpu" in reason


def test_a_pod_that_would_not_fit_alone_is_explained_as_allot_explain_does() -> None:
    (placed,) = placements_of([template("t", request(count=4)), _POD], _cluster()).pods
    assert placed.reason.startswith("default/p is pending because")


def test_a_template_that_is_nowhere_is_named() -> None:
    (placed,) = placements_of([_POD], _cluster()).pods
    assert placed.reason == "ResourceClaimTemplate default/t is neither in the manifest nor in the cluster"
    assert placements_of([_POD], _cluster(_TEMPLATE)).are_all_placed


def test_pods_that_share_a_claim_are_placed_together() -> None:
    claim = world.claim("shared")
    users = [pod(name, claims=("shared",)) for name in ("a", "b", "c")]
    assert len(set(_nodes(placements_of([claim, *users], _cluster())))) == 1


_GROUP: Object = {
    "apiVersion": "scheduling.k8s.io/v1beta1",
    "kind": "PodGroup",
    "metadata": {"name": "g", "namespace": "default"},
    "spec": {"schedulingPolicy": {"gang": {"minCount": 2}}},
}


def _gang(parallelism: int, **spec: Any) -> Object:
    member = pod(templates=("t",), schedulingGroup={"podGroupName": "g"}, restartPolicy="Never", **spec)
    return _workload("Job", {"parallelism": parallelism}, member)


def test_a_gang_is_placed_as_a_whole_or_not_at_all() -> None:
    assert placements_of([_GROUP, _TEMPLATE, _gang(2)], _cluster()).are_all_placed
    three = {**_GROUP, "spec": {"schedulingPolicy": {"gang": {"minCount": 3}}}}
    assert _nodes(placements_of([three, _TEMPLATE, _gang(3)], _cluster())) == ["", "", ""]


def test_priorities_are_looked_up() -> None:
    high = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}, "value": 9}
    grouped = {**_GROUP, "spec": {**_GROUP["spec"], "priorityClassName": "high"}}
    (missing, _) = placements_of([_GROUP, _TEMPLATE, _gang(2, priorityClassName="high")], _cluster()).pods
    assert missing.reason == "no PriorityClass with name high was found"
    assert placements_of([high, grouped, _TEMPLATE, _gang(2, priorityClassName="high")], _cluster()).are_all_placed
    (differs, _) = placements_of([high, grouped, _TEMPLATE, _gang(2)], _cluster()).pods
    assert "priority" in differs.reason


def test_quotas_are_charged_pod_by_pod() -> None:
    hard = {"pods": "1"}
    metadata = {"name": "q", "namespace": "default"}
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": metadata, "spec": {"hard": hard}}
    one, two = placements_of([_TEMPLATE, _workload("Deployment", {"replicas": 2}, _POD)], _cluster(quota)).pods
    assert one.node
    assert two.reason == "exceeded quota: q, requested: pods=1, used: pods=1, limited: pods=1"


def test_pods_of_custom_resources_are_placed_and_those_of_daemon_sets_left_out() -> None:
    jobs = {"replicatedJobs": [{"replicas": 2, "template": {"spec": {"template": {"spec": _POD["spec"]}}}}]}
    custom = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {"name": "j"}, "spec": jobs}
    answer = placements_of([_TEMPLATE, custom, _workload("DaemonSet", {}, _POD)], _cluster())
    assert [placed.pod for placed in answer.pods] == ["default/j-0", "default/j-1"]
    assert answer.are_all_placed
    assert answer.notes == ("DaemonSet w: left out, because it has a pod on each eligible node",)


@pytest.mark.parametrize("first", range(0, 60, 20))
def test_as_many_replicas_are_placed_as_a_plan_says(first: int) -> None:
    """Of pods that are alike, with room for as many as the scheduler would place in turn."""
    for seed in range(first, first + 20):
        case = _case(seed)
        case = case._replace(pods=case.pods[:1])
        cluster, templates, pods = _planned_parts(case)
        scheduled = world.plan(cluster, *templates, *pods).scheduled
        deployment = _workload("Deployment", {"replicas": scheduled + 1}, pods[0])
        nodes = _nodes(placements_of([*templates, deployment], cluster))
        assert nodes.count("") == 1, f"seed {seed}"
