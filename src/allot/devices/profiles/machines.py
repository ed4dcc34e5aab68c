"""Machine shapes: which GPUs, network cards and processors are on which bus and NUMA node.

Names are those of the clouds (GKE machine types, AWS instance types, Azure VM sizes), `<model>x<count>` for a plain machine
such as `h100x8`, or the model alone for one with one GPU. GPU and card counts are the clouds' own; addresses of `a3-ultragpu-8g` are those of a real machine, the others
follow its pattern.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from allot.devices.profiles.gpus import MODELS, GpuModel

PLAIN_COUNT_MAX = 16
_PLAIN = re.compile(r"([a-z0-9-]+?)(?:x([0-9]{1,2}))?")
_BUSES_PER_ROOT = 7


class UnknownMachine(LookupError):
    """No machine or GPU model has this name."""


class Bus(msgspec.Struct, frozen=True, kw_only=True):
    """Where a card sits. pci_address: `0000:8f:00.0`; pcie_root: `pci0000:8c`."""

    pci_address: str
    pcie_root: str
    numa_node: int


class GpuCard(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU in a machine."""

    index: int
    model: GpuModel
    bus: Bus


class NetworkCard(msgspec.Struct, frozen=True, kw_only=True):
    """A network interface in a machine, besides the one that the node itself uses."""

    interface: str
    bus: Bus
    speed_gbps: int
    has_rdma: bool = True
    mtu: int = 8896
    vendor: str = "Mellanox Technologies"
    product: str = "MT2910 Family [ConnectX-7]"


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """A machine shape."""

    name: str
    cloud: str = ""
    gpus: tuple[GpuCard, ...] = ()
    network_cards: tuple[NetworkCard, ...] = ()
    numa_nodes: int = 1
    cpus: int = 8
    memory_gib: int = 32
    # GPUs of how many such machines are joined by NVLink.
    nvlink_domain_machines: int = 1


class _Network(msgspec.Struct, frozen=True):
    """The cards of a shape: how many, how they are called, and what they are."""

    count: int
    speed_gbps: int
    # `{gpu}`: index of the GPU it is nearest to, `{index}`: its own.
    name: str
    vendor: str = "Mellanox Technologies"
    product: str = "MT2910 Family [ConnectX-7]"
    mtu: int = 8896


_EFA = ("Amazon.com, Inc.", "Elastic Fabric Adapter (EFA)")
_NO_NETWORK = _Network(0, 0, "")


def _efa(count: int, speed_gbps: int) -> _Network:
    return _Network(count, speed_gbps, "efa{index}", *_EFA, 9001)


def _infiniband(count: int, speed_gbps: int, product: str = "MT2910 Family [ConnectX-7]") -> _Network:
    return _Network(count, speed_gbps, "ib{index}", "Mellanox Technologies", product, 4092)


def _gpu_rdma(count: int, speed_gbps: int) -> _Network:
    return _Network(count, speed_gbps, "gpu{gpu}rdma0")


