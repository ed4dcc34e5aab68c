"""Pools that are left alone for a while, because asking them has led to nothing."""

from __future__ import annotations

import msgspec

from allot.autoscaler.options import AutoscalerOptions


class Pause(msgspec.Struct, frozen=True, kw_only=True):
    """A pool is not asked until then. code, reason: what went wrong."""

    until: float
    duration_s: float
    failed_at: float
    code: str
    reason: str


class Backoff:
    """By pool: each failure in a row pauses twice as long as the one before. Times: seconds since 1970."""

    def __init__(self, options: AutoscalerOptions) -> None:
        self._options = options
        self._pauses: dict[str, Pause] = {}

    def failed(self, pool: str, code: str, reason: str, now: float) -> Pause:
        """Asking a pool has led to nothing."""
        options, before = self._options, self._pauses.get(pool)
        duration = options.backoff_initial_s
        if before is not None and now - before.failed_at < options.backoff_reset_s:
            if before.until > now:
                # Machines of one request fail one by one; that is one failure.
                duration = before.duration_s
            else:
                duration = min(before.duration_s * 2, options.backoff_max_s)
        made = Pause(until=now + duration, duration_s=duration, failed_at=now, code=code, reason=reason)
        self._pauses[pool] = made
        return made

    def succeeded(self, pool: str) -> None:
        """A node of it has come."""
        self._pauses.pop(pool, None)

    def of(self, pool: str, now: float) -> Pause | None:
        """Why a pool is not asked now; None if it can be."""
        found = self._pauses.get(pool)
        return found if found is not None and found.until > now else None
