"""A round over all jobs that wait, in KAI's actions: place what fits, then make room by moving, by right and by priority, then
let go of gangs that lost their minimum.

A round works on the given cluster and applies every step there, so that the next one sees it; when it is
closed, all of that is reverted. It writes nothing: its results say what to do. Jobs that are equal fail alike, and
are tried once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Self

import msgspec

from allot.core.model.core_v1 import Pod
from allot.core.scheduling.cluster import Cluster
from allot.core.scheduling.plan import Placement
from allot.core.scheduling.queues.costs import Costs
from allot.core.scheduling.queues.in_force import InForce
from allot.core.scheduling.queues.jobs import Job, Task, asked
from allot.core.scheduling.queues.limits import Excess, excess, too_early
from allot.core.scheduling.queues.model import QueueShares
from allot.core.scheduling.queues.order import Candidate, Standings
from allot.core.scheduling.queues.placing import place_all
from allot.core.scheduling.queues.takeover import TRIALS_MAX, Nothing, Takeover, Takeovers
from allot.core.scheduling.queues.tree import QueueTree
from allot.core.scheduling.queues.victims import Place
from allot.core.scheduling.settings import Settings
from allot.core.scheduling.status import Status

STALE_AFTER_S = 60.0


class Started(msgspec.Struct, frozen=True):
    """Pods of a job that have a place. waits: some of it is still held by pods that are leaving."""

    job: Job
    placed: tuple[tuple[Task, Placement], ...]
    waits: bool = False


class _Turns:
    """Jobs that wait, queue by queue. is_hopeless: those that need not be tried."""

    def __init__(self, tree: QueueTree, jobs: Iterable[Job], is_hopeless: Callable[[Job], bool]) -> None:
        self._tree = tree
        self._is_hopeless = is_hopeless
        self._queues: dict[str, list[tuple[Place, Job]]] = {}
        for job in jobs:
            self._queues.setdefault(job.queue, []).append((job.sort_key(), job))
        for waiting in self._queues.values():
            waiting.sort(key=lambda entry: entry[0], reverse=True)
        self._standings = Standings(tree, self._candidate)

    def _candidate(self, queue: QueueShares) -> Candidate | None:
        waiting = self._queues.get(queue.name)
        while waiting and self._is_hopeless(waiting[-1][1]):
            waiting.pop()
        return Candidate(queue, asked(waiting[-1][1].to_start())) if waiting else None

    def next(self) -> Job | None:
        """The job whose turn it is; it is taken out."""
        while (found := self._standings.first()) is not None:
            waiting = self._queues[found.queue.name]
            _, job = waiting.pop()
            self._standings.touch(found.queue)
            # It may have become so since it came up.
            if not self._is_hopeless(job):
                return job
        return None

    def again(self, job: Job) -> None:
        """It has more that waits."""
        waiting = self._queues.setdefault(job.queue, [])
        waiting.append((job.sort_key(), job))
        waiting.sort(key=lambda entry: entry[0], reverse=True)
        queue = self._tree.find(job.queue)
        if queue is not None:
            self._standings.touch(queue)


class Round:
    """One pass over the jobs of a cluster. Close it, or use it as a context."""

    def __init__(
        self,
        cluster: Cluster,
        tree: QueueTree,
        jobs: Mapping[str, Job],
        settings: Callable[[Pod], Settings],
        now: float,
        trials_max: int = TRIALS_MAX,
        *,
        costs: Costs | None = None,
    ) -> None:
        """trials_max: sets of victims that are tried for one job; costs: where placements can cost more than pods ask for."""
        self._costs = costs
        self._cluster = cluster
        self._tree = tree
        self._jobs = jobs
        self._settings = settings
        self._now = now
        self._trials_max = trials_max
        self._in_force = InForce(cluster)
        # Jobs of queues that take jobs and of which something waits; in the course of a round they become fewer.
        self._waiting: list[Job] | None = None
        self._likenesses: dict[str, tuple[list[Task], object]] = {}
        self._takeovers: Takeovers | None = None
        # When time alone may entitle a job to room, in seconds since 1970: a minimum run time or a delay ends.
        self.wake_at_s: float | None = None
        # Why jobs wait, by key: the last that was found.
        self.refusals: dict[str, Excess | Nothing] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Restore everything as it was before."""
        self._in_force.close()

    # --- placing what fits ---

    def allocate(self) -> Iterator[Started]:
        """Every job that fits, in the order of queues; a job that has its minimum grows pod by pod."""
        failed: set[object] = set()
        turns = _Turns(self._tree, self._pending(), lambda job: self._likeness(job) in failed)
        while (job := turns.next()) is not None:
            over = self._excess(job)
            if over is not None:
                self.refusals[job.key] = over
                continue
            started = self._start(job)
            if started is not None:
                if job.to_start():
                    turns.again(job)
                yield started
                continue
            alike = self._likeness(job)
            if alike is not None:
                failed.add(alike)

    def _excess(self, job: Job) -> Excess | None:
        queue = self._tree.get(job.queue)
        assert queue is not None, f"{job.key} is in a queue that is there"
        return excess(queue, asked(job.to_start()), is_preemptible=job.is_preemptible)

    def _start(self, job: Job) -> Started | None:
        """The next pods of a job, all or none: where there is room now, else where there will be."""
        tasks = job.to_start()
        placed = place_all(self._cluster, job, tasks, self._settings, self._now, self._costs)
        waits = placed is None and bool(self._cluster.leaving)
        if waits:
            with self._cluster.without([info.pod for info in self._cluster.leaving.values()], anew=True):
                placed = place_all(self._cluster, job, tasks, self._settings, self._now, self._costs)
        if placed is None:
            return None
        self._in_force.placed(placed)
        return Started(job, tuple(placed.items()), waits=waits)

    def _likeness(self, job: Job) -> object:
        """Equal for jobs that fit or do not fit alike; None if unknown."""
        known = self._likenesses.get(job.key)
        tasks = job.to_start()
        if known is not None and known[0] == tasks:
            return known[1]
        found: object = None
        if not any(task.pod.status.nominated_node_name for task in tasks):
            kinds = [self._kind(job, task) for task in tasks]
            # Its parts and where they are matter too, so only jobs without are compared.
            if None not in kinds and not job.root.parts and job.root.near is None:
                found = (tuple(kinds), job.is_preemptible)
        self._likenesses[job.key] = (tasks, found)
        return found

    def _kind(self, job: Job, task: Task) -> object:
        key, devices = self._cluster.profiles.of(task.pod).key, self._cluster.devices
        if not task.pod.spec.resource_claims or devices is None:
            return (key,)
        fit = devices.fit(task.pod, job.group_of(task), self._now)
        return None if isinstance(fit, Status) or fit is None or fit.key is None else (key, fit.key)

    # --- making room ---

    def consolidate(self) -> Iterator[Takeover]:
        """Others move so that jobs fit."""
        yield from self._take(Takeovers.consolidate)
        if self._takeovers is not None:
            self._takeovers.has_consolidated = True

    def reclaim(self) -> Iterator[Takeover]:
        """Queues get back what they are entitled to."""
        yield from self._take(Takeovers.reclaim)

    def preempt(self) -> Iterator[Takeover]:
        """Jobs of higher priority come before others of their queue."""
        yield from self._take(Takeovers.preempt)

    def _take(self, way: Callable[[Takeovers, Job], Takeover | Nothing]) -> Iterator[Takeover]:
        failed: set[object] = set()

        def kind_of(job: Job) -> object:
            likeness = self._likeness(job)
            return (job.queue, job.priority, likeness) if likeness is not None else None

        waiting = self._pending()
        ready = [job for job in waiting if job.takes_at_s <= self._now]
        for early in waiting:
            if early.takes_at_s > self._now:
                self._wake_at(early.takes_at_s)
                self.refusals.setdefault(early.key, Nothing(too_early(early.takes_at_s), until_s=early.takes_at_s))
        if not ready:
            return
        takeovers = self._takeovers_of()
        turns = _Turns(self._tree, ready, lambda job: kind_of(job) in failed)
        while (job := turns.next()) is not None:
            found = way(takeovers, job)
            if isinstance(found, Nothing):
                # A limit says more than pods that cannot be evicted, and entitlement more than priority.
                if way is Takeovers.reclaim and not isinstance(self.refusals.get(job.key), Excess):
                    self.refusals[job.key] = found
                self.refusals.setdefault(job.key, found)
                kind = kind_of(job)
                if kind is not None:
                    failed.add(kind)
                continue
            yield found
        self._wake_at(takeovers.earliest_s)

    def _takeovers_of(self) -> Takeovers:
        """For the next steps, terminating pods are gone."""
        if self._takeovers is None:
            self._in_force.without([info.pod for info in self._cluster.leaving.values()])
            self._takeovers = Takeovers(
                self._cluster,
                self._tree,
                self._jobs,
                self._settings,
                self._now,
                self._in_force,
                trials_max=self._trials_max,
                costs=self._costs,
            )
        return self._takeovers

    def _wake_at(self, when: float | None) -> None:
        if when is not None and (self.wake_at_s is None or when < self.wake_at_s):
            self.wake_at_s = when

    def _pending(self) -> list[Job]:
        waiting = self._waiting
        if waiting is None:
            named = dict.fromkeys(job.queue for job in self._jobs.values())
            closed = {name for name in named if self._tree.refusal(name)}
            waiting = [job for job in self._jobs.values() if job.queue not in closed]
        self._waiting = [job for job in waiting if job.to_start() and job.is_ready()]
        return self._waiting


def stale(jobs: Iterable[Job], since_s: Mapping[str, float], now: float, grace_s: float = STALE_AFTER_S) -> list[Task]:
    """Pods of jobs that have been below their minimum for longer than the grace period; these pods go. since_s: from when on, by
    key. A negative grace period: never."""
    if grace_s < 0:
        return []
    return [
        task for job in jobs if is_stale(job) and now - since_s.get(job.key, now) >= grace_s for task in job.active()
    ]


def is_stale(job: Job) -> bool:
    """Whether it runs with less than its minimum."""
    return bool(job.active()) and not job.has_minimum()


def stale_text(job: Job, task: Task) -> str:
    """The message to a pod that leaves because of its job."""
    leaves = {leaf.name: leaf for leaf in job.root.leaves()}
    part = leaves.get(task.part)
    where = f" in sub-group {task.part}" if task.part else ""
    minimum = f" ({part.minimum})" if part is not None else ""
    return f"Workload doesn't meet the minimum required number of pods{minimum}{where}, evicting remaining pod: {task.name}"