# name: cloud, model of GPUs (empty: none), GPUs, network, NUMA nodes, CPUs, memory in GiB
_SHAPES: dict[str, tuple[str, str, int, _Network, int, int, int]] = {
    "n2-standard-4": ("gke", "", 0, _NO_NETWORK, 1, 4, 16),
    "n2-standard-16": ("gke", "", 0, _NO_NETWORK, 1, 16, 64),
    "n1-standard-8-t4x1": ("gke", "t4", 1, _NO_NETWORK, 1, 8, 30),
    "n1-standard-8-t4x2": ("gke", "t4", 2, _NO_NETWORK, 1, 8, 30),
    "n1-standard-16-t4x4": ("gke", "t4", 4, _NO_NETWORK, 1, 16, 60),
    "g2-standard-4": ("gke", "l4", 1, _NO_NETWORK, 1, 4, 16),
    "g2-standard-8": ("gke", "l4", 1, _NO_NETWORK, 1, 8, 32),
    "g2-standard-24": ("gke", "l4", 2, _NO_NETWORK, 1, 24, 96),
    "g2-standard-48": ("gke", "l4", 4, _NO_NETWORK, 1, 48, 192),
    "g2-standard-96": ("gke", "l4", 8, _NO_NETWORK, 2, 96, 384),
    "a2-highgpu-1g": ("gke", "a100-40", 1, _NO_NETWORK, 1, 12, 85),
    "a2-highgpu-2g": ("gke", "a100-40", 2, _NO_NETWORK, 1, 24, 170),
    "a2-highgpu-4g": ("gke", "a100-40", 4, _NO_NETWORK, 1, 48, 340),
    "a2-highgpu-8g": ("gke", "a100-40", 8, _NO_NETWORK, 2, 96, 680),
    "a2-ultragpu-1g": ("gke", "a100-80", 1, _NO_NETWORK, 1, 12, 170),
    "a2-ultragpu-2g": ("gke", "a100-80", 2, _NO_NETWORK, 1, 24, 340),
    "a2-ultragpu-4g": ("gke", "a100-80", 4, _NO_NETWORK, 1, 48, 680),
    "a2-ultragpu-8g": ("gke", "a100-80", 8, _NO_NETWORK, 2, 96, 1360),
    "a3-highgpu-1g": ("gke", "h100", 1, _NO_NETWORK, 1, 26, 234),
    "a3-highgpu-2g": ("gke", "h100", 2, _NO_NETWORK, 1, 52, 468),
    "a3-highgpu-4g": ("gke", "h100", 4, _NO_NETWORK, 1, 104, 936),
    "a3-highgpu-8g": ("gke", "h100", 8, _Network(4, 200, "eth{number}", "Google, Inc.", "gVNIC"), 2, 208, 1872),
    "a3-megagpu-8g": ("gke", "h100", 8, _Network(8, 200, "eth{number}", "Google, Inc.", "gVNIC"), 2, 208, 1872),
    "a3-ultragpu-8g": ("gke", "h200", 8, _gpu_rdma(8, 400), 2, 224, 2952),
    "a4-highgpu-8g": ("gke", "b200", 8, _gpu_rdma(8, 400), 2, 224, 3968),
    "a4x-highgpu-4g": ("gke", "gb200", 4, _gpu_rdma(4, 400), 2, 140, 884),
    "g4dn.xlarge": ("aws", "t4", 1, _NO_NETWORK, 1, 4, 16),
    "g4dn.12xlarge": ("aws", "t4", 4, _NO_NETWORK, 1, 48, 192),
    "g6.xlarge": ("aws", "l4", 1, _NO_NETWORK, 1, 4, 16),
    "g6.12xlarge": ("aws", "l4", 4, _NO_NETWORK, 1, 48, 192),
    "g6.48xlarge": ("aws", "l4", 8, _NO_NETWORK, 2, 192, 768),
    "p4d.24xlarge": ("aws", "a100-40", 8, _efa(4, 100), 2, 96, 1152),
    "p4de.24xlarge": ("aws", "a100-80", 8, _efa(4, 100), 2, 96, 1152),
    "p5.48xlarge": ("aws", "h100", 8, _efa(32, 100), 2, 192, 2048),
    "p5e.48xlarge": ("aws", "h200", 8, _efa(32, 100), 2, 192, 2048),
    "p5en.48xlarge": ("aws", "h200", 8, _efa(16, 200), 2, 192, 2048),
    "p6-b200.48xlarge": ("aws", "b200", 8, _efa(8, 400), 2, 192, 2048),
    "p6e-gb200.36xlarge": ("aws", "gb200", 4, _efa(4, 400), 2, 144, 960),
    "Standard_NC4as_T4_v3": ("aks", "t4", 1, _NO_NETWORK, 1, 4, 28),
    "Standard_NC64as_T4_v3": ("aks", "t4", 4, _NO_NETWORK, 1, 64, 440),
    "Standard_NC24ads_A100_v4": ("aks", "a100-80-pcie", 1, _NO_NETWORK, 1, 24, 220),
    "Standard_NC48ads_A100_v4": ("aks", "a100-80-pcie", 2, _NO_NETWORK, 2, 48, 440),
    "Standard_NC96ads_A100_v4": ("aks", "a100-80-pcie", 4, _NO_NETWORK, 4, 96, 880),
    "Standard_ND96asr_v4": ("aks", "a100-40", 8, _infiniband(8, 200, "MT28908 Family [ConnectX-6]"), 4, 96, 900),
    "Standard_ND96amsr_A100_v4": ("aks", "a100-80", 8, _infiniband(8, 200, "MT28908 Family [ConnectX-6]"), 4, 96, 1900),
    "Standard_ND96isr_H100_v5": ("aks", "h100", 8, _infiniband(8, 400), 2, 96, 1900),
    "Standard_ND96isr_H200_v5": ("aks", "h200", 8, _infiniband(8, 400), 2, 96, 1850),
    "Standard_ND128isr_NDR_GB200_v6": ("aks", "gb200", 4, _infiniband(4, 400), 2, 128, 900),
}
# Rack-scale machines: this many form one NVLink domain (NVL72).
_NVLINK_DOMAINS = {"gb200": 18}
# Where the bus numbers of a machine's PCIe roots begin, by NUMA node; as on an a3-ultragpu-8g.
_FIRST_BUSES = (0x8C, 0xC1, 0x10, 0x50)


