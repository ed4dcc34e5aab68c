"""Devices made of numbered slots, such as the memory slices of a GPU: enough slots are free, but not those that belong together."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from allot.core.advice.explain.causes.placing import Placing
from allot.core.advice.explain.devices import device_id
from allot.core.advice.explain.holding import possessor
from allot.core.advice.explain.wording import count, listed, named
from allot.core.allocation.devices import DeviceEntry, DeviceID
from allot.core.model import resource_v1 as api

_NUMBER = re.compile(r"[-_]?[0-9]+$")
_ONE = 10**9
_SHOWN_MAX = 4
_SETS_MAX = 3


# Driver, pool, counter set, and what slots are called before their number.
_Group = tuple[str, str, str, str]


class _Slot(NamedTuple):
    """A counter of 1, one of several with the same name but for a number."""

    driver: str
    pool: str
    set_name: str
    name: str

    @property
    def group(self) -> _Group:
        return self.driver, self.pool, self.set_name, _NUMBER.sub("", self.name)


def fragmented(placing: Placing, devices: Sequence[str]) -> str:
    """How the slots of devices are in use, phrased to follow the devices, although enough of them are free; empty if that is not what is
    wrong. devices: one for each slot that is in use, and that it needs."""
    entries = [
        entry for device in devices for entry in placing.what_if.claims.inventory.devices_named(device_id(device))[:1]
    ]
    there = _slots(placing)
    taken = _taken(placing, there)
    sizes: dict[_Group, int] = {}
    blocked: dict[_Group, dict[str, None]] = {}
    nodes: dict[_Group, str] = {}
    needed = 0
    for entry in entries:
        slots = [slot for slot in _drawn(entry) if slot in there]
        held = [slot for slot in slots if slot in taken]
        if not held:
            return ""
        group = held[0].group
        sizes.setdefault(group, sum(slot.group == group for slot in there))
        nodes[group] = entry.slice.spec.node_name or ""
        needed = max(needed, sum(slot.group == group for slot in slots))
        blocked.setdefault(group, {})[f"{held[0].name} by {taken[held[0]]}"] = None
    free = {group: size - sum(slot.group == group for slot in taken) for group, size in sizes.items()}
    if (
        len(entries) < len(devices)
        or len({group[3] for group in sizes}) != 1
        or max(free.values()) < needed
        or needed < 2
    ):
        return ""
    enough = [group for group in sizes if free[group] >= needed]
    texts = [
        f"{f'on node {nodes[group]}, ' if nodes[group] else ''}{free[group]} of {sizes[group]} {group[3]} counters of {group[2]} are free, but "
        f"each such {needed} include one in use ({listed(blocked[group], _SHOWN_MAX)})"
        for group in enough[:1]
    ]
    texts += [
        f"likewise {free[group]} of {sizes[group]} of {group[2]}{f' on node {nodes[group]}' if nodes[group] else ''} "
        f"({listed(blocked[group], _SHOWN_MAX)})"
        for group in enough[1:_SETS_MAX]
    ]
    texts += [f"and {count(len(enough) - _SETS_MAX, 'more counter set')}"] if len(enough) > _SETS_MAX else []
    profiles = sorted({text for entry in entries if (text := _profile(entry))})
    what = f" ({named('profile', profiles)})" if profiles else ""
    texts += [
        f"{group[2]}{f' of node {nodes[group]}' if nodes[group] else ''} has {free[group]} of {sizes[group]} free (in use by {_users(group, taken)})"
        for group in [group for group in sizes if group not in enough][:_SETS_MAX]
    ]
    return f"{'needs' if len(entries) == 1 else 'need'} {needed} slots that belong together{what}: {'; '.join(texts)}"


def _users(group: _Group, taken: Mapping[_Slot, str]) -> str:
    return listed(dict.fromkeys(who for slot, who in taken.items() if slot.group == group))


def _slots(placing: Placing) -> set[_Slot]:
    return {
        _Slot(slice_.spec.driver, slice_.spec.pool.name, set_.name, name)
        for slice_ in placing.what_if.all(api.ResourceSlice)
        for set_ in slice_.spec.shared_counters or ()
        for name, counter in set_.counters.items()
        if counter.value.nano == _ONE and _NUMBER.search(name)
    }


def _drawn(entry: DeviceEntry) -> Iterator[_Slot]:
    for each in entry.device.consumes_counters:
        for name, counter in each.counters.items():
            if counter.value.nano:
                yield _Slot(entry.id.driver, entry.id.pool, each.counter_set, name)


def _taken(placing: Placing, there: set[_Slot]) -> dict[_Slot, str]:
    """The slots in use, and who has them."""
    found: dict[_Slot, str] = {}
    inventory = placing.what_if.claims.inventory
    for claim in placing.what_if.all(api.ResourceClaim) if there else ():
        allocation = claim.status.allocation
        for result in allocation.devices.results if allocation is not None else ():
            for entry in inventory.devices_named(DeviceID(result.driver, result.pool, result.device)):
                for slot in _drawn(entry):
                    if slot in there:
                        found[slot] = possessor(placing.what_if, claim).text
    return found


def _profile(entry: DeviceEntry) -> str:
    """What a driver calls the size of a part."""
    found = entry.attribute(f"{entry.id.driver}/profile")
    return found.string or "" if found is not None else ""
