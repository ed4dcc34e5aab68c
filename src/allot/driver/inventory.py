"""What a driver says it has, looked up by name."""

from __future__ import annotations

from collections.abc import Iterable

from allot.core.lifecycle.slice_publishing import Pool
from allot.core.model.resource_v1 import Counter, Device


class Inventory:
    """The pools of a driver at one time."""

    __slots__ = ("_counters", "_devices", "pools")

    def __init__(self, pools: Iterable[Pool] = ()) -> None:
        self.pools = tuple(pools)
        self._devices = {(pool.name, device.name): device for pool in self.pools for device in pool.devices}
        self._counters = {
            (pool.name, counters.name, name): counter
            for pool in self.pools
            for counters in pool.counter_sets
            for name, counter in counters.counters.items()
        }

    def device(self, pool: str, name: str) -> Device | None:
        """A device, if there is such a one."""
        return self._devices.get((pool, name))

    def counter(self, pool: str, counter_set: str, name: str) -> Counter | None:
        """How much there is of a shared counter."""
        return self._counters.get((pool, counter_set, name))

    @property
    def has_counters(self) -> bool:
        """Whether devices share anything."""
        return bool(self._counters)
