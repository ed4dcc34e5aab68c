"""The common part of validating and mutating policies: compiled once, evaluated for every matching request.

Variables are evaluated when an expression that names them is; their cost counts, and an error in one is an error of every
expression that reads it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from allot.core.cel.checking.types import ANY, BOOL, DYN, CelType
from allot.core.cel.evaluation.program import Program, ProgramError, compile_program
from allot.core.cel.results import type_text
from allot.core.json_objects import mapping
from allot.core.policies.environment import expression_environment

Object = Mapping[str, Any]

COST_BUDGET = 10_000_000
MATCH_COST_BUDGET = 2_500_000
_OUT_OF_BUDGET = "validation failed due to running out of cost budget, no further validation rules will be run"


class Expression(msgspec.Struct, frozen=True):
    """A compiled expression, or what is wrong with it."""

    source: str
    program: Program | None
    problem: str = ""


class EvaluationFailed(Exception):
    """An evaluation that gave no value; the message is upstream's."""


class OutOfBudget(EvaluationFailed):
    """Nothing more is evaluated."""


class Conditions:
    """Variables and matchConditions of a policy, ready to be asked. Of a webhook there are conditions alone."""

    def __init__(self, policy: Object) -> None:
        spec = mapping(policy.get("spec"))
        self.name = str(mapping(policy.get("metadata")).get("name") or "")
        self.spec = spec
        self.fails = spec.get("failurePolicy") != "Ignore"
        self._params = isinstance(spec.get("paramKind"), dict)
        self._fields: dict[str, CelType] = {}
        self._variables: dict[str, Expression] = {}
        for one in objects(spec.get("variables")):
            compiled = self.compiled(one.get("expression"), (ANY,))
            name = str(one.get("name") or "")
            self._variables[name] = compiled
            self._fields[name] = compiled.program.output if compiled.program is not None else DYN
        self._conditions = [
            (str(one.get("name") or ""), self.compiled(one.get("expression"), (BOOL,), variables=False))
            for one in objects(spec.get("matchConditions"))
        ]

    def compiled(
        self,
        source: Any,
        results: tuple[CelType, ...],
        *,
        variables: bool = True,
        authorizer: bool = True,
        patches: bool = False,
    ) -> Expression:
        """An expression of the policy, which sees the variables that are known by now."""
        text = source if isinstance(source, str) else ""
        environment = expression_environment(
            self._fields if variables else None, params=self._params, authorizer=authorizer, patches=patches
        )
        try:
            program = compile_program(text, environment)
        except ProgramError as error:
            return Expression(text, None, str(error))
        if ANY not in results and program.output not in results:
            names = [type_text(one) for one in results]
            wanted = names[0] if len(names) == 1 else f"one of [{' '.join(names)}]"
            return Expression(text, None, f"must evaluate to {wanted} but got {program.output_name}")
        return Expression(text, program)

    def asking(self, bindings: Mapping[str, Any], budget: int = COST_BUDGET) -> Asking:
        """The beginning of an evaluation."""
        return Asking(self._variables, bindings, budget)

    def meets_conditions(self, bindings: Mapping[str, Any]) -> bool:
        """The matchConditions. One that is false decides, whatever errors the others have; else EvaluationFailed."""
        asking = self.asking(bindings, MATCH_COST_BUDGET)
        errors: list[str] = []
        for _, expression in self._conditions:
            try:
                if asking.value(expression) is False:
                    return False
            except EvaluationFailed as error:
                errors.append(str(error))
        if errors:
            raise EvaluationFailed(errors[0] if len(errors) == 1 else f"[{', '.join(errors)}]")
        return True


class Asking:
    """One evaluation of a policy: values of variables found so far, and what may still be spent."""

    def __init__(self, variables: Mapping[str, Expression], bindings: Mapping[str, Any], budget: int) -> None:
        self._expressions = variables
        self._bindings = dict(bindings)
        self._budget = budget
        self._values: dict[str, Any] = {}
        self._failed: dict[str, str] = {}

    def value(self, expression: Expression) -> Any:
        """The value of an expression; EvaluationFailed with upstream's text if it has none."""
        if expression.program is None:
            raise EvaluationFailed(f"compilation error: {expression.problem}")
        value, error = self._run(expression.program)
        if error:
            raise EvaluationFailed(f"expression '{expression.source}' resulted in error: {error}")
        return value

    def _run(self, program: Program) -> tuple[Any, str]:
        for name in sorted(program.members_of("variables")):
            self._find(name)
        outcome = program.evaluate({**self._bindings, "variables": self._values})
        if outcome.cost > self._budget:
            raise OutOfBudget(_OUT_OF_BUDGET)
        self._budget -= outcome.cost
        error = outcome.error or ""
        missing = error.removeprefix("no such key: ")
        if error != missing and missing in self._failed:
            error = f'composited variable "{missing}" fails to evaluate: {self._failed[missing]}'
        return outcome.value, error

    def _find(self, name: str) -> None:
        expression = self._expressions.get(name)
        if name in self._values or name in self._failed or expression is None:
            return
        if expression.program is None:
            self._failed[name] = expression.problem
            return
        # A variable can only name those before it, so this ends.
        value, error = self._run(expression.program)
        if error:
            self._failed[name] = error
        else:
            self._values[name] = value


def objects(value: Any) -> list[Mapping[str, Any]]:
    """The objects in a list."""
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []
