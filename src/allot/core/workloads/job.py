"""Jobs: pods run until enough of them have succeeded, and each that ends is counted exactly once.

All state is in the API. A pod carries a finalizer until it is counted; counting takes three writes, and a controller may die
between any two of them:

    1. the status names the pod as ended and not yet counted (by its uid; by its index where pods have one),
    2. the pod loses the finalizer,
    3. the status counts it and no longer names it.

One sync creates or deletes pods, writes the status once, and removes finalizers; the next one continues from there. So the
third step of some pods and the first of others share a write, and the last write of a job ends it. Kubernetes does the three
steps in one sync; its status has the same states in the same order.

The caller passes only caches that include its own writes (`controllers/job.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice

import msgspec

from allot.core.lifecycle.actions import (
    NORMAL,
    WARNING,
    Action,
    Answers,
    Create,
    Delete,
    Emit,
    LookUp,
    Patch,
    RequeueAfter,
    Together,
)
from allot.core.lifecycle.disruption import SUCCEEDED
from allot.core.lifecycle.times import seconds_of, time_of
from allot.core.model.batch_v1 import (
    INDEXED,
    JOB_CONTROLLER,
    NON_INDEXED,
    REPLACE_FAILED,
    SUSPENDED,
    Job,
    JobCondition,
    JobStatus,
    UncountedTerminatedPods,
)
from allot.core.model.core_v1 import Pod
from allot.core.workloads.indexes import Indexes
from allot.core.workloads.job_ends import (
    REACHED,
    End,
    announced_end,
    condition_of,
    failure,
    failure_of_indexes,
    finished_condition,
    is_true,
    success,
)
from allot.core.workloads.job_failures import (
    NO_FAILURES,
    Backoff,
    all_index_failures,
    finished_at,
    is_failed,
    is_index_failed,
    judge,
    wait_after,
)
from allot.core.workloads.job_pods import PodMaker, completion_index, indexes_of, is_tracked, stop_tracking
from allot.core.workloads.ownership import controller_reference
from allot.core.workloads.pod_ranking import by_stage
from allot.core.workloads.pod_states import is_active, is_ready, is_terminating
from allot.core.workloads.pod_templates import delete_pod
from allot.core.workloads.resources import JOBS
from allot.core.workloads.whole import Whole

# The most pods that one sync creates or deletes, and that a status names.
PODS_MAX = 500
UNCOUNTED_MAX = 500
# Pods come and go in groups; the job handles them together.
BATCH_S = 1.0


class Synced(msgspec.Struct, frozen=True):
    """What to do, and the failures that delay replacements once the status is written."""

    actions: tuple[Action, ...]
    backoff: Backoff


def is_managed_elsewhere(job: Job) -> bool:
    """Whether another controller manages a job."""
    return job.spec.managed_by not in (None, JOB_CONTROLLER)


def reconcile_job(
    job: Whole[Job],
    pods: Sequence[Pod],
    now_s: float,
    *,
    backoff: Backoff = NO_FAILURES,
    pod_group: str = "",
    is_refused: bool = False,
) -> Synced:
    """What to do for a job now.

    pods: all that it controls. is_refused: the server refused to create pods the last time, so the status, which must not wait
    for them, comes first.
    """
    value = job.value
    if is_managed_elsewhere(value) or finished_condition(value) is not None:
        return Synced((), backoff)
    if value.spec.completion_mode not in (None, INDEXED, NON_INDEXED):
        note = "Skipped Job sync because completion mode is unknown"
        return Synced((_told(job, WARNING, "UnknownCompletionMode", note),), backoff)
    return _Sync(job, pods, now_s, backoff, pod_group).run(is_refused=is_refused)


def reconcile_orphan(pod: Pod, job: Job | None, answers: Answers) -> tuple[Action, ...]:
    """A pod with the finalizer whose job is gone, finished, or no longer its owner: nothing will count it, so the finalizer is
    removed.

    job: the cached job with its controller's name. Only the server can confirm that it is gone.
    """
    if not is_tracked(pod):
        return ()
    controller = controller_reference(pod.metadata)
    if controller is None:
        return (stop_tracking(pod),)
    if (controller.api_version, controller.kind) != (JOBS.api_version, JOBS.kind):
        return ()
    if job is None or job.metadata.uid != controller.uid:
        question = LookUp(resource=JOBS, name=controller.name, namespace=pod.metadata.namespace)
        if question not in answers:
            return (question,)
        answer = answers[question]
        if answer is not None and answer["metadata"]["uid"] == controller.uid:
            # It will be in the cache soon, and its own sync counts the pod.
            return ()
        return (stop_tracking(pod),)
    is_left = finished_condition(job) is not None and not is_managed_elsewhere(job)
    return (stop_tracking(pod),) if is_left else ()


def _told(job: Whole[Job], type_: str, reason: str, note: str) -> Emit:
    return Emit(regarding=job.reference, type=type_, reason=reason, action=reason, note=note)


class _Managed(msgspec.Struct, frozen=True, kw_only=True):
    """What to do to reach the desired number of pods."""

    removed: tuple[Pod, ...] = ()
    created: tuple[Create, ...] = ()
    # When to check again because replacements of failed pods are delayed.
    wait_s: float | None = None


class _Sync:
    """One pass over a job and its pods."""

    def __init__(self, job: Whole[Job], pods: Sequence[Pod], now_s: float, backoff: Backoff, pod_group: str) -> None:
        self._job = job
        self._spec = job.value.spec
        self._status = job.value.status
        self._pods = tuple(pods)
        self._now_s = now_s
        self._now = time_of(now_s)
        self._pod_group = pod_group
        self._is_indexed = self._spec.completion_mode == INDEXED
        self._is_deleting = job.metadata.deletion_timestamp is not None
        self._active = tuple(pod for pod in pods if is_active(pod))
        self._terminating = sum(is_terminating(pod) for pod in pods)
        self._uncounted = self._status.uncounted_terminated_pods or UncountedTerminatedPods()

        counted = frozenset(self._uncounted.succeeded)
        new_successes = [pod for pod in pods if self._is_new(pod, counted) and pod.status.phase == SUCCEEDED]
        counted = frozenset(self._uncounted.failed)
        new_failures = [pod for pod in pods if self._is_new(pod, counted) and is_failed(pod, self._spec)]
        policy = self._spec.pod_failure_policy
        self._backoff = backoff.after(new_successes, new_failures)
        self._failed = (
            self._status.failed
            + sum(judge(policy, pod).is_counted for pod in new_failures)
            + len(self._uncounted.failed)
        )
        self._succeeded = self._status.succeeded + len(new_successes) + len(self._uncounted.succeeded)
        self._prior = self._succeeded_indexes = Indexes()
        self._failed_indexes: Indexes | None = None
        # By index: the failed pod that is kept until its replacement, which records the failures of the index, exists.
        self._awaiting_successor: dict[int, Pod] = {}
        if self._is_indexed:
            self._count_indexes()

    def run(self, *, is_refused: bool) -> Synced:
        start_time = self._status.start_time
        if start_time is None and not self._spec.suspend:
            start_time = self._now
        wait_s = self._deadline_wait(start_time)
        end = announced_end(self._status) or self._new_end(start_time)
        conditions = self._status.conditions
        event: Emit | None = None
        if end is not None:
            pod_actions: tuple[Action, ...] = _together(delete_pod(pod, self._job.reference) for pod in self._active)
            active, gone = 0, self._active
        else:
            managed = _Managed() if self._is_deleting else self._manage()
            pod_actions, gone = self._pod_actions(managed), managed.removed
            active = len(self._active) - len(gone)
            if not managed.created and self._is_reached(active):
                end = REACHED
            elif not self._is_deleting:
                conditions, event, start_time = self._suspension(start_time)
            active += 0 if is_refused else len(managed.created)
            wait_s = min((each for each in (wait_s, managed.wait_s) if each is not None), default=None)
        status = msgspec.structs.replace(
            self._status,
            conditions=conditions,
            start_time=start_time,
            active=active,
            ready=sum(is_ready(pod) for pod in self._active) - sum(is_ready(pod) for pod in gone),
            terminating=self._terminating + len(gone),
        )
        status, untracked = self._track(status, end)
        status, told = self._conclude(status, end, untracked, event)
        flush: list[Action] = []
        if status != self._status:
            update = self._job.update_status(status)
            flush.append(msgspec.structs.replace(update, on_success=told[0]) if told else update)
        flush += [*_together(map(stop_tracking, untracked)), *told[1:]]
        later = (RequeueAfter(seconds=max(wait_s, 0.0)),) if wait_s is not None and end is None else ()
        # A successful job releases its running pods before it deletes them: if a write in between fails, the next
        # sync must not see them being deleted and count them as failures.
        flushes_first = is_refused or (end is not None and end.is_success)
        actions = (*flush, *pod_actions) if flushes_first else (*pod_actions, *flush)
        return Synced((*actions, *later), self._backoff)

    # --- counting ---

    def _is_valid(self, pod: Pod) -> bool:
        """Whether a pod counts at all: in an indexed job, only if its index is within the job's range."""
        if not self._is_indexed:
            return True
        index = completion_index(pod)
        return index is not None and index < (self._spec.completions or 0)

    def _is_new(self, pod: Pod, counted: frozenset[str]) -> bool:
        return is_tracked(pod) and pod.metadata.uid not in counted and self._is_valid(pod)

    def _count_indexes(self) -> None:
        completions = self._spec.completions or 0
        tracked = [pod for pod in self._pods if is_tracked(pod) and self._is_valid(pod)]
        self._prior = Indexes.parse(self._status.completed_indexes, completions)
        succeeded = indexes_of(pod for pod in tracked if pod.status.phase == SUCCEEDED)
        self._succeeded_indexes = self._prior | Indexes.of(succeeded)
        self._succeeded = len(self._succeeded_indexes)
        if self._spec.backoff_limit_per_index is None:
            return
        prior = Indexes.parse(self._status.failed_indexes or "", completions)
        failed = indexes_of(pod for pod in tracked if is_index_failed(self._spec, pod))
        self._failed_indexes = prior | Indexes.of(failed)
        settled = self._succeeded_indexes | self._failed_indexes | Indexes.of(indexes_of(self._active))
        for pod in tracked:
            index = completion_index(pod)
            if index is None or index in settled or not is_failed(pod, self._spec):
                continue
            other = self._awaiting_successor.get(index)
            if other is None or (
                all_index_failures(other) <= all_index_failures(pod) and finished_at(other) <= finished_at(pod)
            ):
                self._awaiting_successor[index] = pod

    # --- the end ---

    def _deadline_wait(self, start_time: str | None) -> float | None:
        deadline = self._spec.active_deadline_seconds
        if deadline is None or self._spec.suspend or start_time is None:
            return None
        return deadline - (self._now_s - seconds_of(start_time))

    def _new_end(self, start_time: str | None) -> End | None:
        is_running = start_time is not None and not self._spec.suspend
        running_s = self._now_s - seconds_of(start_time) if is_running and start_time is not None else None
        end = failure(self._spec, self._pods, self._failed, running_s)
        if end is None and self._failed_indexes is not None:
            end = failure_of_indexes(self._spec, self._failed_indexes, self._succeeded_indexes)
        if end is None and self._is_indexed:
            end = success(self._spec.success_policy, self._spec.completions or 0, self._succeeded_indexes)
        return end

    def _is_reached(self, active: int) -> bool:
        wanted = 1 if self._spec.completions is None else self._spec.completions
        return active == 0 and self._succeeded >= wanted

    def _suspension(self, start_time: str | None) -> tuple[tuple[JobCondition, ...], Emit | None, str | None]:
        """The conditions including the one for suspension, the event, and the start time."""
        present = condition_of(self._status, SUSPENDED)
        conditions = self._status.conditions
        if self._spec.suspend:
            if is_true(self._status, SUSPENDED):
                return conditions, None, start_time
            added = self._condition(SUSPENDED, "JobSuspended", "Job suspended")
            event = _told(self._job, NORMAL, "Suspended", "Job suspended")
            return _with_condition(conditions, added), event, None
        if present is None or present.status == "False":
            return conditions, None, start_time
        added = self._condition(SUSPENDED, "JobResumed", "Job resumed", "False")
        # The deadline counts from here.
        return _with_condition(conditions, added), _told(self._job, NORMAL, "Resumed", "Job resumed"), self._now

    def _condition(self, type_: str, reason: str, message: str, status: str = "True") -> JobCondition:
        return JobCondition(
            type=type_,
            status=status,
            reason=reason,
            message=message,
            last_probe_time=self._now,
            last_transition_time=self._now,
        )

    # --- as many pods as wanted ---

    def _manage(self) -> _Managed:
        active = len(self._active)
        if self._spec.suspend:
            return _Managed(removed=self._active)
        wanted = self._wanted()
        removed = self._superfluous(max(active - wanted, 0))[:PODS_MAX]
        if removed:
            # Either fewer or more in one sync.
            return _Managed(removed=removed)
        ending = self._terminating if self._spec.pod_replacement_policy == REPLACE_FAILED else 0
        missing = min(wanted - ending - active, PODS_MAX)
        return self._additional(missing) if missing > 0 else _Managed()

    def _wanted(self) -> int:
        parallelism = 1 if self._spec.parallelism is None else self._spec.parallelism
        if self._spec.completions is None:
            # After the first success, running pods may finish, and none is added.
            return len(self._active) if self._succeeded > 0 else parallelism
        return max(min(self._spec.completions - self._succeeded, parallelism), 0)

    def _superfluous(self, at_least: int) -> tuple[Pod, ...]:
        """Excess pods, or pods without a valid index in an indexed job."""
        removed: list[Pod] = []
        left = list(self._active)
        if self._is_indexed:
            by_index: dict[int, list[Pod]] = {}
            for pod in self._active:
                index = completion_index(pod)
                if index is None or not self._is_valid(pod):
                    removed.append(pod)
                else:
                    by_index.setdefault(index, []).append(pod)
            left = []
            for index in sorted(by_index):
                *doubles, kept = by_stage(by_index[index])
                removed += doubles
                left.append(kept)
        if len(removed) < at_least:
            removed += by_stage(left)[: at_least - len(removed)]
        return tuple(removed)

    def _additional(self, count: int) -> _Managed:
        maker = PodMaker(self._job, self._pod_group)
        if self._spec.backoff_limit_per_index is None:
            wait_s = self._backoff.wait_s(self._now_s)
            if wait_s > 0:
                return _Managed(wait_s=max(wait_s, BATCH_S))
        if not self._is_indexed:
            return _Managed(created=tuple(maker.create() for _ in range(count)))
        indexes = self._free_indexes(count)
        waits = {index: self._index_wait(index) for index in indexes}
        ready = [index for index in indexes if waits[index] <= 0]
        created = tuple(maker.create_indexed(index, self._awaiting_successor.get(index)) for index in ready)
        later = [wait for wait in waits.values() if wait > 0]
        return _Managed(created=created, wait_s=max(min(later), BATCH_S) if later else None)

    def _free_indexes(self, count: int) -> list[int]:
        """The lowest indexes that are neither in use nor completed."""
        taken = self._succeeded_indexes | Indexes.of(indexes_of(self._active))
        if self._spec.pod_replacement_policy == REPLACE_FAILED:
            taken |= Indexes.of(indexes_of(pod for pod in self._pods if is_terminating(pod)))
        if self._failed_indexes is not None:
            taken |= self._failed_indexes
        return list(islice(taken.missing(self._spec.completions or 0), count))

    def _index_wait(self, index: int) -> float:
        failed = self._awaiting_successor.get(index)
        if failed is None:
            return 0.0
        return wait_after(all_index_failures(failed) + 1, finished_at(failed), self._now_s)

    def _pod_actions(self, managed: _Managed) -> tuple[Action, ...]:
        if managed.removed:
            # Pods deleted here are neither successes nor failures: the finalizer goes first, so that they are not counted.
            tracked = map(stop_tracking, filter(is_tracked, managed.removed))
            deletions = (delete_pod(pod, self._job.reference) for pod in managed.removed)
            return (*_together(tracked), *_together(deletions))
        return (Together(writes=managed.created, slow_start=True),) if managed.created else ()

    # --- tracking ---

    def _track(self, status: JobStatus, end: End | None) -> tuple[JobStatus, list[Pod]]:
        """The status with pods counted and named, and the pods that lose the finalizer after it is written."""
        tracked = [pod for pod in self._pods if is_tracked(pod)]
        uids = frozenset(pod.metadata.uid for pod in tracked)
        succeeded = [uid for uid in self._uncounted.succeeded if uid in uids]
        failed = [uid for uid in self._uncounted.failed if uid in uids]
        named = frozenset(succeeded), frozenset(failed)
        status = msgspec.structs.replace(
            status,
            succeeded=status.succeeded + len(self._uncounted.succeeded) - len(succeeded),
            failed=status.failed + len(self._uncounted.failed) - len(failed),
        )
        if self._is_indexed:
            tracked.sort(key=lambda pod: index if (index := completion_index(pod)) is not None else -1)
            status = msgspec.structs.replace(
                status,
                succeeded=len(self._succeeded_indexes),
                completed_indexes=str(self._succeeded_indexes),
                failed_indexes=None if self._failed_indexes is None else str(self._failed_indexes),
            )
        untracked: list[Pod] = []
        new_indexes = 0
        for pod in tracked:
            is_lost = is_failed(pod, self._spec)
            if not self._may_go(pod, end, is_lost):
                continue
            untracked.append(pod)
            uid = pod.metadata.uid
            if pod.status.phase == SUCCEEDED and uid not in named[1]:
                if not self._is_indexed:
                    succeeded += () if uid in named[0] else (uid,)
                else:
                    new_indexes += self._is_new_index(pod)
            elif uid not in named[1] and self._is_counted(pod, end, is_lost):
                failed.append(uid)
            if new_indexes + len(succeeded) + len(failed) >= UNCOUNTED_MAX:
                break
        uncounted = UncountedTerminatedPods(succeeded=tuple(succeeded), failed=tuple(failed))
        return msgspec.structs.replace(status, uncounted_terminated_pods=uncounted), untracked

    def _may_go(self, pod: Pod, end: End | None, is_lost: bool) -> bool:
        """Whether a pod no longer needs the finalizer."""
        if self._is_deleting or end is not None or pod.status.phase == SUCCEEDED:
            return True
        if not is_lost:
            return False
        index = completion_index(pod)
        awaiting = self._awaiting_successor.get(index) if index is not None else None
        return awaiting is None or awaiting.metadata.uid != pod.metadata.uid

    def _is_new_index(self, pod: Pod) -> bool:
        index = completion_index(pod)
        return index is not None and self._is_valid(pod) and index not in self._prior

    def _is_counted(self, pod: Pod, end: End | None, is_lost: bool) -> bool:
        """Whether a pod is a failure that counts. If the job has failed, every unfinished pod counts as failed."""
        if not is_lost and (end is None or end.is_success):
            return False
        return self._is_valid(pod) and judge(self._spec.pod_failure_policy, pod).is_counted

    # --- the last word ---

    def _conclude(
        self, status: JobStatus, end: End | None, untracked: Sequence[Pod], event: Emit | None
    ) -> tuple[JobStatus, list[Emit]]:
        """The status with the final conditions, and the events to emit once it is written."""
        told = [event] if event is not None else []
        if end is None:
            return status, told
        conditions = status.conditions
        if not is_true(status, end.interim):
            conditions = _with_condition(conditions, self._condition(end.interim, end.reason, end.message))
        uncounted = status.uncounted_terminated_pods or UncountedTerminatedPods()
        is_over = not (untracked or uncounted.succeeded or uncounted.failed or status.terminating)
        if is_over:
            conditions = _with_condition(conditions, self._condition(end.final, end.reason, end.message))
            if end.is_success:
                # The clock that set the start time may have been ahead of ours, and nothing ends before it starts.
                ended = max(status.start_time or self._now, self._now, key=seconds_of)
                status = msgspec.structs.replace(status, completion_time=ended)
                told.append(_told(self._job, NORMAL, "Completed", "Job completed"))
                if self._spec.completions is not None and status.succeeded > self._spec.completions:
                    note = "Too many succeeded pods running after completion count reached"
                    told.append(_told(self._job, WARNING, "TooManySucceededPods", note))
            else:
                told.append(_told(self._job, WARNING, end.reason, end.message))
        return msgspec.structs.replace(status, conditions=conditions), told


def _with_condition(conditions: tuple[JobCondition, ...], added: JobCondition) -> tuple[JobCondition, ...]:
    """The conditions with one replaced, or appended."""
    if any(one.type == added.type for one in conditions):
        return tuple(added if one.type == added.type else one for one in conditions)
    return (*conditions, added)


def _together(writes: Iterable[Delete | Patch]) -> tuple[Together, ...]:
    made = tuple(writes)
    return (Together(writes=made),) if made else ()
