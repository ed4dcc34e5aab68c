"""The queue: order, back-off, waiting for events, gates, groups."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allot.core.model.core_v1 import (
    Node,
    NodeStatus,
    Pod,
    PodResourceClaim,
    PodResourceClaimStatus,
    PodSchedulingGate,
    PodSchedulingGroup,
    PodSpec,
    PodStatus,
)
from allot.core.model.meta import ObjectMeta
from allot.core.model.resource_v1 import AllocationResult, ResourceClaim, ResourceClaimStatus
from allot.core.model.scheduling_v1 import GangSchedulingPolicy, PodGroup, PodGroupSchedulingPolicy, PodGroupSpec
from allot.core.quantity import Quantity
from allot.core.scheduling.plan import Refusal, Unit
from allot.core.scheduling.queueing.backoff import BackoffTimes
from allot.core.scheduling.queueing.gates import Closed
from allot.core.scheduling.queueing.hints import ClusterEvent, EventResource, helps
from allot.core.scheduling.queueing.queue import Attempt, Queue
from allot.core.scheduling.queueing.waiting import Place
from allot.core.scheduling.status import Status, Verdict


class World:
    """What the gates and hints of a test know: claims that exist, and what pods ask for."""

    def __init__(self) -> None:
        self.claims: set[str] = set()
        # How often a pod was asked for what it lacks.
        self.asked = 0
        self.queue = Queue(self, lambda plugin, event, pod: helps(plugin, event, pod, self))

    def claims_are_usable(self, pod: Pod) -> bool:
        return self._missing(pod) is None

    def requests(self, pod: Pod) -> Mapping[str, Quantity]:
        return pod.spec.overhead

    def added_affinity(self, pod: Pod) -> None:  # noqa: ARG002
        return None

    def closed_to_unit(self, unit: Unit, group: str) -> Closed | None:
        if group and (unit.group is None or len(unit.pods) < _minimum(unit.group)):
            text = "waiting for minCount pods from a gang to appear in scheduling queue"
            return Closed(_closed("GangScheduling", text))
        return None

    def closed_to(self, pod: Pod) -> Status | None:
        self.asked += 1
        if pod.spec.scheduling_gates:
            return _closed("SchedulingGates", "waiting for scheduling gates")
        missing = self._missing(pod)
        return _closed("DynamicResources", missing) if missing is not None else None

    def _missing(self, pod: Pod) -> str | None:
        for entry in pod.spec.resource_claims:
            if f"ns/{entry.resource_claim_name}" not in self.claims:
                return f'could not find ResourceClaim "ns/{entry.resource_claim_name}"'
        return None


def _minimum(group: PodGroup) -> int:
    gang = group.spec.scheduling_policy.gang
    return gang.min_count if gang is not None else 1


def _closed(plugin: str, reason: str) -> Status:
    return Status(verdict=Verdict.UNRESOLVABLE, plugin=plugin, reasons=(reason,))


def pod(
    name: str, *, priority: int = 0, cpu: str = "1", claim: str = "", gates: int = 0, group: str = "", uid: str = ""
) -> Pod:
    return Pod(
        metadata=ObjectMeta(name=name, namespace="ns", uid=uid or name),
        spec=PodSpec(
            priority=priority,
            overhead={"cpu": Quantity.parse(cpu)},
            scheduling_gates=tuple(PodSchedulingGate(name=str(n)) for n in range(gates)),
            resource_claims=(PodResourceClaim(name="c", resource_claim_name=claim),) if claim else (),
            scheduling_group=PodSchedulingGroup(pod_group_name=group) if group else None,
        ),
    )


def gang(name: str, minimum: int) -> PodGroup:
    policy = PodGroupSchedulingPolicy(gang=GangSchedulingPolicy(min_count=minimum))
    return PodGroup(metadata=ObjectMeta(name=name, namespace="ns"), spec=PodGroupSpec(scheduling_policy=policy))


def node(name: str, cpu: str) -> Node:
    return Node(metadata=ObjectMeta(name=name), status=NodeStatus(allocatable={"cpu": Quantity.parse(cpu)}))


def node_event(old: Node | None, new: Node | None) -> ClusterEvent:
    return ClusterEvent(resource=EventResource.NODE, key="n", old=old, new=new)


def claim_event(name: str, *, old: bool | None, new: bool | None) -> ClusterEvent:
    """True: allocated, False: not, None: not there."""

    def state(allocated: bool | None) -> ResourceClaim | None:
        if allocated is None:
            return None
        status = ResourceClaimStatus(allocation=AllocationResult() if allocated else None)
        return ResourceClaim(metadata=ObjectMeta(name=name, namespace="ns"), status=status)

    return ClusterEvent(resource=EventResource.CLAIM, key=f"ns/{name}", old=state(old), new=state(new))


def refuse(queue: Queue, attempt: Attempt | None, plugins: str, now: float) -> None:
    assert attempt is not None
    refusals = [
        Refusal(pod=each, verdict=Verdict.UNSCHEDULABLE, message="no", plugins=frozenset(plugins.split()))
        for each in attempt.unit.pods
    ]
    queue.decided(attempt, (), refusals, now)


def names(attempt: Attempt | None) -> list[str]:
    return [] if attempt is None else [each.metadata.name for each in attempt.unit.pods]


# --- order ---


def test_higher_priority_comes_first_then_who_waits_longer() -> None:
    queue = World().queue
    for at, (name, priority) in enumerate([("late", 0), ("later", 0), ("important", 7)]):
        queue.put_pod(pod(name, priority=priority), float(at))
    assert [names(queue.pop(10)) for _ in range(4)] == [["important"], ["late"], ["later"], []]


@given(st.lists(st.tuples(st.integers(-3, 3), st.integers(0, 5)), max_size=12))
def test_the_order_is_total_whatever_comes_when(pods: list[tuple[int, int]]) -> None:
    queue = World().queue
    for number, (priority, at) in enumerate(pods):
        queue.put_pod(pod(f"p{number}", priority=priority), float(at))
    popped = []
    while (attempt := queue.pop(10)) is not None:
        popped.append((-(attempt.unit.pods[0].spec.priority or 0), attempt.since))
    assert popped == sorted(popped)
    assert len(popped) == len(pods)


def test_a_pod_whose_priority_changes_is_sorted_anew() -> None:
    queue = World().queue
    queue.put_pod(pod("a"), 0)
    queue.put_pod(pod("b"), 1)
    queue.put_pod(pod("b", priority=9), 2)
    assert names(queue.pop(3)) == ["b"]


def test_a_deleted_pod_is_not_tried() -> None:
    queue = World().queue
    queue.put_pod(pod("a"), 0)
    queue.delete_pod("ns/a", 1)
    assert queue.pop(2) is None
    assert sum(queue.counts().values()) == 0


# --- waiting for events ---


def test_a_refused_pod_waits_until_something_helps_it_and_for_nothing_else() -> None:
    queue = World().queue
    queue.put_pod(pod("a", cpu="4"), 0)
    refuse(queue, queue.pop(0), "NodeResourcesFit", 0)
    assert queue.place("ns/a") is Place.UNSCHEDULABLE
    for useless in (
        node_event(None, node("n", "2")),
        node_event(node("n", "2"), node("n", "3")),
        node_event(node("n", "2"), None),
        claim_event("c", old=True, new=False),
    ):
        assert queue.tell(useless, 100) == 0
    assert queue.pop(100) is None
    assert queue.tell(node_event(node("n", "2"), node("n", "8")), 100) == 1
    assert names(queue.pop(100)) == ["a"]
    assert queue.attempts("ns/a") == 2


def test_an_event_during_the_pause_leads_to_back_off_and_the_pause_doubles() -> None:
    queue = World().queue
    queue.put_pod(pod("a"), 0)
    now = 0.0
    for pause in (1.0, 2.0, 4.0, 8.0, 10.0, 10.0):
        refuse(queue, queue.pop(now), "NodeResourcesFit", now)
        queue.tell(node_event(None, node("n", "8")), now)
        assert queue.place("ns/a") is Place.BACKOFF
        assert queue.pop(now + pause - 0.01) is None
        assert queue.next_at() == now + pause
        now += pause


def test_an_idle_scheduler_may_try_early_but_not_after_an_error() -> None:
    queue = World().queue
    queue.put_pod(pod("a"), 0)
    attempt = queue.pop(0)
    refuse(queue, attempt, "NodeResourcesFit", 0)
    queue.tell(node_event(None, node("n", "8")), 0.1)
    attempt = queue.pop(0.1, early=True)
    assert names(attempt) == ["a"]
    assert attempt is not None
    error = Refusal(pod=attempt.unit.pods[0], verdict=Verdict.ERROR, message="boom")
    queue.decided(attempt, (), (error,), 0.2)
    assert queue.pop(0.3, early=True) is None
    assert names(queue.pop(1.2)) == ["a"]


def test_after_five_minutes_a_refused_pod_is_tried_whatever_happened() -> None:
    queue = World().queue
    queue.put_pod(pod("a"), 0)
    refuse(queue, queue.pop(0), "NodeResourcesFit", 0)
    assert queue.next_at() == 300
    assert queue.pop(299) is None
    assert names(queue.pop(300)) == ["a"]


def test_devices_given_back_wake_every_pod_that_wants_devices_other_changes_of_claims_only_their_own() -> None:
    world = World()
    world.claims = {"ns/one", "ns/two"}
    queue = world.queue
    for name, claim in (("a", "one"), ("b", "two")):
        queue.put_pod(pod(name, claim=claim), 0)
    for _ in range(2):
        refuse(queue, queue.pop(0), "DynamicResources", 0)
    assert queue.tell(claim_event("other", old=False, new=True), 50) == 0
    assert queue.tell(claim_event("two", old=False, new=True), 50) == 1
    assert names(queue.pop(50)) == ["b"]
    assert queue.tell(claim_event("other", old=True, new=False), 60) == 1
    assert names(queue.pop(60)) == ["a"]


def test_a_change_of_the_pod_itself_counts_only_if_it_matters() -> None:
    queue = World().queue
    queue.put_pod(pod("a", cpu="4"), 0)
    refuse(queue, queue.pop(0), "NodeResourcesFit", 0)
    queue.put_pod(pod("a", cpu="5"), 20)
    assert queue.place("ns/a") is Place.UNSCHEDULABLE
    queue.put_pod(pod("a", cpu="3"), 20)
    assert names(queue.pop(20)) == ["a"]


def test_a_pod_refused_for_want_of_any_node_waits_for_the_first_one() -> None:
    queue = World().queue
    queue.put_pod(pod("a"), 0)
    refuse(queue, queue.pop(0), "", 0)
    assert queue.tell(node_event(node("n", "1"), node("n", "2")), 50) == 0
    assert queue.tell(claim_event("c", old=True, new=False), 50) == 0
    assert queue.tell(node_event(None, node("n", "1")), 50) == 1


def test_a_pod_whose_clean_up_failed_is_tried_again_without_an_event() -> None:
    queue = World().queue
    queue.put_pod(pod("a"), 0)
    refuse(queue, queue.pop(0), "DynamicResources", 0)
    queue.retry("ns/a", 0.5)
    assert queue.next_at() == 1


# --- gates ---


def test_a_gated_pod_is_not_tried_before_its_gate_opens() -> None:
    queue = World().queue
    queue.put_pod(pod("a", gates=1), 0)
    assert queue.place("ns/a") is Place.GATED
    assert queue.pop(1000) is None
    queue.put_pod(pod("a"), 1000)
    assert names(queue.pop(1000)) == ["a"]


def test_a_missing_claim_gates_its_pod_until_it_comes_and_is_told_once() -> None:
    world = World()
    queue = world.queue
    queue.put_pod(pod("a", claim="c"), 0)
    assert queue.long_gated(4.9, 5.0) == []
    ((told, status),) = queue.long_gated(5.0, 5.0)
    assert (told.metadata.name, status.reasons) == ("a", ('could not find ResourceClaim "ns/c"',))
    assert queue.long_gated(6.0, 5.0) == []
    world.claims.add("ns/other")
    assert queue.tell(claim_event("other", old=None, new=False), 7) == 0
    world.claims.add("ns/c")
    assert queue.tell(claim_event("c", old=None, new=False), 7) == 1
    assert names(queue.pop(7)) == ["a"]


def test_a_claim_made_from_a_template_opens_the_gate_when_the_pod_names_it() -> None:
    before = pod("a", claim="made")
    template = PodResourceClaim(name="c", resource_claim_template_name="t")
    spec = PodSpec(resource_claims=(template,))
    waiting = Pod(metadata=before.metadata, spec=spec)
    made = PodStatus(resource_claim_statuses=(PodResourceClaimStatus(name="c", resource_claim_name="made"),))

    # The gate of these tests knows only names in the spec; what matters is that the change is looked at.
    class Made(World):
        def closed_to(self, pod: Pod) -> Status | None:
            return None if pod.status.resource_claim_statuses else _closed("DynamicResources", "no")

    queue = Made().queue
    queue.put_pod(waiting, 0)
    assert queue.place("ns/a") is Place.GATED
    queue.put_pod(Pod(metadata=before.metadata, spec=spec, status=made), 1)
    assert queue.place("ns/a") is Place.ACTIVE


# --- writing ---


def test_a_pod_that_is_written_waits_nowhere_and_a_failure_brings_it_back() -> None:
    queue = World().queue
    queue.put_pod(pod("a"), 0)
    attempt = queue.pop(0)
    assert attempt is not None
    queue.decided(attempt, attempt.unit.pods, (), 0)
    assert queue.place("ns/a") is Place.NOWHERE
    assert queue.pop(100, early=True) is None
    queue.failed(attempt.unit.pods[0], 100)
    assert queue.pop(100.5) is None
    attempt = queue.pop(101)
    assert attempt is not None
    queue.decided(attempt, attempt.unit.pods, (), 101)
    queue.failed(attempt.unit.pods[0], 102, pause_s=0.1)
    assert queue.pop(102, early=True) is None
    attempt = queue.pop(102.1)
    assert attempt is not None
    queue.decided(attempt, attempt.unit.pods, (), 102)
    member = queue.written(attempt.unit.pods[0])
    assert member is not None
    assert (member.attempts, member.tried_first_at) == (3, 0)
    assert queue.place("ns/a") is None


def test_a_failure_to_write_a_pod_that_was_made_anew_is_ignored() -> None:
    queue = World().queue
    queue.put_pod(pod("a", uid="1"), 0)
    attempt = queue.pop(0)
    assert attempt is not None
    queue.decided(attempt, attempt.unit.pods, (), 0)
    queue.delete_pod("ns/a", 1)
    queue.put_pod(pod("a", uid="2"), 1)
    queue.failed(attempt.unit.pods[0], 2)
    following = queue.pop(2)
    assert following is not None
    assert following.unit.pods[0].metadata.uid == "2"


# --- groups ---


def test_a_gang_is_one_unit_and_waits_for_its_quorum() -> None:
    queue = World().queue
    queue.put_pod(pod("b", group="g"), 0)
    assert queue.place("ns/b") is Place.GATED
    queue.put_group(gang("g", 2), 1)
    assert queue.place("ns/b") is Place.GATED
    queue.put_pod(pod("a", group="g"), 2)
    attempt = queue.pop(3)
    assert names(attempt) == ["a", "b"]
    assert attempt is not None
    assert attempt.unit.group is not None
    assert queue.pop(3) is None


def test_what_is_left_of_a_group_is_tried_at_once_and_waits_when_refused() -> None:
    queue = World().queue
    queue.put_group(gang("g", 1), 0)
    for name in "abc":
        queue.put_pod(pod(name, group="g"), 0)
    attempt = queue.pop(0)
    assert attempt is not None
    refusal = Refusal(
        pod=attempt.unit.pods[2],
        verdict=Verdict.UNSCHEDULABLE,
        message="no",
        plugins=frozenset({"NodeResourcesFit"}),
    )
    queue.decided(attempt, attempt.unit.pods[:2], (refusal,), 0)
    rest = queue.pop(0)
    assert names(rest) == ["c"]
    refuse(queue, rest, "NodeResourcesFit", 0)
    assert queue.place("ns/c") is Place.UNSCHEDULABLE
    assert queue.members_of("ns/g") == 3
    queue.written(attempt.unit.pods[0])
    queue.failed(attempt.unit.pods[1], 1)
    assert names(queue.pop(10)) == ["b", "c"]


def test_a_group_whose_pods_all_fail_to_be_written_has_failed_once() -> None:
    queue = World().queue
    queue.put_group(gang("g", 8), 0)
    for number in range(8):
        queue.put_pod(pod(f"p{number}", group="g"), 0)
    for begin, pause in ((0, 1), (10, 2), (20, 4)):
        attempt = queue.pop(begin)
        assert attempt is not None
        queue.decided(attempt, attempt.unit.pods, (), begin)
        for each in attempt.unit.pods:
            queue.failed(each, begin)
        assert queue.next_at() == begin + pause


def test_the_pods_of_a_group_are_tried_in_an_order_that_depends_on_them_alone() -> None:
    queue = World().queue
    queue.put_group(gang("g", 1), 0)
    old = ObjectMeta(name="z", namespace="ns", creation_timestamp="2026-01-01T00:00:00Z")
    new = ObjectMeta(name="a", namespace="ns", creation_timestamp="2026-01-01T00:00:01Z")
    important = pod("m", group="g", priority=1)
    spec = pod("", group="g").spec
    for at, each in enumerate((important, Pod(metadata=new, spec=spec), Pod(metadata=old, spec=spec))):
        queue.put_pod(each, float(at))
    assert names(queue.pop(10)) == ["m", "z", "a"]


def test_a_group_whose_gate_closes_while_it_is_active_is_gated_when_its_turn_comes() -> None:
    world = World()
    world.claims = {"ns/c"}
    world.queue.put_group(gang("g", 1), 0)
    world.queue.put_pod(pod("a", claim="c", group="g"), 0)
    world.queue.put_pod(pod("b"), 1)
    assert world.queue.place("ns/a") is Place.ACTIVE
    world.claims.clear()
    assert names(world.queue.pop(2)) == ["b"]
    assert world.queue.place("ns/a") is Place.GATED
    world.claims.add("ns/c")
    world.queue.tell(claim_event("c", old=None, new=False), 3)
    assert names(world.queue.pop(3)) == ["a"]


def test_what_pods_of_a_group_need_is_asked_once_for_each_change_and_for_all_when_it_is_taken() -> None:
    world = World()
    world.queue.put_group(gang("g", 1), 0)
    for number in range(50):
        world.queue.put_pod(pod(f"p{number}", claim=f"c{number}", group="g"), 0)
    assert (world.queue.place("ns/p0"), world.asked) == (Place.GATED, 50)
    world.asked = 0
    for number in range(50):
        world.claims.add(f"ns/c{number}")
        world.queue.tell(claim_event(f"c{number}", old=None, new=False), 0)
    # Who was asked and has what it needs, and the next one in the way.
    assert (world.queue.place("ns/p0"), world.asked) == (Place.ACTIVE, 99)
    world.asked = 0
    world.claims.add("ns/more")
    world.queue.put_pod(pod("more", claim="more", group="g"), 0)
    assert (world.queue.place("ns/p0"), world.asked) == (Place.ACTIVE, 1)
    attempt = world.queue.pop(0)
    assert attempt is not None and len(attempt.unit.pods) == 51
    assert world.asked == 52


def test_pauses_of_groups_grow_with_the_root_of_their_size() -> None:
    times = BackoffTimes()
    assert [times.pause_s(count) for count in (0, 1, 2, 5, 1000)] == [0, 1, 2, 10, 10]
    assert times.pause_s(1000, pods=4) == 20
    assert times.pause_s(1, pods=4) == 1


@pytest.mark.parametrize("order", ["pods first", "group first"])
def test_pods_and_group_may_come_in_any_order(order: str) -> None:
    queue = World().queue
    steps = [lambda: queue.put_pod(pod("a", group="g"), 0), lambda: queue.put_group(gang("g", 1), 0)]
    for step in steps if order == "pods first" else reversed(steps):
        step()
    assert names(queue.pop(0)) == ["a"]


# --- laws ---


@settings(max_examples=30)
@given(st.data())
def test_counts_and_places_agree_after_anything(data: st.DataObject) -> None:
    queue = World().queue
    queue.put_group(gang("g", 2), 0)
    now = 0.0
    writing: list[Pod] = []
    for _ in range(data.draw(st.integers(0, 30))):
        now += data.draw(st.sampled_from([0.0, 0.5, 20.0, 400.0]))
        number = data.draw(st.integers(0, 3))
        made = pod(f"p{number}", group="g" if number > 1 else "", gates=data.draw(st.integers(0, 1)))
        match data.draw(st.sampled_from(["put", "delete", "try", "event", "written", "failed"])):
            case "put":
                queue.put_pod(made, now)
            case "delete":
                queue.delete_pod(f"ns/p{number}", now)
            case "event":
                queue.tell(node_event(None, node("n", "8")), now)
            case "try":
                attempt = queue.pop(now, early=data.draw(st.booleans()))
                if attempt is not None and data.draw(st.booleans()):
                    queue.decided(attempt, attempt.unit.pods, (), now)
                    writing.extend(attempt.unit.pods)
                elif attempt is not None:
                    refuse(queue, attempt, data.draw(st.sampled_from(["NodeResourcesFit", "NodeName", ""])), now)
            case "written" if writing:
                queue.written(writing.pop())
            case "failed" if writing:
                queue.failed(writing.pop(), now)
    places = {f"ns/p{number}": queue.place(f"ns/p{number}") for number in range(4)}
    units = {"group" if key in ("ns/p2", "ns/p3") else key: place for key, place in places.items() if place is not None}
    for place in (Place.ACTIVE, Place.BACKOFF, Place.UNSCHEDULABLE, Place.GATED):
        assert queue.counts()[place] == sum(each is place for each in units.values()), place
