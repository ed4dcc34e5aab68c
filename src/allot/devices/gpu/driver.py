"""The driver itself: publishes cards, and prepares them for claims.

A claim is prepared in this order: parameters are parsed, MIG instances are created, MPS or time slices are set, and only then
containers get access. Each step is recorded first, so that unprepare can undo it from any point. A claim's settings
apply while it holds the card, and are reset afterwards.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import ClassVar

import msgspec

from allot.core.lifecycle.slice_publishing import Pool
from allot.devices.gpu import config as parameters
from allot.devices.gpu.config import (
    GpuConfig,
    IommuConfig,
    MigDeviceConfig,
    MpsConfig,
    Sharing,
    Strategy,
    VfioDeviceConfig,
)
from allot.devices.gpu.faults import health_of, is_lost
from allot.devices.gpu.gates import Gates
from allot.devices.gpu.hardware import ComputeMode, Gpu, Hardware, HardwareError, MigInstance, MpsSettings
from allot.devices.gpu.inventory import DRIVER_NAME, GPU, MIG, VFIO, Offer, gpu_name, offers, pool, vfio_name
from allot.devices.gpu.mps import commands
from allot.devices.gpu.mps_pods import MpsPods
from allot.driver import Edits, Mount
from allot.driver.claims import AllocatedDevice, Claim, Preparation, Prepared, PreparedClaim, PrepareError
from allot.driver.configuration import ConfigKind
from allot.driver.driver import DeviceHealth, Driver
from allot.driver.plugin import DriverFailed

_log = logging.getLogger("allot.devices.gpu")

MPS_PIPE_IN_CONTAINER = "/tmp/nvidia-mps"
_WATCH_S = 5.0
_KINDS_OF_TYPES: dict[str, tuple[type, ...]] = {
    "gpu": (GpuConfig,),
    "mig": (MigDeviceConfig,),
    "vfio": (VfioDeviceConfig,),
}


class _Instance(msgspec.Struct, frozen=True, kw_only=True):
    """A MIG instance created for a claim."""

    gpu: str
    profile: int
    start: int


class _Undo(msgspec.Struct, frozen=True, kw_only=True):
    """What a claim may have changed."""

    instances: tuple[_Instance, ...] = ()
    # GPUs whose time slice or compute mode was set.
    shared_gpus: tuple[str, ...] = ()
    mps: str = ""
    passed_through: tuple[str, ...] = ()


class _Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """A device of a claim, with its settings."""

    device: AllocatedDevice
    offer: Offer
    gpu: Gpu
    sharing: Sharing = Sharing()
    iommu: IommuConfig = IommuConfig()


class GpuDriver(Driver):
    """NVIDIA GPUs of one node. shows_mps: also show MPS daemons of simulated GPUs as pods, which needs more permissions."""

    name: ClassVar[str] = DRIVER_NAME
    configs: ClassVar[tuple[ConfigKind, ...]] = parameters.KINDS

    def __init__(self, hardware: Hardware, gates: Gates | None = None, *, shows_mps: bool = False) -> None:
        self.hardware = hardware
        self._shows_mps = shows_mps
        self.gates = gates or Gates()
        # By card: its last state, and the devices for it.
        self._known: dict[str, tuple[Gpu, tuple[str, ...], tuple[Offer, ...]]] = {}
        # By claim: devices of prepared claims, whose cards must not be published in another form.
        self._held: dict[str, tuple[str, ...]] = {}
        self._stopped = threading.Event()
        self._watcher: threading.Thread | None = None

    # --- life ---

    def start(self) -> None:
        """Open the cards, destroy MIG instances without a claim, and watch for faults."""
        try:
            self.hardware.open()
        except HardwareError as error:
            raise DriverFailed(f"driver {self.name}: {error}") from error
        if self.gates.passthrough_support:
            for claim in self.node.prepared():
                self._held[claim.uid] = tuple(device.name for device in claim.devices)
        if self.gates.dynamic_mig:
            self._destroy_unknown()
        self._watcher = threading.Thread(target=self._watch, name="gpu-events", daemon=True)
        self._watcher.start()

    def stop(self) -> None:
        """Close the cards."""
        self._stopped.set()
        self.hardware.close()
        if self._watcher is not None:
            self._watcher.join(_WATCH_S)

    def rebooted(self, claims: tuple[PreparedClaim, ...]) -> None:
        """Real cards reset by themselves; simulated ones are reset here."""
        restart = getattr(self.hardware, "restart", None)
        if claims and restart is not None:
            self.hardware.open()
            restart()

    def _watch(self) -> None:
        while not self._stopped.is_set():
            try:
                if self.hardware.wait_for_change(_WATCH_S):
                    self.node.changed()
            except HardwareError as error:
                _log.warning("events of GPUs: %s", error)
                self._stopped.wait(_WATCH_S)

    def _destroy_unknown(self) -> None:
        known = {
            (instance.gpu, instance.profile, instance.start)
            for claim in self.node.prepared()
            for instance in _undo_of(claim).instances
        }
        for gpu in self.hardware.gpus():
            for instance in gpu.mig_instances:
                if (gpu.uuid, instance.profile.id, instance.placement.start) not in known:
                    _log.warning("destroying MIG instance %s, which no claim has", instance.uuid)
                    self._destroy(gpu, instance)

    # --- devices ---

    def devices(self) -> Pool:
        """Everything on all cards."""
        gpus = self.hardware.gpus()
        return pool(self.node.name, self._offers(gpus), gpus)

    def _offers(self, gpus: Iterable[Gpu]) -> Iterator[Offer]:
        """All published devices; those of unchanged cards are cached."""
        names = [name for held in tuple(self._held.values()) for name in held]
        for gpu in gpus:
            view = gpu
            if self.gates.dynamic_mig and gpu.mig_mode is not None and not gpu.mig_mode_needs_reset:
                # Possible devices do not depend on the card's current state.
                view = msgspec.structs.replace(gpu, mig_mode=False, mig_instances=())
            held = tuple(name for name in names if name in (gpu_name(gpu), vfio_name(gpu)))
            known = self._known.get(gpu.uuid)
            if known is None or known[0] != view or known[1] != held:
                known = (view, held, tuple(offers((view,), self.gates, held)))
                self._known[gpu.uuid] = known
            yield from known[2]

    def health(self) -> Iterable[DeviceHealth]:
        """The health of the cards; devices on a card have the health of the card."""
        gpus = self.hardware.gpus()
        states = {gpu.uuid: health_of(gpu.faults) for gpu in gpus}
        return [
            DeviceHealth(name=offer.device.name, health=states[offer.gpu_uuid][0], message=states[offer.gpu_uuid][1])
            for offer in self._offers(gpus)
        ]

    def edits_for_all(self) -> Edits:
        """What every container gets."""
        return self.hardware.common_edits()

    # --- preparing ---

    async def prepare(self, claim: Claim) -> Preparation:
        """Create instances, set sharing, and return the containers' edits."""
        preparation, mps = await asyncio.to_thread(self._prepare, claim)
        if mps is not None and self._shows_mps:
            await self._mps_pods.start(mps.id, commands(mps))
        return preparation

    @property
    def _mps_pods(self) -> MpsPods:
        return MpsPods(self.node.client, self.node.name)

    def _prepare(self, claim: Claim) -> tuple[Preparation, MpsSettings | None]:
        """The containers' edits, and the settings of their MPS daemon, if any."""
        try:
            wanted = self._wanted(claim)
            undo = _planned(claim.uid, wanted)
            if undo != _Undo():
                # Saved before anything is done; includes what an earlier attempt saved, since the devices are the same.
                claim.save(msgspec.to_builtins(undo))
            self._hold(claim.uid, tuple(device.name for device in claim.devices if not device.admin_access))
            instances = {each.device.name: self._made(each) for each in wanted if each.offer.type == MIG}
            mps = _mps_settings(undo.mps, wanted, instances)
            shared = self._share(wanted, mps)
            prepared = tuple(
                Prepared(each.device, _joined(self._edits(each, instances), shared.get(each.device.name, Edits())))
                for each in wanted
            )
        except (HardwareError, parameters.ParametersError) as error:
            raise PrepareError(str(error)) from error
        return Preparation(prepared, msgspec.to_builtins(undo)), mps

    def _wanted(self, claim: Claim) -> tuple[_Wanted, ...]:
        gpus = self.hardware.gpus()
        by_uuid = {gpu.uuid: gpu for gpu in gpus}
        offered = {offer.device.name: offer for offer in self._offers(gpus)}
        wanted = []
        for device in claim.devices:
            offer = offered.get(device.name)
            if offer is None:
                raise PrepareError(f"device {device.name}: does not exist on this node")
            _check_kinds(device, offer)
            gpu = by_uuid[offer.gpu_uuid]
            if offer.type == VFIO:
                iommu = parameters.check_iommu(device.config(VfioDeviceConfig, VfioDeviceConfig()))
                wanted.append(_Wanted(device=device, offer=offer, gpu=gpu, iommu=iommu))
            else:
                sharing = Sharing() if device.admin_access else self._sharing(device, offer)
                wanted.append(_Wanted(device=device, offer=offer, gpu=gpu, sharing=sharing))
        return tuple(wanted)

    def _sharing(self, device: AllocatedDevice, offer: Offer) -> Sharing:
        if offer.type == GPU:
            return parameters.normalized_sharing(device.config(GpuConfig, GpuConfig()), self.gates)
        return parameters.normalized_sharing(device.config(MigDeviceConfig, MigDeviceConfig()), self.gates)

    def _made(self, wanted: _Wanted) -> MigInstance:
        offer = wanted.offer
        if offer.instance is not None:
            return offer.instance
        assert offer.profile is not None and offer.placement is not None, "a MIG device without a place"
        if wanted.device.admin_access:
            raise PrepareError(f"device {wanted.device.name}: admin access to a MIG instance that does not exist")
        if not wanted.gpu.mig_mode:
            self.hardware.set_mig_mode(wanted.gpu.uuid, True)
        return self.hardware.create_instance(wanted.gpu.uuid, offer.profile, offer.placement)

    def _share(self, wanted: Sequence[_Wanted], mps: MpsSettings | None) -> dict[str, Edits]:
        """Set how devices are shared; returns the containers' edits, by device."""
        for each in wanted:
            if each.sharing.strategy is Strategy.TIME_SLICING and each.sharing.interval is not None:
                self.hardware.set_compute_mode(each.gpu.uuid, ComputeMode.DEFAULT)
                self.hardware.set_time_slice(each.gpu.uuid, each.sharing.interval)
        if mps is None:
            return {}
        served = [each for each in wanted if each.sharing.strategy is Strategy.MPS]
        for each in served:
            if each.offer.type == GPU:
                self.hardware.set_compute_mode(each.gpu.uuid, ComputeMode.EXCLUSIVE_PROCESS)
        folders = self.hardware.start_mps(mps)
        edits = Edits(
            env={"CUDA_MPS_PIPE_DIRECTORY": MPS_PIPE_IN_CONTAINER},
            mounts=(
                Mount(host_path=str(folders.pipe), container_path=MPS_PIPE_IN_CONTAINER, options=("rw", "rbind")),
                Mount(host_path=str(folders.shm), container_path="/dev/shm", options=("rw", "rbind")),
            ),
        )
        return {each.device.name: edits for each in served}

    def _edits(self, wanted: _Wanted, instances: dict[str, MigInstance]) -> Edits:
        name = wanted.device.name
        if wanted.offer.type == VFIO:
            prefers_fd = wanted.iommu.backend_policy == parameters.PREFER_IOMMUFD and wanted.gpu.has_iommu_fd
            return self.hardware.pass_through(
                wanted.gpu, iommu_fd=prefers_fd, api_device=wanted.iommu.enable_api_device
            )
        if wanted.offer.type == MIG:
            return self.hardware.instance_edits(wanted.gpu, instances[name], name)
        return self.hardware.gpu_edits(wanted.gpu, name)

    def _hold(self, claim_uid: str, names: tuple[str, ...]) -> None:
        if not self.gates.passthrough_support:
            return
        if names:
            self._held[claim_uid] = names
        else:
            self._held.pop(claim_uid, None)
        self.node.changed()

    # --- unpreparing ---

    async def unprepare(self, claim: PreparedClaim) -> None:
        """Undo everything that may have been done, in reverse order."""
        undo = _undo_of(claim)
        if undo.mps and self._shows_mps:
            await self._mps_pods.stop(undo.mps)
        await asyncio.to_thread(self._unprepare, claim, undo)

    def _unprepare(self, claim: PreparedClaim, undo: _Undo) -> None:
        try:
            if undo.mps:
                self.hardware.stop_mps(undo.mps)
            # A lost card has also lost its settings and instances.
            gpus = {gpu.uuid: gpu for gpu in self.hardware.gpus() if not is_lost(gpu)}
            for id_ in undo.shared_gpus:
                if id_ in gpus:
                    self.hardware.set_compute_mode(id_, ComputeMode.DEFAULT)
                    self.hardware.set_time_slice(id_, 0)
            for id_ in undo.passed_through:
                if id_ in gpus:
                    self.hardware.take_back(gpus[id_])
            for instance in undo.instances:
                gpu = gpus.get(instance.gpu)
                for present in gpu.mig_instances if gpu is not None else ():
                    if (present.profile.id, present.placement.start) == (instance.profile, instance.start):
                        assert gpu is not None
                        self._destroy(gpu, present)
        except HardwareError as error:
            raise PrepareError(str(error)) from error
        self._hold(claim.uid, ())

    def _destroy(self, gpu: Gpu, instance: MigInstance) -> None:
        """Destroy an instance, and disable MIG with the last one so that the whole card is available."""
        self.hardware.destroy_instance(gpu.uuid, instance)
        now = next((each for each in self.hardware.gpus() if each.uuid == gpu.uuid), None)
        if now is not None and now.mig_mode and not now.mig_instances and not now.mig_mode_needs_reset:
            self.hardware.set_mig_mode(gpu.uuid, False)


