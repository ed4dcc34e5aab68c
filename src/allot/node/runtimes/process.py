"""The runtime `process`: containers are processes of this machine.

Images are not pulled: a command runs if this machine has it. Containers run in a sandbox: they see the machine's programs
(`machine_view`), their own writable layer (`container_root`), their volumes and devices, and only their own processes; they are
the user `nobody` on this machine. Without sandbox support in the kernel they do not run, unless the agent may run them on the machine itself.
A shim beside each container (`shim`) keeps it running when the agent ends, and everything that is known is in files, so that the next
agent continues with it.
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import pwd
import signal
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from allot.core.cdi import Hook
from allot.core.lifecycle.pull_secrets import Credentials
from allot.network.client import PodNetwork
from allot.node.cdi.registry import CdiRegistry
from allot.node.containers import TERMINATION_FILE
from allot.node.machine import memory_total_bytes
from allot.node.runtimes import shim
from allot.node.runtimes.machine_view import MachineView, gives_ids, machine_view, ranges
from allot.node.runtimes.port import (
    Container,
    ContainerSpec,
    ContainerUsage,
    Isolation,
    PodName,
    PodVolume,
    Resources,
    RuntimeFailure,
    RuntimeStatus,
    Sandbox,
    SandboxSpec,
    State,
    Streams,
    User,
)
from allot.node.runtimes.process_devices import AFTER_END, AFTER_START, BEFORE, Edits, resolve, run_hooks, show_devices
from allot.node.runtimes.process_launcher import Launcher, small_program
from allot.node.runtimes.process_limits import Group, LimitsRefused, make_group, remove_group, update_group
from allot.node.runtimes.process_network import SandboxNetwork
from allot.node.runtimes.process_streams import AttachedStreams, ProgramStreams
from allot.node.runtimes.process_usage import usage_of
from allot.process.beneath import remove_tree
from allot.process.clock import Clock
from allot.process.ids import Ids

_log = logging.getLogger("allot.node")

T = TypeVar("T")

NAME = "process"
VERSION = "0.1.0"
_SHIM = small_program("shim")
_NOBODYS_GROUP = 65534
_ADOPT_S = 5.0
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
# The default size of a container's own layer, and of a pod's volume.
LAYER_BYTES, VOLUME_BYTES = 512 * 2**20, 2**30
_HINT = "the process runtime runs programs of this machine and pulls no image"


class _Holder(msgspec.Struct, frozen=True, kw_only=True):
    """The process that keeps a pod's namespaces, and its start time."""

    pid: int
    began: int

    @property
    def is_there(self) -> bool:
        return shim.start_time(self.pid) == self.began


class _SandboxFile(msgspec.Struct, frozen=True, kw_only=True):
    """A sandbox on disk. holder: None if containers run on the machine itself."""

    sandbox: Sandbox
    spec: SandboxSpec
    boot_id: str
    holder: _Holder | None = None


class _ContainerFile(msgspec.Struct, frozen=True, kw_only=True):
    """A container on disk."""

    id: str
    sandbox_id: str
    spec: ContainerSpec
    created_at: float
    boot_id: str
    hooks: tuple[Hook, ...] = ()
    group: Group = Group()


class _Ran(msgspec.Struct, frozen=True, kw_only=True):
    """run.json."""

    pid: int
    began: int
    shim: int
    at: float


class _Ended(msgspec.Struct, frozen=True, kw_only=True):
    """exit.json."""

    code: int
    at: float
    reason: str = ""
    message: str = ""


class _Held:
    """A container that the runtime knows."""

    __slots__ = ("ended", "file", "folder", "gone", "pidfd", "ran")

    def __init__(self, file: _ContainerFile, folder: Path) -> None:
        self.file = file
        self.folder = folder
        self.ran: _Ran | None = None
        self.ended: _Ended | None = None
        self.pidfd = -1
        self.gone = asyncio.Event()

    @property
    def is_running(self) -> bool:
        return self.ran is not None and self.ended is None

    def described(self) -> Container:
        file, ran, ended = self.file, self.ran, self.ended
        state = State.EXITED if ended is not None else State.RUNNING if ran is not None else State.CREATED
        code = ended.code if ended is not None else 0
        return Container(
            id=file.id,
            sandbox_id=file.sandbox_id,
            pod=file.spec.pod,
            name=file.spec.name,
            attempt=file.spec.attempt,
            state=state,
            image=file.spec.image,
            image_id=file.spec.image_id,
            created_at=file.created_at,
            started_at=ran.at if ran is not None else 0.0,
            finished_at=ended.at if ended is not None else 0.0,
            exit_code=code,
            reason="" if ended is None else ended.reason or ("Completed" if code == 0 else "Error"),
            message="" if ended is None else ended.message,
            annotations=file.spec.annotations,
        )


