"""Which queue is served next, and which of its jobs: KAI's order.

Siblings are compared with the job that each would start next: who holds more than its fair share in everything comes last; who
stays within what it deserves comes first; then priority, no use of what it has no part in, the smaller dominant share with and
without the job, the smaller part, age. From the top of the tree down to a leaf. Victims are looked for in the reverse order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import msgspec

from allot.core.scheduling.queues.amounts import ONE, UNLIMITED, Amounts, exceeds
from allot.core.scheduling.queues.model import QueueShares

# Ratios are compared in steps of this: whole numbers, and finer than any amount.
_SCALE = 10**18
# What is held of a resource without any part in it weighs so much more.
_NO_SHARE = 1000
_NONE: Amounts = {}

Rank = tuple[bool, bool, int, bool, int, int]


class Candidate(msgspec.Struct, frozen=True):
    """A queue with the job that stands for it. request: what the job asks for; lost: what the queue has lost so far while
    victims are looked for."""

    queue: QueueShares
    request: Amounts = {}
    lost: Amounts = {}
    # What the request is the request of, so that a rank can be kept while nothing changes; None: it cannot.
    stamp: object = None


class Ranks:
    """Ranks that are kept while neither the queue nor the job that stands for it changes. Made anew when shares are."""

    __slots__ = ("_epoch", "_known")

    def __init__(self) -> None:
        self._epoch = -1
        self._known: dict[str, tuple[int, object, Rank]] = {}

    def begin(self, epoch: int) -> None:
        """Shares are those of this epoch."""
        if epoch != self._epoch:
            self._epoch = epoch
            self._known.clear()

    def of(self, candidate: Candidate, there: Amounts) -> Rank:
        """As `rank`."""
        queue, stamp = candidate.queue, candidate.stamp
        known = self._known.get(queue.name)
        if known is not None and stamp is not None and known[0] == queue.version and known[1] == stamp:
            return known[2]
        found = rank(candidate, there)
        self._known[queue.name] = (queue.version, stamp, found)
        return found


def rank(candidate: Candidate, there: Amounts) -> Rank:
    """What comes first is served first; equals are told apart by `precedes`."""
    queue, request = candidate.queue, candidate.request
    is_over = bool(queue.shares)
    exceeds_deserved = uses_no_share = False
    for resource, share in queue.shares.items():
        held = share.allocated
        is_over = is_over and share.fair_share < held
        with_job = held + request.get(resource, 0)
        exceeds_deserved = exceeds_deserved or exceeds(with_job, share.deserved)
        uses_no_share = uses_no_share or (with_job > 0 and share.allocatable == 0)
    return (
        is_over,
        exceeds_deserved,
        -queue.queue.priority,
        uses_no_share,
        _dominant(queue, there, request, candidate.lost),
        _dominant(queue, there, _NONE, _NONE),
    )


def _dominant(queue: QueueShares, there: Amounts, more: Amounts, less: Amounts) -> int:
    """The largest part that a queue holds of anything it may have."""
    found = 0
    for resource, share in queue.shares.items():
        part = share.allocatable
        if part == UNLIMITED:
            part = there.get(resource, 0)
        held = share.allocated + more.get(resource, 0) - less.get(resource, 0)
        value = held * _SCALE // part if part else held * _NO_SHARE * _SCALE // ONE
        found = max(found, value)
    return found


def precedes(left: QueueShares, right: QueueShares) -> bool:
    """Between queues of equal rank: the one with the smaller part everywhere, else the older one."""
    smaller, larger = _is_smaller(left, right), _is_smaller(right, left)
    return smaller if smaller != larger else left.age < right.age


def _is_smaller(left: QueueShares, right: QueueShares) -> bool:
    is_less = False
    for resource, share in left.shares.items():
        mine, theirs = share.allocatable, right.shares[resource].allocatable
        if mine == UNLIMITED:
            if theirs != UNLIMITED:
                return False
        elif exceeds(mine, theirs):
            return False
        else:
            is_less = is_less or theirs == UNLIMITED or mine < theirs
    return is_less


def first_of(ranked: Iterable[tuple[Rank, QueueShares]], *, is_reversed: bool = False) -> QueueShares | None:
    """The one of several siblings that is served next, or last."""
    best: tuple[Rank, QueueShares] | None = None
    for entry in ranked:
        if best is None:
            best = entry
        elif entry[0] != best[0]:
            best = entry if (entry[0] < best[0]) != is_reversed else best
        elif precedes(entry[1], best[1]) != is_reversed:
            best = entry
    return best[1] if best is not None else None


def descend(
    top: Iterable[QueueShares],
    candidate: Callable[[QueueShares], Candidate | None],
    there: Amounts,
    *,
    is_reversed: bool = False,
    ranks: Ranks | None = None,
) -> QueueShares | None:
    """The leaf that is served next, or last. candidate: a leaf with the job that stands for it; None if it has none. A queue
    with others below is stood for by the one of them that comes first. ranks: those that were worked out before."""
    stands_for: dict[str, Candidate] = {}

    def best(siblings: Iterable[QueueShares]) -> QueueShares | None:
        ranked: list[tuple[Rank, QueueShares]] = []
        leaves: dict[str, QueueShares] = {}
        for queue in siblings:
            if queue.children:
                leaf = best(queue.children)
                if leaf is None:
                    continue
                below = stands_for[leaf.name]
                own = Candidate(queue, below.request, below.lost, below.stamp)
            else:
                found = candidate(queue)
                if found is None:
                    continue
                leaf, own = queue, found
                stands_for[leaf.name] = found
            leaves[queue.name] = leaf
            ranked.append((ranks.of(own, there) if ranks is not None else rank(own, there), queue))
        chosen = first_of(ranked, is_reversed=is_reversed)
        return leaves[chosen.name] if chosen is not None else None

    return best(top)


def elastic_state(active: Sequence[int], minimum: Sequence[int]) -> int:
    """0: some part of a job has fewer pods than it needs; 1: all have just so many; 2: some have more."""
    if any(have < need for have, need in zip(active, minimum, strict=True)):
        return 0
    return 2 if any(have > need for have, need in zip(active, minimum, strict=True)) else 1
