"""What mutations make of an object."""

from __future__ import annotations

from typing import Any

import pytest

from allot.apiserver.kinds.schemas import builtin_schemas
from allot.core.policies.conditions import EvaluationFailed
from allot.core.policies.mutating import MutatingPolicy

Object = dict[str, Any]

MAP: Object = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"x": "y"}}


def mutated(expression: str, object_: Object = MAP, *, applies: bool = False) -> Object:
    used = "applyConfiguration" if applies else "jsonPatch"
    type_ = "ApplyConfiguration" if applies else "JSONPatch"
    policy = MutatingPolicy({"spec": {"mutations": [{"patchType": type_, used: {"expression": expression}}]}})
    schema = builtin_schemas().for_kind("", "v1", object_["kind"])
    assert schema is not None
    (mutation,) = policy.mutations
    return policy.mutated(mutation, {"object": object_, "oldObject": None}, schema)


def added(value: str) -> Any:
    return mutated(f"[JSONPatch{{op: 'add', path: '/data/new', value: {value}}}]")["data"]["new"]


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ("1", 1),
        ("1u", 1),
        ("1.5", 1.5),
        ("9007199254740993", "9007199254740993"),
        ("null", None),
        ("b'abc'", "YWJj"),
        ("timestamp('2026-01-02T03:04:05Z')", "2026-01-02T03:04:05Z"),
        ("duration('90s')", "90s"),
        ("{'a': [true]}", {"a": [True]}),
        ("Object.data{a: Object.data.a{b: 'c'}, ?d: optional.none()}", {"a": {"b": "c"}}),
        ("jsonpatch.escapeKey('a/b~c')", "a~1b~0c"),
    ],
)
def test_values_become_json(value: str, found: Any) -> None:
    assert added(value) == found


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ("{1: 'a'}", "map key 1 is of type int, not string"),
        ("quantity('1')", "a value of type kubernetes.Quantity cannot be part of an object"),
        ("optional.of(1)", "a value of type optional_type cannot be part of an object"),
    ],
)
def test_values_that_json_does_not_have(value: str, told: str) -> None:
    with pytest.raises(EvaluationFailed) as failed:
        added(value)
    assert str(failed.value) == told


@pytest.mark.slow
def test_what_an_expression_makes_is_bounded_in_number_length_and_depth() -> None:
    doubled = "['x', 'x']"
    for number in range(18):
        doubled = f"cel.bind(v{number}, {doubled}, [v{number}, v{number}])"
    with pytest.raises(EvaluationFailed, match="the expression makes more than 300000 values"):
        added(doubled)
    long = {**MAP, "data": {"x": "y" * 1_100_000}}
    with pytest.raises(EvaluationFailed, match="the expression makes more than 3145728 characters"):
        mutated("[JSONPatch{op: 'add', path: '/data/n', value: [object.data.x, object.data.x, object.data.x]}]", long)
    deep: Any = "x"
    for _ in range(250):
        deep = [deep]
    with pytest.raises(EvaluationFailed, match="the expression nests values more than 200 levels deep"):
        mutated("[JSONPatch{op: 'add', path: '/data/n', value: object.data}]", {**MAP, "data": {"x": deep}})


def test_messages_equal_each_other_field_by_field_and_know_any_field() -> None:
    compared = """Object{data: Object.data{
        same: string(Object.a{b: [1]} == Object.a{b: [1]}), other: string(dyn(Object.a{b: 1}) == Object.c{b: 1}),
        unset: string(Object.a{}.b == null), has: string(has(Object.a{b: 1}.b)), zero: string(optional.ofNonZeroValue(Object.a{}).hasValue())
    }}"""
    data = mutated(compared, applies=True)["data"]
    assert data == {"x": "y", "same": "true", "other": "false", "unset": "true", "has": "true", "zero": "false"}


def test_an_apply_keeps_what_it_does_not_name() -> None:
    found = mutated("Object{data: Object.data{a: 'b'}}", applies=True)
    assert found == {**MAP, "data": {"x": "y", "a": "b"}}
    assert MAP["data"] == {"x": "y"}
