"""TPU chips: from the kernel's `/sys` and `/dev`, or from a machine profile."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

import msgspec

from allot.devices.lost_devices import read_lost
from allot.devices.profiles.tpus import Generation, TpuMachine, find_generation
from allot.devices.sysfs import children, read_int

GOOGLE = 0x1AE0


class Chip(msgspec.Struct, frozen=True, kw_only=True):
    """A chip. name: of its device file, `accel0` or a VFIO group; device_file: empty if simulated."""

    index: int
    name: str
    generation: Generation
    device_file: str = ""
    is_present: bool = True


class Chips(Protocol):
    """A source of chips."""

    def read(self) -> tuple[Chip, ...]:
        """The current chips."""


class KernelChips:
    """The chips of this machine."""

    def __init__(self, sys_root: Path, dev_root: Path) -> None:
        self._sys_root = sys_root
        self._dev_root = dev_root

    def read(self) -> tuple[Chip, ...]:
        """Google's devices on the PCI bus, as the kernel names them."""
        found: list[tuple[str, Generation]] = []
        for folder in children(self._sys_root / "bus" / "pci" / "devices"):
            if read_int(folder / "vendor", 0) != GOOGLE:
                continue
            generation = find_generation(read_int(folder / "device", 0), read_int(folder / "subsystem_device", 0))
            name = self._file_name(folder)
            if generation is not None and name:
                found.append((name, generation))
        found.sort(key=lambda each: (len(each[0]), each[0]))
        return tuple(self._chip(index, name, generation) for index, (name, generation) in enumerate(found))

    def _file_name(self, folder: Path) -> str:
        accelerators = [each.name for each in children(folder / "accel") if each.name.startswith("accel")]
        if accelerators:
            return accelerators[0]
        group = folder / "iommu_group"
        return group.resolve().name if group.exists() else ""

    def _chip(self, index: int, name: str, generation: Generation) -> Chip:
        path = self._dev_root / (name if name.startswith("accel") else f"vfio/{name}")
        return Chip(
            index=index, name=name, generation=generation, device_file=f"/dev/{path.relative_to(self._dev_root)}",
            is_present=path.exists(),
        )  # fmt: skip


class SimulatedChips:
    """The chips of a machine profile. A file `lost` in the directory names missing ones, one per line."""

    def __init__(self, machine: TpuMachine, folder: Path | None = None) -> None:
        self.machine = machine
        self._folder = folder

    def read(self) -> tuple[Chip, ...]:
        """All chips; lost ones are marked as missing."""
        generation = self.machine.generation
        lost = read_lost(self._folder)
        names = [f"{'' if generation.uses_vfio else 'accel'}{index}" for index in range(self.machine.chips)]
        return tuple(
            Chip(index=index, name=name, generation=generation, is_present=name not in lost)
            for index, name in enumerate(names)
        )
