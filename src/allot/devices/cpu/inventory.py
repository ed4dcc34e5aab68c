"""Published CPUs: groups that claims share, or single CPUs. Attributes as in dra-driver-cpu."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from enum import StrEnum

import msgspec

from allot.core.model.resource_v1 import NodeAllocatableMapping, NodeAllocatableResource
from allot.devices.cpu.topology import Cpu, Topology
from allot.driver import CapacityRequestPolicy, CapacityRequestPolicyRange, Device, Quantity, amount, device, quantity
from allot.driver.declare import AttributeValue

DRIVER_NAME = "dra.cpu"
CAPACITY = f"{DRIVER_NAME}/cpu"
_NUMA_NODE = "resource.kubernetes.io/numaNode"
_PCIE_ROOT = "resource.kubernetes.io/pcieRoot"
_ONE = Quantity.parse("1")


class Mode(StrEnum):
    """What a device is."""

    GROUPED = "grouped"
    INDIVIDUAL = "individual"


class GroupBy(StrEnum):
    """What the CPUs of a grouped device have in common."""

    NUMA_NODE = "numanode"
    SOCKET = "socket"
    MACHINE = "machine"


class Publishing(msgspec.Struct, frozen=True, kw_only=True):
    """How CPUs are published. reserved: CPUs for the system."""

    mode: Mode = Mode.GROUPED
    group_by: GroupBy = GroupBy.NUMA_NODE
    reserved: tuple[int, ...] = ()
    maps_node_allocatable: bool = False
    has_pcie_roots: bool = False


class Offer(msgspec.Struct, frozen=True, kw_only=True):
    """A device and the CPUs behind it."""

    device: Device
    cpus: tuple[Cpu, ...]


def offers(topology: Topology, publishing: Publishing) -> tuple[Offer, ...]:
    """All devices."""
    reserved = frozenset(publishing.reserved)
    cpus = [cpu for cpu in topology.cpus if cpu.id not in reserved]
    if publishing.mode is Mode.INDIVIDUAL:
        return tuple(_single(number, cpu, topology, publishing) for number, cpu in enumerate(cpus))
    return tuple(
        _group(key, tuple(group), topology, publishing) for key, group in sorted(_groups(cpus, publishing).items())
    )


def _groups(cpus: Sequence[Cpu], publishing: Publishing) -> Mapping[int, list[Cpu]]:
    groups: dict[int, list[Cpu]] = {}
    for cpu in cpus:
        match publishing.group_by:
            case GroupBy.NUMA_NODE:
                key = cpu.numa_node
            case GroupBy.SOCKET:
                key = cpu.socket
            case GroupBy.MACHINE:
                key = 0
        groups.setdefault(key, []).append(cpu)
    return groups


def _group(key: int, cpus: tuple[Cpu, ...], topology: Topology, publishing: Publishing) -> Offer:
    attributes: dict[str, AttributeValue] = {
        f"{DRIVER_NAME}/numCPUs": len(cpus),
        f"{DRIVER_NAME}/smtEnabled": topology.has_smt,
    }
    nodes = {cpu.numa_node for cpu in cpus}
    if publishing.group_by is GroupBy.NUMA_NODE:
        attributes |= _numa_attributes(key)
    if publishing.group_by is not GroupBy.MACHINE:
        # A NUMA node is on one socket.
        attributes[f"{DRIVER_NAME}/socketID"] = cpus[0].socket
    attributes |= _roots(nodes, topology, publishing)
    name = {
        GroupBy.NUMA_NODE: f"cpudevnuma{key:03}",
        GroupBy.SOCKET: f"cpudevsocket{key:03}",
        GroupBy.MACHINE: "cpudevmachine",
    }[publishing.group_by]
    whole = quantity(len(cpus))
    # The default is all CPUs; a CPU is not divided.
    policy = CapacityRequestPolicy(default=whole, valid_range=CapacityRequestPolicyRange(min=_ONE, step=_ONE))
    declared = device(name, attributes=attributes, capacity={CAPACITY: amount(whole, policy)}, shared=True)
    mapping = NodeAllocatableMapping(capacity_key=CAPACITY, capacity_multiplier=_ONE)
    return Offer(device=_mapped(declared, mapping, publishing), cpus=cpus)


def _single(number: int, cpu: Cpu, topology: Topology, publishing: Publishing) -> Offer:
    attributes: dict[str, AttributeValue] = {
        f"{DRIVER_NAME}/cpuID": cpu.id,
        f"{DRIVER_NAME}/coreID": cpu.core,
        f"{DRIVER_NAME}/socketID": cpu.socket,
        f"{DRIVER_NAME}/coreType": cpu.core_type,
        f"{DRIVER_NAME}/smtEnabled": topology.has_smt,
        **_numa_attributes(cpu.numa_node),
        **_roots({cpu.numa_node}, topology, publishing),
    }
    if cpu.cache_l3 >= 0:
        attributes[f"{DRIVER_NAME}/cacheL3ID"] = cpu.cache_l3
    declared = device(f"cpudev{number:03}", attributes=attributes)
    return Offer(device=_mapped(declared, NodeAllocatableMapping(device_multiplier=_ONE), publishing), cpus=(cpu,))


def _numa_attributes(node: int) -> dict[str, AttributeValue]:
    """The NUMA node under the names that drivers share, so that claims can match it with network cards of dra.net."""
    return {_NUMA_NODE: node, f"{DRIVER_NAME}/numaNodeID": node, "dra.net/numaNode": node}


def _roots(nodes: Collection[int], topology: Topology, publishing: Publishing) -> dict[str, AttributeValue]:
    roots = [root for node in sorted(nodes) for root in topology.pcie_roots.get(node, ())]
    return {_PCIE_ROOT: roots} if publishing.has_pcie_roots and roots else {}


def _mapped(declared: Device, mapping: NodeAllocatableMapping, publishing: Publishing) -> Device:
    if not publishing.maps_node_allocatable:
        return declared
    return msgspec.structs.replace(
        declared, node_allocatable_resources={"cpu": NodeAllocatableResource(mapping=mapping)}
    )
