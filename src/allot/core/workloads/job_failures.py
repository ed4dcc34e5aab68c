"""Failed pods of a job: its failure policy, when they failed, and the backoff of their replacements."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum

import msgspec

from allot.core.lifecycle.disruption import FAILED, SUCCEEDED
from allot.core.lifecycle.times import seconds_of
from allot.core.model.batch_v1 import (
    INDEX_FAILURE_COUNT,
    INDEX_IGNORED_FAILURE_COUNT,
    REPLACE_FAILED,
    JobSpec,
    PodFailurePolicy,
    PodFailurePolicyOnExitCodesRequirement,
    PodFailurePolicyRule,
)
from allot.core.model.core_v1 import ContainerStateTerminated, ContainerStatus, Pod
from allot.core.workloads.pod_states import condition_of

BACKOFF_S = 10.0
BACKOFF_MAX_S = 600.0
_INT32_MAX = 2**31 - 1


def is_failed(pod: Pod, spec: JobSpec) -> bool:
    """Whether a pod counts as failed. A deleted one does immediately, unless only finished pods are replaced."""
    if pod.status.phase == FAILED:
        return True
    if spec.pod_replacement_policy == REPLACE_FAILED:
        return False
    return pod.metadata.deletion_timestamp is not None and pod.status.phase != SUCCEEDED


# --- the policy ---


class FailureAction(StrEnum):
    """What to do about a failed pod."""

    FAIL_JOB = "FailJob"
    FAIL_INDEX = "FailIndex"
    IGNORE = "Ignore"
    COUNT = "Count"


class FailureDecision(msgspec.Struct, frozen=True):
    """The result of a policy: the action, and the reason for FailJob."""

    action: FailureAction
    message: str = ""

    @property
    def is_counted(self) -> bool:
        """Whether the failure counts toward limits."""
        return self.action is not FailureAction.IGNORE


COUNTED = FailureDecision(FailureAction.COUNT)


def judge(policy: PodFailurePolicy | None, pod: Pod) -> FailureDecision:
    """The result of the first matching rule for a failed pod; it counts if none matches."""
    for place, rule in enumerate(policy.rules if policy is not None else ()):
        reason = _fits(rule, pod)
        if not reason or rule.action not in tuple(FailureAction):
            continue
        action = FailureAction(rule.action)
        message = f"{reason} matching {action} rule at index {place}" if action is FailureAction.FAIL_JOB else ""
        return FailureDecision(action, message)
    return COUNTED


def _fits(rule: PodFailurePolicyRule, pod: Pod) -> str:
    """What matches a rule, as text; empty if nothing does."""
    name = f"{pod.metadata.namespace}/{pod.metadata.name}"
    if rule.on_exit_codes is not None:
        for statuses in (pod.status.container_statuses, pod.status.init_container_statuses):
            for container in statuses:
                code = _exit_code(container, rule.on_exit_codes)
                if code:
                    return f"Container {container.name} for pod {name} failed with exit code {code}"
        return ""
    for condition in pod.status.conditions:
        if any((condition.type, condition.status) == (one.type, one.status) for one in rule.on_pod_conditions):
            return f"Pod {name} has condition {condition.type}"
    return ""


def _exit_code(container: ContainerStatus, wanted: PodFailurePolicyOnExitCodesRequirement) -> int:
    """The exit code of a failed container that matches a requirement; 0 if none does."""
    terminated = _terminated(container)
    if terminated is None or wanted.container_name not in (None, container.name):
        return 0
    is_wanted = {"In": terminated.exit_code in wanted.values, "NotIn": terminated.exit_code not in wanted.values}
    return terminated.exit_code if is_wanted.get(wanted.operator, False) else 0


def _terminated(container: ContainerStatus) -> ContainerStateTerminated | None:
    return None if container.state is None else container.state.terminated


# --- when ---


def finished_at(pod: Pod) -> float:
    """When a pod ended, as far as known: the end of its last container, or when it became unready, was deleted, or was created."""
    times = _container_ends(pod)
    if times is not None:
        return times
    ready = condition_of(pod, "Ready")
    if ready is not None and ready.status == "False" and ready.last_transition_time is not None:
        return seconds_of(ready.last_transition_time)
    metadata = pod.metadata
    if metadata.deletion_timestamp is not None:
        return seconds_of(metadata.deletion_timestamp) - (metadata.deletion_grace_period_seconds or 0)
    return seconds_of(metadata.creation_timestamp) if metadata.creation_timestamp is not None else 0.0


def _container_ends(pod: Pod) -> float | None:
    sidecars = {one.name for one in pod.spec.init_containers if one.restart_policy == "Always"}
    beside = tuple(one for one in pod.status.init_container_statuses if one.name in sidecars)
    ends = []
    for container in pod.status.container_statuses + beside:
        terminated = _terminated(container)
        if terminated is None or terminated.finished_at is None:
            return None
        ends.append(seconds_of(terminated.finished_at))
    return max(ends, default=None)


# --- how long successors wait ---


class Backoff(msgspec.Struct, frozen=True):
    """Failures since the last success, and when the last of them was."""

    failures: int = 0
    last_failure_s: float = 0.0

    def after(self, succeeded: Sequence[Pod], failed: Sequence[Pod]) -> Backoff:
        """The backoff after more pods have ended."""
        if not failed:
            return Backoff() if succeeded else self
        times = sorted(finished_at(pod) for pod in failed)
        if not succeeded:
            return Backoff(self.failures + len(times), times[-1])
        success = max(finished_at(pod) for pod in succeeded)
        later = [time for time in times if time > success]
        return Backoff(len(later), later[-1]) if later else Backoff()

    def wait_s(self, now_s: float) -> float:
        """How long to wait before creating a pod."""
        return wait_after(self.failures, self.last_failure_s, now_s)


NO_FAILURES = Backoff()


def wait_after(failures: int, last_failure_s: float, now_s: float) -> float:
    """How long the next attempt waits after a number of failures: 10 seconds, doubling up to 10 minutes."""
    if failures <= 0:
        return 0.0
    pause = min(BACKOFF_S * 2.0 ** min(failures - 1, 30), BACKOFF_MAX_S)
    return max(0.0, pause - (now_s - last_failure_s))


# --- failures of one index (backoffLimitPerIndex) ---


def index_failures(pod: Pod) -> int:
    """How often the index of a pod failed before this pod."""
    return _count(pod, INDEX_FAILURE_COUNT)


def all_index_failures(pod: Pod) -> int:
    """The same, including failures that do not count."""
    return _count(pod, INDEX_FAILURE_COUNT) + _count(pod, INDEX_IGNORED_FAILURE_COUNT)


def successor_failures(spec: JobSpec, failed: Pod | None) -> tuple[int, int]:
    """What the replacement of a failed pod records about its index: failures that count, and that do not."""
    if failed is None:
        return 0, 0
    counted, ignored = _count(failed, INDEX_FAILURE_COUNT), _count(failed, INDEX_IGNORED_FAILURE_COUNT)
    if judge(spec.pod_failure_policy, failed).is_counted:
        return counted + 1, ignored
    return counted, ignored + 1


def is_index_failed(spec: JobSpec, pod: Pod) -> bool:
    """Whether this pod's failure makes its index fail."""
    if not is_failed(pod, spec):
        return False
    verdict = judge(spec.pod_failure_policy, pod)
    if verdict.action is FailureAction.FAIL_INDEX:
        return True
    return verdict.is_counted and index_failures(pod) >= (spec.backoff_limit_per_index or 0)


def _count(pod: Pod, annotation: str) -> int:
    text = pod.metadata.annotations.get(annotation, "")
    number = int(text) if text.isascii() and text.isdigit() and len(text) <= 10 else 0
    return number if number <= _INT32_MAX else 0


def restarts_of(pods: Iterable[Pod]) -> int:
    """How often containers of running pods were restarted."""
    statuses = (
        status
        for pod in pods
        if pod.status.phase in ("Running", "Pending")
        for status in (*pod.status.init_container_statuses, *pod.status.container_statuses)
    )
    return sum(status.restart_count for status in statuses)
