"""The order in which jobs give back resources: the reverse of the order in which they are served.

A step is what a job loses at once: a pod above its minimum, a part that need not be there, or all it has. A job that lost a pod
is queued again, so that the next pod may be of another job. Jobs that hold something stay sorted for a whole round; steps are computed
one by one, as usually the first few are enough.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec

from allot.core.scheduling.queues.amounts import Amounts, total
from allot.core.scheduling.queues.jobs import Job, Task, asked
from allot.core.scheduling.queues.model import QueueShares
from allot.core.scheduling.queues.order import Candidate, Standing, Standings
from allot.core.scheduling.queues.tree import QueueTree

Place = tuple[int, int, str, str]
# Whether anything of a queue can be taken; None: of some of those below it.
Verdict = Callable[[QueueShares], bool | None]


class Step(msgspec.Struct, frozen=True):
    """Pods of one job that go together."""

    job: Job
    tasks: tuple[Task, ...]

    @property
    def nodes(self) -> list[str]:
        """Where they are, in order."""
        return sorted({task.node for task in self.tasks})


class Holders:
    """Jobs that hold something, by queue, in the order in which they are served. accepts: those that count."""

    def __init__(self, tree: QueueTree, jobs: Iterable[Job], accepts: Callable[[Job], bool]) -> None:
        self._accepts = accepts
        self._queues: dict[str, list[tuple[Place, Job]]] = {}
        self._places: dict[str, Place] = {}
        self.standings = Standings(tree, self._candidate, is_reversed=True)
        self._tree = tree
        for job in jobs:
            if accepts(job) and any(task.is_active for task in job.tasks):
                self._places[job.key] = job.sort_key()
                self._queues.setdefault(job.queue, []).append((self._places[job.key], job))
        for line in self._queues.values():
            line.sort(key=_place)

    def of(self, queue: str) -> Sequence[tuple[Place, Job]]:
        """Those of a queue; the last one loses first."""
        return self._queues.get(queue, ())

    def has(self, job: Job) -> bool:
        """Whether a job is among them."""
        return job.key in self._places

    def refresh(self, job: Job) -> None:
        """A job has more or less than before."""
        place = self._places.pop(job.key, None)
        line = self._queues.setdefault(job.queue, [])
        if place is not None:
            del line[bisect_left(line, place, key=_place)]
        if self._accepts(job) and any(task.is_active for task in job.tasks):
            self._places[job.key] = job.sort_key()
            insort(line, (self._places[job.key], job), key=_place)
        queue = self._tree.find(job.queue)
        if queue is not None:
            self.standings.touch(queue)

    def _candidate(self, queue: QueueShares) -> Candidate | None:
        line = self._queues.get(queue.name)
        return Candidate(queue, lost=asked(line[-1][1].active())) if line else None


def _place(entry: tuple[Place, Job]) -> Place:
    return entry[0]


class _Line:
    """The jobs of a queue while some of them lose something."""

    def __init__(self, jobs: Sequence[tuple[Place, Job]], accepts: Callable[[Job], bool]) -> None:
        self._jobs = jobs
        self._left = len(jobs)
        # Those that have lost something and still have some.
        self._again: list[tuple[Place, Job]] = []
        self._accepts = accepts
        self.lost: Amounts = {}

    def last(self) -> Job | None:
        """The job that loses next: a copy without what it has lost."""
        while self._left and not self._accepts(self._jobs[self._left - 1][1]):
            self._left -= 1
        if self._again and (not self._left or self._again[-1][0] > self._jobs[self._left - 1][0]):
            return self._again[-1][1]
        return self._jobs[self._left - 1][1] if self._left else None

    def pop(self, job: Job) -> None:
        """It has had its turn."""
        if self._again and self._again[-1][1] is job:
            self._again.pop()
        else:
            self._left -= 1

    def again(self, job: Job, gone: Sequence[Task]) -> None:
        """Queue it again without these, if anything is left."""
        rest = [task for task in job.active() if task not in gone]
        if rest:
            left = _copy(job, rest)
            insort(self._again, (left.sort_key(), left), key=_place)


def _copy(job: Job, tasks: Sequence[Task]) -> Job:
    found = Job(
        job.key,
        job.queue,
        priority=job.priority,
        is_preemptible=job.is_preemptible,
        created=job.created,
        root=job.root,
    )
    found.tasks = list(tasks)
    return found


def steps(
    holders: Holders,
    verdict: Verdict,
    accepts: Callable[[Job], bool],
    is_protected: Callable[[Job], bool],
) -> Iterator[Step]:
    """Steps in the order in which they go. verdict: queues whose jobs may go; accepts: which jobs, if that is not known for the
    queue; is_protected: whether a job may lose only what is above its minimum."""
    standings = holders.standings
    lines: dict[str, _Line] = {}
    # Queues with such lines, and those above them.
    touched: set[str] = set()

    def line_of(queue: QueueShares) -> _Line:
        line = lines.get(queue.name)
        if line is None:
            line = lines[queue.name] = _Line(holders.of(queue.name), accepts)
            touched.update(each.name for each in queue.path())
        return line

    def candidate(queue: QueueShares) -> Candidate | None:
        line = line_of(queue)
        job = line.last()
        return Candidate(queue, lost=total([line.lost, asked(job.active())])) if job is not None else None

    def of(queue: QueueShares) -> Standing | None:
        said = verdict(queue)
        if said is False:
            return None
        if said is None or queue.name in touched:
            return standings.worked_out(queue, of, candidate)
        return standings.of(queue)

    while True:
        found = standings.best(standings.top(), of)
        if found is None:
            return
        line = line_of(found.leaf.queue)
        job = line.last()
        assert job is not None, "a leaf that comes up has a job"
        line.lost = total([line.lost, asked(job.active())])
        line.pop(job)
        going = job.surplus() if is_protected(job) else job.to_lose()
        if going:
            line.again(job, going)
            yield Step(going[0].job, tuple(going))
