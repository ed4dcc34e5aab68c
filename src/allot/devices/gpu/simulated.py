"""Simulated cards: a machine shape with a state on disk, which outlives the driver as with real cards.

The state folder holds `state.json` (MIG mode and instances, compute mode, time slice of each card), `faults.json` (what has
been injected, written by `inject`), and what containers see (`programs`). MPS is a folder with the limits that its clients keep.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from allot.devices.cpu.topology import local_cpus
from allot.devices.gpu import programs
from allot.devices.gpu.faults import XID_ECC, XID_OFF_THE_BUS
from allot.devices.gpu.file_watcher import FileWatcher, Stamp, stamp_of
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
from allot.devices.profiles.gpus import CUDA_DRIVER_VERSION, DRIVER_VERSION
from allot.devices.profiles.machines import GpuCard, Machine
from allot.devices.profiles.mig import MigProfile, Placement, placements
from allot.driver import Edits, Mount
from allot.driver.files import remove_file, remove_folder, replace_file

# The first instance of a profile on a card; profiles of one number exclude each other at the same place.
_GPU_INSTANCE_IDS = {0: 0, 5: 1, 9: 1, 14: 3, 15: 3, 19: 7, 20: 7}
_IOMMU_GROUP_FIRST = 10
_XID_MAX = 999
_FAULT_FILES = FileWatcher()

# The initial MIG profiles of each card, by its number; an empty list enables MIG without instances.
MigLayout = Mapping[int, Sequence[str]]


class _Instance(msgspec.Struct, frozen=True):
    profile: int
    start: int


class _Card(msgspec.Struct, frozen=True, kw_only=True):
    """The mutable state of a card."""

    mig_mode: bool = False
    instances: tuple[_Instance, ...] = ()
    compute_mode: ComputeMode = ComputeMode.DEFAULT
    time_slice: int = 0


class SimulatedHardware:
    """The cards of a machine shape. seed: makes the UUIDs of this node unique."""

    def __init__(self, machine: Machine, state: Path, seed: str, mig_layout: MigLayout | None = None) -> None:
        self.machine = machine
        self._folder = state
        self._seed = seed
        self._layout = mig_layout or {}
        self._by_uuid = {gpu_uuid(seed, card): card for card in machine.gpus}
        self._cards: dict[str, _Card] = {}
        self._faults: dict[str, tuple[Fault, ...]] = {}
        self._stamp: Stamp = None
        # Threads of prepare write, those of devices and health read.
        self._lock = threading.RLock()
        self._is_closed = False
        self._faults_changed = threading.Event()

    # --- life ---

    def open(self) -> None:
        """Read the state, or start with a freshly booted machine."""
        with self._lock:
            self._folder.mkdir(parents=True, exist_ok=True)
            path = self._folder / "state.json"
            try:
                known = msgspec.json.decode(path.read_bytes(), type=dict[str, _Card]) if path.exists() else {}
            except (OSError, msgspec.MsgspecError) as error:
                raise HardwareError(f"state of simulated GPUs {path}: {error}") from error
            for id_, card in self._by_uuid.items():
                self._cards[id_] = known[id_] if id_ in known else self._first_state(card)
            self._read_faults()
            programs.write_programs(self._folder / "bin")
            self._save()
            present = {*self._by_uuid, *(each.uuid for gpu in self.gpus() for each in gpu.mig_instances)}
            for folder in (self._folder / "cards").glob("*"):
                if folder.name not in present:
                    programs.remove_card(folder)

    def lay_out(self) -> None:
        """Write the state of a freshly booted machine, if there is none, so that faults can be injected."""
        path = self._folder / "state.json"
        if not path.exists():
            self._folder.mkdir(parents=True, exist_ok=True)
            states = {id_: self._first_state(card) for id_, card in self._by_uuid.items()}
            replace_file(path, msgspec.json.encode(states))

    def close(self) -> None:
        """Wake all waiters."""
        self._is_closed = True
        self._faults_changed.set()
        _FAULT_FILES.forget(self._faults_changed)

    def restart(self) -> None:
        """Simulate a reboot: instances and settings are gone, MIG mode stays."""
        with self._lock:
            for id_, card in self._cards.items():
                self._cards[id_] = _Card(mig_mode=card.mig_mode and self._by_uuid[id_].model.mig_mode_needs_reset)
            remove_folder(self._folder / "mps")
            self._save()

    def _first_state(self, card: GpuCard) -> _Card:
        names = self._layout.get(card.index)
        if names is None:
            return _Card()
        if not card.model.mig_profiles:
            raise HardwareError(f"MIG layout of GPU {card.index}: {card.model.product_name} has no MIG")
        profiles = {profile.name: profile for profile in card.model.mig_profiles}
        instances: list[_Instance] = []
        taken: set[int] = set()
        for name in names:
            if name not in profiles:
                raise HardwareError(f"MIG layout of GPU {card.index}: profile {name!r}, expected {', '.join(profiles)}")
            place = next((each for each in placements(profiles[name]) if not taken & set(each.slices)), None)
            if place is None:
                raise HardwareError(f"MIG layout of GPU {card.index}: no room for {name} after {', '.join(names)}")
            taken.update(place.slices)
            instances.append(_Instance(profiles[name].id, place.start))
        return _Card(mig_mode=True, instances=tuple(instances))

    # --- what there is ---

    def gpus(self) -> tuple[Gpu, ...]:
        """All cards."""
        with self._lock:
            return tuple(self._gpu(id_) for id_ in self._by_uuid)

    def _gpu(self, id_: str) -> Gpu:
        card = self._by_uuid[id_]
        # Without a state on disk, the machine is freshly booted.
        state = self._cards.get(id_) or self._first_state(card)
        model, bus = card.model, card.bus
        return Gpu(
            minor=card.index,
            uuid=id_,
            product_name=model.product_name,
            brand=model.brand,
            architecture=model.architecture,
            cuda_compute_capability=model.cuda_compute_capability,
            driver_version=DRIVER_VERSION,
            cuda_driver_version=CUDA_DRIVER_VERSION,
            memory_mib=model.memory_mib,
            pci_address=bus.pci_address,
            pcie_root=bus.pcie_root,
            addressing_mode=model.addressing_mode,
            pci_device_id=model.pci_device_id,
            numa_node=bus.numa_node,
            has_iommu_fd=True,
            mig_mode=state.mig_mode if model.mig_profiles else None,
            mig_mode_needs_reset=model.mig_mode_needs_reset,
            mig_profiles=model.mig_profiles,
            mig_instances=tuple(self._instance(id_, each) for each in state.instances),
            faults=self._faults.get(id_, ()),
        )

    def _instance(self, gpu_uuid_: str, instance: _Instance) -> MigInstance:
        model = self._by_uuid[gpu_uuid_].model
        profile = next(each for each in model.mig_profiles if each.id == instance.profile)
        return MigInstance(
            uuid=f"MIG-{uuid.uuid5(uuid.NAMESPACE_OID, f'{gpu_uuid_}/{instance.profile}/{instance.start}')}",
            gpu_uuid=gpu_uuid_,
            profile=profile,
            placement=Placement(instance.start, profile.memory_slices),
            gpu_instance_id=_GPU_INSTANCE_IDS[profile.id] + profile.starts.index(instance.start),
        )

    def wait_for_change(self, seconds: float) -> bool:
        """Whether faults were injected or cleared."""
        _FAULT_FILES.watch(faults_file(self._folder), self._stamp, self._faults_changed)
        has_changed = self._faults_changed.wait(seconds)
        if self._is_closed:
            _FAULT_FILES.forget(self._faults_changed)
        if self._is_closed or not has_changed:
            return False
        self._faults_changed.clear()
        with self._lock:
            if not self._read_faults():
                return False
            self._save()
            return True

    def _read_faults(self) -> bool:
        path = faults_file(self._folder)
        stamp = stamp_of(path)
        if stamp == self._stamp:
            return False
        try:
            self._faults = msgspec.json.decode(path.read_bytes(), type=dict[str, tuple[Fault, ...]])
        except FileNotFoundError:
            had = bool(self._faults)
            self._stamp, self._faults = None, {}
            return had
        except (OSError, msgspec.MsgspecError) as error:
            raise HardwareError(f"faults of simulated GPUs {path}: {error}") from error
        self._stamp = stamp
        for id_, card in self._cards.items():
            if any(fault.kind is FaultKind.LOST for fault in self._faults.get(id_, ())):
                # It returns as after a reset.
                self._cards[id_] = _Card(mig_mode=card.mig_mode)
        return True

    # --- what can be done ---

    def set_mig_mode(self, gpu_uuid: str, is_on: bool) -> None:
        """Enable or disable MIG. No instances may exist."""
        with self._lock:
            card = self._present(gpu_uuid)
            model = self._by_uuid[gpu_uuid].model
            if not model.mig_profiles:
                raise HardwareError(f"set MIG mode of {gpu_uuid}: Not Supported")
            if card.mig_mode == is_on:
                return
            if model.mig_mode_needs_reset or card.instances:
                raise HardwareError(f"set MIG mode of {gpu_uuid}: In use by another client")
            self._change(gpu_uuid, msgspec.structs.replace(card, mig_mode=is_on))

    def create_instance(self, gpu_uuid: str, profile: MigProfile, placement: Placement) -> MigInstance:
        """Create a MIG instance."""
        with self._lock:
            card = self._present(gpu_uuid)
            if not card.mig_mode:
                raise HardwareError(f"create MIG instance {profile.name} on {gpu_uuid}: MIG mode is not enabled")
            wanted = _Instance(profile.id, placement.start)
            if wanted not in card.instances:
                taken = {index for each in card.instances for index in self._instance(gpu_uuid, each).placement.slices}
                if taken & set(placement.slices):
                    raise HardwareError(f"create MIG instance {profile.name} on {gpu_uuid}: Insufficient Resources")
                self._change(gpu_uuid, msgspec.structs.replace(card, instances=(*card.instances, wanted)))
            return self._instance(gpu_uuid, wanted)

    def destroy_instance(self, gpu_uuid: str, instance: MigInstance) -> None:
        """Destroy a MIG instance."""
        with self._lock:
            card = self._present(gpu_uuid)
            gone = _Instance(instance.profile.id, instance.placement.start)
            if gone in card.instances:
                left = tuple(each for each in card.instances if each != gone)
                self._change(gpu_uuid, msgspec.structs.replace(card, instances=left))
            programs.remove_card(self._folder / "cards" / instance.uuid)

    def set_compute_mode(self, gpu_uuid: str, mode: ComputeMode) -> None:
        """Set whether one or many programs may use the card."""
        with self._lock:
            self._change(gpu_uuid, msgspec.structs.replace(self._present(gpu_uuid), compute_mode=mode))

    def set_time_slice(self, gpu_uuid: str, interval: int) -> None:
        """Set how long a program has the card."""
        with self._lock:
            self._change(gpu_uuid, msgspec.structs.replace(self._present(gpu_uuid), time_slice=interval))

    def start_mps(self, settings: MpsSettings) -> MpsFolders:
        """Create a directory like a control daemon's, with the limits of its clients."""
        folders = self._mps_folders(settings.id)
        for folder in (folders.pipe, folders.shm, folders.log):
            folder.mkdir(parents=True, exist_ok=True)
        folders.pipe.chmod(0o777)
        folders.shm.chmod(0o1777)
        limits = "".join(f"{id_} {limit}\n" for id_, limit in settings.pinned_memory_limits_mib.items())
        replace_file(folders.pipe / "limits", limits.encode(), 0o644)
        said = [f"start_server -uuids {','.join(settings.uuids)}"]
        if settings.active_thread_percentage is not None:
            said.append(f"set_default_active_thread_percentage {settings.active_thread_percentage}")
        said += [
            f"set_default_device_pinned_mem_limit {id_} {limit}M"
            for id_, limit in settings.pinned_memory_limits_mib.items()
        ]
        replace_file(folders.log / "control.log", ("\n".join(said) + "\n").encode(), 0o644)
        return folders

    def stop_mps(self, id_: str) -> None:
        """Remove the folder."""
        remove_folder(self._folder / "mps" / id_)

    def _mps_folders(self, id_: str) -> MpsFolders:
        root = self._folder / "mps" / id_
        return MpsFolders(pipe=root / "pipe", shm=root / "shm", log=root / "log")

    def pass_through(self, gpu: Gpu, *, iommu_fd: bool, api_device: bool) -> Edits:
        """Provide plain files instead of the kernel's device files."""
        self._present(gpu.uuid)
        if iommu_fd:
            paths = [f"/dev/vfio/devices/vfio{gpu.minor}", *(["/dev/iommu"] if api_device else [])]
        else:
            paths = [f"/dev/vfio/{_IOMMU_GROUP_FIRST + gpu.minor}", *(["/dev/vfio/vfio"] if api_device else [])]
        folder = self._folder / "vfio" / gpu.uuid
        folder.mkdir(parents=True, exist_ok=True)
        mounts = []
        for path in paths:
            file = folder / path.rpartition("/")[2]
            file.touch()
            mounts.append(Mount(host_path=str(file), container_path=path, options=("rw", "bind")))
        return Edits(mounts=tuple(mounts))

    def take_back(self, gpu: Gpu) -> None:
        """Remove the files."""
        remove_folder(self._folder / "vfio" / gpu.uuid)

    # --- what containers get ---

    def common_edits(self) -> Edits:
        """nvidia-smi, and the program that allocates memory."""
        return programs.program_edits(self._folder / "bin")

    def gpu_edits(self, gpu: Gpu, name: str) -> Edits:
        """The card's folder."""
        return programs.card_edits(self._folder / "cards" / gpu.uuid, gpu, name)

    def instance_edits(self, gpu: Gpu, instance: MigInstance, name: str) -> Edits:
        """The instance's folder."""
        return programs.card_edits(self._folder / "cards" / instance.uuid, gpu, name)

    # --- state ---

    def _present(self, gpu_uuid_: str) -> _Card:
        card = self._cards.get(gpu_uuid_)
        if card is None:
            raise HardwareError(f"GPU {gpu_uuid_}: Not Found")
        if any(fault.kind is FaultKind.LOST for fault in self._faults.get(gpu_uuid_, ())):
            raise HardwareError(f"GPU {gpu_uuid_}: GPU is lost")
        return card

    def _change(self, gpu_uuid_: str, card: _Card) -> None:
        if self._cards[gpu_uuid_] == card:
            return
        self._cards[gpu_uuid_] = card
        self._save(gpu_uuid_)

    def _save(self, only: str | None = None) -> None:
        self._write_cards(only)
        replace_file(self._folder / "state.json", msgspec.json.encode(self._cards))

    def _write_cards(self, only: str | None = None) -> None:
        for id_, card in self._by_uuid.items():
            if only not in (None, id_):
                continue
            gpu, state = self._gpu(id_), self._cards[id_]
            for instance in (None, *gpu.mig_instances):
                information = programs.card_information(
                    gpu,
                    power_limit_w=card.model.power_limit_w,
                    idle_power_w=card.model.idle_power_w,
                    compute_mode=state.compute_mode,
                    time_slice=state.time_slice,
                    cpu_affinity=local_cpus(self.machine, card.bus.numa_node),
                    instance=instance,
                )
                folder = self._folder / "cards" / (id_ if instance is None else instance.uuid)
                programs.write_card(folder, information)


