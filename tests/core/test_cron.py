"""Cron schedules: the grammar, and the next time, also where clocks are put forward or back."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allot.core.cron import Calendar, ScheduleError, parse_schedule, time_zone


def upcoming(schedule: str, after: str, count: int = 1, zone: str = "UTC") -> list[str]:
    """The next times in the zone, as an offset-free text each."""
    found = time_zone(zone)
    assert found is not None
    parsed = parse_schedule(schedule, found)
    moment: float = datetime.fromisoformat(after).replace(tzinfo=found).timestamp()
    times = []
    for _ in range(count):
        due = parsed.next_after(moment)
        assert due is not None
        times.append(datetime.fromtimestamp(due, found).strftime("%Y-%m-%d %H:%M:%S"))
        moment = due
    return times


# --- the grammar ---


@pytest.mark.parametrize(
    "schedule",
    [
        "* * * * *",
        "*/5 * * * *",
        "0 0 1 jan mon-fri",
        "0,30 9-17/2 ? * SUN",
        "@daily",
        "@every 1h30m",
        "5/10 * * * *",
        # What follows a star is not looked at, and of nothing between commas nothing is said.
        "*-5 * * * *",
        ",1,, * * * *",
        "+5 * * * *",
        "TZ=Europe/Paris 0 4 * * *",
        "CRON_TZ=UTC @hourly",
        "@every -5m",
    ],
)
def test_schedules_that_work(schedule: str) -> None:
    parse_schedule(schedule)


@pytest.mark.parametrize(
    ("schedule", "problem"),
    [
        ("", "empty spec string"),
        ("* * * *", "expected exactly 5 fields, found 4: [* * * *]"),
        ("0 * * * * *", "expected exactly 5 fields, found 6: [0 * * * * *]"),
        ("60 * * * *", "end of range (60) above maximum (59): 60"),
        ("* * 0 * *", "beginning of range (0) below minimum (1): 0"),
        ("* * * * 7", "end of range (7) above maximum (6): 7"),
        ("5-1 * * * *", "beginning of range (5) beyond end of range (1): 5-1"),
        ("*/0 * * * *", "step of range should be a positive number: */0"),
        ("*/-2 * * * *", "negative number (-2) not allowed: -2"),
        ("x * * * *", 'failed to parse int from x: strconv.Atoi: parsing "x": invalid syntax'),
        (
            "99999999999999999999 * * * *",
            "failed to parse int from 99999999999999999999: strconv.Atoi: "
            'parsing "99999999999999999999": value out of range',
        ),
        ("1/2/3 * * * *", "too many slashes: 1/2/3"),
        ("1-2-3 * * * *", "too many hyphens: 1-2-3"),
        ("@often", "unrecognized descriptor: @often"),
        ("@every", "unrecognized descriptor: @every"),
        ("@every 5", 'failed to parse duration @every 5: time: missing unit in duration "5"'),
        ("@every 1d", 'failed to parse duration @every 1d: time: unknown unit "d" in duration "1d"'),
        ("@every soon", 'failed to parse duration @every soon: time: invalid duration "soon"'),
        ("TZ=Nowhere/Land * * * * *", "provided bad location Nowhere/Land: unknown time zone Nowhere/Land"),
        ("TZ=UTC", "invalid schedule format: runtime error: slice bounds out of range [:-1]"),
    ],
)
def test_schedules_that_do_not(schedule: str, problem: str) -> None:
    with pytest.raises(ScheduleError) as error:
        parse_schedule(schedule)
    assert str(error.value) == problem


@given(st.text(max_size=40))
def test_any_text_is_judged(schedule: str) -> None:
    try:
        parse_schedule(schedule)
    except ScheduleError:
        pass


# --- the next time ---


@pytest.mark.parametrize(
    ("schedule", "after", "expected"),
    [
        ("0/15 * * * *", "2012-07-09 14:45:00", "2012-07-09 15:00:00"),
        ("0/15 * * * *", "2012-07-09 14:59:59", "2012-07-09 15:00:00"),
        ("20-35/15 * * * *", "2012-07-09 15:45:00", "2012-07-09 16:20:00"),
        ("*/15 * * * *", "2012-07-09 23:46:00", "2012-07-10 00:00:00"),
        ("20-35/15 1/2 * * *", "2012-07-09 23:35:51", "2012-07-10 01:20:00"),
        ("20-35/15 10-12 * * *", "2012-07-09 23:35:51", "2012-07-10 10:20:00"),
        ("20-35/15 1/2 */2 * *", "2012-07-09 23:35:51", "2012-07-11 01:20:00"),
        ("20-35/15 * 9-20 jul *", "2012-07-09 23:35:51", "2012-07-10 00:20:00"),
        ("0 0 9 Apr-Oct ?", "2012-07-09 23:35:00", "2012-08-09 00:00:00"),
        ("0 0 */5 Apr,Aug,Oct Mon", "2012-07-09 23:35:00", "2012-08-01 00:00:00"),
        ("0 0 */5 Oct Mon", "2012-07-09 23:35:00", "2012-10-01 00:00:00"),
        ("0 0 * Feb Mon", "2012-07-09 23:35:00", "2013-02-04 00:00:00"),
        ("0 0 * Feb Mon/2", "2012-07-09 23:35:00", "2013-02-01 00:00:00"),
        ("0 0 29 2 *", "2012-07-09 23:35:00", "2016-02-29 00:00:00"),
        ("30 6-16/4 * * 1-5", "2024-05-31 15:00:00", "2024-06-03 06:30:00"),
        ("@yearly", "2012-07-09 23:35:00", "2013-01-01 00:00:00"),
        ("@monthly", "2012-07-09 23:35:00", "2012-08-01 00:00:00"),
        ("@weekly", "2012-07-09 23:35:00", "2012-07-15 00:00:00"),
        ("@midnight", "2012-07-09 23:35:00", "2012-07-10 00:00:00"),
        ("@hourly", "2012-07-09 23:35:00", "2012-07-10 00:00:00"),
        ("@every 1h30m0.9s", "2012-07-09 23:35:51", "2012-07-10 01:05:51"),
        ("@every 5ms", "2012-07-09 23:35:51", "2012-07-09 23:35:52"),
    ],
)
def test_the_next_time(schedule: str, after: str, expected: str) -> None:
    assert upcoming(schedule, after) == [expected]


@pytest.mark.parametrize(
    ("days", "expected"),
    [
        # Both restricted: either will do. One of them a star: both must hold. A star with a step is a restriction.
        ("13 * 5", ["06-07", "06-13", "06-14", "06-21"]),
        ("13 * *", ["06-13", "07-13", "08-13", "09-13"]),
        ("* * 5", ["06-07", "06-14", "06-21", "06-28"]),
        ("? * fri", ["06-07", "06-14", "06-21", "06-28"]),
        ("*/10 * 5", ["06-07", "06-11", "06-14", "06-21"]),
        ("*/1 * 5", ["06-07", "06-14", "06-21", "06-28"]),
    ],
)
def test_day_of_month_and_day_of_week(days: str, expected: list[str]) -> None:
    assert [text[5:10] for text in upcoming(f"0 0 {days}", "2024-06-01 12:00:00", 4)] == expected


@pytest.mark.parametrize("schedule", ["0 0 31 2 *", "0 0 30 feb ?", ", * * * *", "* , * * *", "* * * , *", "* * , * *"])
def test_what_is_never_due(schedule: str) -> None:
    assert parse_schedule(schedule).next_after(0) is None


@pytest.mark.parametrize(
    ("schedule", "zone", "after", "expected"),
    [
        # At 02:00 the clock is put to 03:00: what is due in between is left out.
        ("30 2 * * *", "America/New_York", "2012-03-10 03:00", ["2012-03-12 02:30:00"]),
        ("0 2 * * *", "America/New_York", "2012-03-11 00:00", ["2012-03-12 02:00:00"]),
        ("0 3 * * *", "America/New_York", "2012-03-11 00:00", ["2012-03-11 03:00:00"]),
        ("0 * * * *", "America/New_York", "2012-03-11 00:59", [
            "2012-03-11 01:00:00", "2012-03-11 03:00:00", "2012-03-11 04:00:00"]),
        # At 02:00 it is put to 01:00: what is due in between comes twice.
        ("0 1 * * *", "America/New_York", "2012-11-04 00:00", ["2012-11-04 01:00:00", "2012-11-04 01:00:00", "2012-11-05 01:00:00"]),
        ("0 2 * * *", "America/New_York", "2012-11-04 00:00", ["2012-11-04 02:00:00"]),
        # Midnight does not exist: the day begins at one.
        ("0 9 4 11 *", "America/Sao_Paulo", "2018-11-01 00:00", ["2018-11-04 09:00:00"]),
        ("0 0 * * *", "America/Sao_Paulo", "2018-11-03 12:00", ["2018-11-05 00:00:00"]),
        # East of Greenwich upstream leaves such a day out when it comes from one that does not match.
        ("0 9 30 3 *", "Asia/Beirut", "2025-03-15 00:00", ["2026-03-30 09:00:00"]),
        ("30 9 * * *", "Asia/Kolkata", "2025-03-15 09:30", ["2025-03-16 09:30:00"]),
        # Half an hour forward at 02:00.
        ("15 2 * * *", "Australia/Lord_Howe", "2025-10-04 12:00", ["2025-10-06 02:15:00"]),
    ],
)  # fmt: skip
def test_clocks_put_forward_and_back(schedule: str, zone: str, after: str, expected: list[str]) -> None:
    assert upcoming(schedule, after, len(expected), zone) == expected


def test_fractions_of_a_second_are_cut() -> None:
    assert parse_schedule("* * * * *").next_after(59.5) == 60
    assert parse_schedule("* * * * *").next_after(60) == 120
    assert parse_schedule("@every 2s").next_after(59.5) == 61


_numbers = st.integers(0, 59).map(str) | st.just("*") | st.just("*/7")


@given(
    minute=_numbers,
    hour=st.integers(0, 23).map(str) | st.just("*") | st.just("3-20/4"),
    month_day=st.integers(1, 28).map(str) | st.just("*"),
    week_day=st.integers(0, 6).map(str) | st.just("*"),
    start=st.integers(0, 4_000_000_000),
)
def test_the_next_time_fits_and_nothing_before_it_does(
    minute: str, hour: str, month_day: str, week_day: str, start: int
) -> None:
    schedule = parse_schedule(f"{minute} {hour} {month_day} * {week_day}")
    assert isinstance(schedule, Calendar)
    due = schedule.next_after(start)
    assert due is not None and due > start and due % 60 == 0

    def fits(moment: datetime) -> bool:
        return (
            moment.minute in schedule.minute.values
            and moment.hour in schedule.hour.values
            and schedule.fits_day(moment)
        )

    found = datetime.fromtimestamp(due, UTC)
    assert fits(found)
    # The five hundred minutes before it: all that lie behind the start do not fit.
    for minutes in range(1, 500):
        earlier = found - timedelta(minutes=minutes)
        if earlier.timestamp() <= start:
            break
        assert not fits(earlier)
