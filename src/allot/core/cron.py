"""Cron schedules: what a text means and when it is due next, as Kubernetes reads them (robfig/cron 3).

Five fields, or a name such as @daily, or @every with a duration. Knows time zones by name; does not know the time.
Clock changes are handled as upstream does: a time that does not exist is skipped, one that
exists twice is due twice. Like upstream, skips a day that has no midnight, east of Greenwich, when
reached from a day that does not match (`tests/core/test_cron.py`).
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, tzinfo
from typing import Final

import msgspec

from allot.core.cel.data.times import parse_duration, zone_named

_MONTHS: Final = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS: Final = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_EVERY: Final = "@every "
_NAMED: Final = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_YEARS_MAX: Final = 5
_HOUR_S: Final = 3600
_SECOND_NS: Final = 10**9
_INT64_MAX: Final = 2**63 - 1
_INTEGER: Final = re.compile(r"[+-]?[0-9]+", re.ASCII)
_DURATION_UNITS: Final = ("ns", "us", "µs", "μs", "ms", "s", "m", "h")


class ScheduleError(ValueError):
    """A text that is not a schedule; says why, in upstream's words."""


class _Bounds(msgspec.Struct, frozen=True, kw_only=True):
    """The lowest and highest value of a field, and the names of some values."""

    low: int
    high: int
    names: dict[str, int] = {}


_FIELDS: Final = (
    _Bounds(low=0, high=59),
    _Bounds(low=0, high=23),
    _Bounds(low=1, high=31),
    _Bounds(low=1, high=12, names={name: number for number, name in enumerate(_MONTHS, 1)}),
    _Bounds(low=0, high=6, names={name: number for number, name in enumerate(_DAYS)}),
)


class _Field(msgspec.Struct, frozen=True, kw_only=True):
    """The values that a field matches; whether it is a star, which means more than matching everything."""

    values: frozenset[int]
    is_star: bool


