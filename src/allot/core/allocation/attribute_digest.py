"""Distinguishes devices by the few values that selectors read, without building the whole view that an expression needs.

Nearly all devices of a large cluster look the same to a selector, although each has its own UUID. One
lookup of the published values shows whether the answer is already known.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable

from allot.core.allocation.devices import DeviceEntry
from allot.core.cel.projection import ATTRIBUTES, CAPACITY, Projection, Reference
from allot.core.model.resource_v1 import DeviceCapacity

_WHOLE = ("driver", "allowMultipleAllocations")


Read = Callable[[DeviceEntry], Hashable | None]


class AttributeDigest:
    """What expressions read of a device: single attributes and capacities."""

    __slots__ = ("_by_driver", "_references")

    def __init__(self, references: tuple[Reference, ...]) -> None:
        self._references = references
        self._by_driver: dict[str, Read] = {}

    @staticmethod
    def of(projection: Projection) -> AttributeDigest | None:
        """None if more is read than single values."""
        references = tuple(each for each in projection.references if each.kind not in _WHOLE)
        if any(each.kind not in (ATTRIBUTES, CAPACITY) or not each.name or each.existence for each in references):
            return None
        return AttributeDigest(references)

    @property
    def reads_nothing(self) -> bool:
        """Whether all devices of a driver look the same to the expressions, except shareable ones."""
        return not self._references

    def key(self, entry: DeviceEntry) -> Hashable | None:
        """Devices with equal keys get equal answers; None for a device that needs a closer look."""
        return self.reader(entry.id.driver)(entry)

    def reader(self, driver: str) -> Read:
        """The same for devices of one driver."""
        read = self._by_driver.get(driver)
        if read is None:
            read = self._by_driver[driver] = self._reader(driver)
        return read

    def _reader(self, driver: str) -> Read:
        """Reads the values of a driver's devices, under the names that they publish. Called for every device of a cluster and every
        signature, so everything that is the same for a driver is done here."""
        names, amounts = self._published(driver, ATTRIBUTES), self._published(driver, CAPACITY)
        own = [each.name for each in self._references if each.of_driver or each.domain == driver]
        # The driver's own names, fully qualified: a device that has one of these needs a closer look.
        long = frozenset(f"{driver}/{name}" for name in own)
        alone, shared = (driver, False), (driver, True)

        def read(entry: DeviceEntry) -> Hashable | None:
            if not entry.is_plain:
                return None
            whose = shared if entry.device.allow_multiple_allocations else alone
            attributes = entry.attributes
            if not attributes.keys().isdisjoint(long):
                return None
            if not amounts:
                return (whose, *map(attributes.get, names)) if names else whose
            capacity = entry.capacity
            if not capacity.keys().isdisjoint(long):
                return None
            return (whose, *map(attributes.get, names), *[_amount(capacity.get(name)) for name in amounts])

        return read

    def _published(self, driver: str, kind: str) -> tuple[str, ...]:
        return tuple(
            each.name if each.of_driver or each.domain == driver else f"{each.domain}/{each.name}"
            for each in self._references
            if each.kind == kind
        )


def _amount(found: DeviceCapacity | None) -> Hashable:
    """Equal amounts may give different results: 1.5Ki is not an integer, 1536 is."""
    if found is None:
        return None
    value = found.value
    return value.nano, value.format, value.scale, value.big
