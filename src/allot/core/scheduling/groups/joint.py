"""A joint search for the pods of a group: nodes and devices for enough of them at once, or a proof that there are none.

Used if one pass over the pods, in order and without backtracking, has failed (`passes`). Pods that are the same to all nodes form a
class (`symmetry`), so what counts is how many of each class a node takes. One check answers that: its filters for the pods together, and
one search of the allocator for all their claims.

1. Bounds: if counts of free resources and devices already show room for too few, that is the proof.
2. Independent nodes (`_Frontier`): if no pod depends on the nodes of the others, the nodes are added one by one. What is kept is what
   can be covered so far, without what something else covers as well (a Pareto front). It contains every placement.
3. Dependent nodes (`_Sequences`): affinity, spreading, claims that pods share. Pods are placed one after the other with
   backtracking; a situation that has failed is not tried again.

The work is bounded in steps; running out of them is a separate answer. All of it leaves no trace in the cluster.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import product
from typing import NamedTuple

import msgspec

from allot.core.scheduling.devices.device_fit import DeviceFit
from allot.core.scheduling.groups.symmetry import Member, PodClass, pod_classes
from allot.core.scheduling.groups.task import Task
from allot.core.scheduling.nodes.full_evaluation import FullEvaluation, placement_of
from allot.core.scheduling.nodes.nodeinfo import NodeInfo
from allot.core.scheduling.plan import Placement
from allot.core.scheduling.status import Verdict

STEPS_MAX = 20_000
# Sets of pods on a node that are compared, and pods that are placed one after the other.
_VECTORS_MAX = 4_096
_DEPTH_MAX = 200

Vector = tuple[int, ...]
# By the key of a group: the only nodes that its pods may use; all if the key is missing.
NodesOf = Mapping[str, Collection[str]]


class Found(msgspec.Struct, frozen=True):
    """Enough pods, by their position in the unit, and where they go."""

    placements: dict[int, Placement]
    steps: int


class Impossible(msgspec.Struct, frozen=True):
    """However the pods are arranged, at most this many can have a node at once."""

    most: int
    steps: int


class Undecided(msgspec.Struct, frozen=True):
    """The search was given up: it is not known whether there is a placement."""

    steps: int


class OutOfSteps(Exception):
    """The work has reached its bound."""


class Rooms(msgspec.Struct, frozen=True):
    """An upper bound, from counts, on the pods of each class on a node; nodes that take none are left out."""

    pods: Vector
    by_node: Mapping[str, Vector]

    def of(self, names: Iterable[str]) -> tuple[int, int]:
        """How many of the pods fit on these nodes at most, and how many there would be room for if there were more."""
        room = self._room(names)
        return sum(map(min, self.pods, room)), sum(room)

    def at_most(self, names: Iterable[str]) -> Vector:
        """How many of the pods of each class fit on these nodes at most."""
        return tuple(map(min, self.pods, self._room(names)))

    def _room(self, names: Iterable[str]) -> list[int]:
        room = [0] * len(self.pods)
        for name in names:
            for position, count in enumerate(self.by_node.get(name, ())):
                room[position] += count
        return room


def rooms(task: Task) -> Rooms:
    """Bounds for the pods of a task, on each node separately."""
    return Search(task).rooms()


def search(task: Task, steps_max: int = STEPS_MAX) -> Found | Impossible | Undecided:
    """Find a placement of at least as many pods as are needed."""
    return Search(task, steps_max).run()


class Search:
    """The search for the pods of one task. Steps add up over all calls."""

    def __init__(self, task: Task, steps_max: int = STEPS_MAX) -> None:
        self._task = task
        self._needed = task.needed
        self._cluster = cluster = task.cluster
        self._classes = [pod_class for pod_class in pod_classes(task) if not pod_class.is_hopeless]
        names = sorted(cluster.nodes if task.allowed is None else task.allowed)
        self._nodes = [info for name in names if (info := cluster.nodes.get(name)) is not None]
        self._rooms: Rooms | None = None
        # The only nodes for pods of a group, by its key.
        self._nodes_of: NodesOf = {}
        self.steps = 0
        self._steps_max = steps_max
        # Whether nodes are independent of each other.
        self._is_exact = cluster.devices is None or cluster.devices.is_local

    @property
    def groups(self) -> list[str]:
        """The key of the group of each class of pods."""
        return [pod_class.group for pod_class in self._classes]

    def run(self) -> Found | Impossible | Undecided:
        """The answer."""
        try:
            return self.within({})
        except OutOfSteps:
            return Undecided(self.steps)

    def within(self, nodes_of: NodesOf) -> Found | Impossible | Undecided:
        """The answer if pods of a group, by its key, may use only these nodes. Raises OutOfSteps."""
        if self._nodes_of and not self._is_exact:
            self._ask_devices_again()
        self._nodes_of = nodes_of
        rooms = self._rooms_within()
        optimistic = rooms.at_most(rooms.by_node)
        if not self.is_enough(optimistic):
            return Impossible(sum(optimistic), self.steps)
        if any(each.looks_around or each.shares_claims or each.profile.volume_claims for each in self._classes):
            return self._placed_in_sequence()
        limits = tuple(len(pod_class.members) for pod_class in self._classes)
        return self._placed_node_by_node(
            {name: tuple(map(min, room, limits)) for name, room in rooms.by_node.items()}, limits
        )

    def _rooms_within(self) -> Rooms:
        rooms = self.rooms()
        if not self._nodes_of:
            return rooms
        self.step(1 + len(rooms.by_node) // 64)
        only = [self._nodes_of.get(pod_class.group) for pod_class in self._classes]
        inside = {
            name: tuple(
                count if names is None or name in names else 0 for count, names in zip(vector, only, strict=True)
            )
            for name, vector in rooms.by_node.items()
        }
        return Rooms(rooms.pods, {name: vector for name, vector in inside.items() if any(vector)})

    def is_enough(self, vector: Sequence[int]) -> bool:
        """Whether this many pods of each class are enough."""
        goal = self._task.goal
        if goal is None:
            return sum(vector) >= self._needed
        counts: dict[str, int] = {}
        for pod_class, count in zip(self._classes, vector, strict=True):
            counts[pod_class.group] = counts.get(pod_class.group, 0) + count
        return goal(counts)

    def step(self, cost: int = 1) -> None:
        """Count work; OutOfSteps if it exceeds the bound."""
        self.steps += cost
        if self.steps > self._steps_max:
            raise OutOfSteps

    # --- bounds ---

    def rooms(self) -> Rooms:
        """How many pods of each class there is room for on each node."""
        if self._rooms is None:
            self._rooms = self._count_rooms()
        return self._rooms

    def _count_rooms(self) -> Rooms:
        cluster, settings = self._cluster, self._task.settings
        caches = [cluster.filter_caches.filter_cache(pod_class.profile, settings) for pod_class in self._classes]
        for cache in caches:
            cache.refresh()
        bounds: dict[str, Vector] = {}
        for info in self._nodes:
            vector = tuple(
                [
                    pod_class.room(info) if cache.entry(info).status is None else 0
                    for pod_class, cache in zip(self._classes, caches, strict=True)
                ]
            )
            if any(vector):
                bounds[info.name] = vector
        return Rooms(tuple(len(pod_class.members) for pod_class in self._classes), bounds)

    # --- one node ---

    def _on_node(self, info: NodeInfo, members: Sequence[tuple[PodClass, Member]]) -> list[Placement] | None:
        """All these pods on one node, with their devices; None if it does not take them."""
        self.step()
        cluster, settings = self._cluster, self._task.settings
        with cluster.trying() as tried:
            for pod_class, member in members:
                evaluation = FullEvaluation(cluster, member.pod, pod_class.profile, None, settings)
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
        return [placement_of(cluster, member.pod, pod_class.profile, info, member.fit) for pod_class, member in members]

    def _takes(self, info: NodeInfo, vector: Vector, at: Vector) -> list[tuple[Member, Placement]] | None:
        """This many pods of each class on a node, starting with those at these positions."""
        members = [
            (pod_class, member)
            for pod_class, count, start in zip(self._classes, vector, at, strict=True)
            for member in pod_class.members[start : start + count]
        ]
        placements = self._on_node(info, members)
        return None if placements is None else list(zip([member for _, member in members], placements, strict=True))

    # --- independent nodes ---

    def _placed_node_by_node(self, bounds: dict[str, Vector], limits: Vector) -> Found | Impossible | Undecided:
        names = sorted(bounds, key=lambda name: (-sum(bounds[name]), name))
        rooms = [min(sum(bounds[name]), sum(limits)) for name in names]
        left = sum(rooms)
        frontier = _Frontier(limits)
        for name, room in zip(names, rooms, strict=True):
            if self._task.goal is None and frontier.most + left < self._needed:
                break
            left -= room
            info = self._cluster.nodes[name]
            self.step(len(frontier.covered) // 16)
            frontier.add(name, self._maximal(info, bounds[name]))
            reached = next((vector for vector in frontier.covered if self.is_enough(vector)), None)
            if reached is not None:
                return self._put_together(frontier.nodes(reached))
        else:
            return self._no(frontier.most)
        return self._no(frontier.most + left)

    def _no(self, most: int) -> Impossible | Undecided:
        return Impossible(most, self.steps) if self._is_exact else Undecided(self.steps)

    def _maximal(self, info: NodeInfo, bound: Vector) -> list[Vector]:
        """The maximal numbers of pods of each class that a node takes together: no other is at least as large in all."""
        zero = (0,) * len(bound)
        if len(bound) == 1:
            return [self._most_of_one_class(info, bound[0])]
        good: list[Vector] = []
        bad: list[Vector] = []
        size = 1
        for most in bound:
            size *= most + 1
        if size > _VECTORS_MAX:
            raise OutOfSteps
        for vector in product(*(range(most, -1, -1) for most in bound)):
            if any(_covers(known, vector) for known in good) or any(_covers(vector, known) for known in bad):
                continue
            if self._takes(info, vector, zero) is not None:
                good.append(vector)
            else:
                bad.append(vector)
        return [each for each in good if not any(other != each and _covers(other, each) for other in good)]

    def _most_of_one_class(self, info: NodeInfo, bound: int) -> Vector:
        """Usually the bound itself; else found by bisection, since fewer fit wherever more do."""
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
        """The placements, each applied before the next node."""
        found: dict[int, Placement] = {}
        at = [0] * len(self._classes)
        with self._cluster.trying() as tried:
            for name, vector in nodes:
                counts = tuple(
                    min(count, len(pod_class.members) - start)
                    for pod_class, count, start in zip(self._classes, vector, at, strict=True)
                )
                if tried and not self._is_exact:
                    self._ask_devices_again()
                placed = self._takes(self._cluster.nodes[name], counts, tuple(at))
                if placed is None:
                    # Devices that several nodes reach were taken twice.
                    return Undecided(self.steps)
                for member, placement in placed:
                    self._cluster.assume(placement)
                    tried.append(placement)
                    found[member.index] = placement
                at = [start + count for start, count in zip(at, counts, strict=True)]
        return Found(found, self.steps)

    def _ask_devices_again(self) -> None:
        """The pods' device requirements, now that others have their devices."""
        devices, task = self._cluster.devices, self._task
        assert devices is not None
        for pod_class in self._classes:
            for member in pod_class.members:
                fit = devices.fit(member.pod, task.group, task.now)
                member.fit = fit if isinstance(fit, DeviceFit) else None

    # --- dependent nodes ---

    def _placed_in_sequence(self) -> Found | Impossible | Undecided:
        found = _Sequences(self, self._task, self._classes, self._nodes, self._nodes_of).run()
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
                    return Undecided(self.steps)
                for pod_class, member in members:
                    if pod_class.profile.volume_claims and not self._has_volumes(pod_class, member, info):
                        return Undecided(self.steps)
                    placement = placement_of(self._cluster, member.pod, pod_class.profile, info, member.fit)
                    self._cluster.assume(placement)
                    tried.append(placement)
                    placements[member.index] = placement
        return Found(placements, self.steps)

    def _has_volumes(self, pod_class: PodClass, member: Member, info: NodeInfo) -> bool:
        """Whether there are volumes left for a pod; so far only those of others are applied."""
        evaluation = FullEvaluation(self._cluster, member.pod, pod_class.profile, None, self._task.settings)
        return evaluation.refusal(info) is None


