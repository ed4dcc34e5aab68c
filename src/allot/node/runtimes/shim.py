"""A small program beside each container of the process runtime: starts it, keeps its log, reports how it ended.

Forked by the `launcher`, so that it starts in milliseconds, and independent from then on, so that containers outlive the agent. Holds a
lock on its folder as long as it runs; all its state is in files there. The second use (`exec FOLDER ...`) turns a process
into a program inside a container that runs; it imports nothing of allot but modules that import as little as it does (pathlib or typing
alone would take a tenth of its start).

A sandboxed container has a root of its own (`container_root`) and namespaces for processes, mounts and users; the pod's holder has those
that its containers share. The first process in there is not the container but a copy of this one, which passes on signals and the
container's end: otherwise the container would ignore signals without a handler. Nothing is imported or looked up once the
first volume is in place (it may be where modules are).

Files: start.json (from the agent), run.json (it runs), exit.json (it has ended), attach.sock (to talk to it).
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import json
import os
import resource
import select
import signal
import socket
import struct
import sys
import termios
import time

from allot.node.runtimes.container_mounts import StartFailure, enter_namespace, make_mounts
from allot.node.runtimes.container_root import ContainerRoot
from allot.process.beneath import read_file
from allot.process.mounts import libc
from allot.process.namespaces import (
    HOST_NAMES,
    IPC,
    MOUNTS,
    NETWORK,
    PROCESSES,
    USERS,
    enter,
    is_ours,
    make_users,
    owner_of,
    unshare,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

    from allot.process.namespaces import Range

# Frames on attach.sock: kind, length, data. To the shim: input, window size, signal, end of input; from it: output, errors, end.
FRAME = struct.Struct(">BI")
INPUT, RESIZE, SIGNAL, END_INPUT = 0, 1, 2, 3
OUTPUT, ERRORS, ENDED = 1, 2, 3
_LOG_LINE_MAX = 16 * 1024
# The kubelet's default; the previous file is kept as NAME.1.
_LOG_BYTES_MAX = 10 * 1024 * 1024
_PIPE_BYTES = 64 * 1024
_CLIENT_BUFFER_MAX = 4 * 1024 * 1024
_SUBREAPER, _NO_NEW_PRIVILEGES, _DEATH_SIGNAL = 36, 38, 1
_MESSAGE_BYTES_MAX = 4096
_OPEN_PEER = 0x5441
_CLOSE_RANGE, _WHEN_ANOTHER_PROGRAM = 436, 4
_DROP_CAPABILITY, _CAPABILITIES = 24, 64
# The most that root in a container can do, over what the container owns; the default of container runtimes: chown, dac_override, fowner,
# fsetid, kill, setgid, setuid, setpcap, net_bind_service, net_raw, sys_chroot, mknod, audit_write, setfcap.
_CAPABILITIES_KEPT = (0, 1, 3, 4, 5, 6, 7, 8, 10, 13, 18, 27, 29, 31)
_PROCESSES_MAX = 4096
# Namespaces that the containers of a pod share; mounts come last, because that changes what /proc means.
_SHARED = (("ipc", IPC), ("uts", HOST_NAMES), ("net", NETWORK), ("mnt", MOUNTS))
# Signals that the first process of a sandbox forwards to the container.
_PASSED_ON = (
    *(signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2),
    *(signal.SIGWINCH, signal.SIGCONT, signal.SIGALRM),
)


def _checked(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise StartFailure(f"{what}: {os.strerror(number).lower()}")


def _write_file(name: str, value: Any) -> None:
    temporary = f"{name}.new"
    with open(temporary, "w", encoding="utf-8") as file:
        json.dump(value, file)
    os.replace(temporary, name)


def _read_file(name: str) -> Any:
    with open(name, encoding="utf-8") as file:
        return json.load(file)


# --- becoming the container ---


def _become(spec: dict[str, Any]) -> NoReturn:
    """Execute the program."""
    for number in (*_PASSED_ON, signal.SIGPIPE, signal.SIGXFSZ, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    if os.geteuid() != 0 and not spec.get("privileged"):
        # A container can mount anything over the files that setuid programs trust.
        _checked(libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0), "no new privileges")
    if spec.get("view") is not None:
        for each in range(_CAPABILITIES):
            if each not in _CAPABILITIES_KEPT:
                libc.prctl(_DROP_CAPABILITY, each, 0, 0, 0)
        resource.setrlimit(resource.RLIMIT_NPROC, (_PROCESSES_MAX, _PROCESSES_MAX))
    _enter_directory(spec, is_user=True)
    os.umask(0o022)
    environment: dict[str, str] = spec["environment"]
    command: list[str] = spec["command"]
    program = _find(command[0], environment.get("PATH", ""))
    # Everything that this program opened closes on exec anyway.
    libc.syscall(_CLOSE_RANGE, 3, 0xFFFFFFFF, _WHEN_ANOTHER_PROGRAM)
    try:
        os.execve(program, command, environment)
    except OSError as error:
        if error.errno == errno.ENOEXEC:
            os.execve("/bin/sh", ["/bin/sh", program, *command[1:]], environment)
        raise StartFailure(f'exec: "{command[0]}": {(error.strerror or "").lower()}') from None


def _enter_directory(spec: dict[str, Any], *, is_user: bool) -> None:
    """Enter the working directory. The default one is below the agent's folders, which the container's user cannot enter: enter it before changing
    the user. A configured one must be accessible to the user."""
    if is_user == spec.get("own_directory", False):
        return
    try:
        os.chdir(spec["directory"])
    except OSError as error:
        raise StartFailure(f"working directory {spec['directory']}: {(error.strerror or '').lower()}") from None


def _become_user(spec: dict[str, Any]) -> None:
    """Change to the user of the container."""
    user: Any = spec.get("user")
    group: Any = spec.get("group")
    groups = spec.get("groups")
    try:
        if spec.get("view") is not None:
            if spec["gives_ids"]:
                os.setgroups(groups or [])
            os.setresgid(group, group, group)
            os.setresuid(user, user, user)
        elif os.geteuid() == 0:
            if user is not None or group is not None or groups:
                os.setgroups(groups or ([] if user else os.getgroups()))
            if group is not None:
                os.setgid(group)
            if user is not None:
                os.setuid(user)
        elif user not in (None, os.geteuid()):
            raise StartFailure(f"cannot run as user {user}: the agent runs as user {os.geteuid()}")
    except OSError as error:
        raise StartFailure(f"cannot run as user {user}, group {group}: {(error.strerror or '').lower()}") from None


def _find(name: str, path: str) -> str:
    if "/" in name:
        if os.path.exists(name):
            return name
        raise StartFailure(f'exec: "{name}": stat {name}: no such file or directory')
    for folder in path.split(":"):
        found = f"{folder or '.'}/{name}"
        if os.access(found, os.X_OK) and not os.path.isdir(found):
            return found
    raise StartFailure(f'exec: "{name}": executable file not found in $PATH')


def _join_groups(spec: dict[str, Any]) -> None:
    for path in spec.get("cgroups") or ():
        try:
            with open(f"{path}/cgroup.procs", "w", encoding="ascii") as file:
                file.write(str(os.getpid()))
        except OSError as error:
            raise StartFailure(f"control group {path}: {(error.strerror or '').lower()}") from None


def _settle(spec: dict[str, Any]) -> None:
    """Steps before changing the user."""
    _join_groups(spec)
    if spec.get("processors"):
        try:
            os.sched_setaffinity(0, _numbers(spec["processors"]))
        except (OSError, ValueError) as error:
            raise StartFailure(f"processors {spec['processors']}: {error}") from None
    try:
        with open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
            file.write(str(spec.get("oom_score_adjust", 0)))
    except OSError:
        pass  # only root may lower it, and it matters only when memory runs out
    if spec.get("view") is None and spec["mounts"]:
        enter_namespace()
        make_mounts(spec["mounts"], spec["scratch"])


def _numbers(text: str) -> set[int]:
    """Parse 0-2,5, the kernel's notation for sets of processors."""
    found: set[int] = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        found |= set(range(int(first), int(last or first) + 1))
    return found


