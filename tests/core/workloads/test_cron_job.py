"""Cron jobs: which time is due, which job is made, and what the status says of those that there are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

from allot.core.cron import ScheduleError, parse_schedule, time_zone
from allot.core.lifecycle.actions import Action, Create, Delete, Emit, LookUp, RequeueAfter, Update
from allot.core.lifecycle.times import time_of
from allot.core.model.batch_v1 import SCHEDULED_TIMESTAMP, CronJob, Job
from allot.core.workloads.cron_job import Due, job_name, latest_due, next_wait_s, reconcile_cron_job
from allot.core.workloads.resources import CRON_JOBS, JOBS
from allot.core.workloads.whole import Whole, whole

Object = dict[str, Any]


def at(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


HOUR = at("2024-05-20 10:00")
NOW = HOUR + 0.5


def cron_job(
    schedule: str = "0 * * * *", status: Object | None = None, created: float = HOUR - 600, **spec: Any
) -> Whole[CronJob]:
    template = {
        "metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}},
        "spec": {"template": {"spec": {"containers": []}}},
    }
    given = {"schedule": schedule, "concurrencyPolicy": "Allow", "suspend": False, "jobTemplate": template}
    given |= {"successfulJobsHistoryLimit": 3, "failedJobsHistoryLimit": 1, **spec}
    metadata = {
        "name": "nightly",
        "namespace": "default",
        "uid": "cj",
        "resourceVersion": "5",
        "creationTimestamp": time_of(created),
    }
    return whole(CRON_JOBS, CronJob, {"metadata": metadata, "spec": given, "status": status or {}})


def job(due: float, end: str = "", *, started: float | None = None, name: str = "", **metadata: Any) -> Whole[Job]:
    """A job made for a time; end: Complete or Failed."""
    head: Object = {
        "name": name or job_name("nightly", int(due)),
        "namespace": "default",
        "uid": f"job-{name or int(due)}",
        "resourceVersion": "9",
        "annotations": {} if name else {SCHEDULED_TIMESTAMP: time_of(due)},
        **metadata,
    }
    status: Object = {"startTime": time_of(started if started is not None else due)}
    if end:
        status["conditions"] = [{"type": end, "status": "True"}]
    if end == "Complete":
        status["completionTime"] = time_of(due + 60)
    return whole(JOBS, Job, {"metadata": head, "spec": {}, "status": status})


def reference(made: Whole[Job]) -> Object:
    return {
        "kind": "Job",
        "namespace": "default",
        "name": made.metadata.name,
        "uid": made.metadata.uid,
        "apiVersion": "batch/v1",
    }


def reconcile(
    made: Whole[CronJob], *jobs: Whole[Job], now: float = NOW, live: Mapping[str, Any] | None = None
) -> Sequence[Action]:
    """What is to be done, with all questions answered; live: what the server has, by name."""
    answers: dict[LookUp, Any] = {}
    for _ in range(5):
        actions = reconcile_cron_job(made, jobs, answers, now)
        questions = [action for action in actions if isinstance(action, LookUp)]
        if not questions:
            return actions
        answers |= {question: (live or {}).get(question.name) for question in questions}
    raise AssertionError("still asking")


def created(actions: Sequence[Action]) -> list[str]:
    return [action.object["metadata"]["name"] for action in actions if isinstance(action, Create)]  # type: ignore[index]


def events(actions: Sequence[Action]) -> list[tuple[str, str]]:
    return [(action.reason, action.note) for action in actions if isinstance(action, Emit)]


def status(actions: Sequence[Action]) -> Object | None:
    found = [dict(action.object["status"]) for action in actions if isinstance(action, Update)]  # type: ignore[index,call-overload]
    return found[0] if found else None


def wait(actions: Sequence[Action]) -> float | None:
    return next((action.seconds for action in actions if isinstance(action, RequeueAfter)), None)


# --- which time is due ---


@pytest.mark.parametrize(
    ("schedule", "earliest", "now", "time", "missed"),
    [
        ("0 * * * *", "2024-05-20 09:30", "2024-05-20 09:59", None, 0),
        ("0 * * * *", "2024-05-20 09:30", "2024-05-20 10:00", "2024-05-20 10:00", 0),
        ("0 * * * *", "2024-05-20 10:00", "2024-05-20 10:30", None, 0),
        # Of several the latest.
        ("0 * * * *", "2024-05-20 09:30", "2024-05-20 12:10", "2024-05-20 12:00", 3),
        ("*/5 * * * *", "2024-05-20 09:31", "2024-05-20 10:03", "2024-05-20 10:00", 6),
        ("* * * * *", "2024-05-20 00:00", "2024-05-20 02:00", "2024-05-20 02:00", 120),
        # Distances that are not all the same.
        ("30 6-16/4 * * 1-5", "2024-05-24 14:31", "2024-05-27 10:31", "2024-05-27 10:30", 2),
        ("0 0 29 2 *", "2019-01-01 00:00", "2024-05-20 00:00", "2024-02-29 00:00", 2),
        ("@every 1h", "2024-05-20 09:12:34", "2024-05-20 12:00", "2024-05-20 11:12:34", 2),
    ],
)
def test_the_latest_time_that_is_due(schedule: str, earliest: str, now: str, time: str | None, missed: int) -> None:
    found = latest_due(parse_schedule(schedule), at(earliest), at(now))
    assert found.time == (None if time is None else at(time))
    assert found.missed == missed


def test_a_schedule_that_is_never_due_is_told_apart() -> None:
    with pytest.raises(ScheduleError, match="time difference between two schedules is less than 1 second"):
        latest_due(parse_schedule("59 23 31 2 *"), HOUR, NOW)


def test_the_wait_ends_just_behind_the_next_time() -> None:
    made = cron_job(status={"lastScheduleTime": time_of(HOUR)}).value
    assert next_wait_s(made, parse_schedule("0 * * * *"), HOUR + 600) == pytest.approx(3000.1)


def test_a_time_in_a_zone() -> None:
    zone = time_zone("America/New_York")
    assert zone is not None
    assert latest_due(parse_schedule("0 6 * * *", zone), HOUR - 600, HOUR) == Due(int(HOUR))


# --- the job ---


def test_the_job_that_is_due_is_made() -> None:
    actions = reconcile(cron_job(timeZone="Asia/Tokyo"))
    (made,) = [action for action in actions if isinstance(action, Create)]
    assert isinstance(made.object, dict)
    metadata = made.object["metadata"]
    assert metadata["name"] == f"nightly-{int(HOUR) // 60}"
    assert metadata["labels"] == {"a": "b"}
    assert metadata["annotations"] == {"c": "d", SCHEDULED_TIMESTAMP: "2024-05-20T19:00:00+09:00"}
    (owner,) = metadata["ownerReferences"]
    assert (owner["kind"], owner["uid"], owner["controller"]) == ("CronJob", "cj", True)
    assert made.object["spec"] == {"template": {"spec": {"containers": []}}}
    assert made.on_success is not None and made.on_success.note == f"Created job {metadata['name']}"
    assert wait(actions) == pytest.approx(3599.6)


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        (cron_job(suspend=True), None),
        (cron_job(status={"lastScheduleTime": time_of(HOUR)}), None),
        (cron_job(created=HOUR + 60), None),
        (cron_job(timeZone="Nowhere/Land"), ("UnknownTimeZone", 'invalid timeZone: "Nowhere/Land": unknown time zone Nowhere/Land')),
        (cron_job("* * *"), ("UnparseableSchedule", 'unparseable schedule: "* * *" : expected exactly 5 fields, found 3: [* * *]')),
        (cron_job("0 0 31 2 *"),
         ("InvalidSchedule", "invalid schedule: 0 0 31 2 * : time difference between two schedules is less than 1 second")),
    ],
)  # fmt: skip
def test_when_none_is_made(made: Whole[CronJob], reason: tuple[str, str] | None) -> None:
    actions = reconcile(made)
    assert created(actions) == []
    assert events(actions) == ([] if reason is None else [reason])


def test_a_job_that_is_there_already_is_not_made_twice_whoever_made_it() -> None:
    name = job_name("nightly", int(HOUR))
    assert created(reconcile(cron_job(), live={name: {"metadata": {"name": name, "uid": "x"}}})) == []


def test_too_late_is_too_late() -> None:
    # The job of ten o'clock could have been started until 10:10.
    actions = reconcile(cron_job(startingDeadlineSeconds=600), now=HOUR + 599)
    assert created(actions) == [job_name("nightly", int(HOUR))]
    assert created(reconcile(cron_job(startingDeadlineSeconds=600), now=HOUR + 601)) == []


def test_many_missed_times_are_told_of_and_the_latest_is_made_up_for() -> None:
    made = cron_job("* * * * *", created=HOUR - 101 * 60 - 30)
    actions = reconcile(made, now=HOUR + 1)
    note = "too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew"
    assert events(actions) == [("TooManyMissedTimes", note)]
    assert created(actions) == [job_name("nightly", int(HOUR))]
    assert events(reconcile(cron_job("* * * * *", created=HOUR - 50 * 60))) == []


@pytest.mark.parametrize(
    ("policy", "is_made", "is_deleted", "reason"),
    [("Allow", True, False, None), ("Forbid", False, False, "JobAlreadyActive"), ("Replace", True, True, None)],
)
def test_one_that_still_runs(policy: str, is_made: bool, is_deleted: bool, reason: str | None) -> None:
    running = job(HOUR - 3600)
    before = {"active": [reference(running)], "lastScheduleTime": time_of(HOUR - 3600)}
    actions = reconcile(cron_job(status=before, concurrencyPolicy=policy), running)
    assert bool(created(actions)) == is_made
    deleted = [action for action in actions if isinstance(action, Delete)]
    assert bool(deleted) == is_deleted
    assert [name for name, _ in events(actions)] == ([reason] if reason else [])
    if is_deleted:
        assert (deleted[0].uid, deleted[0].propagation_policy) == (running.metadata.uid, "Background")
        # The old one is out of the status before the new one is made.
        assert [type(action).__name__ for action in actions] == ["Delete", "Update", "Create", "RequeueAfter"]
        assert (status(actions) or {}).get("active") is None


# --- the jobs that there are ---


def test_a_new_job_is_written_down_with_its_time() -> None:
    new = job(HOUR)
    actions = reconcile(cron_job(), new)
    assert created(actions) == [] and events(actions) == []
    found = status(actions)
    assert found is not None and found["lastScheduleTime"] == time_of(HOUR)
    (active,) = found["active"]
    assert active == {**reference(new), "resourceVersion": "9"}
    # One that has ended meanwhile was scheduled all the same.
    found = status(reconcile(cron_job(), job(HOUR, "Failed")))
    assert found is not None and "active" not in found and found["lastScheduleTime"] == time_of(HOUR)


@pytest.mark.parametrize("end", ["Complete", "Failed"])
def test_a_job_that_has_ended_is_taken_from_the_list(end: str) -> None:
    done = job(HOUR, end)
    before = {"active": [reference(done)], "lastScheduleTime": time_of(HOUR)}
    actions = reconcile(cron_job(status=before), done)
    assert events(actions) == [("SawCompletedJob", f"Saw completed job: {done.metadata.name}, condition: {end}")]
    found = status(actions)
    assert found is not None and "active" not in found
    assert found.get("lastSuccessfulTime") == (time_of(HOUR + 60) if end == "Complete" else None)


def test_a_job_that_is_gone_is_taken_from_the_list_if_the_server_says_so() -> None:
    gone = job(HOUR)
    before = {"active": [reference(gone)], "lastScheduleTime": time_of(HOUR)}
    actions = reconcile(cron_job(status=before))
    assert events(actions) == [("MissingJob", f"Active job went missing: {gone.metadata.name}")]
    live = {gone.metadata.name: {"metadata": {"uid": gone.metadata.uid}}}
    assert events(reconcile(cron_job(status=before), live=live)) == []


def test_a_job_from_elsewhere_is_told_of() -> None:
    made = cron_job(status={"lastScheduleTime": time_of(HOUR)})
    actions = reconcile(made, job(HOUR, name="by-hand"))
    assert events(actions) == [("UnexpectedJob", "Saw a job that the controller did not create or forgot: by-hand")]
    assert status(actions) is None


def test_old_ones_are_deleted_beyond_the_limits() -> None:
    done = [job(HOUR - 3600 * hours, "Complete") for hours in range(5)]
    failed = [job(HOUR - 3600 * hours, "Failed") for hours in range(10, 13)]
    made = cron_job(status={"lastScheduleTime": time_of(HOUR), "lastSuccessfulTime": time_of(HOUR + 60)})
    deleted = [action.name for action in reconcile(made, *done, *failed) if isinstance(action, Delete)]
    expected = [done[4], done[3], failed[2], failed[1]]
    assert deleted == [one.metadata.name for one in expected]
    unlimited = cron_job(
        status={"lastScheduleTime": time_of(HOUR), "lastSuccessfulTime": time_of(HOUR + 60)},
        successfulJobsHistoryLimit=None,
        failedJobsHistoryLimit=0,
    )
    deleted = [action.name for action in reconcile(unlimited, *done, *failed) if isinstance(action, Delete)]
    assert deleted == [one.metadata.name for one in reversed(failed)]


def test_one_that_is_deleted_only_keeps_its_status() -> None:
    made = cron_job()
    source = {**made.source, "metadata": {**made.source["metadata"], "deletionTimestamp": time_of(NOW)}}
    assert reconcile(whole(CRON_JOBS, CronJob, source)) == ()
