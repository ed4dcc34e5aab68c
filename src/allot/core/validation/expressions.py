"""CEL expressions in selectors and derived attributes: length, compilation, worst-case cost.

The only validation module that knows CEL.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from allot.core.cel.selector import EnvironmentOptions, SelectorCompileError, compile_derived, compile_selector
from allot.core.features import FeatureGates
from allot.core.model.resource_v1 import CEL_COST_MAX, CEL_EXPRESSION_LENGTH_MAX, SELECTORS_MAX, DeviceSelector
from allot.core.validation.fields import Findings, byte_length, child, forbidden, invalid, required, too_long
from allot.core.validation.lists import check_list

_TOO_COMPLEX = "too complex, exceeds cost limit"


class ExpressionRules(msgspec.Struct, frozen=True):
    """Which CEL environment new expressions are compiled in."""

    options: EnvironmentOptions
    # Stored expressions were valid when written and are not checked again.
    stored: bool = False


def expression_rules(gates: FeatureGates, *, stored: bool = False) -> ExpressionRules:
    """The environment for new expressions under these gates."""
    options = EnvironmentOptions(
        list_type_attributes="DRAListTypeAttributes" in gates,
        consumable_capacity="DRAConsumableCapacity" in gates,
        stored=False,
    )
    return ExpressionRules(options, stored)


def check_selectors(selectors: Sequence[DeviceSelector], path: str, rules: ExpressionRules) -> Findings:
    """A list of device selectors."""

    def check(selector: DeviceSelector, where: str) -> Findings:
        if selector.cel is None:
            return [required(child(where, "cel"))]
        return _check_selector(selector.cel.expression, child(where, "cel", "expression"), rules)

    return check_list(selectors, path, check, maximum=SELECTORS_MAX, size_covered=True)


def _check_selector(expression: str, path: str, rules: ExpressionRules) -> Findings:
    if rules.stored:
        return []
    if byte_length(expression) > CEL_EXPRESSION_LENGTH_MAX:
        return [too_long(path, CEL_EXPRESSION_LENGTH_MAX)]
    try:
        compiled = compile_selector(expression, rules.options)
    except SelectorCompileError as error:
        return [invalid(path, expression, error.message)]
    return [forbidden(path, _TOO_COMPLEX)] if compiled.max_cost > CEL_COST_MAX else []


def check_derived_attribute(expression: str, path: str, rules: ExpressionRules) -> tuple[Findings, int]:
    """What is wrong with a derived attribute's expression, and its worst-case cost, if known."""
    if rules.stored:
        return [], 0
    if byte_length(expression) > CEL_EXPRESSION_LENGTH_MAX:
        return [too_long(path, CEL_EXPRESSION_LENGTH_MAX)], 0
    try:
        compiled = compile_derived(expression, rules.options)
    except SelectorCompileError as error:
        return [invalid(path, expression, error.message)], 0
    found = [forbidden(path, _TOO_COMPLEX)] if compiled.max_cost > CEL_COST_MAX else []
    return found, compiled.max_cost
