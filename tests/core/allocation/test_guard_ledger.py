"""The guard's ledger: nothing is given to two claims, whatever is stored, lost, late, read again or forgotten."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from allot.core.allocation.devices import ClaimID, DeviceID
from allot.core.allocation.features import Features
from allot.core.allocation.guard_ledger import GuardLedger
from allot.core.allocation.holdings import Held
from allot.core.features import DEFAULT_GATES

FEATURES = Features.from_gates(DEFAULT_GATES)
ONE, TWO, THREE = (ClaimID("ns", name) for name in ("one", "two", "three"))
GPU = (Held(DeviceID("d", "p", "gpu")),)
OTHER = (Held(DeviceID("d", "p", "other")),)
TIMEOUT_S = 10.0


def ledger() -> GuardLedger:
    made = GuardLedger(FEATURES, TIMEOUT_S)
    for version, claim in enumerate((ONE, TWO, THREE), 1):
        made.stored(claim, version, ())
    return made


def test_what_was_admitted_is_held_until_a_newer_version_is_seen() -> None:
    made = ledger()
    made.admit(ONE, 1, GPU, 0.0)
    found = made.conflict(TWO, GPU)
    assert found is not None
    assert found.holders == (ONE,)
    made.stored(ONE, 1, ())  # told late
    assert made.conflict(TWO, GPU) is not None
    made.stored(ONE, 5, ())  # somebody else's write: ours is lost
    assert made.conflict(TWO, GPU) is None
    assert made.waiting == 0


def test_what_was_stored_is_held_until_it_is_stored_that_it_is_not() -> None:
    made = ledger()
    made.admit(ONE, 1, GPU, 0.0)
    made.stored(ONE, 4, GPU)
    assert made.conflict(TWO, GPU) is not None
    made.stored(ONE, 3, ())  # an old state
    assert made.conflict(TWO, GPU) is not None
    made.stored(ONE, 6, ())
    assert made.conflict(TWO, GPU) is None


def test_time_alone_frees_nothing() -> None:
    made = ledger()
    made.admit(ONE, 1, GPU, 0.0)
    assert made.overdue(TIMEOUT_S - 1) == []
    assert made.overdue(TIMEOUT_S) == [ONE]
    assert made.conflict(TWO, GPU) is not None
    made.looked(ONE, TIMEOUT_S - 1, 1, ())  # asked too early: it may be stored yet
    assert made.conflict(TWO, GPU) is not None
    made.looked(ONE, TIMEOUT_S, 1, ())
    assert made.conflict(TWO, GPU) is None
    assert made.overdue(1e9) == []


def test_of_two_writes_to_one_claim_both_are_held_until_one_is_stored() -> None:
    made = ledger()
    made.admit(ONE, 1, GPU, 0.0)
    made.admit(ONE, 1, OTHER, 1.0)
    assert made.conflict(TWO, GPU) is not None
    assert made.conflict(TWO, OTHER) is not None
    made.stored(ONE, 4, OTHER)
    assert made.conflict(TWO, GPU) is None
    assert made.conflict(TWO, OTHER) is not None


def test_a_write_based_on_an_old_version_holds_nothing() -> None:
    made = ledger()
    made.stored(ONE, 7, ())
    made.admit(ONE, 1, GPU, 0.0)
    assert made.conflict(TWO, GPU) is None
    assert made.waiting == 0


def test_a_claim_that_is_gone_holds_nothing_and_its_namesake_what_it_was_admitted() -> None:
    made = ledger()
    made.stored(ONE, 4, GPU)
    made.admit(ONE, 9, OTHER, 1.0)
    made.deleted(ONE, 8)
    assert made.conflict(TWO, GPU) is None
    assert made.conflict(TWO, OTHER) is not None
    made.looked_in_vain(ONE, 0.5, made.version(ONE))
    assert made.conflict(TWO, OTHER) is not None
    made.looked_in_vain(ONE, 2.0, made.version(ONE))
    assert made.conflict(TWO, OTHER) is None
    assert made.known() == 2


def test_counters_of_partitions_count_what_was_admitted() -> None:
    made = ledger()
    counters = {"memory": {"value": "10Gi"}}
    halves: list[dict[str, Any]] = [
        {"name": name, "consumesCounters": [{"counterSet": "card", "counters": {"memory": {"value": "6Gi"}}}]}
        for name in ("gpu", "other")
    ]
    pool = {"name": "p", "generation": 1}
    shared = [{"name": "card", "counters": counters}]
    made.holdings.put_slice("s", {"driver": "d", "pool": pool, "sharedCounters": shared, "devices": halves})
    made.admit(ONE, 1, GPU, 0.0)
    found = made.conflict(TWO, OTHER)
    assert found is not None
    assert "counter memory of counter set card" in found.text


class _Write(msgspec.Struct):
    """A write that the guard has let through and the server has yet to store."""

    claim: ClaimID
    base: int
    held: tuple[Held, ...]
    until: float


class _World:
    """An API server, its late watch, and a guard that may be replaced."""

    def __init__(self) -> None:
        self.now = 0.0
        self.revision = 0
        self.stored: dict[ClaimID, tuple[int, tuple[Held, ...]]] = {}
        self.untold: list[tuple[ClaimID, int, tuple[Held, ...] | None]] = []
        self.in_flight: list[_Write] = []
        self.guard = GuardLedger(FEATURES, TIMEOUT_S)
        for claim in (ONE, TWO, THREE):
            self.put(claim, ())

    def put(self, claim: ClaimID, held: tuple[Held, ...] | None) -> None:
        self.revision += 1
        if held is None:
            self.stored.pop(claim, None)
        else:
            self.stored[claim] = (self.revision, held)
        self.untold.append((claim, self.revision, held))
        holders = [part.device for _, parts in self.stored.values() for part in parts]
        assert len(holders) == len(set(holders)), self.stored

    def ask(self, claim: ClaimID, held: tuple[Held, ...]) -> None:
        if claim not in self.stored or self.stored[claim][1]:
            return
        base = self.stored[claim][0]
        if self.guard.conflict(claim, held) is None:
            self.guard.admit(claim, base, held, self.now)
            self.in_flight.append(_Write(claim, base, held, self.now + TIMEOUT_S))

    def land(self, place: int, arrives: bool) -> None:
        if not self.in_flight:
            return
        write = self.in_flight.pop(place % len(self.in_flight))
        if arrives and self.now < write.until and self.stored.get(write.claim, (0,))[0] == write.base:
            self.put(write.claim, write.held)

    def tell(self) -> None:
        if not self.untold:
            return
        claim, version, held = self.untold.pop(0)
        if held is None:
            self.guard.deleted(claim, version)
        else:
            self.guard.stored(claim, version, held)

    def look(self, claim: ClaimID) -> None:
        if claim in self.stored:
            self.guard.looked(claim, self.now, *self.stored[claim])
        else:
            self.guard.looked_in_vain(claim, self.now, self.guard.version(claim))

    def replace_guard(self) -> None:
        """A new leader: nothing is decided while it waits, then it reads what is stored."""
        for place in reversed(range(len(self.in_flight))):
            self.land(place, place % 2 == 0)
        self.now += TIMEOUT_S
        self.untold.clear()
        self.guard = GuardLedger(FEATURES, TIMEOUT_S)
        for claim, (version, held) in self.stored.items():
            self.guard.stored(claim, version, held)


_claims = st.sampled_from((ONE, TWO, THREE))
_ask = st.tuples(st.just("ask"), _claims, st.sampled_from((GPU, OTHER, (*GPU, *OTHER))))
_land = st.tuples(st.just("land"), st.integers(0, 5), st.sampled_from((True, True, False)))
_tell = st.tuples(st.just("tell"))
_steps = st.one_of(
    *(_ask, _ask, _land, _land, _tell, _tell),
    st.tuples(st.just("look"), _claims),
    st.tuples(st.just("free"), _claims),
    st.tuples(st.just("delete"), _claims),
    st.tuples(st.just("wait"), st.sampled_from((1.0, TIMEOUT_S))),
    st.tuples(st.just("sweep")),
    st.tuples(st.just("replace")),
)


@settings(max_examples=200, deadline=None)
@given(st.lists(_steps, min_size=12, max_size=50))
def test_a_device_is_never_stored_in_two_claims(steps: list[Any]) -> None:
    world = _World()
    for name, *arguments in steps:
        if name == "ask":
            world.ask(*arguments)
        elif name == "land":
            world.land(*arguments)
        elif name == "tell":
            world.tell()
        elif name == "look":
            world.look(*arguments)
        elif name == "free" and arguments[0] in world.stored:
            world.put(arguments[0], ())
        elif name == "delete":
            world.put(arguments[0], None if arguments[0] in world.stored else ())
        elif name == "wait":
            world.now += arguments[0]
        elif name == "sweep":
            for claim in world.guard.overdue(world.now):
                world.look(claim)
        elif name == "replace":
            world.replace_guard()
    # Nothing stays held that nobody has: everything told, everything landed or overdue.
    while world.in_flight:
        world.land(0, arrives=True)
    while world.untold:
        world.tell()
    world.now += TIMEOUT_S
    for claim in world.guard.overdue(world.now):
        world.look(claim)
    assert world.guard.waiting == 0
    for part in (GPU, OTHER):
        is_free = all(part[0] not in held for _, held in world.stored.values())
        assert (world.guard.conflict(ClaimID("ns", "stranger"), part) is None) == is_free
