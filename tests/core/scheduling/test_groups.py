"""Groups: enough pods at once, or none; with kube-scheduler's words."""

from __future__ import annotations

import random

import pytest
from msgspec.structs import replace

from allot.core.features import DEFAULT_GATES
from allot.core.model.foreign_groups import (
    COSCHEDULING,
    KAI,
    VOLCANO,
    CoschedulingPodGroup,
    CoschedulingSpec,
    KaiPodGroup,
    KaiSpec,
    VolcanoPodGroup,
    VolcanoSpec,
)
from allot.core.model.meta import Condition, ObjectMeta
from allot.core.model.scheduling_v1 import PodGroupStatus
from allot.core.scheduling import Machine, ObjectChange
from allot.core.scheduling.cluster import Cluster
from allot.core.scheduling.decide import decide
from allot.core.scheduling.groups.halves import STALE_AFTER_S
from allot.core.scheduling.plan import Decision, Unit
from allot.core.scheduling.settings import DEFAULT_SETTINGS, Settings
from allot.core.scheduling.status import Verdict

from .cluster_world import cluster, cluster_with_devices, node, picture, placed_on, pod, pod_group
from .device_world import claim, device_class, exactly, gpus, slice_of


def unit(minimum: int | None, count: int, cpu: str = "4", **spec: object) -> Unit:
    pods = tuple(pod(f"p{number}", cpu=cpu, group="g", **spec) for number in range(count))  # type: ignore[arg-type]
    return Unit(pods=pods, group=pod_group("g", minimum))


def run(made: Cluster, asked: Unit) -> Decision:
    before = picture(made)
    decision = decide(made, asked, DEFAULT_SETTINGS)
    assert picture(made) == before
    return decision


NO_VICTIMS = ", pod group preemption: No preemption victims found for incoming preemptor"


def messages(decision: Decision) -> list[str]:
    """What is told of the pods, without what preemption adds where there is nobody who could go."""
    return [refusal.message.removesuffix(NO_VICTIMS) for refusal in decision.refusals]


def test_a_gang_that_fits_is_placed_as_a_whole() -> None:
    decision = run(cluster(node("n1"), node("n2"), node("n3")), unit(3, 3))
    assert sorted(placed_on(decision).values()) == ["n1", "n2", "n3"]
    assert not decision.refusals
    assert decision.group is not None
    assert (decision.group.status, decision.group.reason) == ("True", "Scheduled")


def test_a_gang_that_does_not_fit_gets_nothing() -> None:
    decision = run(cluster(node("n1"), node("n2")), unit(3, 3))
    assert not decision.placements
    text = "minCount (3) cannot be satisfied: 2 scheduled, 0 remaining"
    assert messages(decision) == [text, text, "0/2 nodes are available: 2 Insufficient cpu."]
    assert [refusal.plugins for refusal in decision.refusals] == [
        {"GangScheduling"},
        {"GangScheduling"},
        {"NodeResourcesFit"},
    ]
    assert decision.group is not None
    assert (decision.group.status, decision.group.reason) == ("False", "Unschedulable")
    assert decision.group.message == text + NO_VICTIMS


def test_the_pass_ends_as_soon_as_the_minimum_is_out_of_reach() -> None:
    decision = run(cluster(node("n1")), unit(4, 4))
    text = "minCount (4) cannot be satisfied: 1 scheduled, 2 remaining"
    assert messages(decision) == [text, "0/1 nodes are available: 1 Insufficient cpu.", text, text]


def test_pods_beyond_the_minimum_are_placed_if_there_is_room() -> None:
    decision = run(cluster(node("n1"), node("n2"), node("n3")), unit(2, 4))
    assert len(decision.placements) == 3
    assert messages(decision) == ["0/3 nodes are available: 3 Insufficient cpu."]
    assert decision.group is not None and decision.group.status == "True"


def test_too_few_pods_are_not_tried() -> None:
    decision = run(cluster(node("n1")), unit(3, 2))
    assert messages(decision) == ["minCount (3) cannot be satisfied: 0 scheduled, 2 remaining"] * 2
    assert decision.nodes_evaluated == 0


def test_pods_that_have_a_node_count() -> None:
    made = cluster(*(node(f"n{number}") for number in range(3)))
    for number in (1, 2):
        made.put_pod(pod(f"there-{number}", cpu="4", group="g", on=f"n{number}"))
    decision = run(made, unit(3, 1))
    assert placed_on(decision) == {"p0": "n0"}


def test_a_basic_group_places_what_fits() -> None:
    decision = run(cluster(node("n1")), unit(None, 2))
    assert len(decision.placements) == 1
    decision = run(cluster(node("n1", cpu="1")), unit(None, 2))
    assert decision.group is not None
    assert decision.group.message == "minCount (1) cannot be satisfied: 0 scheduled, 0 remaining" + NO_VICTIMS


