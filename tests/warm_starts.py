"""Programs of allot that tests start find its modules imported.

Most of them use a processor for little else than imports. So one process for each worker imports everything, and is copied for each start: a
process of its own, with the arguments, files, folder and variables that it was given, and a child of the process that asked, as any other. A
program that starts others begins with a copy of itself, which is copied for them. What asks for more
than a plain start gets an interpreter of its own, and so does everything with ALLOT_COLD_STARTS=1.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import importlib
import json
import os
import pkgutil
import resource
import runpy
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, NoReturn

COLD = "ALLOT_COLD_STARTS"

# Without what few programs need: a terminal on the whole screen, benchmarks.
_NOT_IMPORTED = ("allot.cli.screen", "allot.bench", "allot.cli.commands.bench")
# Variables that are read when an interpreter or a library starts.
_READ_ONCE = ("PYTHON", "LC_", "LANG", "LD_", "MALLOC_", "GRPC_", "OPENSSL_", "SSL_")
_SET_CHILD_SUBREAPER = 36  # of prctl(2)
# Commands of allot that start programs of allot, and the program that becomes another one.
_STARTS_OTHERS = ("demo", "driver", "up")
_BECOMES_ANOTHER = "allot.process.parent_death"
_EXECVP = os.execvp
# An argument of the process that is copied, over which copies write their own, for those who read them in /proc.
_ROOM = "-" * 16384


class Start(NamedTuple):
    """What a new process is given, beside its files 0, 1 and 2."""

    arguments: list[str]
    folder: str
    variables: dict[str, str]
    new_session: bool = False
    group: int = -1
    # What children inherit: how many files may be open, at first and at most, and the mask of new files.
    open_files: tuple[int, int] = (-1, -1)
    mask: int = -1


class Another(BaseException):
    """In a copy: it goes on as another program."""

    def __init__(self, start: Start) -> None:
        super().__init__(start.arguments)
        self.start = start


class Copied(NamedTuple):
    """A process that is copied for starts, and whose child it is."""

    parent: int
    connection: socket.socket


def install() -> None:
    """For this process and those that it forks; each has a process of its own that is copied."""
    if not os.environ.get(COLD) and sys.platform == "linux":
        _replace_starts(None)


def _replace_starts(copied: Copied | None) -> None:
    # What Popen calls, in all versions of Python that run allot.
    subprocess._fork_exec = Starter(subprocess._fork_exec, copied)  # type: ignore[attr-defined]


class Starter:
    """In the place of `_posixsubprocess.fork_exec`."""

    def __init__(self, original: Callable[..., int], copied: Copied | None) -> None:
        self._original = original
        self._copied = copied
        self._lock = threading.Lock()
        os.register_at_fork(after_in_child=self._renew_lock)

    def __call__(self, *given: Any) -> int:
        start = plain_start(*given)
        if start is None:
            return self._original(*given)
        with self._lock:
            # A fork would get processes that are its parent's children.
            if self._copied is None or self._copied.parent != os.getpid():
                self._copied = self._begin()
            return _ask(self._copied.connection, start, _files(*given))

    def _renew_lock(self) -> None:
        self._lock = threading.Lock()

    def _begin(self) -> Copied:
        here, there = socket.socketpair()
        with there:
            command = [sys.executable, __file__, str(there.fileno()), _ROOM]
            null = subprocess.DEVNULL
            process = subprocess.Popen(command, stdin=null, stdout=null, pass_fds=[there.fileno()])
        # It ends when nobody can ask any more.
        process.returncode = 0
        return Copied(os.getpid(), here)


def plain_start(*given: Any) -> Start | None:
    """What is asked for, if that is a module or script of ours, and nothing that only an interpreter of its own has."""
    arguments, _, close_fds, kept, folder, variables = given[:6]
    restore_signals, new_session, group, gid, gids, uid, umask, preexec = given[14:22]
    command = [os.fsdecode(each) for each in arguments]
    # Errors of a start are told to one of the files that are kept.
    if not is_ours(command) or not close_fds or len(kept) > 1 or not restore_signals:
        return None
    if not (gid is None and gids is None and uid is None and umask == -1 and preexec is None):
        return None
    where = os.path.abspath(os.fsdecode(folder) if folder is not None else ".")  # noqa: PTH100 - not where links lead
    named = dict(os.environ) if variables is None else dict(map(_variable, variables))
    if read_once(named) != read_once(os.environ) or not os.access(where, os.X_OK):
        return None
    return Start(
        command, where, named, bool(new_session), group, resource.getrlimit(resource.RLIMIT_NOFILE), _mask_of_files()
    )


def _mask_of_files() -> int:
    """Without changing it, which other threads would notice."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("Umask:")).split()[1], 8)


