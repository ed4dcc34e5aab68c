"""The currently published devices: the newest generation of each pool, with the state of each device.

A *unit* can be allocated by itself: a device, or everything that consumes one counter set, such as a GPU with all
its possible partitions. Counting units avoids counting a GPU once for each partition.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from enum import StrEnum

import msgspec

from allot.core.advice.usage.reach import Reach, anybodys_reach
from allot.core.advice.what_if import WhatIfCluster
from allot.core.allocation.counters import CounterDraft, PoolCounters, consumption
from allot.core.allocation.devices import DeviceEntry, attribute_value
from allot.core.allocation.inventory import Inventory, node_of
from allot.core.allocation.pools import PoolID
from allot.core.model import resource_v1 as api
from allot.core.model.resource_v1 import EFFECT_NO_EXECUTE, EFFECT_NO_SCHEDULE

# Attributes that name a device's model, best first; each driver has its own names.
_MODEL_ATTRIBUTES = ("productName", "model", "accelerator", "pciDevice", "type")
_PARTITION_ATTRIBUTES = ("profile", "type")
_KEEPS_OFF = (EFFECT_NO_SCHEDULE, EFFECT_NO_EXECUTE)


class State(StrEnum):
    """The state of a device or unit."""

    FREE = "free"
    # Some of it is in use, and some is free.
    PARTLY = "partly"
    IN_USE = "in use"
    # Not in use, but something else uses what it needs.
    BLOCKED = "blocked"
    # Not in use, but tainted, on a node that accepts no pods, or in an incomplete pool.
    UNAVAILABLE = "unavailable"


class PublishedPool(msgspec.Struct, frozen=True, kw_only=True):
    """A pool in its newest generation."""

    id: PoolID
    generation: int
    slices: int
    slices_expected: int
    entries: tuple[DeviceEntry, ...]
    counters: PoolCounters | None = None
    # Devices by the counters that they draw on.
    drawing: Mapping[str, tuple[DeviceEntry, ...]] = {}
    check_groups: bool = False
    # What the caller's pods can reach.
    reach: Reach
    # The attribute that distinguishes kinds of partitions, if a slice names one.
    partition_attribute: str = ""

    @property
    def is_complete(self) -> bool:
        """Whether all slices exist; until then its devices are unavailable."""
        return self.slices >= self.slices_expected


def published_pools(what_if: WhatIfCluster, reach: Reach | None = None) -> tuple[PublishedPool, ...]:
    """All pools, in order of their names. reach: what the caller's pods can reach."""
    reach = reach or anybodys_reach(what_if)
    by_pool: dict[PoolID, list[api.ResourceSlice]] = {}
    for slice_ in what_if.all(api.ResourceSlice):
        by_pool.setdefault(PoolID(slice_.spec.driver, slice_.spec.pool.name), []).append(slice_)
    inventory = what_if.claims.inventory
    return tuple(published_pool(inventory, id_, slices, reach) for id_, slices in sorted(by_pool.items()))


def published_pool(
    inventory: Inventory, id_: PoolID, slices: Collection[api.ResourceSlice], reach: Reach
) -> PublishedPool:
    """One pool, given all of its slices; there is at least one."""
    newest = max(slice_.spec.pool.generation for slice_ in slices)
    current = {slice_.metadata.name: slice_ for slice_ in slices if slice_.spec.pool.generation == newest}
    entries = tuple(entry for name in current for entry in inventory.devices_of(name))
    sets = {counters.name: counters for slice_ in current.values() for counters in slice_.spec.shared_counters or ()}
    drawing: dict[str, list[DeviceEntry]] = {}
    for entry in entries:
        if entry.device.consumes_counters:
            drawing.setdefault(draws_on(entry), []).append(entry)
    return PublishedPool(
        id=id_,
        reach=reach,
        generation=newest,
        slices=len(current),
        slices_expected=max(slice_.spec.pool.resource_slice_count for slice_ in current.values()),
        entries=entries,
        counters=PoolCounters(sets, entries) if sets else None,
        drawing={name: tuple(members) for name, members in drawing.items()},
        check_groups=any(c.compatibility_groups for entry in entries for c in entry.device.consumes_counters),
        partition_attribute=next((s.spec.partition_type_attribute or "" for s in current.values()), ""),
    )


# --- what a device is ---


def model_of(entry: DeviceEntry) -> str:
    """What kind of thing a device is, in its driver's words; the driver's name if it does not say."""
    return _first_text(entry, _MODEL_ATTRIBUTES) or entry.id.driver


