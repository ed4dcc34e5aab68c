"""In which order jobs are made to give back what they hold: the reverse of the order in which they are served.

A step is what a job loses at once: a pod above its minimum, a part that need not be there, or all it has. A job that lost a pod
stands again, so that the next pod may be of another job.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from allot.core.scheduling.queues.amounts import total
from allot.core.scheduling.queues.jobs import Job, Task, asked
from allot.core.scheduling.queues.model import QueueShares
from allot.core.scheduling.queues.order import Candidate, Ranks, descend
from allot.core.scheduling.queues.tree import QueueTree


class Step(msgspec.Struct, frozen=True):
    """Pods of one job that go together."""

    job: Job
    tasks: tuple[Task, ...]

    @property
    def nodes(self) -> list[str]:
        """Where they are, in order."""
        return sorted({task.node for task in self.tasks})


class _Candidate:
    """A job of which some pods are still there."""

    __slots__ = ("job", "left", "place")

    def __init__(self, job: Job) -> None:
        self.job = job
        self.left = _copy(job, job.active())
        self.place = self.left.sort_key()

    def lose(self, tasks: Sequence[Task]) -> bool:
        """Without these; whether anything is left."""
        rest = [task for task in self.left.tasks if task not in tasks]
        self.left = _copy(self.job, rest)
        self.place = self.left.sort_key()
        return bool(rest)


def _place(candidate: _Candidate) -> tuple[int, int, str, str]:
    return candidate.place


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


def steps(tree: QueueTree, jobs: Iterable[Job], protected: frozenset[str] = frozenset()) -> Iterator[Step]:
    """What goes first, and what next, and so on. protected: jobs that may lose only what is above their minimum."""
    by_queue: dict[str, list[_Candidate]] = {}
    for job in jobs:
        by_queue.setdefault(job.queue, []).append(_Candidate(job))
    for candidates in by_queue.values():
        candidates.sort(key=_place)
    lost: dict[str, dict[str, int]] = {}
    gone: list[str] = []
    ranks = Ranks()
    ranks.begin(tree.epoch)

    def last(queue: QueueShares) -> _Candidate | None:
        candidates = by_queue.get(queue.name)
        return candidates[-1] if candidates else None

    def candidate(queue: QueueShares) -> Candidate | None:
        found = last(queue)
        if found is None:
            return None
        more = lost.get(queue.name, {})
        return Candidate(
            queue, lost=total([more, asked(found.left.tasks)]), stamp=(found.job.key, len(found.left.tasks), len(gone))
        )

    while True:
        leaf = descend(tree.top(), candidate, tree.total, is_reversed=True, ranks=ranks)
        if leaf is None:
            return
        found = last(leaf)
        assert found is not None, "a leaf that comes up has a job"
        lost[leaf.name] = total([lost.get(leaf.name, {}), asked(found.left.tasks)])
        is_protected = found.job.key in protected
        going = found.left.surplus() if is_protected else found.left.to_lose()
        by_queue[leaf.name].pop()
        if going and found.lose(going):
            insort(by_queue[leaf.name], found, key=_place)
        gone.append(found.job.key)
        if going:
            yield Step(found.job, tuple(going))
