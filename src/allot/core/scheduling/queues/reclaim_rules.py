"""The rules of reclaim: which queue may take from which, at the level of the tree where their paths split.

A unit may be taken if the queue that loses it holds more than it may have there (fair share), or if the one that gets it stays
within what it deserves while the other holds more than it deserves (deserved). And the taker must not end above its own fair
share while it pushes a sibling below the same degree of satisfaction. KAI's rules, compared with its tables in
`tests/core/scheduling/queues/test_reclaim_rules.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction

import msgspec

from allot.core.scheduling.queues.amounts import UNLIMITED, Amounts, exceeds
from allot.core.scheduling.queues.model import QueueShares, Share


class Reclaimer(msgspec.Struct, frozen=True, kw_only=True):
    """A job that reclaims for its queue."""

    queue: QueueShares
    request: Amounts
    is_preemptible: bool = True


def may_try(reclaimer: Reclaimer) -> str:
    """Why a job is not entitled to what others hold; empty if it is."""
    queue = reclaimer.queue
    resource = _over(queue, reclaimer.request, _fair_share)
    if resource:
        return f"queue {queue.title} would exceed its fair share of {resource}"
    if not reclaimer.is_preemptible:
        resource = _over(queue, reclaimer.request, _deserved, firmly=True)
        if resource:
            return f"queue {queue.title} would exceed its deserved {resource} with pods that cannot be preempted"
    return ""


def is_worth_trying(request: Amounts, theirs: QueueShares, *, is_deserved: bool) -> bool:
    """Whether anything of a queue can be taken at all: before anything is tried. theirs: the queue at the level where the paths part;
    is_deserved: the taker stays within what it deserves there."""
    if not is_deserved:
        return any(exceeds(share.allocated, share.allocatable) for share in theirs.shares.values())
    has_less = False
    for resource, amount in request.items():
        share = theirs.shares.get(resource)
        if amount <= 0 or share is None or share.deserved == UNLIMITED:
            continue
        if share.allocated > share.deserved:
            return True
        has_less = has_less or share.allocated < share.deserved
    return not has_less


def may_lose(reclaimer: Reclaimer, victim: QueueShares) -> bool:
    """Whether a queue, as it is, may lose a unit to the taker; if not, its pods can only move."""
    mine, theirs = parted(reclaimer.queue, victim)
    held = _held(theirs)
    return exceeds_fair_share(theirs, held) or guarantees_deserved(mine, reclaimer.request, theirs, held)


def exceeds_fair_share(queue: QueueShares, held: Amounts) -> bool:
    """The first rule: it holds more than it may have, in some resource."""
    return any(exceeds(held.get(resource, 0), share.allocatable) for resource, share in queue.shares.items())


def guarantees_deserved(mine: QueueShares, request: Amounts, theirs: QueueShares, held: Amounts) -> bool:
    """The second rule: one stays within what it deserves, the other holds more than it deserves."""
    if not fits_deserved(mine, request):
        return False
    return any(exceeds(held.get(resource, 0), share.deserved) for resource, share in theirs.shares.items())


def objection(
    reclaimer: Reclaimer,
    losses: Mapping[str, Sequence[Amounts]],
    queues: Mapping[str, QueueShares],
    multiplier: Fraction,
) -> str:
    """Why these units may not be taken; empty if they may. losses: by queue, units in the order of taking."""
    left: dict[str, dict[str, int]] = {}
    involved: dict[str, set[str]] = {}
    for name, units in losses.items():
        victim = queues[name]
        mine, theirs = parted(reclaimer.queue, victim)
        touched = {resource for unit in units for resource, amount in unit.items() if amount > 0}
        involved.setdefault(name, set()).update(touched)
        left.setdefault(theirs.name, _held(theirs))
        for unit in units:
            held = left[theirs.name]
            if not (exceeds_fair_share(theirs, held) or guarantees_deserved(mine, reclaimer.request, theirs, held)):
                return f"queue {theirs.title} holds no more than its share"
            for queue in victim.path():
                remains = left.setdefault(queue.name, _held(queue))
                for resource, amount in unit.items():
                    remains[resource] = remains.get(resource, 0) - amount
                involved.setdefault(queue.name, set()).update(touched)
    return _boundaries(reclaimer, left, involved, queues, multiplier)


def _boundaries(
    reclaimer: Reclaimer,
    left: Mapping[str, Mapping[str, int]],
    involved: Mapping[str, set[str]],
    queues: Mapping[str, QueueShares],
    multiplier: Fraction,
) -> str:
    """Objections on the taker's side, level by level."""
    asked = {resource for resource, amount in reclaimer.request.items() if amount > 0}
    for queue in reclaimer.queue.path():
        held = {**_held(queue), **left.get(queue.name, {})}
        for resource, amount in reclaimer.request.items():
            held[resource] = held.get(resource, 0) + amount
        for name in sorted(left):
            sibling = queues[name]
            if sibling.parent is not queue.parent or sibling is queue:
                continue
            for resource in sorted(involved.get(name, set()) | asked):
                if _is_unfair(queue, held, sibling, left[name], resource, multiplier):
                    return (
                        f"queue {queue.title} would be further above its fair share of {resource} than {sibling.title}"
                    )
        if not reclaimer.is_preemptible:
            over = _over(queue, reclaimer.request, _deserved, firmly=True)
            if over:
                return f"queue {queue.title} would exceed its deserved {over} with pods that cannot be preempted"
    return ""


def _is_unfair(
    queue: QueueShares, held: Amounts, sibling: QueueShares, rest: Amounts, resource: str, multiplier: Fraction
) -> bool:
    mine, theirs = queue.shares.get(resource), sibling.shares.get(resource)
    if mine is None or theirs is None or theirs.fair_share == UNLIMITED or theirs.fair_share == 0:
        return False
    ratio = _saturation(held.get(resource, 0), mine)
    if ratio is None:
        # Something of what it has no share in: more than any degree.
        return True
    return ratio > 1 and ratio * multiplier >= Fraction(rest.get(resource, 0), theirs.fair_share)


def _saturation(held: int, share: Share) -> Fraction | None:
    """How much of its fair share is held; None for something of nothing."""
    if share.fair_share == UNLIMITED:
        return Fraction(0)
    if share.fair_share == 0:
        return None if held > 0 else Fraction(0)
    return Fraction(held, share.fair_share)


def parted(queue: QueueShares, other: QueueShares) -> tuple[QueueShares, QueueShares]:
    """The ancestors of two queues where their paths part, or the last that both have."""
    mine, theirs = [*queue.path()], [*other.path()]
    found = mine.pop(), theirs.pop()
    while found[0] is found[1] and mine and theirs:
        found = mine.pop(), theirs.pop()
    return found


def _fair_share(share: Share) -> int:
    return share.fair_share


def _deserved(share: Share) -> int:
    return share.deserved


def _held(queue: QueueShares) -> dict[str, int]:
    return {resource: share.allocated for resource, share in queue.shares.items()}


def fits_deserved(queue: QueueShares, request: Amounts) -> bool:
    """Whether a queue stays within what it deserves with a request."""
    return not _over(queue, request, _deserved)


def _over(queue: QueueShares, request: Amounts, bound: Callable[[Share], int], *, firmly: bool = False) -> str:
    """The first resource in which a queue would hold more than a bound with a request, whether it is asked for or not; empty if
    there is none. firmly: what cannot be preempted."""
    for resource, share in queue.shares.items():
        held = share.allocated_firmly if firmly else share.allocated
        if exceeds(held + request.get(resource, 0), bound(share)):
            return resource
    return ""
