"""A small program beside each container of the process runtime: starts it, keeps its log, tells how it ended.

Runs by itself (`main run FOLDER`), so that containers outlive the agent, and imports nothing of allot but two modules that import as
little as it does, so that it starts in milliseconds (pathlib or typing alone would take a tenth of them). Holds a lock on its folder
as long as it lives; everything that it knows is in files there. The second use (`exec FOLDER ...`) turns the process into a program
inside a container that runs.

Other containers of the pod may write to its volumes while this one is being made, as users of the machine, and this is root: mounts
are made between descriptors, entries are made only in what was mounted here, and nothing is imported or looked up once the first
volume is in place (it may be where modules are).

Files: start.json (from the agent), run.json (it runs), exit.json (it has ended), attach.sock (to talk to it).
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import json
import os
import select
import signal
import socket
import stat
import struct
import sys
import termios
import time

from allot.process.beneath import PLACE, LeadsOut, Steps, open_beneath
from allot.process.mounts import (
    BIND,
    MOVE,
    PRIVATE,
    RECURSIVE,
    at,
    libc,
    make_read_only,
    mount,
    mount_id,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

STATUS_FD = 3
# Frames on attach.sock: kind, length, data. To the shim: input, window size, signal, end of input; from it: output, errors, end.
FRAME = struct.Struct(">BI")
INPUT, RESIZE, SIGNAL, END_INPUT = 0, 1, 2, 3
OUTPUT, ERRORS, ENDED = 1, 2, 3
_LOG_LINE_MAX = 16 * 1024
# As the kubelet's default; the file before is kept as NAME.1.
_LOG_BYTES_MAX = 10 * 1024 * 1024
_PIPE_BYTES = 64 * 1024
_CLIENT_BUFFER_MAX = 4 * 1024 * 1024
_NEW_NAMESPACE, _NEW_USER = 0x00020000, 0x10000000
_SUBREAPER, _NO_NEW_PRIVILEGES = 36, 38
_MIRRORED_MAX = 4000


class StartFailure(Exception):
    """Why a container could not be started."""


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


# --- mounts ---


def enter_namespace() -> None:
    """A mount namespace of our own, with a user namespace around it if we may not have it otherwise."""
    if os.geteuid() != 0 or libc.unshare(_NEW_NAMESPACE) != 0:
        user, group = os.geteuid(), os.getegid()
        _checked(libc.unshare(_NEW_USER | _NEW_NAMESPACE), "new mount namespace")
        for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
            try:
                with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
                    file.write(text)
            except OSError as error:
                raise StartFailure(f"new user namespace: {error}") from None
    mount("none", "/", RECURSIVE | PRIVATE)


class _Mounts:
    """Mounts of a container, made in its namespace. scratch: a folder that is ours alone, in which they begin."""

    def __init__(self, scratch: str) -> None:
        self._scratch = os.open(scratch, os.O_PATH | os.O_DIRECTORY)
        self._proc = os.stat("/proc").st_dev
        # In which entries can be made: folders that exist only here, and volumes that can be written to.
        self._open_mounts: set[int] = set()
        for name in ("folder", "root"):
            os.makedirs(f"{scratch}/{name}", exist_ok=True)
        os.close(os.open(f"{scratch}/file", os.O_CREAT | os.O_WRONLY | os.O_NOFOLLOW, 0o600))

    def attach(self, source: int, target: str, *, read_only: bool) -> None:
        """Mount a place. Nobody sees it before it is as it should be."""
        is_folder = stat.S_ISDIR(os.fstat(source).st_mode)
        place = self._place(target, is_folder)
        try:
            spot = f"{at(self._scratch)}/{'folder' if is_folder else 'file'}"
            mount(at(source), spot, BIND | RECURSIVE)
            if read_only:
                make_read_only(spot)
            made = os.open(spot, PLACE)
            if is_folder and not read_only:
                self._open_mounts.add(mount_id(made))
            os.close(made)
            mount(spot, at(place), MOVE)
        finally:
            os.close(place)

    def _place(self, target: str, is_folder: bool) -> int:
        """What a path means in the container, which is there afterwards."""
        root = os.open("/", os.O_PATH | os.O_DIRECTORY)
        steps = Steps(root, root=root)
        try:
            for part in steps.parts(target):
                try:
                    steps.enter(part)
                except FileNotFoundError:
                    if mount_id(steps.last) not in self._open_mounts:
                        self._open_up(steps)
                    if is_folder or not steps.is_over():
                        os.mkdir(part, 0o755, dir_fd=steps.last)
                    else:
                        flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW
                        os.close(os.open(part, flags, 0o644, dir_fd=steps.last))
                    steps.enter(part)
            found = os.fstat(steps.last)
            if found.st_dev == self._proc:
                # Descriptors are found by their names there.
                raise StartFailure(f"mount {target}: nothing can be mounted in /proc")
            if stat.S_ISDIR(found.st_mode) != is_folder:
                raise StartFailure(f"mount {target}: not a {'directory' if is_folder else 'file'}")
            return steps.take_last()
        except NotADirectoryError as error:
            raise StartFailure(f"mount {target}: {error.filename} is not in a directory") from None
        finally:
            steps.close()
            os.close(root)

    def _open_up(self, steps: Steps) -> None:
        """Make it possible to create entries in a folder of the machine without the machine noticing."""
        mode = stat.S_IMODE(os.fstat(steps.last).st_mode)
        spot = f"{at(self._scratch)}/{'root' if steps.is_at_start else 'folder'}"
        mount("allot", spot, 0, "tmpfs", f"mode={mode:o},size=16m")
        made = os.open(spot, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW)
        _mirror(steps.last, made)
        self._open_mounts.add(mount_id(made))
        if steps.is_at_start:
            os.fchdir(made)
            os.chroot(".")
        else:
            mount(spot, at(steps.last), MOVE)
        steps.replace_last(made)


def _mirror(source: int, target: int) -> None:
    """Fill an empty folder of ours with what another one has."""
    names = os.listdir(at(source))
    if len(names) > _MIRRORED_MAX:
        where = os.readlink(at(source))
        raise StartFailure(
            f"cannot mount below {where}: it has {len(names)} entries, at most {_MIRRORED_MAX} are possible"
        )
    for name in names:
        try:
            have = os.open(name, PLACE, dir_fd=source)
        except OSError:
            continue  # gone in the meantime
        try:
            mode = os.fstat(have).st_mode
            if stat.S_ISLNK(mode):
                os.symlink(os.readlink("", dir_fd=have), name, dir_fd=target)
                continue
            if stat.S_ISDIR(mode):
                os.mkdir(name, dir_fd=target)
            else:
                os.close(os.open(name, os.O_CREAT | os.O_WRONLY | os.O_NOFOLLOW, 0o600, dir_fd=target))
            mount(at(have), f"{at(target)}/{name}", BIND | RECURSIVE)
        except OSError:
            # Not ours to look at: the container does not see it either.
            continue
        finally:
            os.close(have)


def make_mounts(mounts: list[dict[str, Any]], scratch: str) -> None:
    """Every mount in its place, in order of depth."""
    # Sources are opened first: what is mounted over them must not hide them.
    sources = [(each, _source(each)) for each in sorted(mounts, key=lambda one: one["container_path"].count("/"))]
    making = _Mounts(scratch)
    for each, handle in sources:
        try:
            making.attach(handle, each["container_path"], read_only=each.get("read_only", False))
        except OSError as error:
            raise StartFailure(f"mount {each['container_path']}: {(error.strerror or '').lower()}") from None
        finally:
            os.close(handle)


def _source(wanted: dict[str, Any]) -> int:
    """The place that is to be mounted."""
    path, below = wanted["host_path"], wanted.get("sub_path", "")
    try:
        handle = os.open(path, os.O_PATH)
        if not below:
            return handle
        try:
            return open_beneath(handle, below, make_mode=os.fstat(handle).st_mode & 0o777)
        finally:
            os.close(handle)
    except LeadsOut as error:
        raise StartFailure(f'mount {wanted["container_path"]}: subPath "{below}" {error.strerror}') from None
    except OSError as error:
        where = f"{path}/{below}" if below else path
        raise StartFailure(f"mount {where}: {(error.strerror or '').lower()}") from None


# --- becoming the container ---


def _become(spec: dict[str, Any]) -> NoReturn:
    """Whoever we run as, wherever, and then what."""
    for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    user, group = spec.get("user"), spec.get("group")
    try:
        if os.geteuid() == 0:
            if user is not None or group is not None or spec.get("groups"):
                os.setgroups(spec.get("groups") or ([] if user else os.getgroups()))
            if group is not None:
                os.setgid(group)
            if user is not None:
                os.setuid(user)
        elif user not in (None, os.geteuid()):
            raise StartFailure(f"cannot run as user {user}: the agent runs as user {os.geteuid()}")
    except OSError as error:
        raise StartFailure(f"cannot run as user {user}, group {group}: {(error.strerror or '').lower()}") from None
    if os.geteuid() != 0 and not spec.get("privileged"):
        # A container can mount what it likes over the files that programs which become root believe in.
        _checked(libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0), "no new privileges")
    try:
        os.chdir(spec["directory"])
    except OSError as error:
        raise StartFailure(f"working directory {spec['directory']}: {(error.strerror or '').lower()}") from None
    os.umask(0o022)
    environment: dict[str, str] = spec["environment"]
    command: list[str] = spec["command"]
    program = _find(command[0], environment.get("PATH", ""))
    try:
        os.execve(program, command, environment)
    except OSError as error:
        if error.errno == errno.ENOEXEC:
            os.execve("/bin/sh", ["/bin/sh", program, *command[1:]], environment)
        raise StartFailure(f'exec: "{command[0]}": {(error.strerror or "").lower()}') from None


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


def _settle(spec: dict[str, Any]) -> None:
    """What has to happen before we are somebody else."""
    for path in spec.get("cgroups") or ():
        try:
            with open(f"{path}/cgroup.procs", "w", encoding="ascii") as file:
                file.write(str(os.getpid()))
        except OSError as error:
            raise StartFailure(f"control group {path}: {(error.strerror or '').lower()}") from None
    if spec.get("processors"):
        try:
            os.sched_setaffinity(0, _numbers(spec["processors"]))
        except (OSError, ValueError) as error:
            raise StartFailure(f"processors {spec['processors']}: {error}") from None
    try:
        with open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
            file.write(str(spec.get("oom_score_adjust", 0)))
    except OSError:
        pass  # lowering it is root's privilege, and it matters only when memory runs out
    if spec["mounts"]:
        enter_namespace()
        make_mounts(spec["mounts"], spec["scratch"])


def _numbers(text: str) -> set[int]:
    """0-2,5 as the kernel writes sets of processors."""
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
    """Somebody who is attached."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self.connection = connection
        self.come = bytearray()
        self.leaving = bytearray()
        self.has_input = False

    def send(self, kind: int, data: bytes) -> None:
        # Who does not read loses what is said: the container must not wait.
        if len(self.leaving) < _CLIENT_BUFFER_MAX:
            self.leaving += FRAME.pack(kind, len(data)) + data


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
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)

    def start(self) -> None:
        """Fork, and wait until the child is the container or has said why not."""
        report, tell = os.pipe()
        ours, theirs = self._streams()
        libc.prctl(_SUBREAPER, 1, 0, 0, 0)
        self.pid = os.fork()
        if self.pid == 0:
            try:
                os.setsid()
                if self.spec["tty"]:
                    fcntl.ioctl(theirs[0], termios.TIOCSCTTY, 0)
                for number, handle in enumerate(theirs):
                    os.dup2(handle, number)
                os.umask(0o022)
                _settle(self.spec)
                _become(self.spec)
            except (StartFailure, OSError, ValueError) as error:
                os.write(tell, str(error).encode()[:4000])
            finally:
                os._exit(128)
        os.close(tell)
        for handle in set(theirs):
            os.close(handle)
        self.outputs = ours
        told = b""
        while part := os.read(report, 4096):
            told += part
        os.close(report)
        if told:
            os.waitpid(self.pid, 0)
            raise StartFailure(told.decode(errors="replace"))

    def _streams(self) -> tuple[dict[int, int], tuple[int, int, int]]:
        if self.spec["tty"]:
            master, slave = os.openpty()
            os.set_blocking(master, False)
            self.input = master
            return {master: OUTPUT}, (slave, slave, slave)
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
        """Until the container has ended."""
        wake, waker = os.pipe()
        for handle in (wake, waker):
            os.set_blocking(handle, False)
        signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        for handle in (wake, self.listener.fileno(), *self.outputs):
            self.poll.register(handle, select.POLLIN)
        status: int | None = None
        while status is None:
            # A child that ended before the handler was there is noticed at once.
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
        ended = time.time()
        self._kill_rest()
        for handle in tuple(self.outputs):
            while self._read(handle):
                pass
        self.log.flush()
        code = os.waitstatus_to_exitcode(status)
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
        """What the container has started and left behind goes with it."""
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
            data = b""  # a terminal that nobody has open any more
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

    # --- those who are attached ---

    def _accept(self) -> None:
        connection, _ = self.listener.accept()
        client = _Client(connection)
        self.clients[connection.fileno()] = client
        self.poll.register(connection.fileno(), select.POLLIN)

    def _serve(self, client: _Client, events: int) -> None:
        handle = client.connection.fileno()
        try:
            if events & select.POLLOUT and client.leaving:
                sent = client.connection.send(client.leaving[:_PIPE_BYTES])
                del client.leaving[:sent]
            if not client.leaving:
                self.poll.modify(handle, select.POLLIN)
            if events & (select.POLLIN | select.POLLHUP | select.POLLERR):
                data = client.connection.recv(_PIPE_BYTES)
                if not data:
                    raise ConnectionResetError
                client.come += data
                self._frames(client)
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
        """Pass on what was typed as fast as the container reads."""
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
    """How often the kernel has killed something in a control group for want of memory."""
    try:
        with open(path, encoding="ascii") as file:
            counts = dict(line.split(" ", 1) for line in file.read().splitlines())
        return int(counts.get("oom_kill", 0))
    except (OSError, ValueError):
        return 0


