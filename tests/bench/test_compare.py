"""What `make bench-compare` prints."""

from __future__ import annotations

import json

import pytest
from benchmarks.compare import Comparison, Pair, as_json, as_text, checked_out

FOUND = Comparison("case/name", (Pair(90, 100), Pair(110, 100), Pair(100, 100), Pair(104, 100)))


def test_the_median_of_the_ratios_of_pairs_is_told_with_its_spread() -> None:
    assert FOUND.middle == pytest.approx((0.975, 1.02, 1.055))
    assert "1.020  0.975..1.055  0.900..1.100  0.900" in as_text("0123456789abcdef", [FOUND])
    (row,) = json.loads(as_json("0123", [FOUND]))["workloads"]
    assert (row["ratio"], row["quartiles"], row["range"]) == (1.02, [0.975, 1.055], [0.9, 1.1])
    assert (row["fastest"], len(row["pairs"])) == (0.9, 4)


def test_one_pair_is_its_own_median() -> None:
    assert Comparison("w", (Pair(3, 2),)).middle == (1.5, 1.5, 1.5)


def test_a_commit_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(SystemExit, match="no-such-commit"), checked_out("no-such-commit"):
        pass
