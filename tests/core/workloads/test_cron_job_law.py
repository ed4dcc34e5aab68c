"""Law: whatever happens to a CronJob and its Jobs, however old the caches are and wherever its controller dies, a time is served once and
in time, policies hold, and at rest the status and the history say what there is."""

from __future__ import annotations

import copy
import random
from typing import Any

import pytest

from allot.core.lifecycle.actions import Action, Create, Delete, LookUp, Update
from allot.core.lifecycle.times import seconds_of, time_of
from allot.core.model.batch_v1 import SCHEDULED_TIMESTAMP, CronJob, Job
from allot.core.workloads.cron_job import reconcile_cron_job
from allot.core.workloads.resources import CRON_JOBS, JOBS
from allot.core.workloads.whole import whole

Object = dict[str, Any]

PERIOD_S = 300
# A time of the schedule, and some seconds.
BORN = 1_716_199_200 + 30
LOOKS_MAX = 20

SEEDS = 300
STEPS = 60
# What happens, and how often.
HAPPENINGS = {
    "time passes": 8,
    "a job ends": 2,
    "a job fails": 1,
    "a user deletes a job": 1,
    "a user suspends or resumes": 1,
    "caches catch up": 3,
    "the controller looks": 12,
}
# So many of its writes are made before the controller dies; with the last one it lives.
WRITES = (0, 1, 2, 9, 9, 9, 9, 9)