def test_a_surplus_pod_that_does_not_fit_leaves_the_group_unschedulable() -> None:
    made = cluster(node("n1"))
    made.put_pod(pod("there", cpu="4", group="g", on="n1"))
    group = replace(
        pod_group("g", 1),
        status=PodGroupStatus(conditions=(Condition(type="PodGroupInitiallyScheduled", status="True"),)),
    )
    decision = run(made, Unit(pods=(pod("p", cpu="4", group="g"),), group=group))
    assert messages(decision) == ["0/1 nodes are available: 1 Insufficient cpu."]
    # Once it has been scheduled it never says otherwise.
    assert decision.group is None


def test_pods_of_a_group_must_agree() -> None:
    made = cluster(node("n1"))
    rule = "all pods in a single pod group should have the same"
    mixed = Unit(
        pods=(pod("a", group="g", schedulerName="x"), pod("b", group="g", schedulerName="y")), group=pod_group("g", 1)
    )
    decision = run(made, mixed)
    assert messages(decision) == [f'{rule} .spec.schedulerName set, got: "y" and "x"'] * 2
    assert {refusal.verdict for refusal in decision.refusals} == {Verdict.ERROR}
    assert decision.group is not None and decision.group.reason == "SchedulerError"
    prioritized = Unit(pods=(pod("a", group="g", priority=5),), group=pod_group("g", 1, priority=7))
    assert messages(run(made, prioritized)) == [f"{rule} priority as the pod group's priority, got 5 and 7"]
    made.put_pod(pod("there", group="g", on="n1", preemptionPolicy="Never"))
    assert messages(run(made, unit(1, 1))) == [f"{rule} preemption policy, got Never and PreemptLowerPriority"]


def test_pods_of_a_gang_do_not_get_the_same_device() -> None:
    made, claims = cluster_with_devices(node("n1"), node("n2"))
    claims.put_class(device_class())
    for name in ("n1", "n2"):
        claims.put_slice(slice_of(name, gpus(1)))
    for number in range(3):
        claims.put_claim(claim(f"c{number}", exactly()))

    def asking(count: int) -> Unit:
        pods = tuple(
            pod(f"p{number}", group="g", resourceClaims=[{"name": "r", "resourceClaimName": f"c{number}"}])
            for number in range(count)
        )
        return Unit(pods=pods, group=pod_group("g", count))

    decision = run(made, asking(2))
    allocations = [placement.claims[0].allocation for placement in decision.placements]
    pools = {allocation.devices.results[0].pool for allocation in allocations if allocation is not None}
    assert pools == {"n1", "n2"}
    decision = run(made, asking(3))
    assert messages(decision)[2] == "0/2 nodes are available: 2 cannot allocate all claims."
    # Nothing is left of what was tried.
    assert not any(claims.in_flight("ns", f"c{number}") for number in range(3))


# --- nodes that must share a label ---

RACK = "example.com/rack"
TOPOLOGY = Settings(topology_placements=True)


def racked(**racks: int) -> Cluster:
    """Racks with so many nodes each."""
    return cluster(
        *(node(f"{rack}-{number}", labels={RACK: rack}) for rack, count in racks.items() for number in range(count)),
        node("elsewhere"),
    )


def in_a_rack(minimum: int, count: int) -> Unit:
    group = pod_group("g", minimum, schedulingConstraints={"topology": [{"key": RACK}]})
    return Unit(pods=unit(minimum, count).pods, group=group)


def racks_of(made: Cluster, asked: Unit) -> list[str]:
    before = picture(made)
    decision = decide(made, asked, TOPOLOGY)
    assert picture(made) == before
    return sorted(placement.node.partition("-")[0] for placement in decision.placements)


def test_a_group_goes_to_the_rack_that_takes_most_of_it() -> None:
    assert racks_of(racked(r1=3, r2=4), in_a_rack(3, 4)) == ["r2"] * 4
    # Without the feature the constraint is not looked at.
    decision = decide(racked(r1=3, r2=4), in_a_rack(3, 4), DEFAULT_SETTINGS)
    assert len({placement.node.partition("-")[0] for placement in decision.placements}) > 1


def test_among_racks_that_take_all_of_it_the_fullest_is_taken() -> None:
    assert racks_of(racked(r1=4, r2=2, r3=3), in_a_rack(2, 2)) == ["r2"] * 2


