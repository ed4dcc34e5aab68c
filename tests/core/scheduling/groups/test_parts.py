"""Groups in parts and at levels: KAI's sub-groups and topologies, Volcano's minimums of tasks."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from allot.core.model import core_v1
from allot.core.model.codec import decode_served
from allot.core.model.foreign_groups import KAI, VOLCANO, KaiPodGroup, KaiTopology, VolcanoPodGroup
from allot.core.model.meta import APIStruct
from allot.core.scheduling import Decision, Machine, ObjectChange, Settings
from core.scheduling.cluster_world import node, pod

RACK, BLOCK = "example.com/rack", "example.com/block"


def machine(*objects: APIStruct) -> Machine:
    made = Machine(lambda _name: Settings())
    made.serve(KAI)
    made.serve(VOLCANO)
    put(made, *objects)
    return made


def put(made: Machine, *objects: APIStruct, now: float = 0.0) -> None:
    for each in objects:
        made.apply(ObjectChange(None, each), now)


def group(**spec: Any) -> KaiPodGroup:
    body = {"metadata": {"name": "g", "namespace": "ns", "uid": "u"}, "spec": spec}
    return decode_served(body, KaiPodGroup)


def member(name: str, part: str = "", *, cpu: str = "1", on: str = "") -> core_v1.Pod:
    labels = {"kai.scheduler/subgroup-name": part} if part else {}
    return pod(name, cpu=cpu, on=on, metadata={"annotations": {"pod-group-name": "g"}, "labels": labels})


def topology(*labels: str, aliases: dict[str, str] | None = None) -> KaiTopology:
    levels = [{"nodeLabel": label, "alias": (aliases or {}).get(label, "")} for label in labels]
    return decode_served({"metadata": {"name": "dc"}, "spec": {"levels": levels}}, KaiTopology)


def rack(name: str, block: str, rack: str, cpu: str = "2") -> core_v1.Node:
    return node(name, cpu=cpu, labels={BLOCK: block, RACK: rack})


def decided(made: Machine, now: float = 0.0) -> Decision:
    decision = made.next(now, now)
    assert decision is not None
    return decision


def placed(decision: Decision) -> dict[str, str]:
    return {placement.pod.metadata.name: placement.node for placement in decision.placements}


LEADER_AND_WORKERS = [{"name": "leader", "minMember": 1}, {"name": "workers", "minMember": 2}]


def test_every_sub_group_needs_its_minimum() -> None:
    made = machine(node("n1", cpu="2"), group(minMember=3, subGroups=LEADER_AND_WORKERS))
    put(made, member("l", "leader"), member("w0", "workers"))
    assert made.next(0.0, 0.0) is None
    closed = made.closed("ns/l")
    assert closed is not None and closed.status.reasons[0].endswith(
        "Waiting for 3 pods, currently 2 exist: workers has 1 of 2"
    )
    put(made, member("w1", "workers"))
    assert not decided(made).placements
    put(made, node("n2", cpu="1"), now=10.0)
    assert sorted(placed(decided(made, 20.0))) == ["l", "w0", "w1"]


def test_what_every_part_needs_comes_before_more_of_one() -> None:
    made = machine(node("n1", cpu="3"), group(subGroups=LEADER_AND_WORKERS))
    put(made, *(member(f"a-{number}", "workers") for number in range(4)), member("z", "leader"))
    first = decided(made)
    assert sorted(placed(first)) == ["a-0", "a-1", "z"] and not first.refusals
    second = decided(made)
    assert not second.placements and len(second.refusals) == 2
    put(made, node("n2", cpu="1"), now=10.0)
    assert len(placed(decided(made, 20.0))) == 1


def test_some_of_the_parts_are_enough_where_the_group_says_so() -> None:
    parts = [{"name": name, "minMember": 2} for name in ("a", "b", "c")]
    made = machine(node("n1", cpu="4"), group(minSubGroup=2, subGroups=parts))
    put(made, *(member(f"{name}-{number}", name) for name in "abc" for number in range(2)))
    assert len(placed(decided(made))) == 4


def test_parts_of_parts() -> None:
    parts = [
        {"name": "job", "minSubGroup": 2},
        {"name": "job-0", "parent": "job", "minMember": 1},
        {"name": "job-1", "parent": "job", "minMember": 1},
        {"name": "driver", "minMember": 1},
    ]
    made = machine(node("n1", cpu="2"), group(subGroups=parts))
    put(made, member("p0", "job-0"), member("p1", "job-1"), member("d", "driver"))
    assert not decided(made).placements
    put(made, node("n2", cpu="1"), now=10.0)
    assert len(placed(decided(made, 20.0))) == 3


def test_a_pod_of_no_part_waits_and_keeps_nobody_from_running() -> None:
    made = machine(node("n1"), group(subGroups=[{"name": "a", "minMember": 1}]))
    put(made, member("p", "a"), member("stray", "other"))
    decision = decided(made)
    assert list(placed(decision)) == ["p"]
    assert decision.refusals[0].message == "the pod names no part of PodGroup ns/g, whose pods are in a"


def test_a_group_that_comes_or_is_divided_after_its_pods() -> None:
    made = machine(node("n1", cpu="4"))
    put(made, member("l", "leader", on="n1"), member("w0", "workers"), member("w1", "workers"))
    assert made.next(0.0, 0.0) is None
    whole = group(minMember=4)
    put(made, whole)
    assert made.next(0.0, 0.0) is None
    made.apply(ObjectChange(whole, group(subGroups=LEADER_AND_WORKERS)), 1.0)
    assert sorted(placed(decided(made, 1.0))) == ["w0", "w1"]
    made.apply(ObjectChange(group(subGroups=LEADER_AND_WORKERS), whole), 2.0)
    put(made, member("w2"), now=3.0)
    assert list(placed(decided(made, 3.0))) == ["w2"]


def test_kinds_that_are_served_later_regroup_the_pods_that_are_there() -> None:
    made = Machine(lambda _name: Settings())
    put(made, node("n1", cpu="2"), member("p0", on="n1"), member("p1"), member("p2"))
    made.serve(KAI, 0.0)
    assert made.next(0.0, 0.0) is None
    put(made, group(minMember=3))
    assert not decided(made).placements
    put(made, node("n2", cpu="1"), now=10.0)
    assert len(placed(decided(made, 20.0))) == 2


@pytest.mark.parametrize(
    ("constraint", "expected"),
    [
        # The rack has room for both, so that they are there; without a constraint the emptier node comes first.
        ({"preferredTopologyLevel": RACK}, {"n3"}),
        ({"requiredTopologyLevel": "rack"}, {"n3"}),
        ({"requiredTopologyLevel": BLOCK, "preferredTopologyLevel": RACK}, {"n3"}),
    ],
)
def test_pods_are_as_near_to_each_other_as_their_group_wants(constraint: dict[str, str], expected: set[str]) -> None:
    nodes = [rack("n1", "b1", "r1", "1"), rack("n2", "b1", "r2", "1"), rack("n3", "b2", "r1", "2")]
    made = machine(topology(BLOCK, RACK, aliases={RACK: "rack"}), *nodes)
    put(made, group(minMember=2, topologyConstraint={"topology": "dc", **constraint}), member("p0"), member("p1"))
    assert set(placed(decided(made)).values()) == expected


@pytest.mark.parametrize(
    ("constraint", "count"),
    [
        # Three pods fit no rack: the block, then anywhere, or nowhere.
        ({"preferredTopologyLevel": RACK}, 3),
        ({"requiredTopologyLevel": BLOCK, "preferredTopologyLevel": RACK}, 3),
        ({"requiredTopologyLevel": RACK}, 0),
    ],
)
def test_what_is_preferred_gives_way_and_what_is_required_does_not(constraint: dict[str, str], count: int) -> None:
    nodes = [rack("n1", "b1", "r1"), rack("n2", "b1", "r2"), rack("n3", "b2", "r1", "1")]
    made = machine(topology(BLOCK, RACK), *nodes)
    put(made, group(minMember=3, topologyConstraint={"topology": "dc", **constraint}))
    put(made, *(member(f"p{number}") for number in range(3)))
    decision = decided(made)
    assert len(decision.placements) == count
    if count:
        assert set(placed(decision).values()) == {"n1", "n2"}
    else:
        text = "topology dc, requirement example.com/rack couldn't be satisfied for job ns/g"
        assert any(refusal.message.startswith(text) for refusal in decision.refusals)


def test_a_rack_of_the_same_name_in_another_block_is_another() -> None:
    made = machine(topology(BLOCK, RACK), rack("n1", "b1", "r1", "1"), rack("n2", "b2", "r1", "1"))
    put(made, group(minMember=2, topologyConstraint={"topology": "dc", "requiredTopologyLevel": RACK}))
    put(made, member("p0"), member("p1"))
    assert not decided(made).placements


def test_sub_groups_have_levels_of_their_own() -> None:
    near = {"topology": "dc", "requiredTopologyLevel": RACK}
    parts = [{"name": name, "minMember": 2, "topologyConstraint": near} for name in ("a", "b")]
    nodes = [rack("n1", "b1", "r1"), rack("n2", "b1", "r2"), rack("n3", "b2", "r1", "4")]
    whole = {"topology": "dc", "requiredTopologyLevel": BLOCK}
    made = machine(topology(BLOCK, RACK), *nodes, group(subGroups=parts, topologyConstraint=whole))
    put(made, *(member(f"{name}{number}", name) for name in "ab" for number in range(2)))
    found = placed(decided(made))
    assert found["a0"] == found["a1"] and found["b0"] == found["b1"]
    assert {found["a0"], found["b0"]} in ({"n1", "n2"}, {"n3"})


def test_a_topology_or_level_that_is_not_there_is_named_and_helps_when_it_comes() -> None:
    made = machine(rack("n1", "b1", "r1"), member("p0"))
    put(made, group(minMember=1, topologyConstraint={"topology": "dc", "requiredTopologyLevel": "rack"}))
    assert decided(made).refusals[0].message == "Requested topology dc does not exist"
    put(made, topology(BLOCK, RACK), now=10.0)
    refusal = decided(made, 20.0).refusals[0]
    assert refusal.message == f"topology dc has no level rack, only {BLOCK}, {RACK}"
    made.apply(ObjectChange(topology(BLOCK, RACK), topology(BLOCK, RACK, aliases={RACK: "rack"})), 30.0)
    assert list(placed(decided(made, 40.0))) == ["p0"]


def volcano_group(**spec: Any) -> VolcanoPodGroup:
    body = {"metadata": {"name": "g", "namespace": "ns", "uid": "u"}, "spec": spec}
    return decode_served(body, VolcanoPodGroup)


def task(name: str, of: str) -> core_v1.Pod:
    annotations = {"scheduling.k8s.io/group-name": "g", "volcano.sh/task-spec": of}
    return pod(name, cpu="1", metadata={"annotations": annotations})


@pytest.mark.parametrize(
    ("spec", "cpu", "expected"),
    [
        ({"minMember": 2}, "2", ["w0", "w1"]),
        ({"minMember": 2, "minTaskMember": {"ps": 1, "worker": 1}}, "2", ["w0", "x-ps"]),
        # More in all than its tasks need.
        ({"minMember": 3, "minTaskMember": {"ps": 1, "worker": 1}}, "2", []),
        ({"minMember": 3, "minTaskMember": {"ps": 1, "worker": 1}}, "3", ["w0", "w1", "x-ps"]),
        # Minimums of tasks that are more than the group's do not count.
        ({"minMember": 1, "minTaskMember": {"ps": 1, "worker": 3}}, "1", ["w0"]),
    ],
)
def test_tasks_of_volcano_have_minimums_of_their_own(spec: dict[str, Any], cpu: str, expected: list[str]) -> None:
    made = machine(node("n1", cpu=cpu), volcano_group(**spec))
    put(made, task("w0", "worker"), task("w1", "worker"), task("x-ps", "ps"))
    assert sorted(placed(decided(made))) == expected


def victims(decision: Decision) -> list[str]:
    return sorted(victim.pod.metadata.name for refusal in decision.refusals for victim in refusal.victims)


@pytest.mark.parametrize(
    ("spec", "grace_s"),
    [
        ({"minMember": 2}, 60.0),
        ({"minMember": 2, "stalenessGracePeriod": "5s"}, 5.0),
        ({"subGroups": [{"name": "a", "minMember": 2}], "stalenessGracePeriod": "5s"}, 5.0),
        ({"minMember": 2, "stalenessGracePeriod": "-1s"}, None),
    ],
)
def test_a_group_that_has_lost_what_it_needs_lets_go_of_the_rest(spec: dict[str, Any], grace_s: float | None) -> None:
    made = machine(node("n1", cpu="1"), group(**spec), member("p0", "a", on="n1"), member("p1", "a"))
    assert not victims(decided(made))
    if grace_s is None:
        assert made.next_at() == 300.0
        return
    assert made.next_at() == grace_s
    assert victims(decided(made, grace_s)) == ["p0"]


def test_a_group_of_which_a_pod_has_done_its_work_keeps_the_rest() -> None:
    made = machine(node("n1", cpu="1"), group(minMember=2), member("p0", on="n1"), member("p1"))
    done = member("done", on="n1")
    status = msgspec.structs.replace(done.status, phase="Succeeded")
    put(made, msgspec.structs.replace(done, status=status))
    assert not victims(decided(made))
    assert made.next_at() == 300.0
