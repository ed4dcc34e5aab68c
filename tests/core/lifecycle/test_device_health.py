"""What reports about devices change, and when they are too old."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from allot.core.lifecycle.device_health import (
    DEVICES_MAX,
    HEALTHY,
    MESSAGE_BYTES_MAX,
    TIMEOUT_S,
    UNHEALTHY,
    UNKNOWN,
    DeviceHealth,
    merge,
    newly_stale,
    reported,
)

A, B = ("pool", "a"), ("pool", "b")


def said(health: str = HEALTHY, *, at: float = 0.0, message: str = "", timeout_s: float = TIMEOUT_S) -> DeviceHealth:
    return DeviceHealth(health=health, message=message, timeout_s=timeout_s, updated_at=at)


def test_only_what_says_something_else_has_changed() -> None:
    known = {A: said(), B: said()}
    merged = merge(known, {A: said(at=5.0), B: said(UNHEALTHY, at=5.0)}, 5.0)
    assert merged.changed == (B,)
    assert merged.devices[A].updated_at == 5.0


def test_a_new_message_or_timeout_is_a_change() -> None:
    assert merge({A: said()}, {A: said(message="x")}, 0.0).changed == (A,)
    assert merge({A: said()}, {A: said(timeout_s=1.0)}, 0.0).changed == (A,)


def test_a_device_that_is_not_reported_is_believed_until_it_is_stale() -> None:
    known = {A: said(), B: said(UNKNOWN)}
    kept = merge(known, {}, TIMEOUT_S)
    assert (kept.devices, kept.changed) == (known, ())
    gone = merge(known, {}, TIMEOUT_S + 1)
    # Nobody is told of one that was unknown before.
    assert (gone.devices, gone.changed) == ({}, (A,))


def test_a_driver_that_invents_names_does_not_fill_the_memory() -> None:
    report = {("pool", str(number)): said() for number in range(DEVICES_MAX + 5)}
    merged = merge({}, report, 0.0)
    assert (len(merged.devices), merged.ignored) == (DEVICES_MAX, 5)
    # What is known goes on to be updated.
    again = merge(merged.devices, {("pool", "0"): said(UNHEALTHY), ("pool", "new"): said()}, 0.0)
    assert (again.changed, again.ignored) == ((("pool", "0"),), 1)


def test_each_device_is_told_once_when_it_becomes_stale() -> None:
    known = {A: said(timeout_s=10), B: said(timeout_s=20)}
    told = [newly_stale(known, second, second + 1) for second in range(30)]
    assert [found for found in told if found] == [(A,), (B,)]


def test_a_timeout_that_makes_no_sense_is_the_usual_one() -> None:
    assert [reported(HEALTHY, "", timeout, 0.0).timeout_s for timeout in (-5, 0, 7)] == [TIMEOUT_S, TIMEOUT_S, 7]


@given(st.text(max_size=2000))
def test_messages_are_cut_to_what_the_api_takes(message: str) -> None:
    cut = reported(HEALTHY, message, 0.0, 0.0).message
    assert len(cut.encode()) <= MESSAGE_BYTES_MAX
    assert cut == message or (cut.endswith("...") and message.startswith(cut[:-3]))
