"""Which claims hold which devices, for an API server: enough to refuse a double allocation.

Reads claims and slices as the JSON values that the server stores, and only the few fields that matter; the allocator has its
own, richer ledger. A check or a change costs what the claim's own devices cost, not what the cluster holds. Devices that no
slice publishes count like others: they can be held by one claim only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from allot.core.allocation.accounting import CounterKey, excludes
from allot.core.allocation.devices import ClaimID, DeviceID
from allot.core.allocation.features import Features
from allot.core.quantity import Format, Quantity

Object = Mapping[str, Any]
_PoolID = tuple[str, str]  # driver, pool

_HOLDERS_TOLD_MAX = 3
_KIBI_NANO = 1024 * 10**9


class Held(NamedTuple):
    """A device, or a share of one, that an allocation contains. Amounts are nano units."""

    device: DeviceID
    # The shareID; empty if the whole device is held.
    share: str = ""
    consumed: tuple[tuple[str, int], ...] = ()


class Conflict(msgspec.Struct, frozen=True, kw_only=True):
    """Why an allocation cannot be stored beside those of others."""

    text: str
    holders: tuple[ClaimID, ...]


class Holdings:
    """What all claims hold."""

    def __init__(self, features: Features) -> None:
        self._features = features
        self._by_claim: dict[ClaimID, tuple[Held, ...]] = {}
        self._by_device: dict[DeviceID, list[tuple[ClaimID, Held]]] = {}
        self._pools: dict[_PoolID, _Pool] = {}
        self._pool_of_slice: dict[str, _PoolID] = {}

    # --- claims ---

    def read(self, allocation: Object | None) -> tuple[Held, ...]:
        """What an allocation takes from others. Admin access takes nothing."""
        if not allocation:
            return ()
        results = (allocation.get("devices") or {}).get("results") or ()
        return tuple(self._held(result) for result in results if not result.get("adminAccess"))

    def _held(self, result: Object) -> Held:
        id_ = DeviceID(result["driver"], result["pool"], result["device"])
        share = result.get("shareID") if self._features.consumable_capacity else None
        if not share:
            return Held(id_)
        consumed = result.get("consumedCapacity") or {}
        return Held(id_, share, tuple((name, _nano(amount)) for name, amount in consumed.items()))

    def claims(self) -> set[ClaimID]:
        """Claims that hold something."""
        return set(self._by_claim)

    def of(self, claim: ClaimID) -> tuple[Held, ...]:
        """What a claim holds."""
        return self._by_claim.get(claim, ())

    def hold(self, claim: ClaimID, held: tuple[Held, ...]) -> None:
        """From now on the claim holds exactly this."""
        before = self._by_claim.get(claim, ())
        if before == held:
            return
        for part in before:
            self._give(claim, part)
        if not held:
            self._by_claim.pop(claim, None)
            return
        self._by_claim[claim] = held
        for part in held:
            self._take(claim, part)

    def _take(self, claim: ClaimID, part: Held) -> None:
        holders = self._by_device.get(part.device)
        if holders is None:
            self._by_device[part.device] = [(claim, part)]
            self._count(part.device, 1)
        else:
            holders.append((claim, part))

    def _give(self, claim: ClaimID, part: Held) -> None:
        holders = self._by_device[part.device]
        holders.remove((claim, part))
        if not holders:
            del self._by_device[part.device]
            self._count(part.device, -1)

    def _count(self, device: DeviceID, sign: int) -> None:
        pool = self._pools.get(device[:2])
        if pool is not None:
            pool.count(device.device, sign)

    # --- slices ---

    def slices(self) -> set[str]:
        """Names of slices."""
        return set(self._pool_of_slice)

    def put_slice(self, name: str, spec: Object) -> None:
        """A slice as stored."""
        id_ = (spec.get("driver", ""), (spec.get("pool") or {}).get("name", ""))
        before = self._pool_of_slice.get(name)
        if before is not None and before != id_:
            self.delete_slice(name)
        pool = self._pools.get(id_)
        if pool is None:
            pool = self._pools[id_] = _Pool()
        self._pool_of_slice[name] = id_
        pool.put(name, _read_slice(spec, self._features))

    def delete_slice(self, name: str) -> None:
        """A slice is gone."""
        id_ = self._pool_of_slice.pop(name, None)
        if id_ is None:
            return
        pool = self._pools[id_]
        pool.delete(name)
        if not pool.slices:
            del self._pools[id_]

    # --- the check ---

    def conflict(self, claim: ClaimID, held: Sequence[Held]) -> Conflict | None:
        """Why the claim cannot hold this beside what others hold; None if it can."""
        for part in held:
            found = self._device_conflict(claim, part)
            if found is not None:
                return found
        return self._capacity_conflict(claim, held) or self._counter_conflict(claim, held)

    def _device_conflict(self, claim: ClaimID, part: Held) -> Conflict | None:
        for holder, other in self._by_device.get(part.device, ()):
            if holder == claim or not excludes(part.share, other.share):
                continue
            what = f"share {part.share} of device {part.device}" if part.share else f"device {part.device}"
            how = "is allocated" if not other.share or part.share == other.share else "is allocated in shares"
            return Conflict(text=f"{what} {how} to claim {holder} already", holders=(holder,))
        return None

    def _capacity_conflict(self, claim: ClaimID, held: Sequence[Held]) -> Conflict | None:
        wanted: dict[DeviceID, dict[str, int]] = {}
        for part in held:
            if part.share:
                amounts = wanted.setdefault(part.device, {})
                for name, amount in part.consumed:
                    amounts[name] = amounts.get(name, 0) + amount
        for device, amounts in wanted.items():
            pool = self._pools.get(device[:2])
            published = pool.capacity(device.device) if pool is not None else None
            if published is None:
                continue
            others = [(holder, part) for holder, part in self._by_device.get(device, ()) if holder != claim]
            for name, amount in amounts.items():
                there = published.get(name)
                taken = sum(value for _, part in others for key, value in part.consumed if key == name)
                if there is not None and taken and amount + taken > there:
                    holders = tuple(dict.fromkeys(holder for holder, _ in others))
                    text = (
                        f"capacity {name} of device {device}: {_text(amount)} of {_text(there)} asked for, "
                        f"{_text(taken)} allocated to {_told(holders)} already"
                    )
                    return Conflict(text=text, holders=holders)
        return None

    def _counter_conflict(self, claim: ClaimID, held: Sequence[Held]) -> Conflict | None:
        if not self._features.partitionable_devices:
            return None
        wanted: dict[_PoolID, dict[CounterKey, int]] = {}
        for id_ in dict.fromkeys(part.device for part in held):
            pool = self._pools.get(id_[:2])
            if pool is None or not pool.has_counters:
                continue
            if any(holder != claim for holder, _ in self._by_device.get(id_, ())):
                continue  # shared with others, which already account for it
            needed = wanted.setdefault(id_[:2], {})
            for counter, amount in pool.consumption(id_.device).items():
                needed[counter] = needed.get(counter, 0) + amount
        for pool_id, needed in wanted.items():
            found = self._pool_conflict(claim, pool_id, needed)
            if found is not None:
                return found
        return None

    def _pool_conflict(self, claim: ClaimID, pool_id: _PoolID, needed: Mapping[CounterKey, int]) -> Conflict | None:
        pool = self._pools[pool_id]
        own = self._own_consumption(claim, pool_id, pool)
        for counter, amount in needed.items():
            there = pool.counters.get(counter)
            taken = pool.taken(self._held_devices(pool_id, pool)).get(counter, 0) - own.get(counter, 0)
            if there is None or not amount or not taken or taken + amount <= there:
                continue
            holders = self._holders_of(counter, pool_id, pool, claim)
            text = (
                f"counter {counter[1]} of counter set {counter[0]} of pool {'/'.join(pool_id)}: {_text(amount)} of "
                f"{_text(there)} asked for, {_text(taken)} allocated to {_told(holders)} already"
            )
            return Conflict(text=text, holders=holders)
        return None

    def _own_consumption(self, claim: ClaimID, pool_id: _PoolID, pool: _Pool) -> dict[CounterKey, int]:
        """What the claim already takes from counters and would release or keep, not counting devices of others."""
        own: dict[CounterKey, int] = {}
        for id_ in dict.fromkeys(part.device for part in self.of(claim)):
            if id_[:2] == pool_id and all(holder == claim for holder, _ in self._by_device[id_]):
                for counter, amount in pool.consumption(id_.device).items():
                    own[counter] = own.get(counter, 0) + amount
        return own

    def _held_devices(self, pool_id: _PoolID, pool: _Pool) -> Iterable[str]:
        return (name for name in pool.devices_with_counters if DeviceID(*pool_id, name) in self._by_device)

    def _holders_of(self, counter: CounterKey, pool_id: _PoolID, pool: _Pool, claim: ClaimID) -> tuple[ClaimID, ...]:
        found: dict[ClaimID, None] = {}
        for name in pool.devices_with_counters:
            if pool.consumption(name).get(counter):
                for holder, _ in self._by_device.get(DeviceID(*pool_id, name), ()):
                    if holder != claim:
                        found[holder] = None
        return tuple(found)


class _Slice(NamedTuple):
    """The relevant parts of a slice."""

    generation: int
    counters: dict[CounterKey, int]
    consumption: dict[str, dict[CounterKey, int]]
    # For devices that are allocated in shares.
    capacity: dict[str, dict[str, int]]


class _Pool:
    """The slices of a pool; its newest generation is merged on demand."""

    __slots__ = ("_capacity", "_consumption", "_counters", "_merged", "_taken", "slices")

    def __init__(self) -> None:
        self.slices: dict[str, _Slice] = {}
        self._merged = False
        self._counters: dict[CounterKey, int] = {}
        self._consumption: dict[str, dict[CounterKey, int]] = {}
        self._capacity: dict[str, dict[str, int]] = {}
        # What held devices take; None until first needed.
        self._taken: dict[CounterKey, int] | None = None

    def put(self, name: str, slice_: _Slice) -> None:
        self.slices[name] = slice_
        self._merged, self._taken = False, None

    def delete(self, name: str) -> None:
        del self.slices[name]
        self._merged, self._taken = False, None

    def _merge(self) -> None:
        newest = max(slice_.generation for slice_ in self.slices.values())
        self._counters, self._consumption, self._capacity = {}, {}, {}
        for slice_ in self.slices.values():
            if slice_.generation == newest:
                self._counters.update(slice_.counters)
                self._consumption.update(slice_.consumption)
                self._capacity.update(slice_.capacity)
        self._merged = True

    @property
    def counters(self) -> Mapping[CounterKey, int]:
        """The total of each counter."""
        if not self._merged:
            self._merge()
        return self._counters

    @property
    def has_counters(self) -> bool:
        """Whether the pool has counters."""
        return bool(self.counters)

    @property
    def devices_with_counters(self) -> Iterable[str]:
        """Devices that take from counters."""
        if not self._merged:
            self._merge()
        return self._consumption

    def consumption(self, device: str) -> Mapping[CounterKey, int]:
        """What a device takes while it is held."""
        if not self._merged:
            self._merge()
        return self._consumption.get(device, {})

    def capacity(self, device: str) -> Mapping[str, int] | None:
        """The capacity of a device that is allocated in shares; None if it is not, or is unknown."""
        if not self._merged:
            self._merge()
        return self._capacity.get(device)

    def taken(self, held: Iterable[str]) -> Mapping[CounterKey, int]:
        """What is taken from each counter. held: the held devices, read only after slices have changed."""
        if self._taken is None:
            self._taken = {}
            for device in held:
                self._add(self._taken, device, 1)
        return self._taken

    def count(self, device: str, sign: int) -> None:
        """A device is held by its first claim, or no longer by any."""
        if self._taken is not None:
            self._add(self._taken, device, sign)

    def _add(self, taken: dict[CounterKey, int], device: str, sign: int) -> None:
        for counter, amount in self.consumption(device).items():
            taken[counter] = taken.get(counter, 0) + sign * amount


def _read_slice(spec: Object, features: Features) -> _Slice:
    counters: dict[CounterKey, int] = {}
    consumption: dict[str, dict[CounterKey, int]] = {}
    capacity: dict[str, dict[str, int]] = {}
    for set_ in spec.get("sharedCounters") or ():
        for name, counter in (set_.get("counters") or {}).items():
            counters[set_["name"], name] = _nano(counter["value"])
    for device in spec.get("devices") or ():
        consumed = device.get("consumesCounters")
        if consumed:
            takes = consumption.setdefault(device["name"], {})
            for set_ in consumed:
                for name, counter in (set_.get("counters") or {}).items():
                    key = (set_["counterSet"], name)
                    takes[key] = takes.get(key, 0) + _nano(counter["value"])
        if features.consumable_capacity and device.get("allowMultipleAllocations"):
            published = device.get("capacity") or {}
            capacity[device["name"]] = {name: _nano(value["value"]) for name, value in published.items()}
    generation = (spec.get("pool") or {}).get("generation") or 0
    return _Slice(generation, counters, consumption, capacity)


def _nano(amount: Any) -> int:
    return Quantity.parse(str(amount)).nano


def _text(nano: int) -> str:
    """In the usual notation for such amounts: a multiple of 1Ki is taken for memory."""
    binary = nano and nano % _KIBI_NANO == 0
    return str(Quantity.from_nano(nano, Format.BINARY_SI if binary else Format.DECIMAL_SI))


def _told(holders: Sequence[ClaimID]) -> str:
    shown = ", ".join(str(holder) for holder in holders[:_HOLDERS_TOLD_MAX])
    more = len(holders) - _HOLDERS_TOLD_MAX
    noun = "claim" if len(holders) == 1 else "claims"
    return f"{noun} {shown}" + (f" and {more} more" if more > 0 else "")
