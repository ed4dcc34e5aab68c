"""What an evaluation has cost so far, counted as cel-go's tracker counts.

The tracker keeps the values it has seen under the ids of their nodes and looks arguments up when a call is to be
priced. It is not exact, and costs are what it says: an argument that it does not find makes the call free.
"""

from __future__ import annotations

from collections.abc import Sequence

from allot.core.cel.budget import COST_LIMIT, cost_exceeded
from allot.core.cel.plan_nodes import Node
from allot.core.cel.values import Value


class Tracker:
    """The cost of one evaluation; raises EvaluationAborted when it exceeds the limit."""

    __slots__ = ("_ids", "_limit", "_positions", "_values", "cost")

    def __init__(self, limit: int = COST_LIMIT) -> None:
        self.cost = 0
        self._limit = limit
        self._ids: list[int] = []
        self._values: list[Value] = []
        # Where each id is on the stack, highest last: upstream searches the stack instead.
        self._positions: dict[int, list[int]] = {}

    def observe(self, node_id: int, value: Value, cost: int = 0) -> None:
        """Charge a step and remember its value."""
        self._positions.setdefault(node_id, []).append(len(self._ids))
        self._ids.append(node_id)
        self._values.append(value)
        self.cost += cost
        if self.cost > self._limit:
            raise cost_exceeded()

    def drop(self, node_id: int) -> None:
        """Forget the value of a node and all seen after it."""
        positions = self._positions.get(node_id)
        if positions:
            self._cut(positions[-1])

    def take(self, nodes: Sequence[Node]) -> list[Value] | None:
        """The values of some nodes, forgetting them; None when one is not found."""
        found: list[Value] = []
        for node in reversed(nodes):
            positions = self._positions.get(node.id)
            if not positions:
                return None
            position = positions[-1]
            found.append(self._values[position])
            self._cut(position)
        found.reverse()
        return found

    def _cut(self, position: int) -> None:
        ids, values, positions = self._ids, self._values, self._positions
        while len(ids) > position:
            positions[ids.pop()].pop()
            values.pop()
