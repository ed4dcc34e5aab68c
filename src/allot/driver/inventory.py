"""A driver's devices, by name."""

from __future__ import annotations

from collections.abc import Iterable

from allot.core.allocation.accounting import Amounts, published_counters
from allot.core.lifecycle.slice_publishing import Pool
from allot.core.model.resource_v1 import Device


class Inventory:
    """The pools of a driver at one time."""

    __slots__ = ("_counters", "_devices", "pools")

    def __init__(self, pools: Iterable[Pool] = ()) -> None:
        self.pools = tuple(pools)
        self._devices = {(pool.name, device.name): device for pool in self.pools for device in pool.devices}
        self._counters = {pool.name: published_counters(pool.counter_sets) for pool in self.pools}

    def device(self, pool: str, name: str) -> Device | None:
        """A device, if it exists."""
        return self._devices.get((pool, name))

    def counters(self, pool: str) -> Amounts:
        """The shared counters of a pool."""
        return self._counters.get(pool, {})

    @property
    def has_counters(self) -> bool:
        """Whether devices share counters."""
        return any(self._counters.values())
