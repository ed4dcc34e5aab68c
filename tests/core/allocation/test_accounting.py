"""Who may hold a device beside whom, and what is left of shared counters."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allot.core.allocation.accounting import CounterBalance, consumed_counters, excludes, published_counters
from allot.core.model.resource_v1 import Counter, CounterSet, Device, DeviceCounterConsumption
from allot.core.quantity import Quantity

SETS = (CounterSet(name="gpu", counters={"memory": Counter(value=Quantity.parse("40Gi"))}),)
MEMORY = ("gpu", "memory")


def partition(amount: str, counter: str = "memory") -> Device:
    taken = {counter: Counter(value=Quantity.parse(amount))}
    return Device(name="part", consumes_counters=(DeviceCounterConsumption(counter_set="gpu", counters=taken),))


@pytest.mark.parametrize(
    ("share", "other", "expected"),
    [(None, None, True), ("a", None, True), ("", "b", True), ("a", "a", True), ("a", "b", False)],
)
def test_only_different_shares_are_held_side_by_side(share: str | None, other: str | None, expected: bool) -> None:
    assert excludes(share, other) is expected
    assert excludes(other, share) is expected


def test_a_balance_takes_what_fits_and_no_more() -> None:
    balance = CounterBalance(published_counters(SETS))
    half = consumed_counters(partition("20Gi"))
    for _ in range(2):
        assert balance.fits(half)
        balance.take(half)
    assert balance.left == {MEMORY: 0}
    assert not balance.fits(half)
    assert balance.overcommitted(half) is None
    balance.take(half)
    assert balance.overcommitted(half) == MEMORY


def test_what_needs_a_counter_that_no_slice_publishes_does_not_fit() -> None:
    balance = CounterBalance(published_counters(SETS))
    unknown = consumed_counters(partition("1", counter="slices"))
    assert not balance.fits(unknown)
    balance.take(unknown)
    assert balance.left == published_counters(SETS)


@given(st.lists(st.integers(min_value=0, max_value=20), max_size=10))
def test_as_many_fit_as_their_sum_allows(amounts: list[int]) -> None:
    balance = CounterBalance({MEMORY: 40})
    taken = 0
    for amount in amounts:
        fits = balance.fits({MEMORY: amount})
        assert fits is (taken + amount <= 40)
        if fits:
            balance.take({MEMORY: amount})
            taken += amount
    assert balance.left == {MEMORY: 40 - taken}
