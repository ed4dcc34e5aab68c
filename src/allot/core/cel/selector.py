"""Device selectors and derived attributes: compile an expression once, evaluate it for many devices.

The entry point of `core.cel` for the allocator, validation and the CLI. Messages are those of Kubernetes. The
caller decides by `max_cost` whether an expression is too expensive to admit; evaluation always enforces the same
limit.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, lru_cache
from typing import Any, Final

import msgspec

from allot.core.cel.checking.compile import compile_expression
from allot.core.cel.checking.environment import DEVICE_TYPE, Environment, device_environment
from allot.core.cel.checking.types import ANY, BOOL, DYN, INT, SEMVER, STRING, CelType, Checked, Kind
from allot.core.cel.codegen.generate import Untranslatable, generate
from allot.core.cel.costs.budget import COST_LIMIT, SIZE_MAX
from allot.core.cel.costs.estimate import Estimate, estimate
from allot.core.cel.costs.sizes import device_sizes
from allot.core.cel.data.values import EvaluationError, Value
from allot.core.cel.device import DeviceView
from allot.core.cel.evaluation.interpret import evaluate
from allot.core.cel.evaluation.plan import PlanError, plan
from allot.core.cel.evaluation.plan_nodes import Node
from allot.core.cel.explaining.answer import Explanation
from allot.core.cel.explaining.explain import explain
from allot.core.cel.projection import Projection, project
from allot.core.cel.results import as_attribute, as_bool, type_text
from allot.core.cel.syntax.errors import CelCompileError

__all__ = [
    "COST_LIMIT",
    "CompiledDerived",
    "CompiledSelector",
    "DeviceView",
    "EnvironmentOptions",
    "EvaluationError",
    "Explanation",
    "Projection",
    "SelectorCompileError",
    "compile_derived",
    "compile_selector",
]

UNKNOWN_COST: Final = 2**64 - 1
_CACHED_MAX: Final = 4096
_SCALARS: Final = frozenset((BOOL, INT, STRING, ANY, DYN, SEMVER))


class EnvironmentOptions(msgspec.Struct, frozen=True):
    """Feature gates, and whether the expression is already stored, which enables every declaration."""

    list_type_attributes: bool = False
    consumable_capacity: bool = True
    stored: bool = True

    @property
    def environment(self) -> Environment:
        """The environment for these options."""
        return device_environment(
            list_type_attributes=self.list_type_attributes,
            consumable_capacity=self.consumable_capacity,
            stored=self.stored,
        )


class SelectorCompileError(ValueError):
    """An expression that does not compile; `message` is what Kubernetes reports."""

    def __init__(self, message: str, max_cost: int = UNKNOWN_COST) -> None:
        super().__init__(message)
        self.message = message
        self.max_cost = max_cost


class _Compiled:
    """Base of selectors and derived attributes."""

    def __init__(self, expression: str, checked: Checked, node: Node, estimated: Estimate) -> None:
        self.expression = expression
        # The static worst case; 18446744073709551615 if unknown.
        self.max_cost = estimated.max
        self._work_max = estimated.work_max
        self._checked = checked
        self._plan = node

    @property
    def output_type(self) -> str:
        """The type of the result as Kubernetes names it."""
        return type_text(self._checked.types[self._checked.parsed.root.id])

    @cached_property
    def projection(self) -> Projection:
        """The parts of a device that the expression reads."""
        return project(self._plan)

    def cost(self, view: DeviceView) -> int:
        """What evaluating the expression for a device costs."""
        return evaluate(self._plan, view.variables).cost

    def interpreted(self, view: DeviceView) -> Value:
        """The interpreter's result, with the cost limit enforced."""
        outcome = evaluate(self._plan, view.variables)
        if outcome.error is not None:
            raise EvaluationError(outcome.error)
        return outcome.value

    def quickest(self, convert: Callable[[Value], Any], unconverted: type | None = None) -> Callable[[DeviceView], Any]:
        """The fastest evaluator: generated code if the worst case is affordable, else the interpreter.

        The result is converted, unless it is known to be of the class `unconverted`.
        """

        def interpreted(view: DeviceView) -> Any:
            return convert(self.interpreted(view))

        if self.max_cost > COST_LIMIT or self._work_max > SIZE_MAX:
            return interpreted
        try:
            return generate(self._plan, interpreted, convert, unconverted)
        except Untranslatable:
            return interpreted


