"""Deletes finished jobs after ttlSecondsAfterFinished, and their pods before them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from allot.core.lifecycle.actions import FOREGROUND, Action, Answers, Delete, LookUp, RequeueAfter
from allot.core.lifecycle.times import seconds_of
from allot.core.model.batch_v1 import Job
from allot.core.workloads.job_ends import finished_condition
from allot.core.workloads.resources import JOBS
from allot.core.workloads.whole import whole


def expires_at(job: Job) -> float | None:
    """When to delete a job; None if never, or if it is not finished or already being deleted."""
    finished, ttl_s = finished_condition(job), job.spec.ttl_seconds_after_finished
    if finished is None or ttl_s is None or job.metadata.deletion_timestamp is not None:
        return None
    return None if finished.last_transition_time is None else seconds_of(finished.last_transition_time) + ttl_s


def reconcile_ttl(source: Mapping[str, Any], answers: Answers, now_s: float) -> tuple[Action, ...]:
    """Delete a job when it expires. The cache may be stale, so the server is asked first."""
    job = whole(JOBS, Job, source).value
    expiry = expires_at(job)
    if expiry is None:
        return ()
    if expiry > now_s:
        return (RequeueAfter(seconds=expiry - now_s),)
    question = LookUp(resource=JOBS, name=job.metadata.name, namespace=job.metadata.namespace)
    if question not in answers:
        return (question,)
    if answers[question] is None:
        return ()
    fresh = whole(JOBS, Job, answers[question]).value
    expiry = expires_at(fresh)
    if expiry is None:
        return ()
    if expiry > now_s:
        return (RequeueAfter(seconds=expiry - now_s),)
    return (
        Delete(
            resource=JOBS,
            name=fresh.metadata.name,
            namespace=fresh.metadata.namespace,
            uid=fresh.metadata.uid,
            propagation_policy=FOREGROUND,
        ),
    )