def _check_kinds(device: AllocatedDevice, offer: Offer) -> None:
    """Parameters for all requests apply if they fit; those for this request must fit."""
    fitting = _KINDS_OF_TYPES[offer.type]
    for each in device.configs:
        if each.requests and not isinstance(each.value, fitting):
            raise PrepareError(
                f"request {device.request!r}: {type(each.value).__name__} cannot be applied to device {device.name} "
                f"of type {offer.type}, expected {fitting[0].__name__}"
            )


def _uuid(wanted: _Wanted, instances: dict[str, MigInstance]) -> str:
    return instances[wanted.device.name].uuid if wanted.offer.type == MIG else wanted.gpu.uuid


def _by_parameters(served: Iterable[_Wanted]) -> list[tuple[MpsConfig, list[_Wanted]]]:
    """Group devices by parameters: indexes in parameters count the devices of a group."""
    groups: list[tuple[MpsConfig, list[_Wanted]]] = []
    for each in served:
        assert each.sharing.mps is not None, "MPS without parameters"
        for known, members in groups:
            if known == each.sharing.mps:
                members.append(each)
                break
        else:
            groups.append((each.sharing.mps, [each]))
    return groups


def _mps_settings(id_: str, wanted: Sequence[_Wanted], instances: dict[str, MigInstance]) -> MpsSettings | None:
    """The settings of a claim's MPS daemon."""
    served = [each for each in wanted if each.sharing.strategy is Strategy.MPS]
    if not served:
        return None
    uuids = {each.device.name: _uuid(each, instances) for each in served}
    limits: dict[str, int] = {}
    for mps, members in _by_parameters(served):
        limits |= parameters.pinned_memory_limits_mib(mps, [uuids[each.device.name] for each in members])
    percentages = [
        each.sharing.mps.default_active_thread_percentage
        for each in served
        if each.sharing.mps is not None and each.sharing.mps.default_active_thread_percentage is not None
    ]
    return MpsSettings(
        id=id_,
        uuids=tuple(dict.fromkeys(uuids.values())),
        # A daemon has one value for all its devices.
        active_thread_percentage=min(percentages, default=None),
        pinned_memory_limits_mib=limits,
    )


