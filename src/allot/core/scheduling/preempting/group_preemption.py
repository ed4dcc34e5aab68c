"""Preemption for a group: which pods must leave so that enough of its pods get nodes and devices at once.

The group as a whole preempts, anywhere in the cluster. Terminating pods count as gone first. If there are few candidates, all
sets of them are compared (`victims`). If there are many, the pods that fit without preemption stay where they fit, and the lowest priority is
found up to which all must go for the rest; if that fails, the same without keeping any place. Then only pods on a node that a
pod of the group takes from others can help: if these are few, their sets are compared; if many, all are taken and given back one by
one, the most important first, as long as the group's pods keep their nodes. Changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import msgspec

from allot.core.model.scheduling_v1 import PREEMPT_NEVER, PodGroup
from allot.core.scheduling.attempt import attempt
from allot.core.scheduling.groups.passes import Pass
from allot.core.scheduling.groups.shape import minimum_of, priority_of
from allot.core.scheduling.groups.task import Task
from allot.core.scheduling.nodes.full_evaluation import fits
from allot.core.scheduling.plan import Placement, Victim
from allot.core.scheduling.preempting.budgets import Budgets
from allot.core.scheduling.preempting.preemption import residents_of, several, victims_of
from allot.core.scheduling.preempting.victims import EXACT_MAX, Resident, VictimSearch, broken_budgets, by_importance

_NO_VICTIMS = "No preemption victims found for incoming preemptor"
_NEVER = "not eligible due to preemptionPolicy=Never."
_ONGOING = "ongoing preemption on nominated nodes"

# Attempts for single pods, to compare all sets of candidates.
_TRIES_MAX = 4_000

Place = Callable[[], Pass]
# Where the pods go once some are gone, or why nowhere.
Way = Callable[[Sequence[Resident]], dict[int, Placement] | str]


class GroupPreempted(msgspec.Struct, frozen=True, kw_only=True):
    """What preemption found for a group."""

    # The end of the group's message, in upstream's words, and what is done about it, in ours.
    message: str = ""
    explanation: str = ""
    # Where pods will go once the victims are gone, by their position in the unit.
    nodes: Mapping[int, str] = {}
    victims: tuple[Victim, ...] = ()


def preempt_group(task: Task, group: PodGroup, place: Place, first: Mapping[int, Placement]) -> GroupPreempted:
    """Victims for a group that found no place, if any. group: what the pods are to others; place: tries to find one, as the cluster
    is then; first: what pods found, by their position, without preemption."""
    policies = {pod.spec.preemption_policy for pod in task.unit.pods}
    if PREEMPT_NEVER in ({group.spec.preemption_policy} if group.spec.preemption_policy is not None else policies):
        return GroupPreempted(message=_NEVER)
    return _GroupPreemption(task, group, place).run(first)


class _GroupPreemption:
    def __init__(self, task: Task, group: PodGroup, place: Place) -> None:
        self._cluster = cluster = task.cluster
        self._unit = task.unit
        self._group = group
        self._settings = task.settings
        self._now = task.now
        self._place = place
        self._priority = priority_of(group, task.unit.pods)
        self._budgets = Budgets(cluster.budgets.values())
        self._leaving = list(cluster.leaving.values())
        devices = cluster.devices
        self._leftovers = devices.leftovers(cluster.departed) if devices is not None else ()

    def run(self, first: Mapping[int, Placement]) -> GroupPreempted:
        """The cheapest victims, or why there are none."""
        if self._leaving or self._leftovers:
            found = self._placed_without(())
            if isinstance(found, dict):
                return self._waiting(found)
        lowest = min(self._cluster.priorities, default=self._priority)
        residents = self._residents() if lowest < self._priority else []
        if not residents:
            return GroupPreempted(message=_NO_VICTIMS)
        if self._are_few(residents):
            found = self._placed_without(residents)
            return (
                self._told(self._cheapest(residents), {}) if isinstance(found, dict) else GroupPreempted(message=found)
            )

        def beside(gone: Sequence[Resident]) -> dict[int, Placement] | str:
            return self._placed_beside(first, gone)

        ways: list[Way] = [beside, self._placed_without] if first else [self._placed_without]
        message = ""
        for way in ways:
            found = way(residents)
            if isinstance(found, str):
                message = found
                continue
            return self._chosen(residents, found, way, first if way is beside else {})
        return GroupPreempted(message=message)

    def _chosen(
        self, residents: list[Resident], found: dict[int, Placement], way: Way, kept: Mapping[int, Placement]
    ) -> GroupPreempted:
        """The victims among these. found: where pods go if all of them are gone; kept: pods that found a place before."""
        some, found = self._as_unimportant_as_possible(residents, found, way)
        taken = [placement for index, placement in found.items() if index not in kept]
        near = self._near(some, taken)
        if self._are_few(near) and isinstance(self._placed_without(near), dict):
            return self._told(self._cheapest(near), {})
        return self._told(self._given_back(near, taken), found)

    def _are_few(self, residents: Sequence[Resident]) -> bool:
        """Whether all sets of these can be compared, each by an attempt for the whole group."""
        return len(residents) <= EXACT_MAX and (len(self._unit.pods) << len(residents)) <= _TRIES_MAX

    def _residents(self) -> list[Resident]:
        leaving = {info.key for info in self._leaving}
        own = {info.key for info in self._cluster.members(self._group)}
        pods = [info for info in self._cluster.pods.values() if info.priority < self._priority and info.key not in own]
        return residents_of(self._cluster, pods, self._budgets, self._priority, leaving)

    # --- what if ---

    @contextmanager
    def _gone(self, residents: Sequence[Resident]) -> Iterator[None]:
        """Inside, these are gone, along with terminating pods and what pods left behind."""
        pods = [info.pod for resident in residents for info in resident.pods]
        with (
            self._cluster.without([*(info.pod for info in self._leaving), *pods], self._leftovers),
            self._cluster.unpromised(self._unit.pods),
        ):
            yield

    def _placed_without(self, residents: Sequence[Resident]) -> dict[int, Placement] | str:
        """Where the group's pods go if these are gone; or why not."""
        with self._gone(residents):
            done = self._place()
        if done.failure or done.is_error:
            return done.failure
        return {index: found for index, found in done.found.items() if isinstance(found, Placement)}

    def _placed_beside(
        self, first: Mapping[int, Placement], residents: Sequence[Resident]
    ) -> dict[int, Placement] | str:
        """The same, but pods that found a place without preemption stay there."""
        found = dict(first)
        needed = minimum_of(self._group) - self._cluster.scheduled_count(self._group)
        with self._gone(residents), self._cluster.trying() as tried:
            for placement in first.values():
                self._cluster.assume(placement)
                tried.append(placement)
            for index, pod in enumerate(self._unit.pods):
                if index in first:
                    continue
                if len(found) >= needed:
                    return found
                result = attempt(self._cluster, pod, self._group, self._settings, self._now)
                if isinstance(result, Placement):
                    self._cluster.assume(result)
                    tried.append(result)
                    found[index] = result
        return found if len(found) >= needed else "pod group is unschedulable"

    # --- victims ---

    def _as_unimportant_as_possible(
        self, residents: list[Resident], found: dict[int, Placement], way: Way
    ) -> tuple[list[Resident], dict[int, Placement]]:
        """All up to the lowest priority that suffices; without those whose eviction breaks a budget, if that suffices too. And where pods go
        then."""
        allowed = self._budgets.allowed()
        if allowed:
            kept: list[Resident] = []
            left = dict(allowed)
            for resident in by_importance(residents):
                if not broken_budgets([resident], left):
                    kept.append(resident)
                    for budgets in resident.budgets:
                        for budget in budgets:
                            left[budget] -= 1
            if len(kept) < len(residents) and isinstance(placed := way(kept), dict):
                residents, found = kept, placed
        levels = sorted({resident.priority for resident in residents})
        low, high = -1, len(levels) - 1
        while high - low > 1:
            middle = (low + high) // 2
            some = [resident for resident in residents if resident.priority <= levels[middle]]
            if isinstance(placed := way(some), dict):
                high, found = middle, placed
            else:
                low = middle
        return [resident for resident in residents if resident.priority <= levels[high]], found

    def _near(self, residents: list[Resident], taken: Sequence[Placement]) -> list[Resident]:
        """Pods on a node that a pod of the group takes, or that hold devices that such a node can reach."""
        nodes = {placement.node for placement in taken}
        devices = self._cluster.devices
        remote = devices.users_of_shared_devices() if devices is not None else frozenset()
        return [
            resident
            for resident in residents
            if any(info.node in nodes or info.pod.metadata.uid in remote for info in resident.pods)
        ]

    def _cheapest(self, residents: list[Resident]) -> list[Resident]:
        """The cheapest set that lets the group in, however its pods are arranged then."""

        def makes_room(gone: Sequence[Resident]) -> bool:
            return isinstance(self._placed_without(gone), dict)

        found = VictimSearch(residents, self._budgets.allowed(), makes_room).best()
        return list(found) if found is not None else residents

    def _given_back(self, residents: list[Resident], taken: Sequence[Placement]) -> list[Resident]:
        """Give back one after the other, the most important first, as long as all pods of the group keep their nodes."""
        by_node: dict[str, list[Placement]] = {}
        for placement in taken:
            by_node.setdefault(placement.node, []).append(placement)
        gone = by_importance(residents)
        for resident in reversed(gone.copy()):
            rest = [each for each in gone if each is not resident]
            nodes = sorted({info.node for info in resident.pods} & by_node.keys())
            here = [each for each in rest if any(info.node in nodes for info in each.pods)]
            with self._gone(here):
                if all(self._still_fit(by_node[node]) for node in nodes):
                    gone = rest
        return gone

    def _still_fit(self, placements: Sequence[Placement]) -> bool:
        """Whether pods fit on their intended nodes."""
        with self._cluster.trying() as tried:
            for placement in placements:
                if fits(self._cluster, placement.pod, placement.node, self._settings, self._now) is not None:
                    return False
                self._cluster.assume(placement)
                tried.append(placement)
        return True

    # --- the answer ---

    def _waiting(self, found: Mapping[int, Placement]) -> GroupPreempted:
        """Terminating pods make room, so the group only has to wait."""
        promised = {index: pod.status.nominated_node_name for index, pod in enumerate(self._unit.pods)}
        nodes = {index: placement.node for index, placement in found.items() if promised[index] == placement.node}
        said = "pods that are terminating make room, so no other pod has to leave"
        return GroupPreempted(message=_ONGOING if nodes else "", explanation=said, nodes=nodes)

    def _told(self, residents: Sequence[Resident], found: Mapping[int, Placement]) -> GroupPreempted:
        """found: where the pods go; empty if that must be computed."""
        if not found:
            again = self._placed_without(residents)
            assert isinstance(again, dict), "the same victims make the same room"
            found = again
        by = f"podgroup {self._group.metadata.uid} on node cluster"
        victims, named = victims_of(self._cluster, residents, self._budgets, by)
        count = f"{len(victims)} pod{'s' if len(victims) != 1 else ''} of lower priority"
        return GroupPreempted(
            message=f"found a placement for podgroup, preempting {len(victims)} victims",
            explanation=f"preempting {count} to make room for the group: {several(named)}",
            nodes={index: placement.node for index, placement in found.items()},
            victims=tuple(victims),
        )