# --- the log ---


class _Log:
    """Lines in the format of the container runtime interface."""

    def __init__(self, path: str) -> None:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        self._path = path
        self._file, self._size = -1, 0
        self._open()
        self._parts = {OUTPUT: b"", ERRORS: b""}

    def add(self, kind: int, data: bytes) -> None:
        held = self._parts[kind] + data
        *lines, rest = held.split(b"\n")
        stamp = self._stamp(kind)
        out = []
        for line in lines:
            while len(line) > _LOG_LINE_MAX:
                out.append(stamp + b"P " + line[:_LOG_LINE_MAX] + b"\n")
                line = line[_LOG_LINE_MAX:]
            out.append(stamp + b"F " + line + b"\n")
        while len(rest) >= _LOG_LINE_MAX:
            out.append(stamp + b"P " + rest[:_LOG_LINE_MAX] + b"\n")
            rest = rest[_LOG_LINE_MAX:]
        self._parts[kind] = rest
        self._write(b"".join(out))

    def flush(self) -> None:
        for kind, rest in self._parts.items():
            if rest:
                self._write(self._stamp(kind) + b"F " + rest + b"\n")
                self._parts[kind] = b""

    def _write(self, data: bytes) -> None:
        if not data:
            return
        try:
            os.write(self._file, data)
            self._size += len(data)
            if self._size > _LOG_BYTES_MAX:
                os.replace(self._path, f"{self._path}.1")
                self._open()
        except OSError:
            pass  # a full disk must not stop the container

    def _open(self) -> None:
        handle = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o640)
        if self._file >= 0:
            os.close(self._file)
        self._file = handle
        self._size = os.fstat(handle).st_size

    def _stamp(self, kind: int) -> bytes:
        now = time.time_ns()
        text = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now // 10**9))
        return f"{text}.{now % 10**9:09d}Z {'stdout' if kind == OUTPUT else 'stderr'} ".encode()


