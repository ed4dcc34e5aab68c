"""Machine shapes (machines.yaml): which GPUs, network cards and processors are on which bus and NUMA node.

Names are those of the clouds, `<model>x<count>` for a plain machine such as `h100x8`, or the model alone for one with one GPU.
Addresses are computed: those of `a3-ultragpu-8g` are a real machine's, the others follow its pattern.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache

import msgspec

from allot.devices.profiles.gpus import GpuModel, gpu_models
from allot.process.data_files import read_data_file

PLAIN_COUNT_MAX = 16
_PLAIN = re.compile(r"([a-z0-9-]+?)(?:x([0-9]{1,2}))?")
_BUSES_PER_ROOT = 7


class UnknownMachine(LookupError):
    """No machine or GPU model has this name."""


class Bus(msgspec.Struct, frozen=True, kw_only=True):
    """A card's location. pci_address: `0000:8f:00.0`; pcie_root: `pci0000:8c`."""

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
    has_rdma: bool
    mtu: int
    vendor: str
    product: str


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """A machine shape."""

    name: str
    cloud: str = ""
    gpus: tuple[GpuCard, ...] = ()
    network_cards: tuple[NetworkCard, ...] = ()
    numa_nodes: int = 1
    cpus: int = 8
    memory_gib: int = 32
    # The number of such machines whose GPUs NVLink joins.
    nvlink_domain_machines: int = 1


class _Network(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The network cards of a shape, and their names."""

    interface: str
    vendor: str
    product: str
    mtu: int = 8896
    has_rdma: bool = True


class _Shape(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A row of machines.yaml. gpu: the model of its GPUs; network: what its cards are."""

    cpus: int
    memory_gib: int
    cloud: str = ""
    numa_nodes: int = 1
    gpu: str = ""
    gpus: int = 0
    network: str = ""
    cards: int = 0
    card_gbps: int = 0


class _Tables(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    networks: Mapping[str, _Network]
    machines: Mapping[str, _Shape]


@cache
def _tables() -> _Tables:
    return read_data_file(__package__, "machines.yaml", _Tables)


# Where the bus numbers of a machine's PCIe roots begin, by NUMA node; as on an a3-ultragpu-8g.
_FIRST_BUSES = (0x8C, 0xC1, 0x10, 0x50)


def machine_names() -> tuple[str, ...]:
    """All named shapes."""
    return tuple(_tables().machines)


def find_machine(name: str) -> Machine:
    """The shape with this name, `<model>x<count>` or `<model>`; UnknownMachine lists the known ones."""
    shape = _tables().machines.get(name)
    if shape is not None:
        return _machine(name, shape)
    plain = _PLAIN.fullmatch(name)
    if plain is not None and plain[1] in gpu_models() and 1 <= int(plain[2] or 1) <= PLAIN_COUNT_MAX:
        count = int(plain[2] or 1)
        numa_nodes = 2 if count > 4 else 1
        return _machine(name, _Shape(16 * count, 128 * count, numa_nodes=numa_nodes, gpu=plain[1], gpus=count))
    raise UnknownMachine(
        f"machine {name!r}: expected a model and a number from 1 to {PLAIN_COUNT_MAX} such as h100x8 "
        f"(models: {', '.join(gpu_models())}), or one of {', '.join(machine_names())}"
    )


def _machine(name: str, shape: _Shape) -> Machine:
    gpu_buses, card_buses = lay_out(shape.gpus, shape.cards, shape.numa_nodes)
    model = gpu_models()[shape.gpu] if shape.gpu else None
    return Machine(
        name=name,
        cloud=shape.cloud,
        gpus=tuple(GpuCard(index=index, model=model, bus=bus) for index, bus in enumerate(gpu_buses) if model),
        network_cards=_network_cards(shape, card_buses),
        numa_nodes=shape.numa_nodes,
        cpus=shape.cpus,
        memory_gib=shape.memory_gib,
        nvlink_domain_machines=model.nvlink_domain_machines if model else 1,
    )


def _network_cards(shape: _Shape, buses: Sequence[Bus]) -> tuple[NetworkCard, ...]:
    if not shape.network:
        return ()
    network = _tables().networks[shape.network]
    return tuple(
        NetworkCard(
            interface=network.interface.format(index=index, number=index + 1, gpu=index * shape.gpus // shape.cards),
            bus=bus,
            speed_gbps=shape.card_gbps,
            vendor=network.vendor,
            product=network.product,
            mtu=network.mtu,
            has_rdma=network.has_rdma,
        )
        for index, bus in enumerate(buses)
    )


def lay_out(gpus: int, cards: int, numa_nodes: int) -> tuple[Sequence[Bus], Sequence[Bus]]:
    """Place cards: two GPUs share a PCIe root with their nearest network cards; roots are spread over the NUMA nodes."""
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