def test_a_group_that_fits_into_no_rack_gets_nothing() -> None:
    decision = decide(racked(r1=1, r2=2), in_a_rack(3, 3), TOPOLOGY)
    first = "minCount (3) cannot be satisfied: 1 scheduled, 1 remaining"
    text = f"0/2 placements are available, first placement status: {first}"
    assert messages(decision) == [text, "0/1 nodes are available: 1 Insufficient cpu.", text]
    nowhere = decide(cluster(node("n1")), in_a_rack(1, 1), TOPOLOGY)
    assert messages(nowhere) == ["no feasible placements found"]


def test_members_that_are_somewhere_already_draw_the_others() -> None:
    made = racked(r1=3, r2=4)
    made.put_pod(pod("there", cpu="4", group="g", on="r1-0"))
    assert racks_of(made, in_a_rack(3, 2)) == ["r1"] * 2
    made.put_pod(pod("there-too", cpu="4", group="g", on="r2-0"))
    decision = decide(made, in_a_rack(3, 2), TOPOLOGY)
    assert {refusal.verdict for refusal in decision.refusals} == {Verdict.ERROR}
    assert messages(decision)[0] == (
        "cannot determine domain for already scheduled pods: more than 1 domain found for pod group: r1, r2"
    )


@pytest.mark.parametrize("seed", range(40))
def test_no_other_domain_would_leave_room_for_a_larger_gang(seed: int) -> None:
    dice = random.Random(seed)
    free = {f"r{number}": dice.randint(1, 5) for number in range(4)}
    size = dice.randint(1, max(free.values()))
    (rack,) = set(racks_of(racked(**free), in_a_rack(size, size)))

    def largest_after(chosen: str) -> int:
        return max(count - size * (name == chosen) for name, count in free.items())

    assert largest_after(rack) == max(largest_after(name) for name, count in free.items() if count >= size)


# --- a group that was placed by half ---


def test_a_group_that_is_placed_by_half_for_too_long_gives_back_what_it_has() -> None:
    made = Machine(lambda _name: DEFAULT_SETTINGS, DEFAULT_GATES.changed(["GenericWorkload"]))
    group = pod_group("g", 2)
    half = pod("p0", cpu="4", group="g", on="n1")
    for each in (node("n1"), node("n2"), group, half, pod("other", cpu="4", on="n2"), pod("p1", cpu="4", group="g")):
        made.apply(ObjectChange(None, each), 0.0)
    first = made.next(0.0, 0.0)
    assert first is not None and not first.placements
    assert not any(refusal.victims for refusal in first.refusals)
    at = made.next_at()
    assert at == STALE_AFTER_S
    late = made.next(at, at)
    assert late is not None
    assert [victim.pod.metadata.name for refusal in late.refusals for victim in refusal.victims] == ["p0"]
    assert "its 1 pods that have a node give it back" in late.refusals[0].explanation


@pytest.mark.parametrize("timeout", [None, 20], ids=["no timeout", "a timeout"])
def test_a_group_of_another_dialect_gives_back_after_its_own_timeout(timeout: int | None) -> None:
    made = Machine(lambda _name: DEFAULT_SETTINGS, DEFAULT_GATES)
    made.serve(COSCHEDULING)
    spec = CoschedulingSpec(min_member=2, schedule_timeout_seconds=timeout)
    group = CoschedulingPodGroup(metadata=ObjectMeta(name="g", namespace="ns", uid="u"), spec=spec)
    labels = {"scheduling.x-k8s.io/pod-group": "g"}
    half, wants = pod("p0", cpu="4", labels=labels, on="n1"), pod("p1", cpu="4", labels=labels)
    for each in (node("n1"), group, half, wants):
        made.apply(ObjectChange(None, each), 0.0)
    first = made.next(0.0, 0.0)
    assert first is not None and not any(refusal.victims for refusal in first.refusals)
    at = made.next_at()
    assert at == (timeout or 60.0)
    late = made.next(at, at)
    assert late is not None
    assert [victim.pod.metadata.name for refusal in late.refusals for victim in refusal.victims] == ["p0"]


def test_a_group_of_another_dialect_whose_other_pods_are_done_keeps_what_it_has() -> None:
    made = Machine(lambda _name: DEFAULT_SETTINGS, DEFAULT_GATES)
    made.serve(VOLCANO)
    spec = VolcanoSpec(min_member=2)
    group = VolcanoPodGroup(metadata=ObjectMeta(name="g", namespace="ns", uid="u"), spec=spec)
    named = {"annotations": {"scheduling.k8s.io/group-name": "g"}}
    done = pod("p0", cpu="4", metadata=named, on="n1", status={"phase": "Succeeded"})
    for each in (
        *(node("n1"), group, done, pod("p1", cpu="4", metadata=named, on="n1")),
        pod("p2", cpu="4", metadata=named),
    ):
        made.apply(ObjectChange(None, each), 0.0)
    first = made.next(0.0, 0.0)
    assert first is not None and not first.placements
    late = made.next(STALE_AFTER_S + 1, STALE_AFTER_S + 1)
    assert late is None or not any(refusal.victims for refusal in late.refusals)


