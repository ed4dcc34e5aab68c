"""Karpenter's NodePools at their limits: in the words of its versions, and only if the limit is in the way."""

from __future__ import annotations

from typing import Any

import pytest

from allot.core.advice.explain.answer import Explainer
from allot.core.advice.explain.node_pools import pools_said_full
from allot.core.advice.explain.report import Explanation
from allot.core.advice.snapshot import Snapshot, read_object
from allot.core.lifecycle.times import seconds_of
from explain_corpus.objects import JSON, node, pod, thing, uid_of

NOW = seconds_of("2026-09-14T09:00:00Z")
POOL = {"karpenter.sh/nodepool": "general"}


@pytest.mark.parametrize(
    ("said", "pools"),
    [
        ("all available instance types exceed limits for nodepool (NodePool=gpu); no nodepools", ["gpu"]),
        ('exceed limits for nodepool: "a"; all available instance types exceed limits for nodepool: "b"', ["a", "b"]),
        ("incompatible with nodepool (NodePool=gpu), did not tolerate taint", []),
    ],
)
def test_pools_at_their_limits_are_read_from_what_every_version_says(said: str, pools: list[str]) -> None:
    assert pools_said_full(said) == pools


def event(reason: str, message: str) -> JSON:
    about = {"kind": "Pod", "name": "etl", "namespace": "default", "uid": uid_of("Pod", "default", "etl")}
    fields = {"involvedObject": about, "reason": reason, "message": message, "lastTimestamp": "2026-09-14T08:59:00Z"}
    return thing("v1", "Event", f"etl.{reason}", "default", **fields)


def asked(limit: str, *others: JSON) -> Explanation:
    """Why a pod waits that needs a node like the only one."""
    pool = thing(
        "karpenter.sh/v1", "NodePool", "general", spec={"limits": {"cpu": limit}}, status={"resources": {"cpu": "32"}}
    )
    waiting = pod("etl", requests={"cpu": "30"})
    objects = [node("n1", POOL), pool, waiting, pod("busy", on="n1", requests={"cpu": "10"}), *others]
    read: list[Any] = [read_object(each) for each in objects]
    return Explainer(Snapshot(tuple(read), NOW)).pod("default", "etl")


def test_a_limit_that_is_reached_is_named_even_if_karpenter_said_nothing() -> None:
    found = asked("32")
    assert "NodePool general is at its limit: cpu 32, of which its nodes have 32" in found.cause
    assert found.changes[0].text.startswith("raise spec.limits of NodePool general to cpu: 64")


def test_a_limit_with_room_for_a_smaller_node_counts_only_if_karpenter_says_so() -> None:
    said = event(
        "FailedScheduling", 'Failed to schedule pod, all available instance types exceed limits for nodepool: "general"'
    )
    assert "NodePool" not in asked("40").cause
    assert "NodePool general is at its limit: cpu 40" in asked("40", said).cause


def test_a_node_that_karpenter_has_asked_for_is_coming() -> None:
    found = asked("32", event("Nominated", "Pod should schedule on: nodeclaim/general-x1"))
    assert "NodePool" not in found.cause
    assert found.autoscaler[0].startswith("a node is coming: Pod should schedule on: nodeclaim/general-x1")
