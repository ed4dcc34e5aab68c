"""The MPS control daemon of real cards: one per claim that shares its devices by MPS.

It runs as a process beside the driver, in its own session, so that it outlives a restart of the driver; its pid is in its
folder. NVIDIA's driver runs it in a Deployment of its own image instead; the folders and what containers get are the same.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
from pathlib import Path

from allot.devices.gpu.hardware import HardwareError, MpsFolders, MpsSettings
from allot.driver.files import remove_folder

DAEMON = "nvidia-cuda-mps-control"
_READY_POLLS = (0.1, 0.2, 0.5, 1.0, 2.0, 4.0)
_COMMAND_S = 10.0


class MpsDaemons:
    """Control daemons below one folder."""

    def __init__(self, folder: Path, program: str = DAEMON) -> None:
        self._folder = folder
        self._program = program
        self._pause = threading.Event()

    def start(self, settings: MpsSettings) -> MpsFolders:
        """Start a daemon, wait until it listens, and configure it."""
        folders = self._folders(settings.id)
        for path in (folders.pipe, folders.shm, folders.log):
            path.mkdir(parents=True, exist_ok=True)
        folders.shm.chmod(0o1777)
        environment = self._environment(folders, settings.uuids)
        if not self._is_running(settings.id):
            self._launch(settings.id, environment)
        self._wait(settings.id, environment)
        for command in commands(settings):
            self._tell(settings.id, environment, command)
        return folders

    def stop(self, id_: str) -> None:
        """Stop a daemon and clean up after it."""
        folders = self._folders(id_)
        if not folders.pipe.parent.is_dir():
            return
        if self._is_running(id_):
            with contextlib.suppress(HardwareError):
                self._tell(id_, self._environment(folders, ()), "quit -t 5")
            pid = self._pid(id_)
            if pid and self._is_running(id_):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        remove_folder(folders.pipe.parent)

    def _folders(self, id_: str) -> MpsFolders:
        root = self._folder / id_
        return MpsFolders(pipe=root / "pipe", shm=root / "shm", log=root / "log")

    def _environment(self, folders: MpsFolders, uuids: tuple[str, ...]) -> dict[str, str]:
        return {
            **os.environ,
            "CUDA_VISIBLE_DEVICES": ",".join(uuids),
            "CUDA_MPS_PIPE_DIRECTORY": str(folders.pipe),
            "CUDA_MPS_LOG_DIRECTORY": str(folders.log),
        }

    def _launch(self, id_: str, environment: dict[str, str]) -> None:
        try:
            process = subprocess.Popen(
                [self._program, "-f"],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        except OSError as error:
            raise HardwareError(f"MPS control daemon {self._program}: {error.strerror}") from error
        (self._folder / id_ / "pid").write_text(f"{process.pid}\n")
        # Reaped when it ends; it may outlive this process.
        threading.Thread(target=process.wait, daemon=True).start()

    def _wait(self, id_: str, environment: dict[str, str]) -> None:
        for seconds in _READY_POLLS:
            try:
                self._tell(id_, environment, "get_default_active_thread_percentage")
                return
            except HardwareError:
                self._pause.wait(seconds)
        raise HardwareError(f"MPS control daemon of {id_} is not ready")

    def _tell(self, id_: str, environment: dict[str, str], command: str) -> None:
        try:
            done = subprocess.run(
                [self._program],
                input=f"{command}\n",
                env=environment,
                capture_output=True,
                text=True,
                timeout=_COMMAND_S,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise HardwareError(f"MPS control daemon of {id_}, {command}: {error}") from error
        if done.returncode != 0:
            said = (done.stderr or done.stdout).strip() or f"exit code {done.returncode}"
            raise HardwareError(f"MPS control daemon of {id_}, {command}: {said}")

    def _pid(self, id_: str) -> int:
        try:
            return int((self._folder / id_ / "pid").read_text())
        except (OSError, ValueError):
            return 0

    def _is_running(self, id_: str) -> bool:
        pid = self._pid(id_)
        try:
            command = Path(f"/proc/{pid}/cmdline").read_bytes() if pid else b""
        except OSError:
            return False
        return Path(self._program).name.encode() in command


def commands(settings: MpsSettings) -> list[str]:
    """The daemon's commands."""
    told = []
    if settings.active_thread_percentage is not None:
        told.append(f"set_default_active_thread_percentage {settings.active_thread_percentage}")
    told += [
        f"set_default_device_pinned_mem_limit {id_} {limit}M"
        for id_, limit in settings.pinned_memory_limits_mib.items()
    ]
    return told
