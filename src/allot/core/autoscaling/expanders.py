"""Chooses between sets of nodes that let the same pods run: Cluster Autoscaler's expanders, for whole sets.

`least-waste` counts devices, which upstream's does not. An expander returns a key; the smallest is best. Further expanders break
ties, and finally the number of nodes and the names of the pools.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any

import msgspec

from allot.core.autoscaling.pools import Counts, Pool

PRICE, LEAST_WASTE, PRIORITY, RANDOM, LEAST_NODES = "price", "least-waste", "priority", "random", "least-nodes"
Key = tuple[Any, ...]


class Option(msgspec.Struct, frozen=True, kw_only=True):
    """A set of nodes. used: the fraction of each new node's CPU, memory and devices that pods would use."""

    counts: Counts
    used: tuple[Fraction, ...] = ()


class Expander:
    """names: in order of precedence. dice: a number for each pool, for `random`."""

    def __init__(
        self, names: Sequence[str], pools: Mapping[str, Pool], dice: Mapping[str, float] | None = None
    ) -> None:
        self.names = tuple(names)
        self._pools = pools
        self._dice = dice or {}

    @property
    def is_price(self) -> bool:
        """Whether to look for the cheapest set."""
        return self.names[:1] == (PRICE,)

    def cost(self, counts: Counts) -> int:
        """The cost of a set per hour."""
        return sum(self._pools[name].price * count for name, count in counts.items())

    def key(self, option: Option) -> Key:
        """The sort key; smaller is better."""
        counts = option.counts
        names = tuple(sorted(name for name, count in counts.items() for _ in range(count)))
        return (*(_KEYS[name](self, option) for name in self.names), len(names), names)

    def _price(self, option: Option) -> Key:
        return (self.cost(option.counts),)

    def _waste(self, option: Option) -> Key:
        """The mean unused fraction of new nodes."""
        used = option.used
        return (1 - sum(used, Fraction(0)) / len(used),) if used else (Fraction(0),)

    def _priority(self, option: Option) -> Key:
        """Priorities, lowest first: a set is as bad as its worst pool."""
        priorities = sorted(self._pools[name].priority for name, count in option.counts.items() for _ in range(count))
        return tuple(-priority for priority in priorities)

    def _random(self, option: Option) -> Key:
        return (sum(self._dice.get(name, 0.0) * count for name, count in sorted(option.counts.items())),)

    def _nodes(self, option: Option) -> Key:
        return (sum(option.counts.values()),)


_KEYS: Mapping[str, Callable[[Expander, Option], Key]] = {
    PRICE: Expander._price,
    LEAST_WASTE: Expander._waste,
    PRIORITY: Expander._priority,
    RANDOM: Expander._random,
    LEAST_NODES: Expander._nodes,
}
EXPANDERS = tuple(_KEYS)
