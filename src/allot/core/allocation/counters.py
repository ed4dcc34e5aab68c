"""Shared counters and compatibility groups of one pool: what partitions of a device can exist side by side.

`PoolCounters` can follow the ledger (`taken`, `released`); a search works on a `CounterDraft` on top of it, which can be
undone step by step.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from allot.core.allocation.accounting import CounterKey, consumed_counters, published_counters
from allot.core.allocation.devices import DeviceEntry
from allot.core.model.resource_v1 import CounterSet

# Groups that all devices on a counter set have in common so far: None means no device yet, the empty set "only devices
# without groups", anything else the running intersection.
Groups = frozenset[str] | None


class PoolCounters:
    """Counters of a pool, less what allocated devices take from them. A negative amount means overcommitted."""

    __slots__ = ("_by_set", "_negative", "_was_overcommitted", "available", "devices", "published", "sets")

    def __init__(self, sets: Mapping[str, CounterSet], devices: Iterable[DeviceEntry]) -> None:
        self.sets = sets
        self.published = published_counters(sets.values())
        self.available = dict(self.published)
        # How many counters are overcommitted.
        self._negative = 0
        self.devices = tuple(entry for entry in devices if entry.device.consumes_counters)
        self._by_set: dict[str, list[DeviceEntry]] = {}
        for entry in self.devices:
            for consumed in entry.device.consumes_counters:
                self._by_set.setdefault(consumed.counter_set, []).append(entry)
            if entry.state.allocated:
                self._add(entry, -1)
        self._was_overcommitted = self.overcommitted

    def attach(self) -> None:
        """Follow the ledger from now on."""
        for entry in self.devices:
            entry.state.counters.append((self, entry))

    def detach(self) -> None:
        """Stop following the ledger, because the pool has changed."""
        for entry in self.devices:
            links = entry.state.counters
            links[:] = [link for link in links if link[0] is not self or link[1] is not entry]

    def taken(self, entry: DeviceEntry) -> None:
        """The device has become allocated."""
        self._add(entry, -1)

    def released(self, entry: DeviceEntry) -> None:
        """The device is no longer allocated."""
        self._add(entry, 1)

    def _add(self, entry: DeviceEntry, sign: int) -> None:
        available = self.available
        for key, amount in consumption(entry).items():
            if key in available:
                before = available[key]
                available[key] = after = before + sign * amount
                self._negative += (after < 0) - (before < 0)

    @property
    def overcommitted(self) -> bool:
        """Whether any counter is overcommitted: that blocks every device that consumes counters, as upstream (F08)."""
        return self._negative > 0

    def touched(self, entry: DeviceEntry) -> Iterator[DeviceEntry]:
        """Devices that may have become available or unavailable since this one was taken or released, itself included."""
        if self._was_overcommitted != self.overcommitted:
            self._was_overcommitted = self.overcommitted
            yield from self.devices
            return
        for consumed in entry.device.consumes_counters:
            yield from self._by_set[consumed.counter_set]

    def shortage(self, entry: DeviceEntry) -> tuple[CounterKey, int, int] | None:
        """The first counter that is insufficient for the device: (counter, needed, available)."""
        if self.overcommitted:
            key = min(key for key, amount in self.available.items() if amount < 0)
            return key, 0, self.available[key]
        for key, amount in consumption(entry).items():
            if amount > self.available.get(key, 0):
                return key, amount, self.available.get(key, 0)
        return None

    def groups(self, counter_set: str) -> Groups:
        """Compatibility groups common to the allocated devices on a counter set."""
        common: Groups = None
        for entry in self.devices:
            if entry.state.allocated:
                for consumed in entry.device.consumes_counters:
                    if consumed.counter_set == counter_set:
                        common = joined(common, frozenset(consumed.compatibility_groups))
        return common


def consumption(entry: DeviceEntry) -> dict[CounterKey, int]:
    """What a device takes from each counter. Computed once; do not modify."""
    if entry.drawn is None:
        entry.drawn = consumed_counters(entry.device)
    return entry.drawn


def admits(common: Groups, groups: frozenset[str]) -> bool:
    """Whether a device with these groups may join the devices on the counter set."""
    if common is None:
        return True
    if not groups or not common:
        return not groups and not common
    return bool(common & groups)


def joined(common: Groups, groups: frozenset[str]) -> Groups:
    """The common groups after a device has joined."""
    if common is None:
        return groups
    if not common or not groups:
        return common
    # An empty intersection would read as "only devices without groups"; upstream keeps it as "nobody may join".
    return common & groups or _NOBODY


_NOBODY = frozenset({"\0nobody"})


class CounterDraft:
    """What a search has taken from the counters of the pools so far."""

    __slots__ = ("_check_groups", "_common", "_taken")

    def __init__(self, check_groups: bool) -> None:
        self._check_groups = check_groups
        self._taken: dict[int, dict[CounterKey, int]] = {}
        self._common: dict[tuple[int, str], Groups] = {}

    def take(self, pool: PoolCounters, entry: DeviceEntry) -> Undo | None:
        """Take the device's counters; None if there are not enough or its groups are incompatible with the others."""
        identity = id(pool)
        before: Undo = []
        if pool.overcommitted:
            return None
        if self._check_groups:
            for consumed in entry.device.consumes_counters:
                key = (identity, consumed.counter_set)
                common = self._common[key] if key in self._common else pool.groups(consumed.counter_set)
                groups = frozenset(consumed.compatibility_groups)
                if not admits(common, groups):
                    self.undo(before)
                    return None
                before.append((self._common, key, self._common.get(key, _ABSENT)))
                self._common[key] = joined(common, groups)
        taken = self._taken.setdefault(identity, {})
        needed = consumption(entry)
        available = pool.available
        for counter, amount in needed.items():
            if taken.get(counter, 0) + amount > available.get(counter, 0):
                self.undo(before)
                return None
        for counter, amount in needed.items():
            before.append((taken, counter, taken.get(counter, _ABSENT)))
            taken[counter] = taken.get(counter, 0) + amount
        return before

    def taken(self, pool: PoolCounters, counter: CounterKey) -> int:
        """What has been taken of a counter so far."""
        return self._taken.get(id(pool), {}).get(counter, 0)

    def undo(self, before: Undo) -> None:
        """Give back what one `take` took."""
        for table, key, value in reversed(before):
            if value is _ABSENT:
                del table[key]
            else:
                table[key] = value


_ABSENT = object()
# (table, key, value before): tables of different value types, hence object.
Undo = list[tuple[dict, object, object]]  # type: ignore[type-arg]
