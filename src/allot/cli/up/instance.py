"""The `allot up` instance of a data directory: its process and state, how to stop it, and that there is only one.

The running process holds a lock on a file in the directory, which no other process inherits and which ends with it; a second file names
the process. A process is asked to end only if it holds the lock and its start time matches the file.
"""

from __future__ import annotations

import fcntl
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from allot.cli.errors import CommandError
from allot.dashboard.links import read_link
from allot.node.runtimes.shim import start_time
from allot.process.clock import Clock

_LOCK = "up.lock"
_STATE = "up.json"
POLL_S = 0.05
_TRIES = 20


class AlreadyRunning(CommandError):
    """Another process uses the data directory."""

    exit_code = 1


class Part(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A part of a running instance. pid: its own process, 0 while it has none."""

    name: str
    state: str
    restarts: int = 0
    pid: int = 0
    # Seconds since 1970.
    since: float = 0.0


class InstanceState(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What is on file about a running instance."""

    pid: int
    # The start time of the process, in kernel ticks; 0 if unknown.
    began: int
    # Seconds since 1970.
    since: float
    ready: bool = False
    url: str = ""
    kubeconfig: str = ""
    log: str = ""
    merged_into: str = ""
    # How the commands of pods run.
    commands: str = ""
    # Whether pods have their own network.
    network: str = ""
    # Where the link to the dashboard is, for the owner of the data directory; empty if there is none.
    dashboard_link_file: str = ""
    parts: tuple[Part, ...] = ()

    @property
    def dashboard_link(self) -> str:
        """The link that lets the next browser in; empty if there is none."""
        return read_link(Path(self.dashboard_link_file)) if self.dashboard_link_file else ""


class Instance:
    """The instance of a data directory."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @contextmanager
    def held(self) -> Iterator[None]:
        """Become the running instance; AlreadyRunning if there is another. The directory exists."""
        handle = os.open(self.folder / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            self._lock(handle)
            try:
                yield
            finally:
                (self.folder / _STATE).unlink(missing_ok=True)
        finally:
            os.close(handle)

    def _lock(self, handle: int) -> None:
        """AlreadyRunning. A status query holds the lock for a moment, so retry unless the holder is known."""
        for left in reversed(range(_TRIES)):
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                found = self._read()
                if left == 0 or (found is not None and start_time(found.pid) == found.began):
                    raise self._taken() from None
            time.sleep(POLL_S)

    def _taken(self) -> AlreadyRunning:
        found = self._read()
        who = f" by process {found.pid}" if found is not None else ""
        return AlreadyRunning(
            f"data directory {self.folder}: in use{who}",
            f"allot status --data-dir {self.folder} shows it, allot down --data-dir {self.folder} stops it",
        )

    def write(self, state: InstanceState) -> None:
        """Write the state, for other processes."""
        path = self.folder / f"{_STATE}.new"
        path.write_bytes(msgspec.json.encode(state))
        path.replace(self.folder / _STATE)

    def running(self) -> InstanceState | None:
        """The instance that runs now, if one does."""
        if not self._is_locked():
            return None
        found = self._read()
        if found is None or start_time(found.pid) != found.began:
            return None
        return found

    def is_ours(self) -> bool:
        """Whether the directory was used by `allot up` or `allot apiserver`, or has nothing in it."""
        names = {path.name for path in self.folder.iterdir()}
        return not names or _LOCK in names or "pki" in names

    def _is_locked(self) -> bool:
        try:
            handle = os.open(self.folder / _LOCK, os.O_RDWR)
        except OSError:
            return False
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return False
        except BlockingIOError:
            return True
        finally:
            os.close(handle)

    def _read(self) -> InstanceState | None:
        try:
            return msgspec.json.decode((self.folder / _STATE).read_bytes(), type=InstanceState)
        except (OSError, msgspec.DecodeError):
            return None

    async def stop(self, state: InstanceState, clock: Clock, seconds: float) -> bool:
        """Ask it to end, and wait; returns whether it ended in time."""
        os.kill(state.pid, signal.SIGTERM)
        until = clock.monotonic() + seconds
        while self._is_locked():
            if clock.monotonic() > until:
                return False
            await clock.sleep(POLL_S)
        return True
