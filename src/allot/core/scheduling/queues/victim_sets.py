"""Which sets of pods are tried as victims, in order: pods of one node, then of more and more, then what few jobs
could lose.

Steps come in the order of `victims`. A set is tried only if what it gives back could be enough: what the job lacks in the whole cluster
has to come from evicted pods, as a pod that only moves takes as much elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import combinations, islice, product

from allot.core.scheduling.queues.amounts import Amounts
from allot.core.scheduling.queues.jobs import Task, asked
from allot.core.scheduling.queues.tree import QueueTree
from allot.core.scheduling.queues.victims import Step

# Sets of what few jobs lose that are checked.
FEW_MAX = 500

Sets = Callable[[Iterable[Step], Sequence[Task], Sequence[Task], "Lack"], Iterator[Sequence[Task]]]


class Lack:
    """What pods need beyond what is free in the whole cluster, and what others give back; if something is left, there is nothing to
    try."""

    def __init__(
        self, tree: QueueTree, tasks: Sequence[Task], outside: Amounts, counts: Callable[[Task], bool]
    ) -> None:
        """outside: what is held, but not of what there is; counts: whether a pod that goes can give something back."""
        request = asked(tasks)
        self._counts = counts
        self._missing: dict[str, int] = {}
        for resource, there in tree.total.items():
            held = sum([queue.shares[resource].allocated for queue in tree.top() if resource in queue.shares])
            missing = request.get(resource, 0) - (there - held + outside.get(resource, 0))
            if missing > 0:
                self._missing[resource] = missing

    def gain(self, tasks: Iterable[Task]) -> None:
        """These are evicted."""
        if not self._missing:
            return
        for task in tasks:
            if self._counts(task):
                for resource in self._missing:
                    self._missing[resource] -= task.amounts.get(resource, 0)

    def is_none(self) -> bool:
        """Whether there could be enough."""
        return all(missing <= 0 for missing in self._missing.values())

    def is_met_by(self, tasks: Sequence[Task]) -> bool:
        """Whether there could be enough if these went too."""
        return all(
            missing <= sum(task.amounts.get(resource, 0) for task in tasks if self._counts(task))
            for resource, missing in self._missing.items()
        )


def _growing(order: Iterable[Step], recorded: Sequence[Task], lack: Lack) -> Iterator[Sequence[Step]]:
    """More and more steps, where they could be enough; without those that touch what has to go anyway."""
    known = set(recorded)
    taken: list[Step] = []
    lack.gain(recorded)
    for step in order:
        if any(task in known for task in step.tasks):
            continue
        taken.append(step)
        lack.gain(step.tasks)
        if lack.is_none():
            yield taken


def of_one_node(
    order: Iterable[Step],
    recorded: Sequence[Task],
    tasks: Sequence[Task],  # noqa: ARG001
    lack: Lack,
) -> Iterator[Sequence[Task]]:
    """What could leave the node of the latest step, together with what has to go anyway."""
    if recorded:
        yield recorded
    for taken in _growing(order, recorded, lack):
        for node in taken[-1].nodes:
            here = [task for each in taken if node in each.nodes for task in each.tasks]
            yield (*recorded, *here)


def of_several_nodes(
    order: Iterable[Step], recorded: Sequence[Task], tasks: Sequence[Task], lack: Lack
) -> Iterator[Sequence[Task]]:
    """What could leave more and more nodes, first those on which least has to go."""
    if recorded:
        yield recorded
    for taken in _growing(order, recorded, lack):
        nodes = _by_room(taken, tasks)
        count, more = 1, 1
        while True:
            chosen = set(nodes[:count])
            yield (*recorded, *(task for each in taken if chosen.intersection(each.nodes) for task in each.tasks))
            if count >= len(nodes):
                break
            count = min(count + more, len(nodes))
            more *= 2


def of_few_jobs(order: Iterable[Step], lack: Lack) -> Iterator[Sequence[Task]]:
    """What one job could lose, less or more, then what two could, and so on, up to a bound. The sets before hold all that comes first in
    the order; but the more go, the sooner some of them may have their turn when all are placed again, and so be before the taker."""
    losses: dict[str, list[tuple[Task, ...]]] = {}
    for step in order:
        mine = losses.setdefault(step.job.key, [])
        mine.append((*(mine[-1] if mine else ()), *step.tasks))
    sets = (
        tuple(task for loss in chosen for task in loss)
        for count in range(1, len(losses) + 1)
        for jobs in combinations(losses.values(), count)
        for chosen in product(*jobs)
    )
    for found in islice(sets, FEW_MAX):
        if lack.is_met_by(found):
            yield found


def _by_room(taken: Sequence[Step], tasks: Sequence[Task]) -> list[str]:
    """Nodes with victims, those with the least to free first, then in order of appearance."""
    request = asked(tasks)
    main = next((name for name in sorted(request) if name not in ("cpu", "memory") and request[name]), "cpu")
    room: dict[str, int] = {}
    for step in taken:
        for task in step.tasks:
            room[task.node] = room.get(task.node, 0) + task.amounts.get(main, 0)
    return sorted(room, key=lambda name: room[name])


class Remembered:
    """Steps that are computed on demand, and once: usually the first few are enough."""

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
