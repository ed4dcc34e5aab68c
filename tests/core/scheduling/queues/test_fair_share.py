"""Resources are divided among queues as KAI divides them, and the division keeps its laws."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from allot.core.scheduling.queues.amounts import ONE, UNLIMITED
from allot.core.scheduling.queues.fair_share import divide, divide_rest, share_out
from allot.core.scheduling.queues.model import Queue, QueueShares, Share

from .vector_queues import amount, amounts, cases, tree


def wrong(case: dict[str, Any]) -> list[str]:
    queues = tree(case["queues"])
    there, factor, expect = amounts(case["total"]), Fraction(str(case["k"])), case["expect"]
    tops = [queue for queue in queues.values() if queue.parent is None]
    left: dict[str, int] = {}
    if case["stage"] == "hierarchy":
        share_out(tops, there, factor)
    else:
        how = divide_rest if case["stage"] == "overQuota" else divide
        for resource, total in there.items():
            left[resource] = how([(queue, queue.shares[resource]) for queue in tops], total, factor)
    found = {
        f"{name} {resource}": (queues[name].shares[resource].fair_share, amount(expected))
        for name, shares in expect["fairShare"].items()
        for resource, expected in shares.items()
    }
    found |= {f"left {name}": (left[name], amount(expected)) for name, expected in expect.get("remaining", {}).items()}
    return [
        f"{case['id']}, {what}: {got / ONE}, not {want / ONE}" for what, (got, want) in found.items() if got != want
    ]


def test_shares_are_those_of_the_tables() -> None:
    found = [line for case in cases("fairshare") for line in wrong(case)]
    assert not found, "\n".join(found)


def _bound(largest: int) -> st.SearchStrategy[int]:
    whole = st.integers(0, largest).map(lambda number: number * ONE)
    return st.one_of(st.just(UNLIMITED), whole, whole.map(lambda number: number + ONE // 2))


SHARES = st.builds(
    Share,
    deserved=_bound(8),
    limit=_bound(12),
    weight=st.integers(0, 4).map(Fraction),
    request=st.integers(0, 40).map(lambda number: number * ONE // 4),
    usage=st.integers(0, 4).map(lambda number: Fraction(number, 4)),
)
ROWS = st.lists(st.tuples(st.integers(0, 2), SHARES), min_size=1, max_size=6)


def _siblings(rows: list[tuple[int, Share]]) -> list[tuple[QueueShares, Share]]:
    return [
        (QueueShares(Queue(name=f"q{number}", priority=priority)), share)
        for number, (priority, share) in enumerate(rows)
    ]


@given(ROWS, st.integers(0, 60), st.sampled_from([Fraction(0), Fraction(1, 2), Fraction(1)]))
def test_no_more_is_divided_than_there_is_beyond_what_is_deserved(
    rows: list[tuple[int, Share]], units: int, factor: Fraction
) -> None:
    there = units * ONE // 2
    siblings = _siblings(rows)
    left = divide(siblings, there, factor)
    guaranteed = [
        min(there if share.deserved == UNLIMITED else share.deserved, share.requestable) for _, share in siblings
    ]
    given = [share.fair_share - first for (_, share), first in zip(siblings, guaranteed, strict=True)]
    assert min(given) >= 0, "nobody gets less than it deserves and asks for"
    assert sum(given) <= max(0, there - sum(guaranteed))
    assert left >= 0
    for (_, share), more in zip(siblings, given, strict=True):
        assert not more or share.fair_share < share.requestable + ONE, "at most a unit is cut to fit"
        assert share.weight or not more, "without a weight nothing beyond what is deserved"


@given(ROWS, st.integers(0, 60))
def test_the_order_of_queues_does_not_matter(rows: list[tuple[int, Share]], units: int) -> None:
    siblings = _siblings(rows)
    divide(siblings, units * ONE // 2)
    first = [share.fair_share for _, share in siblings]
    divide(siblings[::-1], units * ONE // 2)
    assert [share.fair_share for _, share in siblings] == first
