"""What nodes have and how much is free: devices, CPU, memory, pods (`allot top nodes`)."""

from __future__ import annotations

import msgspec

from allot.core.advice.usage.published import State, node_name, published_pools, units_of
from allot.core.advice.usage.reach import closed_because
from allot.core.advice.what_if import WhatIfCluster
from allot.core.quantity import Format, Quantity
from allot.core.scheduling import NodeInfo


class Amount(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The total of a resource, and how much pods request."""

    total: str
    requested: str


class NodeUsage(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A node. Devices that several nodes can use are not counted."""

    name: str
    schedulable: bool
    # Why it accepts no pods, if so.
    closed: str = ""
    taints: tuple[str, ...] = ()
    devices: int = 0
    free: int = 0
    partly: int = 0
    in_use: int = 0
    unavailable: int = 0
    cpu: Amount
    memory: Amount
    pods: int = 0
    pods_max: int = 0


def node_usage(what_if: WhatIfCluster) -> tuple[NodeUsage, ...]:
    """All nodes, in order of their names."""
    states: dict[str, list[State]] = {}
    for pool in published_pools(what_if):
        for unit in units_of(pool, (entry for entry in pool.entries if node_name(entry))):
            states.setdefault(unit.node, []).append(unit.state())
    nodes = what_if.cluster.nodes
    return tuple(_usage(nodes[name], states.get(name, [])) for name in sorted(nodes))


def _usage(info: NodeInfo, states: list[State]) -> NodeUsage:
    cpu, asked_cpu = (str(Quantity.from_nano(milli * 10**6)) for milli in (info.allocatable_cpu, info.cpu))
    memory, asked_memory = (
        str(Quantity.from_int(amount, Format.BINARY_SI)) for amount in (info.allocatable_memory, info.memory)
    )
    return NodeUsage(
        name=info.name,
        schedulable=not info.unschedulable,
        closed=closed_because(info),
        taints=tuple(
            f"{taint.key}={taint.value}:{taint.effect}" if taint.value else f"{taint.key}:{taint.effect}"
            for taint in info.taints
        ),
        devices=len(states),
        free=states.count(State.FREE),
        partly=states.count(State.PARTLY),
        in_use=states.count(State.IN_USE) + states.count(State.BLOCKED),
        unavailable=states.count(State.UNAVAILABLE),
        cpu=Amount(total=cpu, requested=asked_cpu),
        memory=Amount(total=memory, requested=asked_memory),
        pods=len(info.pods),
        pods_max=info.allocatable_pods,
    )
