"""This machine as a node of `allot up --node local`: the agent and the drivers for what the machine has, each a process.

Network interfaces and CPUs always exist; the drivers for GPUs (also AMD's and Intel's) and TPUs run if such devices are found. The drivers'
device classes are created unless others of the same names exist.
"""

from __future__ import annotations

import ctypes.util
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from allot.cli.errors import Unreadable
from allot.cli.server_options import CannotServe
from allot.cli.up.node_sets import local_name
from allot.core.model.resource_v1 import DeviceClass
from allot.devices.amd import classes as amd_classes
from allot.devices.amd.hardware import KernelGpus as AmdGpus
from allot.devices.cpu import classes as cpu_classes
from allot.devices.file.definition import DeviceFile
from allot.devices.gpu import classes as gpu_classes
from allot.devices.intel import classes as intel_classes
from allot.devices.intel.hardware import KernelGpus as IntelGpus
from allot.devices.nic import classes as nic_classes
from allot.devices.simulation import file_kind
from allot.devices.tpu import classes as tpu_classes
from allot.devices.tpu.chips import KernelChips
from allot.process.short_names import SOCKET_BYTES_MAX

# The longest path of a socket below the agent's folder.
_SOCKETS_BELOW = len("/plugins_registry/") + 40
_CDI_FOLDERS = (Path("/etc/cdi"), Path("/var/run/cdi"))


class LocalOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What runs containers on this machine: `process`, or `cri` with its socket."""

    runtime: str = "process"
    endpoint: str = ""


class _Driver(msgspec.Struct, frozen=True):
    name: str
    is_needed: Callable[[], bool]
    device_classes: Callable[[], Sequence[DeviceClass]]


_DRIVERS = (
    _Driver("gpu", lambda: ctypes.util.find_library("nvidia-ml") is not None, gpu_classes.device_classes),
    _Driver("nic", lambda: True, nic_classes.device_classes),
    _Driver("cpu", lambda: True, cpu_classes.device_classes),
    _Driver("amd", lambda: bool(AmdGpus(Path("/sys")).read()), amd_classes.device_classes),
    _Driver("intel", lambda: bool(IntelGpus(Path("/sys")).read()), intel_classes.device_classes),
    _Driver("tpu", lambda: bool(KernelChips(Path("/sys"), Path("/dev")).read()), tpu_classes.device_classes),
)


class LocalNode:
    """Which processes there are. folder: the agent's."""

    def __init__(
        self, options: LocalOptions, folder: Path, kubeconfig: Path, gates: str, devices: Sequence[DeviceFile] = ()
    ) -> None:
        """devices: what device files describe."""
        self.name = local_name()
        self._options = options
        self._folder = folder.absolute()
        self._kubeconfig = kubeconfig.absolute()
        self._gates = gates
        self._drivers = tuple(each for each in _DRIVERS if each.is_needed())
        self._devices = tuple(devices)
        if options.runtime == "cri":
            _require_runtime(options.endpoint)
        if len(bytes(self._folder)) + _SOCKETS_BELOW > SOCKET_BYTES_MAX:
            text = f"--node local: sockets below {self._folder} would have paths longer than the machine allows"
            raise Unreadable(text, "choose a data directory with a shorter path: --data-dir")

    @property
    def device_classes(self) -> tuple[DeviceClass, ...]:
        """The drivers' device classes."""
        own = (made for each in self._drivers for made in each.device_classes())
        return (*own, *(made for file in self._devices for made in file.classes))

    def agent(self) -> list[str]:
        """The command of the agent."""
        command = [sys.executable, "-m", "allot", "node", "--kubeconfig", str(self._kubeconfig), "--name", self.name]
        command += ["--root-dir", str(self._folder), "--port", "0", "--runtime", self._options.runtime]
        command += ["--feature-gates", self._gates]
        if self._options.endpoint:
            command += ["--container-runtime-endpoint", self._options.endpoint]
        for folder in (*_CDI_FOLDERS, self._cdi):
            command += ["--cdi-spec-dir", str(folder)]
        return command

    def drivers(self) -> dict[str, list[str]]:
        """The commands of the drivers, by kind; also writes the descriptions for device file drivers."""
        common = ["--kubeconfig", str(self._kubeconfig), "--node-name", self.name, "--kubelet-root", str(self._folder)]
        common += ["--cdi-dir", str(self._cdi)]
        own = {each.name: [sys.executable, "-m", f"allot.devices.{each.name}", *common] for each in self._drivers}
        for file in self._devices:
            path = self._folder / "devices" / f"{file.driver}.json"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(msgspec.json.encode(file))
            own[file_kind(file)] = [sys.executable, "-m", "allot.devices.file", str(path), *common]
        return own

    @property
    def _cdi(self) -> Path:
        """Where drivers write CDI files: the container runtime's directory, or our own for the process runtime."""
        return _CDI_FOLDERS[-1] if self._options.runtime == "cri" else self._folder / "cdi"


def _require_runtime(endpoint: str) -> None:
    """Refused before anything starts: an agent without its container runtime would be started again and again."""
    # Imported late: gRPC takes longer to load than most clusters take to start.
    from allot.node.runtimes.cri import CriOptions

    socket = Path(endpoint.removeprefix("unix://") or CriOptions().socket)
    if not socket.exists():
        hint = "start the container runtime, or set its socket with --container-runtime-endpoint"
        raise CannotServe(f"--runtime cri: there is no container runtime at {socket}", hint)
