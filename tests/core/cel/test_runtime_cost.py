"""What evaluating really cost, call by call and for whole expressions."""

from __future__ import annotations

import json
from typing import Any

import pytest

from allot.core.cel.checking.compile import compile_expression
from allot.core.cel.checking.environment import Environment, device_environment
from allot.core.cel.costs.runtime import call_cost
from allot.core.cel.data.values import CIDR, IP, CelError, NamedFormat, Optional, Value
from allot.core.cel.device import DeviceView, view
from allot.core.cel.evaluation.interpret import evaluate
from allot.core.cel.evaluation.plan import plan
from allot.core.quantity import Quantity
from vectors import vectors_dir

_V4 = IP(4, 0x0A000001)
_V6 = IP(6, 1)
_FAILED = CelError("division by zero")


def _quantity(text: str) -> Quantity:
    return Quantity.parse(text)


@pytest.mark.parametrize(
    ("function", "overload_id", "args", "result", "cost"),
    [
        ("_==_", "equals", ("a" * 30, "b" * 11), False, 2),
        ("_==_", "equals", (1, 2), False, 1),
        ("_==_", "equals", ("", "a"), False, 0),
        ("_==_", "equals", ([1] * 20, [1] * 30), False, 2),
        ("_==_", "equals", (Optional("a" * 20), Optional("b" * 25)), False, 2),
        ("_==_", "equals", (_V6, _V6), True, 1),
        ("_!=_", "not_equals", (_V6, _V6), False, 2),
        ("_!=_", "not_equals", (_V4, _V6), True, 1),
        ("_+_", "add_string", ("a" * 15, "b" * 6), "", 3),
        ("_+_", "add_list", ([1], [2]), [1, 2], 1),
        ("_+_", "", ("a" * 50, "b" * 50), "", 1),
        ("@in", "in_list", (1, list(range(7))), False, 7),
        ("@in", "in_map", ("a", {"a": 1}), True, 1),
        ("startsWith", "starts_with_string", ("a" * 90, "b" * 11), False, 2),
        ("matches", "matches_string", ("a" * 19, "b" * 9), False, 6),
        ("contains", "contains_string", ("a" * 21, "b" * 11), False, 6),
        ("lowerAscii", "string_lower_ascii", ("A" * 21,), "a" * 21, 3),
        ("replace", "string_replace_string_string", ("A" * 21, "A", ""), "", 5),
        ("join", "list_join", (["a" * 30],), "a" * 30, 6),
        ("quantity", "string_to_quantity", ("16Gi",), None, 1),
        ("sum", "list_int_sum", ([1, 2, 3],), 6, 3),
        # Strings are read at a tenth of their bytes, rounded down for each of them.
        ("indexOf", "list_a_index_of_int", (["a" * 19, "é" * 10], "x"), -1, 3),
        ("find", "string_find_string", ("a" * 9, "b" * 8), "", 2),
        ("ip", "string_to_ip", ("10.0.0.1",), _V4, 1),
        ("ip", "cidr_ip", (CIDR(_V4, 8),), _V4, 1),
        ("containsIP", "cidr_contains_ip_string", (CIDR(_V6, 64), "1" * 20), True, 4),
        ("containsCIDR", "cidr_contains_cidr", (CIDR(_V6, 64), CIDR(_V6, 64)), True, 4),
        ("validate", "format_validate", (NamedFormat("dns1123Label", "dns1123Label", 30), "a" * 19), None, 16),
        ("sets.contains", "list_sets_contains_list", ([1, 2], [1, 2, 3]), False, 7),
        ("sets.equivalent", "list_sets_equivalent_list", ([1, 2], [1, 2, 3]), False, 13),
        ("distinct", "list_distinct", ([1, 2, 3],), [1, 2, 3], 29),
        ("distinct", "list_distinct", (["a", "b", "c"],), ["a", "b", "c"], 29),
        ("sort", "list_string_sort", (["a"] * 10,), [], 221),
        ("flatten", "list_flatten_int", ([[1], [2]], 3), [1, 2], 17),
        ("slice", "list_slice", ([1, 2, 3], 0, 2), [1, 2], 13),
        ("check", "resourcecheck_check", (None,), None, 350_000),
        ("size", "", ("a" * 100,), 100, 1),
    ],
)
def test_a_call_costs_what_upstream_charges(
    function: str, overload_id: str, args: tuple[Value, ...], result: Value, cost: int
) -> None:
    assert call_cost(function, overload_id, args, result) == cost


def test_a_failed_argument_counts_as_one() -> None:
    assert call_cost("_==_", "equals", (_FAILED, "b" * 90), _FAILED) == 1
    assert call_cost("quantity", "string_to_quantity", (_FAILED,), _FAILED) == 1
    assert call_cost("sum", "list_int_sum", (_FAILED,), _FAILED) == 1


def test_comparing_a_quantity_costs_one_on_either_side() -> None:
    assert call_cost("_==_", "equals", (_quantity("1Gi"), "b" * 90), _FAILED) == 1
    assert call_cost("_==_", "equals", ("b" * 90, _quantity("1Gi")), False) == 1


def test_sorting_what_could_not_be_computed_is_charged_and_keeps_the_cause() -> None:
    assert call_cost("distinct", "list_distinct", (_FAILED,), _FAILED) == 13
    environment = device_environment(list_type_attributes=True, consumable_capacity=True, stored=True)
    outcome = evaluate(plan(compile_expression("[1 / 0].sort() == [1]", environment), environment), {})
    assert outcome.error == "division by zero"


def test_pricing_deeply_nested_values_needs_no_recursion() -> None:
    nested: list[Value] = [1]
    for _ in range(100_000):
        nested = [nested]
    assert call_cost("indexOf", "list_a_index_of_int", (nested, 1), -1) == 1
    while nested[0] != 1:
        nested = nested[0]


def _vectors(name: str) -> Any:
    folder = vectors_dir()
    if folder is None:
        pytest.skip("vectors not found: set ALLOT_VECTORS to their folder")
    return json.loads((folder / "cel" / name).read_text())


def _view(device: dict[str, Any]) -> DeviceView:
    attributes = {name: next(iter(value.items())) for name, value in device["attributes"].items()}
    capacity = {name: _quantity(text) for name, text in device["capacity"].items()}
    return view(device["driver"], attributes, capacity, bool(device.get("allowMultipleAllocations")))


def _cost(expression: str, device: DeviceView, environment: Environment) -> int:
    return evaluate(plan(compile_expression(expression, environment), environment), device.variables).cost


def test_the_probes_cost_what_they_cost_upstream() -> None:
    compared, different = 0, []
    for entry in _vectors("quirks.json"):
        case, expected = entry["case"], entry["upstream"].get("actual_cost")
        if expected is None:
            continue
        environment = device_environment(
            list_type_attributes=case["listtype"], consumable_capacity=case["consumable"], stored=not case["new"]
        )
        cost = _cost(case["expression"], _view(case), environment)
        compared += 1
        if cost != expected:
            different.append((case["expression"], cost, expected))
    assert compared > 90
    assert not different


@pytest.mark.slow
def test_random_selectors_cost_what_they_cost_upstream() -> None:
    vectors = _vectors("fuzz.json")
    device = _view(vectors["device"])
    environment = device_environment(list_type_attributes=True, consumable_capacity=True, stored=False)
    cases = [case for case in vectors["cases"] if "actual_cost" in case]
    costs = [(case, _cost(case["expression"], device, environment)) for case in cases]
    assert len(costs) > 5_000
    assert not [(case["expression"], cost, case["actual_cost"]) for case, cost in costs if cost != case["actual_cost"]]