def gpu_uuid(seed: str, card: GpuCard) -> str:
    """The UUID of a card: the same on every start, different on every node."""
    return f"GPU-{uuid.uuid5(uuid.NAMESPACE_OID, f'allot/{seed}/{card.bus.pci_address}')}"


# --- faults ---


def faults_file(state: Path) -> Path:
    """The file with the faults; exists only while there are any."""
    return state / "faults.json"


def parse_fault(text: str) -> Fault:
    """`xid=63`, `ecc` (XID 48) or `lost` (fallen off the bus); ValueError."""
    if text == "lost":
        return Fault(kind=FaultKind.LOST, xid=XID_OFF_THE_BUS)
    if text == "ecc":
        return Fault(kind=FaultKind.XID, xid=XID_ECC)
    kind, _, number = text.partition("=")
    if kind == "xid" and number.isascii() and number.isdigit() and 0 < int(number[:6]) <= _XID_MAX:
        return Fault(kind=FaultKind.XID, xid=int(number))
    raise ValueError(f"fault {text!r}: expected xid=NUMBER (1 to {_XID_MAX}), ecc or lost")


def inject(state: Path, gpu: str, faults: Sequence[Fault]) -> None:
    """Set the faults of a card (by UUID or number); a running driver notices within a second."""
    path = state / "state.json"
    try:
        uuids = list(msgspec.json.decode(path.read_bytes(), type=dict[str, _Card]))
    except (OSError, msgspec.MsgspecError) as error:
        raise HardwareError(f"no simulated GPUs in {state}: {error}") from error
    number = gpu.removeprefix("gpu-")
    if gpu not in uuids and not (number.isascii() and number.isdigit() and int(number[:6]) < len(uuids)):
        raise HardwareError(f"GPU {gpu!r}: expected 0 to {len(uuids) - 1} or one of {', '.join(uuids)}")
    chosen = gpu if gpu in uuids else uuids[int(number)]
    target = faults_file(state)
    known = msgspec.json.decode(target.read_bytes(), type=dict[str, tuple[Fault, ...]]) if target.exists() else {}
    known[chosen] = tuple(faults)
    present = {id_: each for id_, each in known.items() if each}
    if present:
        replace_file(target, msgspec.json.encode(present), 0o644)
    else:
        remove_file(target)