class Every(msgspec.Struct, frozen=True, kw_only=True):
    """Due at equal intervals, counted from the last time."""

    seconds: int

    def next_after(self, moment: float) -> int | None:
        """The next time after a moment, in seconds since 1970."""
        return int(moment // 1) + self.seconds


class Calendar(msgspec.Struct, frozen=True, kw_only=True):
    """Due when minute, hour, day and month match."""

    minute: _Field
    hour: _Field
    day_of_month: _Field
    month: _Field
    day_of_week: _Field
    zone: tzinfo

    def next_after(self, moment: float) -> int | None:
        """The next time after a moment, in seconds since 1970; None if there is none within five years."""
        if not (self.minute.values and self.hour.values and self.month.values):
            return None
        return _Walk(self, int(moment // 1) + 1).run()

    def fits_day(self, local: datetime) -> bool:
        """Whether a date matches: both day fields must match if one is a star, otherwise either."""
        month_day = local.day in self.day_of_month.values
        week_day = local.isoweekday() % 7 in self.day_of_week.values
        if self.day_of_month.is_star or self.day_of_week.is_star:
            return month_day and week_day
        return month_day or week_day


Schedule = Every | Calendar


def parse_schedule(text: str, zone: tzinfo = UTC) -> Schedule:
    """The schedule of a text; ScheduleError if invalid. zone: the time zone if the text names none."""
    if not text:
        raise ScheduleError("empty spec string")
    if text.startswith(("TZ=", "CRON_TZ=")):
        prefix, space, rest = text.partition(" ")
        name = prefix.partition("=")[2]
        if not space:
            # Upstream's parser panics here; this is how Kubernetes reports it.
            raise ScheduleError("invalid schedule format: runtime error: slice bounds out of range [:-1]")
        zone = _zone(name)
        text = rest.strip()
    if text.startswith("@"):
        if text.startswith(_EVERY):
            return _every(text)
        if text not in _NAMED:
            raise ScheduleError(f"unrecognized descriptor: {text}")
        text = _NAMED[text]
    parts = text.split()
    if len(parts) != len(_FIELDS):
        raise ScheduleError(f"expected exactly {len(_FIELDS)} fields, found {len(parts)}: [{' '.join(parts)}]")
    minute, hour, day_of_month, month, day_of_week = map(_field, parts, _FIELDS)
    return Calendar(
        minute=minute, hour=hour, day_of_month=day_of_month, month=month, day_of_week=day_of_week, zone=zone
    )


def time_zone(name: str) -> tzinfo | None:
    """The time zone of a name in the IANA database; None if there is none."""
    return UTC if name in ("", "UTC") else zone_named(name)


# --- reading ---


def _zone(name: str) -> tzinfo:
    found = time_zone(name)
    if found is None:
        raise ScheduleError(f"provided bad location {name}: unknown time zone {name}")
    return found


def _every(text: str) -> Every:
    duration = parse_duration(text.removeprefix(_EVERY))
    if duration is None:
        raise ScheduleError(f"failed to parse duration {text}: {_duration_problem(text.removeprefix(_EVERY))}")
    return Every(seconds=max(1, duration.nanoseconds // _SECOND_NS))


def _duration_problem(text: str) -> str:
    """Go's error for a text that is not a duration."""
    rest = text[1:] if text[:1] in ("+", "-") else text
    while rest:
        number = re.match(r"[0-9]+\.?[0-9]*|\.[0-9]+", rest)
        if number is None:
            break
        rest = rest[number.end() :]
        unit = re.match(r"[^.0-9]*", rest)
        assert unit is not None
        if not unit[0]:
            return f'time: missing unit in duration "{text}"'
        if unit[0] not in _DURATION_UNITS:
            return f'time: unknown unit "{unit[0]}" in duration "{text}"'
        rest = rest[unit.end() :]
    return f'time: invalid duration "{text}"'


def _field(text: str, bounds: _Bounds) -> _Field:
    values: set[int] = set()
    is_star = False
    for part in filter(None, text.split(",")):
        found, star = _range(part, bounds)
        values.update(found)
        is_star = is_star or star
    return _Field(values=frozenset(values), is_star=is_star)


def _range(text: str, bounds: _Bounds) -> tuple[range, bool]:
    pieces = text.split("/")
    ends = pieces[0].split("-")
    is_star = ends[0] in ("*", "?")
    if is_star:
        start, end = bounds.low, bounds.high
    else:
        start = _named_number(ends[0], bounds)
        if len(ends) > 2:
            raise ScheduleError(f"too many hyphens: {text}")
        end = _named_number(ends[1], bounds) if len(ends) == 2 else start
    step = 1
    if len(pieces) > 2:
        raise ScheduleError(f"too many slashes: {text}")
    if len(pieces) == 2:
        step = _number(pieces[1])
        if len(ends) == 1:
            end = bounds.high
        is_star = is_star and step <= 1
    if start < bounds.low:
        raise ScheduleError(f"beginning of range ({start}) below minimum ({bounds.low}): {text}")
    if end > bounds.high:
        raise ScheduleError(f"end of range ({end}) above maximum ({bounds.high}): {text}")
    if start > end:
        raise ScheduleError(f"beginning of range ({start}) beyond end of range ({end}): {text}")
    if step == 0:
        raise ScheduleError(f"step of range should be a positive number: {text}")
    return range(start, end + 1, step), is_star


def _named_number(text: str, bounds: _Bounds) -> int:
    found = bounds.names.get(text.lower())
    return _number(text) if found is None else found


def _number(text: str) -> int:
    if _INTEGER.fullmatch(text) is None:
        raise ScheduleError(f'failed to parse int from {text}: strconv.Atoi: parsing "{text}": invalid syntax')
    digits = text.lstrip("+-").lstrip("0") or "0"
    number = (int(digits) if len(digits) < 20 else _INT64_MAX + 1) * (-1 if text[0] == "-" else 1)
    if abs(number) > _INT64_MAX:
        raise ScheduleError(f'failed to parse int from {text}: strconv.Atoi: parsing "{text}": value out of range')
    if number < 0:
        raise ScheduleError(f"negative number ({number}) not allowed: {text}")
    return number


# --- the next time ---


class _Walk:
    """Goes forward from a moment, by months, then days, hours and minutes, until all of them match.

    Steps of hours and minutes match the wall clock only until it changes, which is
    what decides the answer on such days; so the steps are upstream's.
    """

    def __init__(self, calendar: Calendar, seconds: int) -> None:
        self._calendar = calendar
        self._zone = calendar.zone
        self._seconds = seconds
        # Whether it has already moved, and so is at the start of a month, day, hour or minute.
        self._moved = False

    def run(self) -> int | None:
        year_max = self._local().year + _YEARS_MAX
        while self._local().year <= year_max:
            if self._to_month() and self._to_day() and self._to_hour() and self._to_minute():
                return self._seconds
        return None

    # Each advances to the next match; False if that carried over into the next larger unit, so everything must be checked again.

    def _to_month(self) -> bool:
        local = self._local()
        while local.month not in self._calendar.month.values:
            if not self._moved:
                local = self._go(local.year, local.month, 1)
            local = self._go(local.year, local.month + 1, local.day, local.hour, local.minute)
            if local.month == 1:
                return False
        return True

    def _to_day(self) -> bool:
        local = self._local()
        while not self._calendar.fits_day(local):
            if not self._moved:
                local = self._go(local.year, local.month, local.day)
            local = self._go(local.year, local.month, local.day + 1, local.hour, local.minute)
            if local.hour:
                # Midnight does not exist on this day.
                hours = 24 - local.hour if local.hour > 12 else -local.hour
                local = self._step(hours * _HOUR_S)
            if local.day == 1:
                return False
        return True

    def _to_hour(self) -> bool:
        local = self._local()
        while local.hour not in self._calendar.hour.values:
            if not self._moved:
                local = self._go(local.year, local.month, local.day, local.hour)
            local = self._step(_HOUR_S)
            if local.hour == 0:
                return False
        return True

    def _to_minute(self) -> bool:
        local = self._local()
        while local.minute not in self._calendar.minute.values or local.second:
            self._moved = True
            local = self._step(60 - local.second)
            if local.minute == 0:
                return False
        return True

    def _local(self) -> datetime:
        return datetime.fromtimestamp(self._seconds, self._zone)

    def _step(self, seconds: int) -> datetime:
        self._seconds += seconds
        return self._local()

    def _go(self, year: int, month: int, day: int, hour: int = 0, minute: int = 0) -> datetime:
        self._moved = True
        self._seconds = _moment(year, month, day, hour, minute, self._zone)
        return self._local()


def _moment(year: int, month: int, day: int, hour: int, minute: int, zone: tzinfo) -> int:
    """The seconds of a local date and time; a month or day may lie past the end of its year or month.

    Where a local time occurs twice or not at all, Go's rule applies: read the time as UTC, adjust it by the zone's offset
    then, and use the offset in effect at the result.
    """
    years, month_index = divmod(month - 1, 12)
    first = datetime(year + years, month_index + 1, 1, hour, minute, tzinfo=UTC)
    wall = int(first.timestamp()) + (day - 1) * 24 * _HOUR_S
    return wall - _offset(wall - _offset(wall, zone), zone)


def _offset(seconds: int, zone: tzinfo) -> int:
    offset = datetime.fromtimestamp(seconds, zone).utcoffset()
    assert offset is not None
    return round(offset.total_seconds())
