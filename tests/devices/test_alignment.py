"""A GPU, a network card and CPUs for one claim: on one PCIe root and one NUMA node, or on purpose not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from allot.core.allocation.allocator import Allocated, allocate
from allot.core.allocation.inventory import Inventory
from allot.core.lifecycle.slice_publishing import Pool, cut
from allot.core.model.codec import decode
from allot.core.model.core_v1 import Node
from allot.core.model.meta import ObjectMeta
from allot.core.model.resource_v1 import Device, ResourceClaim, ResourceSlice
from allot.devices.cpu import classes as cpu_classes
from allot.devices.cpu.inventory import Publishing
from allot.devices.cpu.inventory import offers as cpu_offers
from allot.devices.cpu.topology import simulated_topology
from allot.devices.gpu import classes as gpu_classes
from allot.devices.gpu.gates import Gates
from allot.devices.gpu.inventory import offers as gpu_offers
from allot.devices.nic import classes as nic_classes
from allot.devices.nic.interfaces import SimulatedInterfaces
from allot.devices.nic.inventory import declared
from allot.devices.profiles.machines import find_machine
from devices.gpu.world import NODE, simulated

MACHINE = "a3-ultragpu-8g"


def machine_devices(folder: Path) -> dict[str, tuple[Device, ...]]:
    """What the three drivers publish on one machine."""
    cards = simulated(folder, MACHINE)
    cards.open()
    machine = find_machine(MACHINE)
    return {
        "gpu.nvidia.com": tuple(offer.device for offer in gpu_offers(cards.gpus(), Gates())),
        "dra.net": tuple(declared(each, False) for each in SimulatedInterfaces(machine, NODE).read()),
        "dra.cpu": tuple(offer.device for offer in cpu_offers(simulated_topology(machine), Publishing())),
    }


def found(devices: dict[str, tuple[Device, ...]], numa: str) -> dict[str, Device]:
    """The devices of a claim, by request; numa: how the NUMA nodes of card and CPUs go together."""
    inventory = Inventory()
    for device_class in (*gpu_classes.device_classes(), *nic_classes.device_classes(), *cpu_classes.device_classes()):
        inventory.put_class(device_class)
    for driver, published in devices.items():
        for index, spec in enumerate(cut(driver, Pool(name=NODE, node_name=NODE, devices=published))):
            inventory.put_slice(ResourceSlice(metadata=ObjectMeta(name=f"{driver}-{index}"), spec=spec))
    cpu = {"deviceClassName": "dra.cpu", "capacity": {"requests": {"dra.cpu/cpu": "4"}}}
    requests: list[dict[str, Any]] = [
        {"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}},
        {"name": "nic", "exactly": {"deviceClassName": "mrdma.google.com"}},
        {"name": "cpu", "exactly": cpu},
    ]
    for request in requests:
        request["exactly"] |= {"allocationMode": "ExactCount", "count": 1}
    constraints = [
        {"matchAttribute": "resource.kubernetes.io/pcieRoot", "requests": ["gpu", "nic"]},
        {numa: "dra.net/numaNode", "requests": ["cpu", "nic"]},
    ]
    claim = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "c", "namespace": "default"},
        "spec": {"devices": {"requests": requests, "constraints": constraints}},
    }
    answer = allocate(inventory, Node(metadata=ObjectMeta(name=NODE)), [decode(claim, ResourceClaim).object])
    assert isinstance(answer, Allocated), answer
    results = answer.results[0].devices.results
    assert {result.request: str(result.consumed_capacity.get("dra.cpu/cpu")) for result in results}["cpu"] == "4"
    by_name = {(driver, device.name): device for driver, each in devices.items() for device in each}
    return {result.request: by_name[result.driver, result.device] for result in results}


def test_a_claim_is_aligned_by_what_the_drivers_agree_on(tmp_path: Path) -> None:
    given = found(machine_devices(tmp_path), "matchAttribute")
    root = "resource.kubernetes.io/pcieRoot"
    assert given["gpu"].attributes[root] == given["nic"].attributes[root]
    assert given["cpu"].attributes["dra.net/numaNode"] == given["nic"].attributes["dra.net/numaNode"]


def test_a_claim_can_be_misaligned_on_purpose(tmp_path: Path) -> None:
    given = found(machine_devices(tmp_path), "distinctAttribute")
    assert given["cpu"].attributes["dra.net/numaNode"] != given["nic"].attributes["dra.net/numaNode"]
