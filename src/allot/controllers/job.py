"""The Job controller: wires `core.workloads.job`.

A job is reconciled only when the caches show its last status and the pods created and deleted for it. That a pod has lost
its finalizer may arrive later: until it does, the status keeps naming the pod, and it is not counted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from allot.client.errors import ApiError
from allot.client.informer import Change, Informer
from allot.controllers.owned_pods import OwnedPods
from allot.controllers.runner import Controller, Services
from allot.core.lifecycle.actions import Action, Answers, Create, RequeueAfter, Update, Write
from allot.core.lifecycle.disruption import PODS
from allot.core.model.batch_v1 import TRACKING_FINALIZER, Job
from allot.core.model.core_v1 import Pod
from allot.core.model.scheduling_v1 import PodGroup, Workload
from allot.core.selectors import label_requirements
from allot.core.workloads.expectations import EXPIRE_S
from allot.core.workloads.job import BATCH_S, is_managed_elsewhere, reconcile_job, reconcile_orphan
from allot.core.workloads.job_ends import finished_condition
from allot.core.workloads.job_failures import NO_FAILURES, Backoff
from allot.core.workloads.job_pods import is_tracked
from allot.core.workloads.job_scheduling import (
    Grouped,
    ensure_group,
    group_workloads,
    wanted_workload,
    workload_jobs,
)
from allot.core.workloads.ownership import claim, controller_reference, take_over
from allot.core.workloads.resources import JOBS
from allot.core.workloads.whole import Whole, whole

Object = dict[str, Any]

# The key: a job, or a pod with the finalizer that may have lost its job.
_JOB, _ORPHAN = "job", "orphan"
_Key = tuple[str, str]
# Both must be on for jobs to be groups.
_GROUPS = frozenset(("GenericWorkload", "WorkloadWithJob"))
_BY_JOB, _BY_WORKLOAD = "job: workloads by owner", "job: pod groups by workload"


class _Memory(msgspec.Struct):
    """State of a job that is not in the API; losing it on a restart only shortens a pause."""

    # Failures since the last success, and the same including those that the status is about to name.
    backoff: Backoff = NO_FAILURES
    pending: Backoff = NO_FAILURES
    # The resourceVersion of the last written status.
    version: int = 0
    # Whether the server refused to create pods last time.
    is_refused: bool = False


class Jobs:
    """Runs jobs."""

    def __init__(self, services: Services) -> None:
        self._clock = services.clock
        self._jobs: Informer[Object] = services.informers.dynamic("batch", "v1", "jobs", namespaced=True)
        self._pods = OwnedPods(services, JOBS, self._jobs)
        self._memory: dict[str, _Memory] = {}
        # Jobs that wait for the caches.
        self._unsettled: dict[str, None] = {}
        self._groups = _Groups(services) if services.gates.on >= _GROUPS else None
        self._controller: Controller[_Key] = Controller(
            services,
            self._reconcile,
            queue_name="job",
            component="job-controller",
            waits_for=(self._jobs, self._pods.informer, *(self._groups.informers if self._groups is not None else ())),
            on_written=self._written,
            tells_notes_apart=True,
        )
        self._pods.watch(self._pods_changed)
        self._jobs.add_handler(self._job_changed)
        self._pods.informer.add_handler(self._pod_changed)
        if self._groups is not None:
            self._groups.watch(self._look_at)

    async def run(self) -> None:
        """Control until cancelled."""
        await self._controller.run()

    # --- affected keys ---

    def _look_at(self, key: str, seconds: float = 0.0) -> None:
        pause = 0.0 if key in self._unsettled else seconds
        self._controller.queue.add_after((_JOB, key), pause)

    def _pods_changed(self, key: str, seconds: float) -> None:
        self._look_at(key, max(seconds, BATCH_S))

    def _job_changed(self, change: Change[Object]) -> None:
        old, new = change.old, change.new
        if old is not None and (new is None or _uid(new) != _uid(old)):
            self._memory.pop(_uid(old), None)
            self._unsettled.pop(change.key, None)
            self._look_at_pods_of(_uid(old))
        if new is None:
            return
        if old is not None and _generation(old) == _generation(new):
            self._look_at(change.key, BATCH_S)
        else:
            self._look_at(change.key)

    def _pod_changed(self, change: Change[Pod]) -> None:
        old, new = change.old, change.new
        if old is not None and is_tracked(old) and (new is None or not is_tracked(new)):
            owner = controller_reference(old.metadata)
            if owner is not None and owner.kind == JOBS.kind:
                # It is only partly counted.
                self._look_at(f"{old.metadata.namespace}/{owner.name}")
        if new is not None and is_tracked(new) and self._may_be_left(new):
            self._controller.queue.add((_ORPHAN, change.key))

    def _may_be_left(self, pod: Pod) -> bool:
        """Whether a pod can no longer be counted. For living pods, the deletion of the job decides (`_job_changed`): the
        cache of jobs may lag behind that of pods."""
        if controller_reference(pod.metadata) is None:
            return True
        job = self._job_of(pod)
        is_deleted = pod.metadata.deletion_timestamp is not None
        return is_deleted and (job is None or finished_condition(job) is not None)

    def _look_at_pods_of(self, uid: str) -> None:
        for pod in self._pods.controlled_by(uid):
            if is_tracked(pod):
                self._controller.queue.add((_ORPHAN, f"{pod.metadata.namespace}/{pod.metadata.name}"))

    def _job_of(self, pod: Pod) -> Job | None:
        owner = controller_reference(pod.metadata)
        found = None if owner is None else self._jobs.cache.get(f"{pod.metadata.namespace}/{owner.name}")
        return None if found is None or owner is None or _uid(found) != owner.uid else whole(JOBS, Job, found).value

    # --- what to do ---

    def _reconcile(self, key: _Key, answers: Answers) -> Sequence[Action]:
        what, name = key
        if what == _ORPHAN:
            pod = self._pods.get(name)
            return () if pod is None else reconcile_orphan(pod, self._job_of(pod), answers)
        source = self._jobs.cache.get(name)
        if source is None:
            return ()
        job = whole(JOBS, Job, source)
        if is_managed_elsewhere(job.value) or finished_condition(job.value) is not None:
            self._memory.pop(job.metadata.uid, None)
            if not is_managed_elsewhere(job.value):
                self._look_at_pods_of(job.metadata.uid)
            return ()
        return self._reconcile_job(name, job, answers)

    def _reconcile_job(self, key: str, job: Whole[Job], answers: Answers) -> Sequence[Action]:
        uid = job.metadata.uid
        memory = self._memory.setdefault(uid, _Memory())
        if _version(job.metadata.resource_version) < memory.version or not self._pods.are_settled(uid):
            self._unsettled[key] = None
            return (RequeueAfter(seconds=EXPIRE_S),)
        self._unsettled.pop(key, None)
        selector = label_requirements(job.value.spec.selector)
        if selector is None:
            return ()
        pods = self._pods.of(job.metadata)
        claimed = claim(job.metadata, lambda pod: selector.matches(pod.metadata.labels), pods)
        taking, _ = take_over(JOBS, job.metadata, PODS, claimed, answers, TRACKING_FINALIZER)
        if taking:
            # The pods are reported again when their owner has changed.
            return taking
        grouped = Grouped() if self._groups is None else self._groups.ensure(job, claimed.own)
        if grouped.actions:
            # The group comes first; its job is queued again when it exists.
            return grouped.actions
        synced = reconcile_job(
            job,
            claimed.own,
            self._clock.seconds(),
            backoff=memory.backoff,
            pod_group=grouped.pod_group,
            is_refused=memory.is_refused,
        )
        memory.pending, memory.is_refused = synced.backoff, False
        return synced.actions

    def _written(self, action: Write, after: Object | None, error: ApiError | None) -> None:
        self._pods.written(action, after, error)
        if isinstance(action, Create) and action.resource is PODS and error is not None:
            memory = self._memory.get(_controller_uid(action.object))
            if memory is not None:
                memory.is_refused = True
        if isinstance(action, Update) and action.resource is JOBS and after is not None:
            memory = self._memory.get(_uid(after))
            if memory is not None:
                memory.version = _version(after["metadata"].get("resourceVersion", ""))
                memory.backoff = memory.pending


def _controller_uid(pod: Any) -> str:
    return str(pod["metadata"]["ownerReferences"][0]["uid"])


class _Groups:
    """The Workloads and PodGroups of jobs."""

    def __init__(self, services: Services) -> None:
        informers = services.informers
        self._workloads: Informer[Workload] = informers.typed(Workload, indexers={_BY_JOB: workload_jobs})
        self._pod_groups: Informer[PodGroup] = informers.typed(PodGroup, indexers={_BY_WORKLOAD: group_workloads})
        self.informers: tuple[Informer[Any], ...] = (self._workloads, self._pod_groups)

    def watch(self, look_at: Callable[[str], None]) -> None:
        """From now on report the keys of affected jobs."""
        self._look_at = look_at
        for informer in self.informers:
            informer.add_handler(self._changed)

    def ensure(self, job: Whole[Job], pods: Sequence[Pod]) -> Grouped:
        """The group of a job's pods, or the action that creates it."""
        key = wanted_workload(job)
        if key is None:
            return Grouped()
        workloads = self._workloads.cache.by_index(_BY_JOB, key)
        names = (f"{each.metadata.namespace}/{each.metadata.name}" for each in workloads)
        groups = [group for name in names for group in self._pod_groups.cache.by_index(_BY_WORKLOAD, name)]
        return ensure_group(job, bool(pods), workloads, groups)

    def _changed(self, change: Change[Any]) -> None:
        owner = controller_reference(change.object.metadata)
        if owner is not None and owner.kind == JOBS.kind:
            self._look_at(f"{change.object.metadata.namespace}/{owner.name}")


def _uid(job: Mapping[str, Any]) -> str:
    return str(job["metadata"].get("uid", ""))


def _generation(job: Mapping[str, Any]) -> Any:
    return job["metadata"].get("generation")


def _version(text: str) -> int:
    return int(text) if text.isdigit() else 0


def make(services: Services) -> Jobs:
    """The controller `job-controller`."""
    return Jobs(services)