def test_a_group_that_was_complete_before_keeps_what_it_has() -> None:
    made = Machine(lambda _name: DEFAULT_SETTINGS, DEFAULT_GATES.changed(["GenericWorkload"]))
    condition = Condition(type="PodGroupInitiallyScheduled", status="True")
    group = replace(pod_group("g", 2), status=PodGroupStatus(conditions=(condition,)))
    for each in (node("n1"), group, pod("p0", cpu="4", group="g", on="n1"), pod("p1", cpu="4", group="g")):
        made.apply(ObjectChange(None, each), 0.0)
    assert made.next(0.0, 0.0) is not None
    assert made.next_at() != STALE_AFTER_S


def test_what_is_left_of_a_group_whose_other_pods_do_not_exist_is_given_back() -> None:
    made = Machine(lambda _name: DEFAULT_SETTINGS, DEFAULT_GATES.changed(["GenericWorkload"]))
    for each in (node("n1"), pod_group("g", 2), pod("p0", cpu="4", group="g", on="n1")):
        made.apply(ObjectChange(None, each), 0.0)
    assert made.next(0.0, 0.0) is None
    assert made.next_at() == STALE_AFTER_S
    assert made.next(STALE_AFTER_S - 1, 0.0) is None
    late = made.next(STALE_AFTER_S, 0.0)
    assert late is not None
    (victim,) = late.victims
    assert victim.why == (
        "Workload doesn't meet the minimum required number of pods (2), evicting remaining pod: ns/p0"
    )
    assert made.next(STALE_AFTER_S, 0.0) is None, "asked once"
    assert made.next(2 * STALE_AFTER_S, 0.0) is not None, "and again if that came to nothing"


def test_a_group_that_lost_a_pod_and_got_another_in_time_keeps_what_it_has() -> None:
    made = Machine(lambda _name: DEFAULT_SETTINGS, DEFAULT_GATES.changed(["GenericWorkload"]))
    second = pod("p1", cpu="1", group="g", on="n1")
    for each in (node("n1"), pod_group("g", 2), pod("p0", cpu="1", group="g", on="n1"), second):
        made.apply(ObjectChange(None, each), 0.0)
    assert made.next_at() is None
    assert made.apply(ObjectChange(second, None), 10.0).wakes, "somebody has to look later"
    assert made.next_at() == 10 + STALE_AFTER_S
    made.apply(ObjectChange(None, pod("p2", cpu="1", group="g", on="n1")), 20.0)
    assert made.next_at() is None


@pytest.mark.parametrize(
    ("grace", "at"), [("", STALE_AFTER_S), ("10s", 10.0), ("-1s", None)], ids=["default", "own", "never"]
)
def test_a_stale_group_of_kai_goes_after_its_own_grace_period(grace: str, at: float | None) -> None:
    made = Machine(lambda _name: DEFAULT_SETTINGS, DEFAULT_GATES)
    made.serve(KAI)
    spec = KaiSpec(min_member=2, staleness_grace_period=grace)
    group = KaiPodGroup(metadata=ObjectMeta(name="g", namespace="ns", uid="u"), spec=spec)
    named = {"annotations": {"pod-group-name": "g"}}
    for each in (node("n1"), group, pod("p0", cpu="1", metadata=named, on="n1")):
        made.apply(ObjectChange(None, each), 0.0)
    assert made.next_at() == at


@pytest.mark.parametrize("dialect", [COSCHEDULING, VOLCANO])
def test_what_is_left_of_groups_of_others_stays_as_their_schedulers_have_it(dialect: str) -> None:
    made = Machine(lambda _name: DEFAULT_SETTINGS, DEFAULT_GATES)
    made.serve(dialect)
    metadata = ObjectMeta(name="g", namespace="ns", uid="u")
    named = {
        "labels": {"scheduling.x-k8s.io/pod-group": "g"},
        "annotations": {"scheduling.k8s.io/group-name": "g"},
    }
    group = (
        CoschedulingPodGroup(metadata=metadata, spec=CoschedulingSpec(min_member=2))
        if dialect == COSCHEDULING
        else VolcanoPodGroup(metadata=metadata, spec=VolcanoSpec(min_member=2))
    )
    for each in (node("n1"), group, pod("p0", cpu="1", metadata=named, on="n1")):
        made.apply(ObjectChange(None, each), 0.0)
    assert made.next_at() is None
