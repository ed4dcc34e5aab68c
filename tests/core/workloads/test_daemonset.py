"""DaemonSets: which nodes, how pods get there, and in which order they are replaced."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from allot.core.lifecycle.actions import Action, Patch, RequeueAfter
from allot.core.model.apps_v1 import ControllerRevision, DaemonSet
from allot.core.model.codec import decode_served
from allot.core.model.core_v1 import Node, Pod
from allot.core.model.meta import RawJSON
from allot.core.workloads.daemonset import FailedPodBackoff, View, max_surge, max_unavailable, reconcile
from allot.core.workloads.daemonset_nodes import placement_of
from allot.core.workloads.ownership import reference_to
from allot.core.workloads.resources import DAEMON_SETS
from allot.core.workloads.whole import Whole
from core.workloads.workload_builders import (
    NOW_S,
    created,
    deleted,
    made,
    notes,
    pod,
    status_of,
    template,
    workload,
    writes,
)

Object = dict[str, Any]


def node(name: str, *taints: tuple[str, str], **labels: str) -> Node:
    spec = {"taints": [{"key": key, "effect": effect} for key, effect in taints]}
    return decode_served({"metadata": {"name": name, "labels": labels}, "spec": spec}, Node)


def set_of(rolling: Object | None = None, **more: Any) -> Whole[Any]:
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0, **(rolling or {})}}
    return workload(DaemonSet, **{"updateStrategy": strategy, **more})


def revision(hash_: str, number: int, image: str = "app:1") -> Whole[Any]:
    metadata = {
        "name": f"x-{hash_}",
        "namespace": "ns",
        "uid": f"uid-{hash_}",
        "labels": {"app": "x", "controller-revision-hash": hash_},
        "ownerReferences": [reference_to(DAEMON_SETS, set_of().metadata)],
    }
    data = {"spec": {"template": {**template(image), "$patch": "replace"}}}
    return made(ControllerRevision, {"metadata": metadata, "data": data, "revision": number})


OLD, NEW = revision("old", 1, "app:0"), revision("new", 2)


def member(name: str, where: str, hash_: str = "new", *, ready_s: float | None = 500, **more: Any) -> Pod:
    return pod(name, owner=set_of(), node=where, ready_s=ready_s, labels={"controller-revision-hash": hash_}, **more)


def look(
    set_: Whole[Any],
    nodes: Sequence[Node],
    pods: Sequence[Pod] = (),
    revisions: Sequence[Whole[Any]] = (OLD, NEW),
    backoff: FailedPodBackoff | None = None,
    **more: Any,
) -> Sequence[Action]:
    view = View(
        pods=pods,
        revisions=revisions,
        revision=lambda _name: None,
        nodes=nodes,
        backoff=backoff or FailedPodBackoff(),
        **more,
    )
    return reconcile(set_, view, {}, NOW_S)


def targets(actions: Sequence[Action]) -> list[str]:
    terms = [one["spec"]["affinity"]["nodeAffinity"] for one in created(actions)]
    required = [one["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"] for one in terms]
    return [term[0]["matchFields"][0]["values"][0] for term in required]


# --- nodes ---

GPU = {
    "requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [{"matchExpressions": [{"key": "gpu", "operator": "Exists"}]}]
    }
}


@pytest.mark.parametrize(
    ("spec", "where", "expected"),
    [
        ({}, node("a"), (True, True)),
        ({"nodeName": "b"}, node("a"), (False, False)),
        ({"nodeSelector": {"gpu": "t4"}}, node("a", gpu="t4"), (True, True)),
        ({"nodeSelector": {"gpu": "t4"}}, node("a"), (False, False)),
        ({"affinity": {"nodeAffinity": GPU}}, node("a"), (False, False)),
        ({"affinity": {"nodeAffinity": GPU}}, node("a", gpu="1"), (True, True)),
        ({}, node("a", ("dedicated", "NoSchedule")), (False, True)),
        ({}, node("a", ("dedicated", "NoExecute")), (False, False)),
        ({}, node("a", ("dedicated", "PreferNoSchedule")), (True, True)),
        ({"tolerations": [{"operator": "Exists"}]}, node("a", ("dedicated", "NoExecute")), (True, True)),
        # What belongs to a node puts up with its troubles.
        ({}, node("a", ("node.kubernetes.io/not-ready", "NoExecute")), (True, True)),
        ({}, node("a", ("node.kubernetes.io/not-ready", "NoSchedule")), (False, True)),
        ({}, node("a", ("node.kubernetes.io/unschedulable", "NoSchedule")), (True, True)),
        ({}, node("a", ("node.kubernetes.io/disk-pressure", "NoSchedule")), (True, True)),
        ({}, node("a", ("node.kubernetes.io/network-unavailable", "NoSchedule")), (False, True)),
        ({"hostNetwork": True}, node("a", ("node.kubernetes.io/network-unavailable", "NoSchedule")), (True, True)),
    ],
)
def test_nodes_are_chosen_by_affinity_and_taints(spec: Object, where: Node, expected: tuple[bool, bool]) -> None:
    assert placement_of(RawJSON(template(**spec))).judge(where) == expected


def test_a_pod_is_bound_to_its_node_and_keeps_its_wishes() -> None:
    preferred = [{"weight": 1, "preference": {"matchExpressions": []}}]
    affinity = {"nodeAffinity": {**GPU, "preferredDuringSchedulingIgnoredDuringExecution": preferred}}
    tolerations = [
        {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5}
    ]
    set_ = set_of(template=template(affinity=affinity, tolerations=tolerations))
    (made_,) = created(look(set_, [node("a", gpu="1")]))
    assert made_["spec"]["affinity"]["nodeAffinity"] == {
        "preferredDuringSchedulingIgnoredDuringExecution": preferred,
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a"]}]}]
        },
    }
    assert [(one["key"].rpartition("/")[2], one["effect"]) for one in made_["spec"]["tolerations"]] == [
        ("not-ready", "NoExecute"),
        ("unreachable", "NoExecute"),
        ("disk-pressure", "NoSchedule"),
        ("memory-pressure", "NoSchedule"),
        ("pid-pressure", "NoSchedule"),
        ("unschedulable", "NoSchedule"),
    ]
    assert all("tolerationSeconds" not in one for one in made_["spec"]["tolerations"])
    labels = made_["metadata"]["labels"]
    assert labels["app"] == "x" and "controller-revision-hash" in labels
    assert made_["metadata"]["generateName"] == "x-"


# --- one pod on each node ---


def test_each_node_gets_one_and_those_where_it_must_not_be_lose_it() -> None:
    nodes = [node("a"), node("b"), node("c", ("dedicated", "NoExecute")), node("d", ("dedicated", "NoSchedule"))]
    pods = [member("pa", "a"), member("pc", "c"), member("pd", "d")]
    actions = look(set_of(), nodes, pods)
    assert targets(actions) == ["b"] and deleted(actions) == ["pc"]
    status = status_of(actions)
    assert (status["desiredNumberScheduled"], status["currentNumberScheduled"], status["numberMisscheduled"]) == (
        2,
        1,
        2,
    )


def test_a_pod_on_its_way_counts_for_its_node_and_one_for_a_lost_node_goes() -> None:
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a"]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    waiting = member("p", "", phase="Pending", ready_s=None, spec={"affinity": {"nodeAffinity": required}})
    assert not created(look(set_of(), [node("a")], [waiting]))
    assert deleted(look(set_of(), [node("b")], [waiting])) == ["p"]


def test_of_several_the_oldest_with_a_node_stays() -> None:
    pods = [
        member("young", "a", created_s=NOW_S),
        member("old", "a", created_s=NOW_S - 9),
        member("older", "a", created_s=NOW_S - 99),
    ]
    assert deleted(look(set_of(), [node("a")], pods)) == ["old", "young"]


def test_a_pod_that_goes_keeps_its_node_from_a_new_one_unless_there_is_surge() -> None:
    going = member("p", "a", deleted=True)
    assert targets(look(set_of(), [node("a")], [going])) == []
    assert targets(look(set_of({"maxSurge": 1, "maxUnavailable": 0}), [node("a")], [going])) == ["a"]


def test_failed_pods_are_replaced_later_and_later() -> None:
    backoff = FailedPodBackoff()
    failed = member("p", "a", phase="Failed")
    actions = look(set_of(), [node("a")], [failed], backoff=backoff)
    assert deleted(actions) == ["p"]
    assert "Found failed daemon pod ns/p on node a, will try to kill it" in notes(actions)
    again = look(set_of(), [node("a")], [failed], backoff=backoff)
    assert not deleted(again) and [one.seconds for one in again if isinstance(one, RequeueAfter)] == [1.0]
    key = ("uid", 1, "n")
    pauses = []
    for number in range(12):
        backoff.note(key, 1000.0 + number)
        pauses.append(backoff.wait_s(key, 1000.0 + number))
    assert pauses == [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 900, 900]
    assert backoff.wait_s(key, 1000.0 + 11 + 900) == 0
    backoff.note(key, 99_000)
    assert backoff.wait_s(key, 99_000) == 1
    backoff.tidy(200_000)
    assert backoff.wait_s(key, 99_000) == 0


def test_succeeded_pods_are_replaced() -> None:
    actions = look(set_of(), [node("a")], [member("p", "a", phase="Succeeded")])
    assert deleted(actions) == ["p"]
    assert "Found succeeded daemon pod ns/p on node a, will try to delete it" in notes(actions)


# --- updating ---


@pytest.mark.parametrize(
    ("given", "desired", "expected"),
    [(1, 10, (0, 1)), ("25%", 10, (0, 3)), ("1%", 10, (0, 1)), (0, 10, (0, 1)), (0, 0, (0, 0))],
)
def test_percentages_of_nodes_round_up(given: Any, desired: int, expected: tuple[int, int]) -> None:
    set_ = set_of({"maxUnavailable": given}).value
    assert (max_surge(set_, desired), max_unavailable(set_, desired)) == expected


def test_surge_rounds_up_and_on_delete_has_neither() -> None:
    surging = set_of({"maxSurge": "25%", "maxUnavailable": 0}).value
    assert (max_surge(surging, 10), max_unavailable(surging, 10)) == (3, 0)
    manual = set_of(updateStrategy={"type": "OnDelete"}).value
    assert (max_surge(manual, 10), max_unavailable(manual, 10)) == (0, 0)


@pytest.mark.parametrize(
    ("unavailable", "pods", "expected"),
    [
        (1, "ooo", 1),
        (2, "ooo", 2),
        (1, "noo", 1),
        (1, "Noo", 0),
        # What does not work anyway is replaced beyond the budget.
        (1, "OOo", 2),
        (1, "ONo", 1),
        (3, "ooo", 3),
        (1, "nnn", 0),
    ],
)
def test_old_pods_go_within_the_budget(unavailable: int, pods: str, expected: int) -> None:
    """o, n: old or new; a capital letter is one that is not ready."""
    nodes = [node(f"n{place}") for place in range(len(pods))]
    found = [
        member(f"p{place}", f"n{place}", "old" if one in "oO" else "new", ready_s=None if one.isupper() else 500)
        for place, one in enumerate(pods)
    ]
    actions = look(set_of({"maxUnavailable": unavailable}), nodes, found)
    assert len(deleted(actions)) == expected and not created(actions)
    manual = set_of(updateStrategy={"type": "OnDelete"})
    assert not deleted(look(manual, nodes, found))


def test_with_surge_the_new_pod_comes_before_the_old_one_goes() -> None:
    surge = set_of({"maxSurge": 1, "maxUnavailable": 0})
    nodes = [node("a"), node("b")]
    old = [member("a-old", "a", "old"), member("b-old", "b", "old")]
    actions = look(surge, nodes, old)
    assert targets(actions) == ["a"] and not deleted(actions)
    assert not writes(look(surge, nodes, [*old, member("a-new", "a", ready_s=None)]))[1:]
    actions = look(surge, nodes, [*old, member("a-new", "a")])
    assert deleted(actions) == ["a-old"] and not created(actions)
    actions = look(
        surge, nodes, [member("a-old", "a", "old", ready_s=None), old[1], member("a-new", "a", ready_s=None)]
    )
    assert deleted(actions) == ["a-old"]
    # Where the old one does not work a new one is always allowed.
    broken = [member("a-old", "a", "old", ready_s=None), member("b-old", "b", "old", ready_s=None)]
    assert sorted(targets(look(surge, nodes, broken))) == ["a", "b"]


# --- the rest ---


def test_the_status_counts_nodes() -> None:
    nodes = [node("a"), node("b"), node("c")]
    pods = [member("pa", "a"), member("pb", "b", "old", ready_s=10), member("pc", "c", ready_s=None)]
    actions = look(set_of(minReadySeconds=60), nodes, pods)
    assert status_of(actions) == {
        "currentNumberScheduled": 3,
        "desiredNumberScheduled": 3,
        "numberMisscheduled": 0,
        "numberReady": 2,
        "numberAvailable": 1,
        "numberUnavailable": 2,
        "updatedNumberScheduled": 2,
        "observedGeneration": 1,
    }
    assert [one.seconds for one in actions if isinstance(one, RequeueAfter)] == [50.0]


def test_a_lagging_cache_is_only_counted() -> None:
    actions = look(set_of(), [node("a"), node("b")], [member("pa", "a")], is_settled=False)
    assert not created(actions) and "observedGeneration" not in status_of(actions)


def test_history_has_one_revision_for_each_template() -> None:
    twin = revision("twin", 3)
    labelled = member("p", "a", "twin")
    actions = look(set_of(), [node("a")], [labelled], [OLD, NEW, twin])
    assert deleted(actions, "controllerrevisions") == ["x-new"]
    old = [revision(f"r{number}", number, f"app:{number}0") for number in range(1, 5)]
    limited = set_of(revisionHistoryLimit=1)
    actions = look(limited, [node("a")], [member("p", "a", "r2")], [*old, revision("new", 9)])
    assert deleted(actions, "controllerrevisions") == ["x-r1", "x-r3", "x-r4"]


def test_pods_of_a_twin_revision_get_the_label_of_the_one_that_stays() -> None:
    (patch,) = [
        one
        for one in look(set_of(), [node("a")], [member("p", "a", "new")], [OLD, NEW, revision("twin", 3)])
        if isinstance(one, Patch)
    ]
    assert patch.patch["metadata"] == {"uid": "uid-p", "labels": {"controller-revision-hash": "twin"}}


def test_pods_of_before_hashes_are_told_by_the_generation_of_their_template() -> None:
    set_ = set_of(meta={"annotations": {"deprecated.daemonset.template.generation": "4"}})
    legacy = pod("p", owner=set_, node="a", ready_s=500, labels={"pod-template-generation": "4"})
    assert not deleted(look(set_, [node("a")], [legacy]))
    (made_,) = created(look(set_, [node("b")]))
    assert made_["metadata"]["labels"]["pod-template-generation"] == "4"


def test_nothing_is_made_for_a_set_that_goes_or_selects_everything() -> None:
    assert look(set_of(meta={"deletionTimestamp": "2026-01-01T00:00:00Z"}), [node("a")]) == ()
    note = "This daemon set is selecting all pods. A non-empty selector is required."
    assert notes(look(set_of(selector={}), [node("a")])) == [note]