class CompiledSelector(_Compiled):
    """A selector: does a device match?"""

    @cached_property
    def matches(self) -> Callable[[DeviceView], bool]:
        """Whether a device matches; raises EvaluationError with upstream's text.

        The function is created on first use and cached as an attribute, so calling it costs no more than
        calling the generated code.
        """
        return self.quickest(as_bool, bool)

    def explain(self, view: DeviceView) -> Explanation:
        """Why a device matches or not."""
        return explain(self._plan, self._checked, view)


class CompiledDerived(_Compiled):
    """A derived attribute: a value computed from a device."""

    @cached_property
    def evaluate(self) -> Callable[[DeviceView], tuple[str, Any]]:
        """The attribute's kind (bool, int, string, version, bools, ints, strings, versions) and value, for a device."""
        return self.quickest(as_attribute)


_DEFAULTS: Final = EnvironmentOptions()


def compile_selector(expression: str, options: EnvironmentOptions = _DEFAULTS) -> CompiledSelector:
    """The compiled selector; raises SelectorCompileError. Equal expressions are compiled once."""
    return _compiled_selector(expression, options)


def compile_derived(expression: str, options: EnvironmentOptions = _DEFAULTS) -> CompiledDerived:
    """The compiled derived attribute; raises SelectorCompileError. Equal expressions are compiled once."""
    return _compiled_derived(expression, options)


@lru_cache(maxsize=_CACHED_MAX)
def _compiled_selector(expression: str, options: EnvironmentOptions) -> CompiledSelector:
    checked, environment = _checked(expression, options)
    found = checked.types[checked.parsed.root.id]
    if found != BOOL and found != _attribute_type(environment):
        raise SelectorCompileError(f"must evaluate to bool or the unknown type, not {type_text(found)}")
    return CompiledSelector(expression, checked, _planned(checked, environment), _estimated(checked, options))


@lru_cache(maxsize=_CACHED_MAX)
def _compiled_derived(expression: str, options: EnvironmentOptions) -> CompiledDerived:
    checked, environment = _checked(expression, options)
    found = checked.types[checked.parsed.root.id]
    lists = options.list_type_attributes or options.stored
    if found not in _SCALARS and not (lists and found.kind is Kind.LIST and found.params[0] in _SCALARS):
        wanted = "a primitive scalar (string, integer, boolean, semver)"
        if lists:
            wanted += " or a list of these scalars"
        raise SelectorCompileError(f"must evaluate to {wanted}, not {type_text(found)}")
    return CompiledDerived(expression, checked, _planned(checked, environment), _estimated(checked, options))


def _checked(expression: str, options: EnvironmentOptions) -> tuple[Checked, Environment]:
    environment = options.environment
    try:
        return compile_expression(expression, environment), environment
    except CelCompileError as error:
        raise SelectorCompileError(f"compilation failed: {error}") from None


def _attribute_type(environment: Environment) -> CelType:
    return environment.objects[DEVICE_TYPE.name]["attributes"].params[1].params[1]


def _planned(checked: Checked, environment: Environment) -> Node:
    try:
        return plan(checked, environment)
    except PlanError as error:
        raise SelectorCompileError(f"program instantiation failed: {error}") from None


def _estimated(checked: Checked, options: EnvironmentOptions) -> Estimate:
    return estimate(checked, device_sizes(consumable_capacity=options.consumable_capacity or options.stored))
