"""Plans with queues: what fits within limits, what starts by right, and what if a queue were entitled to more."""

from __future__ import annotations

import re

import pytest

from allot.core.advice.outlook import outlooks
from allot.core.advice.planning.changes import ChangeError, with_objects
from allot.core.advice.planning.manifest import ManifestError, read_manifest
from allot.core.advice.planning.outcome import PlanResult, outcome_of
from allot.core.advice.planning.placements import placements_of
from allot.core.advice.planning.queues import all_waiting, raised
from allot.core.advice.snapshot import Snapshot
from allot.core.advice.what_if import WhatIfCluster
from core.advice.explain.clusters import Object, asks, device_class, gpus, node, pod, pool, snapshot, template
from core.advice.explain.test_queues import GUEST_HAS_ALL, TEAMS, of, queue, volcano, waits


def copy_of(queue_name: str, **more: str) -> list[Object]:
    body = pod("copy", resourceClaims=[{"name": "gpu", "resourceClaimTemplateName": "one"}])
    return [template("one", asks()), of(body, queue_name, **more)]


def kai_gang(minimum: int, queue_name: str) -> list[Object]:
    group = {
        "apiVersion": "scheduling.run.ai/v2alpha2",
        "kind": "PodGroup",
        "metadata": {"name": "gang", "namespace": "default"},
        "spec": {"minMember": minimum, "queue": queue_name},
    }
    return [group, *copy_of(queue_name, **{"pod-group-name": "gang"})]


def kai_parts(*, leaders: int = 1, workers: int = 2, needed: int | None = None) -> list[Object]:
    """A gang of a leader and workers, of each of which the manifest has one pod."""
    parts = [{"name": "leader", "minMember": leaders}, {"name": "worker", "minMember": workers}]
    spec = {"queue": "team", "subGroups": parts, **({"minSubGroup": needed} if needed is not None else {})}
    group = {
        "apiVersion": "scheduling.run.ai/v2alpha2",
        "kind": "PodGroup",
        "metadata": {"name": "gang", "namespace": "default"},
        "spec": spec,
    }
    made, body = copy_of("team", **{"pod-group-name": "gang"})
    members = []
    for name in ("leader", "worker"):
        labels = {**body["metadata"]["labels"], "kai.scheduler/subgroup-name": name}
        members.append({**body, "metadata": {**body["metadata"], "name": name, "labels": labels}})
    return [group, made, *members]


def cluster(*objects: Object | list[Object], number: int = 4) -> Snapshot:
    return snapshot(node("n"), pool("n", gpus(number)), device_class(), *objects)


def planned(there: Snapshot, manifest: list[Object], limit: int = 100) -> PlanResult:
    read = read_manifest(manifest, there)
    return outcome_of(WhatIfCluster(with_objects(there, read.context)), read, limit)


def test_copies_stop_at_the_limit_of_their_queue() -> None:
    found = planned(cluster(queue("team", quota=4, limit=3)), copy_of("team"))
    assert found.scheduled == 3
    assert found.blocked is not None
    assert "limit of GPUs. Limit is 3 GPUs" in found.blocked.message
    assert found.queue is not None
    assert found.queue.copies == 3
    assert found.queue.blocked == "limit of queue team: 3 GPUs of 3 GPUs in use, wants 1 GPU"


def test_gangs_of_another_scheduler_are_copied_with_their_group() -> None:
    found = planned(cluster(queue("team", quota=4), number=7), kai_gang(3, "team"))
    assert (found.scheduled, found.pods_per_copy) == (2, 3)
    assert found.queue is not None
    assert found.queue.copies == 2


def test_a_gang_in_parts_has_what_each_of_them_needs() -> None:
    there = cluster(queue("team", quota=9), number=7)
    found = planned(there, kai_parts())
    assert (found.scheduled, found.pods_per_copy) == (2, 3)
    assert read_manifest(kai_parts(), there).notes == (
        'the 2 pods of part "worker" are assumed to be like the one in the manifest',
    )


def test_pods_of_a_gang_in_parts_that_need_not_be_there_come_after_the_others() -> None:
    # Of two parts one has to be there; the other grows behind it.
    found = planned(cluster(queue("team", quota=9), number=6), kai_parts(needed=1))
    assert (found.scheduled, found.pods_per_copy) == (2, 3)


