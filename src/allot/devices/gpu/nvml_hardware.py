"""The cards of this machine, through NVML, nvidia-smi (time slices, which NVML cannot set) and the MPS daemon."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import msgspec

from allot.devices.gpu import nvml as api
from allot.devices.gpu.driver_files import driver_edits, find_library
from allot.devices.gpu.hardware import (
    ComputeMode,
    Fault,
    FaultKind,
    Gpu,
    HardwareError,
    MigInstance,
    MpsFolders,
    MpsSettings,
)
from allot.devices.gpu.mps import DAEMON, MpsDaemons
from allot.devices.gpu.nvml import Nvml, NvmlError
from allot.devices.profiles.mig import MigProfile, Placement
from allot.driver import DeviceNode, Edits

T = TypeVar("T")

_BRANDS = {0: "Unknown", 1: "Quadro", 2: "Tesla", 3: "NVS", 4: "Grid", 5: "GeForce", 6: "Titan", 12: "QuadroRTX"}
_BRANDS |= {13: "NvidiaRTX", 14: "Nvidia", 15: "GeForceRTX", 16: "TitanRTX"}
_ARCHITECTURES = {2: "Kepler", 3: "Maxwell", 4: "Pascal", 5: "Volta", 6: "Turing", 7: "Ampere", 8: "Ada Lovelace"}
_ARCHITECTURES |= {9: "Hopper", 10: "Blackwell", 13: "Rubin"}
_AMPERE = 7
_ADDRESSING_MODES = {0: "None", 1: "HMM", 2: "ATS"}
_MIB = 1024 * 1024
_SMI_S = 30.0
_SYSFS = Path("/sys")
_EVENT_WAIT_MS_MAX = 1000


class NvmlHardware:
    """The cards that NVML knows."""

    def __init__(
        self,
        library: str,
        state: Path,
        driver_root: Path = Path("/"),
        *,
        host_driver_root: Path | None = None,
        sysfs: Path = _SYSFS,
        smi: str = "nvidia-smi",
        mps: str = DAEMON,
    ) -> None:
        self._library = find_library(driver_root, library)
        self._driver_root = driver_root
        self._host_driver_root = host_driver_root
        self._sysfs = sysfs
        self._smi = smi
        self._mps = MpsDaemons(state / "mps", mps)
        self._nvml: Nvml | None = None
        self._event_set = 0
        self._handles: dict[str, int] = {}
        # Events since the driver started, by UUID; and the last known state of cards, for lost ones.
        self._faults: dict[str, tuple[Fault, ...]] = {}
        self._seen: dict[str, Gpu] = {}
        self._lock = threading.RLock()
        # Held while waiting for events: the set must not be freed meanwhile.
        self._waiting = threading.Lock()
        self._closed = threading.Event()

    # --- life ---

    def open(self) -> None:
        """Open NVML and subscribe to events."""
        try:
            self._nvml = Nvml(self._library)
        except OSError as error:
            raise HardwareError(f"NVML {self._library}: {error}; is the NVIDIA driver installed?") from error
        except NvmlError as error:
            raise HardwareError(f"NVML {self._library}: {error}") from error
        with self._lock:
            try:
                self._event_set = self._nvml.create_event_set()
            except NvmlError:
                self._event_set = 0
            for device in self._nvml.devices():
                self._watch(device)

    def _watch(self, device: int) -> None:
        id_ = self._open.uuid(device)
        self._handles[id_] = device
        try:
            if not self._event_set:
                raise NvmlError("nvmlEventSetCreate", api.ERROR_NOT_SUPPORTED, "no events")
            self._open.register_events(device, self._event_set)
        except NvmlError:
            self._add_fault(id_, Fault(kind=FaultKind.UNMONITORED))

    def close(self) -> None:
        """Close NVML."""
        self._closed.set()
        with self._waiting, self._lock:
            if self._nvml is not None:
                if self._event_set:
                    self._nvml.free_event_set(self._event_set)
                self._nvml.close()
                self._nvml = None

    @property
    def _open(self) -> Nvml:
        if self._nvml is None:
            raise HardwareError("NVML is not open")
        return self._nvml

    # --- what there is ---

    def gpus(self) -> tuple[Gpu, ...]:
        """All cards; one that no longer responds has its last known state, marked as lost."""
        with self._lock:
            versions = (self._asked(self._open.driver_version), self._asked(self._open.cuda_driver_version))
            found = []
            for id_, device in self._handles.items():
                try:
                    self._seen[id_] = self._gpu(id_, device, versions)
                except NvmlError as error:
                    if id_ not in self._seen:
                        raise HardwareError(f"GPU {id_}: {error}") from error
                    self._add_fault(id_, Fault(kind=FaultKind.LOST))
                    self._seen[id_] = msgspec.structs.replace(self._seen[id_], faults=self._faults[id_])
                found.append(self._seen[id_])
            return tuple(sorted(found, key=lambda gpu: gpu.minor))

    def _asked(self, question: Callable[[], str]) -> str:
        try:
            return question()
        except NvmlError as error:
            raise HardwareError(str(error)) from error

    def _gpu(self, id_: str, device: int, versions: tuple[str, str]) -> Gpu:
        library = self._open
        pci = library.pci(device)
        address = f"{pci.domain:04x}:{pci.bus:02x}:{pci.device:02x}.0"
        architecture = library.architecture(device)
        mig_mode = _optional(library.mig_mode, device)
        addressing = _optional(library.addressing_mode, device)
        profiles: tuple[MigProfile, ...] = ()
        if mig_mode is not None:
            # They never change, and reading each is slow.
            known = self._seen.get(id_)
            profiles = known.mig_profiles if known is not None else self._profiles(device)
        return Gpu(
            minor=library.minor(device),
            uuid=id_,
            product_name=library.name(device),
            brand=_BRANDS.get(library.brand(device), "Unknown"),
            architecture=_ARCHITECTURES.get(architecture, "Unknown"),
            cuda_compute_capability=library.compute_capability(device),
            driver_version=versions[0],
            cuda_driver_version=versions[1],
            memory_mib=library.memory_bytes(device) // _MIB,
            pci_address=address,
            pcie_root=pcie_root(self._sysfs, address),
            addressing_mode="" if addressing is None else _ADDRESSING_MODES.get(addressing, ""),
            pci_device_id=f"0x{pci.pci_device_id >> 16:04x}",
            numa_node=numa_node(self._sysfs, address),
            mig_mode=mig_mode,
            mig_mode_needs_reset=architecture <= _AMPERE,
            mig_profiles=profiles,
            mig_instances=self._instances(id_, device, profiles) if mig_mode else (),
            faults=self._faults.get(id_, ()),
        )

    def _profiles(self, device: int) -> tuple[MigProfile, ...]:
        found: list[MigProfile] = []
        for number in api.GPU_INSTANCE_PROFILES:
            try:
                info = self._open.instance_profile(device, number)
                places = self._open.possible_placements(device, info.id)
            except NvmlError as error:
                # No card has all profiles.
                if error.code in (2, api.ERROR_NOT_SUPPORTED, api.ERROR_NOT_FOUND):
                    continue
                raise
            if not places or any(profile.id == info.id for profile in found):
                continue
            found.append(
                MigProfile(
                    name=info.name.decode().removeprefix("MIG "),
                    id=info.id,
                    compute_slices=info.slice_count,
                    memory_slices=places[0][1],
                    starts=tuple(sorted(start for start, _ in places)),
                    memory_mib=info.memory_size_mb,
                    multiprocessors=info.multiprocessor_count,
                    copy_engines=info.copy_engine_count,
                    decoders=info.decoder_count,
                    encoders=info.encoder_count,
                    jpeg_engines=info.jpeg_count,
                    ofa_engines=info.ofa_count,
                )
            )
        return tuple(found)

    def _instances(self, id_: str, device: int, profiles: tuple[MigProfile, ...]) -> tuple[MigInstance, ...]:
        uuids = {self._open.mig_device_ids(each): self._open.uuid(each) for each in self._open.mig_devices(device)}
        found = []
        for profile in profiles:
            for handle in self._open.instances(device, profile.id):
                info = self._open.instance_info(handle)
                for (instance, compute), uuid in uuids.items():
                    if instance == info.id:
                        found.append(
                            MigInstance(
                                uuid=uuid,
                                gpu_uuid=id_,
                                profile=profile,
                                placement=Placement(info.placement.start, info.placement.size),
                                gpu_instance_id=info.id,
                                compute_instance_id=compute,
                            )
                        )
        return tuple(found)

    def wait_for_change(self, seconds: float) -> bool:
        """Wait for an error event."""
        if not self._event_set:
            self._closed.wait(seconds)
            return False
        try:
            with self._waiting:
                if self._nvml is None:
                    return False
                event = self._nvml.wait_for_event(self._event_set, min(int(seconds * 1000), _EVENT_WAIT_MS_MAX))
        except NvmlError as error:
            if error.code != api.ERROR_GPU_IS_LOST:
                raise HardwareError(str(error)) from error
            # The event does not name the card, so check each of them.
            return True
        if event is None:
            return False
        device, xid = event
        with self._lock:
            for id_, handle in self._handles.items():
                if handle == device or not device:
                    self._add_fault(id_, Fault(kind=FaultKind.XID, xid=xid))
        return True

    def _add_fault(self, id_: str, fault: Fault) -> None:
        known = self._faults.get(id_, ())
        if fault not in known:
            self._faults[id_] = (*known, fault)

    # --- what can be done ---

    def set_mig_mode(self, gpu_uuid: str, is_on: bool) -> None:
        """Turn MIG on or off."""
        with self._lock, _Named(f"set MIG mode of {gpu_uuid}"):
            self._open.set_mig_mode(self._device(gpu_uuid), is_on)

    def create_instance(self, gpu_uuid: str, profile: MigProfile, placement: Placement) -> MigInstance:
        """Create a GPU instance and the compute instance that fills it."""
        with self._lock, _Named(f"create MIG instance {profile.name} on {gpu_uuid}"):
            device = self._device(gpu_uuid)
            handle = self._find(device, profile, placement)
            if handle is None:
                handle = self._open.create_instance(device, profile.id, placement.start, placement.size)
            compute_profile = self._open.compute_profile_id(handle, profile.compute_slices)
            if not self._open.compute_instances(handle, compute_profile):
                self._open.create_compute_instance(handle, compute_profile)
            for instance in self._instances(gpu_uuid, device, (profile,)):
                if instance.placement == placement:
                    return instance
        raise HardwareError(f"create MIG instance {profile.name} on {gpu_uuid}: it was created but does not exist")

    def destroy_instance(self, gpu_uuid: str, instance: MigInstance) -> None:
        """Destroy the compute instance, then the GPU instance."""
        with self._lock, _Named(f"destroy MIG instance {instance.uuid}"):
            handle = self._find(self._device(gpu_uuid), instance.profile, instance.placement)
            if handle is None:
                return
            compute_profile = self._open.compute_profile_id(handle, instance.profile.compute_slices)
            for compute in self._open.compute_instances(handle, compute_profile):
                self._open.destroy_compute_instance(compute)
            self._open.destroy_instance(handle)

    def _find(self, device: int, profile: MigProfile, placement: Placement) -> int | None:
        for handle in self._open.instances(device, profile.id):
            if self._open.instance_info(handle).placement.start == placement.start:
                return handle
        return None

    def _device(self, gpu_uuid: str) -> int:
        if gpu_uuid not in self._handles:
            raise HardwareError(f"GPU {gpu_uuid}: not found")
        return self._handles[gpu_uuid]

    def set_compute_mode(self, gpu_uuid: str, mode: ComputeMode) -> None:
        """Set whether one or many programs may use the card."""
        is_exclusive = mode is ComputeMode.EXCLUSIVE_PROCESS
        code = api.COMPUTE_MODE_EXCLUSIVE_PROCESS if is_exclusive else api.COMPUTE_MODE_DEFAULT
        with self._lock, _Named(f"set compute mode of {gpu_uuid}"):
            self._open.set_compute_mode(self._device(gpu_uuid), code)

    def set_time_slice(self, gpu_uuid: str, interval: int) -> None:
        """Set the time slice with nvidia-smi: NVML has no function for it."""
        command = [self._smi, "compute-policy", "-i", gpu_uuid, "--set-timeslice", str(interval)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_SMI_S, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise HardwareError(f"{' '.join(command)}: {error}") from error
        if done.returncode != 0:
            said = (done.stderr or done.stdout).strip() or f"exit code {done.returncode}"
            raise HardwareError(f"{' '.join(command)}: {said}")

    def start_mps(self, settings: MpsSettings) -> MpsFolders:
        """Start a control daemon."""
        return self._mps.start(settings)

    def stop_mps(self, id_: str) -> None:
        """End a control daemon."""
        self._mps.stop(id_)

    def pass_through(self, gpu: Gpu, *, iommu_fd: bool, api_device: bool) -> Edits:  # noqa: ARG002
        """Not possible: without its driver, a card disappears from NVML and so from the node."""
        raise HardwareError(f"GPU {gpu.uuid}: real GPUs cannot be passed through to virtual machines")

    def take_back(self, gpu: Gpu) -> None:
        """Nothing to do: no card was passed through."""

    # --- what containers get ---

    def common_edits(self) -> Edits:
        """The driver's libraries and programs, and the devices that every program needs."""
        return driver_edits(self._driver_root, self._asked(self._open.driver_version), self._host_driver_root)

    def gpu_edits(self, gpu: Gpu, name: str) -> Edits:  # noqa: ARG002
        """The card's device file."""
        return Edits(device_nodes=(DeviceNode(path=f"/dev/nvidia{gpu.minor}"),))

    def instance_edits(self, gpu: Gpu, instance: MigInstance, name: str) -> Edits:  # noqa: ARG002
        """The card's device file, and the capabilities to use this instance of it."""
        numbers = self._capabilities(gpu.minor, instance)
        nodes = (f"/dev/nvidia{gpu.minor}", *(f"/dev/nvidia-caps/nvidia-cap{number}" for number in numbers))
        return Edits(device_nodes=tuple(DeviceNode(path=path) for path in nodes))

    def _capabilities(self, minor: int, instance: MigInstance) -> list[int]:
        """The minors of the capability files, as the driver lists them in /proc."""
        root = self._driver_root / f"proc/driver/nvidia/capabilities/gpu{minor}/mig/gi{instance.gpu_instance_id}"
        numbers = []
        for path in (root / "access", root / f"ci{instance.compute_instance_id}" / "access"):
            try:
                lines = path.read_text().splitlines()
            except OSError as error:
                raise HardwareError(f"MIG instance {instance.uuid}: {path}: {error.strerror}") from error
            found = [line.partition(":")[2] for line in lines if line.startswith("DeviceFileMinor:")]
            if not found or not found[0].strip().isdigit():
                raise HardwareError(f"MIG instance {instance.uuid}: {path} has no DeviceFileMinor")
            numbers.append(int(found[0]))
        return numbers


class _Named:
    """Turns NVML errors into HardwareErrors that name the operation."""

    def __init__(self, what: str) -> None:
        self._what = what

    def __enter__(self) -> None:
        pass

    def __exit__(self, _type: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, NvmlError):
            raise HardwareError(f"{self._what}: {error}") from error


def _optional(question: Callable[[int], T], device: int) -> T | None:
    """The value; None if the card or the library does not support it."""
    try:
        return question(device)
    except NvmlError as error:
        if error.code in (api.ERROR_NOT_SUPPORTED, api.ERROR_FUNCTION_NOT_FOUND):
            return None
        raise


def pcie_root(sysfs: Path, address: str) -> str:
    """The root complex of a card: `pci0000:8c`; empty if unknown."""
    try:
        real = (sysfs / "bus/pci/devices" / address).readlink()
    except OSError:
        return ""
    return next((part for part in real.parts if part.startswith("pci")), "")


def numa_node(sysfs: Path, address: str) -> int:
    """The NUMA node of a card; -1 if unknown."""
    try:
        return int((sysfs / "bus/pci/devices" / address / "numa_node").read_text())
    except (OSError, ValueError):
        return -1
