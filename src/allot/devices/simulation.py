"""The drivers of a simulated machine: the same as on real hardware, with the devices of a profile.

A machine's devices determine its drivers; settings can disable one, or enable one that needs no special devices (CPUs).
What a driver publishes is known before it runs (`pools`), so that only few of thousands of nodes need running drivers.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from allot.client.api import Client
from allot.core.lifecycle.slice_publishing import Pool
from allot.core.model.resource_v1 import DeviceClass
from allot.core.validation.formats import dns_subdomain
from allot.devices.amd import classes as amd_classes
from allot.devices.amd.driver import AmdDriver
from allot.devices.amd.hardware import SimulatedGpus as SimulatedAmdGpus
from allot.devices.catalogue import Profile
from allot.devices.command import UsageError
from allot.devices.computedomain import classes as compute_domain_classes
from allot.devices.computedomain.driver import ComputeDomainDriver
from allot.devices.computedomain.imex import SimulatedImex
from allot.devices.cpu import classes as cpu_classes
from allot.devices.cpu.driver import CpuDriver
from allot.devices.cpu.inventory import GroupBy, Mode, Publishing
from allot.devices.cpu.topology import simulated_topology
from allot.devices.driver_pods import driver_pod_name
from allot.devices.file.definition import DeviceFile
from allot.devices.file.driver import driver_of
from allot.devices.gpu import classes as gpu_classes
from allot.devices.gpu.command import driver_class, parse_layout
from allot.devices.gpu.driver import GpuDriver
from allot.devices.gpu.gates import GateError, gates_of
from allot.devices.gpu.hardware import HardwareError
from allot.devices.gpu.simulated import SimulatedHardware, faults_file
from allot.devices.intel import classes as intel_classes
from allot.devices.intel.driver import IntelDriver
from allot.devices.intel.hardware import SimulatedGpus as SimulatedIntelGpus
from allot.devices.lost_devices import ill_file, lost_file
from allot.devices.nic import classes as nic_classes
from allot.devices.nic.driver import NicDriver
from allot.devices.nic.interfaces import SimulatedInterfaces
from allot.devices.sysfs import CpuListError, parse_cpu_list
from allot.devices.tpu import classes as tpu_classes
from allot.devices.tpu.chips import SimulatedChips
from allot.devices.tpu.driver import TpuDriver
from allot.devices.tpu.inventory import Slice
from allot.devices.tpu.topology import TopologyError, parse_topology
from allot.driver.driver import Driver
from allot.driver.plugin import Options, as_pools, running
from allot.process.clock import Clock
from allot.process.ids import Ids
from allot.process.log_files import log_owner

# From a node's name and the directory with the state of its devices.
MakeDriver = Callable[[str, Path], Driver]

_GPUS = "gpus"
_FILE_KIND_MAX = 48


def driver_module(kind: str) -> str:
    """The module that runs a kind of driver."""
    return f"allot.devices.{kind if kind in Settings.__struct_fields__ else 'file'}"


def file_kind(file: DeviceFile) -> str:
    """The kind of a device file's driver; also names its container, so at most 63 characters."""
    return file.driver.replace(".", "-")[:_FILE_KIND_MAX].rstrip("-")


class SettingsError(ValueError):
    """Settings that a machine's drivers cannot have. field: the path in `Settings`; `devices` for device files."""

    def __init__(self, field: tuple[str, ...], text: str) -> None:
        super().__init__(text)
        self.field = field


