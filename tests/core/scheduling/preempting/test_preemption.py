"""Preemption: who has to go for a pod of higher priority, devices included."""

from __future__ import annotations

import random
from itertools import combinations
from typing import Any

import msgspec
import pytest

from allot.core.model import core_v1, policy_v1
from allot.core.model import resource_v1 as api
from allot.core.model.meta import LabelSelector, ObjectMeta
from allot.core.model.scheduling_v1 import DisruptionMode, DisruptionModeMember
from allot.core.scheduling.cluster import Cluster
from allot.core.scheduling.decide import decide
from allot.core.scheduling.devices.claims import Claims
from allot.core.scheduling.plan import Placement, Refusal, Unit
from allot.core.scheduling.podinfo import PodInfo, Profile
from allot.core.scheduling.preempting.budgets import Budgets
from allot.core.scheduling.preempting.victims import Resident, VictimSearch, cost_of
from allot.core.scheduling.settings import Settings

from ..device_world import (
    NAMESPACE,
    claim,
    container,
    device_class,
    exactly,
    gpus,
    node,
    pod,
    pod_group,
    slice_of,
)

replace = msgspec.structs.replace


class World:
    """What the API would say: objects that a cluster can be made from, as often as a test wants one."""

    def __init__(self) -> None:
        self.nodes: list[core_v1.Node] = []
        self.slices: list[api.ResourceSlice] = []
        self.claims: dict[str, api.ResourceClaim] = {}
        self.pods: dict[str, core_v1.Pod] = {}
        self.budgets: list[policy_v1.PodDisruptionBudget] = []

    def add_node(self, name: str, devices: int, cpu: str = "8") -> None:
        self.nodes.append(node(name, cpu=cpu, pods="20", memory="8Gi").node)
        if devices:
            self.slices.append(slice_of(name, gpus(devices)))

    def cluster(self, without: frozenset[str] = frozenset()) -> Cluster:
        """A cluster in which some pods are gone, and what only they used is released."""
        claims = Claims()
        cluster = Cluster(claims)
        claims.listen(cluster.device_changes.add)
        claims.put_class(device_class())
        for one in self.nodes:
            cluster.put_node(one)
        for slice_ in self.slices:
            claims.put_slice(slice_)
        for found in self.claims.values():
            users = tuple(user for user in found.status.reserved_for if user.name not in without)
            status = replace(found.status, reserved_for=users)
            if found.status.reserved_for and not users:
                status = api.ResourceClaimStatus()
            claims.put_claim(replace(found, status=status))
        for name, bound in self.pods.items():
            if name not in without:
                cluster.put_pod(bound)
        for budget in self.budgets:
            cluster.put_budget(budget)
        return cluster

    def run(self, new: core_v1.Pod, *own_claims: api.ResourceClaim) -> bool:
        """Put a pod where it fits, as the API would have it afterwards."""
        self.claims.update({one.metadata.name: one for one in own_claims})
        decision = decide(self.cluster(), Unit(pods=(new,)))
        if not decision.placements:
            for one in own_claims:
                del self.claims[one.metadata.name]
            return False
        self.store(decision.placements[0])
        return True

    def store(self, placement: Placement) -> None:
        new = placement.pod
        self.pods[new.metadata.name] = replace(new, spec=replace(new.spec, node_name=placement.node))
        for step in placement.claims:
            stored = self.claims[step.claim.metadata.name]
            allocation = step.allocation or stored.status.allocation
            users = stored.status.reserved_for + ((step.consumer,) if step.consumer is not None else ())
            status = replace(stored.status, allocation=allocation, reserved_for=users)
            self.claims[stored.metadata.name] = replace(stored, status=status)

    def refusal(self, new: core_v1.Pod) -> Refusal:
        decision = decide(self.cluster(), Unit(pods=(new,)))
        assert not decision.placements, "the pod fits"
        return decision.refusals[0]


def runner(name: str, *claims: str, priority: int = 0, cpu: str = "0", **more: Any) -> core_v1.Pod:
    """A pod with one container."""
    made = pod(name, *claims, priority=priority, containers=(container("c", cpu=cpu),), **more)
    return replace(made, status=replace(made.status, start_time="2026-01-01T00:00:00Z"))


def labelled(one: core_v1.Pod, **labels: str) -> core_v1.Pod:
    return replace(one, metadata=replace(one.metadata, labels=labels))


def budget(name: str, allowed: int, **labels: str) -> policy_v1.PodDisruptionBudget:
    return policy_v1.PodDisruptionBudget(
        metadata=ObjectMeta(name=name, namespace=NAMESPACE),
        spec=policy_v1.PodDisruptionBudgetSpec(selector=LabelSelector(match_labels=labels)),
        status=policy_v1.PodDisruptionBudgetStatus(disruptions_allowed=allowed),
    )