class ProcessRuntime:
    """Runs containers as processes. root: where their state is kept."""

    def __init__(
        self,
        root: Path,
        clock: Clock,
        ids: Ids,
        *,
        address: str = "127.0.0.1",
        environment: Mapping[str, str] | None = None,
        cdi_of: Callable[[PodName], CdiRegistry] | None = None,
        host_commands: bool = False,
        masked: Sequence[Path] = (),
        network: PodNetwork | None = None,
        no_network: str = "",
    ) -> None:
        """environment: what an image would set, for every container. cdi_of: the CDI devices that a pod can use. host_commands: whether containers
        run on the machine itself. masked: what they never see of it otherwise. network: gives pods their own addresses; without it, they share
        the machine's. no_network: why there is none, if there should be."""
        self._sandbox_folder = root / "sandboxes"
        self._container_folder = root / "containers"
        self._clock = clock
        self._ids = ids
        self._network = SandboxNetwork(network, address, no_network)
        self._environment = dict(environment or {})
        own = CdiRegistry()
        self._cdi_of = cdi_of if cdi_of is not None else lambda _pod: own
        self._host_commands = host_commands
        self._masked = (root, *masked)
        self._launcher = Launcher()
        self._view: MachineView | None = None
        self._gives_ids = gives_ids()
        self._isolation: Isolation | None = None
        self._probing = asyncio.Lock()
        self._boot_id = ""
        self._sandboxes: dict[str, _SandboxFile] = {}
        self._containers: dict[str, _Held] = {}
        self._changed: asyncio.Queue[str] = asyncio.Queue()

    # --- life ---

    async def open(self) -> None:
        """Find what an earlier agent left."""
        self._boot_id = _boot_id()
        for folder in (self._sandbox_folder, self._container_folder):
            # Containers of other users pass through to their own folders; they cannot read the files.
            folder.mkdir(mode=0o711, parents=True, exist_ok=True)
        for path in sorted(self._sandbox_folder.iterdir()):
            sandbox = _read(path / "sandbox.json", _SandboxFile)
            if sandbox is None:
                _remove(path)
                continue
            is_there = sandbox.holder is None or sandbox.holder.is_there
            if (
                sandbox.boot_id != self._boot_id
                or not is_there
                or not await self._network.is_there(sandbox.sandbox.ips)
            ):
                over = msgspec.structs.replace(sandbox.sandbox, ready=False)
                sandbox = msgspec.structs.replace(sandbox, sandbox=over)
            self._sandboxes[path.name] = sandbox
            await self._open_host_ports_again(sandbox)
        for path in sorted(self._container_folder.iterdir()):
            file = _read(path / "container.json", _ContainerFile)
            if file is None:
                _remove(path)
                continue
            held = self._containers[path.name] = _Held(file, path)
            await self._adopt(held)

    async def _open_host_ports_again(self, file: _SandboxFile) -> None:
        """Reopen the host ports of an earlier agent, which ended with it."""
        if file.sandbox.ready:
            try:
                await self._network.open_host_ports(file.spec, file.sandbox.ips)
            except RuntimeFailure as error:
                _log.warning("pod %s/%s: %s", file.spec.pod.namespace, file.spec.pod.name, error)

    async def _adopt(self, held: _Held) -> None:
        """Continue with a container of an earlier agent."""
        held.ran = _read(held.folder / "run.json", _Ran)
        held.ended = _read(held.folder / "exit.json", _Ended)
        if held.ended is not None:
            held.gone.set()
            return
        until = self._clock.monotonic() + _ADOPT_S
        while held.file.boot_id == self._boot_id and _is_locked(held.folder / "lock"):
            held.ran = _read(held.folder / "run.json", _Ran)
            if held.ran is not None and self._watch(held, held.ran.shim):
                return
            if self._clock.monotonic() > until:
                break
            await self._clock.sleep(0.02)
        held.ended = _read(held.folder / "exit.json", _Ended)
        if held.ended is None and held.ran is not None:
            # Its shim was killed, or the machine rebooted.
            _kill(held.ran)
            held.ended = _Ended(
                code=137,
                at=self._clock.seconds(),
                reason="ContainerStatusUnknown",
                message="The container could not be located when the pod was terminated",
            )
            _write(held.folder / "exit.json", held.ended)
        if held.ended is not None:
            held.gone.set()

    async def close(self) -> None:
        """Close; containers keep running."""
        self._launcher.close()
        loop = asyncio.get_running_loop()
        for held in self._containers.values():
            if held.pidfd >= 0:
                loop.remove_reader(held.pidfd)
                os.close(held.pidfd)
                held.pidfd = -1

    async def status(self) -> RuntimeStatus:
        """Always ready."""
        isolation = await self.isolation()
        network = self._network.status() if isolation.is_on else None
        return RuntimeStatus(name=NAME, version=VERSION, pulls_images=False, isolation=isolation, network=network)

    async def isolation(self) -> Isolation:
        """Whether containers run in a sandbox: tested once, with a real one."""
        async with self._probing:
            if self._isolation is None:
                self._isolation = _on_host() if self._host_commands else await self._try_sandbox()
            return self._isolation

    async def _try_sandbox(self) -> Isolation:
        pod = PodName(uid="", namespace="", name="probe")
        path = self._environment.get("PATH", os.defpath)
        self._view = await asyncio.to_thread(machine_view, path, self._masked)
        sandbox = ""
        try:
            sandbox = (
                await self._make_sandbox(SandboxSpec(pod=pod, hostname="probe", host_network=True), is_sandboxed=True)
            ).id
            await self._launch(await self._create(sandbox, ContainerSpec(pod=pod, name="probe", command=("true",))))
        except RuntimeFailure as error:
            # A machine without that command still has a sandbox.
            if not str(error).startswith("exec: "):
                return _refused(str(error))
        finally:
            if sandbox:
                await self.stop_sandbox(sandbox)
                await self.remove_sandbox(sandbox)
        return Isolation(
            is_on=True,
            reason="Namespaces",
            message="containers see this machine's programs, and write to their own layer",
        )

    async def ensure_image(
        self,
        image: str,
        pull_policy: str,  # noqa: ARG002 - the port's signature
        pod: PodName,  # noqa: ARG002
        credentials: Sequence[Credentials] = (),  # noqa: ARG002
    ) -> str:
        """Nothing is pulled; the id is the image's name."""
        return image

    # --- sandboxes ---

    async def run_sandbox(self, spec: SandboxSpec) -> Sandbox:
        """Create the namespaces that a pod's containers share; only a name if they run on the machine itself."""
        isolation = await self.isolation()
        if not isolation.runs:
            raise RuntimeFailure("CreatePodSandboxError", isolation.message)
        return await self._make_sandbox(spec, is_sandboxed=isolation.is_on)

    async def _make_sandbox(self, spec: SandboxSpec, *, is_sandboxed: bool) -> Sandbox:
        _check_sysctls(spec, has_namespaces=is_sandboxed, has_network=self._network.has_own(spec))
        id_ = self._new_id()
        now = self._clock.seconds()
        holder, address = None, self._network.address
        if is_sandboxed:
            volumes = [(each.path, _bounded(each.size_bytes, VOLUME_BYTES)) for each in spec.volumes if _is_there(each)]
            wanted = {"do": "hold", "hostname": spec.hostname, "volumes": volumes, "sysctls": spec.sysctls}
            pid, address = await self._network.start_holder(self._launcher, wanted, spec)
            holder = _Holder(pid=pid, began=shim.start_time(pid))
            try:
                await self._network.open_host_ports(spec, (address,))
            except RuntimeFailure:
                _send(pid, signal.SIGKILL)
                raise
        made = Sandbox(id=id_, pod=spec.pod, attempt=spec.attempt, ips=(address,), created_at=now)
        file = _SandboxFile(sandbox=made, spec=spec, boot_id=self._boot_id, holder=holder)
        folder = self._sandbox_folder / id_
        folder.mkdir(mode=0o700)
        _write(folder / "sandbox.json", file)
        self._sandboxes[id_] = file
        return made

    async def stop_sandbox(self, sandbox_id: str) -> None:
        """End everything in it."""
        file = self._sandboxes.get(sandbox_id)
        if file is None:
            return
        for held in self._inside(sandbox_id):
            await self.stop_container(held.file.id, 0.0)
        await self._network.close_host_ports(file.spec, file.sandbox.ips)
        if file.holder is not None and file.holder.is_there:
            _send(file.holder.pid, signal.SIGKILL)
        over = msgspec.structs.replace(file.sandbox, ready=False)
        file = self._sandboxes[sandbox_id] = msgspec.structs.replace(file, sandbox=over)
        _write(self._sandbox_folder / sandbox_id / "sandbox.json", file)

    async def remove_sandbox(self, sandbox_id: str) -> None:
        """Remove it and its containers."""
        for held in self._inside(sandbox_id):
            await self.remove_container(held.file.id)
        if self._sandboxes.pop(sandbox_id, None) is not None:
            _remove(self._sandbox_folder / sandbox_id)

    def _inside(self, sandbox_id: str) -> tuple[_Held, ...]:
        return tuple(each for each in self._containers.values() if each.file.sandbox_id == sandbox_id)

    # --- containers ---

    async def create_container(self, sandbox_id: str, spec: ContainerSpec) -> str:
        """Write the configuration of the container to start."""
        return (await self._create(sandbox_id, spec)).file.id

    async def _create(self, sandbox_id: str, spec: ContainerSpec) -> _Held:
        sandbox = self._sandboxes.get(sandbox_id)
        if sandbox is None or not sandbox.sandbox.ready:
            raise RuntimeFailure("CreateContainerError", f"sandbox {sandbox_id} does not exist")
        if sandbox.holder is not None and not sandbox.holder.is_there:
            await self.stop_sandbox(sandbox_id)
            self._changed.put_nowait(spec.pod.uid)
            raise RuntimeFailure("CreateContainerError", f"sandbox {sandbox_id} was ended externally")
        if not spec.command:
            text = f'container "{spec.name}" has no command and image "{spec.image}" is not read: {_HINT}'
            raise RuntimeFailure("CreateContainerError", text)
        id_ = self._new_id()
        folder = self._container_folder / id_
        folder.mkdir(mode=0o711)
        try:
            is_sandboxed = sandbox.holder is not None
            edits = Edits()
            if spec.cdi_devices:
                edits = resolve(self._cdi_of(spec.pod), spec.cdi_devices, folder, is_sandboxed=is_sandboxed)
            shown = show_devices(spec.devices, is_sandboxed=is_sandboxed)
            edits = msgspec.structs.replace(edits, mounts=(*shown, *edits.mounts))
        except RuntimeFailure:
            _remove(folder)
            raise
        group = make_group(id_, spec.resources)
        start = self._start_file(sandbox, spec, edits, folder, group)
        file = _ContainerFile(
            id=id_,
            sandbox_id=sandbox_id,
            spec=spec,
            created_at=self._clock.seconds(),
            boot_id=self._boot_id,
            hooks=edits.hooks,
            group=group,
        )
        _write(folder / "start.json", start)
        _write(folder / "container.json", file)
        held = self._containers[id_] = _Held(file, folder)
        return held

    def _start_file(
        self, sandbox: _SandboxFile, spec: ContainerSpec, edits: Edits, folder: Path, group: Group
    ) -> dict[str, Any]:
        """The shim's configuration."""
        environment = {**self._environment, "HOSTNAME": sandbox.spec.hostname, **spec.environment, **edits.environment}
        mounts = [
            {
                "host_path": m.host_path,
                "sub_path": m.sub_path,
                "container_path": m.container_path,
                "read_only": m.read_only,
            }
            for m in spec.mounts
        ]
        start: dict[str, Any] = {
            "command": (*spec.command, *spec.args),
            "environment": environment,
            "directory": spec.working_directory,
            "tty": spec.tty,
            "stdin": spec.stdin,
            "stdin_once": spec.stdin_once,
            "log": str(Path(sandbox.spec.log_directory or folder) / (spec.log_path or "log")),
            "scratch": str(folder),
            "mounts": [*mounts, *edits.mounts],
            "user": spec.user.user,
            "group": _group(spec.user),
            "groups": [*spec.user.supplemental_groups, *edits.groups],
            "privileged": spec.user.privileged,
            "oom_score_adjust": spec.resources.oom_score_adjust,
            "processors": spec.resources.cpuset_cpus,
            "cgroups": group.folders,
            "oom_file": group.oom_file,
            "agent": os.getpid() if spec.ends_with_agent else 0,
        }
        if sandbox.holder is not None:
            return {**start, **self._sandboxed(sandbox, spec, edits, start)}
        if not spec.working_directory:
            _make_work(folder / "work", spec.user.user)
            start["directory"], start["own_directory"] = str(folder / "work"), True
        return start

    def _sandboxed(
        self, sandbox: _SandboxFile, spec: ContainerSpec, edits: Edits, start: Mapping[str, Any]
    ) -> dict[str, Any]:
        """The differences in a sandbox: a root, a home, ids."""
        assert self._view is not None, "it was made before the first sandbox"
        user = os.geteuid() if spec.user.user is None else spec.user.user
        group = os.getegid() if start["group"] is None else start["group"]
        home = _home(user)
        hostname = sandbox.spec.hostname
        view = msgspec.structs.replace(
            self._view,
            folders={**self._view.folders, home: 0o755},
            files={"/etc/hostname": f"{hostname}\n", **self._network.files(sandbox.spec, sandbox.sandbox.ips)},
        )
        groups = {group, *start["groups"]}
        return {
            "view": view,
            "holder": sandbox.holder,
            "user": user,
            "group": group,
            "users": ranges((user,)) if self._gives_ids else [(user, os.geteuid(), 1)],
            "user_groups": ranges(groups, edits.groups) if self._gives_ids else [(group, os.getegid(), 1)],
            "gives_ids": self._gives_ids,
            "environment": {**start["environment"], "HOME": spec.environment.get("HOME", home)},
            "directory": spec.working_directory or "/",
            "layer_bytes": _bounded(spec.resources.storage_limit_bytes, LAYER_BYTES),
            "read_only": spec.user.read_only_root,
            "message_file": spec.annotations.get(TERMINATION_FILE, ""),
        }

    async def start_container(self, container_id: str) -> None:
        """Start the shim and wait for its report."""
        held = self._containers.get(container_id)
        if held is None:
            raise RuntimeFailure("RunContainerError", f"container {container_id} does not exist")
        await self._run_hooks(held, BEFORE, "creating")
        await self._launch(held)
        self._changed.put_nowait(held.file.spec.pod.uid)
        try:
            await self._run_hooks(held, AFTER_START, "running")
        except RuntimeFailure as error:
            # As in OCI: failures after the start are logged and change nothing.
            _log.warning("container %s: %s", held.file.spec.name, error)

    async def _launch(self, held: _Held) -> None:
        try:
            pid = await self._launcher.start({"do": "run", "folder": str(held.folder)})
        except RuntimeFailure as error:
            held.ended = _read(held.folder / "exit.json", _Ended)
            if held.ended is None:
                held.ended = _Ended(code=128, at=self._clock.seconds(), reason="StartError", message=str(error))
            self._ended(held)
            raise RuntimeFailure("RunContainerError", _with_hint(str(error), held.file.spec.image)) from error
        held.ran = _read(held.folder / "run.json", _Ran)
        if not self._watch(held, pid):
            # It has ended meanwhile.
            held.ended = _read(held.folder / "exit.json", _Ended)
            self._ended(held)

    async def _run_hooks(self, held: _Held, moments: Sequence[str], status: str) -> None:
        if not held.file.hooks:
            return
        state: dict[str, Any] = {"id": held.file.id, "status": status, "bundle": str(held.folder)}
        if held.ran is not None:
            state["pid"] = held.ran.pid
        try:
            await run_hooks(held.file.hooks, moments, state)
        except RuntimeFailure as error:
            if moments is BEFORE:
                held.ended = _Ended(code=128, at=self._clock.seconds(), reason="StartError", message=str(error))
                _write(held.folder / "exit.json", held.ended)
                self._ended(held)
            raise

    def _watch(self, held: _Held, pid: int) -> bool:
        """Watch for the end of a shim; returns whether it exists."""
        try:
            held.pidfd = os.pidfd_open(pid)
        except OSError:
            return False
        asyncio.get_running_loop().add_reader(held.pidfd, self._shim_ended, held)
        return True

    def _shim_ended(self, held: _Held) -> None:
        asyncio.get_running_loop().remove_reader(held.pidfd)
        os.close(held.pidfd)
        held.pidfd = -1
        held.ended = _read(held.folder / "exit.json", _Ended)
        if held.ended is None:
            if held.ran is not None:
                _kill(held.ran)
            held.ended = _Ended(code=137, at=self._clock.seconds(), reason="Error", message="its shim was killed")
            _write(held.folder / "exit.json", held.ended)
        self._ended(held)

    def _ended(self, held: _Held) -> None:
        held.gone.set()
        # The trial sandbox belongs to no pod.
        if held.file.spec.pod.uid:
            self._changed.put_nowait(held.file.spec.pod.uid)

    async def update_container(self, container_id: str, resources: Resources) -> None:
        """Change the limits, in the control groups of the container."""
        held = self._running(container_id)
        try:
            update_group(container_id, held.file.group, resources)
        except LimitsRefused as error:
            raise RuntimeFailure("ResizeContainerError", f"container {held.file.spec.name}: {error}") from error
        spec = msgspec.structs.replace(held.file.spec, resources=resources)
        held.file = msgspec.structs.replace(held.file, spec=spec)
        _write(held.folder / "container.json", held.file)

    async def stop_container(self, container_id: str, grace_seconds: float) -> None:
        """Send SIGTERM, and SIGKILL after the grace period."""
        held = self._containers.get(container_id)
        if held is None or not held.is_running:
            return
        if grace_seconds > 0:
            await self._signal(held, signal.SIGTERM)
            try:
                async with asyncio.timeout(grace_seconds):
                    await held.gone.wait()
                return
            except TimeoutError:
                pass
        await self._signal(held, signal.SIGKILL)
        await held.gone.wait()

    async def _signal(self, held: _Held, number: int) -> None:
        """Signal through the shim, which knows whether the process is still its own."""
        try:
            streams = await AttachedStreams.open(held.folder)
            try:
                await streams.send(shim.SIGNAL, bytes((number,)))
            finally:
                await streams.close()
        except (FileNotFoundError, ConnectionError):
            # The shim has ended, or is just ending: asyncio reports that without an errno.
            if held.ran is not None and shim.start_time(held.ran.pid) == held.ran.began:
                _send(held.ran.pid, number)
        except OSError as error:
            raise RuntimeFailure("KillContainerError", str(error)) from error

    async def remove_container(self, container_id: str) -> None:
        """End it if necessary, and remove it."""
        held = self._containers.get(container_id)
        if held is None:
            return
        if held.is_running:
            await self.stop_container(container_id, 0.0)
        try:
            await self._run_hooks(held, AFTER_END, "stopped")
        except RuntimeFailure as error:
            _log.warning("container %s: %s", held.file.spec.name, error)
        with_lock = os.open(held.folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            # A shim that an agent started just before its own end finds the lock taken and exits.
            fcntl.flock(with_lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            pass
        finally:
            # Its size is up to the container.
            await asyncio.to_thread(_remove, held.folder)
            os.close(with_lock)
        remove_group(held.file.group)
        self._containers.pop(container_id, None)

    async def list(self) -> tuple[Sequence[Sandbox], Sequence[Container]]:
        """Everything."""
        sandboxes = tuple(each.sandbox for each in self._sandboxes.values())
        return sandboxes, tuple(each.described() for each in self._containers.values())

    async def changes(self) -> AsyncIterator[str]:
        """Pods with changes."""
        while True:
            yield await self._changed.get()

    # --- exec, attach and ports ---

    async def exec_sync(self, container_id: str, command: Sequence[str], timeout_s: float) -> tuple[int, bytes]:
        """Run a program and wait for it; TimeoutError if it takes too long."""
        streams = await self.exec(container_id, command, tty=False, stdin=False)
        said = bytearray()
        try:
            async with asyncio.timeout(timeout_s):
                async for _, data in streams.output():
                    if len(said) < 10 * 1024:
                        said += data
                return await streams.exit_code(), bytes(said)
        finally:
            await streams.close()

    async def exec(self, container_id: str, command: Sequence[str], *, tty: bool, stdin: bool) -> Streams:
        """Run a program where the container is."""
        held = self._running(container_id)
        helper = (*_SHIM, "exec", str(held.folder))
        is_sandboxed = self._is_sandboxed(held)
        return await ProgramStreams.start(helper, command, tty=tty, stdin=stdin, is_asked=is_sandboxed)

    async def attach(self, container_id: str) -> Streams:
        """Attach to the container itself."""
        held = self._running(container_id)
        try:
            return await AttachedStreams.open(held.folder)
        except OSError as error:
            raise RuntimeFailure("AttachError", f"container {held.file.spec.name}: {error}") from error

    async def connect(self, sandbox_id: str, port: int) -> Streams:
        """Connect to a port of the pod; of this machine, if the pod is on the host network."""
        file = self._sandboxes.get(sandbox_id)
        if file is None:
            raise RuntimeFailure("PortForwardError", f"sandbox {sandbox_id} does not exist")
        return await self._network.connect(file.sandbox.ips, file.holder.pid if file.holder is not None else 0, port)

    async def usage(self) -> Sequence[ContainerUsage]:
        """The current usage of containers."""
        return tuple(
            usage_of(held.file.id, held.ran.pid, held.ran.shim, held.ran.at, is_sandboxed=self._is_sandboxed(held))
            for held in self._containers.values()
            if held.is_running and held.ran is not None
        )

    def _is_sandboxed(self, held: _Held) -> bool:
        sandbox = self._sandboxes.get(held.file.sandbox_id)
        return sandbox is not None and sandbox.holder is not None

    def _running(self, container_id: str) -> _Held:
        held = self._containers.get(container_id)
        if held is None or not held.is_running:
            raise RuntimeFailure("NotRunning", f"container {container_id} is not running")
        return held

    def _new_id(self) -> str:
        return (self._ids.new_uid() + self._ids.new_uid()).replace("-", "")


# --- files and processes ---


def _with_hint(text: str, image: str) -> str:
    missing = "not found" in text or "no such file" in text
    return f'{text} ({_HINT}, and so not "{image}")' if missing and image else text


def _boot_id() -> str:
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return ""


def _group(user: User) -> int | None:
    """The user's group, never root's by default: users unknown to this machine get nobody's group. Looked up here, because the shim would read the
    container's own /etc."""
    if user.group is not None or not user.user:
        return user.group
    try:
        return pwd.getpwuid(user.user).pw_gid
    except KeyError:
        return _NOBODYS_GROUP


def _on_host() -> Isolation:
    who = pwd.getpwuid(os.geteuid()).pw_name if os.geteuid() != 0 else "root"
    text = f"--host-commands: containers are processes of this machine, with the files of user {who}"
    return Isolation(is_on=False, reason="HostCommands", message=text)


def _refused(why: str) -> Isolation:
    text = f"this machine allows no sandbox ({why}), and without one commands run only with --host-commands"
    return Isolation(is_on=False, runs=False, reason="NoSandbox", message=text)


def _check_sysctls(spec: SandboxSpec, *, has_namespaces: bool, has_network: bool) -> None:
    """RuntimeFailure if a pod's sysctl would apply to the machine."""
    for name in spec.sysctls:
        if not has_namespaces or (name.startswith("net.") and not has_network):
            text = f'sysctl "{name}": the pod has no separate namespace for that on this node'
            raise RuntimeFailure("CreatePodSandboxError", text)


def _is_there(volume: PodVolume) -> bool:
    return Path(volume.path).is_dir()


def _bounded(asked: int | None, usual: int) -> int:
    """A size of memory, never more than half of the machine's."""
    return max(min(usual if asked is None else asked, memory_total_bytes() // 2), 1)


def _home(user: int) -> str:
    if user == 0:
        return "/root"
    try:
        return f"/home/{pwd.getpwuid(user).pw_name}"
    except KeyError:
        return f"/home/{user}"


def _make_work(folder: Path, user: int | None) -> None:
    """Create the default working directory of a container, which no one else can enter."""
    folder.mkdir(mode=0o700)
    if user is not None and os.geteuid() == 0:
        os.chown(folder, user, -1)


def _remove(folder: Path) -> None:
    try:
        remove_tree(folder)
    except OSError as error:
        _log.warning("%s is not removed: %s", folder, error)


def _write(path: Path, value: Any) -> None:
    temporary = path.with_suffix(".new")
    with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(msgspec.json.encode(value))
    temporary.replace(path)


def _read(path: Path, type_: type[T]) -> T | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=type_)
    except (OSError, msgspec.DecodeError):
        return None


def _is_locked(path: Path) -> bool:
    try:
        handle = os.open(path, os.O_RDWR)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return False
    except OSError:
        return True
    finally:
        os.close(handle)


def _kill(ran: _Ran) -> None:
    """Kill what a dead shim has left: the container leads its own session."""
    if shim.start_time(ran.pid) == ran.began:
        try:
            os.killpg(ran.pid, signal.SIGKILL)
        except OSError:
            _send(ran.pid, signal.SIGKILL)


def _send(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except OSError:
        pass  # it has ended by itself
