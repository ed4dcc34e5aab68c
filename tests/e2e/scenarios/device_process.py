"""A driver of `allot.devices` as a process on a node of the site."""

from __future__ import annotations

import signal
import subprocess
import sys

from e2e.scenarios.site import Agent, Site
from waiting import WAIT_S, wait_for


class DeviceProcess:
    """`python -m allot.devices.KIND`, which can be killed and started again, with other options too."""

    def __init__(self, site: Site, agent: Agent, kind: str, options: tuple[str, ...]) -> None:
        self._log = site.folder / f"{agent.name}-{kind}.log"
        self._options = options
        self._where = (
            *("--node-name", agent.name, "--kubeconfig", str(site.kubeconfig), "--port", "-1"),
            *("--kubelet-root", str(agent.root), "--cdi-dir", str(agent.cdi)),
        )
        self._kind = kind
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, *options: str) -> None:
        """Until it is ready. options: instead of those it was made with."""
        command = [sys.executable, "-m", f"allot.devices.{self._kind}", *(options or self._options), *self._where]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)

        def is_ready() -> bool:
            assert self._process is not None and self._process.poll() is None, f"{command} ended: {self.log}"
            return f"ready on {self._where[1]}" in self.log

        wait_for(f"driver {self._kind}", is_ready)

    def stop(self, number: int = signal.SIGTERM) -> None:
        """Send a signal and wait for the end."""
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(WAIT_S)
            self._process = None

    @property
    def log(self) -> str:
        """What it has said."""
        return self._log.read_text(errors="replace")
