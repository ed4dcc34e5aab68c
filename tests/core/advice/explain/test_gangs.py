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
    assert "claim default/held (pod default/notebook) and 3 of the gang's own pods" in found.cause
    assert found.changes[0].text == "wait for or delete pod default/notebook on node n"


def test_a_pod_of_a_gang_waits_for_its_gang() -> None:
    cluster = snapshot(node("n"), pool("n", gpus(1)), device_class(), gang(2), members(2))
    found = Explainer(cluster).pod("default", "worker-0")
    assert (found.kind, found.name) == ("Pod", "worker-0")
    assert "gang default/gang is pending because only 1 of the 2 pods" in found.cause


def test_a_gang_with_too_few_pods_waits_for_them() -> None:
    found = Explainer(snapshot(node("n"), gang(3), members(2))).group("default", "gang")
    assert found.reason is Reason.GROUP_INCOMPLETE
    assert "needs 3 pods to start, but only 2 of them exist" in found.cause


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
        assert "needs 3 pods to start, but only 2 of them exist: 1 more have ended or are being deleted" in found.cause
    assert [change.text for change in found.changes if change.verified] == ["lower minCount to 2"]


def test_a_gang_is_held_back_by_the_pod_that_the_scheduler_names() -> None:
    gated = pod("gated", schedulingGates=[{"name": "quota"}], schedulingGroup={"podGroupName": "gang"})
    cluster = snapshot(node("n"), pool("n", gpus(4)), device_class(), gang(2), members(2), gated)
    explainer = Explainer(cluster)
    assert "because of pod gated: it is held back by scheduling gate quota" in explainer.group("default", "gang").cause
    assert "because of pod gated" in explainer.pod("default", "worker-0").cause
    assert explainer.pod("default", "gated").reason is Reason.SCHEDULING_GATE
