"""How long a unit waits after a failed attempt before the next one."""

from __future__ import annotations

from math import sqrt

import msgspec

# kube-scheduler's defaults.
INITIAL_S = 1.0
MAX_S = 10.0
# 2 ** 64 seconds exceed any configuration; shifting further only makes large numbers.
_DOUBLINGS_MAX = 64


class BackoffTimes(msgspec.Struct, frozen=True, kw_only=True):
    """The initial and the maximum back-off."""

    initial_s: float = INITIAL_S
    max_s: float = MAX_S

    def pause_s(self, failures: int, pods: int = 1) -> float:
        """The back-off after this many consecutive failures. Groups are costlier to try, so their maximum grows with the square root of their
        size."""
        if failures <= 0:
            return 0.0
        longest = self.max_s * sqrt(max(pods, 1))
        return min(self.initial_s * (1 << min(failures - 1, _DOUBLINGS_MAX)), longest)
