"""Which queue is served next, and which of its jobs: KAI's order.

Siblings are compared with the job that each would start next: a queue above its fair share in everything comes last; one that
stays within what it deserves comes first; then priority, no use of what it has no part in, the smaller dominant share with and
without the job, the smaller part, age. From the top of the tree down to a leaf. Victims are looked for in the reverse order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import msgspec

from allot.core.scheduling.queues.amounts import ONE, UNLIMITED, Amounts, exceeds
from allot.core.scheduling.queues.model import QueueShares
from allot.core.scheduling.queues.tree import QueueTree

# Ratios are compared in steps of this: whole numbers, and finer than any amount.
_SCALE = 10**18
# How much more a resource weighs that is held without any part in it.
_NO_SHARE = 1000

Rank = tuple[bool, bool, int, bool, int, int]


class Candidate(msgspec.Struct, frozen=True):
    """A queue with the job that stands for it. request: what the job asks for; lost: what the queue has lost so far while
    victims are looked for."""

    queue: QueueShares
    request: Amounts = {}
    lost: Amounts = {}


def rank(candidate: Candidate, there: Amounts) -> Rank:
    """The first is served first; `_precedes` breaks ties."""
    queue, request = candidate.queue, candidate.request
    lost = candidate.lost
    is_over = bool(queue.shares)
    exceeds_deserved = uses_no_share = False
    # The largest part that it holds of anything it may have, with and without the job.
    dominant_with = dominant = 0
    for resource, share in queue.shares.items():
        held, deserved, part = share.allocated, share.deserved, share.allocatable
        if share.fair_share >= held:
            is_over = False
        with_job = held + request.get(resource, 0)
        if with_job > deserved != UNLIMITED:
            exceeds_deserved = True
        if part == 0 and with_job > 0:
            uses_no_share = True
        if part == UNLIMITED:
            part = there.get(resource, 0)
        factor, part = (_SCALE, part) if part else (_NO_SHARE * _SCALE, ONE)
        value = held * factor // part
        if value > dominant:
            dominant = value
        after = with_job - lost.get(resource, 0)
        if after != held:
            value = after * factor // part
        if value > dominant_with:
            dominant_with = value
    return is_over, exceeds_deserved, -queue.queue.priority, uses_no_share, dominant_with, dominant


def _parts(queue: QueueShares) -> tuple[int, ...]:
    """What a queue may have of each resource."""
    return tuple([share.allocatable for share in queue.shares.values()])


def _precedes(left: Standing, right: Standing) -> bool:
    """Between queues of equal rank: the one with the smaller part everywhere, else the older one."""
    if left.parts != right.parts:
        smaller, larger = _is_smaller(left.parts, right.parts), _is_smaller(right.parts, left.parts)
        if smaller != larger:
            return smaller
    return left.age < right.age


def _is_smaller(left: Sequence[int], right: Sequence[int]) -> bool:
    is_less = False
    for mine, theirs in zip(left, right, strict=True):
        if mine == UNLIMITED:
            if theirs != UNLIMITED:
                return False
        elif exceeds(mine, theirs):
            return False
        else:
            is_less = is_less or theirs == UNLIMITED or mine < theirs
    return is_less


class Standing(NamedTuple):
    """What a queue is compared by, and the leaf that stands for it."""

    rank: Rank
    parts: tuple[int, ...]
    age: tuple[str, str]
    leaf: Candidate


class Standings:
    """Which queue is served next, or last, updated as queues and their jobs change: what has not changed is not checked again.

    candidate: a leaf with the job that stands for it; None if it has none. A queue with others below is stood for by the one of them
    that comes first."""

    def __init__(
        self, tree: QueueTree, candidate: Callable[[QueueShares], Candidate | None], *, is_reversed: bool = False
    ) -> None:
        self._tree = tree
        self._candidate = candidate
        self._is_reversed = is_reversed
        self._epoch = -1
        # By queue: the version that it was computed for.
        self._known: dict[str, tuple[int, Standing | None]] = {}

    def touch(self, queue: QueueShares) -> None:
        """Another job stands for a leaf."""
        for each in queue.path():
            self._known.pop(each.name, None)

    def first(self) -> Candidate | None:
        """The leaf that comes first."""
        found = self._best_known(self.top())
        return found.leaf if found is not None else None

    def top(self) -> Iterable[QueueShares]:
        """The queues at the top, with what is known of all brought up to date."""
        found = self._tree.top()
        if self._tree.epoch != self._epoch:
            self._epoch = self._tree.epoch
            self._known.clear()
        return found

    def best(self, siblings: Iterable[QueueShares], of: Callable[[QueueShares], Standing | None]) -> Standing | None:
        """The first of siblings. of: the standing of each."""
        return self._chosen([found for queue in siblings if (found := of(queue)) is not None])

    def _best_known(self, siblings: Iterable[QueueShares]) -> Standing | None:
        """As `best` with `of`: most are as they were."""
        known = self._known
        standings: list[Standing] = []
        for queue in siblings:
            entry = known.get(queue.name)
            found = entry[1] if entry is not None and entry[0] == queue.version else self.of(queue)
            if found is not None:
                standings.append(found)
        return self._chosen(standings)

    def _chosen(self, standings: Sequence[Standing]) -> Standing | None:
        best: Standing | None = None
        is_reversed = self._is_reversed
        for found in standings:
            if best is None:
                best = found
            elif found.rank != best.rank:
                if (found.rank < best.rank) != is_reversed:
                    best = found
            elif _precedes(found, best) != is_reversed:
                best = found
        return best

    def of(self, queue: QueueShares) -> Standing | None:
        """The standing of a queue; None if nothing is in it."""
        known = self._known.get(queue.name)
        if known is not None and known[0] == queue.version:
            return known[1]
        below = self._best_known(queue.children) if queue.children else None
        found = self._standing(queue, below, self._candidate)
        self._known[queue.name] = (queue.version, found)
        return found

    def worked_out(
        self,
        queue: QueueShares,
        of: Callable[[QueueShares], Standing | None],
        candidate: Callable[[QueueShares], Candidate | None],
    ) -> Standing | None:
        """The standing of a queue from those below it, or from the job that stands for it."""
        return self._standing(queue, self.best(queue.children, of) if queue.children else None, candidate)

    def _standing(
        self, queue: QueueShares, below: Standing | None, candidate: Callable[[QueueShares], Candidate | None]
    ) -> Standing | None:
        if queue.children:
            if below is None:
                return None
            leaf = below.leaf
            own = Candidate(queue, leaf.request, leaf.lost)
        else:
            found = candidate(queue)
            if found is None:
                return None
            leaf = own = found
        return Standing(rank(own, self._tree.total), _parts(queue), queue.age, leaf)


def first_among(tree: QueueTree, leaves: Sequence[Candidate]) -> Candidate | None:
    """Which of a few leaves is served first."""
    here = {leaf.queue.name: leaf for leaf in leaves}
    above = {queue.name for leaf in leaves for queue in leaf.queue.path()}

    def candidate(queue: QueueShares) -> Candidate | None:
        return here.get(queue.name)

    standings = Standings(tree, candidate)

    def of(queue: QueueShares) -> Standing | None:
        return standings.worked_out(queue, of, candidate) if queue.name in above else None

    found = standings.best(tree.top(), of)
    return found.leaf if found is not None else None


def elastic_state(active: Sequence[int], minimum: Sequence[int]) -> int:
    """0: some part of a job has fewer pods than it needs; 1: all have exactly that many; 2: some have more."""
    state = 1
    for have, need in zip(active, minimum, strict=True):
        if have < need:
            return 0
        if have > need:
            state = 2
    return state
