"""Selectors against upstream's answers: outcome, message, estimated and actual cost."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import product
from typing import Any

import pytest

from allot.core.cel.device import DeviceView, view
from allot.core.cel.selector import (
    EnvironmentOptions,
    EvaluationError,
    SelectorCompileError,
    compile_derived,
    compile_selector,
)
from allot.core.quantity import Quantity
from vectors import vectors_dir

VECTORS = vectors_dir()
needs_vectors = pytest.mark.skipif(VECTORS is None, reason="the test vectors are not next to this repository")
SHOWN_MAX = 20
# Runs into the cost limit, which takes a while.
EXPENSIVE = "expensive"


def load(name: str) -> Any:
    assert VECTORS is not None
    return json.loads((VECTORS / "cel" / f"{name}.json").read_text())


def device(case: dict[str, Any]) -> DeviceView:
    return view(
        case.get("driver", ""),
        {name: next(iter(value.items())) for name, value in case["attributes"].items()},
        {name: Quantity.parse(text) for name, text in case["capacity"].items()},
        bool(case.get("allowMultipleAllocations")),
    )


def table_options(case: dict[str, Any]) -> Iterator[EnvironmentOptions]:
    features = case["features"]
    gates = (
        list(product((False, True), repeat=2))
        if features is None
        else [(features["EnableListTypeAttributes"], features["EnableConsumableCapacity"])]
    )
    for stored in (False, True) if case["env_type"] is None else (case["env_type"] == "StoredExpressions",):
        for lists, consumable in gates:
            yield EnvironmentOptions(lists, consumable, stored)


def check_table_case(case: dict[str, Any], options: EnvironmentOptions) -> str | None:
    """What is wrong with a case, if anything."""
    try:
        selector = compile_selector(case["expression"], options)
    except SelectorCompileError as error:
        expected = case["expect_compile_error"]
        return None if expected is not None and expected in error.message else f"does not compile: {error.message}"
    if case["expect_compile_error"] is not None:
        return f"compiles, but should fail with {case['expect_compile_error']!r}"
    if selector.max_cost != case["expect_max_cost_estimate"]:
        return f"estimate {selector.max_cost}, expected {case['expect_max_cost_estimate']}"
    seen = device(case)
    if selector.cost(seen) > selector.max_cost:
        return f"cost {selector.cost(seen)} exceeds the estimate {selector.max_cost}"
    try:
        matched = selector.matches(seen)
    except EvaluationError as error:
        expected = case["expect_match_error"]
        return None if expected is not None and expected in error.message else f"fails with {error.message}"
    return None if matched is case["expect_match"] else f"matches: {matched}, expected {case['expect_match']}"


@needs_vectors
@pytest.mark.slow
def test_upstreams_table_of_selectors_holds() -> None:
    problems = [
        f"{case['name']} with {options}: {problem}"
        for case in load("table")["selector_cases"]
        if case["name"] != EXPENSIVE
        for options in table_options(case)
        if (problem := check_table_case(case, options)) is not None
    ]
    assert not problems, "\n".join(problems)


@needs_vectors
@pytest.mark.slow
def test_upstreams_expensive_selector_stops_at_the_limit() -> None:
    (case,) = (case for case in load("table")["selector_cases"] if case["name"] == EXPENSIVE)
    selector = compile_selector(case["expression"])
    assert selector.max_cost == case["expect_max_cost_estimate"]
    with pytest.raises(EvaluationError, match=case["expect_match_error"]):
        selector.matches(device(case))


@needs_vectors
def test_upstreams_derived_attributes_compile_or_fail_alike() -> None:
    for case in load("table")["derived_compile_cases"]:
        options = EnvironmentOptions(case["list_type_attributes"], False, case["env_type"] == "StoredExpressions")
        expected = case["expect_compile_error"]
        if expected is None:
            compile_derived(case["expression"], options)
        else:
            with pytest.raises(SelectorCompileError) as caught:
                compile_derived(case["expression"], options)
            assert expected in caught.value.message, case["name"]


@needs_vectors
def test_upstreams_derived_attributes_have_the_same_values() -> None:
    table = load("table")["derived_eval"]
    devices = {"empty": DeviceView(""), "mock_device": device(table["mock_device"])}
    options = EnvironmentOptions(True, False, stored=True)
    for case in table["cases"]:
        derived = compile_derived(case["expression"], options)
        if case["expect_eval_error"] is None:
            kind, value = derived.evaluate(devices[case["device"]])
            assert {kind: value} == case["expect_attr"], case["name"]
        else:
            with pytest.raises(EvaluationError) as caught:
                derived.evaluate(devices[case["device"]])
            assert case["expect_eval_error"] in caught.value.message, case["name"]


def outcome(expression: str, options: EnvironmentOptions, seen: DeviceView) -> dict[str, Any]:
    """What happened, in the form of the vectors."""
    try:
        selector = compile_selector(expression, options)
    except SelectorCompileError as error:
        return {"compile_error": error.message, "max_cost": error.max_cost}
    result: dict[str, Any] = {
        "output_type": selector.output_type,
        "max_cost": selector.max_cost,
        "actual_cost": selector.cost(seen),
    }
    try:
        result["match"] = selector.matches(seen)
    except EvaluationError as error:
        result["error"] = error.message
    return result


def quirks_and_fuzz() -> Iterator[tuple[str, EnvironmentOptions, DeviceView, dict[str, Any]]]:
    for entry in load("quirks"):
        case = entry["case"]
        options = EnvironmentOptions(case["listtype"], case["consumable"], not case["new"])
        yield case["expression"], options, device(case), entry["upstream"]
    fuzz = load("fuzz")
    seen = device(fuzz["device"])
    for case in fuzz["cases"]:
        yield case["expression"], EnvironmentOptions(True, True, stored=False), seen, case


@needs_vectors
@pytest.mark.slow
def test_probes_and_random_selectors_come_out_as_upstream() -> None:
    outcomes: list[str] = []
    costs: list[str] = []
    cases = list(quirks_and_fuzz())
    for expression, options, seen, upstream in cases:
        found = outcome(expression, options, seen)
        for key in ("compile_error", "output_type", "match", "error"):
            if found.get(key) != upstream.get(key):
                outcomes.append(f"{expression}: {key} {found.get(key)!r}, upstream {upstream.get(key)!r}")
                break
        for key in ("max_cost", "actual_cost"):
            if found.get(key) != upstream.get(key):
                costs.append(f"{expression}: {key} {found.get(key)}, upstream {upstream.get(key)}")
                break
    assert len(cases) > 6000
    assert not outcomes, f"{len(outcomes)}:\n" + "\n".join(outcomes[:SHOWN_MAX])
    assert not costs, f"{len(costs)}:\n" + "\n".join(costs[:SHOWN_MAX])


def identity(value: Any) -> Any:
    return value


@needs_vectors
@pytest.mark.slow
def test_random_selectors_are_translated_and_agree_with_the_interpreter() -> None:
    differences: list[str] = []
    for expression, options, seen, _ in quirks_and_fuzz():
        try:
            selector = compile_selector(expression, options)
        except SelectorCompileError:
            continue
        results = []
        for run in (selector.quickest(identity), selector.interpreted):
            try:
                results.append(("value", repr(run(seen))))
            except EvaluationError as error:
                results.append(("error", error.message))
        if results[0] != results[1]:
            differences.append(f"{expression}: generated {results[0]}, interpreted {results[1]}")
    assert not differences, "\n".join(differences[:SHOWN_MAX])


@needs_vectors
def test_an_expensive_loop_over_too_many_attributes_stops_at_the_cost_limit_or_finishes() -> None:
    expression = load("table")["interrupt_case"]["expression"]
    seen = view("", {f"dra.example.com/attr{number}": ("int", number) for number in range(1000)})
    selector = compile_selector(expression)
    assert seen.oversized
    assert selector.matches(seen) is True
    assert selector.cost(seen) < 1_000_000
