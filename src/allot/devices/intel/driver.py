"""The driver: publishes cards and virtual functions, and gives claims their device files, or a simulated program."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from allot.devices.container_programs import information_mount, program_mounts, write_programs
from allot.devices.intel.classes import VFIO_CLASS
from allot.devices.intel.hardware import DRM_DRIVERS, VFIO_DRIVERS, Gpu, Gpus
from allot.devices.intel.inventory import DRIVER_NAME, HEALTHY, UNHEALTHY, UNKNOWN, as_device, gpu_name
from allot.devices.lost_devices import read_ill, read_lost
from allot.driver import (
    AllocatedDevice,
    Claim,
    Device,
    DeviceHealth,
    DeviceNode,
    Driver,
    Edits,
    Health,
    Mount,
    Prepared,
    PrepareError,
)

PROGRAMS = ("xpu-smi",)
CONTAINER_GPUS = "/run/intel-simulated"
_SOURCE = Path(__file__).parent / "container_programs"
_BY_PATH = Path("/dev/dri/by-path")


class IntelDriver(Driver):
    """Intel GPUs of one node. folder: of a simulated machine, where containers' files and faults are kept."""

    name = DRIVER_NAME
    cdi_class = "gpu"
    rescan_s = 30.0

    def __init__(self, gpus: Gpus, folder: Path | None = None) -> None:
        self._gpus = gpus
        self._folder = folder

    def start(self) -> None:
        """Write the program of simulated cards to where containers mount it from."""
        if self._folder is not None:
            write_programs(_SOURCE, PROGRAMS, self._folder / "bin")

    def devices(self) -> Iterable[Device]:
        """All cards and virtual functions."""
        ill = read_ill(self._folder)
        return [as_device(gpu, self._health(name, ill), ill.get(name, ())) for name, gpu in self._present().items()]

    def health(self) -> Iterable[DeviceHealth]:
        """The health of simulated cards, from their files; the kernel reports none."""
        ill = read_ill(self._folder)
        known = {HEALTHY: Health.HEALTHY, UNHEALTHY: Health.UNHEALTHY, UNKNOWN: Health.UNKNOWN}
        return [
            DeviceHealth(name=name, health=known[self._health(name, ill)], message=", ".join(ill.get(name, ())))
            for name in self._present()
        ]

    @property
    def reports_health(self) -> bool:
        """Whether there is anything to report."""
        return self._folder is not None

    def edits_for_all(self) -> Edits:
        """The program of simulated cards."""
        mounts = program_mounts(self._folder / "bin", PROGRAMS) if self._folder is not None else ()
        return Edits(mounts=mounts)

    def prepare(self, claim: Claim) -> Iterable[Prepared]:
        """Provide device files; neither the card nor its kernel driver is changed."""
        gpus = self._present()
        prepared = []
        for each in claim.devices:
            gpu = gpus.get(each.name)
            if gpu is None:
                raise PrepareError(f"device {each.name} no longer exists")
            _check_kernel_driver(gpu, _class_of(claim, each))
            prepared.append(Prepared(each, self._edits(gpu, each)))
        return prepared

    def _present(self) -> dict[str, Gpu]:
        lost = read_lost(self._folder)
        return {name: gpu for gpu in self._gpus.read() if (name := gpu_name(gpu)) not in lost}

    def _health(self, name: str, ill: dict[str, tuple[str, ...]]) -> str:
        if self._folder is None:
            return UNKNOWN
        return UNHEALTHY if name in ill else HEALTHY

    def _edits(self, gpu: Gpu, device: AllocatedDevice) -> Edits:
        if self._folder is not None:
            name = gpu_name(gpu)
            target = f"{CONTAINER_GPUS}/{gpu.card:04d}-{name}"
            return Edits(mounts=(information_mount(self._folder / "gpus" / name, _information(gpu), target),))
        files = (*gpu.device_files, *(gpu.management_files if device.admin_access else ()))
        return Edits(device_nodes=tuple(DeviceNode(path=path) for path in files), mounts=_by_path(gpu))


def _class_of(claim: Claim, device: AllocatedDevice) -> str:
    """The class of a device's request."""
    base, _, alternative = device.request.partition("/")
    for request in claim.object.spec.devices.requests:
        if request.name == base:
            for each in request.first_available or ():
                if each.name == alternative:
                    return each.device_class_name
            return request.exactly.device_class_name if request.exactly is not None else ""
    return ""


def _check_kernel_driver(gpu: Gpu, class_name: str) -> None:
    """PrepareError if one of Intel's classes does not match the GPU's kernel driver; other classes are not checked."""
    wanted = {DRIVER_NAME: DRM_DRIVERS, VFIO_CLASS: VFIO_DRIVERS}.get(class_name, (*DRM_DRIVERS, *VFIO_DRIVERS))
    if gpu.kernel_driver not in wanted:
        bound = (
            f"is bound to kernel driver {gpu.kernel_driver}" if gpu.kernel_driver else "is bound to no kernel driver"
        )
        raise PrepareError(
            f"device {gpu_name(gpu)} {bound}, class {class_name} needs {' or '.join(wanted)}; this driver does not bind them"
        )


def _by_path(gpu: Gpu) -> tuple[Mount, ...]:
    if gpu.kernel_driver not in DRM_DRIVERS:
        return ()
    links = (_BY_PATH / f"pci-{gpu.place.address}-{kind}" for kind in ("card", "render"))
    return tuple(
        Mount(host_path=str(link), container_path=str(link), options=("bind",)) for link in links if link.exists()
    )


def _information(gpu: Gpu) -> dict[str, str]:
    """What the program shows."""
    bus = int(gpu.place.address.split(":")[1], 16)
    slot, _, function = gpu.place.address.rpartition(":")[2].partition(".")
    return {
        "bdf": gpu.place.address,
        "name": gpu.product_name,
        "uuid": f"00000000-0000-{bus:04x}-{int(slot, 16):02x}{int(function):02x}-002f{gpu.pci_id[2:]}8086",
        "pci_id": gpu.pci_id,
        "drm": f"/dev/dri/card{gpu.card}",
        "function_type": "virtual" if gpu.parent else "physical",
        "memory": str(gpu.memory_mib),
        "units": str(gpu.execution_units),
        "tiles": str(gpu.tiles),
        "power_limit": str(gpu.power_limit_w),
        "driver": gpu.kernel_driver,
    }
