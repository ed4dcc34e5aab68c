"""Expressions over any variables: compile once, evaluate with different values. For admission policies and custom resources.

The language, its libraries and its prices are those of Kubernetes; the variables and their types come from the caller. Device
selectors have a faster path (`selector`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from allot.core.cel.checking.compile import compile_expression
from allot.core.cel.checking.environment import Environment
from allot.core.cel.checking.types import CelType, Checked
from allot.core.cel.costs.budget import COST_LIMIT
from allot.core.cel.costs.estimate import Estimate, estimate
from allot.core.cel.costs.sizes import SizeEstimates
from allot.core.cel.data.values import Value
from allot.core.cel.evaluation.interpret import Evaluation, evaluate
from allot.core.cel.evaluation.plan import PlanError, children, plan
from allot.core.cel.evaluation.plan_nodes import Node
from allot.core.cel.results import type_text
from allot.core.cel.syntax.ast import Expr, Ident, Select
from allot.core.cel.syntax.errors import CelCompileError


class ProgramError(ValueError):
    """An expression that cannot be used; the text says why, in Kubernetes' words."""


class Program:
    """A compiled expression."""

    __slots__ = ("_checked", "_plan", "expression", "output")

    def __init__(self, expression: str, checked: Checked, node: Node) -> None:
        self.expression = expression
        self._checked = checked
        self._plan = node
        # The type of the result.
        self.output: CelType = checked.types[checked.parsed.root.id]

    @property
    def output_name(self) -> str:
        """The type of the result as Kubernetes names it."""
        return type_text(self.output)

    def uses(self, variable: str) -> bool:
        """Whether the expression mentions a variable."""
        return any(reference.name == variable for reference in self._checked.references.values())

    def members_of(self, variable: str) -> frozenset[str]:
        """The fields of a variable that the expression names."""
        return frozenset(_members(self._checked.parsed.root, variable))

    def estimate(self, sizes: SizeEstimates) -> Estimate:
        """The minimum and maximum cost, with variables of these sizes."""
        return estimate(self._checked, sizes)

    def evaluate(self, variables: Mapping[str, Value], limit: int = COST_LIMIT) -> Evaluation:
        """The result, or the error, and the cost. Never raises."""
        return evaluate(self._plan, variables, min(limit, COST_LIMIT))


def compile_program(expression: str, environment: Environment) -> Program:
    """The program; raises ProgramError."""
    try:
        checked = compile_expression(expression, environment)
    except CelCompileError as error:
        raise ProgramError(f"compilation failed: {error}") from None
    try:
        return Program(expression, checked, plan(checked, environment))
    except PlanError as error:
        raise ProgramError(f"program instantiation failed: {error}") from None


def _members(root: Expr, variable: str) -> Iterator[str]:
    """Field names that are selected from a variable. A loop variable of the same name counts, too."""
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if isinstance(node, Select) and isinstance(node.operand, Ident) and node.operand.name == variable:
            yield node.field
        waiting.extend(children(node))
