"""Moves pods of a ComputeClass from nodes of a low priority to a better one when it is available (`activeMigration`).

One node at a time, and with proof: all of its pods that must leave have places on existing or new nodes of a better
rank. New nodes are bought first; the old node is removed once they exist, so no state needs to be kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from allot.core.autoscaling.classes import Classes
from allot.core.autoscaling.evictable import Rules
from allot.core.autoscaling.pools import Pool
from allot.core.autoscaling.scale_down import Candidate, Move, Planner, Removal
from allot.core.autoscaling.scale_up import Upcoming
from allot.core.autoscaling.trying import Memory, Trying
from allot.core.model import core_v1
from allot.core.model import resource_v1 as api
from allot.core.scheduling import Machine, NodeInfo


class Migration(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The next step for a node whose pods can move to better ones. removal: it can be removed; count: how many nodes of `pool` to buy
    first, 0 if they are already requested."""

    node: str
    removal: Removal | None = None
    pool: str = ""
    count: int = 0


def plan_migration(
    machine: Machine,
    candidates: Sequence[Candidate],
    pools: Sequence[Pool],
    slices: Iterable[api.ResourceSlice],
    classes: Classes,
    *,
    seconds: float,
    rules: Rules | None = None,
    upcoming: Sequence[Upcoming] = (),
    nodes_max: int = 0,
    memory: Memory | None = None,
) -> Migration | None:
    """The next step, for the first node whose pods can move; worst rank first. candidates: all ready nodes;
    nodes_max: how many may be bought. The machine is unchanged afterwards."""
    by_name = {pool.name: pool for pool in pools}
    worse = [each for each in candidates if by_name[each.pool].rank and classes.migrates(by_name[each.pool])]
    if not worse:
        return None
    trying = Trying(machine, seconds, memory)
    with trying.open():
        for node in upcoming:
            trying.add_template(node.template)
        trying.place_there(machine.waiting())
        migrating = _Migrating(trying, candidates, pools, upcoming, Planner(trying, pools, slices, rules or Rules()))
        for each in sorted(worse, key=lambda each: (-by_name[each.pool].rank, -by_name[each.pool].price, each.node)):
            found = migrating.step(each, nodes_max)
            if found is not None:
                return found
    return None


class _Migrating:
    def __init__(
        self,
        trying: Trying,
        ready: Sequence[Candidate],
        pools: Sequence[Pool],
        upcoming: Sequence[Upcoming],
        planner: Planner,
    ) -> None:
        self._trying = trying
        self._pools = {pool.name: pool for pool in pools}
        self._ready = [(each.node, self._pools[each.pool]) for each in ready]
        self._coming = [(each.template.node.metadata.name, self._pools[each.pool]) for each in upcoming]
        self._planner = planner

    def step(self, candidate: Candidate, nodes_max: int) -> Migration | None:
        """The next step for a node; None if there is none."""
        found = self._planner.leaving(candidate)
        if isinstance(found, str):
            return None
        info, pods = found
        # An unused node is removed anyway.
        if not pods or self._planner.objection(pods):
            return None
        own = self._pools[candidate.pool]
        there = [name for name, pool in self._ready if _is_better(pool, own)]
        moves = self._moves(info, pods, there)
        if moves is not None:
            return Migration(
                node=candidate.node, removal=Removal(node=candidate.node, pool=candidate.pool, moves=moves)
            )
        soon = [*there, *(name for name, pool in self._coming if _is_better(pool, own))]
        if len(soon) > len(there) and self._moves(info, pods, soon) is not None:
            return Migration(node=candidate.node)
        return self._purchase(candidate, info, pods, soon, nodes_max)

    def _purchase(
        self, candidate: Candidate, info: NodeInfo, pods: Sequence[core_v1.Pod], soon: Sequence[str], nodes_max: int
    ) -> Migration | None:
        own = self._pools[candidate.pool]
        better = [pool for pool in self._pools.values() if pool.room and _is_better(pool, own)]
        for pool in sorted(better, key=lambda pool: (pool.rank, pool.price, pool.name)):
            for count in range(1, min(len(pods), pool.room, nodes_max) + 1):
                mark = self._trying.supposing.mark
                try:
                    new = [self._trying.add(pool, number).name for number in range(count)]
                    if self._moves(info, pods, [*soon, *new]) is not None:
                        return Migration(node=candidate.node, pool=pool.name, count=count)
                finally:
                    self._trying.supposing.undo(mark)
        return None

    def _moves(self, info: NodeInfo, pods: Sequence[core_v1.Pod], among: Sequence[str]) -> tuple[Move, ...] | None:
        """Where pods would go if restricted to these nodes."""
        if not among:
            return None
        mark = self._trying.supposing.mark
        try:
            found = self._planner.moved(info, pods, among)
            return None if isinstance(found, str) else found
        finally:
            self._trying.supposing.undo(mark)


def _is_better(pool: Pool, own: Pool) -> bool:
    """Whether a pool belongs to the same class and ranks better."""
    there, here = pool.standing, own.standing
    return there is not None and here is not None and there.compute_class == here.compute_class and pool.rank < own.rank
