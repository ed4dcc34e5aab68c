"""Pools in backoff after failed scale-ups."""

from __future__ import annotations

import msgspec

from allot.autoscaler.options import AutoscalerOptions


class Pause(msgspec.Struct, frozen=True, kw_only=True):
    """A pool's backoff, until a time. code, reason: of the failure."""

    until: float
    duration_s: float
    failed_at: float
    code: str
    reason: str


class Backoff:
    """Backoff by pool: each consecutive failure doubles it. Times: seconds since 1970."""

    def __init__(self, options: AutoscalerOptions) -> None:
        self._options = options
        self._pauses: dict[str, Pause] = {}

    def failed(self, pool: str, code: str, reason: str, now: float) -> Pause:
        """A scale-up of a pool has failed."""
        options, before = self._options, self._pauses.get(pool)
        duration = options.backoff_initial_s
        if before is not None and now - before.failed_at < options.backoff_reset_s:
            if before.until > now:
                # Machines of one request fail one by one, but count as one failure.
                duration = before.duration_s
            else:
                duration = min(before.duration_s * 2, options.backoff_max_s)
        made = Pause(until=now + duration, duration_s=duration, failed_at=now, code=code, reason=reason)
        self._pauses[pool] = made
        return made

    def succeeded(self, pool: str) -> None:
        """A node of the pool has registered."""
        self._pauses.pop(pool, None)

    def of(self, pool: str, now: float) -> Pause | None:
        """Why a pool is not used now; None if it can be."""
        found = self._pauses.get(pool)
        return found if found is not None and found.until > now else None
