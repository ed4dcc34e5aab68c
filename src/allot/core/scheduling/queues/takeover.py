"""Room for a job that found none: by moving others (consolidation), by taking back what belongs to its queue (reclaim), or by
priority within its queue (preempt).

All three look for pods whose going makes room, in the order of `victims`, and try each set out on the cluster itself: the pods
are gone, the job and those that went are placed again in the order in which queues are served, and what found a new place has
only moved. What is tried leaves no trace. First the victims of one node are tried, then those of several. The first set that
the rules allow is taken; what it does not need is given back. A search that hits its bound says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from fractions import Fraction

import msgspec

from allot.core.model.core_v1 import Pod
from allot.core.scheduling.attempt import attempt
from allot.core.scheduling.cluster import Cluster
from allot.core.scheduling.plan import Placement
from allot.core.scheduling.queues.jobs import Job, Task, asked, units_of
from allot.core.scheduling.queues.limits import excess, over_deserved
from allot.core.scheduling.queues.model import QueueShares
from allot.core.scheduling.queues.order import Candidate, descend
from allot.core.scheduling.queues.reclaim_rules import Reclaimer, is_worth_trying, may_try, objection
from allot.core.scheduling.queues.tree import QueueTree
from allot.core.scheduling.queues.victims import Step, steps
from allot.core.scheduling.settings import Settings

# Sets of victims that are tried for one job before it is given up.
TRIALS_MAX = 2_000
CONSOLIDATE = "consolidation"
RECLAIM = "reclaim"
PREEMPT = "preempt"


class Takeover(msgspec.Struct, frozen=True, kw_only=True):
    """How a job gets its place. placed: its own pods; moved: others that find another place; evicted: those that find none."""

    action: str
    placed: tuple[tuple[Task, Placement], ...]
    moved: tuple[tuple[Task, Placement], ...] = ()
    evicted: tuple[Task, ...] = ()


class Nothing(msgspec.Struct, frozen=True):
    """Why there is none. is_undecided: the search hit its bound."""

    reason: str
    is_undecided: bool = False


class _Tried(msgspec.Struct, frozen=True):
    placed: tuple[tuple[Task, Placement], ...]
    moved: tuple[tuple[Task, Placement], ...]
    gone: tuple[Task, ...]

    @property
    def victims(self) -> tuple[Task, ...]:
        return (*self.gone, *(task for task, _ in self.moved))


class _Place(msgspec.Struct, frozen=True):
    """Where a pod was before something was tried: node and devices."""

    node: str
    devices: tuple[str, ...] = ()


_Judge = Callable[[_Tried], str]


class Takeovers:
    """One look at a cluster, its queues and all jobs."""

    def __init__(
        self,
        cluster: Cluster,
        tree: QueueTree,
        jobs: Mapping[str, Job],
        settings: Callable[[Pod], Settings],
        now: float,
        *,
        multiplier: Fraction = Fraction(1),
        trials_max: int = TRIALS_MAX,
    ) -> None:
        self._cluster = cluster
        self._tree = tree
        self._jobs = jobs
        self._settings = settings
        self._now = now
        self._multiplier = multiplier
        self._trials_max = trials_max
        self._leaving = [info.pod for info in cluster.leaving.values()]
        # Jobs that wait, by queue, with their places in it; made when it is asked for first.
        self._pending: dict[str, list[tuple[tuple[int, int, str, str], Job]]] | None = None
        # Sets that were tried so far for the job at hand.
        self.trials = 0

    # --- the three ways ---

    def consolidate(self, job: Job) -> Takeover | Nothing:
        """Others move so that it fits; nobody has to go."""
        if not job.is_preemptible:
            return Nothing("a job that cannot be preempted moves nobody")
        victims = [other for other in self._others(job) if other.is_preemptible and other.is_movable]

        def judge(tried: _Tried) -> str:
            return f"{tried.gone[0].name} fits nowhere else" if tried.gone else ""

        return self._search(CONSOLIDATE, job, victims, judge)

    def reclaim(self, job: Job) -> Takeover | Nothing:
        """Its queue gets back what others hold beyond their share."""
        queue = self._queue(job)
        reclaimer = Reclaimer(queue=queue, request=asked(job.to_start()), is_preemptible=job.is_preemptible)
        refusal = may_try(reclaimer)
        if refusal:
            return Nothing(refusal)
        worth = {
            name
            for name, other in self._tree.all().items()
            if name != job.queue
            and not other.children
            and other.queue.is_reclaimable
            and is_worth_trying(reclaimer, other)
        }
        victims = [other for other in self._others(job) if other.queue in worth and other.is_preemptible]
        if not victims:
            return Nothing("no other queue holds more than its share")
        young = frozenset(
            other.key for other in victims if self._is_young(other, self._tree.min_runtime_s(self._queue(other), queue))
        )

        def judge(tried: _Tried) -> str:
            losses: dict[str, list[dict[str, int]]] = {}
            for other, tasks in _by_job(tried.gone):
                losses.setdefault(other.queue, []).extend(units_of(other, tasks))
            return objection(reclaimer, losses, self._tree.all(), self._multiplier)

        return self._search(RECLAIM, job, victims, judge, young)

    def preempt(self, job: Job) -> Takeover | Nothing:
        """Jobs of lower priority in its queue go."""
        queue = self._queue(job)
        if not job.is_preemptible:
            over = over_deserved(queue, asked(job.to_start()))
            if over is not None:
                return Nothing(over.message)
        victims = [
            other
            for other in self._others(job)
            if other.queue == job.queue and other.is_preemptible and other.priority < job.priority
        ]
        if not victims:
            return Nothing(f"queue {queue.title} runs nothing of lower priority that can be preempted")
        shortest = self._tree.min_runtime_s(queue, None)
        young = frozenset(other.key for other in victims if self._is_young(other, shortest))
        return self._search(PREEMPT, job, victims, lambda _: "", young)

    def _others(self, job: Job) -> list[Job]:
        return [
            other
            for other in self._jobs.values()
            if other is not job and not other.is_fixed and any(task.is_active for task in other.tasks)
        ]

    def _queue(self, job: Job) -> QueueShares:
        found = self._tree.get(job.queue)
        assert found is not None, f"{job.key} is in a queue that is there"
        return found

    def _is_young(self, job: Job, shortest_s: float) -> bool:
        started = max((task.since_s for task in job.active()), default=0.0)
        return shortest_s > 0 and self._now - started < shortest_s

    # --- the search ---

    def _search(
        self, action: str, job: Job, victims: Sequence[Job], judge: _Judge, protected: frozenset[str] = frozenset()
    ) -> Takeover | Nothing:
        """More and more of the job's pods, each time on top of the victims that made room for fewer."""
        tasks = job.to_start()
        if not tasks:
            return Nothing("nothing of it waits")
        if action == CONSOLIDATE and not self._could_do((), (), tasks):
            return Nothing("too little is free, wherever others are")
        order = _Remembered(steps(self._tree, victims, protected))
        self.trials = 0
        reason = ""
        for sets in (self._of_one_node, self._of_several_nodes):
            tried: _Tried | None = None
            recorded: tuple[Task, ...] = ()
            failed: set[frozenset[str]] = set()
            for count in _growing(len(tasks)):
                result = self._first(
                    job,
                    tasks[:count],
                    sets(order, recorded, tasks[:count]),
                    judge,
                    failed,
                    moves_only=action == CONSOLIDATE,
                )
                if isinstance(result, str):
                    reason, tried = result, None
                    break
                tried = result
                recorded = result.victims
                failed = set()
            if tried is not None:
                return Takeover(action=action, placed=tried.placed, moved=tried.moved, evicted=tried.gone)
            if self.trials >= self._trials_max:
                return Nothing(f"undecided after {self.trials} trials", is_undecided=True)
        return Nothing(reason or "no set of pods whose going makes room")

    def _first(
        self,
        job: Job,
        tasks: Sequence[Task],
        sets: Iterator[Sequence[Task]],
        judge: _Judge,
        failed: set[frozenset[str]],
        *,
        moves_only: bool,
    ) -> _Tried | str:
        """The first set of victims that makes room for these pods of a job, or why there is none."""
        reason = ""
        for victims in sets:
            key = frozenset(task.key for task in victims)
            if not key or key in failed:
                continue
            failed.add(key)
            self.trials += 1
            if self.trials > self._trials_max:
                return reason
            # By right the order of queues decides who is placed first. Where nobody loses anything, the job may be, if those
            # that move cannot take what it is promised when they come back.
            yields = moves_only and all(task.job.priority <= job.priority for task in victims)
            for is_first in (False, True) if yields else (False,):
                with self._try(job, tasks, victims, is_first=is_first) as tried:
                    pass
                if tried is not None:
                    reason = judge(tried)
                    if not reason:
                        return tried
        return reason

    def _growing(
        self, order: Iterable[Step], recorded: Sequence[Task], tasks: Sequence[Task]
    ) -> Iterator[Sequence[Step]]:
        """More and more steps, where they could be enough; without those that touch what has to go anyway."""
        known = set(recorded)
        taken: list[Step] = []
        for step in order:
            if any(task in known for task in step.tasks):
                continue
            taken.append(step)
            if self._could_do(taken, recorded, tasks):
                yield taken

    def _of_one_node(
        self, order: Iterable[Step], recorded: Sequence[Task], tasks: Sequence[Task]
    ) -> Iterator[Sequence[Task]]:
        """What could go on the node of the latest step, together with what has to go anyway."""
        if recorded:
            yield recorded
        for taken in self._growing(order, recorded, tasks):
            for node in taken[-1].nodes:
                here = [task for each in taken if node in each.nodes for task in each.tasks]
                yield (*recorded, *here)

    def _of_several_nodes(
        self, order: Iterable[Step], recorded: Sequence[Task], tasks: Sequence[Task]
    ) -> Iterator[Sequence[Task]]:
        """What could go on more and more nodes, those first on which least has to go."""
        if recorded:
            yield recorded
        for taken in self._growing(order, recorded, tasks):
            nodes = self._by_room(taken, tasks)
            count, more = 1, 1
            while True:
                chosen = set(nodes[:count])
                yield (*recorded, *(task for each in taken if chosen.intersection(each.nodes) for task in each.tasks))
                if count >= len(nodes):
                    break
                count = min(count + more, len(nodes))
                more *= 2

    def _by_room(self, taken: Sequence[Step], tasks: Sequence[Task]) -> list[str]:
        """Nodes with victims; where least would become free first, then as they came up."""
        request = asked(tasks)
        main = next((name for name in sorted(request) if name not in ("cpu", "memory") and request[name]), "cpu")
        room: dict[str, int] = {}
        for step in taken:
            for task in step.tasks:
                room[task.node] = room.get(task.node, 0) + task.amounts.get(main, 0)
        return sorted(room, key=lambda name: room[name])

    def _could_do(self, taken: Sequence[Step], recorded: Sequence[Task], tasks: Sequence[Task]) -> bool:
        """Whether enough would be free in the whole cluster; if not, there is nothing to try."""
        freed = asked((*recorded, *(task for step in taken for task in step.tasks)))
        request = asked(tasks)
        for resource, there in self._tree.total.items():
            held = sum(queue.shares[resource].allocated for queue in self._tree.top() if resource in queue.shares)
            if request.get(resource, 0) > there - held + freed.get(resource, 0):
                return False
        return True

    # --- trying out ---

    @contextmanager
    def _try(
        self, job: Job, tasks: Sequence[Task], victims: Sequence[Task], *, is_first: bool
    ) -> Iterator[_Tried | None]:
        """Inside, the victims are gone and all that were affected are placed again; None if the job is not. is_first: the job
        has the first choice."""
        before = {task: self._place_of(task) for task in (*victims, *tasks)}
        gone = [task.pod for task in victims]
        with ExitStack() as stack:
            stack.enter_context(self._cluster.without([*self._leaving, *gone], anew=True))
            placements = stack.enter_context(self._cluster.trying())
            for task in victims:
                task.node = ""
            try:
                found = self._place_all(job, tasks, victims, placements, is_first=is_first)
                yield _outcome(found, job, before) if found is not None else None
            finally:
                for task, place in before.items():
                    task.node = place.node

    def _place_of(self, task: Task) -> _Place:
        devices = self._cluster.devices
        if not task.node or devices is None:
            return _Place(task.node)
        return _Place(task.node, tuple(sorted(devices.held_by(task.pod))))

    def _place_all(
        self,
        job: Job,
        tasks: Sequence[Task],
        victims: Sequence[Task],
        placements: list[Placement],
        *,
        is_first: bool,
    ) -> dict[Task, Placement] | None:
        """The job's pods and, as far as they fit, those of the victims, in the order in which queues are served."""
        affected = {other.key: other for other in (job, *(task.job for task in victims))}
        found: dict[Task, Placement] = {}
        if is_first:
            mine = self._place(job, list(tasks), placements)
            if mine is None:
                return None
            found.update(mine)
            del affected[job.key]
        turns = self._turns(affected) if affected else {}
        while turns:
            queue = self._next(turns)
            if queue is None:
                return None
            next_, is_affected = turns[queue].pop()
            if not turns[queue]:
                del turns[queue]
            if not is_affected:
                continue
            placed = self._place(next_, list(tasks) if next_ is job else next_.to_start(), placements)
            if placed is not None:
                found.update(placed)
            elif next_ is job:
                return None
        return found

    def _turns(self, affected: Mapping[str, Job]) -> dict[str, list[tuple[Job, bool]]]:
        """The jobs of each queue in the order in which they will be served, the first one last; and whether they are concerned.
        Others that wait have their turn too, although they are not placed: they stand for their queue when it is compared. If
        they did not, what is reclaimed for one could go to another in the next moment, and be reclaimed again."""
        found: dict[str, list[tuple[Job, bool]]] = {}
        for queue in sorted({job.queue for job in affected.values()}):
            mine = sorted(
                ((job.sort_key(), job) for job in affected.values() if job.queue == queue), key=lambda entry: entry[0]
            )
            last = mine[-1][0]
            before = [entry for entry in self._waiting(queue) if entry[0] < last and entry[1].key not in affected]
            order = sorted([*mine, *before], key=lambda entry: entry[0], reverse=True)
            found[queue] = [(job, job.key in affected) for _, job in order]
        return found

    def _waiting(self, queue: str) -> list[tuple[tuple[int, int, str, str], Job]]:
        if self._pending is None:
            self._pending = {}
            for job in self._jobs.values():
                if job.is_ready() and job.to_start():
                    self._pending.setdefault(job.queue, []).append((job.sort_key(), job))
        return self._pending.get(queue, [])

    def _next(self, turns: Mapping[str, Sequence[tuple[Job, bool]]]) -> str | None:
        def candidate(queue: QueueShares) -> Candidate | None:
            waiting = turns.get(queue.name)
            return Candidate(queue, asked(waiting[-1][0].to_start())) if waiting else None

        leaf = descend(self._tree.top(), candidate, self._tree.total)
        return leaf.name if leaf is not None else None

    def _place(self, job: Job, tasks: Sequence[Task], placements: list[Placement]) -> dict[Task, Placement] | None:
        """All of these pods, or none."""
        if not tasks or excess(self._queue(job), asked(tasks), is_preemptible=job.is_preemptible) is not None:
            return None
        found = place_all(self._cluster, job, tasks, self._settings, self._now)
        if found is None:
            return None
        for task, placement in found.items():
            placements.append(placement)
            task.node = placement.node
        return found


