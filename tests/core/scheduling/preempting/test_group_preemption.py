"""Groups preempt: the cheapest victims whose end lets enough of their pods run at once, devices included."""

from __future__ import annotations

import random

from msgspec.structs import replace

from allot.core.model import core_v1
from allot.core.scheduling.cluster import Cluster
from allot.core.scheduling.decide import decide
from allot.core.scheduling.devices.claims import Claims
from allot.core.scheduling.plan import Decision, Unit
from allot.core.scheduling.settings import Settings
from core.scheduling.cluster_world import cluster, cluster_with_devices, node, picture, pod, pod_group
from core.scheduling.device_world import allocation, claim, device_class, exactly, gpus, slice_of

HIGH = 100


def gang(minimum: int, count: int, cpu: str = "4", **spec: object) -> Unit:
    pods = tuple(pod(f"p{number}", cpu=cpu, group="g", priority=HIGH, **spec) for number in range(count))  # type: ignore[arg-type]
    return Unit(pods=pods, group=pod_group("g", minimum, priority=HIGH))


def run(made: Cluster, asked: Unit) -> Decision:
    before = picture(made)
    decision = decide(made, asked, Settings())
    assert picture(made) == before
    return decision


def victims(decision: Decision) -> list[str]:
    return sorted(victim.pod.metadata.name for refusal in decision.refusals for victim in refusal.victims)


def nominated(decision: Decision) -> list[str]:
    return sorted(refusal.nominated_node for refusal in decision.refusals if refusal.nominated_node)


def test_a_group_preempts_as_a_whole_and_its_pods_are_promised_their_nodes() -> None:
    made = cluster(node("n1"), node("n2"), *(pod(f"low-{n}", cpu="4", on=f"n{n}", priority=50) for n in (1, 2)))
    decision = run(made, gang(2, 2))
    assert victims(decision) == ["low-1", "low-2"]
    assert nominated(decision) == ["n1", "n2"]
    assert decision.group is not None
    assert decision.group.message.endswith("pod group preemption: found a placement for podgroup, preempting 2 victims")
    (by,) = {victim.by for refusal in decision.refusals for victim in refusal.victims}
    assert by == "podgroup uid-g on node cluster"


def test_nobody_goes_if_that_would_not_be_enough() -> None:
    made = cluster(
        node("n1"),
        node("n2"),
        pod("low", cpu="4", on="n1", priority=50),
        pod("equal", cpu="4", on="n2", priority=HIGH),
    )
    decision = run(made, gang(2, 2))
    assert victims(decision) == []
    assert nominated(decision) == []


def test_the_least_important_go_and_free_nodes_are_used_first() -> None:
    made = cluster(
        *(node(f"n{n}") for n in range(4)),
        pod("middle", cpu="4", on="n0", priority=50),
        pod("low", cpu="4", on="n1", priority=10),
        pod("lower", cpu="4", on="n2", priority=5),
    )
    # One node is free, one victim is enough: the least important.
    assert victims(run(made, gang(2, 2))) == ["lower"]
    assert victims(run(made, gang(3, 3))) == ["low", "lower"]


def test_a_group_that_is_disrupted_as_a_whole_goes_as_a_whole() -> None:
    made = cluster(*(node(f"n{n}") for n in range(3)))
    whole = pod_group("whole", 3, disruptionMode={"all": {}}, priority=10)
    made.put_group(whole)
    for number in range(3):
        made.put_pod(pod(f"w{number}", cpu="4", on=f"n{number}", group="whole", priority=10))
    assert victims(run(made, gang(2, 2))) == ["w0", "w1", "w2"]
    made.put_group(pod_group("whole", 3, priority=10))
    assert len(victims(run(made, gang(2, 2)))) == 2


def with_gpus(nodes: int, each: int) -> tuple[Cluster, Claims]:
    made, claims = cluster_with_devices(*(node(f"n{n}") for n in range(nodes)))
    claims.put_class(device_class())
    for number in range(nodes):
        claims.put_slice(slice_of(f"n{number}", gpus(each)))
    return made, claims


def holding(made: Cluster, claims: Claims, name: str, on: str, *devices: str, priority: int = 10) -> None:
    reserved = [{"resource": "pods", "name": name, "uid": f"uid-{name}"}]
    claims.put_claim(
        claim(
            f"of-{name}",
            exactly(count=len(devices)),
            status={"allocation": allocation(*devices, node=on), "reservedFor": reserved},
        )
    )
    entry = {"name": "r", "resourceClaimName": f"of-{name}"}
    made.put_pod(pod(name, on=on, priority=priority, resourceClaims=[entry]))


