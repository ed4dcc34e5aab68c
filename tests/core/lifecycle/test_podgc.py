"""Pods that nobody else will remove."""

from __future__ import annotations

from allot.core.lifecycle.actions import Delete, LookUp, Patch, resource_of
from allot.core.lifecycle.podgc import OUT_OF_SERVICE, Quarantine, Why, excess, node_of, reconcile, stages, stuck
from allot.core.model.core_v1 import Node, Taint
from core.lifecycle.tidy_builders import NOW, node, pod


def test_pods_are_found_by_their_stage_and_node():
    assert stages(pod(phase="Running")) == ()
    assert stages(pod(phase="Failed", deleted=True)) == ("terminated", "terminating")
    assert node_of(pod(node="n")) == ("n",) and node_of(pod()) == ()


def test_too_many_finished_pods_go_evicted_ones_and_old_ones_first():
    old = pod("old", phase="Succeeded", created="2025-01-01T00:00:00Z")
    evicted = pod("evicted", phase="Failed", reason="Evicted")
    new = pod("new", phase="Failed")
    assert excess((new, old, evicted), 3) == ()
    assert excess((new, old, evicted), 2) == (evicted,)
    assert excess((new, old, evicted), 1) == (evicted, old)
    assert excess((new, old), 0) == ()


def test_a_pod_that_was_deleted_before_it_had_a_node_goes():
    lost = pod(deleted=True, phase="Pending")
    assert stuck((lost,), {}) == ((Why.UNSCHEDULED, lost),)
    waits_for_finalizers = pod(deleted=True, phase="Failed", deletion_grace_period_seconds=0)
    assert stuck((waits_for_finalizers,), {}) == ()


def test_deleted_pods_of_nodes_out_of_service_go():
    taint = Taint(key=OUT_OF_SERVICE, effect="NoExecute")
    deleted = pod(node="n", deleted=True)
    assert stuck((deleted,), {"n": node(ready="Unknown", taints=(taint,))}) == ((Why.OUT_OF_SERVICE, deleted),)
    assert stuck((deleted,), {"n": node(ready="True", taints=(taint,))}) == ()
    assert stuck((deleted,), {"n": node(ready="Unknown")}) == ()
    assert stuck((deleted,), {}) == ()


def test_a_missing_node_may_still_appear_for_a_while():
    quarantine = Quarantine(40)
    assert quarantine.over(("a", "b"), {"b": node("b")}, 100) == ()
    assert quarantine.over(("a", "c"), {}, 139) == ()
    assert quarantine.over(("a", "c"), {}, 140) == ("a",)
    assert quarantine.over(("c",), {"c": node("c")}, 150) == ()
    assert quarantine.over(("c",), {}, 190) == ()


def test_an_orphan_is_marked_and_deleted_once_the_server_has_no_such_node():
    orphan = pod(node="n", generation=3)
    question = LookUp(resource=resource_of(Node), name="n")
    assert reconcile(Why.ORPHANED, orphan, {}, NOW) == (question,)
    assert reconcile(Why.ORPHANED, orphan, {question: node()}, NOW) == ()
    patch, delete = reconcile(Why.ORPHANED, orphan, {question: None}, NOW)
    assert isinstance(patch, Patch) and isinstance(delete, Delete)
    assert patch.patch == {
        "metadata": {"uid": "uid-p"},
        "status": {
            "phase": "Failed",
            "observedGeneration": 3,
            "conditions": [
                {
                    "type": "DisruptionTarget",
                    "status": "True",
                    "reason": "DeletionByPodGC",
                    "message": "PodGC: node no longer exists",
                    "lastTransitionTime": NOW,
                    "observedGeneration": 3,
                }
            ],
        },
    }
    assert (delete.uid, delete.grace_period_seconds) == ("uid-p", 0)


def test_a_finished_pod_is_deleted_as_it_is():
    (delete,) = reconcile(Why.TERMINATED, pod(phase="Succeeded"), {}, NOW)
    assert isinstance(delete, Delete)


def test_an_unscheduled_pod_fails_without_a_reason():
    patch, _ = reconcile(Why.UNSCHEDULED, pod(phase="Pending", deleted=True), {}, NOW)
    assert isinstance(patch, Patch) and patch.patch["status"] == {"phase": "Failed"}