# --- the shim itself ---


class _Client:
    """An attached client."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self.connection = connection
        self.come = bytearray()
        self.leaving = bytearray()
        self.has_input = False

    def send(self, kind: int, data: bytes) -> None:
        # A client that does not read loses output: the container must not wait.
        if len(self.leaving) < _CLIENT_BUFFER_MAX:
            self.leaving += FRAME.pack(kind, len(data)) + data


class _Child:
    """The steps between a fork and the container's program. terminal: where to send the other side of its terminal, if it has one."""

    def __init__(self, spec: dict[str, Any], streams: tuple[int, ...], terminal: socket.socket | None) -> None:
        self._spec = spec
        self._streams = streams
        self._terminal = terminal

    def start(self) -> NoReturn:
        """Start on the machine itself."""
        os.umask(0o022)
        _settle(self._spec)
        _enter_directory(self._spec, is_user=False)
        _become_user(self._spec)
        os.setsid()
        self._take_streams("/dev/ptmx")
        _become(self._spec)

    def start_in_sandbox(self, users: int, status: int, tell: int) -> NoReturn:
        """Start as the first process of the container's namespace. status: where to report its end."""
        spec = self._spec
        os.umask(0o022)
        _settle(spec)
        _enter_all(_open_namespaces(spec["holder"]["pid"], _SHARED))
        unshare(MOUNTS)
        if spec["message_file"]:
            _make_message(spec["message_file"])
        owner = (_outside(spec["user"], spec["users"]), _outside(spec["group"], spec["user_groups"]))
        root = ContainerRoot(spec, users, owner)
        root.make()
        root.enter()
        enter(users, USERS)
        # A nested user namespace could have its own memory, without limits.
        with open("/proc/sys/user/max_user_namespaces", "w", encoding="ascii") as file:
            file.write("0")
        _become_user(spec)
        # Signals wait until there is a process to forward them to.
        signal.pthread_sigmask(signal.SIG_BLOCK, _PASSED_ON)
        main = os.fork()
        if main == 0:
            os.setsid()
            self._take_streams("/dev/pts/ptmx")
            _become(spec)
        os.close(tell)
        _look_after(main, status)

    def join(self) -> NoReturn:
        """Start beside a container that runs on the machine itself."""
        _enter_directory(self._spec, is_user=False)
        _become_user(self._spec)
        self._take_streams("/dev/ptmx")
        _become(self._spec)

    def join_sandbox(self, pid: int) -> NoReturn:
        """Start beside a container that runs in a sandbox. pid: its first process."""
        handles = _open_namespaces(pid, (*_SHARED[:-1], ("pid", PROCESSES), _SHARED[-1]))
        users = os.open(f"/proc/{pid}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
        around = owner_of(handles[-1][0])
        if not is_ours(around, "user"):
            enter(around, USERS)
        _enter_all(handles)
        alive, ours = os.pipe()
        # From here on nothing of the machine can be reached.
        enter(users, USERS)
        _become_user(self._spec)
        signal.pthread_sigmask(signal.SIG_BLOCK, _PASSED_ON)
        inside = os.fork()
        if inside == 0:
            os.close(ours)
            os.setsid()
            self._take_streams("/dev/pts/ptmx")
            _end_with_parent(alive)
            _become(self._spec)
        nothing = os.open("/dev/null", os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(nothing, number)
        if self._terminal is not None:
            self._terminal.close()
        _end_on_signal(inside)
        code = os.waitstatus_to_exitcode(os.waitpid(inside, 0)[1])
        os._exit(code if code >= 0 else 128 - code)

    def _take_streams(self, terminal: str) -> None:
        """Use pipes, or a terminal whose other side goes to the client."""
        if self._terminal is not None:
            master = os.open(terminal, os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
            slave = open_peer(master)
            socket.send_fds(self._terminal, [b"."], [master])
            os.close(master)
            self._terminal.close()
            self._streams = (slave, slave, slave)
            fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
        for number, handle in enumerate(self._streams):
            os.dup2(handle, number)


def _end_on_signal(inside: int) -> None:
    """Kill and reap a program when its client is gone: until then, its container cannot end."""

    def end(_number: int, _frame: object) -> None:
        for kill in (os.killpg, os.kill):
            try:
                kill(inside, signal.SIGKILL)
            except OSError:
                pass  # it has no group yet, or has just ended

    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, end)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _end_with_parent(alive: int) -> None:
    """alive: becomes readable once the parent is gone, which may be before the kernel is asked."""
    _checked(libc.prctl(_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0), "end with the parent")
    if select.select([alive], [], [], 0)[0]:
        os._exit(128)


def _make_message(path: str) -> None:
    """Create the file for a termination message, in the pod's own memory."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    handle = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    os.fchmod(handle, 0o666)
    os.close(handle)


def open_peer(master: int) -> int:
    """The program's side of a terminal, wherever its name is."""
    libc.grantpt(master)
    libc.unlockpt(master)
    return fcntl.ioctl(master, _OPEN_PEER, os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)


def _look_after(main: int, status: int) -> NoReturn:
    """The first process of a sandbox: forwards signals, reaps orphans, reports how the container ended, and ends everything with it."""

    def pass_on(number: int, _frame: object) -> None:
        try:
            os.kill(main, number)
        except OSError:
            pass  # it has just ended

    for number in _PASSED_ON:
        signal.signal(number, pass_on)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    nothing = os.open("/dev/null", os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nothing, stream)
    os.closerange(3, status)
    os.closerange(status + 1, 1024)
    while True:
        pid, how = os.waitpid(-1, 0)
        if pid == main:
            os.write(status, struct.pack(">i", how))
            os._exit(0)


def _open_namespaces(pid: int, names: tuple[tuple[str, int], ...]) -> list[tuple[int, int]]:
    """Those namespaces of a process that are not ours, with their kinds."""
    found = [(os.open(f"/proc/{pid}/ns/{name}", os.O_RDONLY | os.O_CLOEXEC), name, kind) for name, kind in names]
    return [(handle, kind) for handle, name, kind in found if not is_ours(handle, name)]


def _enter_all(handles: list[tuple[int, int]]) -> None:
    for handle, kind in handles:
        enter(handle, kind)
        os.close(handle)


def _outside(id_: int, mapped: list[Range]) -> int:
    return next(first + id_ - inside for inside, first, count in mapped if inside <= id_ < inside + count)


class _Shim:
    def __init__(self, spec: dict[str, Any]) -> None:
        self.spec = spec
        self.log = _Log(spec["log"])
        self.poll = select.poll()
        self.outputs: dict[int, int] = {}
        self.clients: dict[int, _Client] = {}
        self.input = -1
        self.typed = bytearray()
        self.input_ends = False
        self.pid = 0
        self.status = -1
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)

    def start(self) -> None:
        """Fork, and wait until the child is the container or reports why not."""
        report, tell = os.pipe()
        ours, theirs = self._streams()
        libc.prctl(_SUBREAPER, 1, 0, 0, 0)
        users = self._prepare_sandbox() if self.is_sandboxed else -1
        terminal, other = socket.socketpair()
        self.status, status = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                child = _Child(self.spec, theirs, other if self.spec["tty"] else None)
                if self.is_sandboxed:
                    child.start_in_sandbox(users, status, tell)
                else:
                    child.start()
            except (StartFailure, OSError, ValueError) as error:
                os.write(tell, str(error).encode()[:4000])
            finally:
                os._exit(128)
        for handle in {tell, status, other.detach(), *theirs}:
            os.close(handle)
        self.outputs = ours
        if self.spec["tty"]:
            self._receive_terminal(terminal)
        terminal.close()
        told = b""
        while part := os.read(report, 4096):
            told += part
        os.close(report)
        if told:
            os.waitpid(self.pid, 0)
            raise StartFailure(told.decode(errors="replace"))

    @property
    def is_sandboxed(self) -> bool:
        return self.spec.get("view") is not None

    def _prepare_sandbox(self) -> int:
        """Enter the pod's user namespace, and create the container's; our children start in a new process namespace."""
        holder = self.spec["holder"]
        if start_time(holder["pid"]) != holder["began"]:
            raise StartFailure("the pod's sandbox is gone")
        try:
            space = os.open(f"/proc/{holder['pid']}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
            if not is_ours(space, "user"):
                enter(space, USERS)
            os.close(space)
            users = make_users(self.spec["users"], self.spec["user_groups"])
            unshare(PROCESSES)
        except OSError as error:
            raise StartFailure(f"sandbox: {error.strerror}") from None
        return users

    def _receive_terminal(self, terminal: socket.socket) -> None:
        """Receive the other side of the container's terminal, from its process."""
        _, handles, _, _ = socket.recv_fds(terminal, 1, 1)
        if handles:
            self.input = handles[0]
            os.set_inheritable(self.input, False)
            os.set_blocking(self.input, False)
            self.outputs = {self.input: OUTPUT}

    def _streams(self) -> tuple[dict[int, int], tuple[int, ...]]:
        if self.spec["tty"]:
            return {}, ()
        out, out_end = os.pipe()
        errors, errors_end = os.pipe()
        if self.spec["stdin"]:
            end, self.input = os.pipe()
            os.set_blocking(self.input, False)
        else:
            end = os.open("/dev/null", os.O_RDONLY)
        for handle in (out, errors):
            os.set_blocking(handle, False)
        return {out: OUTPUT, errors: ERRORS}, (end, out_end, errors_end)

    def run(self) -> None:
        """Run until the container has ended."""
        wake, waker = os.pipe()
        for handle in (wake, waker):
            os.set_blocking(handle, False)
        signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        for handle in (wake, self.listener.fileno(), *self.outputs):
            self.poll.register(handle, select.POLLIN)
        agent = self._watch_agent()
        status: int | None = None
        while status is None:
            # Notice at once a child that ended before the handler was set.
            status = self._reap()
            if status is not None:
                break
            for handle, events in self.poll.poll():
                if handle == wake:
                    os.read(wake, 4096)
                elif handle == self.listener.fileno():
                    self._accept()
                elif handle in self.outputs:
                    self._read(handle)
                elif handle == self.input:
                    self._feed()
                elif handle in self.clients:
                    self._serve(self.clients[handle], events)
                elif handle == agent:
                    self.poll.unregister(agent)
                    os.kill(self.pid, signal.SIGKILL)
        ended = time.time()
        self._kill_rest()
        for handle in tuple(self.outputs):
            while self._read(handle):
                pass
        self.log.flush()
        code = os.waitstatus_to_exitcode(self._own_status(status))
        self._keep_message()
        told: dict[str, Any] = {"code": code if code >= 0 else 128 - code, "at": ended}
        if code == -signal.SIGKILL and _kills(self.spec.get("oom_file", "")):
            told["reason"] = "OOMKilled"
        _write_file("exit.json", told)
        for client in tuple(self.clients.values()):
            client.send(ENDED, struct.pack(">i", code))
            client.connection.settimeout(2.0)
            try:
                client.connection.sendall(client.leaving)
            except OSError:
                pass

    def _watch_agent(self) -> int:
        """For containers that end with the agent: a descriptor that becomes readable once it is gone."""
        if not self.spec.get("agent"):
            return -1
        try:
            handle = os.pidfd_open(self.spec["agent"])
        except OSError:
            os.kill(self.pid, signal.SIGKILL)
            return -1
        self.poll.register(handle, select.POLLIN)
        return handle

    def _own_status(self, status: int) -> int:
        """How the container ended, which in a sandbox differs from how its first process ended."""
        told = os.read(self.status, 4) if self.is_sandboxed else b""
        return int(struct.unpack(">i", told)[0]) if len(told) == 4 else status

    def _keep_message(self) -> None:
        """Copy the container's termination message from the pod's own memory to where the agent reads it."""
        path = self.spec.get("message_file", "")
        if not self.is_sandboxed or not path:
            return
        try:
            text = read_file(f"/proc/{self.spec['holder']['pid']}/root{path}", _MESSAGE_BYTES_MAX)
            handle = os.open(path, os.O_WRONLY | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            return
        try:
            os.write(handle, text)
        finally:
            os.close(handle)

    def _reap(self) -> int | None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return None
            if pid == self.pid:
                return status
            if pid == 0:
                return None

    def _kill_rest(self) -> None:
        """Kill everything that the container has started and left behind."""
        until = time.monotonic() + 5.0
        while time.monotonic() < until:
            for child in _children():
                try:
                    os.kill(child, signal.SIGKILL)
                except OSError:
                    pass
            try:
                if os.waitpid(-1, os.WNOHANG)[0] == 0:
                    time.sleep(0.002)
            except ChildProcessError:
                return

    def _read(self, handle: int) -> bool:
        try:
            data = os.read(handle, _PIPE_BYTES)
        except BlockingIOError:
            return False
        except OSError:
            data = b""  # a terminal that is no longer open
        kind = self.outputs[handle]
        if not data:
            self.poll.unregister(handle)
            del self.outputs[handle]
            return False
        self.log.add(kind, data)
        for client in self.clients.values():
            client.send(kind, data)
            self.poll.register(client.connection.fileno(), select.POLLIN | select.POLLOUT)
        return True

    # --- attached clients ---

    def _accept(self) -> None:
        connection, _ = self.listener.accept()
        client = _Client(connection)
        self.clients[connection.fileno()] = client
        self.poll.register(connection.fileno(), select.POLLIN)

    def _serve(self, client: _Client, events: int) -> None:
        handle = client.connection.fileno()
        try:
            # What it sent before it left counts, even if it no longer reads.
            if events & (select.POLLIN | select.POLLHUP | select.POLLERR):
                data = client.connection.recv(_PIPE_BYTES)
                if not data:
                    raise ConnectionResetError
                client.come += data
                self._frames(client)
            if events & select.POLLOUT and client.leaving:
                try:
                    sent = client.connection.send(client.leaving[:_PIPE_BYTES])
                except BrokenPipeError:
                    sent = len(client.leaving)
                del client.leaving[:sent]
            if not client.leaving:
                self.poll.modify(handle, select.POLLIN)
        except BlockingIOError:
            pass
        except OSError:
            self.poll.unregister(handle)
            del self.clients[handle]
            client.connection.close()
            if client.has_input and self.spec["stdin_once"]:
                self.input_ends = True
                self._feed()

    def _frames(self, client: _Client) -> None:
        come = client.come
        while len(come) >= FRAME.size:
            kind, length = FRAME.unpack_from(come)
            if len(come) < FRAME.size + length:
                return
            data = bytes(come[FRAME.size : FRAME.size + length])
            del come[: FRAME.size + length]
            if kind == INPUT:
                client.has_input = True
                if self.input >= 0 and len(self.typed) < _CLIENT_BUFFER_MAX:
                    self.typed += data
                    self._feed()
            elif kind == END_INPUT:
                self.input_ends = self.spec["stdin_once"]
                self._feed()
            elif kind == RESIZE and self.spec["tty"]:
                columns, rows = struct.unpack(">HH", data)
                fcntl.ioctl(self.input, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
            elif kind == SIGNAL:
                try:
                    os.kill(self.pid, data[0])
                except OSError:
                    pass

    def _feed(self) -> None:
        """Forward input as fast as the container reads."""
        if self.input < 0:
            return
        try:
            while self.typed:
                sent = os.write(self.input, self.typed[:4096])
                del self.typed[:sent]
        except BlockingIOError:
            pass
        except OSError:
            self.typed.clear()
            self.input_ends = True
        if self.spec["tty"]:
            return
        if self.typed:
            self.poll.register(self.input, select.POLLOUT)
            return
        try:
            self.poll.unregister(self.input)
        except KeyError:
            pass
        if self.input_ends:
            os.close(self.input)
            self.input = -1


def _children() -> list[int]:
    try:
        with open(f"/proc/self/task/{os.getpid()}/children", encoding="ascii") as file:
            return [int(each) for each in file.read().split()]
    except OSError:
        return []


def _kills(path: str) -> int:
    """How many OOM kills a control group has counted."""
    try:
        with open(path, encoding="ascii") as file:
            counts = dict(line.split(" ", 1) for line in file.read().splitlines())
        return int(counts.get("oom_kill", 0))
    except (OSError, ValueError):
        return 0


def start_time(pid: int) -> int:
    """When a process started, in ticks since boot; 0 if it does not exist."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            return int(file.read().rpartition(")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return 0


def run(folder: str, tell: int) -> int:
    """Start the container of a folder and look after it. tell: where its start is reported."""
    os.chdir(folder)
    # Log, files and socket are accessible only to the agent from the start.
    os.umask(0o077)
    lock = os.open("lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return 3
    shim = _Shim(_read_file("start.json"))
    os.umask(0o177)
    shim.listener.bind("attach.sock")
    os.umask(0o077)
    shim.listener.listen(16)
    started = time.time()
    own = os.getpid()
    try:
        shim.start()
    except StartFailure as error:
        _write_file("exit.json", {"code": 128, "at": time.time(), "reason": "StartError", "message": str(error)})
        _report(tell, f"error {error}")
        return 1
    _write_file("run.json", {"pid": shim.pid, "began": start_time(shim.pid), "shim": own, "at": started})
    _report(tell, "ok")
    shim.run()
    return 0


def _report(tell: int, text: str) -> None:
    try:
        os.write(tell, text.encode())
        os.close(tell)
    except OSError:
        pass  # the agent is gone; it reads the files when it is back


def _exec(folder: str, terminal: str, command: list[str]) -> NoReturn:
    """Become a program inside the container of a folder. terminal: a socket that receives the other side of its terminal, or none."""
    try:
        spec, running = _read_file(f"{folder}/start.json"), _read_file(f"{folder}/run.json")
        spec = {**spec, "command": command}
        _join_groups(spec)
        asked = socket.socket(fileno=int(terminal)) if terminal != "-" else None
        child = _Child(spec, (), asked)
        if spec.get("view") is not None:
            child.join_sandbox(running["pid"])
        if spec["mounts"]:
            _enter(running["pid"])
        child.join()
    except StartFailure as error:
        os.write(2, f"{error}\n".encode())
        os._exit(127)
    except (OSError, ValueError) as error:
        os.write(2, f"{error}\n".encode())
        os._exit(126)


def _enter(pid: int) -> None:
    """Enter the mounts of a container that runs on the machine itself."""
    root = os.open(f"/proc/{pid}/root", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    users, mounts = (os.open(f"/proc/{pid}/ns/{name}", os.O_RDONLY | os.O_CLOEXEC) for name in ("user", "mnt"))
    if not is_ours(users, "user"):
        enter(users, USERS)
    enter(mounts, MOUNTS)
    os.fchdir(root)
    os.chroot(".")


def main() -> None:
    """The entry point for the agent."""
    _exec(sys.argv[2], sys.argv[3], sys.argv[4:])
