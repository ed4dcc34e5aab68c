"""The pods of a group as one search: nodes and devices for enough of them at once, or the proof that there are none.

Used where one pass over the pods, in order and without going back, has failed (`passes`). Equal pods are one kind, so what counts
is how many of each kind a node takes. Whether a node takes some of each is one question: its filters for the pods together, and
one search of the allocator for all their claims.

1. Bounds: if counts of free resources and devices already say that there is room for too few, that is the proof.
2. Nodes on their own (`_Frontier`): where no pod minds which nodes the others have, the nodes are gone through one by one. What is kept is what
   can be covered so far, without what something else covers as well (a Pareto front). Every placement is in there.
3. Nodes that depend on each other (`_Sequences`): affinity, spreading, claims that pods share. Pods are placed one after the other with
   going back; a situation that has failed is not tried again.

The work is bounded in steps; running out of them is an answer of its own. All of it leaves no trace in the cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import product
from typing import NamedTuple

import msgspec

from allot.core.model.scheduling_v1 import PodGroup
from allot.core.scheduling.cluster import Cluster
from allot.core.scheduling.devices.device_fit import DeviceFit
from allot.core.scheduling.groups.alike import Kind, Member, kinds_of
from allot.core.scheduling.nodes.full_evaluation import FullEvaluation, placement_of
from allot.core.scheduling.nodes.nodeinfo import NodeInfo
from allot.core.scheduling.plan import Placement, Unit
from allot.core.scheduling.settings import Settings
from allot.core.scheduling.status import Verdict

STEPS_MAX = 20_000
# Sets of pods on a node that are compared, and pods that are placed one after the other.
_VECTORS_MAX = 4_096
_DEPTH_MAX = 200

Vector = tuple[int, ...]


class Found(msgspec.Struct, frozen=True):
    """Enough pods, by their position in the unit, and where they go."""

    placements: dict[int, Placement]
    steps: int


class Impossible(msgspec.Struct, frozen=True):
    """However the pods are arranged, at most so many can have a node at once."""

    most: int
    steps: int


class Undecided(msgspec.Struct, frozen=True):
    """The search was given up: it is not known whether there is a placement."""

    steps: int


class _OutOfSteps(Exception):
    pass


class Task(NamedTuple):
    """What is searched for. needed: so many pods at least; allowed: the only nodes that may be considered. goal: for a group of groups,
    whether so many pods of each group, by its key, are enough."""

    cluster: Cluster
    unit: Unit
    group: PodGroup | None
    settings: Settings
    now: float
    needed: int
    allowed: Collection[str] | None = None
    goal: Callable[[Mapping[str, int]], bool] | None = None


class Rooms(msgspec.Struct, frozen=True):
    """No more pods of each kind than this can be on a node, as far as counts tell; nodes that take none are left out."""

    pods: Vector
    by_node: Mapping[str, Vector]

    def of(self, names: Iterable[str]) -> tuple[int, int]:
        """At most how many of the pods can be on these nodes, and how many there would be room for, were there as many."""
        room = self._room(names)
        return sum(map(min, self.pods, room)), sum(room)

    def at_most(self, names: Iterable[str]) -> Vector:
        """At most how many of the pods of each kind can be on these nodes."""
        return tuple(map(min, self.pods, self._room(names)))

    def _room(self, names: Iterable[str]) -> list[int]:
        room = [0] * len(self.pods)
        for name in names:
            for position, count in enumerate(self.by_node.get(name, ())):
                room[position] += count
        return room


def rooms(task: Task) -> Rooms:
    """Bounds for the pods of a task, on each node by itself."""
    return _Search(task, STEPS_MAX).rooms()


def search(task: Task, steps_max: int = STEPS_MAX) -> Found | Impossible | Undecided:
    """A placement of at least as many pods as are needed."""
    return _Search(task, steps_max).run()


class _Search:
    def __init__(self, task: Task, steps_max: int) -> None:
        self._task = task
        self._cluster = cluster = task.cluster
        kinds = kinds_of(cluster, task.unit.pods, task.group, task.settings, task.now)
        self._kinds = [kind for kind in kinds if not kind.is_hopeless]
        names = sorted(cluster.nodes if task.allowed is None else task.allowed)
        self._nodes = [info for name in names if (info := cluster.nodes.get(name)) is not None]
        self._steps = 0
        self._steps_max = steps_max
        # Whether what one node gives away is none of the others' business.
        self._is_exact = cluster.devices is None or cluster.devices.is_local

    def run(self) -> Found | Impossible | Undecided:
        try:
            return self._run()
        except _OutOfSteps:
            return Undecided(self._steps)

    def _run(self) -> Found | Impossible | Undecided:
        rooms = self.rooms()
        optimistic = rooms.at_most(rooms.by_node)
        if not self._meets(optimistic):
            return Impossible(sum(optimistic), self._steps)
        if any(kind.looks_around or kind.shares_claims or kind.profile.volume_claims for kind in self._kinds):
            return self._placed_in_sequence()
        limits = tuple(len(kind.members) for kind in self._kinds)
        return self._placed_node_by_node(
            {name: tuple(map(min, room, limits)) for name, room in rooms.by_node.items()}, limits
        )

    def _meets(self, vector: Sequence[int]) -> bool:
        """Whether so many pods of each kind are enough."""
        goal = self._task.goal
        if goal is None:
            return sum(vector) >= self._task.needed
        counts: dict[str, int] = {}
        for kind, count in zip(self._kinds, vector, strict=True):
            counts[kind.group] = counts.get(kind.group, 0) + count
        return goal(counts)

    def _step(self, cost: int = 1) -> None:
        self._steps += cost
        if self._steps > self._steps_max:
            raise _OutOfSteps

    # --- bounds ---

    def rooms(self) -> Rooms:
        """How many pods of each kind there is room for on each node."""
        cluster, settings = self._cluster, self._task.settings
        caches = [cluster.filter_caches.filter_cache(kind.profile, settings) for kind in self._kinds]
        for cache in caches:
            cache.refresh()
        bounds: dict[str, Vector] = {}
        for info in self._nodes:
            vector = tuple(
                kind.room(info) if cache.entry(info).status is None else 0
                for kind, cache in zip(self._kinds, caches, strict=True)
            )
            if any(vector):
                bounds[info.name] = vector
        return Rooms(tuple(len(kind.members) for kind in self._kinds), bounds)

    # --- one node ---

    def _on_node(self, info: NodeInfo, members: Sequence[tuple[Kind, Member]]) -> list[Placement] | None:
        """All these pods on one node, with their devices; None if it does not take them."""
        self._step()
        cluster, settings = self._cluster, self._task.settings
        with cluster.trying() as tried:
            for kind, member in members:
                evaluation = FullEvaluation(cluster, member.pod, kind.profile, None, settings)
                if evaluation.refusal(info) is not None:
                    return None
                bare = Placement(pod=member.pod, node=info.name)
                cluster.assume(bare)
                tried.append(bare)
        fits: list[DeviceFit] = [member.fit for _, member in members if member.fit is not None]
        if fits:
            assert cluster.devices is not None
            status = cluster.devices.together(fits, info)
            if status is not None:
                if status.verdict is Verdict.ERROR:
                    self._is_exact = False
                return None
        return [placement_of(cluster, member.pod, kind.profile, info, member.fit) for kind, member in members]

    def _takes(self, info: NodeInfo, vector: Vector, at: Vector) -> list[tuple[Member, Placement]] | None:
        """So many pods of each kind on a node, beginning with those at these positions."""
        members = [
            (kind, member)
            for kind, count, start in zip(self._kinds, vector, at, strict=True)
            for member in kind.members[start : start + count]
        ]
        placements = self._on_node(info, members)
        return None if placements is None else list(zip([member for _, member in members], placements, strict=True))

    # --- nodes on their own ---

    def _placed_node_by_node(self, bounds: dict[str, Vector], limits: Vector) -> Found | Impossible | Undecided:
        names = sorted(bounds, key=lambda name: (-sum(bounds[name]), name))
        rooms = [min(sum(bounds[name]), sum(limits)) for name in names]
        left = sum(rooms)
        frontier = _Frontier(limits)
        for name, room in zip(names, rooms, strict=True):
            if self._task.goal is None and frontier.most + left < self._task.needed:
                break
            left -= room
            info = self._cluster.nodes[name]
            self._step(len(frontier.covered) // 16)
            frontier.add(name, self._maximal(info, bounds[name]))
            reached = next((vector for vector in frontier.covered if self._meets(vector)), None)
            if reached is not None:
                return self._put_together(frontier.nodes(reached))
        else:
            return self._no(frontier.most)
        return self._no(frontier.most + left)

    def _no(self, most: int) -> Impossible | Undecided:
        return Impossible(most, self._steps) if self._is_exact else Undecided(self._steps)

    def _maximal(self, info: NodeInfo, bound: Vector) -> list[Vector]:
        """The largest numbers of pods of each kind that a node takes together: no other is at least as large in all."""
        zero = (0,) * len(bound)
        if len(bound) == 1:
            return [self._most_of_one_kind(info, bound[0])]
        good: list[Vector] = []
        bad: list[Vector] = []
        size = 1
        for most in bound:
            size *= most + 1
        if size > _VECTORS_MAX:
            raise _OutOfSteps
        for vector in product(*(range(most, -1, -1) for most in bound)):
            if any(_covers(known, vector) for known in good) or any(_covers(vector, known) for known in bad):
                continue
            if self._takes(info, vector, zero) is not None:
                good.append(vector)
            else:
                bad.append(vector)
        return [each for each in good if not any(other != each and _covers(other, each) for other in good)]

    def _most_of_one_kind(self, info: NodeInfo, bound: int) -> Vector:
        """Usually the bound itself; else found by halving, as fewer fit where more do."""
        if self._takes(info, (bound,), (0,)) is not None:
            return (bound,)
        low, high = 0, bound
        while high - low > 1:
            middle = (low + high) // 2
            if self._takes(info, (middle,), (0,)) is not None:
                low = middle
            else:
                high = middle
        return (low,)

    def _put_together(self, nodes: Sequence[tuple[str, Vector]]) -> Found | Undecided:
        """The placements, each node's in force for the next one."""
        found: dict[int, Placement] = {}
        at = [0] * len(self._kinds)
        with self._cluster.trying() as tried:
            for name, vector in nodes:
                counts = tuple(
                    min(count, len(kind.members) - start)
                    for kind, count, start in zip(self._kinds, vector, at, strict=True)
                )
                if tried and not self._is_exact:
                    self._ask_devices_again()
                placed = self._takes(self._cluster.nodes[name], counts, tuple(at))
                if placed is None:
                    # Devices that several nodes reach were taken twice.
                    return Undecided(self._steps)
                for member, placement in placed:
                    self._cluster.assume(placement)
                    tried.append(placement)
                    found[member.index] = placement
                at = [start + count for start, count in zip(at, counts, strict=True)]
        return Found(found, self._steps)

    def _ask_devices_again(self) -> None:
        """What pods ask of devices, now that others have theirs."""
        devices, task = self._cluster.devices, self._task
        assert devices is not None
        for kind in self._kinds:
            for member in kind.members:
                fit = devices.fit(member.pod, task.group, task.now)
                member.fit = fit if isinstance(fit, DeviceFit) else None

    # --- nodes that depend on each other ---

    def _placed_in_sequence(self) -> Found | Impossible | Undecided:
        found = _Sequences(self._cluster, self._kinds, self._nodes, self._task, self._step, self._meets).run()
        if isinstance(found, int):
            return self._no(found)
        placements: dict[int, Placement] = {}
        with self._cluster.trying() as tried:
            for name, members in found.items():
                if tried and self._cluster.devices is not None:
                    self._ask_devices_again()
                info = self._cluster.nodes[name]
                fits = [member.fit for _, member in members if member.fit is not None]
                devices = self._cluster.devices
                if fits and devices is not None and devices.together(fits, info) is not None:
                    return Undecided(self._steps)
                for kind, member in members:
                    if kind.profile.volume_claims and not self._has_volumes(kind, member, info):
                        return Undecided(self._steps)
                    placement = placement_of(self._cluster, member.pod, kind.profile, info, member.fit)
                    self._cluster.assume(placement)
                    tried.append(placement)
                    placements[member.index] = placement
        return Found(placements, self._steps)

    def _has_volumes(self, kind: Kind, member: Member, info: NodeInfo) -> bool:
        """Whether there are volumes left for a pod; only those of others are in force by now."""
        evaluation = FullEvaluation(self._cluster, member.pod, kind.profile, None, self._task.settings)
        return evaluation.refusal(info) is None


