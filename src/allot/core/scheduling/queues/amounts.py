"""Amounts of resources that queues share: whole numbers of billionths of a resource's unit, so that sums are exact.

The unit is what is handed out whole: a device, a thousandth of a core, a byte. `UNLIMITED` is a bound without an amount.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

ONE = 10**9
UNLIMITED = -1
CPU = "cpu"
MEMORY = "memory"

Amounts = Mapping[str, int]


def exceeds(amount: int, bound: int) -> bool:
    """Whether an amount is more than a bound allows."""
    return bound != UNLIMITED and amount > bound


def lower(bound: int, other: int) -> int:
    """The stricter of two bounds."""
    if bound == UNLIMITED or other == UNLIMITED:
        return other if bound == UNLIMITED else bound
    return min(bound, other)


def total(parts: Iterable[Amounts]) -> dict[str, int]:
    """The sum of several amounts."""
    found: dict[str, int] = {}
    for part in parts:
        if not found:
            found.update(part)
            continue
        for resource, amount in part.items():
            found[resource] = found.get(resource, 0) + amount
    return found
