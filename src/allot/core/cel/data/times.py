"""Durations and timestamps: parsing, printing and calendar fields, to the nanosecond and with Go's rules.

Knows the texts Go accepts (`1h30m`, RFC 3339) and prints; knows nothing of expressions. Time zones by name come from
the system's zone database, the only thing here that may differ between machines.
"""

from __future__ import annotations

import re
from datetime import date, datetime, timedelta, timezone, tzinfo
from typing import Final
from zoneinfo import ZoneInfo

from allot.core.cel.data.values import INT_MAX, INT_MIN, CelError, Duration, Timestamp

SECOND: Final = 10**9
TIMESTAMP_MIN_S: Final = -62135596800
TIMESTAMP_MAX_S: Final = 253402300799

_UNITS: Final = {
    "ns": 1,
    "us": 10**3,
    "µs": 10**3,  # the micro sign
    "μs": 10**3,  # the Greek letter mu
    "ms": 10**6,
    "s": SECOND,
    "m": 60 * SECOND,
    "h": 3600 * SECOND,
}
_DURATION_TERM: Final = re.compile(r"([0-9]*+)(?:\.([0-9]*+))?+(ns|us|µs|μs|ms|s|m|h)")
_DURATION_TEXT_MAX: Final = 256
_RFC_3339: Final = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})T([0-9]{1,2}):([0-9]{2}):([0-9]{2})(?:[.,]([0-9]+))?(Z|[+-][0-9]{2}:[0-9]{2})",
    re.ASCII,
)
_EPOCH_ORDINAL: Final = date(1970, 1, 1).toordinal()


