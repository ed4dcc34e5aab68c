"""Sets of completion indexes: what a status says, and arithmetic with it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allot.core.workloads.indexes import Indexes

_sets = st.sets(st.integers(0, 60))


@pytest.mark.parametrize(
    ("indexes", "text"),
    [
        ([], ""),
        ([3], "3"),
        ([3, 4], "3,4"),
        ([3, 4, 5], "3-5"),
        ([1, 3, 4, 5, 7], "1,3-5,7"),
        ([0, 1, 3, 4, 6, 7, 8], "0,1,3,4,6-8"),
        (range(100_000), "0-99999"),
    ],
)
def test_three_in_a_row_are_a_range(indexes: list[int], text: str) -> None:
    assert str(Indexes.of(indexes)) == text


@pytest.mark.parametrize(
    ("text", "completions", "expected"),
    [
        ("", 5, []),
        ("1,3-5,7", 10, [1, 3, 4, 5, 7]),
        # What lies beyond the completions, which may have become fewer, is cut.
        ("1,3-5,7", 5, [1, 3, 4]),
        ("1,3-5,7", 2, [1]),
        ("0-99999999", 3, [0, 1, 2]),
        # What cannot be read is left out.
        ("a,1,-,2-b,3", 10, [1, 3]),
    ],
)
def test_a_status_is_read(text: str, completions: int, expected: list[int]) -> None:
    assert Indexes.parse(text, completions) == Indexes.of(expected)


@given(_sets)
def test_what_is_printed_is_read(indexes: set[int]) -> None:
    made = Indexes.of(indexes)
    assert Indexes.parse(str(made), 100) == made
    assert len(made) == len(indexes)
    assert [index for index in range(70) if index in made] == sorted(indexes)


@given(_sets, _sets)
def test_they_are_sets(one: set[int], other: set[int]) -> None:
    assert Indexes.of(one) | Indexes.of(other) == Indexes.of(one | other)
    assert Indexes.of(one).common(Indexes.of(other)) == len(one & other)


@given(_sets, st.integers(0, 70))
def test_the_missing_ones_come_in_order(indexes: set[int], end: int) -> None:
    assert list(Indexes.of(indexes).missing(end)) == [index for index in range(end) if index not in indexes]
