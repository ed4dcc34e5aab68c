"""Backoff and rate limits: how long to wait before the next attempt.

Knows only numbers; the caller has the clock.
"""

from __future__ import annotations

from allot.process.clock import Clock
from allot.process.ids import Ids


class Backoff:
    """Pauses that grow with each failure, with jitter, and reset after a quiet time."""

    __slots__ = ("_clock", "_factor", "_first_s", "_ids", "_jitter", "_last", "_max_s", "_next_s", "_reset_s")

    def __init__(
        self,
        clock: Clock,
        ids: Ids,
        *,
        first_s: float = 0.8,
        max_s: float = 30.0,
        factor: float = 2.0,
        jitter: float = 1.0,
        reset_s: float = 120.0,
    ) -> None:
        self._clock = clock
        self._ids = ids
        self._first_s = first_s
        self._max_s = max_s
        self._factor = factor
        self._jitter = jitter
        self._reset_s = reset_s
        self._next_s = first_s
        self._last = clock.monotonic()

    def next_s(self) -> float:
        """The next pause, jitter included: up to twice as long with the default jitter."""
        now = self._clock.monotonic()
        if now - self._last > self._reset_s:
            self._next_s = self._first_s
        self._last = now
        pause, self._next_s = self._next_s, min(self._next_s * self._factor, self._max_s)
        return pause * (1 + self._jitter * self._ids.jitter())

    def reset(self) -> None:
        """Reset after a success."""
        self._next_s = self._first_s


class TokenBucket:
    """At most `burst` at once and `per_second` in the long run."""

    __slots__ = ("_at", "_burst", "_clock", "_per_second", "_tokens")

    def __init__(self, clock: Clock, per_second: float, burst: int) -> None:
        self._clock = clock
        self._per_second = per_second
        self._burst = float(burst)
        self._tokens = float(burst)
        self._at = clock.monotonic()

    def try_take(self) -> bool:
        """Take a token if there is one."""
        self._refill()
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True

    def reserve_s(self) -> float:
        """Take a token, possibly a future one; returns the time until then."""
        self._refill()
        self._tokens -= 1
        return 0.0 if self._tokens >= 0 else -self._tokens / self._per_second

    def _refill(self) -> None:
        now = self._clock.monotonic()
        self._tokens = min(self._burst, self._tokens + (now - self._at) * self._per_second)
        self._at = now
