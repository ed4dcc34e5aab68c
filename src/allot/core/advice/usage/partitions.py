"""What still fits into devices that are cut into partitions: of each kind how many are in use, and how many more fit.

Each kind is measured alone: three more of one kind and six more of another means the one or the other.
"""

from __future__ import annotations

import msgspec

from allot.core.advice.explain.world import World
from allot.core.advice.usage.published import (
    PublishedPool,
    Remaining,
    keeping_off,
    model_of,
    partition_of,
    published_pools,
)
from allot.core.allocation.devices import DeviceEntry


class PartitionUsage(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A kind of partition. places: as how many devices it is published; fits: how many more can be had at the same time."""

    driver: str
    model: str
    partition: str
    places: int
    in_use: int
    fits: int


def partition_usage(world: World) -> tuple[PartitionUsage, ...]:
    """All kinds of partitions that are published."""
    places: dict[tuple[str, str, str], int] = {}
    in_use: dict[tuple[str, str, str], int] = {}
    fits: dict[tuple[str, str, str], int] = {}
    for pool in published_pools(world):
        kinds: dict[tuple[str, str, str], list[DeviceEntry]] = {}
        for entry in pool.entries:
            partition = partition_of(pool, entry)
            if partition:
                kinds.setdefault((pool.id.driver, model_of(entry), partition), []).append(entry)
        for kind, entries in kinds.items():
            places[kind] = places.get(kind, 0) + len(entries)
            in_use[kind] = in_use.get(kind, 0) + sum(entry.state.allocated for entry in entries)
            fits[kind] = fits.get(kind, 0) + _fitting(pool, entries)
    return tuple(
        PartitionUsage(
            driver=driver,
            model=model,
            partition=partition,
            places=places[driver, model, partition],
            in_use=in_use[driver, model, partition],
            fits=fits[driver, model, partition],
        )
        for driver, model, partition in sorted(places)
    )


def _fitting(pool: PublishedPool, entries: list[DeviceEntry]) -> int:
    """How many of these fit one after the other into what is left of the counters."""
    if not pool.is_complete:
        return 0
    remaining = Remaining(pool)
    return sum(not entry.state.allocated and not keeping_off(entry) and remaining.take(entry) for entry in entries)
