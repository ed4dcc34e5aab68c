"""Which nodes to add so that the most important pods run at the lowest cost; and what each waiting pod can expect.

What runs is decided first, in the order of importance, and what it costs after that. First, units are placed on existing and upcoming
nodes, as the scheduler would: nothing is bought for them. The others get new nodes exactly (`exhaustive`) or by filling nodes (`filling`);
in both cases the answer is a set of nodes on which the scheduler itself has placed the units, one after the other.
Between what runs and what it costs come the priorities of ComputeClasses (`classes`): the rank of pools.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction

import msgspec

from allot.core.autoscaling import exhaustive
from allot.core.autoscaling.bounds import Wanted, lower_bound
from allot.core.autoscaling.classes import Classes, priority_text
from allot.core.autoscaling.demands import Amounts, demand, least_devices, supply
from allot.core.autoscaling.expanders import Expander
from allot.core.autoscaling.filling import Filling
from allot.core.autoscaling.pools import Limits, Pool
from allot.core.autoscaling.templates import Template
from allot.core.autoscaling.trying import Memory, NewNode, Trying, unit_name
from allot.core.model.compute_classes import DEFAULT_NAME, class_of
from allot.core.scheduling import Machine, Placement, Unit, explanation

MAX_REACHED = "max node group size reached"
TOTAL_REACHED = "max cluster size reached"
BACKED_OFF = "in backoff after failed scale-up"
BARRED = "not wanted by its ComputeClass"
NO_POOL = "no pool"
# How often nodes are bought for units that the scheduler's own choice left without a place.
_STAGES_MAX = 8
# The limit of units that the scheduler places again, freely, on all new nodes.
_FREELY_MAX = 100
# The limit of checks when trying fewer nodes.
_IMPROVING_MAX = 1000


class Upcoming(msgspec.Struct, frozen=True):
    """A requested node that is not ready yet, as it will be."""

    pool: str
    template: Template


class PoolReason(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Why a node of a pool would not help. reasons: as counted; detail: an optional sentence; priority: of the
    unit's ComputeClass that the pool is for, for display. A priority without a pool also has a reason: value and known are the name that
    it gives, and the possible ones."""

    pool: str
    reasons: tuple[str, ...]
    detail: str = ""
    priority: str = ""
    value: str = ""
    known: tuple[str, ...] = ()

    @property
    def who(self) -> str:
        """The pool or priority that does not help: `pool a100-80`, `priority 1 (a100-80)`, `priority 2 (g2): nap-g2-standard-8`; empty for a whole class."""
        if not self.priority:
            return f"pool {self.pool}" if self.pool else ""
        return self.priority if not self.pool or f"({self.pool})" in self.priority else f"{self.priority}: {self.pool}"


