"""Devices told apart by the few values that selectors read, without making the whole view that an expression needs.

Nearly all devices of a large cluster look the same to a selector, but no two are the same: each has its own UUID. One
look at the published values tells whether the answer is known already.
"""

from __future__ import annotations

from collections.abc import Hashable

from allot.core.allocation.devices import DeviceEntry
from allot.core.cel.projection import ATTRIBUTES, CAPACITY, Projection, Reference

_WHOLE = ("driver", "allowMultipleAllocations")
_Names = tuple[tuple[str, ...], tuple[str, ...]]


class AttributeDigest:
    """What some expressions read of a device: single attributes and capacities."""

    __slots__ = ("_by_driver", "_references")

    def __init__(self, references: tuple[Reference, ...]) -> None:
        self._references = references
        # Names as devices of a driver publish them: of attributes, of capacities.
        self._by_driver: dict[str, _Names] = {}

    @staticmethod
    def of(projection: Projection) -> AttributeDigest | None:
        """None if more is read than single values."""
        references = tuple(each for each in projection.references if each.kind not in _WHOLE)
        if any(each.kind not in (ATTRIBUTES, CAPACITY) or not each.name or each.existence for each in references):
            return None
        return AttributeDigest(references)

    def key(self, entry: DeviceEntry) -> Hashable | None:
        """Devices with equal keys get equal answers; None for a device that needs a closer look."""
        if not entry.is_plain:
            return None
        driver = entry.id.driver
        names = self._by_driver.get(driver)
        if names is None:
            names = self._by_driver[driver] = self._names(driver)
        attributes, capacity = entry.attributes, entry.capacity
        amounts = []
        for name in names[1]:
            found = capacity.get(name)
            # Equal amounts may answer differently: 1.5Ki is not an integer, 1536 is.
            value = found.value if found is not None else None
            amounts.append(None if value is None else (value.nano, value.format, value.scale, value.big))
        seen = tuple([attributes.get(name) for name in names[0]])
        return driver, bool(entry.device.allow_multiple_allocations), seen, tuple(amounts)

    def _names(self, driver: str) -> _Names:
        return self._published(driver, ATTRIBUTES), self._published(driver, CAPACITY)

    def _published(self, driver: str, kind: str) -> tuple[str, ...]:
        return tuple(
            each.name if each.of_driver or each.domain == driver else f"{each.domain}/{each.name}"
            for each in self._references
            if each.kind == kind
        )
