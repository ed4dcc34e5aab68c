"""The arithmetic of allocated devices, shared by allocator, API server, controllers and drivers.

A device is held whole by one claim, or in shares by several. Devices that consume counters draw on what their pool shares.
Amounts are nano units.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from allot.core.model.resource_v1 import CounterSet, Device

CounterKey = tuple[str, str]  # counter set, counter
Amounts = Mapping[CounterKey, int]


def excludes(share: str | None, other: str | None) -> bool:
    """Whether two holders of one device exclude each other. A share has an id; a whole device has none."""
    return not share or not other or share == other


def published_counters(sets: Iterable[CounterSet]) -> dict[CounterKey, int]:
    """What a pool shares."""
    return {(set_.name, counter): amount.value.nano for set_ in sets for counter, amount in set_.counters.items()}


def consumed_counters(device: Device) -> dict[CounterKey, int]:
    """What a device draws while it is held: once, however many shares of it are held."""
    drawn: dict[CounterKey, int] = {}
    for consumed in device.consumes_counters:
        for name, amount in consumed.counters.items():
            key = (consumed.counter_set, name)
            drawn[key] = drawn.get(key, 0) + amount.value.nano
    return drawn


class CounterBalance:
    """What is left of a pool's counters. A negative amount means overcommitted. Counters that no slice publishes are
    not counted, and a device that needs one never fits."""

    __slots__ = ("left",)

    def __init__(self, published: Amounts) -> None:
        self.left = dict(published)

    def fits(self, needed: Amounts) -> bool:
        """Whether there is enough of everything."""
        left = self.left
        return all(key in left and left[key] >= amount for key, amount in needed.items())

    def take(self, needed: Amounts) -> None:
        """Count a device as held."""
        left = self.left
        for key, amount in needed.items():
            if key in left:
                left[key] -= amount

    def overcommitted(self, needed: Amounts) -> CounterKey | None:
        """The first of these counters that is overcommitted."""
        return next((key for key in needed if self.left.get(key, 0) < 0), None)
