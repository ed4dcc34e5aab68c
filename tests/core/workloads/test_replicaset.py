"""ReplicaSets: how many pods, and what is said about them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from allot.core.lifecycle.actions import Action, RequeueAfter, Together, Update
from allot.core.model.apps_v1 import ReplicaSet
from allot.core.model.core_v1 import Pod
from allot.core.workloads.replicaset import BURST, Failure, read_replication_controller, reconcile
from core.workloads.workload_builders import (
    NOW_S,
    conditions,
    created,
    deleted,
    pod,
    ready,
    status_of,
    template,
    workload,
    writes,
)


def look(replicas: int | None, pods: Sequence[Pod] = (), **more: Any) -> Sequence[Action]:
    set_ = more.pop("set_", None) or owner(replicas)
    return reconcile(set_, pods, lambda: pods, {}, NOW_S, **more)


def owner(replicas: int | None, **more: Any) -> Any:
    return workload(ReplicaSet, **({} if replicas is None else {"replicas": replicas}), **more)


def test_missing_pods_are_made_slowly_at_first() -> None:
    actions = look(3, [ready("a", owner=owner(3))])
    (batch,) = [action for action in actions if isinstance(action, Together)]
    assert batch.slow_start and len(batch.writes) == 2
    made = created(actions)[0]
    assert made["metadata"]["generateName"] == "x-" and made["metadata"]["ownerReferences"][0]["uid"] == "uid-x"
    assert len(created(look(None))) == 1 and len(created(look(BURST + 7))) == BURST


def test_pods_that_end_or_go_are_replaced_at_once() -> None:
    mine = owner(2)
    pods = [ready("a", owner=mine), pod("b", owner=mine, phase="Failed"), pod("c", owner=mine, deleted=True)]
    actions = look(2, pods)
    assert len(created(actions)) == 1 and not deleted(actions)
    assert (status_of(actions)["replicas"], status_of(actions)["terminatingReplicas"]) == (1, 1)


def test_too_many_pods_go_by_rank() -> None:
    mine = owner(1)
    pods = [ready("a", owner=mine), pod("b", owner=mine), ready("c", owner=mine, node="")]
    assert deleted(look(1, pods)) == ["c", "b"]
    assert sorted(deleted(look(0, pods))) == ["a", "b", "c"]


def test_a_lagging_cache_is_only_counted() -> None:
    set_ = owner(3, status={"observedGeneration": 0})
    actions = look(3, set_=set_, is_settled=False)
    assert not created(actions) and not deleted(actions)
    # Whoever relies on the status can see that it is not that of the present size.
    assert status_of(look(3, [ready("a", owner=set_)], set_=set_, is_settled=False))["observedGeneration"] == 0


def test_nothing_is_made_for_a_set_that_goes_or_selects_everything() -> None:
    gone = owner(3, meta={"deletionTimestamp": "2026-01-01T00:00:00Z"})
    assert not created(look(3, set_=gone)) and status_of(look(3, set_=gone))["observedGeneration"] == 1
    assert look(3, set_=owner(3, selector={})) == ()


def test_the_status_counts_and_the_next_look_is_planned() -> None:
    mine = owner(3, minReadySeconds=30)
    pods = [
        pod("a", owner=mine, ready_s=100),
        pod("b", owner=mine, ready_s=10),
        pod("c", owner=mine, labels={"z": "1"}),
    ]
    actions = look(3, pods, set_=mine)
    assert status_of(actions) == {
        "replicas": 3,
        "fullyLabeledReplicas": 3,
        "readyReplicas": 2,
        "availableReplicas": 1,
        "terminatingReplicas": 0,
        "observedGeneration": 1,
    }
    assert [action.seconds for action in actions if isinstance(action, RequeueAfter)] == [20.0]


def test_fields_of_the_status_that_nobody_here_knows_stay() -> None:
    set_ = owner(0, status={"replicas": 7, "newField": {"a": 1}})
    assert status_of(look(0, set_=set_))["newField"] == {"a": 1}


def test_a_status_that_is_right_is_not_written() -> None:
    first = status_of(look(0))
    assert look(0, set_=owner(0, status=first)) == []


def test_the_first_failure_is_told_until_an_attempt_succeeds() -> None:
    failed = Failure("FailedCreate", 'pods "x-" is forbidden: exceeded quota')
    actions = look(2, failure=failed)
    status = status_of(actions)
    assert conditions(status)["ReplicaFailure"] == ("True", "FailedCreate", 'pods "x-" is forbidden: exceeded quota')
    assert len(created(actions)) == 2
    again = look(2, set_=owner(2, status=status), failure=Failure("FailedCreate", "another"))
    assert not status_of(again)
    assert "conditions" not in status_of(look(2, set_=owner(2, status=status)))


def test_a_replication_controller_is_a_replica_set_with_a_selector_of_labels() -> None:
    source = {
        "metadata": {"name": "rc", "namespace": "ns", "uid": "uid-rc", "generation": 1, "resourceVersion": "1"},
        "spec": {"replicas": 2, "selector": {"app": "x"}, "template": template(), "unknown": 1},
    }
    controller = read_replication_controller(source)
    pods = [ready("a", owner=controller), pod("gone", owner=controller, deleted=True), ready("b", labels={"app": "y"})]
    actions = look(None, pods, set_=controller)
    (made,) = created(actions)
    (reference,) = made["metadata"]["ownerReferences"]
    assert (reference["apiVersion"], reference["kind"], reference["name"]) == ("v1", "ReplicationController", "rc")
    # Its status has no count of pods that go, and it is written back as it was.
    (update,) = [write for write in writes(actions) if isinstance(write, Update)]
    assert update.resource.plural == "replicationcontrollers" and update.object["spec"] == source["spec"]
    assert update.object["status"] == {
        "replicas": 1,
        "fullyLabeledReplicas": 1,
        "readyReplicas": 1,
        "availableReplicas": 1,
        "observedGeneration": 1,
    }
    assert look(None, set_=read_replication_controller({**source, "spec": {**source["spec"], "selector": {}}})) == ()