def names(refusal: Refusal) -> list[str]:
    return sorted(victim.pod.metadata.name for victim in refusal.victims)


def one_gpu_in_use(priority: int = 0) -> World:
    world = World()
    world.add_node("n1", devices=1)
    assert world.run(runner("low", "c-low", priority=priority), claim("c-low"))
    world.claims["c-high"] = claim("c-high")
    return world


# --- devices ---


def test_a_pod_of_lower_priority_goes_for_its_device() -> None:
    refusal = one_gpu_in_use().refusal(runner("high", "c-high", priority=10))
    assert names(refusal) == ["low"]
    assert refusal.nominated_node == "n1"
    assert refusal.victims[0].gives == "it gives gpu-0"
    assert "preempting 1 pod of lower priority to make room on node n1: ns/low (priority 0, holds gpu-0)" in (
        refusal.explanation
    )
    # As upstream, nothing is said of preemption where it works.
    assert refusal.message == "0/1 nodes are available: 1 cannot allocate all claims."


@pytest.mark.parametrize("priority", [10, 11])
def test_pods_of_the_same_or_higher_priority_stay(priority: int) -> None:
    refusal = one_gpu_in_use(priority).refusal(runner("high", "c-high", priority=10))
    assert names(refusal) == []
    assert refusal.message == (
        "0/1 nodes are available: 1 cannot allocate all claims. "
        "preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."
    )


def test_a_pod_that_never_preempts_does_not() -> None:
    refusal = one_gpu_in_use().refusal(runner("high", "c-high", priority=10, preemption_policy="Never"))
    assert names(refusal) == []
    assert refusal.message.endswith("preemption: not eligible due to preemptionPolicy=Never.")


def test_nothing_is_said_of_preemption_where_it_is_off() -> None:
    unit = Unit(pods=(runner("high", "c-high", priority=10),))
    refusal = decide(one_gpu_in_use().cluster(), unit, Settings(preempts=False)).refusals[0]
    assert names(refusal) == []
    assert refusal.message == "0/1 nodes are available: 1 cannot allocate all claims."
    assert "preempt" not in refusal.explanation


def test_a_shared_claim_gives_its_device_only_if_all_of_its_pods_go() -> None:
    world = one_gpu_in_use()
    assert world.run(runner("other", "c-low", priority=1))
    assert names(world.refusal(runner("high", "c-high", priority=10))) == ["low", "other"]
    assert names(world.refusal(runner("high", "c-high", priority=1))) == []


def test_a_device_that_several_nodes_reach_is_taken_from_a_pod_of_another_node() -> None:
    world = World()
    world.add_node("n1", devices=0)
    world.add_node("n2", devices=0)
    world.slices.append(slice_of(None, gpus(1), name="fabric", allNodes=True))
    assert world.run(runner("low", "c-low"), claim("c-low"))
    holder = world.pods["low"].spec.node_name
    other = "n2" if holder == "n1" else "n1"
    # The pod that wants the device can only run where its holder is not.
    world.nodes = [
        one if one.metadata.name == other else replace(one, spec=core_v1.NodeSpec(unschedulable=True))
        for one in world.nodes
    ]
    world.claims["c-high"] = claim("c-high")
    refusal = world.refusal(runner("high", "c-high", priority=10))
    assert names(refusal) == ["low"]
    assert refusal.nominated_node == other


def test_nobody_goes_if_that_would_not_be_enough() -> None:
    world = one_gpu_in_use()
    world.claims["c-high"] = claim("c-high", exactly(count=2))
    assert names(world.refusal(runner("high", "c-high", priority=10))) == []


def test_the_node_with_the_least_important_victims_is_chosen() -> None:
    world = World()
    world.add_node("n1", devices=1)
    world.add_node("n2", devices=1)
    assert world.run(runner("five", "c5", priority=5), claim("c5"))
    assert world.run(runner("three", "c3", priority=3), claim("c3"))
    world.claims["c-high"] = claim("c-high")
    refusal = world.refusal(runner("high", "c-high", priority=10))
    assert names(refusal) == ["three"]
    assert refusal.nominated_node == world.pods["three"].spec.node_name


# --- what is on its way ---


