"""When and how a job ends: the checks in Kubernetes' order, with its reasons and messages.

An end is announced by an interim condition (FailureTarget, SuccessCriteriaMet) while pods are still being deleted and counted,
and becomes final (Failed, Complete) when none is left.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from allot.core.lifecycle.times import seconds_of
from allot.core.model.batch_v1 import (
    COMPLETE,
    FAILED,
    FAILURE_TARGET,
    SUCCESS_CRITERIA_MET,
    Job,
    JobCondition,
    JobSpec,
    JobStatus,
    SuccessPolicy,
)
from allot.core.model.core_v1 import Pod
from allot.core.workloads.indexes import Indexes
from allot.core.workloads.job_failures import is_failed, judge, restarts_of
from allot.core.workloads.pod_templates import template_value


class End(msgspec.Struct, frozen=True):
    """How a job ends."""

    is_success: bool
    reason: str
    message: str

    @property
    def interim(self) -> str:
        """The condition that announces it."""
        return SUCCESS_CRITERIA_MET if self.is_success else FAILURE_TARGET

    @property
    def final(self) -> str:
        """The condition that makes it final."""
        return COMPLETE if self.is_success else FAILED


REACHED = End(True, "CompletionsReached", "Reached expected number of succeeded pods")
_LIMIT = End(False, "BackoffLimitExceeded", "Job has reached the specified backoff limit")
_DEADLINE = End(False, "DeadlineExceeded", "Job was active longer than specified deadline")
_TOO_MANY_INDEXES = End(
    False, "MaxFailedIndexesExceeded", "Job has exceeded the specified maximal number of failed indexes"
)
_INDEXES = End(False, "FailedIndexes", "Job has failed indexes")


def condition_of(status: JobStatus, type_: str) -> JobCondition | None:
    """A condition of a job."""
    return next((one for one in status.conditions if one.type == type_), None)


def is_true(status: JobStatus, type_: str) -> bool:
    """Whether a condition of a job holds."""
    found = condition_of(status, type_)
    return found is not None and found.status == "True"


def finished_condition(job: Job) -> JobCondition | None:
    """The condition that ends a job."""
    final = (COMPLETE, FAILED)
    return next((one for one in job.status.conditions if one.type in final and one.status == "True"), None)


def announced_end(status: JobStatus) -> End | None:
    """The end that an interim condition announces."""
    for type_ in (SUCCESS_CRITERIA_MET, FAILURE_TARGET):
        found = condition_of(status, type_)
        if found is not None and found.status == "True":
            return End(type_ == SUCCESS_CRITERIA_MET, found.reason, found.message)
    return None


def failure(spec: JobSpec, pods: Sequence[Pod], failed: int, running_s: float | None) -> End | None:
    """Whether the job fails because of its pods or its deadline. running_s: how long it has been active, None if it is not."""
    message = _fatal(spec, pods)
    if message:
        return End(False, "PodFailurePolicy", message)
    limit = spec.backoff_limit if spec.backoff_limit is not None else 6
    if failed > limit or _is_restarted_too_often(spec, pods, limit):
        return _LIMIT
    deadline = spec.active_deadline_seconds
    if deadline is not None and running_s is not None and running_s >= deadline:
        return _DEADLINE
    return None


def _fatal(spec: JobSpec, pods: Iterable[Pod]) -> str:
    if spec.pod_failure_policy is None:
        return ""
    verdicts = (judge(spec.pod_failure_policy, pod) for pod in pods if is_failed(pod, spec))
    return next((verdict.message for verdict in verdicts if verdict.message), "")


def _is_restarted_too_often(spec: JobSpec, pods: Sequence[Pod], limit: int) -> bool:
    if (template_value(spec.template).get("spec") or {}).get("restartPolicy") != "OnFailure":
        return False
    restarts = restarts_of(pods)
    return restarts >= max(limit, 1)


def failure_of_indexes(spec: JobSpec, failed: Indexes, succeeded: Indexes) -> End | None:
    """Whether the job fails because too many indexes failed, or because all are done and some failed."""
    if spec.max_failed_indexes is not None and len(failed) > spec.max_failed_indexes:
        return _TOO_MANY_INDEXES
    if failed and len(failed) + len(succeeded) >= (spec.completions or 0):
        return _INDEXES
    return None


def success(policy: SuccessPolicy | None, completions: int, succeeded: Indexes) -> End | None:
    """Whether a rule of the success policy is met."""
    if policy is None or not succeeded:
        return None
    for place, rule in enumerate(policy.rules):
        count = rule.succeeded_count
        if rule.succeeded_indexes is not None:
            required = Indexes.parse(rule.succeeded_indexes, completions)
            found = required.common(succeeded)
            is_met = bool(required) and (found == len(required) or (count is not None and found >= count))
        else:
            is_met = count is not None and len(succeeded) >= count
        if is_met:
            return End(True, "SuccessPolicy", f"Matched rules at index {place}")
    return None


def running_seconds(job: Job, now_s: float) -> float | None:
    """How long a job has been active; None if it is suspended or has not started."""
    if job.spec.suspend or job.status.start_time is None:
        return None
    return now_s - seconds_of(job.status.start_time)