class GpuSettings(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """As the options of `python -m allot.devices.gpu`. driver_name: publish the cards under a name other than NVIDIA's."""

    feature_gates: Mapping[str, bool] = {}
    mig_layout: str = ""
    driver_name: str = ""


class NicSettings(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """As the options of `python -m allot.devices.nic`."""

    share_bandwidth: bool = False


class CpuSettings(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """As the options of `python -m allot.devices.cpu`."""

    cpu_device_mode: Mode = Mode.GROUPED
    group_by: GroupBy = GroupBy.NUMA_NODE
    reserved_cpus: str = ""
    node_allocatable: bool = False
    pcie_roots: bool = False


class TpuSettings(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """As the options of `python -m allot.devices.tpu`. worker_hostnames: of all nodes of the slice."""

    topology: str = ""
    accelerator: str = ""
    worker_id: int = 0
    worker_hostnames: tuple[str, ...] = ("localhost",)


class AmdSettings(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """As the options of `python -m allot.devices.amd`."""

    partitions: str = ""


class IntelSettings(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """As the options of `python -m allot.devices.intel`. functions: virtual ones of each card."""

    functions: int = 0


class ComputeDomainSettings(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """None yet."""


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Settings of a machine's drivers. None: determined by its devices; False: disabled; True: with default settings."""

    gpu: GpuSettings | bool | None = None
    nic: NicSettings | bool | None = None
    cpu: CpuSettings | bool | None = None
    tpu: TpuSettings | bool | None = None
    computedomain: ComputeDomainSettings | bool | None = None
    amd: AmdSettings | bool | None = None
    intel: IntelSettings | bool | None = None


class _Kind(msgspec.Struct, frozen=True):
    """A kind of driver. devices: a description; are_there: whether a machine has them."""

    field: str
    devices: str
    are_there: Callable[[Profile], bool]
    without_settings: Any
    device_classes: Callable[[Any], Sequence[DeviceClass]]
    maker: Callable[[Profile, Any], tuple[str, MakeDriver]]
    # Whether the driver runs on all machines with such devices; otherwise only on request.
    is_usual: bool = True


class SimulatedDrivers:
    """The drivers of all nodes of one profile with the same settings. SettingsError if they are invalid."""

    def __init__(
        self,
        profile: Profile,
        settings: Settings = Settings(),  # noqa: B008
        files: Sequence[DeviceFile] = (),
    ) -> None:
        self._makers: dict[str, MakeDriver] = {}
        # By kind: gpu, nic, cpu, tpu, computedomain, amd or intel; for a device file the driver's name, with dashes.
        self.kinds: dict[str, str] = {}
        self._classes: list[DeviceClass] = []
        for kind in _KINDS:
            given = getattr(settings, kind.field)
            if given and not kind.are_there(profile):
                raise SettingsError((kind.field,), f"profile {profile.name} has no {kind.devices}")
            if given or (given is None and kind.is_usual and kind.are_there(profile)):
                chosen = kind.without_settings if given in (None, True) else given
                name, make = kind.maker(profile, chosen)
                self._makers[name] = make
                self.kinds[name] = kind.field
                self._classes.extend(kind.device_classes(chosen))
        for file in files:
            if file.driver in self._makers:
                raise SettingsError(("devices",), f"driver {file.driver!r} already exists")
            self._makers[file.driver] = partial(_of_file, file)
            self.kinds[file.driver] = file_kind(file)
            self._classes.extend(file.classes)
        folders = [Path("/plugins") / name for name in self._makers]
        told = ((faults_file(folder / _GPUS), lost_file(folder), ill_file(folder)) for folder in folders)
        self._fault_files = tuple(str(path) for of_driver in told for path in of_driver)

    @property
    def names(self) -> tuple[str, ...]:
        """The drivers' names."""
        return tuple(self._makers)

    @property
    def device_classes(self) -> tuple[DeviceClass, ...]:
        """The drivers' device classes."""
        return tuple(self._classes)

    def pools(self, node: str) -> tuple[tuple[str, Pool], ...]:
        """What each driver publishes on a freshly booted node. Nothing is written."""
        found = []
        for name, make in self._makers.items():
            driver = make(node, Path())
            driver.node = _OnlyName(node)
            found += [(name, pool) for pool in as_pools(driver.devices(), node)]
        return tuple(found)

    def publishers(self, node: str) -> frozenset[str]:
        """The drivers that publish something there."""
        return frozenset(name for name, _ in self.pools(node))

    def lay_out(self, node: str, state: Path) -> None:
        """Create the directories for fault injection, and the state of faulty GPUs."""
        for name, make in self._makers.items():
            folder = state / "plugins" / name
            folder.mkdir(parents=True, exist_ok=True)
            driver = make(node, folder)
            if isinstance(driver, GpuDriver) and isinstance(driver.hardware, SimulatedHardware):
                driver.hardware.lay_out()

    def are_needed(self, state: Path) -> bool:
        """Whether a driver must run, to report device faults."""
        # Called for every node, every second: strings instead of paths.
        folder = str(state)
        return any(os.path.exists(folder + file) for file in self._fault_files)  # noqa: PTH110

    @asynccontextmanager
    async def running(
        self,
        node: str,
        root: Path,
        state: Path,
        client: Client,
        clock: Clock,
        ids: Ids,
        publish: Callable[[str, tuple[Pool, ...]], None],
    ) -> AsyncIterator[None]:
        """All drivers, while the context is open; DriverFailed if one cannot start. publish: receives what each driver publishes.

        root: the kubelet's folder, by a path short enough for sockets. state: the same folder, by a path that containers and
        the next start can use.
        """
        async with AsyncExitStack() as stack:
            for name, make in self._makers.items():
                driver = make(node, state / "plugins" / name)
                options = Options(node_name=node, kubelet_root=root, cdi_directory=state / "cdi")
                # Inherited by what the driver starts.
                log_owner.set(driver_pod_name(self.kinds[name], node))
                runs = running(driver, client, options, clock=clock, ids=ids, publish=partial(publish, name))
                await stack.enter_async_context(runs)
            yield


class _OnlyName:
    """A node for a driver that does not run: only its name is known."""

    def __init__(self, name: str) -> None:
        self.name = name

    @property
    def client(self) -> Client:
        """Never used."""
        raise AssertionError("a driver that does not run asks the API server")

    def prepared(self) -> tuple[()]:
        """Nothing."""
        return ()

    def changed(self) -> None:
        """Does nothing."""

    def set_status(self, *_arguments: Any) -> None:
        """Does nothing."""

    def update_metadata(self, *_arguments: Any, **_named: Any) -> None:
        """Does nothing."""


def _of_file(file: DeviceFile, _node: str, folder: Path) -> Driver:
    return driver_of(file, folder)


def _gpu_maker(profile: Profile, settings: GpuSettings) -> tuple[str, MakeDriver]:
    machine = profile.machine
    assert machine is not None
    try:
        gates = gates_of(settings.feature_gates)
    except GateError as error:
        raise SettingsError(("gpu", "featureGates"), str(error)) from None
    try:
        layout = parse_layout(settings.mig_layout, len(machine.gpus))
        SimulatedHardware(machine, Path(), "", layout).gpus()
    except (UsageError, HardwareError) as error:
        raise SettingsError(("gpu", "migLayout"), str(error)) from None
    kind = driver_class(gates)
    if settings.driver_name:
        if dns_subdomain(settings.driver_name):
            text = f"driver name {settings.driver_name!r}: expected a name such as gpu.example.com"
            raise SettingsError(("gpu", "driverName"), text)
        kind = type(kind.__name__, (kind,), {"name": settings.driver_name})

    def make(node: str, folder: Path) -> Driver:
        return kind(SimulatedHardware(machine, folder / _GPUS, node, layout), gates, shows_mps=True)

    return kind.name, make


def _gpu_classes(settings: GpuSettings) -> Sequence[DeviceClass]:
    """The classes of NVIDIA's chart, with the driver's own name."""
    return () if settings.driver_name else gpu_classes.device_classes()


def _nic_maker(profile: Profile, settings: NicSettings) -> tuple[str, MakeDriver]:
    machine = profile.machine
    assert machine is not None

    def make(node: str, folder: Path) -> Driver:
        interfaces = SimulatedInterfaces(machine, node)
        return NicDriver(interfaces, shares_bandwidth=settings.share_bandwidth, sysfs=folder / "sysfs")

    return NicDriver.name, make


def _cpu_maker(profile: Profile, settings: CpuSettings) -> tuple[str, MakeDriver]:
    assert profile.machine is not None
    topology = simulated_topology(profile.machine)
    try:
        reserved = parse_cpu_list(settings.reserved_cpus)
    except CpuListError as error:
        raise SettingsError(("cpu", "reservedCpus"), str(error)) from None
    publishing = Publishing(
        mode=settings.cpu_device_mode,
        group_by=settings.group_by,
        reserved=reserved,
        maps_node_allocatable=settings.node_allocatable,
        has_pcie_roots=settings.pcie_roots,
    )

    def make(_node: str, _folder: Path) -> Driver:
        return CpuDriver(lambda: topology, publishing)

    return CpuDriver.name, make


def _tpu_maker(profile: Profile, settings: TpuSettings) -> tuple[str, MakeDriver]:
    machine = profile.tpus
    assert machine is not None
    try:
        if settings.topology:
            parse_topology(settings.topology)
    except TopologyError as error:
        raise SettingsError(("tpu", "topology"), str(error)) from None
    part_of = Slice(
        topology=settings.topology,
        accelerator=settings.accelerator,
        worker_id=settings.worker_id,
        worker_hostnames=settings.worker_hostnames,
    )

    def make(_node: str, folder: Path) -> Driver:
        return TpuDriver(SimulatedChips(machine, folder), part_of, folder / "logs")

    return TpuDriver.name, make


def _compute_domain_maker(_profile: Profile, _settings: ComputeDomainSettings) -> tuple[str, MakeDriver]:
    def make(_node: str, folder: Path) -> Driver:
        return ComputeDomainDriver(SimulatedImex(folder))

    return ComputeDomainDriver.name, make


def _amd_maker(profile: Profile, settings: AmdSettings) -> tuple[str, MakeDriver]:
    assert profile.amd is not None
    try:
        gpus = SimulatedAmdGpus(profile.amd, settings.partitions)
    except ValueError as error:
        raise SettingsError(("amd", "partitions"), str(error)) from None

    def make(_node: str, folder: Path) -> Driver:
        return AmdDriver(gpus, folder)

    return AmdDriver.name, make


def _intel_maker(profile: Profile, settings: IntelSettings) -> tuple[str, MakeDriver]:
    assert profile.intel is not None
    try:
        gpus = SimulatedIntelGpus(profile.intel, settings.functions)
    except ValueError as error:
        raise SettingsError(("intel", "functions"), str(error)) from None

    def make(_node: str, folder: Path) -> Driver:
        return IntelDriver(gpus, folder)

    return IntelDriver.name, make


_KINDS = (
    _Kind(
        "gpu",
        "GPUs",
        lambda profile: profile.machine is not None and bool(profile.machine.gpus),
        GpuSettings(),
        _gpu_classes,
        _gpu_maker,
    ),
    _Kind(
        "nic",
        "network cards",
        lambda profile: profile.machine is not None and bool(profile.machine.network_cards),
        NicSettings(),
        lambda _settings: nic_classes.device_classes(),
        _nic_maker,
    ),
    _Kind(
        "cpu",
        "processors that are known",
        lambda profile: profile.machine is not None,
        CpuSettings(),
        lambda _settings: cpu_classes.device_classes(),
        _cpu_maker,
        is_usual=False,
    ),
    _Kind(
        "tpu",
        "TPU chips",
        lambda profile: profile.tpus is not None,
        TpuSettings(),
        lambda _settings: tpu_classes.device_classes(),
        _tpu_maker,
    ),
    _Kind(
        "computedomain",
        "NVLink to other machines",
        lambda profile: profile.machine is not None and profile.machine.nvlink_domain_machines > 1,
        ComputeDomainSettings(),
        lambda _settings: compute_domain_classes.device_classes(),
        _compute_domain_maker,
    ),
    _Kind(
        "amd",
        "AMD GPUs",
        lambda profile: profile.amd is not None,
        AmdSettings(),
        lambda _settings: amd_classes.device_classes(),
        _amd_maker,
    ),
    _Kind(
        "intel",
        "Intel GPUs",
        lambda profile: profile.intel is not None,
        IntelSettings(),
        lambda _settings: intel_classes.device_classes(),
        _intel_maker,
    ),
)