class World:
    """An API server with one CronJob, and what its controller knows of it."""

    def __init__(self, spec: Object) -> None:
        self.now = float(BORN)
        self.version = 1
        template = {"spec": {"template": {"spec": {"containers": []}}}}
        metadata = {"name": "c", "namespace": "d", "uid": "cj", "creationTimestamp": time_of(BORN)}
        self.cron_job: Object = {"metadata": metadata, "spec": {**spec, "jobTemplate": template}, "status": {}}
        self.jobs: dict[str, Object] = {}
        self._changed(self.cron_job)
        self.catch_up()

    def _changed(self, object_: Object) -> None:
        self.version += 1
        object_["metadata"]["resourceVersion"] = str(self.version)

    def catch_up(self) -> None:
        self.seen = copy.deepcopy((self.cron_job, self.jobs))

    def running(self) -> list[Object]:
        return [job for job in self.jobs.values() if not job["status"].get("conditions")]

    def happen(self, what: str, number: int) -> None:
        """Something that is not the controller's doing."""
        running, jobs = self.running(), list(self.jobs.values())
        match what:
            case "time passes":
                self.now += number
            case "a job ends" | "a job fails" if running:
                job = running[number % len(running)]
                end = "Complete" if what == "a job ends" else "Failed"
                job["status"]["conditions"] = [{"type": end, "status": "True"}]
                if end == "Complete":
                    job["status"]["completionTime"] = time_of(self.now)
                self._changed(job)
            case "a user deletes a job" if jobs:
                del self.jobs[jobs[number % len(jobs)]["metadata"]["name"]]
            case "a user suspends or resumes":
                self.cron_job["spec"]["suspend"] = not self.cron_job["spec"]["suspend"]
                self._changed(self.cron_job)

    # --- the controller ---

    def look(self, writes_max: int) -> int:
        """One look, and so many of its writes; how many were made. Caches have seen what was written when the controller looks
        again, and a controller that begins reads everything."""
        cron_job, jobs = self.seen
        answers: dict[LookUp, Any] = {}
        while True:
            known = [whole(JOBS, Job, copy.deepcopy(job)) for job in jobs.values()]
            actions = reconcile_cron_job(whole(CRON_JOBS, CronJob, copy.deepcopy(cron_job)), known, answers, self.now)
            questions = [action for action in actions if isinstance(action, LookUp)]
            if not questions:
                break
            answers |= {question: copy.deepcopy(self.jobs.get(question.name)) for question in questions}
        writes = [action for action in actions if isinstance(action, Create | Delete | Update)]
        made = 0
        for action in writes[:writes_max]:
            if not self._write(action):
                break
            made += 1
        if made == len(writes) and any(isinstance(action, Create) for action in writes):
            self._check_replaced()
        if made or writes_max < len(writes):
            self.catch_up()
        return made

    def _write(self, action: Action) -> bool:
        """Whether the server takes it."""
        if isinstance(action, Create):
            made: Object = copy.deepcopy(dict(action.object))  # type: ignore[call-overload]
            if made["metadata"]["name"] in self.jobs:
                return False
            self._check_created(made)
            made["metadata"]["uid"] = f"job-{self.version}"
            made["status"] = {"startTime": time_of(self.now)}
            self._changed(made)
            self.jobs[made["metadata"]["name"]] = made
        elif isinstance(action, Delete):
            found = self.jobs.get(action.name)
            if found is not None and found["metadata"]["uid"] == action.uid:
                del self.jobs[action.name]
        elif isinstance(action, Update):
            after: Object = copy.deepcopy(dict(action.object))  # type: ignore[call-overload]
            if after["metadata"]["resourceVersion"] != self.cron_job["metadata"]["resourceVersion"]:
                return False
            self.cron_job["status"] = after["status"]
            self._changed(self.cron_job)
        return True

    # --- what must hold ---

    def latest(self) -> float:
        return self.now // PERIOD_S * PERIOD_S

    def last(self) -> float:
        last = self.cron_job["status"].get("lastScheduleTime")
        return seconds_of(last) if last else 0.0

    def _check_created(self, job: Object) -> None:
        spec = self.seen[0]["spec"]
        due = seconds_of(job["metadata"]["annotations"][SCHEDULED_TIMESTAMP])
        assert due == self.latest() > BORN, "the latest time that is due, and none from before it was born"
        assert due > self.last(), "once"
        assert not spec["suspend"]
        deadline = spec.get("startingDeadlineSeconds")
        assert deadline is None or self.now <= due + deadline, "in time"
        if spec["concurrencyPolicy"] == "Forbid":
            assert not self.running(), "one after the other"

    def _check_replaced(self) -> None:
        if self.cron_job["spec"]["concurrencyPolicy"] == "Replace":
            assert len(self.running()) == 1, "one in place of the other"

    def check_at_rest(self) -> None:
        spec, status = self.cron_job["spec"], self.cron_job["status"]
        running = {job["metadata"]["uid"] for job in self.running()}
        assert {one["uid"] for one in status.get("active", ())} == running
        for end, limit in (("Complete", "successfulJobsHistoryLimit"), ("Failed", "failedJobsHistoryLimit")):
            finished = [
                job for job in self.jobs.values() if job["status"].get("conditions", [{}])[0].get("type") == end
            ]
            assert spec.get(limit) is None or len(finished) <= spec[limit]
        due, deadline = self.latest(), spec.get("startingDeadlineSeconds")
        is_wanted = due > BORN and not spec["suspend"] and (deadline is None or self.now < due + deadline)
        if is_wanted and (spec["concurrencyPolicy"] != "Forbid" or not running):
            assert self.last() == due, "what is due is served"


def chosen(dice: random.Random) -> Object:
    spec = {
        "concurrencyPolicy": dice.choice(("Allow", "Forbid", "Replace")),
        "startingDeadlineSeconds": dice.choice((None, 60, 400, 2000)),
        "successfulJobsHistoryLimit": dice.choice((None, 0, 1, 3)),
        "failedJobsHistoryLimit": dice.choice((None, 0, 1, 3)),
    }
    given = {name: value for name, value in spec.items() if value is not None}
    return {"schedule": "*/5 * * * *", "suspend": False, **given}


def play(dice: random.Random) -> None:
    world = World(chosen(dice))
    for what in dice.choices(tuple(HAPPENINGS), tuple(HAPPENINGS.values()), k=STEPS):
        if what == "caches catch up":
            world.catch_up()
        elif what == "the controller looks":
            world.look(dice.choice(WRITES))
        else:
            world.happen(what, dice.choice((PERIOD_S, dice.randrange(1, 1500))))
    world.catch_up()
    looks = 0
    while world.look(WRITES[-1]):
        looks += 1
        assert looks < LOOKS_MAX, "it comes to rest"
    world.check_at_rest()


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_time_is_served_once(seed: int) -> None:
    play(random.Random(seed))
