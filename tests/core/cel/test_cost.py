"""The static estimate is upstream's, number by number."""

from __future__ import annotations

import json
from typing import Any

import pytest

from allot.core.cel.checking.check import check
from allot.core.cel.checking.environment import device_environment
from allot.core.cel.costs.estimate import Estimate, estimate
from allot.core.cel.costs.ranges import INFINITE
from allot.core.cel.costs.sizes import device_sizes
from allot.core.cel.syntax.errors import CelCompileError
from allot.core.cel.syntax.parser import parse
from vectors import vectors_dir


def _estimate(
    expression: str, *, list_type_attributes: bool = True, consumable_capacity: bool = True, stored: bool = False
) -> Estimate:
    environment = device_environment(
        list_type_attributes=list_type_attributes, consumable_capacity=consumable_capacity, stored=stored
    )
    checked = check(parse(expression), environment)
    return estimate(checked, device_sizes(consumable_capacity=consumable_capacity or stored))


def _vectors(name: str) -> Any:
    folder = vectors_dir()
    if folder is None:
        pytest.skip("vectors not found: set ALLOT_VECTORS to their folder")
    return json.loads((folder / "cel" / name).read_text())


def _table_variants(case: dict[str, Any]) -> list[tuple[bool, bool, bool]]:
    both = (False, True)
    features = case["features"]
    gates = (
        [(features["EnableListTypeAttributes"], features["EnableConsumableCapacity"])]
        if features
        else [(lists, consumable) for lists in both for consumable in both]
    )
    environments = [case["env_type"] == "StoredExpressions"] if case["env_type"] else list(both)
    return [(lists, consumable, stored) for lists, consumable in gates for stored in environments]


def test_every_estimate_of_the_table_is_met_in_every_environment() -> None:
    different = []
    estimates = 0
    for case in _vectors("table.json")["selector_cases"]:
        if case["expect_compile_error"]:
            continue
        for lists, consumable, stored in _table_variants(case):
            cost = _estimate(
                case["expression"], list_type_attributes=lists, consumable_capacity=consumable, stored=stored
            )
            estimates += 1
            if cost.max != case["expect_max_cost_estimate"]:
                different.append((case["name"], cost.max, case["expect_max_cost_estimate"]))
    assert estimates > 200
    assert not different


def _compared(cases: list[tuple[str, int, bool, bool, bool]]) -> tuple[int, list[tuple[str, int, int]]]:
    compared, different = 0, []
    for expression, expected, lists, consumable, stored in cases:
        try:
            cost = _estimate(expression, list_type_attributes=lists, consumable_capacity=consumable, stored=stored)
        except CelCompileError:
            # Whether an expression compiles is not the estimator's business.
            continue
        compared += 1
        if cost.max != expected:
            different.append((expression, cost.max, expected))
    return compared, different


def test_the_estimates_of_the_probes_are_upstreams() -> None:
    cases = [
        (
            entry["case"]["expression"],
            entry["upstream"]["max_cost"],
            entry["case"]["listtype"],
            entry["case"]["consumable"],
            not entry["case"]["new"],
        )
        for entry in _vectors("quirks.json")
        if "compile_error" not in entry["upstream"]
    ]
    compared, different = _compared(cases)
    assert compared > 90
    assert not different


@pytest.mark.slow
def test_the_estimates_of_random_selectors_are_upstreams() -> None:
    cases = [
        (case["expression"], case["max_cost"], True, True, False)
        for case in _vectors("fuzz.json")["cases"]
        if "compile_error" not in case
    ]
    compared, different = _compared(cases)
    assert compared > 5_000
    assert not different


@pytest.mark.parametrize(
    ("expression", "minimum", "maximum"),
    [
        ("true", 0, 0),
        ("device.driver == 'a'", 3, 3),
        ("device == device", 2, 2),
        ("has(device.attributes['x'].y)", 3, 3),
        ("device.attributes['x'].y", 4, 4),
        # A key of the inner map costs as much as a value: see cost_sizes.Path.
        ("device.attributes['x'].all(k, v, k == k)", 4, 388),
        ("[1, 2].all(x, x > 0)", 17, 21),
        ("true || [1].size() == 1", 0, 12),
        ("cel.bind(d, device.attributes['x'], d.a == d.b)", 18, 24),
        # A tenth of an unknown length is a finite number to upstream.
        ("string(device.driver).lowerAscii() == 'a'", 4, 1844674407370955268),
    ],
)
def test_an_estimate_has_a_best_and_a_worst_case(expression: str, minimum: int, maximum: int) -> None:
    cost = _estimate(expression)
    assert (cost.min, cost.max) == (minimum, maximum)


def test_unknown_sizes_make_the_worst_case_infinite() -> None:
    assert _estimate("string(1).matches(string(2))").max == INFINITE


def test_the_deepest_expressions_that_parse_are_estimated() -> None:
    assert _estimate("device.attributes['x']" + ".a" * 200).max == 4
    assert _estimate("!" * 200 + "true").max == 0
    nested = "true"
    for _ in range(100):
        nested = f"[1].all(x, {nested})"
    assert _estimate(nested).max == 100 * (10 + 2 + 1 + 1)


@pytest.mark.parametrize(
    ("expression", "growth"),
    [
        ("device.driver == 'a'", 1),
        ("device.attributes['x'].map(k, k + 'a').size() == 1", 1),
        ("device.attributes['x'].l + ['a', 'b'] == []", 66),
        ("cel.bind(a, [1, 2] + [3], cel.bind(b, a + a, (b + b).size() > 0))", 12),
        ("'%s'.format([device.driver]) == ''", INFINITE),
        ("device.driver.replace('a', 'bb') == ''", 126),
    ],
)
def test_growth_is_the_largest_thing_made_at_a_fixed_price(expression: str, growth: int) -> None:
    assert _estimate(expression).growth == growth
