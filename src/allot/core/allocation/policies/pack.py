"""pack: of all valid answers, the one that leaves the node least fragmented.

Answers are compared by, in this order:
1. how many devices end up broken: partly used shareable devices, partly used counter sets;
2. how much is left over in those (the tightest fit);
3. how many devices are left in the groups that matchAttribute chose from (the tightest group);
4. how much capacity whole devices have (a small device before a large one, where both fit);
5. the order of first-fit.

First-fit decides whether the claims fit at all and which alternative of a prioritized list is taken; then other devices are
tried for the same requests. The number of tries is bounded; the best answer found by then is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable

from allot.core.allocation.constraints import MatchState
from allot.core.allocation.counters import consumption
from allot.core.allocation.devices import DeviceEntry
from allot.core.allocation.draft import Draft, Taken
from allot.core.allocation.errors import AllocationError
from allot.core.allocation.plan import Leaf
from allot.core.allocation.result import Choice
from allot.core.allocation.search import Search
from allot.core.allocation.symmetry import Symmetry

TRIES_MAX = 2_000
_WHOLE = 1000  # parts of a capacity; whole numbers, so that equal answers compare equal everywhere

Cost = tuple[int, int, int, int, tuple[int, ...]]


class Pack:
    """Takes the answer that fragments the node least."""

    name = "pack"

    def search(self, search: Search, fresh: Callable[[], Search]) -> Search | None:
        """The best answer."""
        if not search.run():
            return None
        other = fresh()
        best = _Packing(search, other.draft).best()
        search.draft.choices = best
        return search


class _Place:
    """One device to choose: the slot-th of a leaf."""

    __slots__ = ("claim", "leaf", "slot")

    def __init__(self, claim: int, leaf: Leaf, slot: int) -> None:
        self.claim = claim
        self.leaf = leaf
        self.slot = slot


class _Packing:
    """Tries other devices for the requests that first-fit has met."""

    def __init__(self, found: Search, draft: Draft) -> None:
        self.found = found
        self.draft = draft
        self.order = {entry: position for position, entry in enumerate(draft.view.devices())}
        self.most: dict[str, int] = {}
        for entry in self.order:
            for name, capacity in entry.capacity.items():
                self.most[name] = max(self.most.get(name, 0), capacity.value.nano)
        self.places = [
            _Place(claim, leaf, slot)
            for claim, leaves in enumerate(found.chosen)
            for leaf in leaves
            for slot in range(found.counts[leaf])
        ]
        self.devices: dict[Leaf, list[DeviceEntry]] = {}
        for place in self.places:
            if place.leaf not in self.devices:
                devices, failures = found.candidates(place.leaf)
                usable = [entry for entry in devices if entry not in failures]
                if not place.leaf.all_devices:
                    usable.sort(key=lambda entry: (self._preference(entry), self.order[entry]))
                self.devices[place.leaf] = usable
        self.symmetry = Symmetry(draft, found.requests, found.candidates, self._size)
        self.tries = 0

    def _size(self, entry: DeviceEntry) -> int:
        """The size of a whole device: its fraction of the largest of each capacity."""
        return sum(
            capacity.value.nano * _WHOLE // self.most[name]
            for name, capacity in entry.capacity.items()
            if self.most[name] > 0
        )

    def _preference(self, entry: DeviceEntry) -> tuple[bool, int]:
        """Devices to try first: those already in use, then small ones."""
        pool = self.draft.view.counters.get(entry)
        fresh = not entry.state.shares
        if pool is not None:
            fresh = all(
                pool.available[key] == pool.published[key] for key in consumption(entry) if key in pool.available
            )
        return fresh, self._size(entry)

    def best(self) -> list[list[Choice]]:
        """Choices per claim of the best answer found."""
        best = self.found.draft.choices
        best_cost = self._cost(self.found.draft)
        explored: set[Hashable] = set()
        failed: list[set[Hashable]] = []
        cursors: list[int] = []
        taken: list[Taken | None] = []

        def enter(position: int) -> None:
            place = self.places[position]
            same = position > 0 and place.slot > 0
            cursors.append(cursors[-1] if same else 0)
            failed.append(set())
            taken.append(None)

        if not self.places:
            return best
        enter(0)
        while cursors and self.tries < TRIES_MAX:
            position = len(cursors) - 1
            place = self.places[position]
            undo = taken[-1]
            if undo is not None:
                entry = self.draft.choices[place.claim][-1].entry
                self.draft.undo(undo)
                taken[-1] = None
                failed[-1].add(self.symmetry.of(entry, self.draft))
            if not self._take_next(place, cursors, failed, taken):
                cursors.pop()
                failed.pop()
                taken.pop()
                continue
            self.tries += 1
            if position + 1 == len(self.places):
                cost = self._cost(self.draft)
                if cost < best_cost:
                    best_cost = cost
                    best = [sorted(choices, key=self._result_order(claim)) for claim, choices in self._chosen()]
                continue
            if self.places[position + 1].slot == 0:
                situation = (position, self.symmetry.situation(self.draft, self.places[position + 1].claim))
                if situation in explored:
                    continue
                explored.add(situation)
            enter(position + 1)
        return best

    def _take_next(
        self, place: _Place, cursors: list[int], failed: list[set[Hashable]], taken: list[Taken | None]
    ) -> bool:
        devices = self.devices[place.leaf]
        while cursors[-1] < len(devices):
            entry = devices[cursors[-1]]
            if place.leaf.all_devices and cursors[-1] > place.slot:
                return False
            cursors[-1] += 1
            if self.draft.in_use(entry, place.leaf, place.claim):
                continue
            if failed[-1] and self.symmetry.of(entry, self.draft) in failed[-1]:
                continue
            try:
                taken[-1] = self.draft.take(entry, place.leaf, place.claim)
            except AllocationError:
                continue  # there is an answer without this device
            if taken[-1] is not None:
                return True
        return False

    def _chosen(self) -> list[tuple[int, list[Choice]]]:
        return list(enumerate(self.draft.choices))

    def _result_order(self, claim: int) -> Callable[[Choice], tuple[int, int]]:
        leaves = {leaf: position for position, leaf in enumerate(self.found.chosen[claim])}
        return lambda choice: (leaves[choice.leaf], self.order[choice.entry])

    def _cost(self, draft: Draft) -> Cost:
        broken, left = self._broken(draft)
        order = tuple(self.order[choice.entry] for choices in draft.choices for choice in choices)
        size = sum(
            self._size(choice.entry) for choices in draft.choices for choice in choices if not choice.entry.shareable
        )
        return broken, left, self._left_in_groups(draft), size, tuple(sorted(order))

    def _broken(self, draft: Draft) -> tuple[int, int]:
        """Partly used shareable devices and counter sets among those touched, and what is left over in them."""
        broken = left = 0
        seen: set[Hashable] = set()
        drawn: dict[tuple[int, tuple[str, str]], int] = {}
        for choices in draft.choices:
            for choice in choices:
                entry = choice.entry
                if entry.shareable and entry.id not in seen:
                    seen.add(entry.id)
                    free = self._free_parts(entry, draft)
                    broken += free > 0
                    left += free
                pool = draft.view.counters.get(entry)
                if pool is not None:
                    for key, amount in consumption(entry).items():
                        drawn[id(pool), key] = drawn.get((id(pool), key), 0) + amount
        pools = {id(pool): pool for pool in draft.view.counters.values()}
        by_set: dict[tuple[int, str], int] = {}
        for (identity, key), amount in drawn.items():
            pool = pools[identity]
            published = pool.published.get(key, 0)
            if published > 0:
                free = max(0, pool.available[key] - amount) * _WHOLE // published
                by_set[identity, key[0]] = max(by_set.get((identity, key[0]), 0), free)
        for free in by_set.values():
            broken += free > 0
            left += free
        return broken, left

    @staticmethod
    def _free_parts(entry: DeviceEntry, draft: Draft) -> int:
        drafted = draft.consumed.get(entry.id, {})
        parts = [
            (capacity.value.nano - entry.state.consumed.get(name, 0) - drafted.get(name, 0))
            * _WHOLE
            // capacity.value.nano
            for name, capacity in entry.capacity.items()
            if capacity.value.nano > 0
        ]
        return min(parts, default=0)

    def _left_in_groups(self, draft: Draft) -> int:
        """Free devices that share the values chosen by matchAttribute."""
        left = 0
        for claim, states in enumerate(draft.states):
            for index, state in enumerate(states):
                if not isinstance(state, MatchState) or state.common is None:
                    continue
                attribute = draft.plans[claim].constraints[index].attribute
                counted: set[DeviceEntry] = set()
                for leaf in self.found.chosen[claim]:
                    if index not in leaf.constraints:
                        continue
                    for entry in self.devices[leaf]:
                        if entry in counted or draft.in_use(entry, leaf, claim):
                            continue
                        values = draft.reader.read(entry, attribute, leaf)
                        if values is not None and values.values & state.common:
                            counted.add(entry)
                left += len(counted)
        return left
