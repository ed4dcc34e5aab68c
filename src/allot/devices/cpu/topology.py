"""The processors of a machine: from the kernel's `/sys`, or from a machine profile."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import msgspec

from allot.devices.profiles.machines import Machine
from allot.devices.sysfs import CpuListError, children, format_cpu_list, parse_cpu_list, read_int, read_line

STANDARD = "standard"
P_CORE = "p-core"
E_CORE = "e-core"
_NUMBERED_CPU = re.compile(r"cpu([0-9]{1,5})")
_NUMBERED_NODE = re.compile(r"node([0-9]{1,5})")
_PCI_ROOT = re.compile(r"pci[0-9a-f]{4,8}:[0-9a-f]{2}")
_THREADS_PER_CORE = 2


class Cpu(msgspec.Struct, frozen=True, kw_only=True):
    """A logical CPU. core is unique within its socket; cache_l3: -1 if not known."""

    id: int
    core: int
    socket: int = 0
    numa_node: int = 0
    cache_l3: int = -1
    core_type: str = STANDARD


class Topology(msgspec.Struct, frozen=True, kw_only=True):
    """All CPUs, siblings of a core side by side, and the PCIe roots of each NUMA node."""

    cpus: tuple[Cpu, ...] = ()
    pcie_roots: Mapping[int, tuple[str, ...]] = {}

    @property
    def has_smt(self) -> bool:
        """Whether any core has more than one CPU."""
        return len({(cpu.socket, cpu.core) for cpu in self.cpus}) < len(self.cpus)


def ordered(cpus: tuple[Cpu, ...]) -> tuple[Cpu, ...]:
    """Ordered by location, so that siblings are adjacent."""
    return tuple(sorted(cpus, key=lambda cpu: (cpu.socket, cpu.numa_node, cpu.core, cpu.id)))


def read_topology(sys_root: Path) -> Topology:
    """The kernel's CPUs, without offline ones."""
    base = sys_root / "devices" / "system" / "cpu"
    online = _cpu_list(base / "online")
    nodes = _numa_nodes(sys_root)
    kinds = {
        **dict.fromkeys(_cpu_list(sys_root / "devices" / "cpu_core" / "cpus"), P_CORE),
        **dict.fromkeys(_cpu_list(sys_root / "devices" / "cpu_atom" / "cpus"), E_CORE),
    }
    cpus = []
    for folder in children(base):
        match = _NUMBERED_CPU.fullmatch(folder.name)
        if match is None or (online and int(match[1]) not in online):
            continue
        number = int(match[1])
        topology = folder / "topology"
        cpus.append(
            Cpu(
                id=number,
                core=read_int(topology / "core_id", number),
                # Some machines report -1: then there is one.
                socket=max(read_int(topology / "physical_package_id", 0), 0),
                numa_node=nodes.get(number, 0),
                cache_l3=_cache_l3(folder),
                core_type=kinds.get(number, STANDARD),
            )
        )
    return Topology(cpus=ordered(tuple(cpus)), pcie_roots=_pcie_roots(sys_root))


def _cpu_list(path: Path) -> tuple[int, ...]:
    try:
        return parse_cpu_list(read_line(path))
    except CpuListError:
        return ()


def _numa_nodes(sys_root: Path) -> dict[int, int]:
    found = {}
    for folder in children(sys_root / "devices" / "system" / "node"):
        match = _NUMBERED_NODE.fullmatch(folder.name)
        if match is not None:
            found.update(dict.fromkeys(_cpu_list(folder / "cpulist"), int(match[1])))
    return found


def _cache_l3(cpu: Path) -> int:
    for index in children(cpu / "cache"):
        if index.name.startswith("index") and read_int(index / "level", 0) == 3:
            return read_int(index / "id", -1)
    return -1


def _pcie_roots(sys_root: Path) -> dict[int, tuple[str, ...]]:
    roots: dict[int, tuple[str, ...]] = {}
    for folder in children(sys_root / "devices"):
        if not _PCI_ROOT.fullmatch(folder.name):
            continue
        numbers = [read_int(each / "numa_node", -1) for each in children(folder) if (each / "numa_node").exists()]
        # -1: not reported by the firmware; with one NUMA node there is no choice.
        node = max(numbers, default=-1)
        roots[max(node, 0)] = (*roots.get(max(node, 0), ()), folder.name)
    return roots


def simulated_topology(machine: Machine) -> Topology:
    """The processors of a machine profile: a socket for each NUMA node, two CPUs for each core."""
    per_node = machine.cpus // machine.numa_nodes
    cores_per_node = max(per_node // _THREADS_PER_CORE, 1)
    cores = cores_per_node * machine.numa_nodes
    cpus = tuple(
        Cpu(
            id=number,
            core=number % cores % cores_per_node,
            socket=number % cores // cores_per_node,
            numa_node=number % cores // cores_per_node,
            cache_l3=number % cores // cores_per_node,
        )
        for number in range(per_node * machine.numa_nodes)
    )
    roots: dict[int, tuple[str, ...]] = {}
    for bus in (*(gpu.bus for gpu in machine.gpus), *(card.bus for card in machine.network_cards)):
        known = roots.get(bus.numa_node, ())
        if bus.pcie_root not in known:
            roots[bus.numa_node] = (*known, bus.pcie_root)
    return Topology(cpus=ordered(cpus), pcie_roots=roots)


@cache
def local_cpus(machine: Machine, numa_node: int) -> str:
    """The processors of a NUMA node of a machine profile, in the kernel's format; cached for thousands of nodes."""
    return format_cpu_list(cpu.id for cpu in simulated_topology(machine).cpus if cpu.numa_node == numa_node)