def asking(claims: Claims, count: int, devices: int = 1) -> Unit:
    pods = []
    for number in range(count):
        claims.put_claim(claim(f"c{number}", exactly(count=devices)))
        entry = {"name": "r", "resourceClaimName": f"c{number}"}
        pods.append(pod(f"p{number}", group="g", priority=HIGH, resourceClaims=[entry]))
    return Unit(pods=tuple(pods), group=pod_group("g", count, priority=HIGH))


def test_the_devices_of_victims_count_as_free() -> None:
    made, claims = with_gpus(1, 8)
    holding(made, claims, "notebook", "n0", "gpu-3")
    decision = run(made, asking(claims, 8))
    assert victims(decision) == ["notebook"]
    assert nominated(decision) == ["n0"] * 8
    (victim,) = [victim for refusal in decision.refusals for victim in refusal.victims]
    assert victim.gives == "it gives gpu-3"
    # Nobody who holds nothing that helps goes.
    made.put_pod(pod("idle", on="n0", priority=1))
    assert victims(run(made, asking(claims, 8))) == ["notebook"]


def test_pods_that_are_going_anyway_make_room_first() -> None:
    made, claims = with_gpus(2, 4)
    holding(made, claims, "going", "n0", "gpu-0")
    holding(made, claims, "staying", "n1", "gpu-0")
    going = next(info.pod for info in made.pods.values() if info.pod.metadata.name == "going")
    leaving = replace(going, metadata=replace(going.metadata, deletion_timestamp="2026-01-01T00:00:00Z"))
    made.put_pod(leaving)
    decision = run(made, asking(claims, 7))
    assert victims(decision) == []
    assert "pods that are terminating make room" in decision.refusals[0].explanation


def test_a_group_that_may_not_preempt_does_not() -> None:
    made = cluster(node("n1"), pod("low", cpu="4", on="n1", priority=50))
    asked = gang(1, 1)
    decision = run(made, replace(asked, group=pod_group("g", 1, priority=HIGH, preemptionPolicy="Never")))
    assert victims(decision) == []
    assert decision.group is not None and "not eligible due to preemptionPolicy=Never." in decision.group.message
    # What the group says counts more than what its pods say.
    never = gang(1, 1, preemptionPolicy="Never")
    assert victims(run(made, never)) == []
    allowed = replace(never, group=pod_group("g", 1, priority=HIGH, preemptionPolicy="PreemptLowerPriority"))
    assert victims(run(made, allowed)) == ["low"]


def test_a_disruption_budget_is_broken_only_if_there_is_no_other_way() -> None:
    from allot.core.model.meta import LabelSelector, ObjectMeta
    from allot.core.model.policy_v1 import (
        PodDisruptionBudget,
        PodDisruptionBudgetSpec,
        PodDisruptionBudgetStatus,
    )

    made = cluster(node("n1"), node("n2"))
    made.put_pod(pod("guarded", cpu="4", on="n1", priority=1, labels={"app": "a"}))
    made.put_pod(pod("other", cpu="4", on="n2", priority=50))
    made.put_budget(
        PodDisruptionBudget(
            metadata=ObjectMeta(namespace="ns", name="b"),
            spec=PodDisruptionBudgetSpec(selector=LabelSelector(match_labels={"app": "a"})),
            status=PodDisruptionBudgetStatus(disruptions_allowed=0),
        )
    )
    assert victims(run(made, gang(1, 1))) == ["other"]
    assert victims(run(made, gang(2, 2))) == ["guarded", "other"]


def test_victims_are_enough_and_each_of_them_is_needed() -> None:
    """Law, on random clusters with few and with many residents."""
    tried = 0
    for seed in range(60):
        dice = random.Random(f"victims {seed}")
        nodes = dice.choice((3, 4, 8))
        made, claims = with_gpus(nodes, 4)
        for number in range(nodes * 2):
            first = dice.choice((0, 2))
            on = f"n{number // 2}"
            devices = (
                [f"gpu-{(number % 2) * 2}"] if first else [f"gpu-{(number % 2) * 2}", f"gpu-{(number % 2) * 2 + 1}"]
            )
            if dice.random() < 0.8:
                holding(made, claims, f"v{number}", on, *devices, priority=dice.choice((1, 5, 5, 50, HIGH)))
        asked = asking(claims, dice.choice((2, 3, 5)), dice.choice((1, 2, 3)))
        decision = run(made, asked)
        chosen = [victim.pod for refusal in decision.refusals for victim in refusal.victims]
        if not chosen:
            continue
        tried += 1
        assert all((each.spec.priority or 0) < HIGH for each in chosen)

        def fits(gone: list[core_v1.Pod], made: Cluster = made, asked: Unit = asked) -> bool:
            with made.without(gone):
                return bool(decide(made, asked, Settings(preempts=False)).placements)

        assert fits(chosen), seed
        for one in chosen:
            assert not fits([each for each in chosen if each is not one]), (
                f"seed {seed}: {one.metadata.name} need not go"
            )
    assert tried > 10
