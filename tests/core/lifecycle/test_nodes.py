"""Nodes that fall silent, and what follows."""

from __future__ import annotations

from typing import Any

import msgspec

from allot.core.lifecycle.actions import Action, Emit, LookUp, Patch
from allot.core.lifecycle.nodes import (
    EXCLUDED_LABEL,
    LEASE_NAMESPACE,
    LEASES,
    NOT_READY_TAINT,
    UNREACHABLE_TAINT,
    UNSCHEDULABLE_TAINT,
    Health,
    Zones,
    is_silent,
    needs_silencing,
    observed,
    reconcile,
    registered,
    removed,
    silence,
    wanted_taints,
)
from allot.core.model.core_v1 import Node, Taint
from core.lifecycle.tidy_builders import NOW, node, pod

QUESTION = LookUp(resource=LEASES, name="n", namespace=LEASE_NAMESPACE)


def keys(taints: tuple[Taint, ...]) -> list[tuple[str, str]]:
    return [(taint.key, taint.effect) for taint in taints]


def patch_of(actions: tuple[Action, ...]) -> Any:
    assert isinstance(actions[0], Patch)
    return actions[0].patch


# --- silence ---


def test_a_heartbeat_or_a_renewed_lease_is_a_sign_of_life():
    health = observed(None, node(), "t1", 100, 0)
    assert health.seen_s == 100
    assert observed(health, node(), "t1", 110, 0) is health
    assert observed(health, node(), "t2", 110, 0).seen_s == 110
    assert observed(health, node(heartbeat="2026-01-01T00:00:10Z"), "t1", 120, 0).seen_s == 120
    assert observed(health, node(), "t0", 110, 0) is health


def test_a_node_that_has_never_said_anything_counts_from_its_creation():
    health = observed(None, node(ready=None), "", 100, 42)
    assert health.seen_s == 42
    assert not is_silent(health, node(ready=None), 42 + 60)
    assert is_silent(health, node(ready=None), 42 + 61)


def test_a_node_is_silent_after_its_grace_period():
    health = Health(seen_s=100)
    assert not is_silent(health, node(), 150)
    assert is_silent(health, node(), 151)
    assert needs_silencing(node()) and not needs_silencing(node(ready="Unknown"))


def test_the_lease_on_the_server_is_looked_at_before_a_node_is_given_up():
    health = Health(seen_s=0, renewed="t1")
    assert silence(node(), health, {}, NOW) == (QUESTION,)
    assert silence(node(), health, {QUESTION: {"spec": {"renewTime": "t2"}}}, NOW) == ()


def test_nobody_knows_how_a_silent_node_is():
    quiet = node(MemoryPressure="False", DiskPressure="Unknown")
    patch, event = silence(quiet, Health(seen_s=0, renewed="t1"), {QUESTION: {"spec": {"renewTime": "t1"}}}, NOW)
    assert isinstance(patch, Patch) and isinstance(event, Emit)
    assert patch.subresource == "status" and patch.patch["metadata"]["resourceVersion"] == "7"
    told = {one["type"]: (one["status"], one["reason"], one["message"]) for one in patch.patch["status"]["conditions"]}
    stopped = ("Unknown", "NodeStatusUnknown", "Kubelet stopped posting node status.")
    never = ("Unknown", "NodeStatusNeverUpdated", "Kubelet never posted node status.")
    assert told == {"Ready": stopped, "MemoryPressure": stopped, "PIDPressure": never}
    assert (event.reason, event.note) == ("NodeNotReady", "Node n status is now: NodeNotReady")


def test_a_node_that_was_not_ready_before_falls_silent_without_an_event():
    assert len(silence(node(ready="False"), Health(seen_s=0), {QUESTION: None}, NOW)) == 1


def test_nodes_that_come_and_go_are_told():
    assert registered(node()).note == "Node n event: Registered Node n in Controller"
    assert removed(node()).note == "Node n event: Removing Node n from Controller"


# --- taints ---


def test_conditions_and_cordons_become_taints_that_keep_pods_away():
    sick = node(ready="False", MemoryPressure="True", PIDPressure="False", unschedulable=True)
    assert set(keys(wanted_taints(sick, NOW))) == {
        ("node.kubernetes.io/memory-pressure", "NoSchedule"),
        (NOT_READY_TAINT, "NoSchedule"),
        (UNSCHEDULABLE_TAINT, "NoSchedule"),
    }
    assert all(taint.time_added == NOW for taint in wanted_taints(sick, NOW))


def test_taints_of_others_stay_and_ours_go_when_the_node_is_well():
    mine = Taint(key="mine", effect="NoSchedule")
    ours = (
        Taint(key=NOT_READY_TAINT, effect="NoSchedule"),
        Taint(key=UNREACHABLE_TAINT, effect="NoExecute"),
        Taint(key="node.kubernetes.io/disk-pressure", effect="NoExecute"),
    )
    assert wanted_taints(node(taints=(*ours, mine)), NOW) == (ours[2], mine)


