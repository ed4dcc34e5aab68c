"""What KAI's groups say to their queue: who they are, how important, whether they can be made to leave, and in which parts."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from allot.core.model import core_v1
from allot.core.model.codec import decode, decode_served
from allot.core.model.foreign_groups import KAI, KaiPodGroup
from allot.core.model.scheduling_v1 import PriorityClass
from allot.core.scheduling import Machine, ObjectChange, Settings
from allot.core.scheduling.queues.jobs import Job

from ..cluster_world import node
from .test_machine_queues import GPU, kai_queue, team_pod

CREATED = "2026-01-01T00:00:00Z"
CREATED_S = 1767225600.0


def group(**spec: Any) -> KaiPodGroup:
    annotations = spec.pop("annotations", {})
    metadata = {"name": "g", "namespace": "ns", "creationTimestamp": CREATED, "annotations": annotations}
    return decode_served({"metadata": metadata, "spec": spec}, KaiPodGroup)


def member(name: str, part: str = "", queue: str = "", **spec: Any) -> core_v1.Pod:
    made = team_pod(name, queue, **spec)
    labels = {**made.metadata.labels, **({"kai.scheduler/subgroup-name": part} if part else {})}
    metadata = msgspec.structs.replace(made.metadata, annotations={"pod-group-name": "g"}, labels=labels)
    return msgspec.structs.replace(made, metadata=metadata)


def world(*objects: Any) -> Machine:
    made = Machine({"s": Settings()}.get)
    made.serve(KAI)
    for value, name in ((50, "train"), (100, "build")):
        class_ = decode({"metadata": {"name": name}, "value": value}, PriorityClass).object
        made.apply(ObjectChange(None, class_), 0.0)
    for each in objects:
        made.apply(ObjectChange(None, each), 0.0)
    return made


def job(made: Machine) -> Job:
    (found,) = made.book.jobs(made.queue.waiting_pods()).values()
    return found


@pytest.mark.parametrize(
    ("spec", "priority", "is_preemptible"),
    [
        ({}, 50, True),
        ({"priorityClassName": "gone"}, 50, True),
        ({"priorityClassName": "build"}, 100, False),
        ({"priorityClassName": "build", "preemptibility": "preemptible"}, 100, True),
        ({"preemptibility": "non-preemptible"}, 50, False),
    ],
)
def test_the_class_of_a_group_counts_and_not_that_of_its_pods(
    spec: dict[str, Any], priority: int, is_preemptible: bool
) -> None:
    made = world(node("n"), kai_queue("q", quota=1), group(queue="q", **spec), member("p", priority=7))
    found = job(made)
    assert (found.queue, found.name, found.priority, found.is_preemptible) == ("q", "ns/g", priority, is_preemptible)


def test_the_queue_of_a_group_counts_and_one_that_it_got_by_default_only_if_it_is_there() -> None:
    made = world(node("n"), kai_queue("q"), group(queue="q"), member("p", queue="other"))
    assert job(made).queue == "q"
    alone = world(node("n"), kai_queue("q"), group(queue="default-queue"), member("p"))
    assert not alone.book.jobs(alone.queue.waiting_pods())


def test_a_group_makes_others_leave_only_after_its_delay() -> None:
    evicted = {"kai.scheduler/last-eviction-timestamp": "2026-01-01T01:00:00Z"}
    delayed = group(queue="q", preemptionDelay="5m")
    assert job(world(kai_queue("q"), delayed, member("p"))).takes_at_s == CREATED_S + 300
    again = group(queue="q", preemptionDelay="5m", annotations=evicted)
    assert job(world(kai_queue("q"), again, member("p"))).takes_at_s == CREATED_S + 3900


def test_sub_groups_are_parts_of_one_job_and_pods_of_none_are_left_out() -> None:
    parts = [{"name": "a", "minMember": 1}, {"name": "b", "minMember": 2}]
    made = world(kai_queue("q"), group(queue="q", subGroups=parts))
    for name, part in (("a0", "a"), ("b0", "b"), ("b1", "b"), ("b2", "b")):
        made.apply(ObjectChange(None, member(name, part)), 0.0)
    stray = member("stray", "c", queue="q")
    made.apply(ObjectChange(None, stray), 0.0)
    found = job(made)
    assert [leaf.minimum for leaf in found.root.leaves()] == [1, 2]
    assert sorted(task.pod.metadata.name for task in found.to_start()) == ["a0", "b0", "b1"]


def test_a_group_in_parts_is_let_in_with_what_it_needs_and_grows_within_the_limit() -> None:
    parts = [{"name": "a", "minMember": 1}, {"name": "b", "minMember": 1}]
    big = node("n", cpu="8", **{GPU: "8"})
    made = world(big, kai_queue("q", quota=3, limit=3), group(queue="q", subGroups=parts))
    for name, part in (("a0", "a"), ("b0", "b"), ("b1", "b"), ("b2", "b")):
        made.apply(ObjectChange(None, member(name, part)), 0.0)
    first = made.next(0.0, 0.0)
    assert first is not None
    assert sorted(each.pod.metadata.name for each in first.placements) == ["a0", "b0"]
    second = made.next(0.0, 0.0)
    assert second is not None
    assert [each.pod.metadata.name for each in second.placements] == ["b1"]
    assert second.refusals[0].reason == "OverLimit"


def test_a_group_within_its_delay_is_told_so_and_told_again_when_that_is_over() -> None:
    holder = team_pod("holder", "other", nodeName="n")
    firm = msgspec.structs.replace(holder.spec, priority=100)
    holder = msgspec.structs.replace(holder, spec=firm)
    delayed = group(queue="q", preemptionDelay="2m")
    full = node("n", cpu="8", **{GPU: "1"})
    made = world(full, kai_queue("q", quota=1), kai_queue("other"), holder, delayed, member("p"))
    first = made.next(0.0, CREATED_S)
    assert first is not None
    assert {refusal.reason for refusal in first.refusals} == {"PreemptionDelayNotElapsed"}
    assert first.group is not None
    assert "may not trigger evictions before 2026-01-01T00:02:00Z" in first.group.message
    assert made.next(1.0, CREATED_S + 1) is None
    due = made.next_at()
    assert due is not None and due == pytest.approx(120.0)
    assert made.next(121.0, CREATED_S + 121) is None, "who holds it cannot be made to leave"
    again = made.next(122.0, CREATED_S + 122)
    assert again is not None and [refusal.reason for refusal in again.refusals] == [""]
