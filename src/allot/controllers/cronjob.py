"""The CronJob controller: wires `core.workloads.cron_job`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from allot.client.errors import ApiError
from allot.client.informer import Change, Informer
from allot.controllers.owned_objects import BY_SOURCE_CONTROLLER, source_controller, source_controller_keys
from allot.controllers.runner import Controller, Services
from allot.core.cron import ScheduleError
from allot.core.lifecycle.actions import Action, Answers, Create, Delete, RequeueAfter, Update, Write
from allot.core.model.batch_v1 import CronJob, Job
from allot.core.workloads.cron_job import next_wait_s, reconcile_cron_job, schedule_of
from allot.core.workloads.expectations import EXPIRE_S, Expectations
from allot.core.workloads.resources import CRON_JOBS, JOBS
from allot.core.workloads.whole import Whole, whole

Object = dict[str, Any]


class CronJobs:
    """Creates jobs on schedule."""

    def __init__(self, services: Services) -> None:
        self._clock = services.clock
        informers = services.informers
        self._cron_jobs: Informer[Object] = informers.dynamic("batch", "v1", "cronjobs", namespaced=True)
        self._jobs: Informer[Object] = informers.dynamic("batch", "v1", "jobs", namespaced=True)
        self._jobs.cache.add_index(BY_SOURCE_CONTROLLER, source_controller_keys)
        self._expectations = Expectations()
        # The resourceVersion of the last written status, by uid.
        self._versions: dict[str, int] = {}
        self._controller: Controller[str] = Controller(
            services,
            self._reconcile,
            queue_name="cronjob",
            component="cronjob-controller",
            waits_for=(self._cron_jobs, self._jobs),
            on_written=self._written,
            tells_notes_apart=True,
        )
        self._cron_jobs.add_handler(self._cron_job_changed)
        self._jobs.add_handler(self._job_changed)

    async def run(self) -> None:
        """Control until cancelled."""
        await self._controller.run()

    # --- affected keys ---

    def _cron_job_changed(self, change: Change[Object]) -> None:
        old, new = change.old, change.new
        if new is None:
            uid = change.object["metadata"]["uid"]
            self._expectations.forget(uid)
            self._versions.pop(uid, None)
            return
        if old is not None and _times(old) != _times(new):
            # Runs that the new schedule would have had in the past are not caught up.
            value = whole(CRON_JOBS, CronJob, new).value
            try:
                wait_s = next_wait_s(value, schedule_of(value.spec), self._clock.seconds())
            except ScheduleError:
                wait_s = 0.0
            self._controller.queue.add_after(change.key, wait_s)
        else:
            self._controller.queue.add(change.key)

    def _job_changed(self, change: Change[Object]) -> None:
        for job in (change.old, change.new):
            owner = None if job is None else source_controller(job)
            if job is not None and owner is not None and owner.get("kind") == CRON_JOBS.kind:
                self._controller.queue.add(f"{job['metadata']['namespace']}/{owner['name']}")

    # --- what to do ---

    def _reconcile(self, key: str, answers: Answers) -> Sequence[Action]:
        found = self._cron_jobs.cache.get(key)
        if found is None:
            return ()
        cron_job = whole(CRON_JOBS, CronJob, found)
        uid, version = cron_job.metadata.uid, cron_job.metadata.resource_version
        if int(version) < self._versions.get(uid, 0) or not self._expectations.are_met(
            uid, self, self._clock.monotonic()
        ):
            return (RequeueAfter(seconds=EXPIRE_S),)
        jobs = [whole(JOBS, Job, job) for job in self._jobs.cache.by_index(BY_SOURCE_CONTROLLER, uid)]
        return reconcile_cron_job(cron_job, jobs, answers, self._clock.seconds())

    def get(self, key: str) -> Whole[Job] | None:
        """A job (`Cached`)."""
        found = self._jobs.cache.get(key)
        return None if found is None else whole(JOBS, Job, found)

    def has_seen(self, version: str) -> bool:
        """Whether the cache of jobs is that recent (`Cached`)."""
        return self._jobs.has_seen(version)

    def _written(self, action: Write, after: Object | None, error: ApiError | None) -> None:
        if error is not None:
            return
        now = self._clock.monotonic()
        if isinstance(action, Update) and after is not None:
            self._versions[after["metadata"]["uid"]] = int(after["metadata"]["resourceVersion"])
        elif isinstance(action, Create) and after is not None:
            owner = source_controller(after)
            if owner is not None:
                self._expectations.created(owner["uid"], whole(JOBS, Job, after).metadata, now)
        elif isinstance(action, Delete):
            job = self.get(f"{action.namespace}/{action.name}")
            owner = None if job is None else source_controller(dict(job.source))
            if job is not None and owner is not None:
                self._expectations.deleted(owner["uid"], job.metadata, now)


def _times(cron_job: Object) -> tuple[Any, Any]:
    return cron_job["spec"].get("schedule"), cron_job["spec"].get("timeZone")


def make(services: Services) -> CronJobs:
    """The controller `cronjob-controller`."""
    return CronJobs(services)