def start_time(pid: int) -> int:
    """When a process began, in ticks since the machine did; 0 if there is none."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            return int(file.read().rpartition(")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return 0


def _run() -> int:
    os.set_inheritable(STATUS_FD, False)
    # Log, files and socket are the agent's alone from their first moment.
    os.umask(0o077)
    lock = os.open("lock", os.O_RDWR | os.O_CREAT, 0o600)
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
    try:
        shim.start()
    except StartFailure as error:
        _write_file("exit.json", {"code": 128, "at": time.time(), "reason": "StartError", "message": str(error)})
        _report(f"error {error}")
        return 1
    _write_file("run.json", {"pid": shim.pid, "began": start_time(shim.pid), "shim": os.getpid(), "at": started})
    _report("ok")
    shim.run()
    return 0


def _report(text: str) -> None:
    try:
        os.write(STATUS_FD, text.encode())
        os.close(STATUS_FD)
    except OSError:
        pass  # the agent has gone; it reads the files when it is back


def _exec(folder: str, tty: bool, command: list[str]) -> NoReturn:
    """Become a program inside the container of a folder."""
    try:
        spec, running = _read_file(f"{folder}/start.json"), _read_file(f"{folder}/run.json")
        if tty:
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        if spec["mounts"]:
            _enter(running["pid"])
        _become({**spec, "command": command})
    except StartFailure as error:
        os.write(2, f"{error}\n".encode())
        os._exit(127)
    except (OSError, ValueError) as error:
        os.write(2, f"{error}\n".encode())
        os._exit(126)


def _enter(pid: int) -> None:
    root = os.open(f"/proc/{pid}/root", os.O_PATH | os.O_DIRECTORY)
    if os.readlink(f"/proc/{pid}/ns/user") != os.readlink("/proc/self/ns/user"):
        space = os.open(f"/proc/{pid}/ns/user", os.O_RDONLY)
        mounts = os.open(f"/proc/{pid}/ns/mnt", os.O_RDONLY)
        _checked(libc.setns(space, _NEW_USER), "enter the user namespace")
    else:
        mounts = os.open(f"/proc/{pid}/ns/mnt", os.O_RDONLY)
    _checked(libc.setns(mounts, _NEW_NAMESPACE), "enter the mount namespace")
    os.fchdir(root)
    os.chroot(".")


def main() -> None:
    """For the agent."""
    if sys.argv[1] == "run":
        os.chdir(sys.argv[2])
        sys.exit(_run())
    _exec(sys.argv[2], sys.argv[3] == "tty", sys.argv[4:])
