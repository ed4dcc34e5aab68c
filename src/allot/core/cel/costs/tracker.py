"""The cost of an evaluation so far, as cel-go's tracker counts it.

The tracker keeps the values it has seen under the ids of their nodes and looks arguments up to price a
call. Its inaccuracies count: a call is free if the tracker does not find an argument.
"""

from __future__ import annotations

from collections.abc import Sequence

from allot.core.cel.costs.budget import COST_LIMIT, SIZE_MAX, cost_exceeded
from allot.core.cel.data.values import Value
from allot.core.cel.evaluation.plan_nodes import Node


class Tracker:
    """The cost of one evaluation; raises EvaluationAborted when it exceeds the limit."""

    __slots__ = ("_ids", "_last", "_limit", "_made", "_repeated", "_values", "cost")

    def __init__(self, limit: int = COST_LIMIT) -> None:
        self.cost = 0
        self._limit = limit
        self._made = 0
        self._ids: list[int] = []
        self._values: list[Value] = []
        # Upstream searches the stack from the top. Here: where each id was last pushed, and which ids were pushed again
        # while still present; only those need a search.
        self._last: dict[int, int] = {}
        self._repeated: set[int] = set()

    def observe(self, node_id: int, value: Value, cost: int = 0) -> None:
        """Charge a step and remember its value."""
        ids = self._ids
        position = len(ids)
        last = self._last.get(node_id)
        if last is not None and last < position and ids[last] == node_id:
            self._repeated.add(node_id)
        self._last[node_id] = position
        ids.append(node_id)
        self._values.append(value)
        if cost:
            self.cost += cost
            if self.cost > self._limit:
                raise cost_exceeded()

    def make(self, size: int) -> None:
        """Count the size of results priced independently of it; their total is bounded, too."""
        self._made += size
        if self._made > SIZE_MAX:
            raise cost_exceeded()

    def drop(self, node_id: int) -> None:
        """Forget the value of a node and all seen after it."""
        position = self._find(node_id)
        if position >= 0:
            del self._ids[position:]
            del self._values[position:]

    def take(self, nodes: Sequence[Node]) -> list[Value] | None:
        """The values of some nodes, forgetting them; None if one is not found."""
        found: list[Value] = []
        for node in reversed(nodes):
            position = self._find(node.id)
            if position < 0:
                return None
            found.append(self._values[position])
            del self._ids[position:]
            del self._values[position:]
        found.reverse()
        return found

    def _find(self, node_id: int) -> int:
        position = self._last.get(node_id)
        if position is None:
            return -1
        ids = self._ids
        if position < len(ids) and ids[position] == node_id:
            return position
        if node_id in self._repeated:
            for position in range(len(ids) - 1, -1, -1):
                if ids[position] == node_id:
                    self._last[node_id] = position
                    return position
            self._repeated.discard(node_id)
        del self._last[node_id]
        return -1
