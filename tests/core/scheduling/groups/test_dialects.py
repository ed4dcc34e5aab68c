"""Groups of other schedulers: the same decisions, their own words."""

from __future__ import annotations

from typing import Any

import pytest

from allot.core.model import core_v1
from allot.core.model.codec import decode_served
from allot.core.model.foreign_groups import (
    COSCHEDULING,
    KAI,
    VOLCANO,
    CoschedulingPodGroup,
    KaiPodGroup,
    VolcanoPodGroup,
)
from allot.core.model.meta import APIStruct
from allot.core.scheduling import Decision, Machine, ObjectChange, Settings
from core.scheduling.cluster_world import node, pod

TIMEOUT_S = 300


def machine(*dialects: str, settings: Settings | None = None) -> Machine:
    made = Machine(lambda _name: settings or Settings())
    for dialect in dialects:
        made.serve(dialect)
    return made


def put(made: Machine, *objects: APIStruct, now: float = 0.0) -> None:
    for each in objects:
        made.apply(ObjectChange(None, each), now)


def coscheduling(name: str = "distributed-training", **spec: Any) -> CoschedulingPodGroup:
    body = {"metadata": {"name": name, "namespace": "ns", "uid": f"uid-{name}"}, "spec": spec}
    return decode_served(body, CoschedulingPodGroup)


def worker(number: int, name: str = "distributed-training", **more: Any) -> core_v1.Pod:
    return pod(f"worker-{number}", cpu="1", labels={"scheduling.x-k8s.io/pod-group": name}, **more)


def decided(made: Machine, now: float = 0.0) -> Decision:
    decision = made.next(now, now)
    assert decision is not None
    return decision


def founding(cpus: int) -> Machine:
    """The PodGroup of the founding document, on a node with so many places."""
    made = machine(COSCHEDULING)
    put(made, node("n1", cpu=str(cpus)), coscheduling(minMember=8, scheduleTimeoutSeconds=TIMEOUT_S))
    put(made, *(worker(number) for number in range(8)))
    return made


def test_with_seven_places_nothing_runs_and_the_reason_is_told() -> None:
    decision = decided(founding(7))
    assert not decision.placements
    text = decision.refusals[0].message
    assert text.startswith("minCount (8) cannot be satisfied: 7 scheduled, 0 remaining")
    assert "at most 7 of the 8" in decision.refusals[0].explanation


def test_with_eight_all_start() -> None:
    assert len(decided(founding(8)).placements) == 8


def test_after_the_timeout_the_group_is_refused_and_may_wait_as_long_again() -> None:
    made = founding(7)
    decided(made)
    assert made.next(1.0, 1.0) is None
    at = made.next_at()
    assert at == TIMEOUT_S
    late = decided(made, at)
    assert {refusal.message.partition(":")[0] for refusal in late.refusals} == {
        "rejected due to timeout after waiting 5m0s at plugin Coscheduling"
    }
    # Room that comes later is used all the same.
    put(made, node("n2", cpu="1"), now=at + 100)
    assert len(decided(made, at + 101).placements) == 8
    again = founding(7)
    decided(again)
    decided(again, TIMEOUT_S)
    assert again.next_at() == 2 * TIMEOUT_S


def test_too_few_pods_wait_and_the_words_are_coscheduling_s() -> None:
    made = machine(COSCHEDULING)
    put(made, node("n1"), coscheduling(minMember=3), worker(0), worker(1))
    assert made.next(0.0, 0.0) is None
    closed = made.closed("ns/worker-0")
    assert closed is not None
    assert closed.status.reasons == (
        "pre-filter pod worker-0 cannot find enough sibling pods, current pods number: 2, minMember of group: 3",
    )
    put(made, worker(2))
    assert len(decided(made).placements) == 3


def test_a_label_without_a_group_waits_where_the_kind_is_served() -> None:
    made = machine(COSCHEDULING)
    put(made, node("n1"), worker(0))
    assert made.next(0.0, 0.0) is None
    closed = made.closed("ns/worker-0")
    assert closed is not None and closed.status.reasons == ("PodGroup not found",)
    put(made, coscheduling(minMember=1))
    assert len(decided(made).placements) == 1
    # Elsewhere it is a label like others.
    other = machine()
    put(other, node("n1"), worker(0))
    assert len(decided(other).placements) == 1


def test_pods_that_run_count() -> None:
    made = machine(COSCHEDULING)
    put(made, node("n1"), coscheduling(minMember=2), worker(0, on="n1"), worker(1))
    assert len(decided(made).placements) == 1


def test_minimum_resources_must_be_there_in_all() -> None:
    made = machine(COSCHEDULING)
    put(made, node("n1"), coscheduling(minMember=1, minResources={"cpu": "6"}), worker(0))
    decision = decided(made)
    assert decision.refusals[0].message == "resource gap: cpu 2000m"
    put(made, node("n2"), now=10.0)
    assert len(decided(made, 20.0).placements) == 1


def test_groups_of_the_same_name_in_two_dialects_are_two() -> None:
    made = machine(COSCHEDULING)
    put(made, node("n1"), coscheduling("g", minMember=1), coscheduling("h", minMember=2))
    put(made, worker(0, "g"), worker(1, "h"))
    assert [placement.pod.metadata.name for placement in decided(made).placements] == ["worker-0"]
    assert made.next(0.0, 0.0) is None


@pytest.mark.parametrize(
    ("dialect", "type_", "annotation"),
    [
        (VOLCANO, VolcanoPodGroup, "scheduling.k8s.io/group-name"),
        (KAI, KaiPodGroup, "pod-group-name"),
    ],
)
def test_other_dialects_name_their_group_by_annotation(dialect: str, type_: type[APIStruct], annotation: str) -> None:
    made = machine(dialect)
    body = {"metadata": {"name": "g", "namespace": "ns", "uid": "u"}, "spec": {"minMember": 5, "queue": "q"}}
    put(made, node("n1"), decode_served(body, type_))
    put(made, *(pod(f"p{number}", cpu="1", metadata={"annotations": {annotation: "g"}}) for number in range(5)))
    decision = decided(made)
    assert not decision.placements and len(decision.refusals) == 5
    put(made, node("n2"), now=10.0)
    assert len(decided(made, 20.0).placements) == 5


def test_a_group_of_another_dialect_preempts_with_the_priority_of_its_pods() -> None:
    made = machine(COSCHEDULING)
    put(made, node("n1"), coscheduling(minMember=2), pod("low", cpu="3", on="n1", priority=1))
    put(made, worker(0, priority=5), worker(1, priority=5))
    decision = decided(made)
    assert [victim.pod.metadata.name for victim in decision.refusals[0].victims] == ["low"]