def _covers(large: Vector, small: Vector) -> bool:
    return all(one >= other for one, other in zip(large, small, strict=True))


class _Way(NamedTuple):
    """A node that was added, what it takes, and what came before."""

    name: str
    option: Vector
    before: _Way | None


class _Frontier:
    """What nodes can cover together: numbers of pods by class, none of which another covers, and how they were reached."""

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
    """Place pods one by one, with backtracking."""

    def __init__(
        self,
        search: Search,
        task: Task,
        classes: list[PodClass],
        nodes: list[NodeInfo],
        nodes_of: NodesOf,
    ) -> None:
        self._search = search
        self._cluster = task.cluster
        self._settings = task.settings
        self._classes = classes
        self._nodes = [
            [info for info in nodes if (only := nodes_of.get(pod_class.group)) is None or info.name in only]
            for pod_class in classes
        ]
        self._on: dict[str, list[tuple[PodClass, Member]]] = {}
        self._counts = [0] * len(classes)
        self._dead: set[object] = set()
        self._most = 0
        # The node of each claim that pods share.
        self._claims: dict[str, str] = {}

    def run(self) -> dict[str, list[tuple[PodClass, Member]]] | int:
        """The pods by node; or the maximum number that can be placed."""
        if sum(len(pod_class.members) for pod_class in self._classes) > _DEPTH_MAX:
            raise OutOfSteps
        if self._go(0):
            return {name: members for name, members in self._on.items() if members}
        return self._most

    def _go(self, placed: int) -> bool:
        self._most = max(self._most, placed)
        if self._search.is_enough(self._counts):
            return True
        situation = frozenset(
            (name, position, count)
            for name, members in self._on.items()
            for position, pod_class in enumerate(self._classes)
            if (count := sum(each is pod_class for each, _ in members))
        )
        if situation in self._dead:
            return False
        for position, pod_class in enumerate(self._classes):
            if self._counts[position] < len(pod_class.members) and self._try_class(position, pod_class, placed):
                return True
        self._dead.add(situation)
        return False

    def _try_class(self, position: int, pod_class: PodClass, placed: int) -> bool:
        member = pod_class.members[self._counts[position]]
        cluster = self._cluster
        evaluation = FullEvaluation(cluster, member.pod, pod_class.profile, None, self._settings)
        shared = list(member.fit.new_claims) if pod_class.shares_claims and member.fit is not None else []
        for info in self._nodes[position]:
            self._search.step()
            if any(self._claims.get(uid, info.name) != info.name for uid in shared):
                continue
            if evaluation.refusal(info) is not None:
                continue
            members = [*self._on.get(info.name, ()), (pod_class, member)]
            fits = [each.fit for _, each in members if each.fit is not None]
            if fits and cluster.devices is not None and cluster.devices.together(fits, info) is not None:
                continue
            if self._place(position, info, members, shared, placed):
                return True
        return False

    def _place(
        self, position: int, info: NodeInfo, members: list[tuple[PodClass, Member]], shared: list[str], placed: int
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
