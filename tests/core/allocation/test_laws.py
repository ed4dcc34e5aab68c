"""Laws that every allocation keeps, on random small worlds."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allot.core.allocation import FIRST_FIT, PACK, Allocated, Inventory, Policy, allocate, claim_id
from allot.core.allocation.allocator import _Attempt, share_id
from allot.core.allocation.search import STEPS_MAX

from . import builders
from .builders import request, same
from .scenarios import load, run
from .worlds import broken_rules, chosen_by, has_answer, worlds


@pytest.mark.slow
@pytest.mark.parametrize("policy", [FIRST_FIT, PACK], ids=["first-fit", "pack"])
def test_an_answer_breaks_no_rule_and_there_is_one_whenever_there_can_be(policy: Policy) -> None:
    @settings(max_examples=400)
    @given(worlds())
    def law(world: dict[str, Any]) -> None:
        results, error, _ = run(world, policy)
        assert error is None
        assert (results is not None) == has_answer(world)
        if results is not None:
            assert broken_rules(world, chosen_by(results)) == []

    law()


@pytest.mark.slow
@settings(max_examples=200)
@given(worlds())
def test_holding_and_releasing_an_allocation_leaves_no_trace(world: dict[str, Any]) -> None:
    inventory, node, claims = load(world)
    first = allocate(inventory, node, claims)
    for claim in claims:
        list(inventory.nodes_worth_trying([claim]))
    before = trace(inventory)
    if isinstance(first, Allocated):
        for claim, result in zip(claims, first.results, strict=True):
            inventory.hold(claim_id(claim), result)
        for claim in claims:
            inventory.release(claim_id(claim))
    assert trace(inventory) == before
    assert allocate(inventory, node, claims) == first


@pytest.mark.slow
@settings(max_examples=200)
@given(worlds())
def test_a_node_that_is_not_worth_trying_has_no_answer(world: dict[str, Any]) -> None:
    inventory, node, claims = load(world)
    listed = list(inventory.nodes_worth_trying(claims))
    if isinstance(allocate(inventory, node, claims), Allocated):
        assert listed == ["node"]


@pytest.mark.slow
@settings(max_examples=100)
@given(worlds())
def test_what_does_not_fit_has_a_reason_in_words(world: dict[str, Any]) -> None:
    results, _, answer = run(world)
    if results is None:
        assert answer.reasons
        assert all(sentence for sentence in answer.summary())


def trace(inventory: Inventory) -> object:
    """Everything in the inventory that allocations change."""
    states = {
        id_: (list(state.claims), list(state.shares), dict(state.consumed))
        for id_, state in sorted(inventory.ledger._states.items())
    }
    counters = {
        (name, pool.id): dict(pool.counters.available)
        for name, view in inventory._views.items()
        for pool in view.pools
        if pool.counters is not None
    }
    indexes = [
        (dict(index._counts), index.shared, {k: sorted(v) for k, v in index._by_count.items()})
        for index in inventory._all_indexes()
    ]
    return states, counters, indexes


@pytest.mark.slow
@settings(max_examples=300)
@given(
    st.lists(st.lists(st.integers(0, 3), max_size=3, unique=True), min_size=1, max_size=7),
    st.lists(st.integers(1, 3), min_size=1, max_size=3),
    st.sets(st.integers(0, 6), max_size=2),
)
def test_the_short_cut_for_matching_devices_finds_what_the_search_finds(
    values: list[list[int]], counts: list[int], in_use: set[int]
) -> None:
    devices: list[dict[str, Any]] = [
        {"name": f"d{number}", "attributes": {"numa": {"ints": found}} if found else {}}
        for number, found in enumerate(values)
    ]
    requests = [request(f"r{number}", count) for number, count in enumerate(counts)]
    asked = builders.claim(*requests, constraints=[same("numa")])
    held = {f"d{number}": f"ns/old-{number}" for number in in_use if number < len(devices)}
    inventory, node, claims = load(builders.world(devices, asked, in_use=held))
    plans = [inventory.plan(found.spec) for found in claims]
    assert plans[0].matched is not None
    searched = _Attempt(inventory, inventory.view(node), claims, plans, share_id, STEPS_MAX).run(FIRST_FIT, False)
    answer = allocate(inventory, node, claims, with_reasons=False)
    assert type(answer) is type(searched)
    if isinstance(answer, Allocated) and isinstance(searched, Allocated):
        assert answer.results == searched.results
