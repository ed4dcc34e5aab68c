"""Fills new nodes one by one, for more pods and pools than can be tried exhaustively.

The most important unplaced unit leads: a node of each suitable pool is filled with it and with whatever else fits, and
the one with the best value for its price (or the expander's choice) is taken. Identical pods fill further nodes in the
same way, so that a thousand pods take little longer than their distinct kinds. The machine always decides what fits; sums
only rule out hopeless cases.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from fractions import Fraction
from typing import Any

from allot.core.autoscaling.demands import Amounts, demand
from allot.core.autoscaling.expanders import Expander, Option
from allot.core.autoscaling.pools import Pool
from allot.core.autoscaling.trying import NewNode, Trying
from allot.core.autoscaling.usage import used_parts
from allot.core.scheduling import Placement, Unit

# How many suitable pools, the apparently cheapest, are compared by filling a node of each.
_COMPARED_MAX = 3
# The limit of nodes to try for a gang that no single pool can hold.
_MIXED_MAX = 64


class Filling:
    """Buys nodes for units. Bought nodes remain in `trying`."""

    def __init__(
        self,
        trying: Trying,
        pools: Sequence[Pool],
        supplies: dict[str, Amounts],
        nodes_max: int,
        expander: Expander,
        refused: set[tuple[Hashable, str]],
    ) -> None:
        """refused: shapes that do not fit on an empty node of a pool; extended here."""
        self._trying = trying
        self._pools = [pool for pool in pools if pool.room]
        self._supplies = supplies
        self._left = nodes_max
        self._expander = expander
        self._refused = refused
        self._counts = {pool.name: 0 for pool in pools}
        # Lower numbers belong to nodes that were tried before and may exist.
        self._first = {pool.name: trying.made(pool) for pool in pools}
        self._demands: dict[int, Amounts] = {}
        self._values: dict[int, int] = {}
        self.nodes: list[NewNode] = []
        # Of each unit, in order.
        self.placements: list[tuple[Placement, ...]] = []

    def begin_after(self, nodes: Sequence[NewNode]) -> None:
        """Count nodes that were bought before."""
        for node in nodes:
            self._counts[node.pool] += 1
            self._left -= 1

    def buy(self, units: Sequence[Unit]) -> None:
        """Buy nodes for as many of these units as possible, in order."""
        waiting = dict(enumerate(units))
        self._demands, self._values = {}, {}
        self.placements = [()] * len(units)
        while waiting and self._left > 0:
            index = next(iter(waiting))
            if waiting[index].is_lone:
                self._help_pod(index, waiting)
            else:
                self._help_gang(index, waiting)

    # --- a single pod leads ---

    def _help_pod(self, index: int, waiting: dict[int, Unit]) -> None:
        best: tuple[Any, Pool, list[int]] | None = None
        compared = 0
        for pool in self._candidates(index, waiting[index]):
            if best is not None and pool.rank > best[1].rank:
                break
            filled = self._filled(pool, index, waiting)
            if filled is not None:
                compared += 1
                if best is None or filled[0] < best[0]:
                    best = (filled[0], pool, filled[1])
                if compared == _COMPARED_MAX:
                    break
        if best is None:
            self._give_up(index, waiting)
            return
        _, pool, pattern = best
        self._commit(pool, pattern, waiting)
        self._repeat(pool, [self._trying.shape(waiting[each]) for each in pattern], pattern, waiting)
        for each in pattern:
            waiting.pop(each, None)

    def _candidates(self, index: int, unit: Unit) -> list[Pool]:
        """The pools that may suit a pod: best rank first, then the lowest cost of the pod's share of a node."""
        wanted, shape = self._demand(index, unit), self._trying.shape(unit)
        found = [pool for pool in self._pools if self._may_suit(pool, wanted, shape)]
        return sorted(found, key=lambda pool: (pool.rank, self._estimate(pool, wanted), pool.price, pool.name))

    def _may_suit(self, pool: Pool, wanted: Amounts, shape: Hashable | None) -> bool:
        """Whether nothing is known to keep a pod off a pool's nodes."""
        return (
            self._has_room(pool)
            and (shape, pool.name) not in self._refused
            and not wanted.exceeds(self._supplies[pool.name])
        )

    def _estimate(self, pool: Pool, wanted: Amounts) -> Any:
        share = wanted.share_of(self._supplies[pool.name])
        if self._expander.is_price:
            return share * pool.price
        return *self._expander.key(Option(counts={pool.name: 1}, used=(share,)))[:-2], share * pool.price

    def _filled(self, pool: Pool, lead: int, waiting: dict[int, Unit]) -> tuple[Any, list[int]] | None:
        """Fill a node of a pool, starting with the lead; returns its value and its pods. None if the lead does not fit."""
        mark = self._trying.supposing.mark
        try:
            node = self._trying.add(pool, self._number(pool))
            if not self._trying.placed(waiting[lead], (node.name,)):
                shape = self._trying.shape(waiting[lead])
                if shape is not None:
                    self._refused.add((shape, pool.name))
                return None
            pattern = [lead, *self._stuff(pool, node, lead, waiting)]
            if self._expander.is_price:
                value = sum(self._value(each, waiting[each]) for each in pattern)
                return (Fraction(pool.price, value) if value else Fraction(0), pool.price, pool.name), pattern
            used = used_parts(self._trying, (node,))
            return self._expander.key(Option(counts={pool.name: 1}, used=used)), pattern
        finally:
            self._trying.supposing.undo(mark)

    def _stuff(self, pool: Pool, node: NewNode, lead: int, waiting: dict[int, Unit]) -> list[int]:
        """The other pods that fit on a node, more important ones first; identical pods are tried until one does not fit."""
        left = self._supplies[pool.name].less(self._demand(lead, waiting[lead]))
        full: set[Hashable] = set()
        found: list[int] = []
        for index, unit in waiting.items():
            if left.pods <= 0:
                break
            if index == lead or not unit.is_lone:
                continue
            shape = self._trying.shape(unit)
            if shape is not None and (shape in full or (shape, pool.name) in self._refused):
                continue
            wanted = self._demand(index, unit)
            if pool.rank and self._deserves_better(index, unit, pool):
                continue
            if wanted.exceeds(left) or not self._trying.placed(unit, (node.name,)):
                if shape is not None:
                    full.add(shape)
                continue
            left = left.less(wanted)
            found.append(index)
        return found

    def _deserves_better(self, index: int, unit: Unit, pool: Pool) -> bool:
        """Whether a pod may still get a node of a better rank than a pool's."""
        wanted, shape = self._demand(index, unit), self._trying.shape(unit)
        return any(each.rank < pool.rank and self._may_suit(each, wanted, shape) for each in self._pools)

    def _commit(self, pool: Pool, pattern: Sequence[int], waiting: dict[int, Unit]) -> bool:
        """Buy a node for these; returns whether all were placed on it."""
        mark = self._trying.supposing.mark
        node = self._trying.add(pool, self._number(pool))
        for each in pattern:
            self.placements[each] = self._trying.placed(waiting[each], (node.name,))
            if not self.placements[each]:
                self._trying.supposing.undo(mark)
                for one in pattern:
                    self.placements[one] = ()
                return False
        self._counts[pool.name] += 1
        self._left -= 1
        self.nodes.append(node)
        return True

    def _repeat(
        self, pool: Pool, shapes: list[Hashable | None], first: Sequence[int], waiting: dict[int, Unit]
    ) -> None:
        """Buy as many more nodes as can be filled with pods identical to those of the first."""
        if None in shapes:
            return
        done = set(first)
        by_shape: dict[Hashable, list[int]] = {}
        for index, unit in reversed(waiting.items()):
            if index not in done:
                by_shape.setdefault(self._trying.shape(unit), []).append(index)
        while self._has_room(pool):
            needed: dict[Hashable, int] = {}
            for shape in shapes:
                needed[shape] = needed.get(shape, 0) + 1
            if any(len(by_shape.get(shape, ())) < count for shape, count in needed.items()):
                return
            pattern = [by_shape[shape].pop() for shape in shapes]
            if not self._commit(pool, pattern, waiting):
                return
            for each in pattern:
                del waiting[each]

    def _give_up(self, index: int, waiting: dict[int, Unit]) -> None:
        """No pool suits a pod, so none suits identical ones."""
        shape = self._trying.shape(waiting[index])
        alike = [each for each, unit in waiting.items() if shape is not None and self._trying.shape(unit) == shape]
        for each in alike or [index]:
            waiting.pop(each, None)

    # --- a gang leads ---

    def _help_gang(self, index: int, waiting: dict[int, Unit]) -> None:
        unit = waiting.pop(index)
        best: tuple[Any, dict[str, int]] | None = None
        for pool in self._pools:
            count = self._fewest(pool, unit)
            if count:
                option = Option(counts={pool.name: count})
                key = (pool.rank, self._expander.key(option))
                if best is None or key < best[0]:
                    best = (key, {pool.name: count})
        counts = best[1] if best is not None else self._mixed(unit)
        if not counts:
            return
        mark = self._trying.supposing.mark
        nodes = self._add(counts)
        self.placements[index] = self._trying.placed(unit)
        if not self.placements[index]:
            self._trying.supposing.undo(mark)
            return
        for node in nodes:
            self._counts[node.pool] += 1
        self._left -= len(nodes)
        self.nodes += nodes
        self._fill_up(nodes, waiting)

    def _add(self, counts: Mapping[str, int]) -> list[NewNode]:
        return [
            self._trying.add(pool, self._number(pool) + number)
            for pool in self._pools
            for number in range(counts.get(pool.name, 0))
        ]

    def _fits_on(self, counts: Mapping[str, int], unit: Unit) -> set[str] | None:
        """The nodes that a gang would use, given this number of new ones; None if it does not fit."""
        mark = self._trying.supposing.mark
        try:
            self._add(counts)
            placements = self._trying.placed(unit)
            return {placement.node for placement in placements} if placements else None
        finally:
            self._trying.supposing.undo(mark)

    def _fewest(self, pool: Pool, unit: Unit) -> int:
        """The smallest number of nodes of one pool that holds a gang; 0 if none does. More nodes never hurt."""
        most = min(len(unit.pods), pool.room - self._counts[pool.name], self._left)
        if most <= 0 or self._fits_on({pool.name: most}, unit) is None:
            return 0
        least = 1
        while least < most:
            middle = (least + most) // 2
            if self._fits_on({pool.name: middle}, unit) is not None:
                most = middle
            else:
                least = middle + 1
        return most

    def _mixed(self, unit: Unit) -> dict[str, int]:
        """Nodes of several pools for a gang that no single pool can hold: add all that could serve, then remove those that are not
        needed, most expensive first."""
        counts: dict[str, int] = {}
        for pool in sorted(self._pools, key=lambda pool: (pool.rank, pool.price, pool.name)):
            more = min(len(unit.pods), pool.room - self._counts[pool.name], _MIXED_MAX - sum(counts.values()))
            if more > 0:
                counts[pool.name] = more
        if sum(counts.values()) > self._left or self._fits_on(counts, unit) is None:
            return {}
        for pool in sorted(self._pools, key=lambda pool: (-pool.rank, -pool.price, pool.name)):
            while counts.get(pool.name):
                fewer = {**counts, pool.name: counts[pool.name] - 1}
                if self._fits_on(fewer, unit) is None:
                    break
                counts = fewer
        return {name: count for name, count in counts.items() if count}

    def _fill_up(self, nodes: Sequence[NewNode], waiting: dict[int, Unit]) -> None:
        """Fill the rest of a gang's nodes with other pods."""
        names = tuple(node.name for node in nodes)
        full: set[Hashable] = set()
        for index, unit in list(waiting.items()):
            shape = self._trying.shape(unit)
            if not unit.is_lone or (shape is not None and shape in full):
                continue
            placements = self._trying.placed(unit, names)
            if placements:
                self.placements[index] = placements
                del waiting[index]
            elif shape is not None:
                full.add(shape)

    # --- sums ---

    def _number(self, pool: Pool) -> int:
        return self._first[pool.name] + self._counts[pool.name]

    def _has_room(self, pool: Pool) -> bool:
        return self._left > 0 and self._counts[pool.name] < pool.room

    def _demand(self, index: int, unit: Unit) -> Amounts:
        found = self._demands.get(index)
        if found is None:
            found = self._demands[index] = demand(self._trying.cluster, self._trying.machine.claims, unit)
        return found

    def _value(self, index: int, unit: Unit) -> int:
        """The minimum cost of a pod, by its share of a node."""
        found = self._values.get(index)
        if found is None:
            wanted = self._demand(index, unit)
            costs = [
                int(wanted.share_of(self._supplies[pool.name]) * pool.price)
                for pool in self._pools
                if not wanted.exceeds(self._supplies[pool.name])
            ]
            found = self._values[index] = max(min(costs, default=0), 1)
        return found
