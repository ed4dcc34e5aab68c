"""How large the variables of an expression can get, and the paths by which the estimator looks that up.

The static estimate is only as good as the known bounds of the input. Kubernetes bounds a device by its API: names,
identifiers and values have a maximum length, maps a maximum number of entries. `device_sizes` states those bounds; a
`Path` says which part of the input an expression denotes.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from allot.core.cel.costs.ranges import Range

# Limits of the resource.k8s.io API (v1): longest domain, identifier, driver name and attribute value, and the most
# attributes and capacities of one device. A list attribute has at most 48 values, fewer than a string has characters.
DOMAIN_LENGTH_MAX = 63
ID_LENGTH_MAX = 32
DRIVER_LENGTH_MAX = 63
ATTRIBUTE_SIZE_MAX = 64
ENTRIES_MAX = 32

# Steps of a path other than field names.
ITEMS = "@items"
INDICES = "@indices"
KEYS = "@keys"
VALUES = "@values"


class Path:
    """The way from a variable to a part of it: the variable's name, then field names and the steps above.

    Extending a path twice may overwrite the first extension: storage is shared as between Go slices, because
    upstream's estimates depend on that. In `device.attributes["x"].all(k, v, ...)` the paths of k and v both end up as
    that of v, and k is priced as a value (64 characters) instead of an identifier (32). test_cost verifies this.
    """

    __slots__ = ("_length", "_storage")

    def __init__(self, storage: list[str], length: int) -> None:
        self._storage = storage
        self._length = length

    @classmethod
    def root(cls, name: str) -> Path:
        """The path of a variable."""
        return cls([name], 1)

    def extended(self, step: str) -> Path:
        """This path and one step more."""
        length, storage = self._length, self._storage
        if length == len(storage):
            # Go doubles the capacity of a slice this small.
            storage = storage + [""] * max(length, 1)
        storage[length] = step
        return Path(storage, length + 1)

    def extended_apart(self, step: str) -> Path:
        """This path and one step more, sharing nothing."""
        return Path([*self.steps(), step], self._length + 1)

    def steps(self) -> list[str]:
        """The steps from the variable on."""
        return self._storage[: self._length]

    def __bool__(self) -> bool:
        return self._length > 0


EMPTY_PATH = Path([], 0)


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    """The maximum size of a value, and the bounds of its parts."""

    size_max: int = 0
    fields: Mapping[str, Bounds] = {}
    keys: Bounds | None = None
    elements: Bounds | None = None
    # Whether selecting any field denotes an element, as `device.attributes["x"].anything` does. Upstream follows
    # `["anything"]` on every map but `.anything` only on the maps of attributes, not on those of capacities.
    open: bool = False

    def at(self, step: str) -> Bounds | None:
        """The bounds of a part; None if unknown."""
        if step in (ITEMS, VALUES):
            return self.elements
        if step == KEYS:
            return self.keys
        if step in self.fields:
            return self.fields[step]
        return self.elements if self.open else None


class SizeEstimates(msgspec.Struct, frozen=True):
    """The bounds of each variable."""

    variables: Mapping[str, Bounds]

    def estimate(self, path: Path) -> Range | None:
        """The size of the value at the path; None if unknown."""
        if not path:
            return None
        first, *rest = path.steps()
        bounds = self.variables.get(first)
        for step in rest:
            if bounds is None:
                return None
            bounds = bounds.at(step)
        return None if bounds is None else Range(0, bounds.size_max)


def device_sizes(*, consumable_capacity: bool) -> SizeEstimates:
    """The bounds of `device`; the field allowMultipleAllocations exists with consumable capacity."""
    domain = Bounds(size_max=DOMAIN_LENGTH_MAX)
    identifier = Bounds(size_max=ID_LENGTH_MAX)
    attributes = Bounds(size_max=ENTRIES_MAX, keys=identifier, elements=Bounds(size_max=ATTRIBUTE_SIZE_MAX), open=True)
    capacities = Bounds(size_max=ENTRIES_MAX, keys=identifier, elements=Bounds())
    fields = {
        "driver": Bounds(size_max=DRIVER_LENGTH_MAX),
        "attributes": Bounds(size_max=ENTRIES_MAX, keys=domain, elements=attributes),
        "capacity": Bounds(size_max=ENTRIES_MAX, keys=domain, elements=capacities),
    }
    if consumable_capacity:
        fields["allowMultipleAllocations"] = Bounds(size_max=1)
    return SizeEstimates({"device": Bounds(fields=fields)})
