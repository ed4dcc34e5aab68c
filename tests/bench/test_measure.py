"""Pods per second are computed as Kubernetes' benchmark computes them."""

from __future__ import annotations

import pytest

from allot.bench.measure import Throughput, percentile, spread


def samples(*counts: int) -> list[float]:
    throughput = Throughput()
    for second, count in enumerate(counts, 1):
        throughput.sample(count, float(second))
    return throughput.samples


def test_nothing_counts_before_the_first_pod_and_the_first_second_with_pods_is_thrown_away() -> None:
    assert samples(0, 0, 50, 150, 250) == [100, 100]


def test_a_run_that_is_over_within_a_second_has_no_samples() -> None:
    assert samples(10) == []
    assert spread([]) is None


def test_a_stall_counts_in_full() -> None:
    assert samples(10, 110, 110, 110, 200) == [100, 30, 30, 30]


def test_the_time_between_samples_is_measured_not_assumed() -> None:
    throughput = Throughput()
    throughput.sample(10, 1.0)
    throughput.sample(110, 3.0)
    assert throughput.samples == [50]


@pytest.mark.parametrize(("percent", "value"), [(50, 2), (75, 3), (76, 4), (90, 4), (99, 4)])
def test_percentiles_are_of_the_nearest_rank(percent: int, value: int) -> None:
    assert percentile([1, 2, 3, 4], percent) == value


def test_a_spread_has_average_and_percentiles() -> None:
    found = spread([3.0, 1.0, 2.0])
    assert found is not None
    assert (found.average, found.perc50, found.perc99, found.count) == (2.0, 2.0, 3.0, 3)
