"""Bounds on what one call may build, for what the cost of an expression does not count in time.

Costs are charged after a call. These checks come before it, so that no expression can make the process build a text
or list that could not be paid for anyway, or walk a list that contains itself a million times over.
"""

from __future__ import annotations

from typing import Final

from allot.core.cel.data.values import COST_EXCEEDED, EvaluationAborted

COST_LIMIT: Final = 1_000_000

# Walking a text costs a tenth of its length, so a longer text cannot be paid for.
SIZE_MAX: Final = 10 * COST_LIMIT


def cost_exceeded() -> EvaluationAborted:
    """The error for an evaluation that costs too much."""
    return EvaluationAborted(COST_EXCEEDED)


def check_size(size: int) -> None:
    """Refuse to build something larger than could be paid for."""
    if size > SIZE_MAX:
        raise cost_exceeded()


def check_work(steps: int) -> None:
    """Refuse work of more steps than could be paid for."""
    if steps > COST_LIMIT:
        raise cost_exceeded()
