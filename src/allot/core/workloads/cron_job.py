"""CronJobs: jobs on a schedule.

The name of a job contains its scheduled minute, so that one time never creates two jobs, even after a crash. The status is
derived from the existing jobs: a new job has an annotation with its scheduled time, which becomes the cron job's last schedule
time. The caller passes only caches that include its own writes (`controllers/cronjob.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, tzinfo

import msgspec

from allot.core.cron import Schedule, ScheduleError, parse_schedule, time_zone
from allot.core.lifecycle.actions import (
    NORMAL,
    WARNING,
    Action,
    Answers,
    Create,
    Delete,
    Emit,
    LookUp,
    RequeueAfter,
)
from allot.core.lifecycle.times import seconds_of, time_of
from allot.core.model.batch_v1 import COMPLETE, SCHEDULED_TIMESTAMP, CronJob, CronJobSpec, CronJobStatus, Job
from allot.core.model.core_v1 import ObjectReference
from allot.core.workloads.job_ends import finished_condition
from allot.core.workloads.ownership import reference_to
from allot.core.workloads.resources import JOBS
from allot.core.workloads.whole import Object, Whole

BACKGROUND = "Background"
FORBID = "Forbid"
REPLACE = "Replace"
# More missed times than this are reported.
_MISSED_MAX = 100
# Added to a due time, for clocks that differ slightly.
_DELAY_S = 0.1


# --- which time is due ---


class Due(msgspec.Struct, frozen=True):
    """The latest due time that has not been served, and approximately how many there were."""

    time: int | None
    missed: int = 0


def latest_due(schedule: Schedule, earliest_s: float, now_s: float) -> Due:
    """The latest time after the earliest and not after now. ScheduleError for a schedule that is never due."""
    first = schedule.next_after(earliest_s)
    second = schedule.next_after(first) if first is not None else None
    if first is not None and now_s < first:
        return Due(None)
    if first is not None and second is not None and now_s < second:
        return Due(first)
    between = 0 if first is None or second is None else second - first
    if first is None or between < 1:
        raise ScheduleError("time difference between two schedules is less than 1 second")
    # As if all intervals equaled the first; from shortly before the last one, the schedule itself is evaluated.
    missed = int(now_s - first) // between + 1
    latest: int | None = None
    time = schedule.next_after(first + (missed - 2) * between)
    while time is not None and time <= now_s:
        latest = time
        time = schedule.next_after(time)
    return Due(latest, missed)


def next_wait_s(cron_job: CronJob, schedule: Schedule, now_s: float) -> float:
    """Seconds until the next due time."""
    base: float
    try:
        earliest = _earliest(cron_job)
        due = latest_due(schedule, earliest, now_s)
        base = due.time if due.time is not None else now_s if due.missed else earliest
    except ScheduleError:
        base = now_s
    upcoming = schedule.next_after(base)
    # One that is never due again is checked when it changes.
    return _NEVER_S if upcoming is None else upcoming + _DELAY_S - now_s


_NEVER_S = 24 * 3600.0


def schedule_of(spec: CronJobSpec) -> Schedule:
    """The schedule in its time zone; ScheduleError if invalid."""
    return parse_schedule(spec.schedule, _zone(spec) or UTC)


def _zone(spec: CronJobSpec) -> tzinfo | None:
    return UTC if spec.time_zone is None else time_zone(spec.time_zone)


def _earliest(cron_job: CronJob) -> float:
    since = cron_job.status.last_schedule_time or cron_job.metadata.creation_timestamp
    return seconds_of(since) if since is not None else 0.0


def job_name(cron_job: str, due: int) -> str:
    """The name of the job for a time."""
    return f"{cron_job}-{due // 60}"


def due_of(cron_job: str, job: Job) -> float | None:
    """The time that a job was created for; None if it was not created by the schedule."""
    text = job.metadata.annotations.get(SCHEDULED_TIMESTAMP, "")
    try:
        due = datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError):
        return None
    return due if job.metadata.name == job_name(cron_job, int(due)) else None


# --- what to do ---


def reconcile_cron_job(
    cron_job: Whole[CronJob], jobs: Sequence[Whole[Job]], answers: Answers, now_s: float
) -> Sequence[Action]:
    """What to do for a cron job now. jobs: all that it controls."""
    return _Sync(cron_job, jobs, answers, now_s).run()


class _Sync:
    """One pass over a cron job and its jobs."""

    def __init__(self, cron_job: Whole[CronJob], jobs: Sequence[Whole[Job]], answers: Answers, now_s: float) -> None:
        self._cron_job = cron_job
        self._metadata = cron_job.metadata
        self._spec = cron_job.value.spec
        self._status = cron_job.value.status
        self._jobs = sorted(jobs, key=lambda job: job.metadata.name)
        self._answers = answers
        self._now_s = now_s

    def run(self) -> Sequence[Action]:
        questions = self._missing_jobs()
        if questions:
            return questions
        old = self._superseded()
        status, told = self._seen(frozenset(job.metadata.uid for job in old))
        actions: list[Action] = [self._delete(job) for job in old]
        if status != self._status:
            # Only an up-to-date status decides what is due.
            return (*actions, self._cron_job.update_status(status), *told)
        return (*actions, *told, *self._start())

    # --- the jobs that there are ---

    def _missing_jobs(self) -> list[Action]:
        """Lookups of jobs that the status names but the cache lacks."""
        known = {job.metadata.uid for job in self._jobs}
        questions = (self._question(active) for active in self._status.active if active.uid not in known)
        return [question for question in questions if question not in self._answers]

    def _question(self, active: ObjectReference) -> LookUp:
        return LookUp(resource=JOBS, name=active.name, namespace=active.namespace or self._metadata.namespace)

    def _seen(self, deleted: frozenset[str]) -> tuple[CronJobStatus, list[Emit]]:
        """The status according to the jobs, and events about them. deleted: those about to be deleted."""
        told: list[Emit] = []
        active = [one for one in self._status.active if one.uid not in deleted]
        names = {one.uid for one in active}
        scheduled, successful = self._status.last_schedule_time, self._status.last_successful_time
        for job in self._jobs:
            uid, name = job.metadata.uid, job.metadata.name
            finished = finished_condition(job.value)
            due = due_of(self._metadata.name, job.value)
            if due is not None and (scheduled is None or seconds_of(scheduled) < due):
                scheduled = time_of(due)
                if finished is None and job.metadata.deletion_timestamp is None and uid not in names:
                    active.append(_reference(job))
                    names.add(uid)
            if finished is None:
                if uid not in names and job.metadata.deletion_timestamp is None:
                    note = f"Saw a job that the controller did not create or forgot: {name}"
                    told.append(self._told(WARNING, "UnexpectedJob", note))
                continue
            if uid in names:
                active = [one for one in active if one.uid != uid]
                note = f"Saw completed job: {name}, condition: {finished.type}"
                told.append(self._told(NORMAL, "SawCompletedJob", note))
            ended = job.value.status.completion_time
            if finished.type == COMPLETE and ended is not None and (successful is None or ended > successful):
                successful = ended
        known = {job.metadata.uid for job in self._jobs}
        for one in tuple(active):
            if one.uid not in known and self._answers.get(self._question(one)) is None:
                active.remove(one)
                told.append(self._told(NORMAL, "MissingJob", f"Active job went missing: {one.name}"))
        changed = msgspec.structs.replace(
            self._status, active=tuple(active), last_schedule_time=scheduled, last_successful_time=successful
        )
        return changed, told

    def _superseded(self) -> list[Whole[Job]]:
        """Finished jobs beyond the history limits, oldest first."""
        found: list[Whole[Job]] = []
        limits = {True: self._spec.successful_jobs_history_limit, False: self._spec.failed_jobs_history_limit}
        for is_success, limit in limits.items():
            if limit is None:
                continue
            finished = [job for job in self._jobs if self._is_kept(job, is_success)]
            finished.sort(key=_by_start)
            found += finished[: max(len(finished) - limit, 0)]
        return found

    def _is_kept(self, job: Whole[Job], is_success: bool) -> bool:
        condition = finished_condition(job.value)
        return (
            condition is not None
            and (condition.type == COMPLETE) == is_success
            and job.metadata.deletion_timestamp is None
        )

    def _delete(self, job: Whole[Job]) -> Delete:
        name = job.metadata.name
        return Delete(
            resource=JOBS,
            name=name,
            namespace=job.metadata.namespace,
            uid=job.metadata.uid,
            propagation_policy=BACKGROUND,
            on_success=self._told(NORMAL, "SuccessfulDelete", f"Deleted job {name}"),
            on_failure=self._told(WARNING, "FailedDelete", "Deleted job: "),
        )

    # --- the next one ---

    def _start(self) -> Sequence[Action]:
        """The job that is due, or when to check again."""
        if self._metadata.deletion_timestamp is not None:
            return ()
        zone = _zone(self._spec)
        if zone is None:
            name = self._spec.time_zone
            return (self._told(WARNING, "UnknownTimeZone", f'invalid timeZone: "{name}": unknown time zone {name}'),)
        if self._spec.suspend:
            return ()
        told: list[Action] = []
        if "TZ" in self._spec.schedule:
            note = (
                f'CRON_TZ or TZ used in schedule "{self._spec.schedule}" is not officially supported, see '
                "https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details"
            )
            told.append(self._told(WARNING, "UnsupportedSchedule", note))
        try:
            schedule = schedule_of(self._spec)
        except ScheduleError as error:
            note = f'unparseable schedule: "{self._spec.schedule}" : {error}'
            return (*told, self._told(WARNING, "UnparseableSchedule", note))
        try:
            due = self._due(schedule)
        except ScheduleError as error:
            return (*told, self._told(WARNING, "InvalidSchedule", f"invalid schedule: {self._spec.schedule} : {error}"))
        if due.missed > _MISSED_MAX and due.time is not None:
            note = "too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew"
            told.append(self._told(WARNING, "TooManyMissedTimes", note))
        later = RequeueAfter(seconds=next_wait_s(self._cron_job.value, schedule, self._now_s))
        started = () if due.time is None else self._make(due.time, zone)
        if any(isinstance(action, LookUp) for action in started):
            return started
        return (*told, *started, later)

    def _due(self, schedule: Schedule) -> Due:
        earliest = _earliest(self._cron_job.value)
        if self._spec.starting_deadline_seconds is not None:
            earliest = max(earliest, self._now_s - self._spec.starting_deadline_seconds)
        return latest_due(schedule, earliest, self._now_s)

    def _make(self, due: int, zone: tzinfo) -> Sequence[Action]:
        deadline = self._spec.starting_deadline_seconds
        if deadline is not None and due + deadline < self._now_s:
            shown = datetime.fromtimestamp(due, UTC).strftime("%a, %d %b %Y %H:%M:%S %z")
            return (self._told(WARNING, "MissSchedule", f"Missed scheduled time to start a job: {shown}"),)
        name = job_name(self._metadata.name, due)
        if any(one.name == name for one in self._status.active) or self._is_served(due):
            return ()
        if self._spec.concurrency_policy == FORBID and self._status.active:
            note = "Not starting job because prior execution is running and concurrency policy is Forbid"
            return (self._told(NORMAL, "JobAlreadyActive", note),)
        question = LookUp(resource=JOBS, name=name, namespace=self._metadata.namespace)
        if question not in self._answers:
            return (question,)
        if self._answers[question] is not None:
            # Created before, and about to appear in the cache. Or it belongs to someone else, and this time is skipped.
            return ()
        actions: list[Action] = []
        if self._spec.concurrency_policy == REPLACE and self._status.active:
            running = {one.uid for one in self._status.active}
            actions += [self._delete(job) for job in self._jobs if job.metadata.uid in running]
            actions.append(self._cron_job.update_status(msgspec.structs.replace(self._status, active=())))
        return (*actions, self._create(name, due, zone))

    def _is_served(self, due: int) -> bool:
        last = self._status.last_schedule_time
        return last is not None and seconds_of(last) == due

    def _create(self, name: str, due: int, zone: tzinfo) -> Create:
        template = self._spec.job_template.value()
        given: Object = template.get("metadata") or {}
        at = datetime.fromtimestamp(due, zone).isoformat().replace("+00:00", "Z")
        metadata = {
            "name": name,
            "namespace": self._metadata.namespace,
            "labels": dict(given.get("labels") or {}),
            "annotations": {**(given.get("annotations") or {}), SCHEDULED_TIMESTAMP: at},
            "ownerReferences": [reference_to(self._cron_job.resource, self._metadata)],
        }
        return Create(
            resource=JOBS,
            object={"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": template.get("spec") or {}},
            namespace=self._metadata.namespace,
            on_success=self._told(NORMAL, "SuccessfulCreate", f"Created job {name}"),
            on_failure=self._told(WARNING, "FailedCreate", "Error creating job: "),
        )

    def _told(self, type_: str, reason: str, note: str) -> Emit:
        return Emit(regarding=self._cron_job.reference, type=type_, reason=reason, action=reason, note=note)


def _by_start(job: Whole[Job]) -> tuple[bool, str, str]:
    start = job.value.status.start_time
    return start is None, start or "", job.metadata.name


def _reference(job: Whole[Job]) -> ObjectReference:
    metadata = job.metadata
    return ObjectReference(
        api_version=JOBS.api_version,
        kind=JOBS.kind,
        namespace=metadata.namespace,
        name=metadata.name,
        uid=metadata.uid,
        resource_version=metadata.resource_version,
    )
