"""The search does not run away: claims that cannot be met are proved so in few steps."""

from __future__ import annotations

from typing import Any

import pytest

from allot.core.allocation import Unallocatable, allocate

from .builders import claim, device, different, request, same, world
from .scenarios import load, run


def plain(count: int) -> list[dict[str, Any]]:
    return [device(f"d{number}") for number in range(count)]


def grouped(count: int, size: int) -> list[dict[str, Any]]:
    return [device(f"d{number}", numa=number // size) for number in range(count)]


def shared(count: int, memory: str) -> list[dict[str, Any]]:
    return [device(f"d{number}", memory=memory) | {"allowMultipleAllocations": True} for number in range(count)]


def partitions(count: int) -> list[dict[str, Any]]:
    return [device(f"d{number}", counters={"memory": "10Gi"}) for number in range(count)]


INFEASIBLE = {
    "32 devices of 31": world(plain(31), claim(request("r", 32))),
    "12 requests on 11 devices": world(plain(11), claim(*(request(f"r{n}") for n in range(12)))),
    "32 requests on 31 devices": world(plain(31), claim(*(request(f"r{n}") for n in range(32)))),
    "three claims of 12 on 35 devices": world(plain(35), *(claim(request("r", 12), name=f"c{n}") for n in range(3))),
    "5 equal of groups of 4": world(grouped(64, 4), claim(request("r", 5), constraints=[same("numa")])),
    "5 equal requests of groups of 4": world(
        grouped(64, 4), claim(*(request(f"r{n}") for n in range(5)), constraints=[same("numa")])
    ),
    "9 different of 8 values": world(grouped(64, 8), claim(request("r", 9), constraints=[different("numa")])),
    "25 partitions where 24 fit": world(
        partitions(40), claim(*(request(f"r{n}") for n in range(25))), counters={"memory": "240Gi"}
    ),
    "19 shares where 18 fit": world(
        shared(9, "10Gi"),
        claim(*(request(f"r{n}", capacity={"requests": {"memory": "4Gi"}}) for n in range(19))),
    ),
    "9 claims of 3 equal, where 8 fit": world(
        grouped(32, 8), *(claim(request("r", 3), name=f"c{n}", constraints=[same("numa")]) for n in range(9))
    ),
}


@pytest.mark.parametrize("name", INFEASIBLE)
def test_infeasible_claims_are_answered_in_few_steps(name: str) -> None:
    results, error, answer = run(INFEASIBLE[name])
    assert (results, error) == (None, None)
    assert not answer.undecided
    assert answer.steps <= 2000


def test_backtracking_finds_the_answer_that_first_choices_hide() -> None:
    scenario = world(
        [device("d0", numa=0), device("d1", numa=1), device("d2", numa=1)],
        claim(request("r", 2), constraints=[same("numa")]),
    )
    results, _, _ = run(scenario)
    assert results is not None
    assert [result["device"] for result in results[0]["devices"]["results"]] == ["d1", "d2"]


def test_a_search_without_enough_steps_says_that_it_does_not_know() -> None:
    # Plain and matched requests need no search; different values do.
    inventory, node, claims = load(world(grouped(8, 1), claim(request("r", 8), constraints=[different("numa")])))
    answer = allocate(inventory, node, claims, steps_max=4)
    assert isinstance(answer, Unallocatable)
    assert answer.undecided
    assert answer.summary()[0] == "gave up after 4 search steps: the claims may or may not fit"


def test_constraints_that_contradict_each_other_are_told_so() -> None:
    constraints = [same("numa"), different("numa", "a", "b")]
    _, _, answer = run(world(grouped(64, 8), claim(*(request(n) for n in "abcdefgh"), constraints=constraints)))
    assert not answer.undecided
    assert answer.steps <= 20
    assert "the same and different values of gpu.example.com/numa at once" in answer.summary()[0]


def test_decisions_that_a_failure_does_not_depend_on_are_not_tried_again() -> None:
    # The first and the last two requests cannot both be met; the ten in between have nothing to do with it.
    devices = [device(f"d{n}", a=n % 5, b=n % 3, c=n % 7, spare=n) for n in range(30)]
    between = [request(f"r{n}") for n in range(10)]
    constraints = [same("a", "first", "last"), same("b", "first", "last"), same("c", "first", "last", "other")]
    scenario = world(
        devices, claim(request("first"), *between, request("last", 2), request("other"), constraints=constraints)
    )
    results, error, answer = run(scenario)
    assert (results, error) == (None, None)
    assert not answer.undecided
    assert answer.steps <= 2000
