"""Explanations: the part that decided, and a phrase that a person understands."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings

from allot.core.cel.device import view
from allot.core.cel.selector import (
    EnvironmentOptions,
    EvaluationError,
    Explanation,
    SelectorCompileError,
    compile_selector,
)
from allot.core.quantity import Quantity
from device_expressions import expressions

OPTIONS = EnvironmentOptions(list_type_attributes=True)
DEVICE = view(
    "gpu.example.com",
    {
        "model": ("string", "a100"),
        "index": ("int", 3),
        "healthy": ("bool", False),
        "version": ("version", "1.2.3"),
        "modes": ("strings", ["a", "b"]),
    },
    {"memory": Quantity.parse("40Gi")},
)
ATTRIBUTES = 'device.attributes["gpu.example.com"]'
CAPACITY = 'device.capacity["gpu.example.com"]'


def explained(expression: str) -> Explanation:
    return compile_selector(expression, OPTIONS).explain(DEVICE)


@pytest.mark.parametrize(
    ("expression", "sentence"),
    [
        (f'{CAPACITY}.memory.compareTo(quantity("80Gi")) >= 0', "memory is 40Gi, need at least 80Gi"),
        (f'{CAPACITY}.memory.isGreaterThan(quantity("80Gi"))', "memory is 40Gi, need more than 80Gi"),
        (f'!{CAPACITY}.memory.isGreaterThan(quantity("8Gi"))', "memory is 40Gi, need at most 8Gi"),
        (f'{ATTRIBUTES}.model == "h100"', 'model is "a100", need "h100"'),
        (f'"h100" == {ATTRIBUTES}.model', 'model is "a100", need "h100"'),
        (f'{ATTRIBUTES}.model != "a100"', 'model is "a100", need something else'),
        (f'{ATTRIBUTES}.model in ["h100", "h200"]', 'model is "a100", need one of "h100", "h200"'),
        (f"5 < {ATTRIBUTES}.index", "index is 3, need more than 5"),
        (f'{ATTRIBUTES}.version.isGreaterThan(semver("2.0.0"))', "version is 1.2.3, need more than 2.0.0"),
        (f'{ATTRIBUTES}.model.startsWith("h")', 'model is "a100", need it to start with "h"'),
        (f'{ATTRIBUTES}.model.matches("^h")', 'model is "a100", need it to match "^h"'),
        (f"{ATTRIBUTES}.healthy", "healthy is false, need true"),
        (f"has({ATTRIBUTES}.nope)", 'attribute "gpu.example.com"/nope is not published'),
        (f'"nope" in {ATTRIBUTES}', 'attribute "gpu.example.com"/nope is not published'),
        (f"!has({ATTRIBUTES}.model)", 'attribute "gpu.example.com"/model is published, but must not be'),
        (f'{ATTRIBUTES}.nope == "x"', 'attribute "gpu.example.com"/nope is not published'),
        (f'{CAPACITY}.nope.isLessThan(quantity("1"))', 'capacity "gpu.example.com"/nope is not published'),
        (f'{ATTRIBUTES}.?nope.orValue("none") == "x"', 'nope is not published (counts as "none"), need "x"'),
        (f'"z" in {ATTRIBUTES}.modes', 'modes is ["a", "b"], need it to include "z"'),
        (f'{ATTRIBUTES}.modes.exists(m, m == "z")', 'modes is ["a", "b"], need an element for which m == "z"'),
        (f'{ATTRIBUTES}.modes.all(m, m == "a")', 'm is "b", need "a"'),
        (f'cel.bind(g, {ATTRIBUTES}, g.model == "z" && g.index > 1)', 'model is "a100", need "z"'),
        (f"{ATTRIBUTES}.index > 5 ? true : {ATTRIBUTES}.index < 2", "index is 3, need less than 2"),
        (
            f'device.driver == "x" || {ATTRIBUTES}.model == "y"',
            'driver is "gpu.example.com", need "x"; model is "a100", need "y"',
        ),
        (f"!({ATTRIBUTES}.healthy || {ATTRIBUTES}.index == 3)", "index is 3, need something else"),
        (f'{ATTRIBUTES}.version == "1.2.3"', "no such overload"),
        ("1 / 0 == 1", "division by zero"),
        ("false", "false is not true"),
        ("true", "matches"),
    ],
)
def test_the_reason_is_said_in_a_few_words(expression: str, sentence: str) -> None:
    assert explained(expression).sentence() == sentence


def test_the_part_that_decided_is_shown_with_what_it_saw() -> None:
    explanation = explained(f'device.driver == "gpu.example.com" && {ATTRIBUTES}.index > 5 && {ATTRIBUTES}.healthy')
    assert explanation.outcome == "no match"
    assert explanation.expression == f"{ATTRIBUTES}.index > 5"
    assert explanation.values == ((f"{ATTRIBUTES}.index", "3"), ("5", "5"))
    assert (explanation.subject, explanation.actual, explanation.operator, explanation.expected) == (
        "index",
        "3",
        ">",
        "5",
    )
    assert explanation.path == ("attributes", "gpu.example.com")


def test_an_error_shows_where_it_arose() -> None:
    explanation = explained(f"{ATTRIBUTES}.modes[{ATTRIBUTES}.index] == 'a'")
    assert explanation.outcome == "error"
    assert explanation.error == "index out of bounds: 3"
    assert explanation.expression == f"{ATTRIBUTES}.modes[{ATTRIBUTES}.index]"


@pytest.mark.slow
@settings(max_examples=200, suppress_health_check=list(HealthCheck))
@given(expressions())
def test_every_outcome_has_an_explanation_that_agrees_with_it(expression: str) -> None:
    try:
        selector = compile_selector(expression, OPTIONS)
    except SelectorCompileError:
        return
    explanation = selector.explain(DEVICE)
    try:
        expected = "match" if selector.matches(DEVICE) else "no match"
    except EvaluationError:
        expected = "error"
    assert explanation.outcome == expected
    assert explanation.sentence()