def parse_duration(text: str) -> Duration | None:
    """The duration that Go's ParseDuration reads, or None."""
    sign, body = (-1, text[1:]) if text[:1] == "-" else (1, text.removeprefix("+"))
    if body == "0":
        return Duration(0)
    if not body or len(body) > _DURATION_TEXT_MAX:
        return None
    total, position = 0, 0
    while position < len(body):
        term = _DURATION_TERM.match(body, position)
        if term is None or not (term[1] or term[2]):
            return None
        position = term.end()
        unit = _UNITS[term[3]]
        fraction = term[2] or ""
        # Go truncates to nanoseconds.
        total += int(term[1] or 0) * unit + (int(fraction) * unit // 10 ** len(fraction) if fraction else 0)
    total *= sign
    return Duration(total) if INT_MIN <= total <= INT_MAX else None


def parse_timestamp(text: str) -> Timestamp | None:
    """The moment an RFC 3339 text names, or None. Raises CelError when it is out of CEL's range."""
    match = _RFC_3339.fullmatch(text)
    if match is None:
        return None
    year, month, day, hour, minute, second = (int(match[group]) for group in range(1, 7))
    offset_s = _offset(match[8])
    if hour > 23 or minute > 59 or second > 59 or offset_s is None or not 1 <= month <= 12:
        return None
    days = _days(year, month, day)
    if days is None:
        return None
    fraction = (match[7] or "")[:9].ljust(9, "0")
    seconds = days * 86400 + hour * 3600 + minute * 60 + second - offset_s
    if not TIMESTAMP_MIN_S <= seconds <= TIMESTAMP_MAX_S:
        raise CelError("timestamp overflow")
    return Timestamp(seconds * SECOND + int(fraction), offset_s)


def _offset(text: str) -> int | None:
    if text == "Z":
        return 0
    hours, minutes = int(text[1:3]), int(text[4:6])
    if hours > 24 or minutes > 59:
        return None
    return (hours * 3600 + minutes * 60) * (-1 if text[0] == "-" else 1)


def _days(year: int, month: int, day: int) -> int | None:
    # The year 0 is legal in the text but not in Python; the year 4 has the same calendar, 1461 days later.
    shift = 1461 if year == 0 else 0
    try:
        return date(year or 4, month, day).toordinal() - _EPOCH_ORDINAL - shift
    except ValueError:
        return None


def moved(moment: Timestamp, nanoseconds: int) -> Timestamp:
    """A timestamp moved by a duration."""
    total = moment.nanoseconds + nanoseconds
    if not TIMESTAMP_MIN_S <= total // SECOND <= TIMESTAMP_MAX_S:
        raise CelError("timestamp overflow")
    return Timestamp(total, moment.offset_s)


# --- calendar fields ---


def in_zone(moment: Timestamp, zone: str) -> tuple[datetime, int]:
    """Local date and time (to the second) in a named zone or a fixed offset, and the nanoseconds beyond."""
    seconds, nanoseconds = divmod(moment.nanoseconds, SECOND)
    return _local(seconds, _zone(zone)), nanoseconds


def _local(seconds: int, zone: tzinfo | int) -> datetime:
    base = datetime(1970, 1, 1, tzinfo=timezone.utc)  # noqa: UP017
    if isinstance(zone, int):
        # Not a tzinfo: Go allows any offset, Python only less than a day. The calendar's ends are kept in range.
        seconds = min(max(seconds + zone, TIMESTAMP_MIN_S), TIMESTAMP_MAX_S)
        return base + timedelta(seconds=seconds)
    try:
        return (base + timedelta(seconds=seconds)).astimezone(zone)
    except OverflowError:
        return base + timedelta(seconds=seconds)


def _zone(name: str) -> tzinfo | int:
    if ":" in name:
        hours_text, _, minutes_text = name.partition(":")
        hours, minutes = _go_integer(hours_text), _go_integer(minutes_text)
        return (hours * 60 + (-minutes if name[0] == "-" else minutes)) * 60
    if name in ("", "UTC"):
        return 0
    zone = zone_named(name)
    if zone is None:
        raise CelError(f"unknown time zone {name}")
    return zone


def zone_named(name: str) -> tzinfo | None:
    """The zone of that name in the system's database."""
    try:
        return ZoneInfo(name)
    except (ValueError, OSError, KeyError):
        return None


def _go_integer(text: str) -> int:
    if re.fullmatch(r"[+-]?[0-9]{1,18}", text, re.ASCII):
        return int(text)
    raise CelError(f'strconv.Atoi: parsing "{text}": invalid syntax')


# --- texts ---


def timestamp_text(moment: Timestamp) -> str:
    """RFC 3339 with as many digits as needed, in the zone the timestamp was written in."""
    return _date_time_text(moment, "T", ".") + _offset_text(moment.offset_s)


def _date_time_text(moment: Timestamp, separator: str, point: str) -> str:
    seconds, nanoseconds = divmod(moment.nanoseconds, SECOND)
    local = _local(seconds, moment.offset_s)
    fraction = f"{nanoseconds:09d}".rstrip("0")
    text = f"{local.year:04d}-{local.month:02d}-{local.day:02d}{separator}{local:%H:%M:%S}"
    return text + (point + fraction if fraction else "")


def _offset_text(offset_s: int) -> str:
    if not offset_s:
        return "Z"
    hours, minutes = divmod(abs(offset_s) // 60, 60)
    return f"{'-' if offset_s < 0 else '+'}{hours:02d}:{minutes:02d}"


def go_timestamp_text(moment: Timestamp) -> str:
    """Go's String() of a time: `2009-02-13 23:31:30 +0000 UTC`."""
    zone = _offset_text(moment.offset_s).replace(":", "")
    return _date_time_text(moment, " ", ".") + (" +0000 UTC" if not moment.offset_s else f" {zone} {zone}")


def go_duration_text(duration: Duration) -> str:
    """Go's String() of a duration: `1h30m0s`, `1.5ms`."""
    sign, rest = ("-" if duration.nanoseconds < 0 else ""), abs(duration.nanoseconds)
    if rest == 0:
        return "0s"
    for unit, name in ((10**3, "ns"), (10**6, "µs"), (SECOND, "ms")):
        if rest < unit:
            return f"{sign}{_decimal(rest, unit // 1000)}{name}"
    minutes, nanoseconds = divmod(rest, 60 * SECOND)
    hours, minutes = divmod(minutes, 60)
    text = _decimal(nanoseconds, SECOND) + "s"
    if hours or minutes:
        text = f"{minutes}m{text}"
    return f"{sign}{hours}h{text}" if hours else sign + text


def _decimal(amount: int, unit: int) -> str:
    whole, rest = divmod(amount, unit)
    if not rest:
        return str(whole)
    return f"{whole}.{str(rest).zfill(len(str(unit)) - 1).rstrip('0')}"
