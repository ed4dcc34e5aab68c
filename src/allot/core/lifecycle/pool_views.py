"""What is available in a pool whose devices are partitions or can be shared.

A partition view groups devices that consume counters by the value of an attribute and reports how many more of each kind would
fit alone; a view of shareable devices sums their capacities. Anything that cannot be determined is an error, with the API's
message.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from allot.core.allocation.accounting import Amounts, CounterBalance, consumed_counters, published_counters
from allot.core.model.resource_v1 import (
    CounterSet,
    Device,
    DeviceCounterConsumption,
    PoolPartitionSummary,
    PoolShareableCapacity,
    PoolShareableSummary,
)
from allot.core.quantity import Quantity

ENTRIES_MAX = 32


class PublishedDevice(msgspec.Struct, frozen=True):
    """A device with the attribute that its own slice names for grouping partitions; empty if it names none."""

    device: Device
    attribute: str = ""


class Pool(msgspec.Struct, frozen=True, kw_only=True):
    """A complete pool and its usage."""

    driver: str
    name: str
    devices: tuple[PublishedDevice, ...]
    counters: tuple[CounterSet, ...]
    # Names of devices that a claim holds, and how much of each capacity is consumed, without admin access.
    in_use: frozenset[str]
    consumed: Mapping[str, Quantity]


class Views(msgspec.Struct, frozen=True, kw_only=True):
    """The views of a pool; error: the first problem."""

    partitions: tuple[PoolPartitionSummary, ...] = ()
    shareable: PoolShareableSummary | None = None
    error: str = ""


def view_pool(pool: Pool, default_attribute: str) -> Views:
    """Both views of a pool. default_attribute groups partitions where no slice of the pool names an attribute."""
    if default_attribute and not any(published.attribute for published in pool.devices):
        devices = tuple(PublishedDevice(published.device, default_attribute) for published in pool.devices)
        pool = msgspec.structs.replace(pool, devices=devices)
    where = f"pool {pool.driver}/{pool.name}"
    partitions: tuple[PoolPartitionSummary, ...] | str = ()
    if any(published.attribute for published in pool.devices):
        if pool.counters:
            partitions = _partitions(pool, where)
        else:
            partitions = (
                f"PartitionTypeMissing: {where} declares partitionTypeAttribute but publishes no sharedCounters"
            )
    shareable = _shareable(pool, where)
    errors = [view for view in (partitions, shareable) if isinstance(view, str)]
    return Views(
        partitions=() if errors or isinstance(partitions, str) else partitions,
        shareable=None if isinstance(shareable, str) else shareable,
        error=errors[0] if errors else "",
    )


# --- partitions ---


class _Group:
    """Partitions of one kind, all of which cost the same."""

    def __init__(self, cost: tuple[tuple[str, str, str], ...]) -> None:
        self.cost = cost
        self.total = 0
        self.free: list[Amounts] = []


def _partitions(pool: Pool, where: str) -> tuple[PoolPartitionSummary, ...] | str:
    groups: dict[tuple[str, str], _Group] = {}
    for published in pool.devices:
        device, attribute = published.device, published.attribute
        if not device.consumes_counters or not attribute:
            continue
        type_ = _partition_type(pool.driver, device, attribute)
        if type_ is None:
            name, wanted = _quoted(device.name), _quoted(attribute)
            return f"PartitionTypeMissing: device {name} in {where} does not carry partition type attribute {wanted}"
        cost = _cost(device.consumes_counters)
        group = groups.setdefault((attribute, type_), _Group(cost))
        if group.cost != cost:
            return f"PartitionCostMismatch: devices of partition type {_quoted(type_)} in {where} consume different counters"
        group.total += 1
        if device.name not in pool.in_use:
            group.free.append(consumed_counters(device))
    if len(groups) > ENTRIES_MAX:
        count = len(groups)
        return f"PartitionSummaryOverCap: {where} has {count} partition types, exceeding the maximum of {ENTRIES_MAX}"
    left = _balance(pool).left
    return tuple(
        PoolPartitionSummary(
            attribute=attribute, type=type_, total=group.total, allocatable=_fitting(group.free, CounterBalance(left))
        )
        for (attribute, type_), group in sorted(groups.items())
    )


def _partition_type(driver: str, device: Device, attribute: str) -> str | None:
    """The string value of an attribute; without a domain, the driver's applies."""
    found = device.attributes.get(attribute)
    if found is None and attribute.startswith(f"{driver}/"):
        found = device.attributes.get(attribute.removeprefix(f"{driver}/"))
    return found.string if found is not None else None


def _cost(consumptions: Iterable[DeviceCounterConsumption]) -> tuple[tuple[str, str, str], ...]:
    return tuple(
        sorted(
            (consumption.counter_set, name, str(counter.value))
            for consumption in consumptions
            for name, counter in consumption.counters.items()
        )
    )


def _balance(pool: Pool) -> CounterBalance:
    """What the devices in use leave of the counters. A shared device counts once."""
    balance = CounterBalance(published_counters(pool.counters))
    for published in pool.devices:
        if published.device.name in pool.in_use:
            balance.take(consumed_counters(published.device))
    return balance


def _fitting(costs: Iterable[Amounts], balance: CounterBalance) -> int:
    """How many devices fit, one after the other, into the rest."""
    count = 0
    for cost in costs:
        if balance.fits(cost):
            count += 1
            balance.take(cost)
    return count


# --- shareable devices ---


def _shareable(pool: Pool, where: str) -> PoolShareableSummary | str | None:
    devices = [published.device for published in pool.devices if published.device.allow_multiple_allocations]
    if not devices:
        return None
    totals: dict[str, Quantity] = {}
    for device in devices:
        for name, capacity in device.capacity.items():
            totals[name] = totals[name].add(capacity.value) if name in totals else capacity.value
    if len(totals) > ENTRIES_MAX:
        return (
            f"ShareableSummaryOverCap: {where} has {len(totals)} shareable capacity keys,"
            f" exceeding the maximum of {ENTRIES_MAX}"
        )
    partial = sum(device.name in pool.in_use for device in devices)
    return PoolShareableSummary(
        fully_available_devices=len(devices) - partial,
        partially_available_devices=partial,
        capacity=tuple(_capacity(name, totals[name], pool.consumed.get(name)) for name in sorted(totals)),
    )


def _capacity(name: str, total: Quantity, consumed: Quantity | None) -> PoolShareableCapacity:
    consumed = consumed or Quantity.ZERO
    available = total.sub(consumed)
    if available.sign() < 0:
        available = Quantity.from_int(0, total.format)
    return PoolShareableCapacity(name=name, total=total, consumed=consumed, available=available)


def _quoted(text: str) -> str:
    return msgspec.json.encode(text).decode()
