"""The runtime `process`: containers are processes of this machine.

Images are not pulled: a command runs if this machine has it. Each container has a session of its own, a folder, a log, and a
view of the file system in which volumes and what CDI asks for are mounted, as far as the kernel lets this user do that. A shim
beside each container (`shim`) keeps it running when the agent ends, and everything that is known is in files, so that the next
agent goes on with it. Network, process ids and users are the machine's.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import logging
import os
import pwd
import signal
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec

import allot
from allot.core.cdi import Hook
from allot.core.lifecycle.pull_secrets import Credentials
from allot.node.cdi.registry import CdiRegistry
from allot.node.runtimes import shim
from allot.node.runtimes.port import (
    Container,
    ContainerSpec,
    ContainerUsage,
    PodName,
    RuntimeFailure,
    RuntimeStatus,
    Sandbox,
    SandboxSpec,
    State,
    Streams,
    User,
)
from allot.node.runtimes.process_devices import AFTER_END, AFTER_START, BEFORE, resolve, run_hooks
from allot.node.runtimes.process_limits import Group, make_group, remove_group
from allot.node.runtimes.process_streams import AttachedStreams, ProgramStreams, connect_port
from allot.node.runtimes.process_usage import usage_of
from allot.process.beneath import remove_tree
from allot.process.clock import Clock
from allot.process.ids import Ids

_log = logging.getLogger("allot.node")

T = TypeVar("T")

NAME = "process"
VERSION = "0.1.0"
# Without site-packages, whose search takes as long as the rest of a start.
_SHIM = (
    *(sys.executable, "-I", "-S", "-B", "-c"),
    f"import sys; sys.path.append({str(Path(allot.__file__).parents[1])!r}); from allot.node.runtimes.shim import main; main()",
)
_NOBODYS_GROUP = 65534
_START_S = 30.0
_ADOPT_S = 5.0
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_HINT = "the process runtime runs programs of this machine and pulls no image"


class _SandboxFile(msgspec.Struct, frozen=True, kw_only=True):
    """A sandbox on disk."""

    sandbox: Sandbox
    spec: SandboxSpec
    boot_id: str


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
    """Runs containers as processes. root: where everything about them is kept."""

    def __init__(
        self,
        root: Path,
        clock: Clock,
        ids: Ids,
        *,
        address: str = "127.0.0.1",
        environment: Mapping[str, str] | None = None,
        cdi_of: Callable[[PodName], CdiRegistry] | None = None,
    ) -> None:
        """environment: what an image would set, for every container. cdi_of: the CDI devices that a pod can have."""
        self._sandbox_folder = root / "sandboxes"
        self._container_folder = root / "containers"
        self._clock = clock
        self._ids = ids
        self._address = address
        self._environment = dict(environment or {})
        own = CdiRegistry()
        self._cdi_of = cdi_of if cdi_of is not None else lambda _pod: own
        self._boot_id = ""
        self._sandboxes: dict[str, _SandboxFile] = {}
        self._containers: dict[str, _Held] = {}
        self._changed: asyncio.Queue[str] = asyncio.Queue()

    # --- life ---

    async def open(self) -> None:
        """Find what an earlier agent left."""
        self._boot_id = _boot_id()
        for folder in (self._sandbox_folder, self._container_folder):
            # Containers of other users pass through to their own folders; what is in the files is not for them.
            folder.mkdir(mode=0o711, parents=True, exist_ok=True)
        for path in sorted(self._sandbox_folder.iterdir()):
            sandbox = _read(path / "sandbox.json", _SandboxFile)
            if sandbox is None:
                _remove(path)
                continue
            if sandbox.boot_id != self._boot_id:
                over = msgspec.structs.replace(sandbox.sandbox, ready=False)
                sandbox = msgspec.structs.replace(sandbox, sandbox=over)
            self._sandboxes[path.name] = sandbox
        for path in sorted(self._container_folder.iterdir()):
            file = _read(path / "container.json", _ContainerFile)
            if file is None:
                _remove(path)
                continue
            held = self._containers[path.name] = _Held(file, path)
            await self._adopt(held)

    async def _adopt(self, held: _Held) -> None:
        """Go on with a container of an earlier agent."""
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
            # Its shim was killed, or the machine started anew.
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
        """Containers run on."""
        loop = asyncio.get_running_loop()
        for held in self._containers.values():
            if held.pidfd >= 0:
                loop.remove_reader(held.pidfd)
                os.close(held.pidfd)
                held.pidfd = -1

    async def status(self) -> RuntimeStatus:
        """Always ready."""
        return RuntimeStatus(name=NAME, version=VERSION, pulls_images=False)

    async def ensure_image(
        self,
        image: str,
        pull_policy: str,  # noqa: ARG002 - the port's signature
        pod: PodName,  # noqa: ARG002
        credentials: Sequence[Credentials] = (),  # noqa: ARG002
    ) -> str:
        """Nothing is pulled; the image is what its name says."""
        return image

    # --- sandboxes ---

    async def run_sandbox(self, spec: SandboxSpec) -> Sandbox:
        """A name for what a pod's containers have in common."""
        id_ = self._new_id()
        now = self._clock.seconds()
        made = Sandbox(id=id_, pod=spec.pod, attempt=spec.attempt, ips=(self._address,), created_at=now)
        file = _SandboxFile(sandbox=made, spec=spec, boot_id=self._boot_id)
        folder = self._sandbox_folder / id_
        folder.mkdir(mode=0o700)
        _write(folder / "sandbox.json", file)
        self._sandboxes[id_] = file
        return made

    async def stop_sandbox(self, sandbox_id: str) -> None:
        """End all that is in it."""
        file = self._sandboxes.get(sandbox_id)
        if file is None:
            return
        for held in self._inside(sandbox_id):
            await self.stop_container(held.file.id, 0.0)
        over = msgspec.structs.replace(file.sandbox, ready=False)
        file = self._sandboxes[sandbox_id] = msgspec.structs.replace(file, sandbox=over)
        _write(self._sandbox_folder / sandbox_id / "sandbox.json", file)

    async def remove_sandbox(self, sandbox_id: str) -> None:
        """Forget it and its containers."""
        for held in self._inside(sandbox_id):
            await self.remove_container(held.file.id)
        if self._sandboxes.pop(sandbox_id, None) is not None:
            _remove(self._sandbox_folder / sandbox_id)

    def _inside(self, sandbox_id: str) -> tuple[_Held, ...]:
        return tuple(each for each in self._containers.values() if each.file.sandbox_id == sandbox_id)

    # --- containers ---

    async def create_container(self, sandbox_id: str, spec: ContainerSpec) -> str:
        """Write down what is to be started."""
        sandbox = self._sandboxes.get(sandbox_id)
        if sandbox is None or not sandbox.sandbox.ready:
            raise RuntimeFailure("CreateContainerError", f"sandbox {sandbox_id} is not there")
        command = (*spec.command, *spec.args)
        if not spec.command:
            text = f'container "{spec.name}" has no command and image "{spec.image}" is not read: {_HINT}'
            raise RuntimeFailure("CreateContainerError", text)
        id_ = self._new_id()
        folder = self._container_folder / id_
        folder.mkdir(mode=0o711)
        try:
            edits = resolve(self._cdi_of(spec.pod), spec.cdi_devices, folder)
        except RuntimeFailure:
            _remove(folder)
            raise
        group = make_group(id_, spec.resources)
        _make_work(folder / "work", spec.user.user)
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
        start = {
            "command": command,
            "environment": environment,
            "directory": spec.working_directory or str(folder / "work"),
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
        }
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
        self._containers[id_] = _Held(file, folder)
        return id_

    async def start_container(self, container_id: str) -> None:
        """Start the shim and wait for its word."""
        held = self._containers.get(container_id)
        if held is None:
            raise RuntimeFailure("RunContainerError", f"container {container_id} is not there")
        await self._run_hooks(held, BEFORE, "creating")
        told, tell = os.pipe()
        try:
            pid = self._spawn(held.folder, tell)
        finally:
            os.close(tell)
        try:
            async with asyncio.timeout(_START_S):
                answer = await _read_all(told)
        except TimeoutError:
            os.kill(pid, signal.SIGKILL)
            raise RuntimeFailure("RunContainerError", f"no answer within {_START_S:g} s") from None
        if answer != "ok":
            os.waitpid(pid, 0)
            held.ended = _read(held.folder / "exit.json", _Ended)
            if held.ended is None:
                held.ended = _Ended(code=128, at=self._clock.seconds(), reason="StartError", message=answer)
            self._ended(held)
            text = answer.removeprefix("error ") or "the process could not be started"
            raise RuntimeFailure("RunContainerError", _with_hint(text, held.file.spec.image))
        held.ran = _read(held.folder / "run.json", _Ran)
        self._watch(held, pid)
        self._changed.put_nowait(held.file.spec.pod.uid)
        try:
            await self._run_hooks(held, AFTER_START, "running")
        except RuntimeFailure as error:
            # As OCI has it: what fails after the start is told and changes nothing.
            _log.warning("container %s: %s", held.file.spec.name, error)

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

    def _spawn(self, folder: Path, tell: int) -> int:
        errors = str(folder / "shim.log")
        return os.posix_spawn(
            sys.executable,
            [*_SHIM, "run", str(folder)],
            {},
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, errors, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600),
                (os.POSIX_SPAWN_DUP2, 1, 2),
                (os.POSIX_SPAWN_DUP2, tell, shim.STATUS_FD),
            ],
            setsid=True,
        )

    def _watch(self, held: _Held, pid: int) -> bool:
        """Notice the end of a shim; whether it is there."""
        try:
            held.pidfd = os.pidfd_open(pid)
        except OSError:
            return False
        asyncio.get_running_loop().add_reader(held.pidfd, self._shim_ended, held, pid)
        return True

    def _shim_ended(self, held: _Held, pid: int) -> None:
        asyncio.get_running_loop().remove_reader(held.pidfd)
        os.close(held.pidfd)
        held.pidfd = -1
        try:
            os.waitpid(pid, os.WNOHANG)
        except ChildProcessError:
            pass  # the child of an earlier agent
        held.ended = _read(held.folder / "exit.json", _Ended)
        if held.ended is None:
            if held.ran is not None:
                _kill(held.ran)
            held.ended = _Ended(code=137, at=self._clock.seconds(), reason="Error", message="its shim was killed")
            _write(held.folder / "exit.json", held.ended)
        self._ended(held)

    def _ended(self, held: _Held) -> None:
        held.gone.set()
        self._changed.put_nowait(held.file.spec.pod.uid)

    async def stop_container(self, container_id: str, grace_seconds: float) -> None:
        """SIGTERM, and SIGKILL after the grace period."""
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
        """Through the shim, which knows whether the process is still the one that it started."""
        try:
            streams = await AttachedStreams.open(held.folder)
            await streams.send(shim.SIGNAL, bytes((number,)))
            await streams.close()
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ECONNREFUSED, errno.ECONNRESET, errno.EPIPE):
                raise RuntimeFailure("KillContainerError", str(error)) from error
            if held.ran is not None and shim.start_time(held.ran.pid) == held.ran.began:
                _send(held.ran.pid, number)

    async def remove_container(self, container_id: str) -> None:
        """End it if need be and forget it."""
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
            # A shim that an agent started right before its end finds the lock taken and goes.
            fcntl.flock(with_lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            pass
        finally:
            # The container decides how much that is.
            await asyncio.to_thread(_remove, held.folder)
            os.close(with_lock)
        remove_group(held.file.group)
        self._containers.pop(container_id, None)

    async def list(self) -> tuple[Sequence[Sandbox], Sequence[Container]]:
        """Everything."""
        sandboxes = tuple(each.sandbox for each in self._sandboxes.values())
        return sandboxes, tuple(each.described() for each in self._containers.values())

    async def changes(self) -> AsyncIterator[str]:
        """Pods of which something has changed."""
        while True:
            yield await self._changed.get()

    # --- talking to containers ---

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
        helper = (*_SHIM, "exec", str(held.folder), "tty" if tty else "plain")
        return await ProgramStreams.start((*helper, *command), tty=tty, stdin=stdin)

    async def attach(self, container_id: str) -> Streams:
        """Talk to the container itself."""
        held = self._running(container_id)
        try:
            return await AttachedStreams.open(held.folder)
        except OSError as error:
            raise RuntimeFailure("AttachError", f"container {held.file.spec.name}: {error}") from error

    async def connect(self, sandbox_id: str, port: int) -> Streams:  # noqa: ARG002 - all pods share the machine's network
        """A connection to a port of this machine."""
        return await connect_port("127.0.0.1", port)

    async def usage(self) -> Sequence[ContainerUsage]:
        """What containers use now."""
        return tuple(
            usage_of(held.file.id, held.ran.pid, held.ran.shim, held.ran.at)
            for held in self._containers.values()
            if held.is_running and held.ran is not None
        )

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
    """Never root's by default: a user that this machine does not know is in nobody's group. Asked here and not by the shim, where the
    container's own /etc would answer."""
    if user.group is not None or not user.user:
        return user.group
    try:
        return pwd.getpwuid(user.user).pw_gid
    except KeyError:
        return _NOBODYS_GROUP


def _make_work(folder: Path, user: int | None) -> None:
    """Where a container is if it does not say: a folder for nobody else."""
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
    """End what a shim that is gone has left: the container is the leader of its session."""
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


async def _read_all(handle: int) -> str:
    """What comes through a pipe until its end."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    transport, _ = await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(handle, "rb", 0)
    )
    try:
        return (await reader.read()).decode(errors="replace")
    finally:
        transport.close()
