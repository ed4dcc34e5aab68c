"""Every device with its properties and holder, and every pool with its slices (`allot get`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from allot.core.advice.usage.devices import class_members
from allot.core.advice.usage.published import (
    PublishedPool,
    State,
    attributes_of,
    device_state,
    keeping_off,
    model_of,
    node_name,
    published_pools,
)
from allot.core.advice.what_if import WhatIfCluster
from allot.core.allocation.devices import DeviceEntry
from allot.core.cel.selector import CompiledSelector, EvaluationError
from allot.core.quantity import Quantity


class DeviceRow(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A device. capacity_free: only for shareable devices."""

    driver: str
    pool: str
    device: str
    node: str
    model: str
    state: State
    classes: tuple[str, ...] = ()
    holders: tuple[str, ...] = ()
    taints: tuple[str, ...] = ()
    attributes: Mapping[str, object] = {}
    capacity: Mapping[str, str] = {}
    capacity_free: Mapping[str, str] = {}


class PoolRow(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A pool in its newest generation."""

    driver: str
    pool: str
    nodes: tuple[str, ...]
    generation: int
    slices: int
    slices_expected: int
    devices: int
    counter_sets: int


class DeviceList(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Devices, and those on which the selector fails, as it would in a claim."""

    devices: tuple[DeviceRow, ...]
    failures: tuple[str, ...] = ()


def list_devices(
    what_if: WhatIfCluster, selector: CompiledSelector | None = None, *, only_free: bool = False
) -> DeviceList:
    """Devices that the selector selects."""
    pools = published_pools(what_if)
    members = {name: class_members(what_if, name)[0] for name in sorted(what_if.claims.inventory.classes)}
    rows: list[DeviceRow] = []
    failures: list[str] = []
    for pool in pools:
        for entry in pool.entries:
            try:
                if selector is not None and not selector.matches(entry.view):
                    continue
            except EvaluationError as error:
                failures.append(f"device {entry.id}: {error}")
                continue
            state = device_state(pool, entry)
            if not only_free or state in (State.FREE, State.PARTLY):
                classes = tuple(name for name, devices in members.items() if entry in devices)
                rows.append(_row(pool, entry, state, classes))
    return DeviceList(devices=tuple(rows), failures=tuple(failures))


def _row(pool: PublishedPool, entry: DeviceEntry, state: State, classes: tuple[str, ...]) -> DeviceRow:
    held = entry.state
    free = {
        name: str(Quantity.from_nano(max(0, capacity.value.nano - held.consumed.get(name, 0)), capacity.value.format))
        for name, capacity in entry.capacity.items()
        if entry.shareable and not held.claims
    }
    return DeviceRow(
        driver=pool.id.driver,
        pool=pool.id.pool,
        device=entry.id.device,
        node=node_name(entry),
        model=model_of(entry),
        state=state,
        classes=classes,
        holders=tuple(dict.fromkeys(str(claim) for claim in (*held.claims, *(s.claim for s in held.shares)))),
        taints=tuple(f"{taint.key}:{taint.effect}" for taint in keeping_off(entry)),
        attributes=attributes_of(entry),
        capacity={name: str(capacity.value) for name, capacity in entry.capacity.items()},
        capacity_free=free,
    )


def list_pools(what_if: WhatIfCluster) -> Iterator[PoolRow]:
    """All pools."""
    for pool in published_pools(what_if):
        yield PoolRow(
            driver=pool.id.driver,
            pool=pool.id.pool,
            nodes=tuple(sorted({node_name(entry) for entry in pool.entries} - {""})),
            generation=pool.generation,
            slices=pool.slices,
            slices_expected=pool.slices_expected,
            devices=len(pool.entries),
            counter_sets=len(pool.counters.sets) if pool.counters is not None else 0,
        )
