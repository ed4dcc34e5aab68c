"""Seats: who gets one, and that all are given back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allot.apiserver.errors import StatusError
from allot.apiserver.serving.seats import SeatLimits, Seats
from allot.process.shares import Shares


def taken(shares: Shares, user: str) -> int:
    """How much a user gets that takes all it can."""
    count = 0
    while shares.take(user):
        count += 1
    return count


def test_one_user_alone_gets_half_two_get_a_third_each() -> None:
    shares = Shares(12)
    assert taken(shares, "a") == 6
    shares = Shares(12)
    for _ in range(12):
        shares.take("a")
        shares.take("b")
    assert (shares.held_by("a"), shares.held_by("b")) == (4, 4)


def test_whoever_comes_finds_a_seat_while_one_is_free() -> None:
    shares = Shares(8)
    assert [taken(shares, name) for name in "abcde"] == [4, 2, 1, 1, 0]


def test_a_limit_of_one_is_one() -> None:
    shares = Shares(1)
    assert shares.take("a")
    assert not shares.take("b")
    shares.give_back("a")
    assert shares.take("b")


@given(
    limit=st.integers(1, 50),
    steps=st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 9), st.booleans()), max_size=60),
)
def test_no_more_is_out_than_there_is_and_everything_comes_back(limit: int, steps: list[tuple[str, int, bool]]) -> None:
    shares, out = Shares(limit), []
    for user, amount, back in steps:
        if back and out:
            shares.give_back(*out.pop())
        elif shares.take(user, amount):
            out.append((user, amount))
        held = {name: sum(amount for who, amount in out if who == name) for name in "abc"}
        assert sum(held.values()) <= limit
        assert {name: shares.held_by(name) for name in "abc"} == held
    for user, amount in out:
        shares.give_back(user, amount)
    assert shares.take("new", limit)


def test_reads_writes_and_bodies_have_limits_of_their_own() -> None:
    seats = Seats(SeatLimits(max_requests_inflight=2, max_mutating_requests_inflight=2, body_bytes=100))
    with seats.seat("a", mutating=True, body_bytes=50):
        with pytest.raises(StatusError) as refused, seats.seat("a", mutating=True, body_bytes=0):
            pass
        assert refused.value.code == 429
        assert refused.value.headers["Retry-After"] == "1"
        assert "1 requests that write of this user are in flight, of 2" in refused.value.message
        with seats.seat("a", mutating=False, body_bytes=0):
            pass
        with pytest.raises(StatusError, match="50 bytes of bodies"), seats.seat("a", mutating=False, body_bytes=1):
            pass
        # What was refused for its body gave its seat back; one that lasts needs none.
        with seats.seat("a", mutating=False, body_bytes=0), seats.body("b", 50):
            pass
    with pytest.raises(ValueError, match="inside"), seats.seat("a", mutating=True, body_bytes=100):
        raise ValueError("inside")
    with seats.seat("a", mutating=True, body_bytes=100):
        pass


def test_zero_is_no_limit() -> None:
    seats = Seats(SeatLimits(max_requests_inflight=0, max_mutating_requests_inflight=0, body_bytes=0))
    for _ in range(1000):
        seats.seat("a", mutating=True, body_bytes=10**9).__enter__()
