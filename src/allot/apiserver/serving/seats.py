"""Limits concurrent requests in total and per user: priority and fairness in its simplest form.

There is a number of seats for requests that only read, one for requests that write, and a number of bytes for bodies. A user
gets more of each as long as it then has no more than was free: alone it can have half of everything, two can have a third
each, and a new user always finds room. No request waits for a seat: without one it is refused with 429.

Exempt are: system:masters, components in this process (they do not use HTTP), the health endpoints, and long-running
requests: watches, logs, exec and similar.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from allot.apiserver.errors import too_many_requests
from allot.process.shares import Shares


class SeatLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits. 0: unlimited, as for kube-apiserver's flags of the same names."""

    max_requests_inflight: int = 400
    max_mutating_requests_inflight: int = 200
    # Bodies being received or processed; decoded, they take about ten times as much memory.
    body_bytes: int = 64 * 1024 * 1024


class Seats:
    """The seats of one server."""

    def __init__(self, limits: SeatLimits) -> None:
        self._reading = _shares(limits.max_requests_inflight)
        self._writing = _shares(limits.max_mutating_requests_inflight)
        self._bytes = _shares(limits.body_bytes)

    def seat(self, user: str, *, mutating: bool, body_bytes: int) -> Seat:
        """A seat for a request while a block runs; entering the block raises 429 if there is none."""
        seats = self._writing if mutating else self._reading
        what = "requests that write" if mutating else "requests that read"
        parts = () if seats is None else ((seats, 1, what),)
        return Seat(user, parts + self._room(body_bytes))

    def body(self, user: str, body_bytes: int) -> Seat:
        """For a long-running request: room for its body and no seat."""
        return Seat(user, self._room(body_bytes))

    def _room(self, body_bytes: int) -> tuple[_Part, ...]:
        return ((self._bytes, body_bytes, "bytes of bodies"),) if self._bytes is not None and body_bytes else ()


# The resource, how much of it, and its name.
_Part = tuple[Shares, int, str]


class Seat:
    """One request's share of the limits."""

    __slots__ = ("_parts", "_user")

    def __init__(self, user: str, parts: tuple[_Part, ...]) -> None:
        self._user = user
        self._parts = parts

    def __enter__(self) -> None:
        taken: list[_Part] = []
        for part in self._parts:
            shares, amount, what = part
            if not shares.take(self._user, amount):
                self._give_back(taken)
                held = shares.held_by(self._user)
                raise too_many_requests(
                    f"{held} {what} of this user are in flight, of {shares.limit} that may be in all"
                )
            taken.append(part)

    def __exit__(self, *_: object) -> None:
        self._give_back(self._parts)

    def _give_back(self, parts: Iterable[_Part]) -> None:
        for shares, amount, _ in parts:
            shares.give_back(self._user, amount)


def _shares(limit: int) -> Shares | None:
    return Shares(limit) if limit else None
