"""Which earlier decisions of a search prevent choosing a device now.

Decisions are numbered by depth; a set of them is a bit mask. A set that is too large costs time, one that is too small loses
solutions: where the cause is not known exactly, everything that could matter is in it.
"""

from __future__ import annotations

from collections.abc import Iterable

from allot.core.allocation.devices import DeviceEntry, DeviceID
from allot.core.allocation.draft import Draft
from allot.core.allocation.errors import AllocationError
from allot.core.allocation.plan import Leaf


class ConflictSets:
    """The decisions that a device conflicts with, indexed by what they took."""

    __slots__ = ("_constraints", "_devices", "_draft", "_pools")

    def __init__(self, draft: Draft) -> None:
        self._draft = draft
        self._devices: dict[DeviceID, int] = {}
        self._pools: dict[int, int] = {}
        # By claim and constraint: decisions that chose a device covered by it.
        self._constraints: dict[tuple[int, int], int] = {}

    def took(self, depth: int, entry: DeviceEntry, leaf: Leaf, claim: int) -> None:
        """A decision took a device."""
        bit = 1 << depth
        self._devices[entry.id] = self._devices.get(entry.id, 0) | bit
        pool = self._draft.view.counters.get(entry)
        if pool is not None:
            self._pools[id(pool)] = self._pools.get(id(pool), 0) | bit
        for index in leaf.constraints:
            self._constraints[claim, index] = self._constraints.get((claim, index), 0) | bit

    def gave_back(self, depth: int, entry: DeviceEntry, leaf: Leaf, claim: int) -> None:
        """The decision was reverted."""
        keep = ~(1 << depth)
        if entry.id in self._devices:
            self._devices[entry.id] &= keep
        pool = self._draft.view.counters.get(entry)
        if pool is not None and id(pool) in self._pools:
            self._pools[id(pool)] &= keep
        for index in leaf.constraints:
            if (claim, index) in self._constraints:
                self._constraints[claim, index] &= keep

    def of(self, entry: DeviceEntry, leaf: Leaf, claim: int) -> int:
        """Decisions that prevent taking the device for the leaf. One reason is enough."""
        if self._draft.in_use(entry, leaf, claim):
            return self._devices.get(entry.id, 0)
        violated = self._violated(entry, leaf, claim)
        if violated is not None:
            return violated
        return self._resources(entry)

    def of_all(self, entries: Iterable[DeviceEntry], leaf: Leaf, claim: int) -> int:
        """Decisions that could be why the leaf does not get enough of the devices."""
        culprits = 0
        for index in leaf.constraints:
            culprits |= self._constraints.get((claim, index), 0)
        for entry in entries:
            culprits |= self._resources(entry)
        return culprits

    def _resources(self, entry: DeviceEntry) -> int:
        pool = self._draft.view.counters.get(entry)
        drawn = self._pools.get(id(pool), 0) if pool is not None else 0
        return self._devices.get(entry.id, 0) | drawn

    def _violated(self, entry: DeviceEntry, leaf: Leaf, claim: int) -> int | None:
        """Decisions behind the first constraint that the device violates; None if it violates none."""
        plan, states = self._draft.plans[claim], self._draft.states[claim]
        for index in leaf.constraints:
            try:
                values = self._draft.reader.read(entry, plan.constraints[index].attribute, leaf)
            except AllocationError:
                return -1  # every decision
            if values is None:
                return 0  # none: it never fits
            if states[index].add(values) is None:
                return self._constraints.get((claim, index), 0)
        return None
