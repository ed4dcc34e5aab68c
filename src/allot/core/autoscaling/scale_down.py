"""Which nodes can be removed, with proof: the scheduler's machine finds another place for every evicted pod, including its claims.

New places of evicted pods are taken when the next node is judged, so that two removals never count on the same device; so are the
places that pending pods will get. A node is a candidate if its utilization is low; the proof decides.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from fractions import Fraction

import msgspec
from msgspec.structs import replace

from allot.core.autoscaling.evictable import SCALE_DOWN_DISABLED, Leaving, Rules, stays
from allot.core.autoscaling.pools import Pool
from allot.core.autoscaling.templates import Template
from allot.core.autoscaling.trying import Memory, Trying
from allot.core.autoscaling.utilization import held_on, node_utilization
from allot.core.model import core_v1
from allot.core.model import resource_v1 as api
from allot.core.scheduling import Machine, NodeInfo, Placement, Unit

DEFAULT_THRESHOLD = Fraction(1, 2)


class Candidate(msgspec.Struct, frozen=True):
    """A node and its pool. threshold: the utilization below which it may be removed; None for the global one."""

    node: str
    pool: str
    threshold: Fraction | None = None


class Move(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """An evicted pod, and a possible place for it."""

    pod: str
    to: str


class Removal(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A node that can be removed. moves: in the order in which its pods leave; empty if none must."""

    node: str
    pool: str
    moves: tuple[Move, ...] = ()
    utilization: float = 0.0


