"""The cheapest victims that make room for another pod on one node, including devices.

Cheapest: fewest disruption budgets broken, then the lowest highest priority, then the fewest pods, then the lowest sum of
priorities. Pods that go together (a group that is disrupted as a whole) are one `Resident`. With few residents the answer is
exact; with many it is upstream's algorithm (take all, give back the most important first), improved by trying small sets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import combinations

import msgspec

from allot.core.scheduling.podinfo import PodInfo

# Up to this many residents all sets are compared; a set is only tried if nothing known so far decides it.
EXACT_MAX = 12
# With more, how many small sets are tried before the set found is taken.
IMPROVEMENTS_MAX = 200

Budget = tuple[str, str]
# Budgets broken, highest priority, pods, sum of priorities.
Cost = tuple[int, int, int, int]


class Resident(msgspec.Struct, frozen=True, kw_only=True):
    """Pods that can only go together, usually one."""

    pods: tuple[PodInfo, ...]
    priority: int
    # Budgets that protect each pod, in the order of the pods.
    budgets: tuple[tuple[Budget, ...], ...] = ()

    @property
    def since(self) -> str:
        """When the first of them started; pods without a start time have not run yet."""
        return min((pod.pod.status.start_time or "~" for pod in self.pods), default="~")


def by_importance(residents: Iterable[Resident]) -> list[Resident]:
    """Least important first: low priority, then few pods, then started late."""
    ordered = sorted(residents, key=lambda resident: resident.pods[0].key)
    ordered.sort(key=lambda resident: resident.since, reverse=True)
    ordered.sort(key=lambda resident: (resident.priority, len(resident.pods)))
    return ordered


def broken_budgets(residents: Iterable[Resident], allowed: dict[Budget, int]) -> int:
    """How many of the pods are evicted although their budget is exhausted."""
    left = dict(allowed)
    broken = 0
    for resident in residents:
        for budgets in resident.budgets:
            breaks = False
            for budget in budgets:
                left[budget] -= 1
                breaks |= left[budget] < 0
            broken += breaks
    return broken


def cost_of(residents: Sequence[Resident], allowed: dict[Budget, int]) -> Cost:
    """The cost of evicting these."""
    return (
        broken_budgets(residents, allowed),
        max((resident.priority for resident in residents), default=-(2**31)),
        sum(len(resident.pods) for resident in residents),
        sum(resident.priority * len(resident.pods) for resident in residents),
    )


class VictimSearch:
    """Finds the residents to evict. makes_room: whether the pod fits once a set of them is gone."""

    def __init__(
        self,
        residents: Iterable[Resident],
        allowed: dict[Budget, int],
        makes_room: Callable[[Sequence[Resident]], bool],
        *,
        is_monotone: bool = True,
    ) -> None:
        """is_monotone: whether more room never hurts. It does hurt pods that want to be near others."""
        self._residents = by_importance(residents)
        self._allowed = allowed
        self._makes_room = makes_room
        self._is_monotone = is_monotone
        # Sets are bit masks over the residents in order. Known so far: these suffice, these do not.
        self._enough: list[int] = []
        self._too_few: list[int] = []
        self.trials = 0

    def best(self, worth_less_than: Cost | None = None) -> tuple[Resident, ...] | None:
        """The cheapest set; None if there is none, or none cheaper than the given cost."""
        everything = (1 << len(self._residents)) - 1
        if not everything or (self._is_monotone and not self._does(everything)):
            return None
        exact = len(self._residents) <= EXACT_MAX
        found = self._cheapest(everything, worth_less_than) if exact else self._given_back(everything)
        if found is None:
            return None
        chosen = self._chosen(found)
        if worth_less_than is not None and not self._cost(found) < worth_less_than:
            return None
        return chosen

    # --- few residents: all sets, cheapest first ---

    def _cheapest(self, everything: int, limit: Cost | None) -> int | None:
        by_cost = sorted(range(1, everything + 1), key=lambda mask: (self._cost(mask), mask))
        for mask in by_cost:
            if limit is not None and not self._cost(mask) < limit:
                return None
            if self._does(mask):
                return mask
        return None

    # --- many residents: upstream's algorithm, then improved ---

    def _given_back(self, everything: int) -> int | None:
        """Take all, then give back one by one what is not needed: first pods whose eviction breaks a budget, then
        the most important ones."""
        if not self._does(everything):
            return None
        breaking = self._breaking()
        order = sorted(range(len(self._residents)), key=lambda bit: (not breaking >> bit & 1, -bit))
        mask = everything
        for bit in order:
            without = mask & ~(1 << bit)
            if without and self._does(without):
                mask = without
        return self._improved(mask)

    def _breaking(self) -> int:
        """Residents whose eviction breaks a budget if all more important ones are evicted first."""
        left = dict(self._allowed)
        mask = 0
        for bit in reversed(range(len(self._residents))):
            for budgets in self._residents[bit].budgets:
                for budget in budgets:
                    left[budget] -= 1
                    if left[budget] < 0:
                        mask |= 1 << bit
        return mask

    def _improved(self, mask: int) -> int:
        """A cheaper set, if one of the small ones is: one pod that frees much instead of several."""
        best, cost = mask, self._cost(mask)
        usable = [bit for bit, resident in enumerate(self._residents) if resident.priority <= cost[1]]
        tried = 0
        for size in range(1, min(mask.bit_count(), 4)):
            for bits in combinations(usable, size):
                candidate = sum(1 << bit for bit in bits)
                if not self._cost(candidate) < cost:
                    continue
                if tried >= IMPROVEMENTS_MAX:
                    return best
                tried += 1
                if self._does(candidate):
                    best, cost = candidate, self._cost(candidate)
        return best

    # --- sets ---

    def _chosen(self, mask: int) -> tuple[Resident, ...]:
        return tuple(resident for bit, resident in enumerate(self._residents) if mask >> bit & 1)

    def _cost(self, mask: int) -> Cost:
        return cost_of(self._chosen(mask), self._allowed)

    def _does(self, mask: int) -> bool:
        """Whether a set makes room; computed only if it does not follow from larger and smaller sets."""
        if self._is_monotone:
            if any(known & mask == known for known in self._enough):
                return True
            if any(known & mask == mask for known in self._too_few):
                return False
        self.trials += 1
        does = self._makes_room(self._chosen(mask))
        (self._enough if does else self._too_few).append(mask)
        return does