def test_nobody_else_goes_while_a_pod_that_makes_room_is_terminating() -> None:
    world = World()
    world.add_node("n1", devices=2)
    assert world.run(runner("first", "c1"), claim("c1"))
    assert world.run(runner("second", "c2"), claim("c2"))
    world.claims["c-high"] = claim("c-high")
    going = world.pods["first"]
    world.pods["first"] = replace(going, metadata=replace(going.metadata, deletion_timestamp="2026-01-01T00:00:00Z"))
    refusal = world.refusal(runner("high", "c-high", priority=10))
    assert names(refusal) == []
    assert refusal.nominated_node == ""
    assert "pods that are terminating make room on node n1" in refusal.explanation


def test_nobody_else_goes_while_a_claim_is_about_to_be_released() -> None:
    world = World()
    world.add_node("n1", devices=2)
    assert world.run(runner("first", "c1"), claim("c1"))
    assert world.run(runner("second", "c2"), claim("c2"))
    world.claims["c-high"] = claim("c-high")
    cluster = world.cluster()
    cluster.delete_pod(world.pods["first"])
    refusal = decide(cluster, Unit(pods=(runner("high", "c-high", priority=10),))).refusals[0]
    assert names(refusal) == []


# --- resources, as upstream ---


def test_the_fewest_pods_go_for_cpu() -> None:
    world = World()
    world.add_node("n1", devices=0, cpu="4")
    for name, cpu in (("a", "1"), ("b", "1"), ("big", "2")):
        assert world.run(runner(name, cpu=cpu))
    assert names(world.refusal(runner("high", cpu="2", priority=10))) == ["big"]


def test_nodes_on_which_even_all_victims_are_not_enough_say_what_is_missing() -> None:
    world = World()
    world.add_node("n1", devices=0, cpu="4")
    assert world.run(runner("low", cpu="1"))
    assert world.run(runner("higher", cpu="2", priority=20))
    refusal = world.refusal(runner("high", cpu="3", priority=10))
    assert refusal.message.endswith("preemption: 0/1 nodes are available: 1 Insufficient cpu.")


def test_a_node_without_pods_of_lower_priority_has_no_victims() -> None:
    world = World()
    world.add_node("n1", devices=0, cpu="4")
    assert world.run(runner("a", cpu="3", priority=10))
    refusal = world.refusal(runner("high", cpu="2", priority=10))
    assert refusal.message == (
        "0/1 nodes are available: 1 Insufficient cpu. "
        "preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod."
    )


def test_a_budget_is_kept_where_another_pod_can_go() -> None:
    world = World()
    world.add_node("n1", devices=2)
    assert world.run(labelled(runner("guarded", "c1", priority=0), app="db"), claim("c1"))
    assert world.run(runner("free", "c2", priority=5), claim("c2"))
    world.budgets.append(budget("db", 0, app="db"))
    world.claims["c-high"] = claim("c-high")
    assert names(world.refusal(runner("high", "c-high", priority=10))) == ["free"]


def test_a_budget_is_broken_if_there_is_no_other_way() -> None:
    world = one_gpu_in_use()
    world.pods["low"] = labelled(world.pods["low"], app="db")
    world.budgets.append(budget("db", 0, app="db"))
    refusal = world.refusal(runner("high", "c-high", priority=10))
    assert names(refusal) == ["low"]
    assert refusal.victims[0].violates_budget


def test_a_group_that_is_disrupted_as_a_whole_goes_as_a_whole() -> None:
    world = World()
    world.add_node("n1", devices=2)
    member: dict[str, Any] = {"scheduling_group": core_v1.PodSchedulingGroup(pod_group_name="g")}
    assert world.run(runner("one", "c1", **member), claim("c1"))
    assert world.run(runner("two", "c2", **member), claim("c2"))
    world.claims["c-high"] = claim("c-high")
    cluster = world.cluster()
    made = pod_group("g")
    whole = DisruptionMode(all=DisruptionModeMember())
    cluster.put_group(replace(made, spec=replace(made.spec, disruption_mode=whole)))
    refusal = decide(cluster, Unit(pods=(runner("high", "c-high", priority=10),))).refusals[0]
    assert names(refusal) == ["one", "two"]


def test_the_cluster_is_as_it_was_after_preemption_was_tried() -> None:
    world = one_gpu_in_use()
    cluster = world.cluster()
    high = runner("high", "c-high", priority=10)
    first = decide(cluster, Unit(pods=(high,))).refusals
    assert decide(cluster, Unit(pods=(high,))).refusals == first
    assert {info.pod.metadata.name for info in cluster.pods.values()} == {"low"}


# --- promises ---


