"""Fair share: how much of each resource each queue is entitled to now, given all requests.

Resource by resource, and level by level from the top: the children of a queue divide what it got. First everyone gets what it
deserves, as far as it asks for it, even if that is more than there is. What is left goes by priority, strictly, and among
equals by weight in whole units; a queue that needs less than its part leaves the rest to the others; fractions of units go to those whose
part was cut most. Exact: the sums are whole numbers and the parts fractions. KAI's rules (plugin proportion), which
`tests/core/scheduling/queues/test_fair_share.py` compares with its tables.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction

from allot.core.scheduling.queues.amounts import ONE, UNLIMITED, Amounts
from allot.core.scheduling.queues.model import QueueShares, Share

# How much the past counts: a queue that used more than its part gets less of what is left.
USAGE_FACTOR = Fraction(1)


def share_out(queues: Iterable[QueueShares], there: Amounts, factor: Fraction = USAGE_FACTOR) -> None:
    """Set the fair shares of these siblings and of all below them. there: what they divide."""
    siblings = list(queues)
    resources = sorted({resource for queue in siblings for resource in queue.shares})
    for resource in resources:
        divide([(queue, queue.shares[resource]) for queue in siblings], there.get(resource, 0), factor)
    for queue in siblings:
        if queue.children:
            mine = {resource: share.fair_share for resource, share in queue.shares.items()}
            share_out(queue.children, mine, factor)


def divide(siblings: Sequence[tuple[QueueShares, Share]], there: int, factor: Fraction = USAGE_FACTOR) -> int:
    """Divide one resource among siblings. Returns what none gets."""
    left = there
    for _, share in siblings:
        deserved = there if share.deserved == UNLIMITED else share.deserved
        share.fair_share = min(deserved, share.requestable)
        left -= share.fair_share
    return divide_rest(siblings, left, factor) if left > 0 else 0


def divide_rest(siblings: Sequence[tuple[QueueShares, Share]], there: int, factor: Fraction = USAGE_FACTOR) -> int:
    """What is left when everyone has what it deserves, added to the fair shares. Returns what none gets."""
    left = there
    by_priority: dict[int, list[tuple[QueueShares, Share]]] = {}
    for queue, share in siblings:
        by_priority.setdefault(queue.queue.priority, []).append((queue, share))
    cut: dict[int, dict[str, tuple[Fraction, QueueShares, Share]]] = {}
    for priority in sorted(by_priority, reverse=True):
        left, cut[priority] = _by_weight(by_priority[priority], left, factor)
    for priority in sorted(by_priority, reverse=True):
        for _, _, share in sorted(cut[priority].values(), key=lambda entry: (-entry[0], entry[1].age)):
            if left <= 0:
                return left
            given = min(ONE, left)
            share.fair_share += given
            left -= given
    return left


def _by_weight(
    siblings: Sequence[tuple[QueueShares, Share]], there: int, factor: Fraction
) -> tuple[int, dict[str, tuple[Fraction, QueueShares, Share]]]:
    """Rounds among queues of one priority, as long as one needs less than its part. Returns what is left, and which was cut
    by how much."""
    left = there
    cut: dict[str, tuple[Fraction, QueueShares, Share]] = {}
    while True:
        weights = _weights(siblings, factor)
        sum_of_weights = sum(weights.values(), Fraction(0))
        if not sum_of_weights:
            return left, cut
        round_amount, goes_on = left, False
        for queue, share in siblings:
            if not left:
                break
            weight = weights.get(queue.name)
            if weight is None or not share.weight:
                continue
            part = round_amount * weight / sum_of_weights
            need = share.requestable - share.fair_share
            if need <= part:
                cut.pop(queue.name, None)
                given = need
            else:
                given = int(part) // ONE * ONE
                if part > given:
                    cut[queue.name] = (part - given, queue, share)
            share.fair_share += given
            left -= given
            goes_on = goes_on or (given > 0 and need < part)
        if not goes_on or not left:
            return left, cut


def _weights(siblings: Sequence[tuple[QueueShares, Share]], factor: Fraction) -> dict[str, Fraction]:
    """The part of each queue that wants more and may have it, by name."""
    hungry = [(queue, share) for queue, share in siblings if share.requestable > share.fair_share]
    sum_of_weights = sum((share.weight for _, share in hungry), Fraction(0))
    if sum_of_weights <= 0:
        return {}
    found: dict[str, Fraction] = {}
    for queue, share in hungry:
        part = share.weight / sum_of_weights
        found[queue.name] = max(Fraction(0), part + factor * (part - share.usage)) if share.usage or factor else part
    return found
