"""Prices of calls that happened."""

from __future__ import annotations

import pytest

from allot.core.cel.runtime_cost import call_cost, stops_at_error
from allot.core.cel.values import CIDR, IP, CelError, EvaluationAborted, NamedFormat, Optional, Value
from allot.core.quantity import Quantity

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


def test_pricing_a_sort_of_something_else_than_a_list_ends_the_evaluation_as_upstream() -> None:
    with pytest.raises(EvaluationAborted, match=r"\*types.Err is not traits.Lister: missing method Add"):
        call_cost("distinct", "list_distinct", (_FAILED,), _FAILED)


def test_pricing_deeply_nested_values_needs_no_recursion() -> None:
    nested: list[Value] = [1]
    for _ in range(100_000):
        nested = [nested]
    assert call_cost("indexOf", "list_a_index_of_int", (nested, 1), -1) == 1
    while nested[0] != 1:
        nested = nested[0]


def test_three_arguments_or_a_dispatched_call_stop_at_the_first_error() -> None:
    assert stops_at_error("substring", 1, 3)
    assert stops_at_error("isLessThan", 2, 2)
    assert not stops_at_error("isLessThan", 1, 2)
    assert not stops_at_error("_+_", 9, 2)
    assert not stops_at_error("lowerAscii", 1, 1)
