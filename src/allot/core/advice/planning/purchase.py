"""What an autoscaler would add for waiting pods and for copies of a manifest, what that costs, and which pool is missing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from allot.core.advice.compute_classes import admitted, of_class
from allot.core.advice.planning.copies import Copy
from allot.core.advice.planning.filling import create_objects
from allot.core.advice.what_if import WhatIfCluster
from allot.core.autoscaling.classes import Classes
from allot.core.autoscaling.expanders import Expander
from allot.core.autoscaling.pools import Pool, price_text
from allot.core.autoscaling.scale_up import MAX_REACHED, Expectation, ScaleUp, plan_scale_up
from allot.core.autoscaling.trying import unit_name
from allot.core.model.compute_classes import class_of
from allot.core.scheduling import ObjectChange


class MissingPool(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The cheapest machine outside the pools that would help. units: which units it helps."""

    machine: str
    price_per_hour: str
    nodes: int
    units: tuple[str, ...]


class PurchasePlan(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The proposed purchase. beyond_help: units that no known machine helps."""

    plan: ScaleUp
    cost_per_hour: str
    bound_per_hour: str
    missing: tuple[MissingPool, ...] = ()
    beyond_help: tuple[str, ...] = ()

    @property
    def unhelped(self) -> tuple[Expectation, ...]:
        """Units that no pool helps."""
        return tuple(each for each in self.plan.expectations if not each.is_helped)


def plan_purchase(
    what_if: WhatIfCluster,
    pools: Sequence[Pool],
    copies: Iterable[Copy],
    expander: Sequence[str],
    catalogue: Iterable[Pool] = (),
    classes: Classes | None = None,
) -> PurchasePlan:
    """For everything that waits in a cluster, with these copies. catalogue: machines; the cheapest that would help is named if no pool
    does; classes: rank the pools. Afterwards, the copies wait in the cluster."""
    for copy in copies:
        create_objects(what_if, copy)
        for pod in copy.pods:
            what_if.machine.apply(ObjectChange(None, admitted(pod)), 0.0)
    if classes is not None:
        pools = classes.ranked(pools)
    chosen = Expander(expander, {pool.name: pool for pool in pools})
    plan = plan_scale_up(what_if.machine, pools, chosen, seconds=what_if.now, classes=classes)
    # If a pool would help, raising its maximum is enough: no pool is missing.
    unhelped = {
        each.unit: None
        for each in plan.expectations
        if not each.is_helped and not any(MAX_REACHED in reason.reasons for reason in each.reasons)
    }
    missing = _missing(what_if, unhelped, catalogue) if unhelped else []
    named = {unit for each in missing for unit in each.units}
    return PurchasePlan(
        plan=plan,
        cost_per_hour=price_text(plan.cost),
        bound_per_hour=price_text(plan.bound),
        missing=tuple(missing),
        beyond_help=tuple(unit for unit in unhelped if unit not in named),
    )


def _missing(what_if: WhatIfCluster, unhelped: dict[str, None], catalogue: Iterable[Pool]) -> list[MissingPool]:
    """The cheapest machine for each unit alone; machines without a known price come last."""
    best: dict[str, tuple[tuple[bool, int, int, str], Pool, int]] = {}
    units = {unit_name(unit): unit for unit in what_if.machine.waiting()}
    for pool in catalogue:
        expander = Expander(("price",), {pool.name: pool})
        for name in unhelped:
            unit = units[name]
            selected = class_of(unit.pods[0])
            offer = of_class(pool, selected) if selected else pool
            plan = plan_scale_up(what_if.machine, [offer], expander, seconds=what_if.now, units=[unit])
            if plan.purchases:
                nodes = plan.purchases[0].count
                key = (not pool.price, plan.cost, nodes, pool.name)
                if name not in best or key < best[name][0]:
                    best[name] = (key, pool, nodes)
    found: dict[str, list[str]] = {}
    for name, (_, pool, _) in best.items():
        found.setdefault(pool.name, []).append(name)
    pools = {pool.name: (pool, nodes) for _, pool, nodes in best.values()}
    return [
        MissingPool(
            machine=machine,
            price_per_hour=price_text(pools[machine][0].price) if pools[machine][0].price else "",
            nodes=pools[machine][1],
            units=tuple(names),
        )
        for machine, names in found.items()
    ]