def partition_of(pool: PublishedPool, entry: DeviceEntry) -> str:
    """Which kind of partition a device is; empty if it is no partition."""
    if not entry.device.consumes_counters:
        return ""
    names = (pool.partition_attribute, *_PARTITION_ATTRIBUTES) if pool.partition_attribute else _PARTITION_ATTRIBUTES
    return _first_text(entry, names) or entry.id.device


def attributes_of(entry: DeviceEntry) -> dict[str, object]:
    """Attributes by the names under which they were published."""
    found = ((name, attribute_value(attribute)) for name, attribute in entry.attributes.items())
    return {name: value[1] for name, value in found if value is not None}


def _first_text(entry: DeviceEntry, names: Iterable[str]) -> str:
    attributes = entry.attributes
    for name in names:
        for qualified in (name, f"{entry.id.driver}/{name}"):
            if qualified in attributes and attributes[qualified].string:
                return attributes[qualified].string or ""
    return ""


def node_name(entry: DeviceEntry) -> str:
    """The one node that can use the device; empty if several can."""
    return node_of(entry) or ""


def keeping_off(entry: DeviceEntry) -> tuple[api.DeviceTaint, ...]:
    """Taints that keep claims without tolerations from the device."""
    return tuple(taint for taint in entry.taints if taint.effect in _KEEPS_OFF)


# --- availability ---


def device_state(pool: PublishedPool, entry: DeviceEntry) -> State:
    """The state of one device."""
    state = entry.state
    if state.allocated:
        is_open = not state.claims and entry.shareable and has_room(entry) and pool.reach.includes(entry)
        return State.PARTLY if is_open else State.IN_USE
    if not pool.is_complete or not pool.reach.includes(entry):
        return State.UNAVAILABLE
    return State.FREE if Remaining(pool).take(entry) else State.BLOCKED


def has_room(entry: DeviceEntry) -> bool:
    """Whether something is left of every capacity of a device that can be shared."""
    return all(entry.state.consumed.get(name, 0) < capacity.value.nano for name, capacity in entry.capacity.items())


class Remaining:
    """What is left of a pool's counters when free devices are taken one after another."""

    def __init__(self, pool: PublishedPool) -> None:
        self._counters = pool.counters
        # Without groups all that matters is how much of each counter has been taken.
        self._draft = CounterDraft(check_groups=True) if pool.check_groups else None
        self._taken: dict[tuple[str, str], int] = {}

    def take(self, entry: DeviceEntry) -> bool:
        """Whether there is enough for a device; if so, it has it."""
        counters = self._counters
        if counters is None or not entry.device.consumes_counters:
            return not entry.device.consumes_counters
        if self._draft is not None:
            return self._draft.take(counters, entry) is not None
        if counters.overcommitted:
            return False
        available, taken, needed = counters.available, self._taken, consumption(entry)
        for counter, amount in needed.items():
            if amount + taken.get(counter, 0) > available.get(counter, 0):
                return False
        for counter, amount in needed.items():
            taken[counter] = taken.get(counter, 0) + amount
        return True


class Unit(msgspec.Struct, frozen=True):
    """A device, or the devices that draw on the same counters."""

    pool: PublishedPool
    entries: tuple[DeviceEntry, ...]
    # Empty for a device without counters.
    counter_set: str = ""

    @property
    def node(self) -> str:
        """The one node that can use it; empty if several can."""
        return node_name(self.entries[0])

    def users(self) -> Iterator[DeviceEntry]:
        """Devices in use, also such as are not looked for but draw on the same counters."""
        everyone = self.pool.drawing[self.counter_set] if self.counter_set else self.entries
        return (entry for entry in everyone if entry.state.allocated)

    def state(self) -> State:
        """Its availability."""
        if not self.counter_set:
            return device_state(self.pool, self.entries[0])
        in_use = any(True for _ in self.users())
        if any(device_state(self.pool, entry) is State.FREE for entry in self.entries):
            return State.PARTLY if in_use else State.FREE
        return State.IN_USE if in_use else State.UNAVAILABLE


def draws_on(entry: DeviceEntry) -> str:
    """The counters that a device draws on; empty if none."""
    consumed = entry.device.consumes_counters
    return consumed[0].counter_set if consumed else ""


def units_of(pool: PublishedPool, entries: Iterable[DeviceEntry]) -> Iterator[Unit]:
    """Everything in a pool that can be handed out by itself, as far as it consists of these devices."""
    sets: dict[str, list[DeviceEntry]] = {}
    for entry in entries:
        counter_set = draws_on(entry)
        if counter_set:
            sets.setdefault(counter_set, []).append(entry)
        else:
            yield Unit(pool, (entry,))
    for counter_set, members in sets.items():
        yield Unit(pool, tuple(members), counter_set)