class Kept(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A node that stays, and why."""

    node: str
    pool: str
    reason: str


class ScaleDown(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Nodes that can be removed now, all together, and why the others stay."""

    removals: tuple[Removal, ...] = ()
    kept: tuple[Kept, ...] = ()


def plan_scale_down(
    machine: Machine,
    candidates: Sequence[Candidate],
    pools: Sequence[Pool],
    slices: Iterable[api.ResourceSlice],
    *,
    seconds: float,
    rules: Rules | None = None,
    threshold: Fraction = DEFAULT_THRESHOLD,
    upcoming: Sequence[Template] = (),
    removals_max: int = 0,
    memory: Memory | None = None,
) -> ScaleDown:
    """Nodes that can be removed. The machine is unchanged afterwards. upcoming: future nodes, used only for pending pods;
    removals_max: the limit per call, 0 for unlimited; memory: from earlier plans for the same machine."""
    trying = Trying(machine, seconds, memory)
    with trying.open():
        for template in upcoming:
            trying.add_template(template)
        trying.place_there(machine.waiting())
        for template in upcoming:
            # Running pods cannot move to nodes that do not exist yet.
            node = replace(template.node, spec=replace(template.node.spec, unschedulable=True))
            trying.supposing.add_node(node)
        planner = Planner(trying, pools, slices, rules or Rules(), threshold)
        return planner.plan(candidates, removals_max)


class Planner:
    """Judges nodes one after the other: places for pods of earlier nodes are taken. Also used to move pods for other reasons
    (`migration`)."""

    def __init__(
        self,
        trying: Trying,
        pools: Sequence[Pool],
        slices: Iterable[api.ResourceSlice],
        rules: Rules,
        threshold: Fraction = DEFAULT_THRESHOLD,
    ) -> None:
        self._trying = trying
        self._cluster = trying.cluster
        self._pools: Mapping[str, Pool] = {pool.name: pool for pool in pools}
        self._slices: dict[str, tuple[api.ResourceSlice, ...]] = {}
        for slice_ in slices:
            node = slice_.spec.node_name or ""
            self._slices[node] = (*self._slices.get(node, ()), slice_)
        self._leaving = Leaving(trying.cluster, rules)
        self._threshold = threshold
        self._left = {pool.name: pool.size - pool.min_size for pool in pools}
        # Nodes that pods will move to stay.
        self._needed: set[str] = set()

    def plan(self, candidates: Sequence[Candidate], removals_max: int) -> ScaleDown:
        """Which of these can be removed together."""
        removals: list[Removal] = []
        kept: list[Kept] = []
        for candidate in sorted(candidates, key=self._order):
            if removals_max and len(removals) >= removals_max:
                kept.append(Kept(node=candidate.node, pool=candidate.pool, reason="others go first"))
                continue
            found = self._judged(candidate)
            if isinstance(found, Removal):
                removals.append(found)
                self._left[candidate.pool] -= 1
                self._needed |= {move.to for move in found.moves}
            else:
                kept.append(Kept(node=candidate.node, pool=candidate.pool, reason=found))
        return ScaleDown(removals=tuple(removals), kept=tuple(kept))

    def _order(self, candidate: Candidate) -> tuple[int, int, str]:
        """Most expensive first, then those with the fewest pods to move."""
        info = self._cluster.nodes.get(candidate.node)
        pods = sum(not stays(pod.pod) for pod in info.pods.values()) if info is not None else 0
        return -self._pools[candidate.pool].price, pods, candidate.node

    def _judged(self, candidate: Candidate) -> Removal | str:
        found = self.leaving(candidate)
        if isinstance(found, str):
            return found
        info, pods = found
        part = self._utilization(info)
        threshold = candidate.threshold if candidate.threshold is not None else self._threshold
        if part >= threshold and pods:
            return f"{float(part):.0%} of it are used, which is not below {float(threshold):.0%}"
        objection = self._leaving.objection(pods)
        if objection:
            return objection
        moved = self.moved(info, pods)
        if isinstance(moved, str):
            return moved
        self._leaving.left(pods)
        return Removal(node=candidate.node, pool=candidate.pool, moves=moved, utilization=float(part))

    def objection(self, pods: Sequence[core_v1.Pod]) -> str:
        """Why pods cannot be evicted from their node; empty if they can."""
        return self._leaving.objection(pods)

    def leaving(self, candidate: Candidate) -> tuple[NodeInfo, list[core_v1.Pod]] | str:
        """A node and the pods that must leave with it, or why it stays in any case."""
        info = self._cluster.nodes.get(candidate.node)
        if info is None:
            return "is not in the cluster"
        if info.node.metadata.annotations.get(SCALE_DOWN_DISABLED) == "true":
            return f"has annotation {SCALE_DOWN_DISABLED}: true"
        if self._left[candidate.pool] <= 0:
            return "min node group size reached"
        if candidate.node in self._needed:
            return "pods of other nodes are to move here"
        pods = [pod.pod for pod in info.pods.values() if not stays(pod.pod)]
        arriving = next((pod for pod in pods if self._cluster.is_assumed(pod)), None)
        if arriving is not None:
            return f"pod {arriving.metadata.namespace}/{arriving.metadata.name} is about to run here"
        return info, pods

    def _utilization(self, info: NodeInfo) -> Fraction:
        held = held_on(info, self._trying.machine.claims)
        return node_utilization(info, self._slices.get(info.name, ()), held)

    def moved(
        self, info: NodeInfo, pods: Sequence[core_v1.Pod], among: Collection[str] | None = None
    ) -> tuple[Move, ...] | str:
        """Remove the node and return where its pods go; or, with nothing changed, the pod without a place. among: the only nodes allowed."""
        supposing = self._trying.supposing
        mark = supposing.mark
        supposing.without(pods)
        supposing.remove_node(info.node, self._slices.get(info.name, ()))
        moves = []
        for pod in sorted(pods, key=lambda pod: (-(pod.spec.priority or 0), pod.metadata.namespace, pod.metadata.name)):
            placement = self._place(pod, among)
            name = f"{pod.metadata.namespace}/{pod.metadata.name}"
            if placement is None:
                supposing.undo(mark)
                return f"pod {name} has no place elsewhere"
            supposing.place(placement)
            moves.append(Move(pod=name, to=placement.node))
        return tuple(moves)

    def _place(self, pod: core_v1.Pod, among: Collection[str] | None) -> Placement | None:
        """The new place of an evicted pod; a group member need not wait for running members."""
        status = replace(pod.status, nominated_node_name="")
        free = replace(pod, spec=replace(pod.spec, node_name=""), status=status)
        key = self._cluster.membership.of(free)
        group = self._cluster.groups.get(key) if key is not None else None
        machine = self._trying.machine
        if group is not None:
            found = machine.consider_member(free, group, self._trying.seconds)
            if not isinstance(found, Placement) or (among is not None and found.node not in among):
                return None
            return found
        placements = self._trying.ask(Unit(pods=(free,)), among).placements
        return placements[0] if placements else None
