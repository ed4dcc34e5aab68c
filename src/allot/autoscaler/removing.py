"""Removes nodes: unneeded ones, after a while, and those whose pods can move to nodes of a better priority.

The core decides, with proof, whether a node can be removed; this module decides when, and how many at a time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from fractions import Fraction

import msgspec

from allot.autoscaler.compute_classes import ComputeClasses
from allot.autoscaler.draining import CannotDrain, Draining
from allot.autoscaler.groups import GroupState, upcoming_of
from allot.autoscaler.known_cluster import KnownCluster
from allot.autoscaler.options import AutoscalerOptions
from allot.autoscaler.reporting import Reporting
from allot.core.autoscaling.migration import Migration, plan_migration
from allot.core.autoscaling.pools import Pool
from allot.core.autoscaling.scale_down import Candidate, Removal, plan_scale_down
from allot.core.autoscaling.scale_up import Upcoming
from allot.core.autoscaling.templates import TO_BE_DELETED
from allot.process.clock import Clock

_log = logging.getLogger("allot.autoscaler")

# For nodes that may be removed at any utilization.
_ANY = Fraction(2)
_DRAIN, _EMPTY = "drain", "empty"


class Removing:
    """Removes nodes. Losing its state only makes it wait longer. done: called when a node was removed, or stays after all."""

    def __init__(
        self,
        known: KnownCluster,
        clock: Clock,
        options: AutoscalerOptions,
        draining: Draining,
        reporting: Reporting,
        compute_classes: ComputeClasses,
        done: Callable[[], None],
    ) -> None:
        self._known = known
        self._clock = clock
        self._options = options
        self._draining = draining
        self._reporting = reporting
        self._classes = compute_classes
        self._done = done
        # When a node became unneeded.
        self.unneeded: dict[str, float] = {}
        self._going: dict[str, asyncio.Task[None]] = {}
        # By node being drained for a better priority: the future nodes of its pods.
        self._awaited: dict[str, frozenset[str]] = {}
        self._removed_at = self._failed_at = float("-inf")

    def is_going(self, node: str) -> bool:
        """Whether a node is being removed."""
        return node in self._going

    def upcoming(self, states: Sequence[GroupState]) -> list[Upcoming]:
        """Future nodes as they will be, without those that are already being removed."""
        found = upcoming_of(states, self._known.slices)
        return [each for each in found if not self.is_going(each.template.node.metadata.name)]

    # --- to a better priority ---

    def migrate(self, states: Sequence[GroupState], tasks: asyncio.TaskGroup, nodes_max: int) -> Migration | None:
        """One step for one node, unless another is being removed: drain it, or return what must be added first."""
        classes, options = self._classes.known, self._options
        has_failed = self._clock.monotonic() - self._failed_at < options.scale_down_delay_after_failure_s
        if classes is None or not options.scale_down_enabled or self._going or has_failed:
            return None
        found = plan_migration(
            self._known.machine,
            self._candidates(states),
            [state.pool for state in states if state.pool is not None],
            self._known.slices,
            classes,
            seconds=self._clock.seconds(),
            rules=options.rules,
            upcoming=self.upcoming(states),
            nodes_max=nodes_max,
            memory=self._known.memory,
        )
        if found is not None and found.removal is not None:
            self._awaited[found.node] = frozenset(move.to for move in found.removal.moves)
            self._begin(states, found.removal, tasks)
        return found if found is not None and found.count else None

    # --- unneeded nodes ---

    def scale_down(self, states: Sequence[GroupState], tasks: asyncio.TaskGroup, bought_at: float) -> None:
        """Start removing nodes that have been unneeded long enough. bought_at: the time of the last scale-up."""
        options, now = self._options, self._clock.monotonic()
        if not options.scale_down_enabled:
            return
        awaited = {node for nodes in self._awaited.values() for node in nodes}
        removals = [each for each in self._removable(states) if each.node not in awaited]
        self.unneeded = {each.node: self.unneeded.get(each.node, now) for each in removals}
        waits = (
            (bought_at, options.scale_down_delay_after_add_s),
            (self._removed_at, options.scale_down_delay_after_delete_s),
            (self._failed_at, options.scale_down_delay_after_failure_s),
        )
        if any(now - at < pause for at, pause in waits):
            return
        draining = sum(1 for task in self._going.values() if task.get_name() == _DRAIN)
        by_name = {state.name: state for state in states}
        for removal in removals:
            if now - self.unneeded[removal.node] < self._unneeded_time_s(by_name[removal.pool], removal.node):
                continue
            if len(self._going) >= options.max_scale_down_parallelism:
                break
            if removal.moves and draining >= options.max_drain_parallelism:
                continue
            draining += bool(removal.moves)
            self._begin(states, removal, tasks)

    async def mark(self, states: Sequence[GroupState]) -> None:
        """Mark unneeded nodes, which the scheduler should avoid."""
        nodes = [node for state in states for node in state.ready if not self.is_going(node.metadata.name)]
        await self._draining.soften(nodes, self.unneeded)

    def _removable(self, states: Sequence[GroupState]) -> Sequence[Removal]:
        """Provably removable nodes. Nodes being removed no longer count in their pool."""
        pools: list[Pool] = []
        useless: list[Candidate] = []
        for state in states:
            if state.pool is None:
                continue
            leaving = sum(1 for node in state.ready if self.is_going(node.metadata.name))
            pools.append(msgspec.structs.replace(state.pool, size=state.target - leaving))
            names = [node.metadata.name for node in state.unready]
            useless += [Candidate(name, state.name, _ANY) for name in names if not self.is_going(name)]
        slices = self._known.slices
        return plan_scale_down(
            self._known.machine,
            [*self._candidates(states), *useless],
            pools,
            slices,
            seconds=self._clock.seconds(),
            rules=self._options.rules,
            upcoming=[each.template for each in upcoming_of(states, slices)],
            memory=self._known.memory,
        ).removals

    def _candidates(self, states: Sequence[GroupState]) -> list[Candidate]:
        """Nodes that are not being removed."""
        return [
            Candidate(node.metadata.name, state.name, self._threshold(state, state.pool))
            for state in states
            if state.pool is not None
            for node in state.ready
            if not self.is_going(node.metadata.name)
        ]

    def _threshold(self, state: GroupState, pool: Pool) -> Fraction:
        """The utilization below which a node may be removed: from its ComputeClass, else from its group."""
        classes, options = self._classes.known, state.options
        own = classes.threshold(pool) if classes is not None else None
        if own is not None:
            return own
        has_devices = bool(pool.template.slices)
        return Fraction(options.gpu_utilization_threshold if has_devices else options.utilization_threshold)

    def _unneeded_time_s(self, state: GroupState, node: str) -> float:
        """How long a node must be unneeded before it is removed."""
        if any(each.metadata.name == node for each in state.unready):
            return state.options.unready_s
        classes = self._classes.known
        own = classes.delay_s(state.pool) if classes is not None and state.pool is not None else None
        return state.options.unneeded_s if own is None else own / self._options.time_factor

    # --- removal ---

    def _begin(self, states: Sequence[GroupState], removal: Removal, tasks: asyncio.TaskGroup) -> None:
        state = next(each for each in states if each.name == removal.pool)
        name = _DRAIN if removal.moves else _EMPTY
        self._going[removal.node] = tasks.create_task(self._remove(state, removal), name=name)

    async def _remove(self, state: GroupState, removal: Removal) -> None:
        node = self._known.nodes.get(removal.node)
        pods = [self._known.pods[move.pod] for move in removal.moves if move.pod in self._known.pods]
        try:
            if node is None or any(taint.key == TO_BE_DELETED for taint in node.spec.taints):
                return
            _log.info("scale-down: node %s of %s, %d pods move", removal.node, removal.pool, len(pods))
            await self._draining.remove(removal.pool, node, pods)
            self._removed_at = self._clock.monotonic()
            self._reporting.removed(state, was_empty=not pods, pods=len(pods))
        except CannotDrain as error:
            self._failed_at = self._clock.monotonic()
            _log.warning("node %s stays: %s", removal.node, error)
        finally:
            self._going.pop(removal.node, None)
            self._awaited.pop(removal.node, None)
            self.unneeded.pop(removal.node, None)
            self._done()
