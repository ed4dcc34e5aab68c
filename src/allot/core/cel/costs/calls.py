"""A call as seen by its static price, and the building blocks of prices.

Shared by `functions` and `kubernetes`, which have the prices. Knows no function.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from allot.core.cel.checking.types import CelType
from allot.core.cel.costs.ranges import ONE, UNKNOWN, CostEstimate, SizeEstimate
from allot.core.cel.costs.sizes import EMPTY_PATH, ITEMS, Path, SizeEstimates
from allot.core.cel.syntax.ast import Expr

LIST_CREATE_COST = 10
MAP_CREATE_COST = 30
STRUCT_CREATE_COST = 40
STRING_TRAVERSAL_FACTOR = 0.1
REGEX_LENGTH_FACTOR = 0.25
# Where upstream's arithmetic wraps around.
WRAP = 2**64


class Operand(msgspec.Struct, frozen=True):
    """An argument or the receiver of a call, as far as prices depend on it."""

    expr: Expr
    type: CelType
    path: Path
    # None if unbounded.
    size: SizeEstimate | None


class CallEstimate(msgspec.Struct, frozen=True):
    """The cost of a call and the size of its result, if known."""

    cost: CostEstimate
    result_size: SizeEstimate | None = None


class Call(msgspec.Struct, frozen=True):
    """A call to be priced."""

    function: str
    overload_id: str
    target: Operand | None
    args: Sequence[Operand]
    sizes: SizeEstimates

    def element_size(self, operand: Operand) -> SizeEstimate:
        """The size of an element of a list, UNKNOWN if unclear."""
        path = operand.path.extended_apart(ITEMS) if operand.path else EMPTY_PATH
        return self.sizes.estimate(path) or UNKNOWN


Price = Callable[[Call], CallEstimate | None]


def size_of(operand: Operand) -> SizeEstimate:
    """The size of an operand, UNKNOWN if unclear."""
    return operand.size or UNKNOWN


def traversal(size: SizeEstimate) -> CostEstimate:
    """Reading a text once."""
    return size.scaled(STRING_TRAVERSAL_FACTOR)


def two_traversals(size: SizeEstimate) -> CostEstimate:
    """Reading a text and writing another."""
    return size.scaled(2 * STRING_TRAVERSAL_FACTOR)


def matching(text: SizeEstimate, pattern: SizeEstimate) -> CostEstimate:
    """Matching a text with a regular expression. An empty text is not free: the expression is still parsed."""
    return traversal(text + ONE) * pattern.scaled(REGEX_LENGTH_FACTOR)
