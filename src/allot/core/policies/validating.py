"""ValidatingAdmissionPolicies: their verdict on a request."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from allot.core.cel.checking.types import BOOL, NULL, STRING
from allot.core.policies.conditions import Asking, Conditions, EvaluationFailed, OutOfBudget, objects

Object = Mapping[str, Any]

MESSAGE_BYTES_MAX = 5 * 1024
ANNOTATION_LENGTH_MAX = 10 * 1024


class Denial(msgspec.Struct, frozen=True, kw_only=True):
    """Why a request does not pass. index: which validation said so."""

    message: str
    reason: str = "Invalid"
    index: int = 0


class Findings(msgspec.Struct, frozen=True):
    """What a policy says about a request."""

    denials: tuple[Denial, ...] = ()
    audit_annotations: Mapping[str, str] = {}


class Policy(Conditions):
    """A policy ready to be asked."""

    def __init__(self, policy: Object) -> None:
        super().__init__(policy)
        validations = objects(self.spec.get("validations"))
        self._validations = [(one, self.compiled(one.get("expression"), (BOOL,))) for one in validations]
        self._messages = [
            self.compiled(one.get("messageExpression"), (STRING,), authorizer=False)
            if one.get("messageExpression")
            else None
            for one in validations
        ]
        self._annotations = [
            (str(one.get("key") or ""), self.compiled(one.get("valueExpression"), (STRING, NULL)))
            for one in objects(self.spec.get("auditAnnotations"))
        ]

    def evaluate(self, bindings: Mapping[str, Any]) -> Findings:
        """What the policy says. bindings: the variables of `environment`, with params and authorizer where there are."""
        try:
            if not self.meets_conditions(bindings):
                return Findings()
        except EvaluationFailed as error:
            return Findings((Denial(message=str(error)),)) if self.fails else Findings()
        asking = self.asking(bindings)
        denials: list[Denial] = []
        for index, (validation, expression) in enumerate(self._validations):
            try:
                passed = asking.value(expression) is True
            except EvaluationFailed as error:
                if self.fails:
                    denials.append(Denial(message=str(error), index=index))
                if isinstance(error, OutOfBudget):
                    return Findings(tuple(denials))
                continue
            if not passed:
                reason = str(validation.get("reason") or "Invalid")
                denials.append(Denial(message=self._message(validation, index, asking), reason=reason, index=index))
        annotations, failures = self._annotated(self.asking(bindings))
        return Findings((*denials, *failures), annotations)

    def _message(self, validation: Object, index: int, asking: Asking) -> str:
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

    def _annotated(self, asking: Asking) -> tuple[dict[str, str], list[Denial]]:
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
