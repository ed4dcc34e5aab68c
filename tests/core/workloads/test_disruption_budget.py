"""PodDisruptionBudgets: how many pods there should be, are, and may go."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from allot.core.lifecycle.actions import Action, LookUp, Patch, RequeueAfter, Resource, Retry
from allot.core.lifecycle.times import time_of
from allot.core.model.apps_v1 import ReplicaSet
from allot.core.model.codec import decode_served
from allot.core.model.core_v1 import Pod
from allot.core.model.policy_v1 import PodDisruptionBudget
from allot.core.workloads.disruption_budget import Scalable, View, reconcile, reconcile_pod
from allot.core.workloads.ownership import reference_to
from allot.core.workloads.whole import Whole
from core.workloads.workload_builders import NOW_S, conditions, made, notes, pod, ready, status_of, workload, writes

Object = dict[str, Any]
SET = workload(ReplicaSet, "set", replicas=10)
LONE = workload(ReplicaSet, "lone", replicas=4)
CRON = Resource(group="example.com", version="v1", plural="databases", kind="Database", namespaced=True)
DEPLOYMENT: Object = {"metadata": {"name": "web", "uid": "uid-web"}, "spec": {"replicas": 6}}


def budget(status: Object | None = None, **spec: Any) -> Whole[Any]:
    metadata = {"name": "b", "namespace": "ns", "uid": "uid-b", "resourceVersion": "1", "generation": 2}
    whole_spec = {"selector": {"matchLabels": {"app": "x"}}, **spec}
    return made(PodDisruptionBudget, {"metadata": metadata, "spec": whole_spec, "status": status or {}})


def look(
    what: Whole[Any],
    pods: Sequence[Pod],
    owners: Mapping[tuple[str, str], Object] | None = None,
    answers: Mapping[LookUp, Any] | None = None,
    *,
    has_scale: bool = True,
) -> Sequence[Action]:
    known = {("ReplicaSet", "set"): SET.source, ("ReplicaSet", "lone"): LONE.source, **(owners or {})}
    view = View(
        pods=pods,
        controller=lambda kind, name: known.get((kind, name)),
        scalable=lambda _version, kind: Scalable(CRON, has_scale) if kind == "Database" else None,
    )
    return reconcile(what, view, answers or {}, NOW_S)


def pods_of(owner: Whole[Any], healthy: int, broken: int = 0) -> list[Pod]:
    name = owner.metadata.name
    return [ready(f"{name}-{place}", owner=owner) for place in range(healthy)] + [
        pod(f"{name}-broken-{place}", owner=owner) for place in range(broken)
    ]


@pytest.mark.parametrize(
    ("spec", "healthy", "expected", "desired", "allowed"),
    [
        # An integer is taken as it is, of the pods that there are.
        ({"minAvailable": 3}, 5, 5, 3, 2),
        ({"minAvailable": 7}, 5, 5, 7, 0),
        ({"minAvailable": 0}, 5, 5, 0, 5),
        # Percentages are of what the controllers want, rounded up.
        ({"minAvailable": "50%"}, 10, 10, 5, 5),
        ({"minAvailable": "51%"}, 10, 10, 6, 4),
        ({"minAvailable": "100%"}, 10, 10, 10, 0),
        ({"maxUnavailable": 2}, 10, 10, 8, 2),
        ({"maxUnavailable": 2}, 7, 10, 8, 0),
        ({"maxUnavailable": "25%"}, 10, 10, 7, 3),
        ({"maxUnavailable": 20}, 10, 10, 0, 10),
        ({"maxUnavailable": "100%"}, 9, 10, 0, 9),
    ],
)
def test_how_many_may_go(spec: Object, healthy: int, expected: int, desired: int, allowed: int) -> None:
    status = status_of(look(budget(**spec), pods_of(SET, healthy)))
    found = (status["expectedPods"], status["desiredHealthy"], status["currentHealthy"], status["disruptionsAllowed"])
    assert found == (expected, desired, healthy, allowed) and status["observedGeneration"] == 2
    reason = ("True", "SufficientPods", "") if allowed else ("False", "InsufficientPods", "")
    assert conditions(status)["DisruptionAllowed"] == reason


def test_without_pods_nothing_may_go() -> None:
    actions = look(budget(maxUnavailable=1), [])
    assert status_of(actions)["disruptionsAllowed"] == 0 and notes(actions) == ["No matching pods found"]


def test_pods_that_do_not_work_or_go_are_not_healthy() -> None:
    pods = [*pods_of(SET, 8, 1), ready("gone", owner=SET, deleted=True)]
    assert status_of(look(budget(maxUnavailable=3), pods))["currentHealthy"] == 8


def test_what_controllers_want_is_summed_up_and_that_of_a_deployment_once() -> None:
    web = {"controller": True, "apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "uid-web"}
    sets = [workload(ReplicaSet, name, replicas=3, meta={"ownerReferences": [web]}) for name in ("web-1", "web-2")]
    owners = {("ReplicaSet", each.metadata.name): dict(each.source) for each in sets}
    owners["Deployment", "web"] = DEPLOYMENT
    pods = [*pods_of(sets[0], 3), *pods_of(sets[1], 3), *pods_of(LONE, 4)]
    assert status_of(look(budget(minAvailable="50%"), pods, owners))["expectedPods"] == 6 + 4


def other(name: str = "p") -> Pod:
    """A pod of a kind that only discovery knows."""
    found = ready(name)
    reference = {"apiVersion": "example.com/v1", "kind": "Database", "name": "db", "uid": "uid-db", "controller": True}
    metadata = {"name": name, "namespace": "ns", "uid": "u", "labels": {"app": "x"}, "ownerReferences": [reference]}
    assert reference_to(CRON, found.metadata)["controller"]
    ready_now = {"conditions": [{"type": "Ready", "status": "True"}], "phase": "Running"}
    return decode_served({"metadata": metadata, "spec": {"containers": []}, "status": ready_now}, Pod)


def test_any_kind_with_a_scale_is_asked_for_it() -> None:
    (question,) = look(budget(maxUnavailable=1), [other()])
    assert question == LookUp(resource=CRON, name="db", namespace="ns", subresource="scale")
    scale = {"metadata": {"uid": "uid-db"}, "spec": {"replicas": 3}}
    status = status_of(look(budget(maxUnavailable=1), [other()], answers={question: scale}))
    assert (status["expectedPods"], status["desiredHealthy"]) == (3, 2)


@pytest.mark.parametrize(
    ("pods", "has_scale", "message"),
    [
        ([other()], False, "databases.example.com does not implement the scale subresource"),
        (
            [ready("p", owner=workload(ReplicaSet, "lost"))],
            True,
            'no matches for kind "ReplicaSet" in version "apps/v1"',
        ),
    ],
)
def test_what_cannot_be_counted_must_not_be_disrupted(pods: list[Pod], has_scale: bool, message: str) -> None:
    before = {"disruptionsAllowed": 3, "currentHealthy": 3, "observedGeneration": 1}
    actions = look(budget(before, maxUnavailable=1), pods, has_scale=has_scale)
    status = status_of(actions)
    assert status["disruptionsAllowed"] == 0 and status["currentHealthy"] == 3
    assert conditions(status)["DisruptionAllowed"] == ("False", "SyncFailed", message)
    assert any(isinstance(action, Retry) for action in actions)
    assert f"Failed to calculate the number of expected pods: {message}" in notes(actions)


def test_a_controller_that_is_another_by_now_is_none() -> None:
    (question,) = look(budget(maxUnavailable=1), [other()])
    status = status_of(look(budget(maxUnavailable=1), [other()], answers={question: {"metadata": {"uid": "new"}}}))
    assert conditions(status)["DisruptionAllowed"][2] == 'found no controllers for pod "p"'


def test_pods_of_nobody_are_not_counted_and_told() -> None:
    actions = look(budget(minAvailable="50%"), [*pods_of(SET, 9), ready("stray")])
    assert status_of(actions)["expectedPods"] == 10
    (note,) = notes(actions)
    selector = "&LabelSelector{MatchLabels:map[string]string{app: x,},MatchExpressions:[]LabelSelectorRequirement{},}"
    assert note.startswith(
        f"Pods selected by this PodDisruptionBudget (selector: {selector}) were found to be unmanaged."
    )
    assert not notes(look(budget(minAvailable=1), [ready("stray")]))


def test_pods_whose_eviction_is_under_way_are_gone_already() -> None:
    disrupted = {"set-0": time_of(NOW_S - 30), "set-1": time_of(NOW_S - 121), "other": time_of(NOW_S)}
    actions = look(budget({"disruptedPods": disrupted}, maxUnavailable=3), pods_of(SET, 10))
    status = status_of(actions)
    assert list(status["disruptedPods"]) == ["set-0"]
    assert (status["currentHealthy"], status["disruptionsAllowed"]) == (9, 2)
    assert [one.seconds for one in actions if isinstance(one, RequeueAfter)] == [90.0]
    assert notes(actions) == ["Pod was expected by PDB ns/ns to be deleted but it wasn't"]
    going = [ready("set-0", owner=SET, deleted=True), *pods_of(SET, 10)[1:]]
    assert not status_of(look(budget({"disruptedPods": disrupted}, maxUnavailable=3), going)).get("disruptedPods")


def test_a_status_that_is_right_is_not_written() -> None:
    status = status_of(look(budget(maxUnavailable=1), pods_of(SET, 10)))
    assert not writes(look(budget(status, maxUnavailable=1), pods_of(SET, 10)))


def test_a_pod_that_was_spared_is_no_target_any_more() -> None:
    def target(ago_s: float, **more: Any) -> Pod:
        condition = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}
        condition |= {"lastTransitionTime": time_of(NOW_S - ago_s), **more.pop("condition", {})}
        metadata = {"name": "p", "namespace": "ns", "uid": "u", "generation": 3, **more}
        return decode_served({"metadata": metadata, "status": {"phase": "Running", "conditions": [condition]}}, Pod)

    (wait,) = reconcile_pod(target(30), NOW_S)
    assert isinstance(wait, RequeueAfter) and wait.seconds == 90
    (patch,) = reconcile_pod(target(121), NOW_S)
    assert isinstance(patch, Patch) and patch.patch["status"]["conditions"][0]["status"] == "False"
    assert not reconcile_pod(target(121, deletionTimestamp=time_of(NOW_S)), NOW_S)
    assert not reconcile_pod(target(121, condition={"reason": "TerminationByKubelet"}), NOW_S)
    assert not reconcile_pod(target(121, condition={"status": "False"}), NOW_S)
