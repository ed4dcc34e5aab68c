"""Whom Kueue admits first: with StrictFIFO a workload waits for the head of its ClusterQueue, whether it fits or not, and nobody else is
said to be in its way."""

from __future__ import annotations

from typing import Any

import pytest

from allot.core.advice.explain.answer import Explainer
from allot.core.advice.explain.report import Explanation
from allot.core.advice.snapshot import Snapshot, read_object
from allot.core.lifecycle.times import seconds_of
from explain_corpus.objects import JSON, node, thing, uid_of

NOW = seconds_of("2026-09-14T09:00:00Z")
KUEUE = "kueue.x-k8s.io/v1beta2"
SHORT = "couldn't assign flavors to pod set main: insufficient unused quota for gpus in flavor a, 4 more needed"


def cluster_queue(strategy: str = "StrictFIFO", quota: int = 8, used: int = 4) -> JSON:
    """A ClusterQueue with GPUs in one flavor."""
    flavor = {"name": "a", "resources": [{"name": "gpus", "nominalQuota": str(quota)}]}
    spec: JSON = {"resourceGroups": [{"coveredResources": ["gpus"], "flavors": [flavor]}]}
    if strategy:
        spec["queueingStrategy"] = strategy
    use = [{"name": "a", "resources": [{"name": "gpus", "total": str(used)}]}]
    return thing(KUEUE, "ClusterQueue", "cq", spec=spec, status={"flavorsReservation": use})


def workload(name: str, gpus: int, minute: int, said: str = "", *, spec: JSON | None = None, **status: Any) -> JSON:
    """What stands for a Job that waits."""
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": uid_of("Job", "default", name)}
    metadata = {
        "ownerReferences": [owner | {"controller": True}],
        "creationTimestamp": f"2026-09-14T08:{minute:02}:00Z",
    }
    found: JSON = {"resourceRequests": [{"name": "main", "resources": {"gpus": str(gpus)}}]}
    if said:
        found["conditions"] = [{"type": "QuotaReserved", "status": "False", "reason": "Pending", "message": said}]
    return thing(
        KUEUE,
        "Workload",
        f"job-{name}",
        "default",
        metadata=metadata,
        spec={"queueName": "team"} | (spec or {}),
        status=found | status,
    )


def explained(*others: JSON, own: JSON | None = None, **spec: Any) -> Explanation:
    """Why Job small, which asks for 2 GPUs, is suspended."""
    template = {"spec": {"containers": [{"name": "main", "image": "x:1"}]}}
    metadata = {"labels": {"kueue.x-k8s.io/queue-name": "team"}}
    job = thing(
        "batch/v1", "Job", "small", "default", metadata=metadata, spec={"suspend": True, "template": template} | spec
    )
    local = thing(KUEUE, "LocalQueue", "team", "default", spec={"clusterQueue": "cq"})
    objects = (node("n1"), job, local, own or workload("small", 2, 30), *others)
    return Explainer(Snapshot(tuple(map(read_object, objects)), NOW)).workload("job", "default", "small")


def first_advice(found: Explanation) -> str:
    """The first thing to try."""
    return found.changes[0].text


def test_with_strict_fifo_an_older_workload_that_does_not_fit_is_named() -> None:
    found = explained(cluster_queue(), workload("large", 8, 10, SHORT))
    assert "ClusterQueue cq has queueingStrategy: StrictFIFO, and Job default/large at its head, which is older" in (
        found.cause
    )
    assert "it needs 8 gpus of flavor a, and 4 are unused" in found.cause
    assert "which would fit (it needs 2 gpus)" in found.cause
    assert first_advice(found).startswith("set queueingStrategy: BestEffortFIFO in ClusterQueue cq")


@pytest.mark.parametrize("strategy", ["BestEffortFIFO", ""])
def test_with_best_effort_fifo_nobody_waits_for_another(strategy: str) -> None:
    found = explained(cluster_queue(strategy), workload("large", 8, 10, SHORT))
    assert "default/large" not in found.cause


@pytest.mark.parametrize(
    "other",
    [
        workload("large", 8, 40, SHORT),
        workload("large", 8, 10, SHORT, spec={"priority": -5}),
        workload("large", 8, 10, SHORT, spec={"active": False}),
        workload("large", 8, 10, SHORT, spec={"queueName": "other"}),
        workload("large", 8, 10, "Workload namespace doesn't match ClusterQueue selector"),
        workload("large", 8, 10, SHORT, requeueState={"requeueAt": "2026-09-14T09:05:00Z"}),
        workload("large", 8, 10, conditions=[{"type": "Finished", "status": "True"}]),
        workload("large", 4, 10, admission={"clusterQueue": "cq"}),
    ],
    ids=["newer", "lower priority", "inactive", "other queue", "other namespace", "later", "finished", "admitted"],
)
def test_a_workload_that_is_not_before_it_is_not_named(other: JSON) -> None:
    assert "default/large" not in explained(cluster_queue(), other).cause


def test_priority_comes_before_age() -> None:
    ahead = workload("large", 8, 40, SHORT, spec={"priority": 10})
    found = explained(cluster_queue(), ahead, workload("older", 6, 10))
    assert "Job default/large at its head, which has priority 10 instead of 0" in found.cause
    assert any("with a value above 10" in change.text for change in found.changes)


def test_after_a_timeout_a_workload_is_as_old_as_its_eviction() -> None:
    evicted = {"type": "Evicted", "status": "True", "reason": "PodsReadyTimeout"}
    late = evicted | {"lastTransitionTime": "2026-09-14T08:50:00Z"}
    assert "default/large" not in explained(cluster_queue(), workload("large", 8, 10, conditions=[late])).cause


def test_of_several_the_head_is_named() -> None:
    ahead = (workload("large-2", 8, 12), workload("large-1", 7, 10, SHORT), workload("large-3", 8, 14))
    found = explained(cluster_queue(), *ahead)
    assert "Job default/large-1 at its head" in found.cause
    assert "large-2" not in found.cause


def test_what_kueue_itself_says_of_a_workload_that_does_not_fit_comes_first() -> None:
    own = workload("small", 5, 30, SHORT)
    found = explained(cluster_queue(), workload("large", 8, 10, SHORT), own=own)
    assert "nominalQuota 8 of gpus in flavor a, of which 4 are in use, and it needs 5" in found.cause


def test_what_kueue_said_before_others_ended_is_outdated() -> None:
    own = workload("small", 2, 30, SHORT)
    found = explained(cluster_queue(), workload("large", 8, 10, SHORT), own=own)
    assert "Job default/large at its head" in found.cause


def test_another_strategy_is_not_offered_to_what_does_not_fit() -> None:
    found = explained(cluster_queue(), workload("large", 8, 10, SHORT), own=workload("small", 5, 30))
    assert "this one does not fit either (it needs 5 gpus of flavor a, and 4 are unused)" in found.cause
    assert first_advice(found).startswith("wait until others of the queue end, or raise nominalQuota of gpus")
    assert not any("BestEffortFIFO" in change.text for change in found.changes)


def test_a_head_that_fits_or_for_which_others_are_evicted_needs_a_moment() -> None:
    found = explained(cluster_queue(), workload("large", 4, 10))
    assert "has not been admitted yet" in found.cause
    assert first_advice(found).startswith("wait until Kueue has admitted Job default/large")
    evicting = f"{SHORT}. Pending the preemption of 1 workload(s)"
    found = explained(cluster_queue(), workload("large", 8, 10, evicting))
    assert first_advice(found) == "wait a moment: Kueue evicts others for Job default/large"


def test_nobody_waits_for_a_head_that_never_fits() -> None:
    found = explained(cluster_queue(), workload("large", 12, 10, SHORT))
    assert not any(change.text.startswith("wait until") for change in found.changes)
    assert any(change.text.startswith("ask for less in Job default/large") for change in found.changes)


@pytest.mark.parametrize(
    ("pods", "advice"),
    [
        (2, "set parallelism: 1 in Job small, which then asks for 8 gpus"),
        (4, "set parallelism: 3 in Job small, which then asks for 12 gpus"),
        (1, "ask for at most 12 gpus"),
    ],
)
def test_a_job_that_is_too_large_for_its_queue_gets_fewer_pods(pods: int, advice: str) -> None:
    said = "couldn't assign flavors to pod set main: insufficient quota for gpus in flavor a, request (16) > maximum capacity (12)"
    found = explained(cluster_queue(quota=12, used=0), own=workload("small", 16, 30, said), parallelism=pods)
    assert first_advice(found) == advice
    assert found.changes[1].text == "raise nominalQuota of gpus in ClusterQueue cq to 16"
