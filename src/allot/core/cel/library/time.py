"""Calendar fields of timestamps and parts of durations."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Final

from allot.core.cel.data import times
from allot.core.cel.data.values import Duration, Timestamp, Value

_UTC: Final = "UTC"


def _field(read: Callable[[datetime], int]) -> Callable[..., int]:
    def of_timestamp(moment: Timestamp, zone: str = _UTC) -> int:
        return read(times.in_zone(moment, zone)[0])

    return of_timestamp


def _milliseconds(moment: Timestamp, zone: str = _UTC) -> int:
    return times.in_zone(moment, zone)[1] // 10**6


def _duration_in(unit: int) -> Callable[[Duration], int]:
    def of_duration(duration: Duration) -> int:
        whole = abs(duration.nanoseconds) // unit
        return -whole if duration.nanoseconds < 0 else whole

    return of_duration


_FIELDS: Final[dict[str, Callable[..., int]]] = {
    "year": _field(lambda local: local.year),
    "month": _field(lambda local: local.month - 1),
    "day_of_year": _field(lambda local: local.timetuple().tm_yday - 1),
    "day_of_month": _field(lambda local: local.day - 1),
    "day_of_month_1_based": _field(lambda local: local.day),
    "day_of_week": _field(lambda local: local.isoweekday() % 7),
    "hours": _field(lambda local: local.hour),
    "minutes": _field(lambda local: local.minute),
    "seconds": _field(lambda local: local.second),
    "milliseconds": _milliseconds,
}

OVERLOADS: Final[dict[str, Callable[..., Value]]] = {
    **{f"timestamp_to_{name}": read for name, read in _FIELDS.items()},
    **{f"timestamp_to_{name}_with_tz": read for name, read in _FIELDS.items() if name != "seconds"},
    # Upstream names this one differently from its siblings.
    "timestamp_to_seconds_tz": _FIELDS["seconds"],
    "duration_to_hours": _duration_in(3600 * times.SECOND),
    "duration_to_minutes": _duration_in(60 * times.SECOND),
    "duration_to_seconds": _duration_in(times.SECOND),
    "duration_to_milliseconds": _duration_in(10**6),
}