def _covers(large: Vector, small: Vector) -> bool:
    return all(one >= other for one, other in zip(large, small, strict=True))


class _Way(NamedTuple):
    """A node that was added, what it takes, and what came before."""

    name: str
    option: Vector
    before: _Way | None


class _Frontier:
    """What nodes can cover together: numbers of pods by kind, none of which another covers, and how they came about."""

    def __init__(self, limits: Vector) -> None:
        self._limits = limits
        zero = (0,) * len(limits)
        # Each with the way to it.
        self.covered: dict[Vector, _Way | None] = {zero: None}
        self.most = 0

    def add(self, name: str, options: Sequence[Vector]) -> None:
        """One more node."""
        reached: dict[Vector, _Way | None] = {}
        for vector, way in self.covered.items():
            for option in options:
                total = tuple(
                    min(limit, one + more) for one, more, limit in zip(vector, option, self._limits, strict=True)
                )
                if total not in reached:
                    reached[total] = _Way(name, option, way)
        if len(self._limits) > 1:
            ordered = sorted(reached, key=lambda vector: (-sum(vector), vector))
            kept: list[Vector] = []
            for vector in ordered:
                if not any(_covers(other, vector) for other in kept):
                    kept.append(vector)
            reached = {vector: reached[vector] for vector in kept}
        elif len(reached) > 1:
            best = max(reached)
            reached = {best: reached[best]}
        self.covered = reached
        self.most = max(sum(vector) for vector in reached)

    def nodes(self, reached: Vector) -> list[tuple[str, Vector]]:
        """The nodes that cover this, in the order in which they were added, and what each takes."""
        found: list[tuple[str, Vector]] = []
        way = self.covered[reached]
        while way is not None:
            if any(way.option):
                found.append((way.name, way.option))
            way = way.before
        found.reverse()
        return found


