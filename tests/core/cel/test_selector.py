"""Selectors as the rest of the system uses them."""

from __future__ import annotations

import pytest

from allot.core.cel.device import DeviceView, view
from allot.core.cel.selector import (
    COST_LIMIT,
    EnvironmentOptions,
    EvaluationError,
    SelectorCompileError,
    compile_derived,
    compile_selector,
)
from allot.core.quantity import Quantity

NEW = EnvironmentOptions(stored=False)


def test_a_selector_answers_for_a_device() -> None:
    selector = compile_selector('device.driver == "gpu.example.com" && device.attributes["gpu.example.com"].index > 1')
    assert selector.matches(view("gpu.example.com", {"index": ("int", 2)}))
    assert not selector.matches(view("gpu.example.com", {"index": ("int", 1)}))
    assert not selector.matches(view("nic.example.com"))


def test_equal_expressions_are_compiled_once() -> None:
    assert compile_selector("true") is compile_selector("true", EnvironmentOptions())
    assert compile_selector("true") is not compile_selector("true", NEW)


def test_a_missing_attribute_is_an_error_in_upstreams_words() -> None:
    with pytest.raises(EvaluationError) as caught:
        compile_selector('device.attributes["d"].x == 1').matches(view("d"))
    assert caught.value.message == "no such key: x"


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        (
            "nope",
            "compilation failed: ERROR: <input>:1:1: undeclared reference to 'nope' (in container '')\n | nope\n | ^",
        ),
        ("1", "must evaluate to bool or the unknown type, not int"),
        ("[device]", "must evaluate to bool or the unknown type, not list(kubernetes.DRADevice)"),
        ('int("") == 1', "program instantiation failed: type conversion error from 'string' to 'int'"),
    ],
)
def test_compile_errors_are_upstreams(expression: str, message: str) -> None:
    with pytest.raises(SelectorCompileError) as caught:
        compile_selector(expression)
    assert caught.value.message == message
    assert caught.value.max_cost == 2**64 - 1


def test_new_expressions_know_only_what_the_gates_allow() -> None:
    with pytest.raises(SelectorCompileError, match="undefined field 'allowMultipleAllocations'"):
        compile_selector("device.allowMultipleAllocations", EnvironmentOptions(consumable_capacity=False, stored=False))
    assert compile_selector("device.allowMultipleAllocations", EnvironmentOptions(consumable_capacity=False))


def test_an_attribute_alone_must_turn_out_to_be_a_bool() -> None:
    selector = compile_selector('device.attributes["d"].x')
    assert selector.matches(view("d", {"x": ("bool", True)}))
    with pytest.raises(EvaluationError) as caught:
        selector.matches(view("d", {"x": ("string", "a")}))
    assert caught.value.message == (
        "CEL result of type string could not be converted to bool: unsupported native conversion from string to 'bool'"
    )


def test_a_result_of_the_wrong_type_is_an_error_even_where_checking_expected_a_bool() -> None:
    # Concatenation takes the type of its left side for the whole.
    selector = compile_selector('([true] + device.attributes["d"].l)[1]', EnvironmentOptions(list_type_attributes=True))
    assert selector.output_type == "bool"
    with pytest.raises(EvaluationError, match="CEL result of type string could not be converted to bool"):
        selector.matches(view("d", {"l": ("strings", ["a"])}))


def test_expensive_expressions_are_stopped_at_run_time() -> None:
    selector = compile_selector("lists.range(1000).map(x, lists.range(1000)).size() == 0")
    assert selector.max_cost > COST_LIMIT
    with pytest.raises(EvaluationError, match="operation cancelled: actual cost limit exceeded"):
        selector.matches(view("d"))


def test_bare_names_belong_to_the_driver_and_qualified_ones_to_their_domain() -> None:
    seen = view("d", {"x": ("int", 1), "e/y": ("int", 2)}, {"m": Quantity.parse("1"), "e/n": Quantity.parse("2")})
    assert seen.attributes == {"d": {"x": 1}, "e": {"y": 2}}
    assert seen.capacity["e"]["n"] == Quantity.parse("2")
    assert seen.attributes["nope"] == {}


def test_a_version_that_cannot_be_read_is_an_error() -> None:
    with pytest.raises(EvaluationError) as caught:
        view("d", {"x": ("version", "1")})
    assert caught.value.message == "attribute x: parse semantic version: No Major.Minor.Patch elements found"


@pytest.mark.parametrize(
    ("device", "oversized"),
    [
        (view("d", {"x": ("string", "a" * 64)}), False),
        (view("d", {"x": ("string", "a" * 65)}), True),
        (view("d", {f"x{number}": ("int", number) for number in range(33)}), True),
        (view("d", {"x": ("ints", list(range(65)))}), True),
        (view("d", {}, {"x" * 33: Quantity.parse("1")}), True),
    ],
)
def test_devices_beyond_the_limits_of_the_api_are_noticed(device: DeviceView, oversized: bool) -> None:
    assert device.oversized is oversized
    assert compile_selector('device.driver == "d"').matches(device)


def test_derived_attributes_have_a_kind_and_a_value() -> None:
    seen = view("d", {"x": ("version", "1.2.3"), "l": ("strings", ["a"])})
    options = EnvironmentOptions(list_type_attributes=True)
    assert compile_derived('device.attributes["d"].x', options).evaluate(seen) == ("version", "1.2.3")
    assert compile_derived('device.attributes["d"].l + ["b"]', options).evaluate(seen) == ("strings", ["a", "b"])
    assert compile_derived("1 + 1", options).evaluate(seen) == ("int", 2)
    assert compile_derived("[].filter(x, x)", options).evaluate(seen) == ("strings", [])
    with pytest.raises(EvaluationError, match="unsupported CEL return type"):
        compile_derived("dyn(1.5)", options).evaluate(seen)
