"""Tries every promising set of nodes: exact, for few pods and few pools.

A set is judged by what the scheduler would do with it, not by the best possible packing: it places each unit in the order of
importance, on the cluster with the nodes of the set. Sets with an unused node are skipped.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import comb

from allot.core.autoscaling.expanders import Expander, Key, Option
from allot.core.autoscaling.pools import Counts, Pool
from allot.core.autoscaling.trying import NewNode, Trying
from allot.core.autoscaling.usage import used_parts
from allot.core.scheduling import Placement, Unit

# Six pods and three pools are 84 sets.
SETS_MAX = 256
PODS_MAX = 6


class Tried:
    """A set, and the resulting placements of the units."""

    def __init__(self, counts: Counts, nodes: tuple[NewNode, ...], placements: list[tuple[Placement, ...]]) -> None:
        self.counts = counts
        self.nodes = nodes
        self.placements = placements


def is_small(units: Sequence[Unit], pools: Sequence[Pool]) -> bool:
    """Whether all sets can be tried."""
    pods = sum(len(unit.pods) for unit in units)
    return pods <= PODS_MAX and comb(pods + len(pools), len(pools)) <= SETS_MAX


def cheapest(
    trying: Trying, units: Sequence[Unit], pools: Sequence[Pool], nodes_max: int, expander: Expander
) -> Tried | None:
    """The best set: it runs the most important units, then has nodes of the best rank, then is the expander's choice.
    None if no set runs any unit."""
    pods = sum(len(unit.pods) for unit in units)
    least_rank = min(pool.rank for pool in pools)
    sets = list(_sets(pools, min(pods, nodes_max)))
    if expander.is_price:
        sets.sort(key=lambda counts: expander.key(Option(counts=counts)))
    best: tuple[tuple[bool, ...], tuple[int, ...], Key] | None = None
    found: Tried | None = None
    for counts in sets:
        tried, option = _try(trying, units, pools, counts)
        if tried is None or option is None:
            continue
        # Running units come first; False sorts before True, so negate.
        missing = tuple(not placements for placements in tried.placements)
        ranks = ranks_of(tried.placements, tried.nodes, pools)
        key = (missing, ranks, expander.key(option))
        if best is None or key < best:
            best, found = key, tried
        if expander.is_price and not any(missing) and all(rank <= least_rank for rank in ranks):
            # Later sets cost as much or more.
            break
    return found


def ranks_of(
    placements: Sequence[Sequence[Placement]], nodes: Sequence[NewNode], pools: Sequence[Pool]
) -> tuple[int, ...]:
    """For each unit the worst rank of its new nodes, 0 without any; best first. The scheduler decides which unit gets which node,
    so it does not matter which units have the worse ones, only how many and how bad."""
    by_pool = {pool.name: pool.rank for pool in pools}
    rank_of = {node.name: by_pool[node.pool] for node in nodes}
    return tuple(sorted(max((rank_of.get(each.node, 0) for each in unit), default=0) for unit in placements))


def _sets(pools: Sequence[Pool], nodes_max: int) -> Iterator[dict[str, int]]:
    """All non-empty sets with at most this number of nodes."""

    def beyond(index: int, left: int) -> Iterator[dict[str, int]]:
        if index == len(pools):
            yield {}
            return
        for count in range(min(pools[index].room, left) + 1):
            for rest in beyond(index + 1, left - count):
                yield {pools[index].name: count, **rest} if count else rest

    return (counts for counts in beyond(0, nodes_max) if counts)


def _try(
    trying: Trying, units: Sequence[Unit], pools: Sequence[Pool], counts: Counts
) -> tuple[Tried | None, Option | None]:
    mark = trying.supposing.mark
    try:
        nodes = tuple(trying.add(pool, number) for pool in pools for number in range(counts.get(pool.name, 0)))
        placements = trying.place_all(units)
        used = {placement.node for each in placements for placement in each}
        if any(node.name not in used for node in nodes):
            return None, None
        parts = used_parts(trying, nodes)
        return Tried(counts, nodes, placements), Option(counts=counts, used=parts)
    finally:
        trying.supposing.undo(mark)
