"""ValidatingAdmissionPolicies: compiled once, asked for every request that they match.

Variables are evaluated when an expression that names them is; their cost counts, and an error in one is an error of every
expression that reads it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from allot.core.cel.checking.types import ANY, BOOL, DYN, NULL, STRING, CelType, Kind
from allot.core.cel.evaluation.program import Program, ProgramError, compile_program
from allot.core.policies.environment import OBJECTS, VARIABLES, variable_types

Object = Mapping[str, Any]

COST_BUDGET = 10_000_000
MATCH_COST_BUDGET = 2_500_000
MESSAGE_BYTES_MAX = 5 * 1024
ANNOTATION_LENGTH_MAX = 10 * 1024
_OUT_OF_BUDGET = "validation failed due to running out of cost budget, no further validation rules will be run"


class Denial(msgspec.Struct, frozen=True, kw_only=True):
    """Why a request does not pass. index: which validation said so."""

    message: str
    reason: str = "Invalid"
    index: int = 0


class Findings(msgspec.Struct, frozen=True):
    """What a policy says about a request."""

    denials: tuple[Denial, ...] = ()
    audit_annotations: Mapping[str, str] = {}


class _Expression(msgspec.Struct, frozen=True):
    """A compiled expression, or what is wrong with it."""

    source: str
    program: Program | None
    problem: str = ""


class EvaluationFailed(Exception):
    """An evaluation that gave no value; the message is upstream's."""


class _OutOfBudget(EvaluationFailed):
    """Nothing more is evaluated."""


class Policy:
    """A policy ready to be asked."""

    def __init__(self, policy: Object) -> None:
        spec = _mapping(policy.get("spec"))
        self.name = str(_mapping(policy.get("metadata")).get("name") or "")
        self.spec = spec
        self.fails = spec.get("failurePolicy") != "Ignore"
        self._params = isinstance(spec.get("paramKind"), dict)
        self._fields: dict[str, CelType] = {}
        self._variables: dict[str, _Expression] = {}
        for one in _objects(spec.get("variables")):
            compiled = self._compiled(one.get("expression"), (ANY,))
            name = str(one.get("name") or "")
            self._variables[name] = compiled
            self._fields[name] = compiled.program.output if compiled.program is not None else DYN
        self._conditions = [
            (str(one.get("name") or ""), self._compiled(one.get("expression"), (BOOL,), variables=False))
            for one in _objects(spec.get("matchConditions"))
        ]
        self._validations = [
            (one, self._compiled(one.get("expression"), (BOOL,))) for one in _objects(spec.get("validations"))
        ]
        self._messages = [
            self._compiled(one.get("messageExpression"), (STRING,), authorizer=False)
            if one.get("messageExpression")
            else None
            for one in _objects(spec.get("validations"))
        ]
        self._annotations = [
            (str(one.get("key") or ""), self._compiled(one.get("valueExpression"), (STRING, NULL)))
            for one in _objects(spec.get("auditAnnotations"))
        ]

    def _compiled(
        self, source: Any, results: tuple[CelType, ...], *, variables: bool = True, authorizer: bool = True
    ) -> _Expression:
        text = source if isinstance(source, str) else ""
        types = variable_types(params=self._params, authorizer=authorizer)
        objects = dict(OBJECTS)
        if variables:
            types["variables"] = CelType(Kind.OBJECT, VARIABLES)
            # Not a copy: each expression sees the variables before it, and is compiled before there are more.
            objects[VARIABLES] = self._fields
        try:
            program = compile_program(text, types, objects)
        except ProgramError as error:
            return _Expression(text, None, str(error))
        if ANY not in results and program.output not in results:
            wanted = (
                results[0].kind.value
                if len(results) == 1
                else f"one of [{' '.join(one.kind.value for one in results)}]"
            )
            return _Expression(text, None, f"must evaluate to {wanted} but got {program.output_name}")
        return _Expression(text, program)

    # --- asking ---

    def evaluate(self, bindings: Mapping[str, Any]) -> Findings:
        """What the policy says. bindings: the variables of `environment`, with params and authorizer where there are."""
        try:
            if not self.meets_conditions(bindings):
                return Findings()
        except EvaluationFailed as error:
            return Findings((Denial(message=str(error)),)) if self.fails else Findings()
        asking = _Asking(self._variables, bindings, COST_BUDGET)
        denials: list[Denial] = []
        for index, (validation, expression) in enumerate(self._validations):
            try:
                passed = asking.value(expression) is True
            except EvaluationFailed as error:
                if self.fails:
                    denials.append(Denial(message=str(error), index=index))
                if isinstance(error, _OutOfBudget):
                    return Findings(tuple(denials))
                continue
            if not passed:
                reason = str(validation.get("reason") or "Invalid")
                denials.append(Denial(message=self._message(validation, index, asking), reason=reason, index=index))
        annotations, failures = self._annotated(_Asking(self._variables, bindings, COST_BUDGET))
        return Findings((*denials, *failures), annotations)

    def meets_conditions(self, bindings: Mapping[str, Any]) -> bool:
        """The matchConditions. One that is false decides, whatever errors the others have; else EvaluationFailed."""
        asking = _Asking(self._variables, bindings, MATCH_COST_BUDGET)
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

    def _message(self, validation: Object, index: int, asking: _Asking) -> str:
        expression = self._messages[index]
        if expression is not None:
            try:
                value = asking.value(expression)
            except EvaluationFailed:
                value = None
            text = value.strip() if isinstance(value, str) else ""
            if text and "\n" not in text and len(text.encode("utf-8", "replace")) <= MESSAGE_BYTES_MAX:
                return text
        given = str(validation.get("message") or "").strip()
        return given or f"failed expression: {str(validation.get('expression') or '').strip()}"

    def _annotated(self, asking: _Asking) -> tuple[dict[str, str], list[Denial]]:
        found: dict[str, str] = {}
        failures: list[Denial] = []
        for key, expression in self._annotations:
            try:
                value = asking.value(expression)
            except EvaluationFailed as error:
                if self.fails:
                    failures.append(Denial(message=str(error)))
                continue
            if isinstance(value, str) and value.strip():
                found[key] = value.strip()[:ANNOTATION_LENGTH_MAX]
        return found, failures


class _Asking:
    """One evaluation of a policy: values of variables found so far, and what may still be spent."""

    def __init__(self, variables: Mapping[str, _Expression], bindings: Mapping[str, Any], budget: int) -> None:
        self._expressions = variables
        self._bindings = dict(bindings)
        self._budget = budget
        self._values: dict[str, Any] = {}
        self._failed: dict[str, str] = {}

    def value(self, expression: _Expression) -> Any:
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
            raise _OutOfBudget(_OUT_OF_BUDGET)
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


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _objects(value: Any) -> list[Mapping[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []
