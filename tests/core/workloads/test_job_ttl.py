"""Jobs that are over are deleted when their time has come."""

from __future__ import annotations

from typing import Any

import pytest

from allot.core.lifecycle.actions import Delete, LookUp, RequeueAfter
from allot.core.lifecycle.times import time_of
from allot.core.workloads.job_ttl import reconcile_ttl
from allot.core.workloads.resources import JOBS

NOW = 1_800_000_000.0
QUESTION = LookUp(resource=JOBS, name="j", namespace="default")


def job(
    ttl_s: int | None = 60, *, over_s: float | None = 61, condition: str = "Complete", **metadata: Any
) -> dict[str, Any]:
    """A job that was over so many seconds ago."""
    head = {"name": "j", "namespace": "default", "uid": "u", **metadata}
    status: dict[str, Any] = {}
    if over_s is not None:
        time = time_of(NOW - over_s)
        status["conditions"] = [{"type": condition, "status": "True", "lastTransitionTime": time}]
    return {"metadata": head, "spec": {"ttlSecondsAfterFinished": ttl_s} if ttl_s is not None else {}, "status": status}


@pytest.mark.parametrize(
    "made",
    [
        job(None),
        job(over_s=None),
        job(condition="Suspended"),
        job(condition="FailureTarget"),
        job(deletionTimestamp=time_of(NOW)),
    ],
)
def test_some_never_expire(made: dict[str, Any]) -> None:
    assert reconcile_ttl(made, {}, NOW) == ()


@pytest.mark.parametrize("condition", ["Complete", "Failed"])
def test_a_job_is_deleted_with_its_pods_when_its_time_has_come(condition: str) -> None:
    assert reconcile_ttl(job(condition=condition, over_s=50), {}, NOW) == (RequeueAfter(seconds=10.0),)
    over = job(condition=condition)
    assert reconcile_ttl(over, {}, NOW) == (QUESTION,)
    (deletion,) = reconcile_ttl(over, {QUESTION: over}, NOW)
    assert isinstance(deletion, Delete)
    assert (deletion.uid, deletion.propagation_policy) == ("u", "Foreground")
    assert reconcile_ttl(job(0, over_s=0, condition=condition), {}, NOW) == (QUESTION,)


def test_what_the_server_says_counts() -> None:
    assert reconcile_ttl(job(), {QUESTION: None}, NOW) == ()
    assert reconcile_ttl(job(), {QUESTION: job(None)}, NOW) == ()
    assert reconcile_ttl(job(), {QUESTION: job(3600)}, NOW) == (RequeueAfter(seconds=3539.0),)
