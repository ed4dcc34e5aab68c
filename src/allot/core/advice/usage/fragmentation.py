"""Fragmentation: free devices that requests cannot use because they are spread over too many nodes.

The measure follows "Beware of Fragmentation" (FGD, ATC'23), in devices: the share of free devices on nodes with fewer
free devices than a request needs, averaged over the sizes of existing requests. Without any, a request for a whole
node counts as typical.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from allot.core.advice.usage.published import State, Unit
from allot.core.allocation.devices import ClaimID


class Fragmentation(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How scattered the free devices are."""

    # The share of free devices that a typical request cannot use, 0 to 1.
    share: float = 0.0
    # The most free devices on one node.
    largest_block: int = 0
    # Free devices on nodes where others are in use, and nodes where all are free.
    free_on_used_nodes: int = 0
    free_nodes: int = 0
    # How many claims hold how many devices on one node: the typical sizes.
    request_sizes: Mapping[str, int] = {}


def fragmentation_of(units: Sequence[Unit], states: Sequence[State]) -> Fragmentation:
    """For units in these states. Devices that several nodes can use are never in the wrong place, so they are left out."""
    free: dict[str, int] = {}
    total: dict[str, int] = {}
    for unit, state in zip(units, states, strict=True):
        if unit.node:
            total[unit.node] = total.get(unit.node, 0) + 1
            free[unit.node] = free.get(unit.node, 0) + (state is State.FREE)
    if not total:
        return Fragmentation()
    sizes = _sizes(units)
    return Fragmentation(
        share=round(unusable_share(free.values(), sizes or {max(total.values()): 1}), 4),
        largest_block=max(free.values()),
        free_on_used_nodes=sum(count for node, count in free.items() if count < total[node]),
        free_nodes=sum(count == total[node] for node, count in free.items()),
        request_sizes={str(size): count for size, count in sorted(sizes.items())},
    )


def unusable_share(free: Iterable[int], sizes: Mapping[int, int]) -> float:
    """The share of free devices, given per node, on nodes with too few for a request; sizes: how often each occurs."""
    counts = list(free)
    everything = sum(counts)
    if not everything:
        return 0.0
    weights = sum(sizes.values())
    lost = sum(weight * sum(count for count in counts if count < size) for size, weight in sizes.items())
    return lost / (everything * weights)


def _sizes(units: Iterable[Unit]) -> dict[int, int]:
    """How many claims hold how many of these units on a node."""
    held: dict[tuple[ClaimID, str], int] = {}
    for unit in units:
        if not unit.node:
            continue
        for entry in unit.users():
            for claim in {*entry.state.claims, *(share.claim for share in entry.state.shares)}:
                held[claim, unit.node] = held.get((claim, unit.node), 0) + 1
    sizes: dict[int, int] = {}
    for count in held.values():
        sizes[count] = sizes.get(count, 0) + 1
    return sizes
