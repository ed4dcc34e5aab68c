"""Jobs that wait because of their queue: whose limit, whose share, who makes room, and what change helps."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from allot.core.advice.explain.answer import Explainer, NotFound
from allot.core.advice.explain.report import Explanation, Reason, State
from allot.core.advice.explain.text import lines
from core.advice.explain.clusters import (
    NOW,
    Object,
    asks,
    claim,
    device_class,
    event,
    gpus,
    holding,
    node,
    pod,
    pool,
    snapshot,
    templated,
)

LABEL = "kai.scheduler/queue"
FREE = {"quota": -1, "limit": -1, "overQuotaWeight": 1}


def queue(name: str, parent: str = "", *, quota: int = 0, limit: int = -1, **spec: Any) -> Object:
    resources = {"gpu": {"quota": quota, "limit": limit, "overQuotaWeight": 1}, "cpu": FREE, "memory": FREE}
    body = {"resources": resources, **({"parentQueue": parent} if parent else {}), **spec}
    return {"apiVersion": "scheduling.run.ai/v2", "kind": "Queue", "metadata": {"name": name}, "spec": body}


def volcano(name: str, **spec: Any) -> Object:
    return {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": name}, "spec": spec}


def of(object_: Object, queue_name: str, **annotations: str) -> Object:
    metadata = {**object_["metadata"], "labels": {LABEL: queue_name}, "annotations": annotations}
    return {**object_, "metadata": metadata}


def waits(name: str, queue_name: str, count: int = 1, **more: Any) -> list[Object]:
    template, made, found = templated(name, asks(count=count), **more)
    return [template, made, of(found, queue_name)]


def runs(name: str, queue_name: str, *devices: str, started_s: float = NOW - 3600) -> list[Object]:
    """A pod that holds devices of node n."""
    start = datetime.fromtimestamp(started_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    body = pod(name, nodeName="n", resourceClaims=[{"name": "gpu", "resourceClaimName": f"{name}-gpu"}])
    body["status"] = {"phase": "Running", "startTime": start}
    body["metadata"]["ownerReferences"] = [
        {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "r", "controller": True}
    ]
    held = claim(f"{name}-gpu", asks(count=len(devices)), status=holding("n", *devices, users=(name,)))
    return [held, of(body, queue_name)]


def explainer(*objects: Object | list[Object], number: int = 4) -> Explainer:
    return Explainer(snapshot(node("n"), pool("n", gpus(number)), device_class(), *objects))


TEAMS = [queue("all", quota=4), queue("owner", "all", quota=2), queue("guest", "all", quota=2)]
GUEST_HAS_ALL = [part for number in range(4) for part in runs(f"guest-{number}", "guest", f"gpu-{number}")]


def text(found: Explanation) -> str:
    return "\n".join(lines(found))


def test_a_pod_over_the_limit_of_an_ancestor_names_it_and_what_helps() -> None:
    found = explainer(
        queue("all", quota=4, limit=1), queue("team", "all", quota=4), runs("a", "team", "gpu-0"), waits("b", "team")
    ).pod("default", "b")
    assert found.reason is Reason.QUEUE_LIMIT
    assert "the limit of queue all above queue team is 1 GPU, it uses 1 GPU" in found.cause
    (change,) = [change for change in found.changes if change.verified]
    assert change.text == "raise the limit of queue all to 2 GPUs"
    (patch,) = change.patches
    assert patch.patch == ({"op": "add", "path": "/spec/resources/gpu/limit", "value": 2},)


def test_who_uses_what_a_queue_may_have_is_named() -> None:
    queues = [queue("all", quota=4), queue("team", "all", quota=4, limit=2), queue("other", "all", quota=1)]
    first, second = runs("a", "team", "gpu-0"), runs("b", "team", "gpu-1")
    for part, name in ((first, "train"), (second, "eval")):
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": name, "controller": True}
        part[1]["metadata"]["ownerReferences"] = [owner]
    # Pods of other queues do not count.
    elsewhere = runs("c", "other", "gpu-2")
    found = explainer(queues, first, second, elsewhere, waits("w", "team")).pod("default", "w")
    assert "it uses 2 GPUs (Job default/eval and Job default/train), and" in found.cause
    assert found.changes[-1].text == "wait until enough of these end: Job default/eval and Job default/train"
    alone = explainer(queue("team", quota=4, limit=1), first, waits("w", "team")).pod("default", "w")
    assert "it uses 1 GPU (Job default/train), and" in alone.cause
    assert alone.changes[-1].text == "wait until Job default/train ends, or stop it"
    bare = runs("a", "team", "gpu-0")
    del bare[1]["metadata"]["ownerReferences"]
    single = explainer(queue("team", quota=4, limit=1), bare, waits("w", "team")).pod("default", "w")
    assert "it uses 1 GPU (pod default/a), and" in single.cause


def test_a_gang_over_its_limit_is_told_how_many_would_start() -> None:
    group = {
        "apiVersion": "scheduling.run.ai/v2alpha2",
        "kind": "PodGroup",
        "metadata": {"name": "gang", "namespace": "default"},
        "spec": {"minMember": 3, "queue": "team"},
    }
    members = []
    for number in range(3):
        template, made, body = templated(f"worker-{number}", asks())
        body["metadata"]["annotations"] = {"pod-group-name": "gang"}
        members += [template, made, body]
    found = explainer(queue("team", quota=4, limit=2), group, members).group("default", "gang")
    assert found.reason is Reason.QUEUE_LIMIT
    assert "gang default/gang is pending because the limit of queue team is 2 GPUs" in found.cause
    assert "and default/gang wants 3 GPUs more" in found.cause
    texts = [change.text for change in found.changes if change.verified]
    assert texts == ["raise the limit of queue team to 3 GPUs", "lower minMember of PodGroup gang to 2"]


def test_who_cannot_be_preempted_stays_within_the_quota() -> None:
    found = explainer(queue("team", quota=1), waits("b", "team", 2, priority=200)).pod("default", "b")
    assert found.reason is Reason.QUEUE_QUOTA
    assert [change.text for change in found.changes if change.verified] == [
        "make default/b preemptible (kai.scheduler/preemptibility: preemptible)",
        "raise the quota of queue team to 2 GPUs",
    ]


def test_the_owner_is_told_who_makes_room_and_the_guest_who_has_to_go() -> None:
    found = explainer(*TEAMS, *GUEST_HAS_ALL, waits("mine", "owner"))
    mine = found.pod("default", "mine")
    assert mine.reason is Reason.QUEUE_MAKES_ROOM
    assert "it reclaims from default/guest-3" in mine.cause
    assert "No small change" not in text(mine)
    guest = found.queue("guest")
    assert guest.state is State.AS_WANTED
    assert "nothing waits; it uses 4 GPUs, deserves 2 GPUs, fair share 3 GPUs" in guest.cause
    assert guest.queue is not None
    assert [(each.pod, each.job, each.queue) for each in guest.queue.gives_back] == [
        ("default/guest-3", "default/mine", "owner")
    ]
    owner = found.queue("owner")
    assert "queue owner: 1 job waits for 1 GPU; default/mine is pending because" in owner.cause
    assert owner.queue is not None
    assert [row.name for row in owner.queue.path] == ["all", "owner"]
    assert owner.queue.waiting[0].reason == "reclaims from default/guest-3"


def _asking(*objects: Object, scheduler: str = "kai-scheduler") -> list[Object]:
    """Pods that ask for a scheduler of that name."""
    return [
        {**each, "spec": {**each["spec"], "schedulerName": scheduler}} if each["kind"] == "Pod" else each
        for each in objects
    ]


@pytest.mark.parametrize("proof", ["event", "condition"])
def test_a_scheduler_that_has_only_refused_is_there_all_the_same(proof: str) -> None:
    waiting = _asking(*waits("b", "team"))
    if proof == "event":
        waiting.append({**event("b", "Unschedulable", "over its limit"), "reportingComponent": "kai-scheduler"})
    else:
        refused = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
        waiting[-1] = {**waiting[-1], "status": {**waiting[-1].get("status", {}), "conditions": [refused]}}
    found = explainer(queue("team", quota=4, limit=0), waiting).pod("default", "b")
    assert found.reason is Reason.QUEUE_LIMIT
    assert [change.text for change in found.changes if change.verified] == ["raise the limit of queue team to 1 GPU"]


def test_that_a_pod_is_gated_proves_no_scheduler() -> None:
    *made, body = _asking(*waits("b", "team"))
    gated = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}
    body = {**body, "status": {**body.get("status", {}), "conditions": [gated]}}
    found = explainer(queue("team", quota=4), made, body).pod("default", "b")
    assert found.reason is Reason.NO_SUCH_SCHEDULER


def test_a_queue_that_has_its_share_has_no_right_to_more() -> None:
    owned = [part for number in (2, 3) for part in runs(f"o-{number}", "owner", f"gpu-{number}")]
    found = explainer(*_asking(*TEAMS, *GUEST_HAS_ALL[:4], *owned, *waits("more", "owner"))).pod("default", "more")
    assert found.reason is Reason.QUEUE_SHARE
    assert "queue owner is not entitled to it: queue owner would exceed its fair share of gpu" in found.cause
    assert "uses 2 GPUs, deserves 2 GPUs, fair share 2 GPUs" in found.cause
    # Guest holds what it deserves, so that a higher quota of owner would not help; the devices and who holds them are told.
    assert not any("quota" in change.text for change in found.changes)
    assert found.requests


def test_a_higher_quota_helps_where_others_hold_more_than_they_deserve() -> None:
    teams = [TEAMS[0], queue("owner", "all", quota=1), queue("guest", "all", quota=1)]
    owned = [part for number in (2, 3) for part in runs(f"o-{number}", "owner", f"gpu-{number}")]
    found = explainer(*teams, *GUEST_HAS_ALL[:4], *owned, waits("more", "owner")).pod("default", "more")
    assert found.reason is Reason.QUEUE_SHARE
    (raised,) = [
        change for change in found.changes if change.text.startswith("raise the quota of queue owner to 3 GPUs")
    ]
    assert raised.verified
    assert raised.leaving == ("default/guest-1",)


def test_pods_that_may_still_run_are_named_with_the_time_that_is_left() -> None:
    teams = [TEAMS[0], TEAMS[1], queue("guest", "all", quota=2, reclaimMinRuntime="10m")]
    young = [part for i in range(4) for part in runs(f"guest-{i}", "guest", f"gpu-{i}", started_s=NOW - 120)]
    found = explainer(*teams, *young, waits("mine", "owner")).pod("default", "mine")
    assert found.reason is Reason.MINIMUM_RUNTIME
    assert "pod default/guest-3 of queue guest may run for 10m" in found.cause
    assert "in 8m default/mine reclaims from default/guest-3" in found.cause
    assert "reclaimMinRuntime of queue guest" in found.cause
    assert [change.text for change in found.changes if change.verified] == [
        "set reclaimMinRuntime of queue guest to 0s, so that their pods can be preempted at once; then default/guest-3 has to make room"
    ]


def test_a_group_that_makes_nobody_leave_yet_is_told_from_when_on_it_does() -> None:
    created = datetime.fromtimestamp(NOW - 60, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    group = {
        "apiVersion": "scheduling.run.ai/v2alpha2",
        "kind": "PodGroup",
        "metadata": {"name": "gang", "namespace": "default", "creationTimestamp": created},
        "spec": {"minMember": 1, "queue": "owner", "preemptionDelay": "5m"},
    }
    *made, body = waits("mine", "owner")
    body["metadata"]["annotations"] = {"pod-group-name": "gang"}
    found = explainer(*TEAMS, *GUEST_HAS_ALL, group, made, body).group("default", "gang")
    assert found.reason is Reason.PREEMPTION_DELAY
    assert "PodGroup gang preempts nothing before its preemptionDelay is over" in found.cause
    assert "in 4m default/gang reclaims from default/guest-3" in found.cause
    assert [change.text for change in found.changes if change.verified] == [
        "drop preemptionDelay of PodGroup gang; then default/guest-3 has to make room"
    ]


def test_a_pod_that_fits_nowhere_blames_the_devices_and_mentions_its_queue() -> None:
    found = explainer(*TEAMS, waits("large", "owner", 9)).pod("default", "large")
    assert found.reason not in (Reason.QUEUE_SHARE, Reason.QUEUE_LIMIT)
    assert any("it is in queue owner" in detail for detail in found.details)


def test_a_queue_that_does_not_exist_is_the_cause_and_the_nearest_one_helps() -> None:
    found = explainer(*TEAMS, waits("typo", "ownr")).pod("default", "typo")
    assert found.reason is Reason.QUEUE_CLOSED
    assert 'queue "ownr" does not exist (did you mean "owner"?)' in found.cause
    assert found.changes[0].text == "put default/typo into queue owner (label kai.scheduler/queue: owner)"


def test_jobs_of_a_queue_with_queues_below_it_go_to_these() -> None:
    found = explainer(*TEAMS, waits("high", "all")).pod("default", "high")
    assert found.reason is Reason.QUEUE_CLOSED
    assert any(change.verified and "into queue guest" in change.text for change in found.changes)


def test_volcano_queues_are_explained_in_their_own_fields() -> None:
    resource = "deviceclass/gpu"
    template, made, body = templated("b", asks(count=2))
    body["metadata"]["annotations"] = {"scheduling.volcano.sh/queue-name": "team"}
    found = explainer(volcano("team", capability={resource: "1"}), template, made, body).pod("default", "b")
    assert found.reason is Reason.QUEUE_LIMIT
    (change,) = [change for change in found.changes if change.verified]
    assert change.patches[0].patch == ({"op": "add", "path": "/spec/capability/deviceclass~1gpu", "value": "2"},)


def test_a_closed_volcano_queue_is_opened() -> None:
    closed = {**volcano("team", capability={"deviceclass/gpu": "4"}), "status": {"state": "Closed"}}
    template, made, body = templated("b", asks())
    body["metadata"]["annotations"] = {"scheduling.volcano.sh/queue-name": "team"}
    found = explainer(closed, template, made, body).pod("default", "b")
    assert found.reason is Reason.QUEUE_CLOSED
    assert [change.text for change in found.changes] == ["open queue team"]


def test_asking_leaves_no_trace() -> None:
    found = explainer(*TEAMS, *GUEST_HAS_ALL, waits("mine", "owner"), waits("more", "owner", 2))
    assert found.queue("all") == found.queue("all")


def test_a_queue_that_is_not_there() -> None:
    with pytest.raises(NotFound) as error:
        explainer(*TEAMS).queue("gest")
    assert error.value.hint == "did you mean guest?"
