"""The driver: publishes cards and partitions, and gives claims their device files, or simulated programs."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec

from allot.devices.amd.hardware import Gpu, Gpus
from allot.devices.amd.inventory import DRIVER_NAME, as_device, gpu_name
from allot.devices.container_programs import information_mount, program_mounts, write_programs
from allot.devices.lost_devices import read_lost
from allot.driver import Claim, ConfigKind, Device, DeviceNode, Driver, Edits, Prepared, PrepareError

PROGRAMS = ("amd-smi", "rocm-smi")
CONTAINER_GPUS = "/run/amd-simulated"
_SOURCE = Path(__file__).parent / "container_programs"


class GpuConfig(msgspec.Struct, frozen=True):
    """AMD's parameters; none yet."""


class AmdDriver(Driver):
    """AMD GPUs of one node. folder: files for the containers of a simulated machine."""

    name = DRIVER_NAME
    cdi_class = "gpu"
    configs = (ConfigKind("gpu.resource.amd.com/v1alpha1", "GpuConfig", GpuConfig),)
    rescan_s = 30.0

    def __init__(self, gpus: Gpus, folder: Path | None = None) -> None:
        self._gpus = gpus
        self._folder = folder

    def start(self) -> None:
        """Write the programs of simulated cards to where containers mount them from."""
        if self._folder is not None:
            write_programs(_SOURCE, PROGRAMS, self._folder / "bin")

    def devices(self) -> Iterable[Device]:
        """All cards and partitions."""
        return [as_device(gpu) for gpu in self._present().values()]

    def edits_for_all(self) -> Edits:
        """What AMD's driver sets, and the programs of simulated cards."""
        mounts = program_mounts(self._folder / "bin", PROGRAMS) if self._folder is not None else ()
        return Edits(env={"KUBERNETES_NODE_NAME": self.node.name, "DRA_RESOURCE_DRIVER_NAME": self.name}, mounts=mounts)

    def prepare(self, claim: Claim) -> Iterable[Prepared]:
        """Provide device files; cards are not changed."""
        gpus = self._present()
        gone = [device.name for device in claim.devices if device.name not in gpus]
        if gone:
            raise PrepareError(f"device {gone[0]} no longer exists: its card is gone or is partitioned differently")
        return [Prepared(device, self._edits(gpus[device.name])) for device in claim.devices]

    def _present(self) -> dict[str, Gpu]:
        lost = read_lost(self._folder)
        return {name: gpu for gpu in self._gpus.read() if (name := gpu_name(gpu)) not in lost}

    def _edits(self, gpu: Gpu) -> Edits:
        if self._folder is None:
            return Edits(device_nodes=tuple(DeviceNode(path=path, permissions="rwm") for path in gpu.device_files))
        name = gpu_name(gpu)
        target = f"{CONTAINER_GPUS}/{gpu.render:04d}-{name}"
        return Edits(mounts=(information_mount(self._folder / "gpus" / name, _information(gpu), target),))


def _information(gpu: Gpu) -> dict[str, str]:
    """What the programs show."""
    compute, _, memory = gpu.partition_profile.upper().partition("_")
    return {
        "bdf": gpu.place.address,
        "name": gpu.product_name,
        "uuid": f"{gpu.unique_id >> 32:04x}{gpu.device_id[2:]}-0000-1000-80{gpu.partition:02x}-{gpu.unique_id:012x}",
        "device_id": gpu.device_id,
        "kfd_id": str(10000 + gpu.render),
        "node_id": str(gpu.render - 126),
        "partition": str(gpu.partition),
        "compute": compute or "N/A",
        "memory_mode": memory or "N/A",
        "memory": str(gpu.memory_mib),
        "units": str(gpu.compute_units),
        "power_limit": str(gpu.power_limit_w),
        "version": gpu.driver_version,
        "render": str(gpu.render),
        "card": str(gpu.card),
    }
