"""The interpreter: absorption of errors, laziness, accumulators, costs and limits."""

from __future__ import annotations

import pytest

from allot.core.cel.checking.compile import compile_expression
from allot.core.cel.checking.environment import device_environment
from allot.core.cel.evaluation.interpret import Evaluation, evaluate
from allot.core.cel.evaluation.plan import HEIGHT_MAX, PlanError, plan

ENVIRONMENT = device_environment(list_type_attributes=True, consumable_capacity=True, stored=True)
NESTED_LOOPS = "lists.range(1000).all(x, lists.range(1000).all(y, x + y >= 0))"


def run(expression: str, limit: int | None = None) -> Evaluation:
    return evaluate(plan(compile_expression(expression, ENVIRONMENT), ENVIRONMENT), {}, limit)


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("1 / 0 == 1 || true", True),
        ("1 / 0 == 1 && false", False),
        ("false && 1 / 0 == 1", False),
        ("[1, 0].exists(x, 1 / x == 1)", True),
        ("[0, 2].all(x, 1 / x == 1)", False),
        ("true ? 1 : 1 / 0", 1),
        ("cel.bind(x, 1 / 0, true)", True),
        ("(1 / 0) in []", False),
        ("[1, 2, 3].exists_one(x, x > 2)", True),
        ("optional.of(1).or(optional.of(1 / 0)).value()", 1),
        ("optional.of(1).optMap(x, x + 1).orValue(0)", 2),
        ("has({'a': 1}.a) && !has({'a': 1}.b)", True),
        ("{'a': {'b': 1}}.?a.?b.value()", 1),
        ("{'a': {'b': 1}}.?a.?c.hasValue()", False),
    ],
)
def test_errors_that_do_not_matter_are_not_met(expression: str, value: object) -> None:
    assert run(expression).value == value


@pytest.mark.parametrize(
    ("expression", "error"),
    [
        ("1 / 0 == 1 || [][0] == 1", "division by zero"),
        ("[][0] == 1 && 1 / 0 == 1", "index out of bounds: 0"),
        ("1 / 0 == [][0]", "division by zero"),
        ("[0].all(x, 1 / x == 1)", "division by zero"),
        ("[0, 1].filter(x, 1 / x == 1) == []", "division by zero"),
        ("dyn(1) && true", "no such overload"),
        ("dyn(1) ? 1 : 2", "no such overload"),
        ("cel.bind(x, 1 / 0, x + 1)", "division by zero"),
        ('dyn(semver("1.0.0")) in {"a": 1}', "internal error: runtime error: hash of unhashable type cel.Semver"),
    ],
)
def test_the_first_error_that_matters_is_reported(expression: str, error: str) -> None:
    assert run(expression).error == error


def test_a_filter_reports_the_last_error_and_a_quantifier_the_first() -> None:
    assert run("[0, 1].filter(x, x == 0 ? [][7] == 1 : 1 / 0 == 1) == []").error == "division by zero"
    assert run("[0, 1].all(x, x == 0 ? [][7] == 1 : 1 / 0 == 1)").error == "index out of bounds: 7"


def test_a_variable_bound_to_an_empty_list_changes_when_added_to() -> None:
    # A flaw of upstream's that results depend on: the accumulator is changed in place.
    assert run("cel.bind(x, [], (x + [1]).size() + x.size())").value == 2
    assert run("cel.bind(x, [0], (x + [1]).size() + x.size())").value == 3


@pytest.mark.parametrize(
    ("expression", "cost"),
    [
        ("true", 0),
        ("1 + 1 == 2", 2),
        ("[1, 2].size() == 2", 2),
        ("[1, 1 + 1].size() == 2", 13),
        ('"fish" in ["fish"]', 0),
        ("1 / 0 == 1 || true", 2),
        ("[1, 2, 3].exists_one(x, x > 2)", 10),
    ],
)
def test_costs_are_those_of_upstream(expression: str, cost: int) -> None:
    assert run(expression).cost == cost


def test_an_evaluation_stops_at_the_limit() -> None:
    outcome = run(NESTED_LOOPS, limit=1000)
    assert outcome.error == "operation cancelled: actual cost limit exceeded"
    assert outcome.cost > 1000


def test_the_limit_is_not_absorbed_by_logic() -> None:
    assert run(f"{NESTED_LOOPS} || true", limit=1000).error == "operation cancelled: actual cost limit exceeded"


@pytest.mark.parametrize(
    ("expression", "error"),
    [
        ('int("")', "type conversion error from 'string' to 'int'"),
        ('"a".find("(")', "error parsing regexp: missing closing ): `(`"),
        ("[1][dyn(null)]", "invalid qualifier type: types.Null"),
    ],
)
def test_constants_that_fail_are_found_when_planning(expression: str, error: str) -> None:
    with pytest.raises(PlanError) as caught:
        run(expression)
    assert str(caught.value) == error


def test_expressions_that_nest_deeper_than_the_stack_are_refused() -> None:
    nested = "".join(f"[1].all(a{level}, " for level in range(245)) + "true" + ")" * 245
    checked = compile_expression(nested, ENVIRONMENT)
    try:
        program = plan(checked, ENVIRONMENT)
    except PlanError as error:
        assert "nests too deeply" in str(error)
    else:
        assert program.height <= HEIGHT_MAX
        assert evaluate(program, {}).value in (True, None)