class _Sequences:
    """Pods one after the other, each with the ones before it in force, going back where that leads nowhere."""

    def __init__(
        self,
        cluster: Cluster,
        kinds: list[Kind],
        nodes: list[NodeInfo],
        task: Task,
        step: Callable[[], None],
        meets: Callable[[Sequence[int]], bool],
    ) -> None:
        self._cluster = cluster
        self._kinds = kinds
        self._nodes = nodes
        self._task = task
        self._step = step
        self._meets = meets
        self._on: dict[str, list[tuple[Kind, Member]]] = {}
        self._counts = [0] * len(kinds)
        self._dead: set[object] = set()
        self._most = 0
        # The node of claims that pods share.
        self._claims: dict[str, str] = {}

    def run(self) -> dict[str, list[tuple[Kind, Member]]] | int:
        """The pods by node; or at most how many can be placed."""
        if sum(len(kind.members) for kind in self._kinds) > _DEPTH_MAX:
            raise _OutOfSteps
        if self._go(0):
            return {name: members for name, members in self._on.items() if members}
        return self._most

    def _go(self, placed: int) -> bool:
        self._most = max(self._most, placed)
        if self._meets(self._counts):
            return True
        situation = frozenset(
            (name, position, count)
            for name, members in self._on.items()
            for position, kind in enumerate(self._kinds)
            if (count := sum(each is kind for each, _ in members))
        )
        if situation in self._dead:
            return False
        for position, kind in enumerate(self._kinds):
            if self._counts[position] < len(kind.members) and self._try_kind(position, kind, placed):
                return True
        self._dead.add(situation)
        return False

    def _try_kind(self, position: int, kind: Kind, placed: int) -> bool:
        member = kind.members[self._counts[position]]
        cluster = self._cluster
        evaluation = FullEvaluation(cluster, member.pod, kind.profile, None, self._task.settings)
        shared = list(member.fit.new_claims) if kind.shares_claims and member.fit is not None else []
        for info in self._nodes:
            self._step()
            if any(self._claims.get(uid, info.name) != info.name for uid in shared):
                continue
            if evaluation.refusal(info) is not None:
                continue
            members = [*self._on.get(info.name, ()), (kind, member)]
            fits = [each.fit for _, each in members if each.fit is not None]
            if fits and cluster.devices is not None and cluster.devices.together(fits, info) is not None:
                continue
            if self._place(position, info, members, shared, placed):
                return True
        return False

    def _place(
        self, position: int, info: NodeInfo, members: list[tuple[Kind, Member]], shared: list[str], placed: int
    ) -> bool:
        before = self._on.get(info.name, [])
        bare = Placement(pod=members[-1][1].pod, node=info.name)
        fresh = [uid for uid in shared if uid not in self._claims]
        self._on[info.name] = members
        self._counts[position] += 1
        self._claims.update(dict.fromkeys(fresh, info.name))
        self._cluster.assume(bare)
        try:
            if self._go(placed + 1):
                return True
        finally:
            self._cluster.forget(bare)
        self._on[info.name] = before
        self._counts[position] -= 1
        for uid in fresh:
            del self._claims[uid]
        return False
