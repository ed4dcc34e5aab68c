"""Computes pods per second as Kubernetes' benchmark does, and percentiles. Pure.

Once a second, the number of scheduled pods is sampled. Nothing counts before the first pod; the first second that has
any is discarded; a second without any is merged with the following ones, so that a stall counts in full.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

INTERVAL_S = 1.0


class Throughput:
    """Samples of pods per second."""

    def __init__(self) -> None:
        self.samples: list[float] = []
        self._last_count = 0
        self._last_time = 0.0
        self._started = False
        self._skipped = 0

    def sample(self, count: int, now: float) -> None:
        """How many pods have been scheduled so far, once per interval."""
        new = count - self._last_count
        if not self._started:
            # The first interval with pods began before them, so it does not measure speed.
            if new > 0:
                self._started = True
                self._last_count, self._last_time = count, now
            return
        if new == 0:
            self._skipped += 1
            return
        elapsed = now - self._last_time
        self.samples.extend([new / elapsed] * (self._skipped + 1))
        self._skipped = 0
        self._last_count, self._last_time = count, now


class Spread(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Average and percentiles."""

    average: float
    perc50: float
    perc90: float
    perc95: float
    perc99: float
    count: int


def spread(values: Sequence[float]) -> Spread | None:
    """Average and percentiles (nearest rank) of at least one value."""
    if not values:
        return None
    ordered = sorted(values)
    return Spread(
        average=sum(ordered) / len(ordered),
        perc50=percentile(ordered, 50),
        perc90=percentile(ordered, 90),
        perc95=percentile(ordered, 95),
        perc99=percentile(ordered, 99),
        count=len(ordered),
    )


def percentile(ordered: Sequence[float], percent: int) -> float:
    """The value of the nearest rank in a sorted sequence."""
    rank = -(-len(ordered) * percent // 100)
    return ordered[max(rank, 1) - 1]
