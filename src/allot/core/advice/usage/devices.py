"""Total, free and used devices with their holders: rows by class, node, model, driver or pool (`allot top devices`)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum

import msgspec

from allot.core.advice.usage.fragmentation import Fragmentation, fragmentation_of
from allot.core.advice.usage.published import (
    PublishedPool,
    State,
    Unit,
    keeping_off,
    model_of,
    node_name,
    published_pools,
    units_of,
)
from allot.core.advice.usage.reach import Reach, closed_because
from allot.core.advice.what_if import WhatIfCluster
from allot.core.allocation.devices import ClaimID, DeviceEntry
from allot.core.allocation.signature import SelectorFailure
from allot.core.model import resource_v1 as api
from allot.core.quantity import Quantity
from allot.core.scheduling import one_of_class


class By(StrEnum):
    """What a row stands for."""

    CLASS = "class"
    NODE = "node"
    MODEL = "model"
    DRIVER = "driver"
    POOL = "pool"


class CapacityUse(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A capacity of shareable devices."""

    name: str
    total: str
    free: str


class Holder(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A claim that holds devices of a row. pods: who uses them, `namespace/name`."""

    claim: str
    namespace: str
    devices: int
    pods: tuple[str, ...] = ()


class DeviceUsage(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A row. total = free + partly + in_use + unavailable; watched: devices monitored with admin access."""

    name: str
    # Set if one name may have devices of several drivers.
    driver: str = ""
    total: int = 0
    free: int = 0
    partly: int = 0
    in_use: int = 0
    unavailable: int = 0
    # Tainted, whether in use or not.
    tainted: int = 0
    watched: int = 0
    nodes: int = 0
    capacity: tuple[CapacityUse, ...] = ()
    fragmentation: Fragmentation = Fragmentation()
    holders: tuple[Holder, ...] = ()
    # Why the devices of a class are unknown.
    problem: str = ""


class DevicesReport(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """All rows. units: the number of units, each counted once; in_several_rows: how many of them are in several rows."""

    by: By
    rows: tuple[DeviceUsage, ...]
    units: int = 0
    in_several_rows: int = 0
    incomplete_pools: tuple[str, ...] = ()
    # Nodes with devices that accept no pods, and why.
    closed_nodes: Mapping[str, str] = {}


# Name, driver, units, and what is wrong.
_Group = tuple[str, str, list[Unit], str]


def device_usage(what_if: WhatIfCluster, by: By = By.CLASS) -> DevicesReport:
    """The rows, in order of their names."""
    pools = published_pools(what_if)
    users = _Users(what_if)
    rows: list[DeviceUsage] = []
    membership: dict[tuple[str, str, str, str], int] = {}
    for name, driver, units, problem in _groups(what_if, pools, by):
        for unit in units:
            key = (*unit.pool.id, unit.counter_set, "" if unit.counter_set else unit.entries[0].id.device)
            membership[key] = membership.get(key, 0) + 1
        rows.append(_row(name, driver, units, users, problem))
    return DevicesReport(
        by=by,
        rows=tuple(rows),
        units=sum(1 for pool in pools for _ in units_of(pool, pool.entries)),
        in_several_rows=sum(1 for count in membership.values() if count > 1),
        incomplete_pools=tuple(str(pool.id) for pool in pools if not pool.is_complete),
        closed_nodes=_closed_nodes(what_if, pools),
    )


def _closed_nodes(what_if: WhatIfCluster, pools: Sequence[PublishedPool]) -> dict[str, str]:
    nodes = what_if.cluster.nodes
    if not nodes:
        return {}
    names = sorted({node_name(entry) for pool in pools for entry in pool.entries} - {""})
    found = {name: closed_because(nodes[name]) if name in nodes else "not there" for name in names}
    return {name: reason for name, reason in found.items() if reason}


def class_usage(what_if: WhatIfCluster, names: Collection[str], reach: Reach | None = None) -> dict[str, DeviceUsage]:
    """The rows of some classes, for pods with this reach."""
    pools, users = published_pools(what_if, reach), _Users(what_if)
    found = (_class_group(what_if, pools, name) for name in sorted(names) if name in what_if.claims.inventory.classes)
    return {group[0]: _row(*group[:3], users, group[3]) for group in found}


# --- rows ---


def _groups(what_if: WhatIfCluster, pools: Sequence[PublishedPool], by: By) -> Iterator[_Group]:
    if by is By.CLASS:
        for name in sorted(what_if.claims.inventory.classes):
            yield _class_group(what_if, pools, name)
        return
    key = _KEYS[by]
    found: dict[tuple[str, str], list[Unit]] = {}
    for pool in pools:
        parts: dict[tuple[str, str], list[DeviceEntry]] = {}
        for entry in pool.entries:
            parts.setdefault(key(entry), []).append(entry)
        for name_and_driver, entries in parts.items():
            found.setdefault(name_and_driver, []).extend(units_of(pool, entries))
    for (name, driver), units in sorted(found.items(), key=lambda item: item[0]):
        yield name or "(several nodes)", driver, units, ""


def _class_group(what_if: WhatIfCluster, pools: Sequence[PublishedPool], name: str) -> _Group:
    members, problem = class_members(what_if, name)
    units = [unit for pool in pools for unit in units_of(pool, (e for e in pool.entries if e in members))]
    return name, "", units, problem


_KEYS: dict[By, Callable[[DeviceEntry], tuple[str, str]]] = {
    # Do not add up a node's GPUs, CPUs and network interfaces.
    By.NODE: lambda entry: (node_name(entry), entry.id.driver),
    By.MODEL: lambda entry: (model_of(entry), ""),
    By.DRIVER: lambda entry: (entry.id.driver, ""),
    By.POOL: lambda entry: (entry.id.pool, entry.id.driver),
}


def class_members(what_if: WhatIfCluster, name: str) -> tuple[set[DeviceEntry], str]:
    """Devices of a class, including tainted ones, and the error if its selectors fail on some."""
    inventory = what_if.claims.inventory
    leaf = inventory.plan(one_of_class(name)).requests[0].leaves[0]
    if leaf.signature is None:
        return set(), leaf.error or "its selectors cannot be used"
    members: set[DeviceEntry] = set()
    problem = ""
    for entry, verdict in inventory.judged(leaf.signature):
        if isinstance(verdict, SelectorFailure):
            problem = problem or verdict.message
        else:
            members.add(entry)
    return members, problem


def _row(name: str, driver: str, units: Sequence[Unit], users: _Users, problem: str) -> DeviceUsage:
    states = [unit.state() for unit in units]
    return DeviceUsage(
        name=name,
        driver=driver,
        total=len(units),
        free=states.count(State.FREE),
        partly=states.count(State.PARTLY),
        in_use=states.count(State.IN_USE) + states.count(State.BLOCKED),
        unavailable=states.count(State.UNAVAILABLE),
        tainted=sum(all(keeping_off(entry) for entry in unit.entries) for unit in units),
        watched=users.watching(units),
        nodes=len({unit.node for unit in units} - {""}),
        capacity=_capacities(units),
        fragmentation=fragmentation_of(units, states),
        holders=users.holders(units),
        problem=problem,
    )


def _capacities(units: Iterable[Unit]) -> tuple[CapacityUse, ...]:
    """Total and free capacities of shareable devices."""
    totals: dict[str, tuple[Quantity, int]] = {}
    for entry in (entry for unit in units for entry in unit.entries if entry.shareable):
        for name, published in entry.capacity.items():
            total, free = totals.get(name, (Quantity.from_int(0, published.value.format), 0))
            left = 0 if entry.state.claims else max(0, published.value.nano - entry.state.consumed.get(name, 0))
            totals[name] = total.add(published.value), free + left
    return tuple(
        CapacityUse(name=name, total=str(total), free=str(Quantity.from_nano(free, total.format)))
        for name, (total, free) in sorted(totals.items())
    )


class _Users:
    """Holders, and claims that only monitor."""

    def __init__(self, what_if: WhatIfCluster) -> None:
        self._watched: set[tuple[str, str, str]] = set()
        self._pods: dict[ClaimID, tuple[str, ...]] = {}
        for claim in what_if.claims.claims():
            namespace = claim.metadata.namespace
            self._pods[ClaimID(namespace, claim.metadata.name)] = users_of(claim)
            if claim.status.allocation is not None:
                self._watched.update(
                    (result.driver, result.pool, result.device)
                    for result in claim.status.allocation.devices.results
                    if result.admin_access
                )

    def watching(self, units: Iterable[Unit]) -> int:
        """How many of the units are monitored."""
        if not self._watched:
            return 0
        return sum(any(entry.id in self._watched for entry in unit.entries) for unit in units)

    def holders(self, units: Iterable[Unit]) -> tuple[Holder, ...]:
        """The claims of units in use, those with the most devices first."""
        counts: dict[ClaimID, int] = {}
        for entry in (entry for unit in units for entry in unit.users()):
            for claim in {*entry.state.claims, *(share.claim for share in entry.state.shares)}:
                counts[claim] = counts.get(claim, 0) + 1
        return tuple(
            Holder(claim=claim.name, namespace=claim.namespace, devices=count, pods=self._pods.get(claim, ()))
            for claim, count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))
        )


def users_of(claim: api.ResourceClaim) -> tuple[str, ...]:
    """The consumers of a claim: pods by name, others as `resource/name`."""
    return tuple(
        consumer.name if consumer.resource == "pods" else f"{consumer.resource}/{consumer.name}"
        for consumer in claim.status.reserved_for
    )