def is_ours(command: list[str]) -> bool:
    """Whether a command is this interpreter with a module of allot, or with a script."""
    if len(command) < 2 or command[0] != sys.executable:
        return False
    return command[1].endswith(".py") or (
        command[1] == "-m" and len(command) > 2 and command[2].partition(".")[0] == "allot"
    )


def read_once(variables: Mapping[str, str]) -> dict[str, str]:
    """The variables whose change a running interpreter does not notice."""
    return {name: value for name, value in variables.items() if name.startswith(_READ_ONCE)}


def _variable(text: bytes) -> tuple[str, str]:
    name, _, value = os.fsdecode(text).partition("=")
    return name, value


def _files(*given: Any) -> list[int]:
    """Those of the new process: pipes or files, or this process' own."""
    return [each if each != -1 else number for number, each in enumerate((given[6], given[9], given[11]))]


def _ask(connection: socket.socket, start: Start, files: list[int]) -> int:
    """A copy, as a child of this process, which takes over those who lose their parent in this moment."""
    message = json.dumps(start).encode()
    _adopt_orphans(True)
    try:
        socket.send_fds(connection, [len(message).to_bytes(4, "big")], files)
        connection.sendall(message)
        return int.from_bytes(_received(connection, 4), "big")
    finally:
        _adopt_orphans(False)


def _received(connection: socket.socket, length: int) -> bytes:
    received = b""
    while len(received) < length:
        part = connection.recv(length - len(received))
        if not part:
            raise EOFError("the process that is copied for starts has ended")
        received += part
    return received