def place_all(
    cluster: Cluster, job: Job, tasks: Sequence[Task], settings: Callable[[Pod], Settings], now: float
) -> dict[Task, Placement] | None:
    """All of these pods in force on the cluster, or none."""
    found: dict[Task, Placement] = {}
    for task in tasks:
        result = attempt(cluster, unplaced(task.pod), job.group, settings(task.pod), now)
        if not isinstance(result, Placement):
            for placement in reversed(found.values()):
                cluster.forget(placement)
            return None
        cluster.assume(result)
        found[task] = result
    return found


def _outcome(found: Mapping[Task, Placement], job: Job, before: Mapping[Task, _Place]) -> _Tried:
    placed = [(task, placement) for task, placement in found.items() if task.job is job and not before[task].node]
    gone: list[Task] = []
    moved: list[tuple[Task, Placement]] = []
    for task, place in before.items():
        if not place.node:
            continue
        placement = found.get(task)
        if placement is None:
            gone.append(task)
        elif placement.node != place.node or _devices(placement) != place.devices:
            moved.append((task, placement))
    return _Tried(tuple(placed), tuple(moved), tuple(gone))


def _devices(placement: Placement) -> tuple[str, ...]:
    """Names of the devices that a placement takes."""
    found = [step.allocation for step in placement.claims]
    if placement.extended is not None:
        found.append(placement.extended.allocation)
    return tuple(
        sorted(
            result.device
            for allocation in found
            if allocation is not None
            for result in allocation.devices.results
            if not result.admin_access
        )
    )


