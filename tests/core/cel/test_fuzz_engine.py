"""The engine on expressions and texts that nobody would write: it answers, with an outcome or a declared error."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from allot.core.cel.checking.compile import compile_expression
from allot.core.cel.checking.environment import device_environment
from allot.core.cel.checking.types import Checked
from allot.core.cel.codegen.generate import Untranslatable, generate
from allot.core.cel.costs.estimate import estimate
from allot.core.cel.costs.sizes import device_sizes
from allot.core.cel.data.values import EvaluationError
from allot.core.cel.device import DeviceView, view
from allot.core.cel.evaluation.interpret import Evaluation, evaluate
from allot.core.cel.evaluation.plan import PlanError, plan
from allot.core.cel.evaluation.plan_nodes import Node
from allot.core.cel.selector import CompiledSelector, EnvironmentOptions, SelectorCompileError, compile_selector
from allot.core.cel.syntax.errors import CelCompileError
from allot.core.quantity import Quantity
from device_expressions import expressions

_ENVIRONMENT = device_environment(list_type_attributes=True, consumable_capacity=True, stored=True)
_SIZES = device_sizes(consumable_capacity=True)
_ATTRIBUTES: dict[str, tuple[str, Any]] = {
    "s": ("string", "fish"),
    "t": ("string", "1.2.3"),
    "i": ("int", 5),
    "j": ("int", -3),
    "b": ("bool", True),
    "v": ("version", "1.2.3"),
    "l": ("strings", ["a", "b"]),
    "il": ("ints", [1, 2, 3]),
    "o.example.com/s": ("string", "é"),
    "o.example.com/i": ("int", 2**63 - 1),
}
_CAPACITY = {"mem": Quantity.parse("16Gi"), "s": Quantity.parse("100m")}
_FULL = view("dra.example.com", _ATTRIBUTES, _CAPACITY, True)
_DEVICES = (_FULL, view("dra.example.com"), view("", {"s": ("bool", False), "l": ("versions", [])}))
_fuzzing = settings(max_examples=300, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])


def _compiled(expression: str) -> tuple[Checked, Node] | None:
    """None when the expression is refused; any other error than the declared ones fails the test."""
    try:
        checked = compile_expression(expression, _ENVIRONMENT)
        return checked, plan(checked, _ENVIRONMENT)
    except (CelCompileError, PlanError) as error:
        assert str(error)
        return None


def _evaluated(expression: str, device: DeviceView) -> Evaluation | None:
    compiled = _compiled(expression)
    return compiled and evaluate(compiled[1], device.variables)


@pytest.mark.slow
@_fuzzing
@given(expressions(), st.sampled_from(_DEVICES))
def test_an_expression_has_an_outcome_and_a_cost_near_the_estimate(expression: str, device: DeviceView) -> None:
    compiled = _compiled(expression)
    if compiled is None:
        return
    checked, program = compiled
    outcome = evaluate(program, device.variables)
    assert (outcome.error is None) != (outcome.value is None)
    # Upstream underestimates here and there: a failed argument is charged although nothing was estimated for it, so is
    # selecting from the result of a call, and comparing whole devices is estimated as free. Each adds a little.
    worst = estimate(checked, _SIZES)
    assert worst.min <= worst.max
    assert outcome.cost <= 2 * worst.max + len(checked.types)


@pytest.mark.slow
@_fuzzing
@given(expressions(), st.sampled_from(_DEVICES))
def test_evaluating_again_gives_the_same_outcome_and_cost(expression: str, device: DeviceView) -> None:
    compiled = _compiled(expression)
    if compiled is None:
        return
    first, second = (evaluate(compiled[1], device.variables) for _ in range(2))
    assert repr(first) == repr(second)


def _generated(program: Node, device: DeviceView) -> tuple[str, str] | None:
    """The outcome of generated code, as text; None when the plan is left to the interpreter."""
    try:
        function = generate(program, lambda _: "oversized")
    except Untranslatable:
        return None
    try:
        return "value", repr(function(device))
    except EvaluationError as error:
        return "error", error.message


@pytest.mark.slow
@_fuzzing
@given(expressions(depth=3), st.sampled_from(_DEVICES))
def test_generated_code_has_the_outcome_of_the_interpreter(expression: str, device: DeviceView) -> None:
    compiled = _compiled(expression)
    generated = compiled and _generated(compiled[1], device)
    if compiled is None or generated is None:
        return
    outcome = evaluate(compiled[1], device.variables)
    if outcome.error is None:
        assert generated == ("value", repr(outcome.value))
    elif not outcome.error.startswith(("internal error", "operation cancelled")):
        # Operands are evaluated even after one failed. So upstream and the interpreter may come to one that ends the
        # evaluation, where generated code has stopped at the first error.
        assert generated == ("error", outcome.error)


def _answer(selector: CompiledSelector, device: DeviceView) -> tuple[str, str]:
    try:
        matches = selector.matches(device)
    except EvaluationError as error:
        return "error", error.message
    return ("match" if matches else "no match"), ""


def _selector(expression: str) -> CompiledSelector | None:
    try:
        return compile_selector(expression, EnvironmentOptions(list_type_attributes=True))
    except SelectorCompileError as error:
        assert error.message
        return None


@st.composite
def _changed_devices(draw: st.DrawFn) -> DeviceView:
    """A device that differs from the full one in a thing or two."""
    attributes, capacity = dict(_ATTRIBUTES), dict(_CAPACITY)
    for _ in range(draw(st.integers(1, 2))):
        name = draw(st.sampled_from([*_ATTRIBUTES, "nope", "p.example.com/s", "o.example.com/v"]))
        value = draw(st.sampled_from([*_ATTRIBUTES.values(), None]))
        attributes.pop(name, None)
        if value is not None:
            attributes[name] = value
    if draw(st.booleans()):
        capacity["mem"] = Quantity.parse(draw(st.sampled_from(["16Gi", "17179869184", "1"])))
    return view(draw(st.sampled_from(["dra.example.com", "o.example.com"])), attributes, capacity, draw(st.booleans()))


@pytest.mark.slow
@_fuzzing
@given(expressions(depth=3), _changed_devices())
def test_devices_that_agree_on_what_is_read_get_the_same_answer(expression: str, device: DeviceView) -> None:
    selector = _selector(expression)
    if selector is None or selector.projection.key(device) != selector.projection.key(_FULL):
        return
    assert _answer(selector, device) == _answer(selector, _FULL)


@pytest.mark.slow
@_fuzzing
@given(expressions(depth=3), _changed_devices())
def test_an_explanation_tells_the_answer(expression: str, device: DeviceView) -> None:
    selector = _selector(expression)
    if selector is None:
        return
    explanation = selector.explain(device)
    assert explanation.sentence()
    assert explanation.outcome == _answer(selector, device)[0]


CANCELLED = "operation cancelled: actual cost limit exceeded"


@pytest.mark.slow
@_fuzzing
@given(expressions(), st.integers(0, 60))
def test_a_limit_stops_what_would_cost_more_and_nothing_else(expression: str, limit: int) -> None:
    compiled = _compiled(expression)
    if compiled is None:
        return
    free = evaluate(compiled[1], _FULL.variables)
    limited = evaluate(compiled[1], _FULL.variables, limit)
    # Upstream takes back what has() of a conditional is charged for its attribute, so that on the way it costs more than in the end.
    taken_back = expression.count("has(") if "?" in expression else 0
    if free.cost + taken_back <= limit:
        assert repr(limited) == repr(free)
    elif free.cost > limit:
        assert limited.error == CANCELLED
    else:
        assert limited.error == CANCELLED or repr(limited) == repr(free)


def test_what_is_taken_back_counts_on_the_way() -> None:
    compiled = _compiled('has((true ? device.attributes["dra.example.com"] : device.attributes["dra.example.com"]).s)')
    assert compiled is not None
    assert evaluate(compiled[1], _FULL.variables).cost == 2
    assert evaluate(compiled[1], _FULL.variables, 2).error == CANCELLED
    assert evaluate(compiled[1], _FULL.variables, 3).error is None


@_fuzzing
@given(st.text(max_size=200))
def test_any_text_is_an_expression_or_refused(text: str) -> None:
    _compiled(text)


_PIECES = st.lists(
    st.sampled_from(
        [
            *(
                "device",
                ".",
                "attributes",
                "[",
                "]",
                "(",
                ")",
                "{",
                "}",
                "?",
                ":",
                ",",
                "&&",
                "||",
                "!",
                "-",
                "+",
                "==",
            ),
            *("'a'", '"', "'", "1", "0x", "1e", "1u", "true", "null", "in", " ", "\n", "//", "\\", "r'", "b'\\xff'"),
            *("has", "all", "map", "cel.bind", "x", "\ud800", "\x00", "é", "💥", "@result", "`", "."),
        ]
    ),
    max_size=40,
)


@pytest.mark.slow
@_fuzzing
@given(_PIECES)
def test_any_sequence_of_tokens_is_an_expression_or_refused(pieces: list[str]) -> None:
    _evaluated("".join(pieces), _FULL)


@_fuzzing
@given(st.binary(max_size=200))
def test_any_bytes_are_an_expression_or_refused(raw: bytes) -> None:
    _compiled(raw.decode("latin-1"))
    _compiled(raw.decode("utf-8", "replace"))


@pytest.mark.parametrize("count", [10, 100, 249, 251, 1000, 5000])
@pytest.mark.parametrize(
    ("opening", "core", "closing"),
    [
        ("(", "true", ")"),
        ("[", "1", "]"),
        ("{1: ", "1", "}"),
        ("!", "true", ""),
        ("!(", "true", ")"),
        ("-", "1", ""),
        ("-(", "1", ")"),
        ("true ? ", "1", " : 2"),
        ("", "device.attributes['a']", ".b"),
        ("", "device.attributes['a']", "['b']"),
        ("", "1", " + 1"),
        ("", "true", " && true"),
        ("", "true", " || false"),
        ("", "'a'", ".lowerAscii()"),
        ("dyn(", "1", ")"),
        ("[1].all(x, ", "true", ")"),
        ("[1].map(x, ", "1", ")"),
        ("cel.bind(x, 1, ", "x", ")"),
        ("optional.of(", "1", ")"),
        ("has(", "device.driver", ")"),
        ("device.", "driver", ""),
    ],
)
def test_nesting_of_any_depth_is_evaluated_or_refused(opening: str, core: str, closing: str, count: int) -> None:
    outcome = _evaluated(opening * count + core + closing * count, _FULL)
    assert outcome is None or (outcome.error is None) != (outcome.value is None)


@pytest.mark.parametrize(
    "opening", ["(", "[", "{", "!", "-", "a.", "a[", "a(", "a ? ", "'", '"""', "1+", "has(", "x.all(y,"]
)
def test_a_long_unfinished_expression_is_refused(opening: str) -> None:
    assert _compiled(opening * (10_240 // len(opening))) is None


def _growing(steps: int, init: str, step: str, result: str) -> str:
    """Bindings in which each, written X0, X1, ..., is made of the one before it: `step` with Y for that one."""
    expression = result.replace("Y", f"x{steps}")
    for number in range(steps, 0, -1):
        expression = f"cel.bind(x{number}, {step.replace('Y', f'x{number - 1}')}, {expression})"
    return f"cel.bind(x0, {init}, {expression})"


@pytest.mark.parametrize(
    "expression",
    [
        "lists.range(100000000).size() > 0",
        "lists.range(20000).distinct().size() > 0",
        "lists.range(20000).sort().size() > 0",
        "sets.equivalent(lists.range(20000), lists.range(20000))",
        "lists.range(90000).all(x, x in lists.range(90000))",
        "[lists.range(10)].flatten(1000000).size() > 0",
        "'%.1000000000f'.format([1.0]).size() > 0",
        "'aaaa'.matches('((a{1,100}){1,100}){1,100}b' + '')",
        "quantity('1e1000000000').isGreaterThan(quantity('1'))",
        _growing(40, "'aaaaaaaaaa'", "Y + Y", "Y.size() > 0"),
        _growing(40, "'aaaaaaaaaa'", "Y.replace('a', 'aaaaaaaaaa')", "Y.size() > 0"),
        _growing(40, "'aaaaaaaaaa'", "Y.replace('', Y)", "Y.size() > 0"),
        _growing(40, "'aaaaaaaaaa'", "[Y, Y, Y].join(Y)", "Y.size() > 0"),
        _growing(40, "'aaaaaaaaaa'", "'%s%s'.format([Y, Y])", "Y.size() > 0"),
        _growing(40, "[1]", "[Y, Y]", "Y == Y"),
        _growing(40, "[1]", "[Y, Y]", "Y in [Y]"),
        _growing(40, "[1]", "[Y, Y]", "[Y].indexOf(Y) > 0"),
        _growing(40, "[1]", "[Y, Y]", "Y.distinct().size() > 0"),
        _growing(40, "[1]", "[Y, Y]", "sets.contains([Y], [Y])"),
        _growing(40, "[1]", "[dyn(Y), dyn(Y)]", "Y != Y"),
        _growing(40, "{'a': dyn(1)}", "{'a': dyn(Y), 'b': dyn(Y)}", "Y == Y"),
    ],
)
def test_what_is_too_large_is_stopped_before_it_is_built(expression: str) -> None:
    outcome = _evaluated(expression, _FULL)
    assert outcome is None or outcome.error is not None


@pytest.mark.slow
@pytest.mark.parametrize(
    "expression",
    [
        "lists.range(1000).all(x, lists.range(1000).all(y, lists.range(1000).all(z, true)))",
        "lists.range(990000).map(x, x).size() > 0",
        "lists.range(300000).transformMap(i, v, v).size() > 0",
        _growing(60, "[1, 2, 3, 4]", "Y + Y", "Y.size() > 0"),
        _growing(40, "[1]", "[Y, Y]", "'%s'.format([Y]) == ''"),
        _growing(40, "[1]", "[Y, Y]", "Y.flatten(100).size() > 0"),
    ],
)
def test_what_costs_too_much_is_stopped(expression: str) -> None:
    outcome = _evaluated(expression, _FULL)
    assert outcome is not None
    assert outcome.error == "operation cancelled: actual cost limit exceeded"


@pytest.mark.parametrize(
    "expression",
    [
        _growing(19, "'aaaaaaaaaa'", "'%s%s'.format([Y, Y])", "lists.range(500).map(i, '%s'.format([Y])).size() > 0"),
        _growing(8, "[1, 2, 3]", "[Y, Y]", "lists.range(1000).all(i, Y == Y)"),
        _growing(8, "[1, 2, 3]", "[Y, Y]", "lists.range(10000).all(i, Y in [Y, Y])"),
        _growing(18, "[1, 2, 3]", "[Y, Y]", "lists.range(100).map(i, Y.flatten(20)).size() > 0"),
        _growing(14, "[1, 2, 3]", "Y + Y", "lists.range(500).map(i, Y + [i]).size() > 0"),
    ],
)
def test_a_loop_around_something_large_at_a_low_price_is_stopped(expression: str) -> None:
    selector = _selector(expression)
    assert selector is not None
    assert selector.max_cost < 200_000
    assert _answer(selector, _FULL) == ("error", "operation cancelled: actual cost limit exceeded")