def mps_id(claim_uid: str, devices: Iterable[str]) -> str:
    """The name of a control daemon: the claim, and five digits of a hash of its devices."""
    digest = hashlib.sha256(",".join(devices).encode()).hexdigest()
    return f"{claim_uid}-{digest[:5]}"


def _planned(claim_uid: str, wanted: Sequence[_Wanted]) -> _Undo:
    made = [each for each in wanted if each.offer.type == MIG and each.offer.instance is None]
    shared = [
        each
        for each in wanted
        if each.offer.type == GPU and (each.sharing.strategy is Strategy.MPS or each.sharing.interval is not None)
    ]
    served = [each.device.name for each in wanted if each.sharing.strategy is Strategy.MPS]
    return _Undo(
        instances=tuple(
            _Instance(gpu=each.gpu.uuid, profile=each.offer.profile.id, start=each.offer.placement.start)
            for each in made
            if each.offer.profile is not None and each.offer.placement is not None
        ),
        shared_gpus=tuple(dict.fromkeys(each.gpu.uuid for each in shared)),
        mps=mps_id(claim_uid, served) if served else "",
        passed_through=tuple(each.gpu.uuid for each in wanted if each.offer.type == VFIO),
    )


def _undo_of(claim: PreparedClaim) -> _Undo:
    return msgspec.convert(claim.state, _Undo) if claim.state is not None else _Undo()


def _joined(first: Edits, second: Edits) -> Edits:
    return msgspec.structs.replace(first, env={**first.env, **second.env}, mounts=(*first.mounts, *second.mounts))