def test_pods_are_ended_when_it_is_the_nodes_turn_and_the_taint_follows_the_condition():
    lost = node(ready="Unknown")
    assert keys(wanted_taints(lost, NOW)) == [(UNREACHABLE_TAINT, "NoSchedule")]
    assert (UNREACHABLE_TAINT, "NoExecute") in keys(wanted_taints(lost, NOW, evicts=True))
    before = (Taint(key=NOT_READY_TAINT, effect="NoExecute"),)
    assert set(keys(wanted_taints(node(ready="Unknown", taints=before), NOW))) == {
        (UNREACHABLE_TAINT, "NoExecute"),
        (UNREACHABLE_TAINT, "NoSchedule"),
    }
    assert keys(wanted_taints(node(ready="Unknown", taints=before), NOW, halted=True)) == [
        (UNREACHABLE_TAINT, "NoSchedule")
    ]


def test_a_node_in_order_needs_nothing():
    assert reconcile(node(), (pod(ready="True"),), NOW, evicts=False, halted=False) == ()


def test_taints_are_patched_only_on_the_node_as_it_was_seen():
    patch = patch_of(reconcile(node(unschedulable=True), (), NOW, evicts=False, halted=False))
    assert patch["metadata"] == {"uid": "uid-n", "resourceVersion": "7"}
    assert patch["spec"] == {"taints": [{"key": UNSCHEDULABLE_TAINT, "effect": "NoSchedule", "timeAdded": NOW}]}
    well = node(taints=(Taint(key=UNSCHEDULABLE_TAINT, effect="NoSchedule"),))
    assert patch_of(reconcile(well, (), NOW, evicts=False, halted=False))["spec"] == {"taints": None}


def test_old_names_of_labels_say_the_same_as_the_new_ones():
    labels = {"kubernetes.io/os": "linux", "kubernetes.io/arch": "arm64", "beta.kubernetes.io/arch": "amd64"}
    patch = patch_of(reconcile(node(labels=labels), (), NOW, evicts=False, halted=False))
    assert patch["metadata"]["labels"] == {"beta.kubernetes.io/os": "linux", "beta.kubernetes.io/arch": "arm64"}


def test_pods_of_a_silent_node_are_not_ready():
    lost = node(ready="Unknown", taints=(Taint(key=UNREACHABLE_TAINT, effect="NoSchedule"),))
    pods = (pod("a", ready="True"), pod("b", ready="False"), pod("c"))
    patch, event = reconcile(lost, pods, NOW, evicts=False, halted=False)
    assert isinstance(patch, Patch) and isinstance(event, Emit)
    assert (patch.name, patch.subresource) == ("a", "status")
    assert patch.patch["status"] == {"conditions": [{"type": "Ready", "status": "False", "lastTransitionTime": NOW}]}
    assert (event.type, event.reason, event.note) == ("Warning", "NodeNotReady", "Node is not ready")


# --- zones ---


def zone_nodes(ready: int, unready: int, zone: str = "a") -> list[Node]:
    labels = {"topology.kubernetes.io/zone": zone}
    well = [node(f"{zone}-ready-{number}", labels=labels) for number in range(ready)]
    return well + [node(f"{zone}-lost-{number}", ready="Unknown", labels=labels) for number in range(unready)]


def chosen(zones: Zones, nodes: list[Node], seconds: int) -> list[str]:
    """The nodes whose turn comes within a time, looked at every five seconds."""
    found: list[str] = []
    for now in range(0, seconds + 1, 5):
        tainted = (Taint(key=UNREACHABLE_TAINT, effect="NoExecute"),)
        nodes = [
            msgspec.structs.replace(one, spec=msgspec.structs.replace(one.spec, taints=tainted))
            if one.metadata.name in found
            else one
            for one in nodes
        ]
        zones.update(nodes)
        found.extend(zones.next(float(now)))
    return found


def test_nodes_of_a_zone_are_tainted_one_after_the_other():
    assert chosen(Zones(), zone_nodes(5, 3), 0) == ["a-lost-0"]
    assert chosen(Zones(), zone_nodes(5, 3), 20) == ["a-lost-0", "a-lost-1", "a-lost-2"]


def test_each_zone_has_its_own_rate():
    assert chosen(Zones(), zone_nodes(2, 1, "a") + zone_nodes(2, 1, "b"), 0) == ["a-lost-0", "b-lost-0"]


def test_a_small_zone_that_is_mostly_unhealthy_is_left_alone_and_a_large_one_nearly():
    assert chosen(Zones(), zone_nodes(2, 3), 300) == []
    assert chosen(Zones(), zone_nodes(20, 40), 100) == ["a-lost-0", "a-lost-1"]


def test_one_dead_zone_among_others_is_tainted_but_not_the_last_one():
    zones = Zones()
    assert len(chosen(zones, zone_nodes(0, 4, "dead") + zone_nodes(1, 0, "alive"), 30)) == 4
    assert not zones.is_halted
    zones.update(zone_nodes(0, 4, "dead") + zone_nodes(0, 1, "alive"))
    assert zones.is_halted and zones.next(1000.0) == ()


def test_a_lone_node_is_never_given_up():
    assert chosen(Zones(), [node("n", ready="Unknown")], 600) == []


def test_nodes_may_be_left_out_of_the_count():
    zones = Zones()
    zones.update([node("a", ready="Unknown", labels={EXCLUDED_LABEL: ""}), node("b")])
    assert zones.unhealthy() == {"": (1, 0)}
    assert zones.next(0.0) == ("a",)
