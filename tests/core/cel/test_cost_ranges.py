"""Ranges of sizes and costs stop at 2^64-1 and never cross."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from allot.core.cel.costs.ranges import INFINITE, UNKNOWN, Range, exactly

_numbers = st.one_of(st.integers(0, 1000), st.integers(0, INFINITE))
_ranges = st.tuples(_numbers, _numbers).map(lambda ends: Range(min(ends), max(ends)))


@given(_ranges, _ranges)
def test_sums_products_and_unions_stay_ranges_of_64_bit_numbers(one: Range, other: Range) -> None:
    for result in (one + other, one * other, one | other, one.scaled(0.1), one.scaled(2.1)):
        assert 0 <= result.min <= result.max <= INFINITE


@given(_ranges, _ranges)
def test_a_union_covers_both(one: Range, other: Range) -> None:
    union = one | other
    assert union.min == min(one.min, other.min)
    assert union.max == max(one.max, other.max)


def test_unknown_stays_unknown_whatever_is_added_or_multiplied() -> None:
    assert (UNKNOWN + exactly(7)).max == INFINITE
    assert (UNKNOWN * exactly(7)).max == INFINITE
    assert UNKNOWN.scaled(1).max == INFINITE


def test_an_unknown_size_times_nothing_is_nothing() -> None:
    assert UNKNOWN * exactly(0) == exactly(0)


def test_scaling_rounds_up() -> None:
    assert Range(1, 63).scaled(0.1) == Range(1, 7)
    assert exactly(0).scaled(0.1) == exactly(0)


def test_scaling_has_the_rounding_errors_of_upstream() -> None:
    # 0.1 * 30 is a little more than 3 in floating point.
    assert exactly(30).scaled(0.1) == exactly(3)
    assert exactly(3).scaled(0.1 * 10) == exactly(3)
    assert exactly(70).scaled(0.1) == exactly(7)
