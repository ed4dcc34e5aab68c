"""Bounds on what one call may build, where cost accounting would come too late.

Costs are charged after a call. These checks come before it, so that no expression can make the process build a text
or list that exceeds the cost limit anyway, or walk a list that contains itself a million times over.
"""

from __future__ import annotations

from typing import Final

from allot.core.cel.data.values import COST_EXCEEDED, EvaluationAborted

COST_LIMIT: Final = 1_000_000

# Traversing a text costs a tenth of its length, so a longer text exceeds the limit.
SIZE_MAX: Final = 10 * COST_LIMIT


def cost_exceeded() -> EvaluationAborted:
    """The error for an evaluation that costs too much."""
    return EvaluationAborted(COST_EXCEEDED)


def check_size(size: int) -> None:
    """Refuse to build anything too large for the cost limit."""
    if size > SIZE_MAX:
        raise cost_exceeded()


def check_work(steps: int) -> None:
    """Refuse work with too many steps for the cost limit."""
    if steps > COST_LIMIT:
        raise cost_exceeded()
