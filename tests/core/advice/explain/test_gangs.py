"""Gangs that cannot start."""

from __future__ import annotations

from typing import Any

from allot.core.advice.explain.answer import Explainer
from allot.core.advice.explain.report import Reason, State
from allot.core.advice.what_if import WhatIfCluster
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
    snapshot,
    templated,
)


def gang(minimum: int) -> dict[str, Any]:
    return {
        "apiVersion": "scheduling.k8s.io/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": "gang", "namespace": "default", "uid": "uid-gang"},
        "spec": {"schedulingPolicy": {"gang": {"minCount": minimum}}},
    }


def members(count: int, **more: Any) -> list[dict[str, Any]]:
    group = {"schedulingGroup": {"podGroupName": "gang"}}
    return [part for number in range(count) for part in templated(f"worker-{number}", asks(), **group, **more)]


def test_a_gang_with_one_device_too_few_tells_how_many_could_be_placed() -> None:
    cluster = snapshot(
        node("n"),
        pool("n", gpus(4)),
        device_class(),
        gang(4),
        members(4),
        claim("held", asks(), status=holding("n", "gpu-0", users=("notebook",))),
        running("notebook", "n", "held"),
    )
    found = Explainer(cluster).group("default", "gang")
    assert found.reason is Reason.GANG
    assert "only 3 of the 4 pods that it needs at once can be placed" in found.cause
    assert "in use by pod default/notebook, and the gang's other pods take 3 more" in found.cause
    assert found.changes[0].text == "delete pod default/notebook on node n, or wait until it ends"


def test_what_is_tried_with_a_holder_that_comes_back_does_not_change_how_many_could_be_placed() -> None:
    owner = {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "name": "notebook",
        "uid": "uid-notebook",
        "controller": True,
    }
    holder = running("notebook-0", "n", "held")
    holder["metadata"]["ownerReferences"] = [owner]
    held = claim("held", asks(), status=holding("n", "gpu-0", users=("notebook-0",)))
    found = Explainer(snapshot(node("n"), pool("n", gpus(4)), device_class(), gang(4), members(4), held, holder)).group(
        "default", "gang"
    )
    assert "only 3 of the 4 pods that it needs at once can be placed" in found.cause


def test_a_pod_of_a_gang_waits_for_its_gang() -> None:
    cluster = snapshot(node("n"), pool("n", gpus(1)), device_class(), gang(2), members(2))
    found = Explainer(cluster).pod("default", "worker-0")
    assert (found.kind, found.name) == ("Pod", "worker-0")
    assert "gang default/gang is pending because only 1 of the 2 pods" in found.cause


def test_a_gang_with_too_few_pods_waits_for_them() -> None:
    found = Explainer(snapshot(node("n"), gang(3), members(2))).group("default", "gang")
    assert found.reason is Reason.GROUP_INCOMPLETE
    assert "needs 3 pods to start, but only 2 exist" in found.cause


def test_a_group_that_does_not_exist() -> None:
    found = Explainer(snapshot(node("n"), members(1))).pod("default", "worker-0")
    assert found.reason is Reason.GROUP_MISSING


def test_explaining_a_gang_leaves_no_trace() -> None:
    cluster = snapshot(node("n"), pool("n", gpus(1)), device_class(), gang(2), members(2))
    explainer = Explainer(cluster)
    assert explainer.group("default", "gang") == explainer.group("default", "gang")


def test_a_gang_that_runs() -> None:
    pods = members(1, nodeName="n", status_of_pod={"phase": "Running"})
    found = Explainer(snapshot(node("n"), gang(1), pods)).group("default", "gang")
    assert (found.state, found.cause) == (State.PLACED, "gang default/gang: all 1 pods have a node")


def test_a_member_that_has_ended_does_not_count_as_the_scheduler_does_not_count_it() -> None:
    """Explained as enough pods that do not fit, while the scheduler waited for more pods."""
    pods = members(2)
    ended = pod("ended", nodeName="n", schedulingGroup={"podGroupName": "gang"}, status={"phase": "Succeeded"})
    cluster = snapshot(node("n"), pool("n", gpus(4)), device_class(), gang(3), pods, ended)
    world = WhatIfCluster(cluster)
    asked = world.machine.ask("default/worker-0", world.now)
    assert asked is not None
    assert asked.closed is not None
    assert asked.closed.status.reasons == ("waiting for minCount pods from a gang to appear in scheduling queue",)
    for found in (Explainer(cluster).group("default", "gang"), Explainer(cluster).pod("default", "worker-0")):
        assert found.reason is Reason.GROUP_INCOMPLETE
        assert "needs 3 pods to start, but only 2 exist: pod ended has ended" in found.cause
    assert [change.text for change in found.changes if change.verified] == [
        "create pod ended again",
        "lower minCount to 2",
    ]