def _adopt_orphans(adopts: bool) -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(_SET_CHILD_SUBREAPER, int(adopts), 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")


# --- in the process that is copied ---


def _be_copied() -> None:
    import_all()
    gc.collect()
    gc.freeze()
    _run_copies(socket.socket(fileno=int(sys.argv[1])))


def _run_copies(connection: socket.socket) -> None:
    """Returns only when nobody can ask for copies any more."""
    with connection:
        start = _serve(connection)
    if start is not None:
        _end(become(start))


def import_all() -> None:
    """All modules of allot."""
    import allot

    for module in pkgutil.walk_packages(allot.__path__, "allot."):
        if not module.name.startswith(_NOT_IMPORTED) and not module.name.endswith(".__main__"):
            importlib.import_module(module.name)
    tasks = list(Path("/proc/self/task").iterdir())
    assert len(tasks) == 1, "a module has started a thread when it was imported"


def _serve(connection: socket.socket) -> Start | None:
    """Copy this process for each start. Returns in a copy, with what it is to do, and when nobody can ask any more."""
    while True:
        head, files, _, _ = socket.recv_fds(connection, 4, 3)
        if not head:
            return None
        length = int.from_bytes(head + _received(connection, 4 - len(head)), "big")
        start = Start(*json.loads(_received(connection, length)))
        copy = _copy()
        if copy is None:
            for number, file in enumerate(files):
                os.dup2(file, number)
            return start
        for file in files:
            os.close(file)
        connection.sendall(copy.to_bytes(4, "big"))


def _copy() -> int | None:
    """The copy of this process; none in the copy. It is a fork of a fork that has ended, so that it becomes a child of the process that asked."""
    read, write = os.pipe()
    if fork := os.fork():
        os.close(write)
        with open(read, "rb") as told:  # noqa: PTH123
            os.waitpid(fork, 0)
            return int.from_bytes(told.read(4), "big")
    fork = os.getpid()
    if copy := os.fork():
        os.write(write, copy.to_bytes(4, "big"))
        os._exit(0)
    while os.getppid() == fork:
        time.sleep(0.0005)
    return None


def become(start: Start) -> int:
    """Run a program as an interpreter of its own would; its exit code."""
    for file in [int(each.name) for each in Path("/proc/self/fd").iterdir()]:
        if file > 2:
            _close(file)
    if start.new_session:
        os.setsid()
    elif start.group != -1:
        os.setpgid(0, start.group)
    resource.setrlimit(resource.RLIMIT_NOFILE, start.open_files)
    os.umask(start.mask)
    while True:
        if starts_others(start.arguments):
            _be_copied_too()
        try:
            return _run(start)
        except Another as another:
            start = another.start


def starts_others(arguments: Sequence[str]) -> bool:
    """Whether a program starts programs of allot."""
    return arguments[1:3] == ["-m", "allot"] and len(arguments) > 3 and arguments[3] in _STARTS_OTHERS


def _be_copied_too() -> None:
    """A child of this process, for its own starts: now, as what has begun has threads and locks."""
    here, there = socket.socketpair()
    if os.fork():
        there.close()
        _replace_starts(Copied(os.getpid(), here))
        return
    here.close()
    # It must not hold the files of its parent open.
    with open(os.devnull, "r+b") as null:  # noqa: PTH123
        for file in (0, 1, 2):
            os.dup2(null.fileno(), file)
    _run_copies(there)
    os._exit(0)


def _run(start: Start) -> int:
    os.chdir(start.folder)
    os.environ.clear()
    os.environ.update(start.variables)
    time.tzset()
    _tell(start.arguments)
    sys.stdin, sys.stdout, sys.stderr = _stream(0, "r"), _stream(1, "w"), _stream(2, "w")
    vars(sys).update(__stdin__=sys.stdin, __stdout__=sys.stdout, __stderr__=sys.stderr)
    sys.orig_argv[:] = start.arguments
    main = sys.modules["__main__"] = ModuleType("__main__")
    vars(main)["__builtins__"] = __builtins__
    is_module = start.arguments[1] == "-m"
    sys.argv[:] = start.arguments[2 if is_module else 1 :]
    sys.path[0] = start.folder if is_module else str(Path(sys.argv[0]).resolve().parent)
    if is_module and sys.argv[0] == _BECOMES_ANOTHER:
        os.execvp = _become_another  # type: ignore[assignment]
    try:
        if is_module:
            # As the interpreter does; what is imported already would run twice, with a warning.
            sys.modules.pop(sys.argv[0], None)
            runpy._run_module_as_main(sys.argv[0])  # type: ignore[attr-defined]
        else:
            main.__file__ = sys.argv[0]
            exec(compile(Path(sys.argv[0]).read_bytes(), sys.argv[0], "exec"), vars(main))
    except SystemExit as ended:
        if not isinstance(ended.code, int | None):
            raise
        return ended.code or 0
    return 0


def _become_another(file: str, arguments: list[str]) -> NoReturn:
    """In the place of `os.execvp`: a program of ours is imported already."""
    if not is_ours(arguments):
        os.execvpe(file, arguments, os.environ)
    os.execvp = _EXECVP
    raise Another(Start(arguments, os.getcwd(), dict(os.environ)))  # noqa: PTH109 - as os.chdir takes it


def _end(code: int) -> None:
    """What an interpreter does before it frees all modules one by one, which would take longer than most programs."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code)


def _close(file: int) -> None:
    try:
        os.close(file)
    except OSError:
        # It was the folder that lists them.
        return


def _stream(number: int, mode: str) -> Any:
    old = sys.stdin if number == 0 else sys.stderr if number == 2 else sys.stdout
    is_line_wise = number == 2 or os.isatty(number)
    return open(
        number, mode, buffering=1 if is_line_wise else -1, encoding=old.encoding, errors=old.errors, closefd=False
    )


def _tell(arguments: list[str]) -> None:
    """Show others the arguments, in /proc. Where the last byte of those that a process was started with is not 0, Linux shows text up to the first 0."""
    begin, end = map(int, Path("/proc/self/stat").read_text().rpartition(")")[2].split()[45:47])
    told = os.fsencode(" ".join(arguments))[: end - begin - 2] + b"\0"
    ctypes.memmove(begin, told, len(told))
    ctypes.memset(end - 1, ord("-"), 1)


if __name__ == "__main__":
    _be_copied()