def unplaced(pod: Pod) -> Pod:
    """A pod as it would come back."""
    if not pod.spec.node_name and not pod.metadata.deletion_timestamp:
        return pod
    return msgspec.structs.replace(
        pod,
        spec=msgspec.structs.replace(pod.spec, node_name=""),
        metadata=msgspec.structs.replace(pod.metadata, deletion_timestamp=None),
        status=msgspec.structs.replace(pod.status, nominated_node_name=""),
    )


class _Remembered:
    """Steps that are worked out when they are asked for, and once: usually the first few are enough."""

    __slots__ = ("_known", "_rest")

    def __init__(self, rest: Iterator[Step]) -> None:
        self._known: list[Step] = []
        self._rest = rest

    def __iter__(self) -> Iterator[Step]:
        number = 0
        while True:
            if number == len(self._known):
                found = next(self._rest, None)
                if found is None:
                    return
                self._known.append(found)
            yield self._known[number]
            number += 1


def _growing(count: int) -> Iterator[int]:
    """1, 2, 4 … and the whole."""
    number = 1
    while number < count:
        yield number
        number *= 2
    yield count


def _by_job(tasks: Sequence[Task]) -> list[tuple[Job, list[Task]]]:
    found: dict[str, tuple[Job, list[Task]]] = {}
    for task in tasks:
        found.setdefault(task.job.key, (task.job, []))[1].append(task)
    return list(found.values())
