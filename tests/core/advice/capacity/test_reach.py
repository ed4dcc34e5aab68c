"""Free is what can be got at: not on nodes that take no pods, nor with taints that are not tolerated."""

from __future__ import annotations

from typing import Any

import pytest

from allot.core.advice.tree import node_tree
from allot.core.advice.usage.devices import By, device_usage
from allot.core.advice.usage.nodes import node_usage

from .world import board, device_class, gpu, gpus, held, node, plan, pod, request, situation, slices, snapshot, template

_NOT_READY = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
_DEDICATED = {"key": "example.com/dedicated", "effect": "NoSchedule"}


@pytest.mark.parametrize(
    ("spec", "why"),
    [({"unschedulable": True}, "cordoned"), ({"taints": [_NOT_READY]}, "not ready"), ({"taints": [_DEDICATED]}, "")],
)
def test_devices_of_nodes_that_take_no_pods_are_not_free(spec: dict[str, Any], why: str) -> None:
    found = situation(device_class(), node("n0"), node("n1", **spec), slices("n0", gpus(2)), slices("n1", gpus(3)))
    (row,) = device_usage(found, By.CLASS).rows
    assert (row.total, row.free, row.unavailable) == ((5, 2, 3) if why else (5, 5, 0))
    assert device_usage(found).closed_nodes == ({"n1": why} if why else {})
    assert [(usage.free, usage.closed) for usage in node_usage(found)] == [(2, ""), (0 if why else 3, why)]


def test_a_node_whose_kubelet_is_silent_and_one_that_is_gone_have_no_free_devices() -> None:
    silent = node("n0")
    silent["status"]["conditions"] = [{"type": "Ready", "status": "Unknown"}]
    found = situation(device_class(), silent, slices("n0", gpus(1)), slices("n1", gpus(1)))
    assert device_usage(found).rows[0].free == 0
    assert device_usage(found).closed_nodes == {"n0": "not ready", "n1": "not there"}


def test_where_no_nodes_are_known_devices_are_free() -> None:
    assert device_usage(situation(device_class(), slices("n0", gpus(2)))).rows[0].free == 2


def test_devices_that_several_nodes_can_use_are_free_while_one_of_them_takes_pods() -> None:
    terms = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "rack", "operator": "In", "values": ["a"]}]}]}
    cards = slices("net", gpus(2), nodeSelector=terms)
    racked, closed = node("n0", labels={"rack": "a"}), node("n0", labels={"rack": "a"}, unschedulable=True)
    assert device_usage(situation(device_class(), racked, cards)).rows[0].free == 2
    assert device_usage(situation(device_class(), closed, node("n1"), cards)).rows[0].free == 0


def _free(*objects: Any, **spec: Any) -> int:
    """What is free for a pod that a plan is for."""
    more = spec.pop("request", {})
    cluster = snapshot(device_class(), *objects, template("t", request(**more)))
    (change,) = plan(cluster, pod(templates=("t",), **spec), limit=1).classes
    return change.free_before


def test_a_plan_counts_what_its_pods_can_get_at() -> None:
    two = [
        node("n0"),
        node("n1", labels={"zone": "b"}, taints=[_DEDICATED]),
        slices("n0", gpus(2)),
        slices("n1", gpus(3)),
    ]
    tolerating = {"tolerations": [{"key": "example.com/dedicated", "operator": "Exists"}]}
    assert _free(*two) == 2
    assert _free(*two, **tolerating) == 5
    assert _free(*two, **tolerating, nodeSelector={"zone": "b"}) == 3
    assert _free(*two, nodeSelector={"zone": "b"}) == 0


def test_a_plan_counts_devices_whose_taints_its_claims_tolerate() -> None:
    sick = gpu("sick", taints=[{"key": "example.com/sick", "effect": "NoSchedule"}])
    one = [node("n0"), slices("n0", [gpu("well"), sick])]
    assert _free(*one) == 1
    assert _free(*one, request={"tolerations": [{"key": "example.com/sick", "operator": "Exists"}]}) == 2


# --- partitions ---


def test_a_partition_whose_counters_others_use_is_shown_as_blocked() -> None:
    devices, counters = board("b0")
    found = situation(
        device_class(), node("n0"), slices("n0", devices, [counters]), held("h", "n0", "b0-quarter-0", pods=("p",))
    )
    states = {child.name.rpartition("/")[2]: child.facts["state"] for child in node_tree(found, "n0").children}
    assert states == {
        "b0-whole-0": "blocked by b0-quarter-0",
        "b0-half-0": "blocked by b0-quarter-0",
        "b0-half-2": "free",
        "b0-quarter-0": "in use",
        "b0-quarter-1": "free",
        "b0-quarter-2": "free",
        "b0-quarter-3": "free",
    }


# --- what is missing ---


def test_each_miss_is_told_of_the_node_that_it_is_on() -> None:
    cluster = snapshot(
        device_class(),
        *(node("n0", cpu="1"), node("n1"), slices("n0", gpus(4)), slices("n1", gpus(1))),
        template("t", request(count=2)),
    )
    blocked = plan(cluster, pod(cpu="2", templates=("t",))).blocked
    assert blocked is not None
    assert "node n1 has 1" in blocked.explanation
    assert "node n0 comes closest: it has 1 of cpu free where the pod needs 2" in blocked.explanation
    assert [(reason.reason, reason.examples) for reason in blocked.nodes] == [
        ("Insufficient cpu", ("n0",)),
        ("cannot allocate all claims", ("n1",)),
    ]
