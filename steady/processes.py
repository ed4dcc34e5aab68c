"""The processes that a run starts, and the ones that are left of it."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from allot.process.parent_death import ending_with_parent

# Ends with whoever started it, however that ends.
_BUSY = "import os; parent = os.getppid()\nwhile os.getppid() == parent: sum(range(100_000))"
_PR_SET_CHILD_SUBREAPER = 36
# A session with it has a ninth of another one's weight; beside one that uses two processors, a fifth of each.
_NICE_OF_A_FIFTH = "10"
# What is about to end may take so long on a busy machine; then it counts as left, or is killed.
GRACE_S = 30.0
_POLL_S = 0.1


def adopt_orphans() -> None:
    """Processes whose parent has ended become children of this one (on Linux), so that none gets lost."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


@contextmanager
def busy(count: int) -> Iterator[frozenset[int]]:
    """So many processes that never rest, for as long as this lasts."""
    processes = [subprocess.Popen([sys.executable, "-c", _BUSY], start_new_session=True) for _ in range(count)]
    try:
        for process in processes:
            _count_as_one(process.pid)
        yield frozenset(process.pid for process in processes)
    finally:
        for process in processes:
            process.kill()
            process.wait()


def _count_as_one(process: int) -> None:
    """As about one process among those of the tests. Where Linux shares processors between sessions first, those that never rest would
    otherwise get as much as the whole suite, and a run take twice as long on one kernel as on another."""
    # Where there is no such file, there are no such shares; where it may not be written, runs take longer.
    with suppress(OSError):
        Path(f"/proc/{process}/autogroup").write_text(_NICE_OF_A_FIFTH)


class Launcher:
    """Runs commands, each in a session of its own, and ends what is left of them."""

    def __init__(self, others: Collection[int], grace_s: float) -> None:
        """others: processes of this one that do not belong to a run. grace_s: how long processes may take to end after a run."""
        self._others = others
        self._grace_s = grace_s

    def run(
        self, command: Sequence[str], folder: Path, environment: Mapping[str, str], output: IO[str]
    ) -> tuple[int, tuple[str, ...]]:
        """How a command ended, and the commands of the processes that it left. Interrupted, it leaves none."""
        process = subprocess.Popen(
            ending_with_parent(command),
            cwd=folder,
            env=environment,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
        try:
            code = process.wait()
            return code, tuple(sorted(_described(pid, command) for pid, command in self._left().items()))
        except BaseException:
            # Pytest and its workers have time to clean up. Not the whole session, as a terminal does it: a test whose server is
            # interrupted first would fail.
            for each in (process.pid, *_children(process.pid)):
                with suppress(ProcessLookupError):
                    os.kill(each, signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                process.wait(self._grace_s)
            raise
        finally:
            self._kill()
            # Where /proc does not tell whose children they are.
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    def _left(self) -> dict[int, str]:
        end = time.monotonic() + self._grace_s
        while (left := _descendants(self._others)) and time.monotonic() < end:
            time.sleep(_POLL_S)
        return left

    def _kill(self) -> None:
        """Again and again: what is killed may have started another one meanwhile."""
        end = time.monotonic() + GRACE_S
        while (left := _descendants(self._others)) and time.monotonic() < end:
            for each in left:
                with suppress(ProcessLookupError):
                    os.kill(each, signal.SIGKILL)
            time.sleep(_POLL_S)


def _children(parent: int) -> list[int]:
    return [pid for pid, (its, _) in _parents_and_states().items() if its == parent]


def _descendants(others: Collection[int]) -> dict[int, str]:
    """Processes that this one has started, and those that they have, with their commands; the ones that have ended are forgotten."""
    parents = _parents_and_states()
    found: dict[int, str] = {}
    near = {os.getpid()}
    while near:
        near = {pid for pid, (parent, _) in parents.items() if parent in near and pid not in others}
        found |= {pid: _command(pid) for pid in near if not _has_ended(pid, parents[pid])}
    return found


def _parents_and_states() -> dict[int, tuple[int, str]]:
    """Of all processes; nothing where there is no /proc."""
    found: dict[int, tuple[int, str]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            # The name in parentheses may have any characters.
            state, parent, *_ = stat.read_text().rpartition(")")[2].split()
            found[int(stat.parent.name)] = int(parent), state
    return found


def _has_ended(pid: int, parent_and_state: tuple[int, str]) -> bool:
    parent, state = parent_and_state
    if state == "Z" and parent == os.getpid():
        with suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)
    return state in "ZX"


def _described(pid: int, command: str) -> str:
    """A process with what may tell which test it is from: what pytest has left in its environment, its host name, its folder and the files that it has open."""
    process = Path(f"/proc/{pid}")
    files = {_target(each) for each in (process / "cwd", *(process / "fd").glob("*"))}
    named = sorted(file for file in files - {"/", os.devnull} if file.startswith("/"))
    asked = ("nsenter", "--target", str(pid), "--uts", "hostname")
    with suppress(OSError, subprocess.SubprocessError):
        host = subprocess.run(asked, capture_output=True, text=True, check=True, timeout=GRACE_S).stdout.strip()
        named.insert(0, f"host name {host}")
    if test := _test_of(process):
        named.insert(0, f"started by {test}")
    return f"{command} ({', '.join(named)})" if named else command


def _test_of(process: Path) -> str:
    """The test that ran when a process was started, unless its environment was made anew."""
    try:
        variables = (process / "environ").read_bytes().split(b"\0")
    except OSError:
        return ""
    found = (each.partition(b"=")[2] for each in variables if each.startswith(b"PYTEST_CURRENT_TEST="))
    return next(found, b"").decode(errors="replace")


def _target(link: Path) -> str:
    try:
        return str(link.readlink())
    except OSError:
        return ""


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return ""
