"""Nodes that are about to go: what keeps them is said, and what does not keep them is not."""

from __future__ import annotations

from typing import Any

from allot.core.advice.explain.answer import Explainer
from allot.core.advice.explain.report import Explanation, State
from allot.core.advice.snapshot import Snapshot, read_object
from allot.core.lifecycle.times import seconds_of
from explain_corpus.objects import JSON, node, pod, thing, uid_of

NOW = seconds_of("2026-09-14T09:00:00Z")
LABELS = {"app": "web"}


def budget(allowed: int) -> JSON:
    spec = {"selector": {"matchLabels": LABELS}, "minAvailable": 1}
    status = {"disruptionsAllowed": allowed, "expectedPods": 1, "desiredHealthy": 1, "currentHealthy": 1 + allowed}
    return thing("policy/v1", "PodDisruptionBudget", "web", "default", spec=spec, status=status)


def asked(*objects: JSON) -> Explanation:
    """About a node that the cluster autoscaler is about to remove."""
    going = node("n1", taints=[{"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"}])
    read: list[Any] = [read_object(each) for each in (going, *objects)]
    return Explainer(Snapshot(tuple(read), NOW)).workload("node", "", "n1")


def test_a_node_that_nothing_keeps_is_only_about_to_go() -> None:
    found = asked(pod("web", on="n1", labels=LABELS), budget(1))
    assert found.state is State.AS_WANTED
    assert "1 pod has to leave it first" in found.cause


def test_pods_of_daemon_sets_do_not_have_to_leave() -> None:
    daemon = pod("web", on="n1", labels=LABELS)
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "web", "uid": uid_of("DaemonSet", "default", "web")}
    daemon["metadata"]["ownerReferences"] = [owner | {"controller": True}]
    assert "cannot be drained" not in asked(daemon, budget(0)).cause


def test_a_budget_keeps_it() -> None:
    found = asked(pod("web", on="n1", labels=LABELS), budget(0))
    assert "cannot be drained: pod default/web may not be evicted" in found.cause
