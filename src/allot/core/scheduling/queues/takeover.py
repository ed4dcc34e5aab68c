"""Room for a job that found none: by moving others (consolidation), by reclaiming what its queue is entitled to (reclaim), or by
priority within its queue (preempt).

All three look for sets of pods whose eviction makes room (`victim_sets`), and try each on the cluster itself: the pods are gone, the
job and the evicted pods are placed again in the order in which queues are served, and pods that found a new place have only moved. What is
tried leaves no trace. The first set that the rules allow is applied; what it does not need is given back. A search that hits its
bound says so.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from fractions import Fraction
from functools import partial

import msgspec

from allot.core.model.core_v1 import Pod
from allot.core.model.meta import EMPTY
from allot.core.scheduling.cluster import Cluster
from allot.core.scheduling.plan import Placement
from allot.core.scheduling.queues.amounts import Amounts, total
from allot.core.scheduling.queues.costs import Costs
from allot.core.scheduling.queues.in_force import InForce
from allot.core.scheduling.queues.jobs import Job, Task, asked, units_of
from allot.core.scheduling.queues.limits import excess, over_deserved
from allot.core.scheduling.queues.model import QueueShares
from allot.core.scheduling.queues.node_room import NodeRoom
from allot.core.scheduling.queues.order import Candidate, first_among
from allot.core.scheduling.queues.placing import place_all
from allot.core.scheduling.queues.reclaim_rules import (
    Reclaimer,
    fits_deserved,
    is_worth_trying,
    may_lose,
    may_try,
    objection,
)
from allot.core.scheduling.queues.tree import QueueTree
from allot.core.scheduling.queues.victim_sets import Lack, Remembered, Sets, of_few_jobs, of_one_node, of_several_nodes
from allot.core.scheduling.queues.victims import Holders, Place, Step, steps
from allot.core.scheduling.settings import Settings

# Sets of victims that are tried for one job before it is given up, and for all jobs of a round.
TRIALS_MAX = 2_000
TRIALS_MAX_OF_ROUND = 20_000
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
    """Why there is none. is_undecided: the search hit its bound; until_s: the job evicts none before, in seconds since 1970."""

    reason: str
    is_undecided: bool = False
    until_s: float = 0.0


class _Tried(msgspec.Struct, frozen=True):
    """The result of a set of victims. all_go: none of them fits elsewhere; is_in_force: it is already applied."""

    placed: tuple[tuple[Task, Placement], ...]
    moved: tuple[tuple[Task, Placement], ...]
    gone: tuple[Task, ...]
    all_go: bool = False
    is_in_force: bool = False

    @property
    def victims(self) -> tuple[Task, ...]:
        return (*self.gone, *(task for task, _ in self.moved))


class _Place(msgspec.Struct, frozen=True):
    """Where a pod was before something was tried: node and devices."""

    node: str
    devices: tuple[str, ...] = ()


class _Way(msgspec.Struct, frozen=True):
    """How room is made. judge: the objection to a set; nobody: the message if there are no victims; may_lose: which jobs may lose
    something; moves: whether a set that may only move is tried too."""

    action: str
    judge: Callable[[_Tried], str]
    nobody: str
    may_lose: Callable[[Job], bool]
    moves: bool

    @property
    def is_of_moves(self) -> bool:
        """Whether no job loses anything."""
        return self.action == CONSOLIDATE


_Search = Callable[[Job, Sequence[Task], Iterable[Step], _Way], _Tried | str]


class Takeovers:
    """One pass over a cluster, its queues and all jobs, for takeovers one after the other; pods that are leaving are gone already.

    A returned takeover is already applied."""

    def __init__(
        self,
        cluster: Cluster,
        tree: QueueTree,
        jobs: Mapping[str, Job],
        settings: Callable[[Pod], Settings],
        now: float,
        in_force: InForce,
        *,
        multiplier: Fraction = Fraction(1),
        trials_max: int = TRIALS_MAX,
        costs: Costs | None = None,
    ) -> None:
        """in_force: what is found is put into force there; costs: as of a `Round`."""
        self._costs = costs
        self._in_force = in_force
        self._jobs = jobs
        self._cluster = cluster
        self._tree = tree
        self._settings = settings
        self._now = now
        self._multiplier = multiplier
        self._trials_max = trials_max
        # Jobs that can lose something, and those of them that can move.
        self._holders = Holders(tree, jobs.values(), _can_lose)
        self._movable = Holders(tree, jobs.values(), _can_move)
        # Jobs that wait, by queue, in the order in which they are served.
        self._pending: dict[str, list[_Turn]] = {}
        for job in jobs.values():
            if any(task.waits for task in job.tasks) and job.is_ready() and job.to_start():
                self._pending.setdefault(job.queue, []).append(_Turn(job.sort_key(), job))
        for turns in self._pending.values():
            turns.sort(key=_key)
        # Nodes with pods that accept no new ones: what is held there is not part of the total.
        nodes = cluster.nodes
        self._closed = frozenset(
            task.node
            for job in jobs.values()
            for task in job.tasks
            if task.node and ((info := nodes.get(task.node)) is None or info.unschedulable)
        )
        # Jobs that moves alone can help have been helped.
        self.has_consolidated = False
        # More was freed than its beneficiaries needed.
        self._has_left_over = False
        # When the first minimum run time ends that alone protects a victim; None: none was encountered.
        self.earliest_s: float | None = None
        # Sets tried so far for the current job, and for all that have failed.
        self.trials = 0
        self._trials_in_vain = 0

    def _settled(self, job: Job) -> None:
        """A job has got or lost pods for good."""
        self._holders.refresh(job)
        self._movable.refresh(job)
        turns = [turn for turn in self._pending.get(job.queue, ()) if turn.job is not job]
        if any(task.waits for task in job.tasks) and job.is_ready() and job.to_start():
            insort(turns, _Turn(job.sort_key(), job), key=_key)
        self._pending[job.queue] = turns

    # --- the three ways ---

    def consolidate(self, job: Job) -> Takeover | Nothing:
        """Others move so that it fits; none is evicted."""
        if not job.is_preemptible:
            return Nothing("a job that cannot be preempted moves no other job")
        mine = {queue.name for queue in self._queue(job).path()} if self._movable.has(job) else frozenset[str]()
        order = steps(
            self._movable,
            lambda queue: None if queue.name in mine else True,
            lambda other: other is not job,
            lambda _: False,
        )

        if not self._lack(job.to_start(), lambda _: False).is_none():
            return Nothing("too little is free, wherever others are")

        def judge(tried: _Tried) -> str:
            return f"{tried.gone[0].name} fits nowhere else" if tried.gone else ""

        return self._search(job, order, _Way(CONSOLIDATE, judge, "no job can move", lambda _: False, moves=True))

    def reclaim(self, job: Job) -> Takeover | Nothing:
        """Its queue gets back what others hold beyond their share."""
        queue = self._queue(job)
        reclaimer = Reclaimer(queue=queue, request=asked(job.to_start()), is_preemptible=job.is_preemptible)
        refusal = may_try(reclaimer)
        if refusal:
            return Nothing(refusal)
        found = self._left_over(job)
        if found is not None:
            return found
        nobody = "no other queue holds more than its share"
        worth = _Worth(reclaimer, self._tree)
        # Jobs that may lose nothing could still move; but moves alone were already tried for all jobs that may use them.
        moves = not (self.has_consolidated and job.is_preemptible)
        if not any(may_lose(reclaimer, other) for other in worth.queues()) and not (
            moves and self._lack(job.to_start(), lambda _: False).is_none()
        ):
            return Nothing(nobody)
        order = steps(self._holders, worth, lambda _: True, self._protection(lambda other: self._queue(other), queue))

        def judge(tried: _Tried) -> str:
            losses: dict[str, list[Amounts]] = {}
            for other, tasks in _by_job(tried.gone):
                losses.setdefault(other.queue, []).extend(units_of(other, tasks))
            taker = reclaimer
            more = self._beyond(tried)
            if more:
                # It must be entitled to all that it gets, not only to its minimum: otherwise others would reclaim it.
                taker = msgspec.structs.replace(reclaimer, request=total((reclaimer.request, more)))
            return (may_try(taker) if more else "") or objection(taker, losses, self._tree.all(), self._multiplier)

        return self._search(job, order, _Way(RECLAIM, judge, nobody, worth.may_lose, moves=moves))

    def _left_over(self, job: Job) -> Takeover | None:
        """A place in what was freed for an earlier job beyond its need."""
        tasks, queue = job.to_start(), self._queue(job)
        if not self._has_left_over or not self._lack(tasks, lambda _: False).is_none():
            return None
        if excess(queue, asked(tasks), is_preemptible=job.is_preemptible) is not None:
            return None
        found = place_all(self._cluster, job, tasks, self._settings, self._now, self._costs)
        if found is None:
            return None
        self._in_force.placed(found)
        self._settled(job)
        return Takeover(action=RECLAIM, placed=tuple(found.items()))

    def preempt(self, job: Job) -> Takeover | Nothing:
        """Jobs of lower priority in its queue go."""
        queue = self._queue(job)
        if not job.is_preemptible:
            over = over_deserved(queue, asked(job.to_start()))
            if over is not None:
                return Nothing(over.message)
        line = self._holders.of(job.queue)
        nobody = f"queue {queue.title} runs nothing of lower priority that can be preempted"
        if not line or line[-1][1].priority >= job.priority:
            return Nothing(nobody)
        mine = {each.name for each in queue.path()}
        order = steps(
            self._holders,
            lambda each: None if each.name in mine else False,
            lambda other: other.priority < job.priority,
            self._protection(lambda _: queue, None),
        )
        return self._search(job, order, _Way(PREEMPT, lambda _: "", nobody, lambda _: True, moves=False))

    def _queue(self, job: Job) -> QueueShares:
        found = self._tree.get(job.queue)
        assert found is not None, f"{job.key} is in a queue that is there"
        return found

    def _protection(self, victim: Callable[[Job], QueueShares], taker: QueueShares | None) -> Callable[[Job], bool]:
        """Whether a job has not yet reached its minimum run time. taker: as `QueueTree.min_runtime_s`."""
        known: dict[str, bool] = {}

        def is_protected(job: Job) -> bool:
            found = known.get(job.key)
            if found is None:
                shortest_s = self._tree.min_runtime_s(victim(job), taker)
                started = max((task.since_s for task in job.active()), default=0.0)
                found = known[job.key] = shortest_s > 0 and self._now - started < shortest_s
                if found and (self.earliest_s is None or started + shortest_s < self.earliest_s):
                    self.earliest_s = started + shortest_s
            return found

        return is_protected

    # --- the search ---

    def _search(self, job: Job, order: Iterator[Step], way: _Way) -> Takeover | Nothing:
        """More and more of the job's pods, each time on top of the victims that made room for fewer."""
        tasks = job.to_start()
        if not tasks:
            return Nothing("nothing of it waits")
        victims = Remembered(order)
        if next(iter(victims), None) is None:
            return Nothing(way.nobody)
        self.trials = 0
        reason = ""
        searches: list[_Search] = [partial(self._of, sets) for sets in (of_one_node, of_several_nodes)]
        if not way.is_of_moves:
            searches.append(self._of_few)
        for search in searches:
            found = search(job, tasks, victims, way)
            if isinstance(found, _Tried):
                return self._carried_out(way, found)
            reason = found or reason
            if self.trials >= self._bound():
                self._trials_in_vain += self.trials
                return Nothing(f"undecided after {self.trials} trials", is_undecided=True)
        self._trials_in_vain += self.trials
        return Nothing(reason or "no set of pods whose going makes room")

    def _of(self, sets: Sets, job: Job, tasks: Sequence[Task], victims: Iterable[Step], way: _Way) -> _Tried | str:
        """Sets of one kind, for more and more pods; or why none suffices."""
        found = _Tried((), (), ())
        for count in _growing(len(tasks)):
            some, is_whole = tasks[:count], count == len(tasks)
            lack = self._lack(some, way.may_lose)
            better = self._first(job, some, sets(victims, found.victims, some, lack), way, is_whole=is_whole)
            if isinstance(better, str):
                return better
            found = better
        return found

    def _of_few(self, job: Job, tasks: Sequence[Task], victims: Iterable[Step], way: _Way) -> _Tried | str:
        """The same for what few jobs could lose, if the rules allow all of it to be lost."""
        sets = of_few_jobs(victims, self._lack(tasks, way.may_lose))
        allowed = (found for found in sets if not way.judge(_Tried((), (), tuple(found))))
        return self._first(job, tasks, allowed, way, is_whole=True)

    def _lack(self, tasks: Sequence[Task], may_lose: Callable[[Job], bool]) -> Lack:
        closed = self._closed
        aside = [task for job in self._jobs.values() for task in job.active() if task.node in closed] if closed else ()
        return Lack(self._tree, tasks, asked(aside), lambda task: task.node not in closed and may_lose(task.job))

    def _bound(self) -> int:
        """How many sets may be tried for one job: a round has to end."""
        return min(self._trials_max, max(1, TRIALS_MAX_OF_ROUND - self._trials_in_vain))

    def _first(
        self, job: Job, tasks: Sequence[Task], sets: Iterator[Sequence[Task]], way: _Way, *, is_whole: bool
    ) -> _Tried | str:
        """The first set of victims that makes room for these pods of a job, or why there is none. is_whole: these are all; the set
        may then stay applied."""
        reason = ""
        failed: set[frozenset[str]] = set()
        room: NodeRoom | None = None
        for victims in sets:
            key = frozenset(task.key for task in victims)
            if not key or key in failed:
                continue
            failed.add(key)
            if not way.moves and not any(way.may_lose(task.job) for task in victims):
                continue
            # The first set usually suffices; only others are worth a check before they are tried.
            if self.trials:
                room = room or NodeRoom(self._cluster, job, tasks, self._settings, self._now)
                if not room.could_be(victims):
                    continue
            self.trials += 1
            if self.trials > self._bound():
                return reason
            # Normally the order of queues decides which job is placed first. If none loses anything, this job may be, if those
            # that move cannot take what it is promised when they come back.
            yields = way.is_of_moves and all(task.job.priority <= job.priority for task in victims)
            for is_first in (False, True) if yields else (False,):
                tried = self._judged(job, tasks, victims, way, is_first=is_first, is_whole=is_whole)
                if isinstance(tried, _Tried):
                    return tried
                reason = tried if tried is not None else reason
        return reason

    def _judged(
        self, job: Job, tasks: Sequence[Task], victims: Sequence[Task], way: _Way, *, is_first: bool, is_whole: bool
    ) -> _Tried | str | None:
        """The result of a set, or the objection to it; None if it does not make room."""
        # The rules look at queues as they are before. Usually all victims go, and what was tried can stay as it is.
        is_allowed = is_whole and not way.judge(_Tried((), (), tuple(victims)))
        with ExitStack() as stack:
            tried = stack.enter_context(self._try(job, tasks, victims, is_first=is_first))
            if tried is not None and is_allowed and tried.all_go and not self._beyond(tried):
                self._in_force.keep(stack.pop_all())
                return msgspec.structs.replace(tried, is_in_force=True)
        return None if tried is None else self._gain(tried) or way.judge(tried) or tried

    def _gain(self, tried: _Tried) -> str:
        """The objection if a moved pod would get more than it had: the job, placed first, does not take that into account."""
        for task, placement in tried.moved:
            if self._costs is not None and placement.claims:
                cost = self._costs.of(placement)
                if any(amount > task.amounts.get(resource, 0) for resource, amount in cost.items()):
                    return f"{task.name} would get more than it has"
        return ""

    def _beyond(self, tried: _Tried) -> Amounts:
        """What the job gets beyond its minimum request."""
        costs = self._costs
        if costs is None or not any(placement.claims for _, placement in tried.placed):
            return EMPTY
        got = total(costs.of(placement) for _, placement in tried.placed)
        wanted = asked([task for task, _ in tried.placed])
        return {name: more for name, amount in got.items() if (more := amount - wanted.get(name, 0))}

    def _carried_out(self, way: _Way, tried: _Tried) -> Takeover:
        """Apply the result: victims are gone, moved pods are on their new nodes, the job has its place."""
        found = Takeover(action=way.action, placed=tried.placed, moved=tried.moved, evicted=tried.gone)
        given, taken = asked(found.evicted), asked([task for task, _ in found.placed])
        self._has_left_over |= any(amount > taken.get(resource, 0) for resource, amount in given.items())
        moved = [task for task, _ in found.moved]
        if not tried.is_in_force:
            self._in_force.without([task.pod for task in (*found.evicted, *moved)])
            for _, placement in (*found.placed, *found.moved):
                self._cluster.assume(placement)
                if self._costs is not None:
                    self._costs.count(placement)
            self._in_force.placed(dict((*found.placed, *found.moved)))
        for task in found.evicted:
            self._in_force.move(task, "", is_leaving=True)
        affected = (*found.evicted, *moved, *(task for task, _ in found.placed))
        for job in {task.job.key: task.job for task in affected}.values():
            self._settled(job)
        return found

    # --- trying ---

    @contextmanager
    def _try(
        self, job: Job, tasks: Sequence[Task], victims: Sequence[Task], *, is_first: bool
    ) -> Iterator[_Tried | None]:
        """Inside, the victims are gone and all that were affected are placed again; None if the job is not. is_first: the job
        has the first choice."""
        before = {task: self._place_of(task) for task in (*victims, *tasks)}
        gone = [task.pod for task in victims]
        with ExitStack() as stack:
            stack.enter_context(self._cluster.without(gone, anew=True))
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
            turn, is_affected = turns[queue].pop()
            if not is_affected:
                # Nothing has changed, so that the next one of the same size comes up at once.
                while turns[queue] and not turns[queue][-1][1] and turns[queue][-1][0].request == turn.request:
                    turns[queue].pop()
            if not turns[queue]:
                del turns[queue]
            if not is_affected:
                continue
            next_ = turn.job
            placed = self._place(next_, list(tasks) if next_ is job else next_.to_start(), placements)
            if placed is not None:
                found.update(placed)
            elif next_ is job:
                return None
        return found

    def _turns(self, affected: Mapping[str, Job]) -> dict[str, list[tuple[_Turn, bool]]]:
        """The jobs of each queue in the order in which they will be served, the first one last; and whether they are concerned.
        Others that wait have their turn too, although they are not placed: they stand for their queue when it is compared. If
        they did not, what is reclaimed for one could go to another in the next moment, and be reclaimed again."""
        found: dict[str, list[tuple[_Turn, bool]]] = {}
        for queue in sorted({job.queue for job in affected.values()}):
            mine = sorted((_Turn(job.sort_key(), job) for job in affected.values() if job.queue == queue), key=_key)
            pending = self._pending.get(queue, [])
            before = pending[: bisect_left(pending, mine[-1].place, key=_key)]
            order = [(turn, True) for turn in mine]
            order += [(turn, False) for turn in before if turn.job.key not in affected]
            order.sort(key=lambda entry: entry[0].place, reverse=True)
            found[queue] = order
        return found

    def _next(self, turns: Mapping[str, Sequence[tuple[_Turn, bool]]]) -> str | None:
        if len(turns) == 1:
            return next(iter(turns))
        leaves = [Candidate(self._queue(waiting[-1][0].job), waiting[-1][0].request) for waiting in turns.values()]
        leaf = first_among(self._tree, leaves)
        return leaf.queue.name if leaf is not None else None

    def _place(self, job: Job, tasks: Sequence[Task], placements: list[Placement]) -> dict[Task, Placement] | None:
        """All of these pods, or none."""
        if not tasks or excess(self._queue(job), asked(tasks), is_preemptible=job.is_preemptible) is not None:
            return None
        found = place_all(self._cluster, job, tasks, self._settings, self._now, self._costs)
        if found is None:
            return None
        for task, placement in found.items():
            placements.append(placement)
            task.node = placement.node
        return found


