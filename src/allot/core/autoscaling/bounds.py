"""A lower bound on the cost of nodes for pods, whatever the choice of nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction

import msgspec

from allot.core.autoscaling.demands import Amounts
from allot.core.autoscaling.pools import Pool


class Wanted(msgspec.Struct, frozen=True):
    """A pod that needs a new node, and the pools that suit it."""

    amounts: Amounts
    pools: tuple[str, ...]


def lower_bound(wanted: Sequence[Wanted], pools: Mapping[str, Pool], supplies: Mapping[str, Amounts]) -> Fraction:
    """No set of nodes costs less. Pods that cannot share a node, because no pool suits both, are counted separately. The others cost at
    least their cheapest share of a node, for each resource, and at least one node that suits each pod."""
    total = Fraction(0)
    for group in _apart(wanted):
        sums: dict[str, Fraction] = {}
        dearest = 0
        for each in group:
            prices = [pools[name].price for name in each.pools]
            dearest = max(dearest, min(prices, default=0))
            for resource, part in _cheapest_parts(each, pools, supplies).items():
                sums[resource] = sums.get(resource, Fraction(0)) + part
        total += max(max(sums.values(), default=Fraction(0)), Fraction(dearest))
    return total


def _cheapest_parts(each: Wanted, pools: Mapping[str, Pool], supplies: Mapping[str, Amounts]) -> dict[str, Fraction]:
    found: dict[str, Fraction] = {}
    for resource in ("cpu", "memory", "pods", "devices"):
        wanted = getattr(each.amounts, resource) or 0
        parts = []
        for name in each.pools:
            there = getattr(supplies[name], resource)
            # Shared devices do not limit the number of nodes.
            parts.append(Fraction(wanted * pools[name].price, there) if there else Fraction(0))
        found[resource] = min(parts, default=Fraction(0))
    return found


def _apart(wanted: Sequence[Wanted]) -> list[list[Wanted]]:
    """Pods in groups without common pools."""
    root: dict[str, str] = {}

    def find(name: str) -> str:
        while root.setdefault(name, name) != name:
            name = root[name]
        return name

    for each in wanted:
        for name in each.pools[1:]:
            root[find(name)] = find(each.pools[0])
    groups: dict[str, list[Wanted]] = {}
    for each in wanted:
        if each.pools:
            groups.setdefault(find(each.pools[0]), []).append(each)
    return list(groups.values())
