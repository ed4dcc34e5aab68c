"""Projections: what an expression reads, and that devices that agree on it get the same answer."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from allot.core.cel.device import DeviceView, view
from allot.core.cel.projection import Projection, Reference
from allot.core.cel.selector import EnvironmentOptions, EvaluationError, SelectorCompileError, compile_selector
from allot.core.quantity import Quantity
from device_expressions import expressions

OPTIONS = EnvironmentOptions(list_type_attributes=True)
DRIVER = Reference("driver")
DEVICE = Reference("device")


def references(expression: str) -> set[Reference]:
    return set(compile_selector(expression, OPTIONS).projection.references)


def attribute(domain: str, name: str = "") -> Reference:
    return Reference("attributes", domain, name)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("true", set()),
        ('device.driver == "a"', {DRIVER}),
        ("device.allowMultipleAllocations", {Reference("allowMultipleAllocations")}),
        ('device.attributes["d"].x == 1', {attribute("d", "x")}),
        ('device.attributes.d["x"] == 1', {attribute("d", "x")}),
        ('device.attributes[?"d"].?x.orValue(1) == 1', {attribute("d", "x")}),
        ('has(device.attributes["d"].x)', {attribute("d", "x")}),
        ("has(device.attributes.d)", set()),
        ('"x" in device.attributes["d"]', {attribute("d", "x")}),
        ('"d" in device.attributes', {Reference("attributes", "d", existence=True)}),
        ('device.attributes["d" + "e"].x == 1', {attribute("de", "x")}),
        ('device.capacity["d"].m.isGreaterThan(quantity("1"))', {Reference("capacity", "d", "m")}),
        ('cel.bind(a, device.attributes["d"], a.x == 1 && a.y == 2)', {attribute("d", "x"), attribute("d", "y")}),
        ('cel.bind(d, device, d.driver == "a")', {DRIVER}),
        ('device.attributes["d"].?x.optMap(v, v == 1).orValue(false)', {attribute("d", "x")}),
        (
            '(device.driver == "a" ? device.attributes["d"] : device.attributes["e"]).x == 1',
            {DRIVER, attribute("d", "x"), attribute("e", "x")},
        ),
        ("device.attributes[device.driver].x == 1", {DRIVER, Reference("attributes", "", "x", of_driver=True)}),
        ('device.attributes["d"].all(k, k != "")', {attribute("d")}),
        ('device.attributes["d"].size() == 1', {attribute("d")}),
        ("device.attributes.all(d, d != '')", {Reference("attributes")}),
        ('device.attributes[string(device.attributes["d"].x)].y == 1', {Reference("attributes")}),
        ('device.attributes["d"][device.driver] == 1', {DRIVER, attribute("d")}),
        ("device == device", {DEVICE}),
        ("[device].all(d, d.driver == 'a')", {DEVICE}),
        ('dyn(device).driver == "a"', {DRIVER}),
    ],
)
def test_an_expression_reads_only_what_is_said(expression: str, expected: set[Reference]) -> None:
    assert references(expression) == expected


def test_a_union_reads_what_any_of_its_parts_reads_and_nothing_twice() -> None:
    parts = ['device.attributes["d"].x == 1', 'device.attributes["d"].all(k, true)', 'device.driver == "a"']
    union = Projection.union(compile_selector(part, OPTIONS).projection for part in parts)
    assert set(union.references) == {DRIVER, attribute("d")}
    assert union == Projection((DRIVER, attribute("d"), attribute("d", "y")))


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (("int", 1), ("bool", True)),
        (("string", "1"), ("int", 1)),
        (("version", "1.0.0"), ("string", "1.0.0")),
        (("version", "1.0.0+a"), ("version", "1.0.0+b")),
        (("ints", [1]), ("bools", [True])),
        (("ints", []), ("string", "")),
    ],
)
def test_keys_tell_values_of_different_types_apart(left: tuple[str, Any], right: tuple[str, Any]) -> None:
    projection = Projection((attribute("d", "x"),))
    assert projection.key(view("d", {"x": left})) != projection.key(view("d", {"x": right}))
    assert projection.key(view("d", {"x": left})) == projection.key(view("other", {"d/x": left}))
    assert projection.key(view("d", {"x": left})) != projection.key(view("d"))


def test_keys_tell_equal_amounts_apart_that_answer_differently() -> None:
    projection = Projection((Reference("capacity", "d", "m"),))
    keys = {projection.key(view("d", {}, {"m": Quantity.parse(text)})) for text in ("1.5Ki", "1536", "1536.0")}
    assert len(keys) >= 2


VALUES = st.one_of(
    st.tuples(st.just("string"), st.sampled_from(("", "a", "fish", "1.2.3"))),
    st.tuples(st.just("int"), st.sampled_from((0, 1, 5))),
    st.tuples(st.just("bool"), st.booleans()),
    st.tuples(st.just("version"), st.sampled_from(("1.2.3", "2.0.0"))),
    st.tuples(st.just("strings"), st.sampled_from(([], ["a"], ["a", "b"]))),
    st.tuples(st.just("ints"), st.sampled_from(([], [1, 2, 3]))),
)
NAMES = st.sampled_from(("s", "t", "i", "j", "b", "v", "l", "il", "o.example.com/s", "o.example.com/i"))
DEVICES = st.builds(
    view,
    st.sampled_from(("dra.example.com", "o.example.com")),
    st.dictionaries(NAMES, VALUES, max_size=6),
    st.dictionaries(st.sampled_from(("mem", "s")), st.sampled_from(("1", "16Gi", "100m")).map(Quantity.parse)),
    st.booleans(),
)


def outcome(run: Any, seen: DeviceView) -> tuple[str, Any]:
    try:
        return "match", run(seen)
    except EvaluationError as error:
        return "error", error.message


@pytest.mark.slow
@settings(max_examples=200, suppress_health_check=list(HealthCheck))
@given(expressions(), st.lists(DEVICES, min_size=2, max_size=8))
def test_devices_with_equal_keys_get_equal_outcomes(expression: str, devices: list[DeviceView]) -> None:
    try:
        selector = compile_selector(expression, OPTIONS)
    except SelectorCompileError:
        return
    seen: dict[Any, tuple[str, Any]] = {}
    for device in devices:
        result = outcome(selector.matches, device)
        assert seen.setdefault(selector.projection.key(device), result) == result, selector.projection
