"""Devices told apart by the few values that selectors read, without making the whole view that an expression needs.

Nearly all devices of a large cluster look the same to a selector, but no two are the same: each has its own UUID. One
look at the published values tells whether the answer is known already.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple

from allot.core.allocation.devices import DeviceEntry
from allot.core.cel.projection import ATTRIBUTES, CAPACITY, Projection, Reference

_WHOLE = ("driver", "allowMultipleAllocations")


class _Names(NamedTuple):
    """What is read of the devices of a driver, under the names that they publish."""

    attributes: tuple[str, ...]
    capacity: tuple[str, ...]
    # The driver's own names written out: a device that has one of these needs a closer look.
    long: frozenset[str]


class AttributeDigest:
    """What some expressions read of a device: single attributes and capacities."""

    __slots__ = ("_by_driver", "_references")

    def __init__(self, references: tuple[Reference, ...]) -> None:
        self._references = references
        self._by_driver: dict[str, _Names] = {}

    @staticmethod
    def of(projection: Projection) -> AttributeDigest | None:
        """None if more is read than single values."""
        references = tuple(each for each in projection.references if each.kind not in _WHOLE)
        if any(each.kind not in (ATTRIBUTES, CAPACITY) or not each.name or each.existence for each in references):
            return None
        return AttributeDigest(references)

    @property
    def reads_nothing(self) -> bool:
        """Whether the devices of a driver are all the same to the expressions, shareable ones apart."""
        return not self._references

    def key(self, entry: DeviceEntry) -> Hashable | None:
        """Devices with equal keys get equal answers; None for a device that needs a closer look."""
        if not entry.is_plain:
            return None
        driver = entry.id.driver
        names = self._by_driver.get(driver)
        if names is None:
            names = self._by_driver[driver] = self._names(driver)
        shareable = bool(entry.device.allow_multiple_allocations)
        if not names.attributes and not names.capacity:
            return driver, shareable
        attributes, capacity = entry.attributes, entry.capacity
        if not (attributes.keys().isdisjoint(names.long) and capacity.keys().isdisjoint(names.long)):
            return None
        amounts = []
        for name in names.capacity:
            found = capacity.get(name)
            # Equal amounts may answer differently: 1.5Ki is not an integer, 1536 is.
            value = found.value if found is not None else None
            amounts.append(None if value is None else (value.nano, value.format, value.scale, value.big))
        seen = tuple([attributes.get(name) for name in names.attributes])
        return driver, shareable, seen, tuple(amounts)

    def _names(self, driver: str) -> _Names:
        own = [each.name for each in self._references if each.of_driver or each.domain == driver]
        return _Names(
            self._published(driver, ATTRIBUTES),
            self._published(driver, CAPACITY),
            frozenset(f"{driver}/{name}" for name in own),
        )

    def _published(self, driver: str, kind: str) -> tuple[str, ...]:
        return tuple(
            each.name if each.of_driver or each.domain == driver else f"{each.domain}/{each.name}"
            for each in self._references
            if each.kind == kind
        )