def test_a_gang_is_held_back_by_the_pod_that_the_scheduler_names() -> None:
    gated = pod("gated", schedulingGates=[{"name": "quota"}], schedulingGroup={"podGroupName": "gang"})
    cluster = snapshot(node("n"), pool("n", gpus(4)), device_class(), gang(2), members(2), gated)
    explainer = Explainer(cluster)
    assert "because of pod gated: it has scheduling gate quota" in explainer.group("default", "gang").cause
    assert "because of pod gated" in explainer.pod("default", "worker-0").cause
    assert explainer.pod("default", "gated").reason is Reason.SCHEDULING_GATE


# --- groups of groups, groups of other schedulers ---


def composite(minimum: int) -> dict[str, Any]:
    return {
        "apiVersion": "scheduling.k8s.io/v1alpha3",
        "kind": "CompositePodGroup",
        "metadata": {"name": "job", "namespace": "default", "uid": "uid-job"},
        "spec": {"schedulingPolicy": {"gang": {"minGroupCount": minimum}}},
    }


def part(name: str, minimum: int) -> dict[str, Any]:
    found = gang(minimum)
    spec = {**found["spec"], "parentCompositePodGroupName": "job"}
    return {**found, "metadata": {**found["metadata"], "name": name, "uid": f"uid-{name}"}, "spec": spec}


def parts(name: str, count: int) -> list[dict[str, Any]]:
    group = {"schedulingGroup": {"podGroupName": name}}
    return [each for number in range(count) for each in templated(f"{name}-{number}", asks(), **group)]


def test_a_group_of_a_tree_waits_for_the_tree() -> None:
    cluster = snapshot(
        node("n"),
        pool("n", gpus(3)),
        device_class(),
        composite(2),
        part("a", 2),
        part("b", 2),
        parts("a", 2),
        parts("b", 2),
    )
    found = Explainer(cluster).group("default", "a")
    assert found.reason is Reason.GANG
    assert "decided with the other groups of CompositePodGroup default/job" in found.cause
    assert "minGroupCount (2) cannot be satisfied: 1 scheduled, 0 remaining" in found.cause
    assert any("PodGroup default/b: minCount (2) cannot be satisfied" in detail for detail in found.details)
    assert Explainer(cluster).pod("default", "b-0").reason is Reason.GANG


def test_a_tree_that_is_not_complete_is_told_so() -> None:
    cluster = snapshot(node("n"), device_class(), composite(2), part("a", 1), parts("a", 1))
    found = Explainer(cluster).group("default", "a")
    assert found.reason is Reason.GROUP_INCOMPLETE
    assert "CompositePodGroup default/job has too few groups" in found.cause
    short = snapshot(node("n"), device_class(), composite(2), part("a", 1), part("b", 2), parts("a", 1), parts("b", 1))
    found = Explainer(short).group("default", "a")
    assert "starts its groups together, and PodGroup b has 1 of 2 pods" in found.cause
    assert [change.text for change in found.changes] == ["create 1 more pod of PodGroup b"]
    missing = snapshot(node("n"), device_class(), part("a", 1), parts("a", 1))
    assert "CompositePodGroup default/job, which does not exist" in Explainer(missing).group("default", "a").cause


def test_a_group_of_coscheduling_is_explained_like_others() -> None:
    group = {
        "apiVersion": "scheduling.x-k8s.io/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"name": "training", "namespace": "default", "uid": "uid-training"},
        "spec": {"minMember": 3},
    }
    pods = [part_ for number in range(3) for part_ in templated(f"worker-{number}", asks())]
    for each in pods:
        if each["kind"] == "Pod":
            each["metadata"]["labels"] = {"scheduling.x-k8s.io/pod-group": "training"}
    found = Explainer(snapshot(node("n"), pool("n", gpus(2)), device_class(), group, pods)).group("default", "training")
    assert "only 2 of the 3 pods that it needs at once can be placed" in found.cause
    assert any("at most 2 of the 3" in detail for detail in found.details)
    assert any("lower minMember of PodGroup training to 2" in change.text for change in found.changes)
    two = [each for each in pods if "worker-2" not in each["metadata"]["name"]]
    few = snapshot(node("n"), pool("n", gpus(2)), device_class(), group, two)
    assert Explainer(few).group("default", "training").reason is Reason.GROUP_INCOMPLETE


def volcano_group(**status: Any) -> dict[str, Any]:
    return {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": "gang", "namespace": "default", "uid": "uid-gang"},
        "spec": {"minMember": 2},
        "status": status,
    }


def test_the_status_of_a_pod_group_proves_that_its_scheduler_is_there() -> None:
    annotations = {"scheduling.k8s.io/group-name": "gang"}
    worker = pod("worker", schedulerName="volcano")
    worker["metadata"]["annotations"] = annotations
    unseen = Explainer(snapshot(node("n"), volcano_group(phase="Pending"), worker)).pod("default", "worker")
    assert unseen.reason is Reason.NO_SUCH_SCHEDULER
    refused = [{"type": "Unschedulable", "status": "True", "reason": "NotEnoughResources"}]
    group = volcano_group(phase="Pending", conditions=refused)
    seen = Explainer(snapshot(node("n"), group, worker)).pod("default", "worker")
    assert seen.reason is Reason.GROUP_INCOMPLETE
