"""Jobs and CronJobs: failed, suspended, held back, or not due."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime

from msgspec.structs import replace

from allot.core.advice.explain.causes.containers import (
    OOM,
    default_text,
    ended_advice,
    last_words,
    memory_limit,
    more_memory_advice,
    with_meaning,
)
from allot.core.advice.explain.causes.containers import ended as ended_text
from allot.core.advice.explain.causes.kinship import origin
from allot.core.advice.explain.causes.kueue import held_by_kueue, queue_of, workload_of
from allot.core.advice.explain.messages.table import shortened
from allot.core.advice.explain.remedies.templates import of_workload
from allot.core.advice.explain.report import Explanation, Reason, State
from allot.core.advice.explain.wording import count, duration
from allot.core.advice.explain.workloads.scene import (
    Scene,
    as_wanted,
    budgets,
    held_back,
    left_alone,
    live_pods,
    not_as_wanted,
    not_created,
    of_pod,
)
from allot.core.cron import Schedule, ScheduleError, time_zone
from allot.core.lifecycle.times import seconds_of
from allot.core.model import core_v1
from allot.core.model.batch_v1 import CronJob, Job, JobCondition
from allot.core.model.codec import DecodeError, decode_served
from allot.core.workloads.cron_job import latest_due, schedule_of
from allot.core.workloads.pod_templates import template_value

_CONTROLLER = "kubernetes.io/job-controller"
_BACKOFF_LIMIT = 6
# SIGTERM, and SIGKILL after the grace period.
_STOPPED = (143, 137)
_AGAIN = re.compile(r", and recreate (?:it|the pod)$")
_EXIT_CODE = re.compile(r"exit code (?P<code>\d+)")
# A running controller is never this late.
_LATE_S = 60.0


# --- Job ---


def explain_job(scene: Scene, found: Job, *, briefly: bool) -> Explanation:
    """Why a Job has not completed."""
    kind, spec, status = "Job", found.spec, found.status
    done = _condition(found, "Complete")
    if done is not None:
        return as_wanted(kind, found, f"has completed: {count(status.succeeded, 'pod')} succeeded", Reason.ENDED)
    failed = _condition(found, "Failed") or _condition(found, "FailureTarget")
    if failed is not None:
        return _failed(scene, found, failed)
    if spec.managed_by is not None and spec.managed_by != _CONTROLLER:
        return as_wanted(kind, found, f"is managed by {spec.managed_by} (spec.managedBy)")
    if spec.suspend and _is_queued(scene, found):
        return _in_queue(scene, found)
    if spec.suspend:
        resume = f'kubectl patch job {found.metadata.name} -n {found.metadata.namespace} -p \'{{"spec":{{"suspend":false}}}}\''
        return not_as_wanted(
            kind, found, Reason.SUSPENDED, "is suspended (spec.suspend): it creates no pods", advice=(resume,)
        )
    if spec.parallelism == 0:
        text = f"has {status.succeeded} of {count(_completions(found), 'completion')}: its parallelism is 0, so it creates no pods"
        advice = (f"set spec.parallelism of Job {found.metadata.name} to how many pods may run at once",)
        return not_as_wanted(kind, found, Reason.SUSPENDED, text, advice=advice)
    if status.start_time is None and not status.conditions:
        text = "has not been processed by any controller since it was created"
        return left_alone(scene, kind, found, text, "job-controller")
    pods = scene.owned_by(core_v1.Pod, found)
    progress = f"has {status.succeeded} of {count(_completions(found), 'completion')}"
    held = held_back(scene, pods, briefly=briefly)
    if held is not None:
        made = not_as_wanted(kind, found, held.explanation.reason, f"{progress}: {held.text}")
        return of_pod(made, held.explanation, budgets(scene, pods))
    live, wanted = len(live_pods(pods)), _at_once(found)
    some = f"{progress} and only {live} of {count(wanted, 'pod')}" if live else progress
    refused = not_created(scene, kind, found, some, lacking=wanted - live) if live < wanted or not live else None
    if refused is not None:
        return refused
    if live:
        return as_wanted(kind, found, f"{progress} and {count(live, 'pod')} running")
    if status.failed:
        limit = _BACKOFF_LIMIT if spec.backoff_limit is None else spec.backoff_limit
        text = f"{progress}: it waits before it tries again ({count(status.failed, 'pod')} failed{_last_end(scene, found)}, backoffLimit {limit})"
        return not_as_wanted(kind, found, Reason.BACK_OFF, text, advice=_remedies(scene, found) or _logs(scene, found))
    return not_as_wanted(kind, found, Reason.PROGRESSING, f"{progress}: its controller is working on it")


def _at_once(found: Job) -> int:
    """How many pods a Job wants to have now: no more than it has completions left."""
    parallelism = 1 if found.spec.parallelism is None else found.spec.parallelism
    if found.spec.completions is None:
        return parallelism
    return min(parallelism, max(0, found.spec.completions - found.status.succeeded))


def _is_queued(scene: Scene, found: Job) -> bool:
    """Whether Kueue suspended a Job and will resume it."""
    return bool(queue_of(found.metadata)) or workload_of(scene.what_if, found.metadata) is not None


def _in_queue(scene: Scene, found: Job) -> Explanation:
    held = held_by_kueue(scene.what_if, "Job", found.metadata, _containers(found))
    queue = queue_of(found.metadata)
    text = f"is suspended until Kueue admits it{f' from queue {queue}' if queue else ''}"
    text += f": {held.text}" if held.text else ", which it has not done yet"
    return not_as_wanted("Job", found, Reason.SUSPENDED, text, advice=(held.advice, *held.others))


def _containers(found: Job) -> list[core_v1.Container]:
    """The containers of all concurrent pods, as far as the template can be read."""
    template = template_value(found.spec.template) if found.spec.template is not None else {}
    try:
        spec = decode_served(template.get("spec") or {}, core_v1.PodSpec)
    except DecodeError:
        return []
    return list(spec.containers) * (1 if found.spec.parallelism is None else found.spec.parallelism)


def _completions(found: Job) -> int:
    if found.spec.completions is not None:
        return found.spec.completions
    return 1 if found.spec.parallelism is None else found.spec.parallelism


def _condition(found: Job, type_: str) -> JobCondition | None:
    return next((each for each in found.status.conditions if each.type == type_ and each.status == "True"), None)


def _failed(scene: Scene, found: Job, failed: JobCondition) -> Explanation:
    status = found.status
    text = f"has failed ({failed.reason}): {failed.message}{_last_end(scene, found)}"
    details = []
    if failed.reason == "BackoffLimitExceeded":
        limit = _BACKOFF_LIMIT if found.spec.backoff_limit is None else found.spec.backoff_limit
        details.append(f"{count(status.failed, 'pod')} failed; backoffLimit is {limit}")
    advice: tuple[str, ...] = ()
    if failed.reason == "DeadlineExceeded":
        text += f" (activeDeadlineSeconds: {found.spec.active_deadline_seconds})"
        advice = (
            f"raise activeDeadlineSeconds of Job {found.metadata.name}, or see why it takes so long, and recreate it",
        )
    if failed.reason == "PodFailurePolicy":
        code = _EXIT_CODE.search(failed.message)
        what = f"exit code {code['code']}" if code is not None else "that failure"
        advice = (
            f"fix what ends with {what}, or let the Job retry it (action: Count instead of FailJob in podFailurePolicy of Job {found.metadata.name}), and recreate "
            "the Job",
        )
    if status.failed_indexes:
        details.append(f"failed indexes: {status.failed_indexes}")
    fixes, logs = _remedies(scene, found), _logs(scene, found)
    maker = origin(scene.what_if, found.metadata)
    by_schedule = maker is not None and maker.kind == "CronJob"
    what = "Job" if maker is None or by_schedule else maker.kind
    again = f"recreate the {what} when that is fixed: a failed {what} does not restart"
    if fixes and not by_schedule:
        fixes = (f"{fixes[0]}, and recreate the {what}: a failed {what} does not restart", *fixes[1:])
    if fixes:
        advice = (*advice, *fixes)
    else:
        advice = (*advice, *logs) if advice else (*logs, again)
    return not_as_wanted("Job", found, Reason.JOB_FAILED, text, details=details, advice=advice)


def _failed_pods(scene: Scene, found: Job) -> list[core_v1.Pod]:
    """In the order in which they failed; those that were stopped because another one had failed come first."""
    pods = [pod for pod in scene.owned_by(core_v1.Pod, found) if pod.status.phase == "Failed"]
    return sorted(
        pods, key=lambda pod: (not _was_stopped(pod), pod.metadata.creation_timestamp or "", pod.metadata.name)
    )


def _was_stopped(pod: core_v1.Pod) -> bool:
    """Whether every container that failed was ended by a signal from its kubelet."""
    ended = [each.state.terminated for each in pod.status.container_statuses if each.state is not None]
    failed = [each for each in ended if each is not None and each.exit_code]
    return bool(failed) and all(each.exit_code in _STOPPED and each.reason != OOM for each in failed)


def _last_end(scene: Scene, found: Job) -> str:
    """How the last pod failed."""
    pods = _failed_pods(scene, found)
    if not pods:
        return ""
    pod = pods[-1]
    for status in (*pod.status.init_container_statuses, *pod.status.container_statuses):
        ended = status.state.terminated if status.state is not None else None
        if ended is not None and ended.exit_code:
            why = f", {ended.reason}" if ended.reason and ended.reason != "Error" else ""
            limit = memory_limit(pod, status.name) if ended.reason == OOM else ""
            why += f" (memory limit {limit})" if limit else ""
            meaning = last_words(scene.what_if, pod, status.name, ended.message) if ended.message else None
            said = meaning.shown if meaning is not None else shortened(ended.message)
            told = f": {said}" if said else ""
            text = f"; container {status.name} of pod {pod.metadata.name} ended with exit code {ended.exit_code}{why}{told}"
            text += default_text(scene.what_if, pod, status.name) if limit else ""
            return with_meaning(text, meaning)
    if pod.status.reason:
        return f"; pod {pod.metadata.name} {ended_text(scene.what_if, pod)}"
    return f"; pod {pod.metadata.name} failed{f': {pod.status.message}' if pod.status.message else ''}"


def _remedies(scene: Scene, found: Job) -> tuple[str, ...]:
    """For a container that was killed for using too much memory, or whose last message is known."""
    for pod in _failed_pods(scene, found)[-1:]:
        for status in (*pod.status.init_container_statuses, *pod.status.container_statuses):
            ended = status.state.terminated if status.state is not None else None
            if ended is not None and ended.reason == OOM:
                return _in_job(scene, found, more_memory_advice(scene.what_if, pod, status.name))
            if ended is not None and ended.exit_code and ended.message:
                meaning = last_words(scene.what_if, pod, status.name, ended.message)
                return _in_job(scene, found, meaning.advice) if meaning is not None else ()
        # What a kubelet rejected or evicted has no log. The Job itself creates the pod again.
        advice = [_AGAIN.sub("", each) for each in ended_advice(scene.what_if, pod) if not each.startswith("recreate")]
        return _in_job(scene, found, advice)
    return ()


def _in_job(scene: Scene, found: Job, advice: Sequence[str]) -> tuple[str, ...]:
    """Changes to the Job, or to what makes it, instead of its pod."""
    maker = origin(scene.what_if, found.metadata)
    owner = f"{maker.kind} {maker.name}" if maker is not None else f"Job {found.metadata.name}"
    return tuple(of_workload(each, owner, "") for each in advice)


def _logs(scene: Scene, found: Job) -> tuple[str, ...]:
    pods = _failed_pods(scene, found)
    if not pods:
        return ()
    log = f"kubectl logs -n {found.metadata.namespace} {pods[-1].metadata.name}"
    told = _last_words(pods[-1])
    return (f"fix what {told} reports; its log may say more: {log}" if told else f"see its log: {log}",)


def _last_words(pod: core_v1.Pod) -> str:
    """The container of a pod that said why it failed; empty if none did."""
    for status in (*pod.status.init_container_statuses, *pod.status.container_statuses):
        ended = status.state.terminated if status.state is not None else None
        if ended is not None and ended.exit_code and ended.message:
            return f"container {status.name}"
    return ""


# --- CronJob ---


def explain_cron_job(scene: Scene, found: CronJob, *, briefly: bool) -> Explanation:
    """Why a CronJob does not run, or how its last run ended."""
    kind, spec, status = "CronJob", found.spec, found.status
    if spec.time_zone is not None and time_zone(spec.time_zone) is None:
        text = f'has a time zone that does not exist (spec.timeZone "{spec.time_zone}"): it never runs'
        return not_as_wanted(kind, found, Reason.SCHEDULE_INVALID, text)
    try:
        schedule = schedule_of(spec)
    except ScheduleError as error:
        text = f'has an invalid schedule (spec.schedule "{spec.schedule}"): {error}'
        return not_as_wanted(kind, found, Reason.SCHEDULE_INVALID, text)
    if spec.suspend:
        resume = f'kubectl patch cronjob {found.metadata.name} -n {found.metadata.namespace} -p \'{{"spec":{{"suspend":false}}}}\''
        return not_as_wanted(
            kind, found, Reason.SUSPENDED, "is suspended (spec.suspend): it creates no jobs", advice=(resume,)
        )
    jobs = scene.owned_by(Job, found)
    active = [job for job in jobs if job.metadata.name in {each.name for each in status.active}]
    for job in active:
        last = explain_job(scene, job, briefly=briefly)
        if last.state is State.NOT_AS_WANTED:
            forbids = (
                "; with concurrencyPolicy Forbid, no other job starts before it ends"
                if spec.concurrency_policy == "Forbid"
                else ""
            )
            text = f"waits for its job: {last.cause}{forbids}"
            reason = Reason.STILL_RUNNING if forbids else last.reason
            return of_pod(not_as_wanted(kind, found, reason, text), last)
    now = scene.what_if.taken_at
    since = status.last_schedule_time or found.metadata.creation_timestamp
    if now is not None and since is not None:
        missed = _missed(scene, found, _due(schedule, seconds_of(since), now), now, bool(active))
        if missed is not None:
            return missed
    finished = [job for job in jobs if _condition(job, "Complete") or _condition(job, "Failed")]
    newest = max(finished, key=lambda job: str(job.status.start_time or ""), default=None)
    if newest is not None and _condition(newest, "Failed") is not None:
        last = explain_job(scene, newest, briefly=briefly)
        return of_pod(not_as_wanted(kind, found, last.reason, f"runs, and its last job failed: {last.cause}"), last)
    running = f", {count(len(active), 'job')} running" if active else ""
    upcoming = schedule.next_after(now) if now is not None else None
    when = f", next at {_time(upcoming)}" if upcoming is not None else ""
    return as_wanted(kind, found, f"runs on schedule{running}{when}")


def _due(schedule: Schedule, since_s: float, now_s: float) -> int | None:
    """A missed run."""
    try:
        return latest_due(schedule, since_s, now_s).time
    except ScheduleError:
        return None


def _missed(scene: Scene, found: CronJob, due: int | None, now_s: float, is_active: bool) -> Explanation | None:
    spec = found.spec
    if due is None or now_s - due < _LATE_S:
        return None
    if is_active and spec.concurrency_policy == "Forbid":
        text = (
            f"did not start a job at {_time(due)} because the previous one is still running and concurrencyPolicy is Forbid "
            f"({', '.join(each.name for each in found.status.active)})"
        )
        advice = ("set concurrencyPolicy: Allow or Replace, or give jobs a deadline (activeDeadlineSeconds)",)
        return not_as_wanted("CronJob", found, Reason.STILL_RUNNING, text, advice=advice)
    deadline = spec.starting_deadline_seconds
    late = f"missed its run at {_time(due)}, {duration(int(now_s - due))} ago"
    if deadline is not None and now_s - due > deadline:
        text = f"{late}: startingDeadlineSeconds ({deadline}) has passed, so it waits for the next one"
        return not_as_wanted("CronJob", found, Reason.SCHEDULE_MISSED, text)
    events = scene.events("CronJob", found, "FailedCreate")
    if events:
        return not_as_wanted("CronJob", found, Reason.PODS_NOT_CREATED, f"{late}: {events[0].message}")
    alone = left_alone(scene, "CronJob", found, f"{late}: no controller has started it", "cronjob-controller")
    return replace(alone, reason=Reason.SCHEDULE_MISSED) if alone.reason is Reason.NOT_OBSERVED else alone


def _time(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
