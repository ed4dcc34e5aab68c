"""Pods that must leave tainted nodes."""

from __future__ import annotations

import pytest

from allot.core.lifecycle.actions import Delete, Emit, Patch, RequeueAfter
from allot.core.lifecycle.node_taint_evictions import eviction_time, reconcile, tolerates
from allot.core.model.core_v1 import Taint, Toleration
from core.lifecycle.tidy_builders import NOW, NOW_S, node, pod

TAINT = Taint(key="k", value="v", effect="NoExecute", time_added="2026-01-01T00:09:00Z")


@pytest.mark.parametrize(
    ("toleration", "expected"),
    [
        (Toleration(key="k", operator="Equal", value="v"), True),
        (Toleration(key="k", value="v", effect="NoExecute"), True),
        (Toleration(key="k", value="other"), False),
        (Toleration(key="k", operator="Exists"), True),
        (Toleration(operator="Exists"), True),
        (Toleration(key="other", operator="Exists"), False),
        (Toleration(key="k", operator="Exists", effect="NoSchedule"), False),
        (Toleration(key="k", operator="Odd"), False),
    ],
)
def test_tolerations_match_by_key_value_and_effect(toleration: Toleration, expected: bool):
    assert tolerates(toleration, TAINT) is expected


def forbearing(seconds: int | None) -> tuple[Toleration, ...]:
    return (Toleration(key="k", operator="Exists", toleration_seconds=seconds),)


def test_a_pod_goes_at_once_never_or_when_its_patience_is_over():
    assert eviction_time(pod(), (TAINT,), NOW_S) == NOW_S
    assert eviction_time(pod(tolerations=forbearing(None)), (TAINT,), NOW_S) is None
    assert eviction_time(pod(tolerations=forbearing(300)), (TAINT,), NOW_S) == NOW_S - 60 + 300
    assert eviction_time(pod(tolerations=forbearing(-5)), (TAINT,), NOW_S) == NOW_S - 60
    assert eviction_time(pod(), (), NOW_S) is None


def test_the_shortest_patience_of_all_taints_counts():
    other = Taint(key="other", effect="NoExecute")
    patient = pod(tolerations=(*forbearing(300), Toleration(key="other", operator="Exists", toleration_seconds=10)))
    assert eviction_time(patient, (TAINT, other), NOW_S) == NOW_S + 10


def test_time_before_the_pod_was_there_does_not_count():
    young = pod(tolerations=forbearing(300), created=NOW)
    assert eviction_time(young, (TAINT,), NOW_S) == NOW_S + 300


def test_a_pod_waits_for_its_time_and_is_then_marked_and_deleted():
    tainted = node(taints=(TAINT,))
    assert reconcile(pod(tolerations=forbearing(300)), tainted, False, NOW_S, NOW) == (RequeueAfter(seconds=240.0),)
    event, patch, delete = reconcile(pod(), tainted, False, NOW_S, NOW)
    assert isinstance(event, Emit) and isinstance(patch, Patch) and isinstance(delete, Delete)
    assert (event.type, event.reason, event.note) == (
        "Normal",
        "TaintManagerEviction",
        "Marking for deletion Pod ns/p",
    )
    (condition,) = patch.patch["status"]["conditions"]
    assert (condition["type"], condition["status"], condition["reason"], condition["message"]) == (
        "DisruptionTarget",
        "True",
        "DeletionByTaintManager",
        "Taint manager: deleting due to NoExecute taint",
    )
    assert (delete.uid, delete.grace_period_seconds) == ("uid-p", None)


def test_a_plan_that_is_given_up_is_told_and_nothing_else_is():
    (event,) = reconcile(pod(), node(), True, NOW_S, NOW)
    assert isinstance(event, Emit) and event.note == "Cancelling deletion of Pod ns/p"
    assert reconcile(pod(), node(), False, NOW_S, NOW) == ()
    assert reconcile(pod(), None, True, NOW_S, NOW) == ()
    assert reconcile(pod(deleted=True), node(taints=(TAINT,)), True, NOW_S, NOW) == ()
    assert reconcile(pod(), node(taints=(Taint(key="k", effect="NoSchedule"),)), False, NOW_S, NOW) == ()