def test_a_device_that_became_free_for_a_pod_is_not_given_to_a_less_important_one() -> None:
    world = one_gpu_in_use()
    cluster = world.cluster(without=frozenset(("low",)))
    high = runner("high", "c-high", priority=10)
    cluster.put_pod(replace(high, status=replace(high.status, nominated_node_name="n1")))
    assert isinstance(cluster.devices, Claims)
    cluster.devices.put_claim(claim("c-mid"))
    assert not decide(cluster, Unit(pods=(runner("mid", "c-mid", priority=5),))).placements
    assert decide(cluster, Unit(pods=(high,))).placements


# --- against trying everything ---


def random_world(dice: random.Random) -> tuple[World, core_v1.Pod]:
    world = World()
    for number in range(dice.randint(1, 2)):
        world.add_node(f"n{number}", devices=dice.randint(0, 3), cpu=str(dice.randint(2, 4)))
    if dice.random() < 0.3:
        world.slices.append(slice_of(None, gpus(dice.randint(1, 2)), name="fabric", allNodes=True))
    for number in range(dice.randint(2, 6)):
        name, own = f"p{number}", f"c{number}"
        priority, cpu = dice.randint(0, 3), str(dice.randint(0, 2))
        kind = dice.random()
        if kind < 0.2 and world.claims:
            new = runner(name, dice.choice(sorted(world.claims)), priority=priority, cpu=cpu)
            made: tuple[api.ResourceClaim, ...] = ()
        elif kind < 0.8:
            new, made = (
                runner(name, own, priority=priority, cpu=cpu),
                (claim(own, exactly(count=dice.randint(1, 2))),),
            )
        else:
            new, made = runner(name, priority=priority, cpu=cpu), ()
        if dice.random() < 0.3:
            new = labelled(new, app="db")
        world.run(new, *made)
    if dice.random() < 0.4:
        world.budgets.append(budget("db", dice.randint(0, 1), app="db"))
    wanted = dice.randint(0, 3)
    priority = dice.randint(1, 4)
    if not wanted:
        return world, runner("high", priority=priority, cpu=str(dice.randint(2, 4)))
    world.claims["c-high"] = claim("c-high", exactly(count=wanted))
    return world, runner("high", "c-high", priority=priority, cpu=str(dice.randint(0, 3)))


@pytest.mark.slow
def test_a_set_of_victims_is_found_if_there_is_one_and_none_is_cheaper() -> None:
    """300 small clusters in which the pod does not fit, compared with trying out every set of pods."""
    tried = found = 0
    seed = 0
    while tried < 300:
        seed += 1
        world, high = random_world(random.Random(seed))
        if decide(world.cluster(), Unit(pods=(high,))).placements:
            continue
        tried += 1
        lower = [one for one in world.pods.values() if (one.spec.priority or 0) < (high.spec.priority or 0)]
        budgets = Budgets(world.budgets)
        profile = Profile(high, b"")

        def cost(pods: tuple[core_v1.Pod, ...], budgets: Budgets = budgets, profile: Profile = profile) -> Any:
            residents = [
                Resident(
                    pods=(PodInfo(one, profile, "n"),),
                    priority=one.spec.priority or 0,
                    budgets=(budgets.protecting(one),),
                )
                for one in pods
            ]
            return cost_of(residents, budgets.allowed())

        sets = sorted((some for size in range(1, len(lower) + 1) for some in combinations(lower, size)), key=cost)
        best = None
        for some in sets:
            cluster = world.cluster(without=frozenset(one.metadata.name for one in some))
            if decide(cluster, Unit(pods=(high,))).placements:
                best = some
                break
        refusal = world.refusal(high)
        if best is None:
            assert names(refusal) == [], f"seed {seed}"
            continue
        found += 1
        chosen = tuple(victim.pod for victim in refusal.victims)
        assert chosen, f"seed {seed}: {[one.metadata.name for one in best]} would do"
        assert cost(chosen) == cost(best), f"seed {seed}"
        cluster = world.cluster(without=frozenset(names(refusal)))
        placed = decide(cluster, Unit(pods=(high,))).placements
        assert placed, f"seed {seed}: the victims do not make room"
    assert found > 100, "the clusters are too full or too empty to tell anything"


def test_with_many_pods_a_single_large_one_goes_instead_of_many_small_ones() -> None:
    def resident(number: int) -> Resident:
        one = runner(f"p{number}")
        return Resident(pods=(PodInfo(one, Profile(one, b""), "n"),), priority=0, budgets=((),))

    residents = [resident(number) for number in range(30)]
    large = residents[17]

    def makes_room(gone: Any) -> bool:
        return large in gone or len(gone) >= 8

    search = VictimSearch(residents, {}, makes_room)
    assert search.best() == (large,)
    assert search.trials < 300