def machine_names() -> tuple[str, ...]:
    """All shapes that have a name of their own."""
    return tuple(_SHAPES)


def find_machine(name: str) -> Machine:
    """The shape of this name, `<model>x<count>` or `<model>`; UnknownMachine lists what there is."""
    shape = _SHAPES.get(name)
    if shape is not None:
        return _machine(name, *shape)
    plain = _PLAIN.fullmatch(name)
    if plain is not None and plain[1] in MODELS and 1 <= int(plain[2] or 1) <= PLAIN_COUNT_MAX:
        count = int(plain[2] or 1)
        nodes = 2 if count > 4 else 1
        return _machine(name, "", plain[1], count, _NO_NETWORK, nodes, 16 * count, 128 * count)
    raise UnknownMachine(
        f"machine {name!r}: expected a model and a number from 1 to {PLAIN_COUNT_MAX} such as h100x8 "
        f"(models: {', '.join(MODELS)}), or one of {', '.join(_SHAPES)}"
    )


def _machine(
    name: str, cloud: str, model: str, count: int, network: _Network, numa_nodes: int, cpus: int, memory_gib: int
) -> Machine:
    gpu_buses, card_buses = _lay_out(count, network.count, numa_nodes)
    gpus = tuple(GpuCard(index=index, model=MODELS[model], bus=bus) for index, bus in enumerate(gpu_buses))
    cards = tuple(
        NetworkCard(
            interface=network.name.format(index=index, number=index + 1, gpu=index * count // network.count),
            bus=bus,
            speed_gbps=network.speed_gbps,
            vendor=network.vendor,
            product=network.product,
            mtu=network.mtu,
            has_rdma=network.product != "gVNIC",
        )
        for index, bus in enumerate(card_buses)
    )
    return Machine(
        name=name,
        cloud=cloud,
        gpus=gpus,
        network_cards=cards,
        numa_nodes=numa_nodes,
        cpus=cpus,
        memory_gib=memory_gib,
        nvlink_domain_machines=_NVLINK_DOMAINS.get(model, 1),
    )


def _lay_out(gpus: int, cards: int, numa_nodes: int) -> tuple[Sequence[Bus], Sequence[Bus]]:
    """Two GPUs share a PCIe root with the network cards that are nearest to them; roots are spread over the NUMA nodes."""
    if gpus == 1 and not cards:
        # A virtual machine with one card has it on its only root.
        return (Bus(pci_address="0000:00:04.0", pcie_root="pci0000:00", numa_node=0),), ()
    roots = max((gpus + 1) // 2, 1)
    gpu_buses: list[Bus] = []
    card_buses: list[Bus] = []
    for root in range(roots):
        node = root * numa_nodes // roots
        place_on_node = root - -(-node * roots // numa_nodes)
        step = max(_BUSES_PER_ROOT, 5 + -(-cards // roots))
        first = _FIRST_BUSES[node] + step * place_on_node
        bus = first + 3
        own_gpus = range(root * 2, min(root * 2 + 2, gpus))
        own_cards = range(root * cards // roots, (root + 1) * cards // roots)
        for target, own in ((gpu_buses, own_gpus), (card_buses, own_cards)):
            for _ in own:
                target.append(Bus(pci_address=f"0000:{bus:02x}:00.0", pcie_root=f"pci0000:{first:02x}", numa_node=node))
                bus += 1
    return gpu_buses, card_buses
