"""Proves without a search that requests cannot be met.

Requests compete for devices: a flow from requests through groups of like devices must be large enough. The flow
leaves things out (which makes it quick), so "may fit" proves nothing; "cannot" is a proof.
It considers how many devices each request has left, that an exclusive device serves one request, what counters and
capacities can carry at best, a common value for matchAttribute, and different values for distinctAttribute.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable, Mapping, Sequence

from allot.core.allocation.accounting import CounterKey
from allot.core.allocation.constraints import MatchState, Value
from allot.core.allocation.counters import PoolCounters, consumption
from allot.core.allocation.devices import DeviceEntry
from allot.core.allocation.draft import Draft
from allot.core.allocation.plan import Leaf
from allot.core.allocation.symmetry import CandidatesOf, Symmetry

_UNLIMITED = 1 << 30


class _Demand:
    """Requests that ask for the same, taken together."""

    __slots__ = ("claim", "devices", "leaf", "needed", "requests")

    def __init__(self, claim: int, leaf: Leaf) -> None:
        self.claim = claim
        self.leaf = leaf
        self.needed = 0
        self.requests = 0
        # By symmetry: one of the devices, and how many there are.
        self.devices: dict[Hashable, tuple[DeviceEntry, int]] = {}


def why_not(
    rest: Sequence[tuple[int, Leaf]],
    draft: Draft,
    candidates: CandidatesOf,
    counts: Mapping[Leaf, int],
    symmetry: Symmetry,
) -> list[tuple[int, Leaf]] | None:
    """Requests (claim position, leaf) that cannot all be met on top of the draft; None if that could not be proved."""
    contradicting = _contradicting(rest, draft, counts)
    if contradicting:
        return contradicting
    demands: dict[object, _Demand] = {}
    for claim, leaf in rest:
        assert leaf.signature is not None
        key = (claim, leaf.signature.number, leaf.constraints, leaf.all_devices)
        demand = demands.get(key)
        if demand is None:
            demand = demands[key] = _Demand(claim, leaf)
            demand.devices = _left(claim, leaf, draft, candidates, symmetry)
        demand.needed += counts[leaf]
        demand.requests += 1
        if sum(size for _, size in demand.devices.values()) < counts[leaf]:
            return [(claim, leaf)]
    everything = list(demands.values())
    limits = _Limits(everything, draft)
    if not _flows(everything, limits, None):
        return [(demand.claim, demand.leaf) for demand in everything]
    for claim, states in enumerate(draft.states):
        for index in range(len(states)):
            covered = [d for d in everything if d.claim == claim and index in d.leaf.constraints and d.needed]
            if covered and not _may_hold(claim, index, covered, draft, limits):
                return [(demand.claim, demand.leaf) for demand in covered]
    return None


def overdraws(left: Sequence[DeviceEntry], needed: int, draft: Draft) -> bool:
    """Whether this many of these devices overdraw some counter, even if those that draw least are chosen."""
    pools = {id(pool): pool for entry in left if (pool := draft.view.counters.get(entry)) is not None}
    for pool in pools.values():
        drawn = [
            consumption(entry) if draft.view.counters.get(entry) is pool and not entry.shareable else _NOTHING
            for entry in left
        ]
        for key in {key for amounts in drawn for key in amounts}:
            amounts = sorted([found.get(key, 0) for found in drawn])
            if sum(amounts[:needed]) > pool.available[key] - draft.counters.taken(pool, key):
                return True
    return False


_NOTHING: Mapping[CounterKey, int] = {}


def _contradicting(
    rest: Sequence[tuple[int, Leaf]], draft: Draft, counts: Mapping[Leaf, int]
) -> list[tuple[int, Leaf]]:
    """Requests for several devices that must have the same and different values of one attribute."""
    for claim, plan in enumerate(draft.plans):
        for same, different in plan.contradictions:
            both = [
                leaf for c, leaf in rest if c == claim and same in leaf.constraints and different in leaf.constraints
            ]
            if sum(counts[leaf] for leaf in both) > 1:
                return [(claim, leaf) for leaf in both]
    return []


def _left(
    claim: int, leaf: Leaf, draft: Draft, candidates: CandidatesOf, symmetry: Symmetry
) -> dict[Hashable, tuple[DeviceEntry, int]]:
    """Devices that the leaf could get now if it were alone, by symmetry."""
    left: dict[Hashable, tuple[DeviceEntry, int] | None] = {}
    for entry in candidates(leaf)[0]:
        if draft.in_use(entry, leaf, claim):
            continue
        look = symmetry.of(entry, draft)
        if look in left:
            known = left[look]
            if known is not None:
                left[look] = (known[0], known[1] + 1)
            continue
        taken = draft.take(entry, leaf, claim)
        if taken is not None:
            draft.undo(taken)
        left[look] = (entry, 1) if taken is not None else None
    return {look: found for look, found in left.items() if found is not None}


def _may_hold(claim: int, index: int, covered: list[_Demand], draft: Draft, limits: _Limits) -> bool:
    """Whether one constraint can hold for the requests that it covers."""
    attribute = draft.plans[claim].constraints[index].attribute
    values: dict[Hashable, frozenset[Value]] = {}
    for demand in covered:
        for look, (entry, _) in demand.devices.items():
            found = draft.reader.read(entry, attribute, demand.leaf)
            if found is not None and found.opaque:
                return True  # follows its own rules; leave it to the search
            values[look] = found.values if found is not None else frozenset()
    state = draft.states[claim][index]
    if isinstance(state, MatchState):
        common = state.common
        if common is None:
            common = frozenset[Value]().union(*(values[look] for look in covered[0].devices))
        for value in sorted(common, key=repr):
            if _flows(covered, limits, {look for look, found in values.items() if value in found}):
                return True
        return False
    # At most one device per value: let each device stand for one of its values.
    reachable = {min(found, key=repr) for found in values.values() if found and not found & state.taken}
    return len(reachable) >= sum(demand.needed for demand in covered)


class _Limits:
    """How often devices can be handed out, beyond once each."""

    def __init__(self, demands: list[_Demand], draft: Draft) -> None:
        self.shares: dict[Hashable, int] = {}
        # How often devices that draw on the same counter sets can be handed out in total.
        self.group_of: dict[Hashable, Hashable] = {}
        self.group_limit: dict[Hashable, int] = {}
        least: dict[Hashable, dict[CounterKey, int]] = {}
        pools: dict[Hashable, PoolCounters] = {}
        for demand in demands:
            for look, (entry, _) in demand.devices.items():
                if entry.shareable:
                    self._add_shares(look, entry, demand, draft)
                    continue
                pool = draft.view.counters.get(entry)
                if pool is None:
                    continue
                group: Hashable = (id(pool), tuple(sorted(c.counter_set for c in entry.device.consumes_counters)))
                self.group_of[look] = group
                pools[group] = pool
                needs = consumption(entry)
                known = least.get(group, needs)
                least[group] = {key: min(amount, needs[key]) for key, amount in known.items() if key in needs}
        for group, needs in least.items():
            available = pools[group].available
            self.group_limit[group] = min(
                (max(0, available[key]) // amount for key, amount in needs.items() if amount > 0), default=_UNLIMITED
            )

    def _add_shares(self, look: Hashable, entry: DeviceEntry, demand: _Demand, draft: Draft) -> None:
        assert demand.leaf.signature is not None
        drafted = draft.consumed.get(entry.id, {})
        shares = _UNLIMITED
        for name, amount in (demand.leaf.signature.consumption(entry) or {}).items():
            if amount.nano > 0:
                left = entry.capacity[name].value.nano - entry.state.consumed.get(name, 0) - drafted.get(name, 0)
                shares = min(shares, left // amount.nano)
        self.shares[look] = max(shares, self.shares.get(look, 0))


_SOURCE, _SINK = "source", "sink"


def _flows(demands: list[_Demand], limits: _Limits, allowed: set[Hashable] | None) -> bool:
    """Whether all demands can be met at once: source -> demands -> likenesses -> counter groups -> sink."""
    residual: dict[Hashable, dict[Hashable, int]] = {_SOURCE: {}, _SINK: {}}

    def connect(start: Hashable, end: Hashable, capacity: int) -> None:
        residual.setdefault(start, {})[end] = capacity
        residual.setdefault(end, {}).setdefault(start, 0)

    wanted = 0
    for number, demand in enumerate(demands):
        if demand.leaf.admin_access:
            continue  # takes nothing away from others
        wanted += demand.needed
        connect(_SOURCE, ("demand", number), demand.needed)
        for look, (entry, size) in demand.devices.items():
            if allowed is not None and look not in allowed:
                continue
            shares = limits.shares[look] if entry.shareable else 1
            # One request takes a device once; several requests may share it.
            connect(("demand", number), ("device", look), size * min(shares, demand.requests))
            group = limits.group_of.get(look)
            if group is None:
                connect(("device", look), _SINK, size * shares)
            else:
                connect(("device", look), ("group", group), size)
                connect(("group", group), _SINK, limits.group_limit[group])
    return _maximum_flow(residual, wanted) >= wanted


def _maximum_flow(residual: dict[Hashable, dict[Hashable, int]], wanted: int) -> int:
    """Shortest augmenting paths (Edmonds and Karp)."""
    total = 0
    while total < wanted:
        parent: dict[Hashable, Hashable] = {_SOURCE: _SOURCE}
        queue = deque([_SOURCE])
        while queue and _SINK not in parent:
            node: Hashable = queue.popleft()
            for neighbour, capacity in residual[node].items():
                if capacity > 0 and neighbour not in parent:
                    parent[neighbour] = node
                    queue.append(neighbour)  # type: ignore[arg-type]
        if _SINK not in parent:
            return total
        path = list(_path(parent))
        amount = min(residual[start][end] for start, end in path)
        for start, end in path:
            residual[start][end] -= amount
            residual[end][start] += amount
        total += amount
    return total


def _path(parent: Mapping[Hashable, Hashable]) -> Iterable[tuple[Hashable, Hashable]]:
    node: Hashable = _SINK
    while node != _SOURCE:
        yield parent[node], node
        node = parent[node]