class Expectation(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a pending unit can expect. nodes: where its pods would go, new ones by placeholder names; pools: the new and upcoming ones
    of these nodes, by pool; reasons: why nothing helps; compute_class: the selected one."""

    unit: str
    pods: tuple[str, ...]
    nodes: tuple[str, ...] = ()
    bought: Mapping[str, int] = {}
    coming: Mapping[str, int] = {}
    reasons: tuple[PoolReason, ...] = ()
    compute_class: str = ""

    @property
    def is_helped(self) -> bool:
        """Whether it will run."""
        return bool(self.nodes)


class Purchase(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Nodes to buy of a pool, which then has `size` of `max_size`. compute_class, priority: what the pool is for, for display."""

    pool: str
    count: int
    size: int
    max_size: int
    price: int
    compute_class: str = ""
    priority: str = ""

    @property
    def text(self) -> str:
        """As in Cluster Autoscaler's event: {a100 1->2 (max: 3)}."""
        return f"{{{self.pool} {self.size - self.count}->{self.size} (max: {self.max_size})}}"


class ScaleUp(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What to buy. cost: per hour, see `pools.MILLION`; bound: no set that helps the same units costs less; is_exact: all sets were
    tried, so none is better."""

    purchases: tuple[Purchase, ...] = ()
    expectations: tuple[Expectation, ...] = ()
    cost: int = 0
    bound: int = 0
    is_exact: bool = True
    questions: int = 0

    def of(self, pod: str) -> Expectation | None:
        """What a pod (namespace/name) can expect."""
        return next((each for each in self.expectations if pod in each.pods), None)


def plan_scale_up(
    machine: Machine,
    pools: Sequence[Pool],
    expander: Expander,
    *,
    seconds: float,
    limits: Limits | None = None,
    upcoming: Sequence[Upcoming] = (),
    units: Sequence[Unit] | None = None,
    memory: Memory | None = None,
    classes: Classes | None = None,
) -> ScaleUp:
    """What to buy for the pending units of a machine, or for the given ones. The machine is unchanged afterwards. memory: from earlier plans
    for the same machine; classes: those that rank the pools, to explain why none of a class helps."""
    trying = Trying(machine, seconds, memory)
    waiting = machine.waiting() if units is None else list(units)
    nodes = len(machine.cluster.nodes) + len(upcoming)
    with trying.open():
        for each in upcoming:
            trying.add_template(each.template)
        names = {each.template.node.metadata.name: each.pool for each in upcoming}
        return _Planner(trying, pools, expander, (limits or Limits()).room(nodes), names, classes).plan(waiting)


class _Planner:
    def __init__(
        self,
        trying: Trying,
        pools: Sequence[Pool],
        expander: Expander,
        nodes_max: int,
        upcoming: Mapping[str, str],
        classes: Classes | None,
    ) -> None:
        self._trying = trying
        self._pools = pools
        self._by_name = {pool.name: pool for pool in pools}
        self._expander = expander
        self._nodes_max = nodes_max
        self._upcoming = upcoming
        self._classes = classes
        self._supplies = {pool.name: _supply(trying, pool) for pool in pools}
        self._refused: set[tuple[Hashable, str]] = set()
        self._reasons: dict[Hashable, tuple[PoolReason, ...]] = {}
        self._counts: dict[str, int] = {}
        self._pool_of: dict[str, str] = {}

    def plan(self, units: Sequence[Unit]) -> ScaleUp:
        trying = self._trying
        found = trying.place_there(units)
        rest = [unit for unit, placements in zip(units, found, strict=True) if not placements]
        there = {unit_name(unit): placements for unit, placements in zip(units, found, strict=True) if placements}
        bought, nodes, is_exact = self._bought(rest)
        placements = {**there, **bought}
        counts = self._counts = _counted(node.pool for node in nodes)
        pool_of = self._pool_of = {node.name: node.pool for node in nodes}
        expectations = tuple(self._expectation(unit, placements.get(unit_name(unit), ()), pool_of) for unit in units)
        cost = self._expander.cost(counts)
        return ScaleUp(
            purchases=tuple(self._purchase(pool, counts[pool.name]) for pool in self._pools if pool.name in counts),
            expectations=expectations,
            cost=cost,
            bound=cost if is_exact and self._expander.is_price else min(int(self._bound(rest, bought)), cost),
            is_exact=is_exact,
            questions=trying.questions,
        )

    def _purchase(self, pool: Pool, count: int) -> Purchase:
        size = pool.size + count
        standing = pool.standing
        return Purchase(
            pool=pool.name,
            count=count,
            size=size,
            max_size=pool.max_size,
            price=pool.price,
            compute_class=standing.compute_class if standing is not None else "",
            priority=standing.text if standing is not None else "",
        )

    # --- what is bought ---

    def _bought(self, units: Sequence[Unit]) -> tuple[dict[str, tuple[Placement, ...]], Sequence[NewNode], bool]:
        """Placements of units that get new nodes, these nodes, and whether the result is optimal."""
        open_pools = [pool for pool in self._pools if pool.room]
        if not units or not open_pools or self._nodes_max <= 0:
            return {}, (), True
        is_few = sum(len(unit.pods) for unit in units) <= exhaustive.PODS_MAX
        useful = self._useful(units, open_pools) if is_few else open_pools
        if not useful:
            return {}, (), True
        if exhaustive.is_small(units, useful):
            tried = exhaustive.cheapest(self._trying, units, useful, self._nodes_max, self._expander)
            if tried is None:
                return {}, (), True
            pairs = zip(units, tried.placements, strict=True)
            return {unit_name(unit): each for unit, each in pairs if each}, tried.nodes, True
        return self._by_filling(units, open_pools)

    def _useful(self, units: Sequence[Unit], pools: Sequence[Pool]) -> list[Pool]:
        """Pools whose node has room for some pod; with gangs, which may need several nodes, all pools."""
        if not all(unit.is_lone for unit in units):
            return list(pools)
        return [pool for pool in pools if any(self._suits(pool, unit) for unit in units)]

    def _suits(self, pool: Pool, unit: Unit) -> bool:
        mark = self._trying.supposing.mark
        try:
            node = self._trying.probe(pool)
            return bool(self._trying.ask(unit, (node.name,)).placements) or self._trying.shape(unit) is None
        finally:
            self._trying.supposing.undo(mark)

    def _by_filling(
        self, units: Sequence[Unit], pools: Sequence[Pool]
    ) -> tuple[dict[str, tuple[Placement, ...]], Sequence[NewNode], bool]:
        """Buy in stages: units that the scheduler, by its own choice, leaves without a place on the nodes so far get additional nodes.
        Starting over with all nodes would buy more: the more nodes there are, the wider the scheduler spreads units. Very many units
        keep the places found while filling; units without a place are handled in the next round."""
        placements: dict[str, tuple[Placement, ...]] = {}
        nodes: list[NewNode] = []
        wanting = list(units)
        for _ in range(_STAGES_MAX):
            base = self._trying.supposing.mark
            filling = Filling(self._trying, pools, self._supplies, self._nodes_max, self._expander, self._refused)
            filling.begin_after(nodes)
            filling.buy(wanting)
            if len(wanting) > _FREELY_MAX:
                new, found = filling.nodes, filling.placements
            else:
                new, found = self._with_fewer(wanting, filling.nodes, base)
            nodes += new
            pairs = zip(wanting, found, strict=True)
            placements |= {unit_name(unit): each for unit, each in pairs if each}
            left = [unit for unit in wanting if unit_name(unit) not in placements]
            if not new or not left:
                break
            wanting = left
        return placements, nodes, False

    def _freely(self, units: Sequence[Unit], new: Sequence[NewNode], base: int) -> list[tuple[Placement, ...]]:
        """Add these nodes, and let the scheduler place units by its own choice; returns where."""
        self._trying.supposing.undo(base)
        for node in new:
            self._trying.add_again(node)
        return self._trying.place_all(units)

    def _with_fewer(
        self, units: Sequence[Unit], new: list[NewNode], base: int
    ) -> tuple[list[NewNode], list[tuple[Placement, ...]]]:
        """Placements by the scheduler's own choice, without unused or unneeded nodes, as far as the search is
        worthwhile. They are in effect afterwards."""
        found = self._freely(units, new, base)
        used = {placement.node for each in found for placement in each}
        dearest = sorted(
            new, key=lambda node: (-self._by_name[node.pool].rank, -self._by_name[node.pool].price, node.name)
        )
        if len(new) * len(units) > _IMPROVING_MAX:
            dearest = [node for node in new if node.name not in used]
        for node in dearest:
            fewer = [each for each in new if each != node]
            tried = self._freely(units, fewer, base)
            if _keeps(found, tried) and self._ranks(tried, fewer) <= self._ranks(found, new):
                new, found = fewer, tried
        return new, self._freely(units, new, base)

    def _ranks(self, placements: Sequence[tuple[Placement, ...]], nodes: Sequence[NewNode]) -> tuple[int, ...]:
        return exhaustive.ranks_of(placements, nodes, self._pools)

    # --- what is reported ---

    def _bound(self, rest: Sequence[Unit], bought: Mapping[str, tuple[Placement, ...]]) -> Fraction:
        cluster, claims = self._trying.cluster, self._trying.machine.claims
        wanted: dict[tuple[Hashable, int], Wanted] = {}
        found = []
        for unit in rest:
            if not unit.is_lone or not bought.get(unit_name(unit)):
                continue
            shape = self._trying.shape(unit)
            # Ranks come before prices, so only pools of the same rank could be cheaper.
            rank = self._rank_of(bought[unit_name(unit)])
            if shape is None or (shape, rank) not in wanted:
                amounts = demand(cluster, claims, unit)
                pools = tuple(
                    pool.name
                    for pool in self._pools
                    if pool.room
                    and pool.rank == rank
                    and (shape, pool.name) not in self._refused
                    and not amounts.exceeds(self._supplies[pool.name])
                )
                each = Wanted(amounts, pools)
                if shape is None:
                    found.append(each)
                    continue
                wanted[shape, rank] = each
            found.append(wanted[shape, rank])
        return lower_bound(found, self._by_name, self._supplies)

    def _rank_of(self, placements: Sequence[Placement]) -> int:
        """The rank of the pool of a single pod's new node."""
        pool = self._pool_of.get(placements[0].node)
        return self._by_name[pool].rank if pool is not None else 0

    def _expectation(self, unit: Unit, placements: Sequence[Placement], pool_of: Mapping[str, str]) -> Expectation:
        nodes = tuple(dict.fromkeys(placement.node for placement in placements))
        return Expectation(
            unit=unit_name(unit),
            pods=tuple(f"{pod.metadata.namespace}/{pod.metadata.name}" for pod in unit.pods),
            nodes=nodes,
            bought=_counted(pool_of[node] for node in nodes if node in pool_of),
            coming=_counted(self._upcoming[node] for node in nodes if node in self._upcoming),
            reasons=() if placements else self._why_not(unit),
            compute_class=class_of(unit.pods[0]),
        )

    def _why_not(self, unit: Unit) -> tuple[PoolReason, ...]:
        shape = self._trying.shape(unit)
        if shape is None:
            return tuple(self._all_reasons(unit))
        if shape not in self._reasons:
            self._reasons[shape] = tuple(self._all_reasons(unit))
        return self._reasons[shape]

    def _all_reasons(self, unit: Unit) -> Iterator[PoolReason]:
        """The reasons of all pools; for a unit that selects a class, of the class's pools, best first, and of priorities without a pool."""
        name = class_of(unit.pods[0])
        classes = self._classes
        if classes is None or not (name or DEFAULT_NAME in classes.by_name):
            for pool in self._pools:
                yield self._why_not_of(pool, unit)
            return
        name = name or DEFAULT_NAME
        found = [
            ((pool.rank, pool.name), self._why_not_of(pool, unit))
            for pool in self._pools
            if pool.standing is not None and pool.standing.compute_class == name
        ]
        spec = classes.by_name[name].spec if name in classes.by_name else None
        for problem in classes.problems(name, self._pools):
            index = problem.index
            priority = priority_text(index, spec.priorities[index]) if spec is not None and index is not None else ""
            reason = PoolReason(
                pool="",
                reasons=(NO_POOL,),
                detail=problem.text,
                priority=priority,
                value=problem.value,
                known=problem.known,
            )
            found.append(((len(self._pools) if index is None else index, ""), reason))
        yield from (reason for _, reason in sorted(found, key=lambda each: each[0]))

    def _why_not_of(self, pool: Pool, unit: Unit) -> PoolReason:
        reason = self._refusal(pool, unit)
        return msgspec.structs.replace(reason, priority=pool.standing.text) if pool.standing is not None else reason

    def _refusal(self, pool: Pool, unit: Unit) -> PoolReason:
        if pool.barred:
            return PoolReason(pool=pool.name, reasons=(BARRED,), detail=pool.barred)
        if pool.closed:
            return PoolReason(pool=pool.name, reasons=(BACKED_OFF,), detail=pool.closed)
        mark = self._trying.supposing.mark
        try:
            # As if nothing else were bought: then the pool itself is the obstacle.
            node = self._trying.probe(pool)
            outcome = self._trying.ask(unit, (node.name,) if unit.is_lone else None)
            failure = outcome.failure
            if outcome.placements:
                is_full = self._counts.get(pool.name, 0) >= pool.room
                reason = MAX_REACHED if is_full else TOTAL_REACHED
                return PoolReason(pool=pool.name, reasons=(reason,))
            if failure is None:
                refusals = outcome.decision.refusals if outcome.decision is not None else ()
                said = refusals[0].message if refusals else "the group does not fit"
                return PoolReason(pool=pool.name, reasons=("not enough for the group",), detail=said)
            status = failure.status or failure.refusals.get(node.name)
            reasons = status.reasons if status is not None else ()
            profile = self._trying.cluster.profile(unit.pods[0])
            detail = explanation(self._trying.cluster, profile, failure)
            if not pool.template.source and not pool.template.slices:
                detail = "; ".join(filter(None, (detail, _UNKNOWN_DEVICES)))
            return PoolReason(pool=pool.name, reasons=reasons, detail=_in_words(detail, node.name, pool.name))
        finally:
            self._trying.supposing.undo(mark)


_UNKNOWN_DEVICES = (
    "no devices are assumed: the provider does not report them, it has no node yet, and no profile is set for it"
)


def _in_words(text: str, node: str, pool: str) -> str:
    return text.replace(f"node {node} comes closest: it has", f"a node of {pool} has").replace(
        f"node {node}", f"a node of {pool}"
    )


def _supply(trying: Trying, pool: Pool) -> Amounts:
    found = supply(pool.template)
    for pod in pool.template.pods:
        profile = trying.cluster.profile(pod)
        found = found.less(Amounts(profile.cpu, profile.memory, 1, 0))
    found = found.less(Amounts(devices=sum(map(least_devices, pool.template.claims))))
    if trying.machine.claims.inventory.has_shared_devices:
        # Pods may use devices outside the node, so the node's own devices are no limit.
        found = msgspec.structs.replace(found, devices=None)
    return found


def _keeps(before: Sequence[tuple[Placement, ...]], after: Sequence[tuple[Placement, ...]]) -> bool:
    """Whether all units placed before still are."""
    return all(bool(now) or not then for then, now in zip(before, after, strict=True))


def _counted(names: Iterable[str]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for name in names:
        counts[name] = counts.get(name, 0) + 1
    return counts
