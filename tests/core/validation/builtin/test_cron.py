"""Cron schedules."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allot.core.validation.builtin.cron import schedule_problem


@pytest.mark.parametrize(
    "schedule",
    ["* * * * *", "*/5 * * * *", "0 0 1 jan mon-fri", "0,30 9-17/2 ? * SUN", "@daily", "@every 1h30m", "5/10 * * * *"],
)
def test_schedules_that_work(schedule: str) -> None:
    assert schedule_problem(schedule) == ""


@pytest.mark.parametrize(
    ("schedule", "problem"),
    [
        ("", "empty spec string"),
        ("* * * *", "expected exactly 5 fields, found 4: [* * * *]"),
        ("60 * * * *", "end of range (60) above maximum (59): 60"),
        ("* * 0 * *", "beginning of range (0) below minimum (1): 0"),
        ("5-1 * * * *", "beginning of range (5) beyond end of range (1): 5-1"),
        ("*/0 * * * *", "step of range should be a positive number: */0"),
        ("x * * * *", 'failed to parse int from x: strconv.Atoi: parsing "x": invalid syntax'),
        ("1/2/3 * * * *", "too many slashes: 1/2/3"),
        ("1-2-3 * * * *", "too many hyphens: 1-2-3"),
        ("@often", "unrecognized descriptor: @often"),
    ],
)
def test_schedules_that_do_not(schedule: str, problem: str) -> None:
    assert schedule_problem(schedule) == problem


@given(st.text(max_size=40))
def test_any_text_is_judged(schedule: str) -> None:
    schedule_problem(schedule)