class _Turn:
    """A job to be served, its place in its queue and what it asks for."""

    __slots__ = ("_request", "job", "place")

    def __init__(self, place: Place, job: Job) -> None:
        self.place = place
        self.job = job
        self._request: Amounts | None = None

    @property
    def request(self) -> Amounts:
        """What its next pods ask for."""
        if self._request is None:
            self._request = asked(self.job.to_start())
        return self._request


def _key(turn: _Turn) -> Place:
    return turn.place


def _can_lose(job: Job) -> bool:
    return job.is_preemptible and not job.is_fixed


def _can_move(job: Job) -> bool:
    return job.is_movable and _can_lose(job)


class _Worth:
    """Whether anything of a queue can be reclaimed: decided where its path leaves that of the taker."""

    def __init__(self, reclaimer: Reclaimer, tree: QueueTree) -> None:
        self._reclaimer = reclaimer
        self._tree = tree
        self._above = {queue.name for queue in reclaimer.queue.path()}
        # By the name of the queue above: whether the taker, or its ancestor there, stays within what it deserves.
        self._deserves: dict[str, bool] = {}
        self._known: dict[str, bool] = {}
        self._losers: dict[str, bool] = {}

    def queues(self) -> Iterator[QueueShares]:
        """Those that part from the taker's path and are worth trying: one for each at the level where they part."""
        for queue in self._reclaimer.queue.path():
            siblings = queue.parent.children if queue.parent is not None else self._tree.top()
            yield from (each for each in siblings if each is not queue and self(each))

    def __call__(self, queue: QueueShares) -> bool | None:
        if queue.name in self._above:
            return None if queue is not self._reclaimer.queue else False
        if not queue.queue.is_reclaimable:
            return False
        parent = queue.parent
        if parent is not None and parent.name not in self._above:
            return True
        known = self._known.get(queue.name)
        if known is None:
            known = self._known[queue.name] = self._is_worth_trying(queue)
        return known

    def _is_worth_trying(self, queue: QueueShares) -> bool:
        request, above = self._reclaimer.request, queue.parent.name if queue.parent is not None else ""
        is_deserved = self._deserves.get(above)
        if is_deserved is None:
            mine = next(each for each in self._reclaimer.queue.path() if each.parent is queue.parent)
            is_deserved = self._deserves[above] = fits_deserved(mine, request)
        return is_worth_trying(request, queue, is_deserved=is_deserved)

    def may_lose(self, job: Job) -> bool:
        """Whether a job's queue, as it is, may lose a unit; if not, its pods can only move."""
        known = self._losers.get(job.queue)
        if known is None:
            queue = self._tree.get(job.queue)
            known = self._losers[job.queue] = queue is not None and may_lose(self._reclaimer, queue)
        return known


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
            if task.job.is_movable:
                moved.append((task, placement))
            else:
                # It does not come back.
                gone.append(task)
    return _Tried(tuple(placed), tuple(moved), tuple(gone), all_go=len(found) == len(placed))


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
