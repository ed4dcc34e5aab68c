"""Devices in plain Python values: how a driver describes its hardware."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from allot.core.model.core_v1 import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from allot.core.model.resource_v1 import (
    CapacityRequestPolicy,
    Counter,
    CounterSet,
    Device,
    DeviceAttribute,
    DeviceCapacity,
    DeviceCounterConsumption,
    DeviceTaint,
)
from allot.core.quantity import Quantity


class Version(str):
    """An attribute that compares as a semantic version."""

    __slots__ = ()


AttributeValue = str | int | bool | Version | DeviceAttribute | Sequence[str] | Sequence[int] | Sequence[bool]
Amount = str | int | Quantity


def device(
    name: str,
    *,
    attributes: Mapping[str, AttributeValue] | None = None,
    capacity: Mapping[str, Amount | DeviceCapacity] | None = None,
    consumes: Mapping[str, Mapping[str, Amount]] | None = None,
    taints: Iterable[DeviceTaint] = (),
    shared: bool = False,
    binding_conditions: Iterable[str] = (),
    binding_failure_conditions: Iterable[str] = (),
    binds_to_node: bool = False,
) -> Device:
    """A device. consumes: counters by counter set. shared: several claims may share it."""
    return Device(
        name=name,
        attributes={key: attribute(value) for key, value in (attributes or {}).items()},
        capacity={key: amount(value) for key, value in (capacity or {}).items()},
        consumes_counters=tuple(
            DeviceCounterConsumption(counter_set=counters, counters=_counters(amounts))
            for counters, amounts in (consumes or {}).items()
        ),
        taints=tuple(taints),
        allow_multiple_allocations=True if shared else None,
        binding_conditions=tuple(binding_conditions),
        binding_failure_conditions=tuple(binding_failure_conditions),
        binds_to_node=True if binds_to_node else None,
    )


def nodes_with(labels: Mapping[str, str]) -> NodeSelector:
    """The nodes that have all these labels."""
    expressions = tuple(
        NodeSelectorRequirement(key=key, operator="In", values=(value,)) for key, value in labels.items()
    )
    return NodeSelector(node_selector_terms=(NodeSelectorTerm(match_expressions=expressions),))


def counter_set(name: str, counters: Mapping[str, Amount]) -> CounterSet:
    """Counters that devices of a pool share."""
    return CounterSet(name=name, counters=_counters(counters))


def attribute(value: AttributeValue) -> DeviceAttribute:
    """An attribute with the type of the value; a list becomes a list attribute."""
    match value:
        case DeviceAttribute():
            return value
        case bool():
            return DeviceAttribute(bool_=value)
        case int():
            return DeviceAttribute(int_=value)
        case Version():
            return DeviceAttribute(version=str(value))
        case str():
            return DeviceAttribute(string=value)
    values: tuple[Any, ...] = tuple(value)
    if values and all(isinstance(each, bool) for each in values):
        return DeviceAttribute(bools=tuple(bool(each) for each in values))
    if values and all(isinstance(each, int) for each in values):
        return DeviceAttribute(ints=tuple(int(each) for each in values))
    if values and all(isinstance(each, Version) for each in values):
        return DeviceAttribute(versions=tuple(str(each) for each in values))
    if all(isinstance(each, str) for each in values):
        return DeviceAttribute(strings=tuple(str(each) for each in values))
    raise TypeError(f"attribute value {value!r}: expected text, a number, a truth value, or a list of one of these")


def amount(value: Amount | DeviceCapacity, policy: CapacityRequestPolicy | None = None) -> DeviceCapacity:
    """A capacity, with the amounts that may be requested of it."""
    if isinstance(value, DeviceCapacity):
        return value
    return DeviceCapacity(value=quantity(value), request_policy=policy)


def quantity(value: Amount) -> Quantity:
    """An amount: `80Gi`, 100, or a Quantity as it is."""
    return value if isinstance(value, Quantity) else Quantity.parse(str(value))


def _counters(amounts: Mapping[str, Amount]) -> dict[str, Counter]:
    return {name: Counter(value=quantity(value)) for name, value in amounts.items()}
