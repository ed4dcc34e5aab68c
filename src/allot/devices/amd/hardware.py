"""AMD GPUs: from the kernel (sysfs and KFD), or from a machine profile.

A card in compute mode SPX, or without a mode, is one GPU. In any other mode it is several: the PCI function is the first, the others are
platform devices (`amdgpu_xcp_*`) that KFD knows by their render node. KFD's location names the card of a partition, in
which the PCI function number counts the partitions (ROCm/k8s-gpu-dra-driver, pull 21).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

import msgspec

from allot.devices.profiles.amd import DRIVER_VERSION, AmdMachine
from allot.devices.sysfs import PciPlace, children, drm_nodes, pci_place, read_int, read_line

_ADDRESS = re.compile(r"([0-9a-f]{4,8}):([0-9a-f]{2}):([0-9a-f]{2})\.([0-7])")
_SIMDS_PER_UNIT = 4
_FIRST_RENDER = 128
_RENDERS_PER_CARD = 8
_MIB = 2**20


class Gpu(msgspec.Struct, frozen=True, kw_only=True):
    """A whole card, or a partition of one. partition_profile: `cpx_nps4`, empty if the card has none; device_files: of the host."""

    card: int
    render: int
    place: PciPlace
    numa_node: int
    product_name: str
    driver_version: str
    device_id: str
    compute_units: int
    simd_units: int
    # 0: not known.
    memory_mib: int
    partition_profile: str = ""
    partition: int = 0
    is_partition: bool = False
    unique_id: int = 0
    power_limit_w: int = 0
    device_files: tuple[str, ...] = ()


class Gpus(Protocol):
    """A source of GPUs."""

    def read(self) -> tuple[Gpu, ...]:
        """The current GPUs."""


class KernelGpus:
    """The GPUs of this machine."""

    def __init__(self, sys_root: Path) -> None:
        self._sys = sys_root

    def read(self) -> tuple[Gpu, ...]:
        """All GPUs of the amdgpu driver."""
        kfd = self._kfd_nodes()
        found: list[Gpu] = []
        for folder in children(self._sys / "module" / "amdgpu" / "drivers" / "pci:amdgpu"):
            address = _ADDRESS.fullmatch(folder.name)
            if address is None:
                continue
            compute = read_line(folder / "current_compute_partition").lower()
            memory = read_line(folder / "current_memory_partition").lower()
            profile = f"{compute}_{memory}" if compute and memory else ""
            is_partitioned = compute not in ("", "spx")
            drms = [folder / "drm"]
            if is_partitioned:
                drms += self._further_partitions(address, kfd)
            for number, drm in enumerate(drms):
                nodes = drm_nodes(drm)
                if "card" in nodes and "renderD" in nodes:
                    found.append(self._gpu(folder, nodes, kfd, profile, number, is_partitioned))
        return tuple(sorted(found, key=lambda gpu: (gpu.card, gpu.render)))

    def _gpu(
        self,
        folder: Path,
        nodes: Mapping[str, int],
        kfd: Mapping[int, Mapping[str, int]],
        profile: str,
        number: int,
        is_partition: bool,
    ) -> Gpu:
        card, render = nodes["card"], nodes["renderD"]
        properties = kfd.get(render, {})
        simds = properties.get("simd_count", 0)
        return Gpu(
            card=card,
            render=render,
            place=pci_place(folder),
            numa_node=read_int(folder / "numa_node", -1),
            product_name=read_line(folder / "product_name"),
            driver_version=read_line(self._sys / "module" / "amdgpu" / "version"),
            device_id=read_line(folder / "device"),
            compute_units=simds // (properties.get("simd_per_cu") or _SIMDS_PER_UNIT),
            simd_units=simds,
            memory_mib=properties.get("size_in_bytes", 0) // _MIB,
            partition_profile=profile,
            partition=number,
            is_partition=is_partition,
            unique_id=properties.get("unique_id", 0),
            device_files=("/dev/kfd", f"/dev/dri/card{card}", f"/dev/dri/renderD{render}"),
        )

    def _further_partitions(self, address: re.Match[str], kfd: Mapping[int, Mapping[str, int]]) -> list[Path]:
        """The platform devices of a card, by their number in KFD's location."""
        domain, bus, slot = (int(part, 16) for part in address.groups()[:3])
        found = []
        for folder in children(self._sys / "devices" / "platform"):
            if not folder.name.startswith("amdgpu_xcp"):
                continue
            properties = kfd.get(drm_nodes(folder / "drm").get("renderD", 0), {})
            location = properties.get("location_id", -1)
            if location >> 3 == (bus << 8 | slot << 3) >> 3 and properties.get("domain", 0) == domain:
                found.append((location & 7, folder.name, folder / "drm"))
        return [drm for _, _, drm in sorted(found)]

    def _kfd_nodes(self) -> dict[int, dict[str, int]]:
        """What KFD reports about each GPU, by render node; CPUs have none."""
        found = {}
        for folder in children(self._sys / "class" / "kfd" / "kfd" / "topology" / "nodes"):
            properties = _read_properties(folder / "properties")
            if properties.get("drm_render_minor", 0) > 0:
                memory = _read_properties(folder / "mem_banks" / "0" / "properties")
                found[properties["drm_render_minor"]] = {**memory, **properties}
        return found


class SimulatedGpus:
    """The cards of a machine profile, all set to the same partitions: `spx_nps1`, `cpx_nps4`."""

    def __init__(self, machine: AmdMachine, partition_profile: str = "") -> None:
        model = machine.model
        profile = partition_profile or next(iter(model.partition_profiles), "")
        if profile and profile not in model.partition_profiles:
            known = ", ".join(model.partition_profiles) or "none"
            raise ValueError(f"partitions {profile!r}: {model.product_name} has {known}")
        self._machine = machine
        self._profile = profile

    def read(self) -> tuple[Gpu, ...]:
        """All of them."""
        model = self._machine.model
        mode = self._profile.partition("_")[0]
        parts = model.modes[mode][0] if mode else 1
        found = []
        for index, bus in enumerate(self._machine.buses):
            for part in range(parts):
                found.append(
                    Gpu(
                        card=index * _RENDERS_PER_CARD + part,
                        render=_FIRST_RENDER + index * _RENDERS_PER_CARD + part,
                        place=PciPlace(bus.pci_address, bus.pcie_root),
                        numa_node=bus.numa_node,
                        product_name=model.product_name,
                        driver_version=DRIVER_VERSION,
                        device_id=model.pci_device_id,
                        compute_units=model.compute_units // parts,
                        simd_units=model.compute_units // parts * _SIMDS_PER_UNIT,
                        memory_mib=model.memory_mib // parts,
                        partition_profile=self._profile,
                        partition=part,
                        is_partition=parts > 1,
                        unique_id=0xB5FF_0000_0000 + index,
                        power_limit_w=model.power_limit_w,
                    )
                )
        return tuple(found)


def _read_properties(path: Path) -> dict[str, int]:
    """Lines with a name and a number; others are skipped."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return {}
    pairs = (line.split() for line in lines)
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isascii() and pair[1].isdigit()}
