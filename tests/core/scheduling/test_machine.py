"""The machine: what goes in, what comes out, and that nothing is lost on the way."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from allot.core.model import apps_v1, core_v1
from allot.core.model import resource_v1 as api
from allot.core.model.core_v1 import Node, Pod
from allot.core.model.meta import ObjectMeta
from allot.core.quantity import Quantity
from allot.core.scheduling import (
    Applied,
    Bound,
    Decision,
    DecisionFailed,
    Machine,
    NotBound,
    ObjectChange,
    Placement,
    Settings,
    Verdict,
)
from allot.core.scheduling import machine as machine_module
from allot.core.scheduling.queueing.waiting import Place


def node(name: str = "n", cpu: str = "2") -> Node:
    amounts = {"cpu": Quantity.parse(cpu), "pods": Quantity.parse("10")}
    return Node(metadata=ObjectMeta(name=name), status=core_v1.NodeStatus(allocatable=amounts))


def pod(name: str = "p", *, cpu: str = "2", uid: str = "", **spec: Any) -> Pod:
    requests = core_v1.ResourceRequirements(requests={"cpu": Quantity.parse(cpu)})
    container = core_v1.Container(name="c", resources=requests)
    made = core_v1.PodSpec(containers=(container,), **{"scheduler_name": "default-scheduler", **spec})
    return Pod(metadata=ObjectMeta(name=name, namespace="ns", uid=uid or f"uid-{name}"), spec=made)


def on(found: Pod, name: str) -> Pod:
    return replace(found, spec=replace(found.spec, node_name=name))


def machine(*objects: Any) -> Machine:
    made = Machine({"default-scheduler": Settings()}.get)
    for each in objects:
        made.apply(ObjectChange(None, each), 0.0)
    return made


def placed(made: Machine, now: float = 0.0) -> Placement:
    decision = made.next(now, 0.0)
    assert decision is not None
    (placement,) = decision.placements
    return placement


# --- changes ---


def test_a_change_says_whether_there_may_be_something_to_try() -> None:
    made = machine()
    assert made.apply(ObjectChange(None, node()), 0.0) == Applied()
    assert made.apply(ObjectChange(None, pod(cpu="4")), 0.0).wakes
    assert made.next(0.0, 0.0) is not None
    assert made.apply(ObjectChange(node(), node(cpu="3")), 0.0) == Applied()
    assert made.apply(ObjectChange(node(cpu="3"), node(cpu="4")), 0.0) == Applied(True, "NodeUpdate", 1)


def test_kinds_that_no_decision_looks_at_are_passed_over() -> None:
    made = machine()
    assert made.apply(ObjectChange(None, apps_v1.ReplicaSet(metadata=ObjectMeta(name="r", namespace="ns"))), 0.0) == (
        Applied()
    )
    template = api.ResourceClaimTemplate(metadata=ObjectMeta(name="t", namespace="ns"))
    assert made.apply(ObjectChange(None, template), 0.0) == Applied()


def test_a_pod_of_another_scheduler_is_counted_but_not_tried() -> None:
    made = machine(node(), pod(scheduler_name="other"))
    assert made.next(0.0, 0.0) is None
    theirs = pod(scheduler_name="other")
    made.apply(ObjectChange(theirs, on(theirs, "n")), 0.0)
    made.apply(ObjectChange(None, pod("q", cpu="1")), 0.0)
    decision = made.next(0.0, 0.0)
    assert decision is not None
    assert decision.refusals[0].message.startswith("0/1 nodes are available: 1 Insufficient cpu.")


# --- decisions ---


def test_a_decision_is_in_force_at_once() -> None:
    made = machine(node(), pod("p"), pod("q"))
    assert placed(made).node == "n"
    assert made.in_flight == 1
    decision = made.next(0.0, 0.0)
    assert decision is not None
    assert not decision.placements
    assert made.next(0.0, 0.0) is None
    assert made.next_at() == 300.0


def test_asking_puts_nothing_into_force_and_says_what_next_says() -> None:
    made = machine(node(), pod("p"))
    for _ in range(2):
        asked = made.ask("ns/p", 0.0)
        assert asked is not None
        assert [placement.node for placement in asked.placements] == ["n"]
    assert (made.in_flight, made.queue.place("ns/p")) == (0, Place.ACTIVE)
    assert (placed(made),) == asked.placements
    assert made.ask("ns/p", 0.0) is None, "it does not wait any more"


def test_a_pod_that_cannot_be_decided_waits_as_after_an_error_and_the_others_go_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = machine(node(), pod("p", priority=1), pod("q", cpu="1"))

    def fail(*_: object) -> Decision:
        raise ZeroDivisionError

    with monkeypatch.context() as patched:
        patched.setattr(machine_module, "decide", fail)
        with pytest.raises(DecisionFailed, match="deciding ns/p") as raised:
            made.next(0.0, 0.0)
    (refusal,) = raised.value.decision.refusals
    assert (refusal.pod.metadata.name, refusal.verdict) == ("p", Verdict.ERROR)
    assert isinstance(raised.value.__cause__, ZeroDivisionError)
    assert made.queue.place("ns/p") is Place.BACKOFF
    assert placed(made).pod.metadata.name == "q"


def test_room_for_one_does_not_make_everybody_try_at_once() -> None:
    """A few are tried before their pause is over if there is nothing else to do; more if that led somewhere."""
    waiting = [pod(f"p{number:02}", cpu="2", uid=f"u{number}") for number in range(60)]
    holder = on(pod("holder"), "n")
    made = machine(node(), holder, *waiting)
    while made.next(0.0, 0.0) is not None:
        pass
    assert made.apply(ObjectChange(holder, None), 0.5).units == 60
    tried = []
    while (decision := made.next(0.5, 0.0)) is not None:
        tried.append(decision)
        for placement in decision.placements:
            made.settled(placement, Bound(placement.node), 0.5)
    assert [len(decision.placements) for decision in tried] == [1, *(0,) * 16]
    assert made.next_at() == 1.0, "the others have their pauses"


# --- settling ---


def test_a_written_placement_tells_how_often_and_since_when_the_pod_was_tried() -> None:
    made = machine(node())
    made.apply(ObjectChange(None, pod()), 5.0)
    settled = made.settled(placed(made, 6.0), Bound("n"), 7.0)
    assert (settled.is_bound, settled.attempts, settled.since, settled.refusal) == (True, 1, 5.0, None)
    assert (made.in_flight, made.queue.place("ns/p")) == (0, None)


def test_a_pod_that_somebody_else_has_put_elsewhere_takes_no_room_here() -> None:
    made = machine(node("n"))
    made.apply(ObjectChange(None, pod()), 0.0)
    placement = placed(made)
    made.apply(ObjectChange(None, pod("q")), 0.0)
    assert made.next(0.0, 0.0) is not None
    settled = made.settled(placement, Bound("other"), 1.0)
    assert (settled.is_bound, settled.refusal) == (False, None)
    assert placed(made, 2.0).pod.metadata.name == "q"


def test_a_placement_that_cannot_be_written_wakes_those_who_were_refused_because_of_it() -> None:
    made = machine(node(), pod("p", priority=1))
    placement = placed(made)
    made.apply(ObjectChange(None, pod("q", priority=2, preemption_policy="Never")), 0.0)
    decision = made.next(0.0, 0.0)
    assert decision is not None
    assert decision.refusals
    settled = made.settled(placement, NotBound(message="the store is away"), 0.5)
    assert settled.refusal is not None
    assert (settled.refusal.verdict, settled.refusal.message) == (Verdict.ERROR, "the store is away")
    assert placed(made, 1.0).pod.metadata.name == "q"


def test_a_conflict_is_tried_again_soon_and_said_to_nobody_until_there_are_many() -> None:
    made = machine(node(), pod())
    now = 0.0
    for count in range(1, 7):
        settled = made.settled(placed(made, now), NotBound(message="conflict", is_conflict=True), now)
        assert settled.refusal is None, count
        next_at = made.next_at()
        assert next_at is not None
        assert next_at - now == pytest.approx(0.02 * 2**count)
        now = next_at
    settled = made.settled(placed(made, now), NotBound(message="conflict", is_conflict=True), now)
    assert settled.refusal is not None


def test_the_failure_of_a_pod_that_is_gone_is_told_to_nobody_and_leaves_its_namesake_alone() -> None:
    made = machine(node())
    first, second = pod(uid="1"), pod(uid="2")
    made.apply(ObjectChange(None, first), 0.0)
    placement = placed(made)
    made.apply(ObjectChange(first, None), 1.0)
    made.apply(ObjectChange(None, second), 1.0)
    assert made.settled(placement, NotBound(), 1.0).refusal is None
    again = placed(made, 1.0)
    assert again.pod is second
    assert made.settled(again, Bound("n"), 1.0).is_bound


def test_a_pod_that_the_watch_shows_bound_before_its_write_ends_is_not_tried_again() -> None:
    made = machine(node(), pod())
    placement = placed(made)
    made.apply(ObjectChange(pod(), on(pod(), "n")), 1.0)
    made.settled(placement, NotBound(message="timed out"), 2.0)
    assert made.queue.place("ns/p") is None
    assert made.next(400.0, 0.0) is None
    assert [info.node for info in made.cluster.pods.values()] == ["n"]


def test_a_pod_that_changes_its_labels_while_it_is_written_wakes_those_who_were_kept_away_by_what_it_was() -> None:
    term = core_v1.PodAffinityTerm(
        label_selector=core_v1.LabelSelector(match_labels={"app": "x"}), topology_key="kubernetes.io/hostname"
    )
    apart = core_v1.Affinity(
        pod_anti_affinity=core_v1.PodAntiAffinity(required_during_scheduling_ignored_during_execution=(term,))
    )
    roomy = node(cpu="9")
    labelled = replace(roomy, metadata=replace(roomy.metadata, labels={"kubernetes.io/hostname": "n"}))
    first = pod("p", priority=1)
    before = replace(first, metadata=replace(first.metadata, labels={"app": "x"}))
    after = replace(first, metadata=replace(first.metadata, labels={"app": "y"}))
    made = machine(labelled, before, pod("q", affinity=apart))
    placement = placed(made)
    refused = made.next(0.0, 0.0)
    assert refused is not None
    assert refused.refusals[0].plugins == {"InterPodAffinity"}
    made.apply(ObjectChange(before, after), 0.0)
    assert made.apply(ObjectChange(after, on(after, "n")), 0.0).units == 1
    made.settled(placement, Bound("n"), 0.0)
    assert placed(made, 1.0).pod.metadata.name == "q"


# --- promises ---


def promising() -> tuple[Machine, Pod]:
    """A machine that has promised a pod the node of a victim, which is gone by now; another pod waits for what it is promised."""
    victim = on(pod("victim"), "n")
    made = machine(node(), victim)
    important = pod("important", priority=5)
    made.apply(ObjectChange(None, important), 0.0)
    decision = made.next(0.0, 0.0)
    assert decision is not None
    assert decision.refusals[0].nominated_node == "n"
    made.apply(ObjectChange(None, pod("q", priority=1, preemption_policy="Never")), 0.0)
    made.apply(ObjectChange(victim, None), 0.0)
    made.apply(ObjectChange(None, pod("q2", priority=1, preemption_policy="Never")), 0.0)
    return made, important


def test_a_node_that_is_promised_is_not_given_to_others() -> None:
    made, _ = promising()
    names = []
    while (decision := made.next(0.1, 0.0)) is not None:
        names += [placement.pod.metadata.name for placement in decision.placements]
    assert names == ["important"]


def test_a_promise_ends_with_its_pod_though_the_api_never_knew_of_it() -> None:
    made, important = promising()
    # As if it were held back; the promise stands, and the others are refused because of it.
    made.queue.delete_pod("ns/important", 0.0)
    for _ in range(2):
        assert made.next(0.1, 0.0) is not None
    assert made.queue.place("ns/q") is Place.UNSCHEDULABLE
    assert made.apply(ObjectChange(important, None), 0.2).units == 2
    assert placed(made, 2.0).pod.metadata.name == "q"


def test_a_promise_that_could_not_be_written_is_none() -> None:
    made, important = promising()
    # Tried again after its pause; until then others may have the node.
    made.retry(important, 0.0)
    assert made.queue.place("ns/important") is Place.BACKOFF
    assert placed(made, 0.1).pod.metadata.name == "q"


def test_a_promise_that_the_api_knows_of_outlives_a_failure_to_clear_away() -> None:
    made, important = promising()
    written = replace(important, status=replace(important.status, nominated_node_name="n"))
    made.apply(ObjectChange(important, written), 0.0)
    made.retry(important, 0.0)
    assert made.cluster.promised_to(important) == "n"


# --- gates ---


def test_what_holds_a_pod_back_is_told_after_a_while_and_once() -> None:
    made = machine(node())
    claim = core_v1.PodResourceClaim(name="gpu", resource_claim_name="c")
    made.apply(ObjectChange(None, pod(resource_claims=(claim,))), 0.0)
    made.apply(ObjectChange(None, pod("gated", scheduling_gates=(core_v1.PodSchedulingGate(name="g"),))), 0.0)
    assert made.next(0.0, 0.0) is None
    assert made.long_gated(4.0, 5.0) == []
    ((told, status),) = made.long_gated(5.0, 5.0)
    assert (told.metadata.name, status.reasons) == ("p", ('could not find ResourceClaim "ns/c"',))
    assert made.long_gated(1000.0, 5.0) == []
    closed = made.closed("ns/gated")
    assert closed is not None
    assert closed.status.reasons == ("waiting for scheduling gates: [g]",)


def test_a_pod_whose_claim_goes_before_its_turn_comes_is_held_back_and_not_refused() -> None:
    claim = api.ResourceClaim(metadata=ObjectMeta(name="c", namespace="ns", uid="c"))
    wants = core_v1.PodResourceClaim(name="gpu", resource_claim_name="c")
    made = machine(node(), claim, pod(priority=1, resource_claims=(wants,)), pod("q"))
    assert made.queue.place("ns/p") is Place.ACTIVE
    made.apply(ObjectChange(claim, None), 0.0)
    assert placed(made).pod.metadata.name == "q"
    assert (made.queue.place("ns/p"), made.queue.attempts("ns/p")) == (Place.GATED, 0)
    made.apply(ObjectChange(None, claim), 0.0)
    assert made.queue.place("ns/p") is Place.ACTIVE


def test_a_pod_that_is_finished_when_it_is_first_seen_has_departed() -> None:
    ended = replace(on(pod(), "n"), status=core_v1.PodStatus(phase="Succeeded"))
    assert "uid-p" in machine(ended).cluster.departed
    assert not machine(ended).cluster.pods
