"""Priorities of pools, as Cluster Autoscaler's config map has them."""

from __future__ import annotations

import pytest

from allot.autoscaler.backoff import Backoff
from allot.autoscaler.options import AutoscalerOptions
from allot.autoscaler.priorities import LOWEST, BadPriorities, parse_priorities


def test_the_highest_that_fits_counts() -> None:
    """And a pool that none fits comes last."""
    found = parse_priorities("10:\n- .*\n50:\n- ^a100-.*\n- spot\n")
    assert [found.of(name) for name in ("a100-80", "l4-spot", "cpu")] == [50, 50, 10]
    assert parse_priorities("1: [x]").of("y") == LOWEST


@pytest.mark.parametrize("text", ["x", "a: [b]", "1: b", "1: [1]", "1: ['(']", "1: ["])
def test_what_makes_no_sense_is_refused(text: str) -> None:
    """With a reason."""
    with pytest.raises(BadPriorities):
        parse_priorities(text)


def test_pauses_grow_and_are_forgotten() -> None:
    """Machines of one request that fail one by one are one failure."""
    backoff = Backoff(AutoscalerOptions(backoff_initial_s=10.0, backoff_max_s=25.0, backoff_reset_s=100.0))
    assert [backoff.failed("p", "c", "r", now).duration_s for now in (0.0, 1.0, 20.0, 60.0)] == [10.0, 10.0, 20.0, 25.0]
    assert backoff.of("p", 84.0) is not None and backoff.of("p", 86.0) is None
    assert backoff.failed("p", "c", "r", 500.0).duration_s == 10.0
    backoff.succeeded("p")
    assert backoff.of("p", 500.0) is None
