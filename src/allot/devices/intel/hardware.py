"""Intel GPUs: from the kernel (sysfs and DRM), or from a machine profile.

A GPU is a PCI function of Intel's with a display class; so is a virtual function of one, which has a link to its physical function. Which
kernel driver is bound decides what a container can have of it: files of DRM, or of VFIO for virtual machines.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import msgspec

from allot.devices.intel.memory import memory_mib
from allot.devices.profiles.intel import IntelMachine, IntelModel, intel_tables
from allot.devices.sysfs import PciPlace, children, drm_nodes, pci_place, read_int, read_line

DRM_DRIVERS = ("i915", "xe")
VFIO_DRIVERS = ("vfio-pci", "xe-vfio-pci")
_VENDOR = 0x8086
# VGA compatible, and other display controllers.
_CLASSES = (0x030000, 0x038000)
_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_FIRST_RENDER = 128
_FUNCTIONS_PER_SLOT = 8
# Model and family of GPUs that are missing from the profiles.
_UNKNOWN = "Unknown"


class Gpu(msgspec.Struct, frozen=True, kw_only=True):
    """A card, or a virtual function of one. kernel_driver: the bound one, empty if none."""

    place: PciPlace
    pci_id: str
    kernel_driver: str
    model: str = _UNKNOWN
    family: str = _UNKNOWN
    product_name: str = "Intel(R) Graphics"
    # The physical function's address, for a virtual function.
    parent: str = ""
    # Whether the kernel binds a driver to its new virtual functions.
    has_functions: bool = False
    # 0: not known.
    memory_mib: int = 0
    card: int = -1
    render: int = -1
    execution_units: int = 0
    tiles: int = 1
    power_limit_w: int = 0
    iommu_group: str = ""
    # Management engine interfaces, for administrators.
    management_files: tuple[str, ...] = ()

    @property
    def device_files(self) -> tuple[str, ...]:
        """The host's device files that a container needs."""
        if self.kernel_driver in VFIO_DRIVERS:
            return ("/dev/vfio/vfio", f"/dev/vfio/{self.iommu_group}")
        return (f"/dev/dri/card{self.card}", f"/dev/dri/renderD{self.render}")


class Gpus(Protocol):
    """A source of GPUs."""

    def read(self) -> tuple[Gpu, ...]:
        """The current GPUs, by PCI address."""


class KernelGpus:
    """The GPUs of this machine."""

    def __init__(
        self, sys_root: Path, dev_root: Path = Path("/dev"), ask_memory: Callable[[Path, str], int] = memory_mib
    ) -> None:
        self._sys = sys_root
        self._dev = dev_root
        self._ask_memory = ask_memory
        # Read once for each card: it does not change, and reading wakes a sleeping card.
        self._memory: dict[tuple[str, int], int] = {}

    def read(self) -> tuple[Gpu, ...]:
        """All Intel GPUs on the PCI bus."""
        found = [
            self._gpu(folder) for folder in children(self._sys / "bus" / "pci" / "devices") if self._is_gpu(folder)
        ]
        return tuple(gpu for gpu in found if gpu is not None)

    def _is_gpu(self, folder: Path) -> bool:
        if _ADDRESS.fullmatch(folder.name) is None:
            return False
        return read_int(folder / "vendor", 0) == _VENDOR and read_int(folder / "class", 0) in _CLASSES

    def _gpu(self, folder: Path) -> Gpu | None:
        pci_id = f"0x{read_int(folder / 'device', 0):04x}"
        driver = _link_name(folder / "driver")
        nodes = drm_nodes(folder / "drm")
        group = _link_name(folder / "iommu_group")
        is_usable = {"card", "renderD"} <= set(nodes) if driver in DRM_DRIVERS else driver not in VFIO_DRIVERS or group
        if not is_usable:
            # Between two drivers, or only partly probed.
            return None
        card = nodes.get("card", -1)
        model = _models().get(pci_id)
        return Gpu(
            place=pci_place(folder),
            pci_id=pci_id,
            kernel_driver=driver,
            model=model.name if model is not None else _UNKNOWN,
            family=model.family if model is not None else _UNKNOWN,
            product_name=model.product_name if model is not None else "Intel(R) Graphics",
            parent=_link_name(folder / "physfn"),
            has_functions=read_int(folder / "sriov_totalvfs", 0) > 0
            and read_line(folder / "sriov_drivers_autoprobe") == "1",
            memory_mib=self._memory_of(folder.name, card, driver) if driver in DRM_DRIVERS else 0,
            card=card,
            render=nodes.get("renderD", -1),
            iommu_group=group,
            management_files=_management_files(folder),
        )

    def _memory_of(self, address: str, card: int, driver: str) -> int:
        known = self._memory.get((address, card))
        if known is None:
            known = self._ask_memory(self._dev / "dri" / f"card{card}", driver)
            if known:
                self._memory[address, card] = known
        return known


class SimulatedGpus:
    """The cards of a machine profile, each with this number of virtual functions."""

    def __init__(self, machine: IntelMachine, functions: int = 0) -> None:
        if not 0 <= functions <= machine.model.functions:
            raise ValueError(
                f"virtual functions {functions}: {machine.model.product_name} can have {machine.model.functions}"
            )
        self._machine = machine
        self._functions = functions

    def read(self) -> tuple[Gpu, ...]:
        """All of them, cards first in the order of their buses."""
        found: list[Gpu] = []
        for bus in self._machine.buses:
            parent = self._gpu(bus.pci_address, bus.pcie_root, len(found))
            found.append(parent)
            for number in range(1, self._functions + 1):
                found.append(self._function(parent, number, len(found)))
        return tuple(found)

    def _gpu(self, address: str, root: str, index: int) -> Gpu:
        model = self._machine.model
        return Gpu(
            place=PciPlace(address, root),
            pci_id=model.pci_device_id,
            kernel_driver=model.kernel_driver,
            model=model.name,
            family=model.family,
            product_name=model.product_name,
            has_functions=model.functions > 0,
            memory_mib=model.memory_mib,
            card=index,
            render=_FIRST_RENDER + index,
            execution_units=model.execution_units,
            tiles=model.tiles,
            power_limit_w=model.power_limit_w,
        )

    def _function(self, parent: Gpu, number: int, index: int) -> Gpu:
        """A virtual function: follows the physical one on its bus, and has an equal part of its memory."""
        bus = parent.place.address.rpartition(":")[0]
        address = f"{bus}:{number // _FUNCTIONS_PER_SLOT:02x}.{number % _FUNCTIONS_PER_SLOT}"
        return msgspec.structs.replace(
            parent,
            place=PciPlace(address, parent.place.root),
            parent=parent.place.address,
            has_functions=False,
            memory_mib=parent.memory_mib // self._functions,
            card=index,
            render=_FIRST_RENDER + index,
        )


def _models() -> dict[str, IntelModel]:
    return {model.pci_device_id: model for model in intel_tables().models}


def _link_name(path: Path) -> str:
    """The name of a link's target; empty without a link."""
    try:
        return path.readlink().name
    except OSError:
        return ""


def _management_files(folder: Path) -> tuple[str, ...]:
    found = [mei.name for child in children(folder) for mei in children(child / "mei") if mei.name.startswith("mei")]
    return tuple(f"/dev/{name}" for name in found)
