"""Groups of groups: enough groups that have enough pods, at once, or none."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import product
from typing import Any

import msgspec
import pytest

from allot.core.features import ALLOT_GATES
from allot.core.model.codec import decode
from allot.core.model.core_v1 import Pod
from allot.core.model.meta import APIStruct
from allot.core.model.scheduling_v1 import CompositePodGroup, PodGroup
from allot.core.scheduling import Decision, Machine, ObjectChange, Settings, Unit, under
from allot.core.scheduling.groups.joint import Impossible, Undecided
from allot.core.scheduling.groups.task import Task
from allot.core.scheduling.groups.tree_search import Goal, search_tree
from core.scheduling.cluster_world import node, pod, pod_group

RACK = "example.com/rack"


def composite(name: str, minimum: int | None, parent: str = "", **spec: Any) -> CompositePodGroup:
    policy: dict[str, Any] = {"basic": {}} if minimum is None else {"gang": {"minGroupCount": minimum}}
    if parent:
        spec["parentCompositePodGroupName"] = parent
    metadata = {"name": name, "namespace": "ns", "uid": f"uid-{name}"}
    return decode({"metadata": metadata, "spec": {"schedulingPolicy": policy, **spec}}, CompositePodGroup).object


def leaf(name: str, minimum: int, parent: str = "root", **spec: Any) -> PodGroup:
    return pod_group(name, minimum, parentCompositePodGroupName=parent, **spec)


def workers(group: str, count: int, cpu: str = "4", **spec: Any) -> list[Pod]:
    return [pod(f"{group}-{number}", cpu=cpu, group=group, **spec) for number in range(count)]


def machine(*objects: APIStruct, preempts: bool = False) -> Machine:
    settings = under(ALLOT_GATES, Settings(preempts=preempts))
    made = Machine(lambda _name: settings, ALLOT_GATES)
    for each in objects:
        made.apply(ObjectChange(None, each), 0.0)
    return made


def decided(made: Machine, now: float = 0.0) -> Decision:
    decision = made.next(now, now)
    assert decision is not None
    return decision


def placed(decision: Decision) -> list[str]:
    return sorted(placement.pod.metadata.name for placement in decision.placements)


def nodes(count: int, **more: Any) -> list[APIStruct]:
    return [node(f"n{number}", **more) for number in range(count)]


def test_all_groups_of_a_tree_are_decided_at_once() -> None:
    groups = [composite("root", 2), leaf("a", 2), leaf("b", 1)]
    made = machine(*nodes(3), *groups, *workers("a", 2), *workers("b", 1))
    decision = decided(made)
    assert placed(decision) == ["a-0", "a-1", "b-0"]
    assert decision.group is not None and decision.group.group.metadata.name == "root"
    outcomes = (decision.group, *decision.groups_below)
    assert [(each.group.metadata.name, each.status) for each in outcomes] == [
        ("root", "True"),
        ("a", "True"),
        ("b", "True"),
    ]


def test_too_few_groups_mean_that_nothing_runs() -> None:
    groups = [composite("root", 2), leaf("a", 2), leaf("b", 1)]
    made = machine(*nodes(2), *groups, *workers("a", 2), *workers("b", 1))
    decision = decided(made)
    assert not decision.placements
    assert len(decision.refusals) == 3
    assert decision.group is not None
    assert decision.group.message == "minGroupCount (2) cannot be satisfied: 1 scheduled, 0 remaining"
    assert "too few of them can have nodes at once" in decision.group.explanation


def test_a_group_that_fails_is_left_out_where_the_others_are_enough() -> None:
    groups = [composite("root", 1), leaf("a", 3), leaf("b", 1)]
    made = machine(*nodes(2), *groups, *workers("a", 3), *workers("b", 1))
    decision = decided(made)
    assert placed(decision) == ["b-0"]
    below = {each.group.metadata.name: each.status for each in decision.groups_below}
    assert below == {"a": "False", "b": "True"}


def test_a_tree_waits_for_its_quorum_in_whatever_order_its_parts_come() -> None:
    parts: list[APIStruct] = [composite("root", 2), leaf("a", 1), leaf("b", 1), *workers("a", 1), *workers("b", 1)]
    for seed in range(12):
        order = random.Random(seed).sample(parts, len(parts))
        made = machine(*nodes(2))
        for each in order[:-1]:
            made.apply(ObjectChange(None, each), 0.0)
            assert made.next(0.0, 0.0) is None, f"seed {seed}"
        made.apply(ObjectChange(None, order[-1]), 0.0)
        assert placed(decided(made)) == ["a-0", "b-0"], f"seed {seed}"


def test_what_holds_back_a_tree_is_told_in_upstream_s_words() -> None:
    made = machine(*nodes(2), composite("root", 2), leaf("a", 1), *workers("a", 1))
    closed = made.closed("ns/a-0")
    assert closed is not None
    assert closed.status.reasons == ('waiting for composite pod group "root" tree to meet quorum',)


def test_trees_nest() -> None:
    groups = [
        composite("root", 2),
        composite("inner", 1, "root"),
        leaf("a", 1, "inner"),
        leaf("b", 1, "inner"),
        leaf("c", 1),
    ]
    made = machine(*nodes(2), *groups, *workers("a", 1, "9"), *workers("b", 1), *workers("c", 1))
    assert placed(decided(made)) == ["b-0", "c-0"]


def test_a_group_that_goes_and_comes_back_takes_its_pods_along() -> None:
    group = leaf("b", 1)
    made = machine(*nodes(2), composite("root", 2), leaf("a", 1), group, *workers("a", 1))
    made.apply(ObjectChange(group, None), 0.0)
    made.apply(ObjectChange(None, workers("b", 1)[0]), 0.0)
    assert made.next(0.0, 0.0) is None
    closed = made.closed("ns/b-0")
    assert closed is not None and 'pod group "b"' in closed.status.reasons[0]
    made.apply(ObjectChange(None, group), 0.0)
    assert placed(decided(made)) == ["a-0", "b-0"]


def test_groups_below_are_near_each_other_inside_the_domain_of_the_group_above() -> None:
    zone = {"schedulingConstraints": {"topology": [{"key": "zone"}]}}
    rack = {"schedulingConstraints": {"topology": [{"key": RACK}]}}
    places = [
        node(f"{zone_}-{rack_}-{number}", labels={"zone": zone_, RACK: f"{zone_}{rack_}"})
        for zone_, racks in (("x", (2, 1)), ("y", (2, 2)))
        for rack_, count in enumerate(racks)
        for number in range(count)
    ]
    groups = [composite("root", 2, **zone), leaf("a", 2, **rack), leaf("b", 2, **rack)]
    decision = decided(machine(*places, *groups, *workers("a", 2), *workers("b", 2)))
    where = {placement.pod.metadata.name: placement.node for placement in decision.placements}
    assert {name[0] for name in where.values()} == {"y"}
    assert where["a-0"][:3] == where["a-1"][:3] != where["b-0"][:3] == where["b-1"][:3]


def test_a_tree_preempts_and_goes_as_its_root_says() -> None:
    low = [
        composite("root", 2, disruptionMode={"all": {}}, priority=1),
        leaf("a", 1, priority=1),
        leaf("b", 1, priority=1),
    ]
    running = [pod(f"{name}-0", cpu="4", group=name, priority=1, on=f"n{number}") for number, name in enumerate("ab")]
    made = machine(*nodes(2), *low, *running, preempts=True)
    made.apply(ObjectChange(None, pod("urgent", cpu="4", priority=10)), 0.0)
    refusal = decided(made).refusals[0]
    assert sorted(victim.pod.metadata.name for victim in refusal.victims) == ["a-0", "b-0"]
    high = [composite("top", 2, priority=9), leaf("c", 1, "top", priority=9), leaf("d", 1, "top", priority=9)]
    other = machine(
        *nodes(2), *(pod(f"v{number}", cpu="4", on=f"n{number}") for number in range(2)), *high, preempts=True
    )
    for name in "cd":
        other.apply(ObjectChange(None, pod(f"{name}-0", cpu="4", group=name, priority=9)), 0.0)
    victims = [victim for each in decided(other).refusals for victim in each.victims]
    assert sorted(victim.pod.metadata.name for victim in victims) == ["v0", "v1"]


def test_groups_that_get_in_each_other_s_way_one_after_the_other_are_arranged_in_other_domains() -> None:
    rack = {"schedulingConstraints": {"topology": [{"key": RACK}]}}
    # The small pod of the oldest group goes to the tightest rack, the only one whose model the other group may have.
    places = [
        node("n0", cpu="4", labels={RACK: "r0", "model": "x"}),
        node("n1", cpu="8", labels={RACK: "r1", "model": "y"}),
    ]
    groups = [composite("root", 2), leaf("a", 1, **rack), leaf("b", 1, **rack)]
    pods = [*workers("a", 1), *workers("b", 1, nodeSelector={"model": "x"})]
    decision = decided(machine(*places, *groups, *pods))
    assert {placement.pod.metadata.name: placement.node for placement in decision.placements} == {
        "a-0": "n1",
        "b-0": "n0",
    }


def test_a_tree_takes_the_tightest_domain_so_that_larger_ones_stay_possible() -> None:
    rack = {"schedulingConstraints": {"topology": [{"key": RACK}]}}
    places = [
        node(f"{name}-{number}", cpu="4", labels={RACK: name})
        for name, count in (("large", 5), ("tight", 3), ("small", 2))
        for number in range(count)
    ]
    groups = [composite("root", 2, **rack), leaf("a", 2), leaf("b", 1)]
    decision = decided(machine(*places, *groups, *workers("a", 2), *workers("b", 1)))
    assert {placement.node.partition("-")[0] for placement in decision.placements} == {"tight"}


def test_a_tree_that_has_pods_in_a_domain_keeps_to_it() -> None:
    rack = {"schedulingConstraints": {"topology": [{"key": RACK}]}}
    places = [
        node(f"{name}-{number}", cpu="4", labels={RACK: name})
        for name, count in (("large", 5), ("tight", 3))
        for number in range(count)
    ]
    groups = [composite("root", 2, **rack), leaf("a", 2), leaf("b", 1)]
    there = pod("a-9", cpu="4", group="a", on="large-0")
    decision = decided(machine(*places, *groups, there, *workers("a", 1), *workers("b", 1)))
    assert {placement.node.partition("-")[0] for placement in decision.placements} == {"large"}


def test_a_tree_in_domains_gets_a_proof_that_it_cannot_be_placed() -> None:
    rack = {"schedulingConstraints": {"topology": [{"key": RACK}]}}
    places = [node(f"n{number}", cpu="4", labels={RACK: f"r{number}"}) for number in range(4)]
    groups = [composite("root", 2), leaf("a", 2, **rack), leaf("b", 1, **rack)]
    decision = decided(machine(*places, *groups, *workers("a", 2), *workers("b", 1)))
    assert not decision.placements
    assert decision.group is not None
    assert "however the pods of its 2 groups are arranged, too few of them can have nodes" in decision.group.explanation


def test_a_search_over_domains_that_is_given_up_says_so() -> None:
    rack = {"schedulingConstraints": {"topology": [{"key": RACK}]}}
    pods = [each for name in "abcd" for each in workers(name, 2, "3")]
    groups = [composite("root", 4), *(leaf(name, 2, **rack) for name in "abcd")]
    # Three racks for four groups: each rack could have any group, but only one of them.
    places = [node(f"n{rack_}{number}", cpu="4", labels={RACK: f"r{rack_}"}) for rack_ in range(3) for number in (0, 1)]
    made = machine(*places, *groups, *pods)
    tree = made.cluster.forest.tree("ns/composite:root")
    assert tree is not None
    task = Task(made.cluster, Unit(pods=tuple(pods)), None, under(ALLOT_GATES, Settings()), 0.0)
    task = msgspec.structs.replace(task, goal=Goal(made.cluster, tree))
    answer = search_tree(task, tree, steps_max=100)
    assert isinstance(answer, Undecided)
    assert answer.steps > 100
    assert isinstance(search_tree(task, tree), Impossible)


class TreeWorld:
    """A tree of groups of which some are bound to zones and racks, and a small cluster."""

    def __init__(self, dice: random.Random) -> None:
        self.places = [
            node(
                f"n{number}",
                cpu=dice.choice("123"),
                labels={"zone": dice.choice("ab"), **dice.choice(({}, {RACK: "r"}, {RACK: "s"}, {RACK: "s"}))},
            )
            for number in range(3)
        ]
        self.labels = {each.metadata.name: each.metadata.labels for each in self.places}
        self.minimum = dice.choice((1, 2, 2))
        counts = {name: dice.choice((1, 2)) for name in "ab"}
        self.minima = {name: dice.randint(1, counts[name]) for name in "ab"}
        # Of each group the label that its nodes share, the root first.
        self.keys = {name: dice.choice(("", "", "zone", RACK)) for name in ("root", "inner", "a", "b")}
        self.pods = [
            pod(
                f"{name}-{number}",
                cpu=dice.choice("112"),
                group=name,
                nodeSelector=dice.choice(({}, {}, {"zone": "a"})),
            )
            for name, count in counts.items()
            for number in range(count)
        ]

    def machine(self) -> Machine:
        bound = {
            name: {"schedulingConstraints": {"topology": [{"key": key}]}} if key else {}
            for name, key in self.keys.items()
        }
        groups = [
            composite("root", self.minimum, **bound["root"]),
            composite("inner", 1, "root", **bound["inner"]),
            leaf("a", self.minima["a"], "inner", **bound["a"]),
            leaf("b", self.minima["b"], **bound["b"]),
        ]
        return machine(*self.places, *groups, *self.pods)

    def is_right(self, chosen: Sequence[str | None]) -> bool:
        """Whether these nodes (None: none) are enough, and right."""
        on = {each.metadata.name: name for name, each in zip(chosen, self.pods, strict=True) if name is not None}
        counts = {group: sum(name[0] == group for name in on) for group in self.minima}
        enough = sum(counts[name] >= self.minima[name] for name in self.minima) >= self.minimum
        return enough and self._are_near(on) and _fit(chosen, self.pods, self.places)

    def _are_near(self, on: dict[str, str]) -> bool:
        below = {"root": "ab", "inner": "a", "a": "a", "b": "b"}
        for group, key in self.keys.items():
            values = {self.labels[name].get(key) for pod_, name in on.items() if pod_[0] in below[group]}
            if key and (None in values or len(values) > 1):
                return False
        return True


@pytest.mark.slow
def test_a_tree_is_placed_exactly_if_an_arrangement_exists() -> None:
    """Law, on small clusters with zones and racks that pods and groups may be bound to."""
    possible = 0
    for seed in range(600):
        world = TreeWorld(random.Random(f"tree {seed}"))
        decision = decided(world.machine())
        told = [refusal.explanation for refusal in decision.refusals]
        assert not any("undecided" in text for text in told), f"seed {seed}: {told}"
        exists = any(map(world.is_right, product((None, "n0", "n1", "n2"), repeat=len(world.pods))))
        assert bool(decision.placements) == exists, f"seed {seed}: {told}"
        if decision.placements:
            nodes_ = {placement.pod.metadata.name: placement.node for placement in decision.placements}
            assert world.is_right([nodes_.get(each.metadata.name) for each in world.pods]), f"seed {seed}"
        possible += exists
    assert 100 < possible < 590


def _fit(chosen: Any, pods: list[Pod], places: list[Any]) -> bool:
    for place in places:
        on = [each for name, each in zip(chosen, pods, strict=True) if name == place.metadata.name]
        if any(each.spec.node_selector and place.metadata.labels["zone"] != "a" for each in on):
            return False
        wanted = sum(each.spec.containers[0].resources.requests["cpu"].milli_value() for each in on)
        if wanted > place.status.allocatable["cpu"].milli_value():
            return False
    return True
