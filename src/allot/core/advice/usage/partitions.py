"""Partitions of devices: how many of each kind are in use, and how many more fit.

Each kind is measured alone: three more of one kind and six more of another means the one or the other.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping

import msgspec

from allot.core.advice.usage.published import (
    PublishedPool,
    Remaining,
    model_of,
    partition_of,
    published_pools,
)
from allot.core.advice.what_if import WhatIfCluster
from allot.core.allocation.devices import DeviceEntry


class PartitionUsage(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A kind of partition. places: how many devices publish it; fits: how many more are available at once."""

    driver: str
    model: str
    partition: str
    places: int
    in_use: int
    fits: int


# Driver, model and partition.
_Kind = tuple[str, str, str]


class _Count(msgspec.Struct, frozen=True):
    """Of one kind in one pool."""

    places: int
    in_use: int
    fits: int


def partition_usage(what_if: WhatIfCluster) -> tuple[PartitionUsage, ...]:
    """All published kinds of partitions."""
    counted = _Counted()
    totals: dict[_Kind, tuple[int, int, int]] = {}
    for pool in published_pools(what_if):
        for kind, count in counted.of(pool).items():
            places, in_use, fits = totals.get(kind, (0, 0, 0))
            totals[kind] = places + count.places, in_use + count.in_use, fits + count.fits
    return tuple(
        PartitionUsage(driver=kind[0], model=kind[1], partition=kind[2], places=places, in_use=in_use, fits=fits)
        for kind, (places, in_use, fits) in sorted(totals.items())
    )


class _Counted:
    """Counts of pools, computed once for all equal pools: nodes of one kind publish the same."""

    def __init__(self) -> None:
        # First a cheap key; then the devices' counter consumption, which is expensive to hash.
        self._known: dict[Hashable, list[tuple[tuple[object, ...], Mapping[_Kind, _Count]]]] = {}

    def of(self, pool: PublishedPool) -> Mapping[_Kind, _Count]:
        """The kinds of partitions in a pool."""
        if not pool.drawing:
            return {}
        partitions = [(partition_of(pool, entry), entry) for entry in pool.entries]
        kinds = [(pool.id.driver, model_of(entry), name) if name else None for name, entry in partitions]
        key = (
            tuple(kinds),
            tuple([entry.state.allocated for entry in pool.entries]),
            tuple([pool.reach.includes(entry) for entry in pool.entries]),
            tuple(pool.counters.available.items()) if pool.counters is not None else None,
            pool.is_complete,
        )
        alike = self._known.setdefault(key, [])
        drawn = tuple([entry.device.consumes_counters for entry in pool.entries])
        for other, counts in alike:
            if other == drawn:
                return counts
        members: dict[_Kind, list[DeviceEntry]] = {}
        for kind, entry in zip(kinds, pool.entries, strict=True):
            if kind is not None:
                members.setdefault(kind, []).append(entry)
        counts = {kind: _count(pool, entries) for kind, entries in members.items()}
        alike.append((drawn, counts))
        return counts


def _count(pool: PublishedPool, entries: list[DeviceEntry]) -> _Count:
    in_use = sum(entry.state.allocated for entry in entries)
    return _Count(places=len(entries), in_use=in_use, fits=_fitting(pool, entries))


def _fitting(pool: PublishedPool, entries: list[DeviceEntry]) -> int:
    """How many of these fit one by one into the remaining counters."""
    if not pool.is_complete:
        return 0
    remaining = Remaining(pool)
    return sum(not entry.state.allocated and pool.reach.includes(entry) and remaining.take(entry) for entry in entries)