def test_a_pod_that_names_no_part_of_its_group_is_refused() -> None:
    group, made, leader, worker = kai_parts()
    worker["metadata"]["labels"]["kai.scheduler/subgroup-name"] = "wrker"
    with pytest.raises(ManifestError) as error:
        read_manifest([group, made, leader, worker], cluster())
    assert str(error.value) == (
        "pod worker: kai.scheduler/subgroup-name is 'wrker': expected a part of PodGroup gang: leader, worker"
    )


def test_validate_places_gangs_of_other_schedulers_as_a_whole() -> None:
    group, made, leader, worker = kai_parts(workers=1)
    there = cluster(queue("team", quota=9), number=2)
    assert [placed.node for placed in placements_of([group, made, leader, worker], there).pods] == ["n", "n"]
    tight = placements_of([group, made, leader, worker], cluster(queue("team", quota=9), number=1)).pods
    assert [placed.node for placed in tight] == ["", ""]
    assert {placed.reason for placed in tight} == {
        "however the pods of its 2 groups are arranged, too few of them can have nodes at once"
    }


def test_a_gang_that_its_queue_does_not_let_in_is_an_answer() -> None:
    found = planned(cluster(queue("team", quota=4, limit=2)), kai_gang(3, "team"))
    assert found.scheduled == 0
    assert found.blocked is not None
    assert "limit of GPUs" in found.blocked.message


def test_what_others_have_to_give_back_counts_by_right() -> None:
    there = cluster(*TEAMS, *GUEST_HAS_ALL)
    found = planned(there, copy_of("owner"))
    assert found.scheduled == 0
    assert found.queue is not None
    assert found.queue.copies == 2
    assert found.queue.leaving == ("default/guest-3", "default/guest-2")
    assert "fair share" in found.queue.blocked


def test_pods_without_a_queue_have_no_part_in_it() -> None:
    manifest = [
        template("one", asks()),
        pod("copy", resourceClaims=[{"name": "gpu", "resourceClaimTemplateName": "one"}]),
    ]
    assert planned(cluster(*TEAMS), manifest).queue is None


def test_a_queue_that_gets_more_starts_what_waited() -> None:
    there = cluster(queue("all", quota=4, limit=1), queue("team", "all", quota=1, limit=1), waits("b", "team", 2))
    now = all_waiting(WhatIfCluster(there))
    assert (now.waiting, now.starting) == (1, 0)
    then = all_waiting(WhatIfCluster(raised(there, "team:gpu=1")))
    assert (then.waiting, then.starting) == (1, 1)


def test_planning_leaves_no_trace() -> None:
    what_if = WhatIfCluster(cluster(*TEAMS, *GUEST_HAS_ALL, waits("mine", "owner")))
    before = {key: each.prospect for key, each in outlooks(what_if).items()}
    shares = {name: str(each.shares) for name, each in what_if.machine.book.tree.all().items()}
    outcome_of(what_if, read_manifest(copy_of("owner"), what_if.snapshot()), 10)
    assert {key: each.prospect for key, each in outlooks(what_if).items()} == before
    assert {name: str(each.shares) for name, each in what_if.machine.book.tree.all().items()} == shares


def test_volcano_queues_can_be_raised() -> None:
    there = cluster(volcano("team", capability={"cpu": "2"}, deserved={"cpu": "500m"}))
    (found,) = all_waiting(WhatIfCluster(raised(there, "team:cpu=1"))).queues
    (cpu,) = found.resources
    assert (cpu.deserved, cpu.limit) == ("1.5", "3")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("team", "expected QUEUE:RESOURCE=AMOUNT"),
        ("tem:gpu=1", "did you mean team?"),
        ("team:gpu=x", "is not an amount"),
        ("team:gpu=-1", "expected more than 0"),
        ("team:cpu=1", "has no quota of cpu; it has quotas of: gpu"),
    ],
)
def test_bad_raises_are_errors(text: str, said: str) -> None:
    with pytest.raises(ChangeError, match=re.escape(said)):
        raised(cluster(queue("team", quota=1)), text)
