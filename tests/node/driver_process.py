"""The driver of `two_gpus` as a process, with what pods need to use it, and what it leaves on a node."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

from node.cluster import Cluster
from waiting import WAIT_S

CLASS = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "DeviceClass",
    "metadata": {"name": "gpu.example.com"},
    "spec": {"selectors": [{"cel": {"expression": 'device.driver == "gpu.example.com"'}}]},
}
_REQUESTS = {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.example.com"}}]}}
TEMPLATE = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceClaimTemplate",
    "metadata": {"name": "one-gpu"},
    "spec": {"spec": _REQUESTS},
}


class DriverProcess:
    """The driver, which can be killed and started again."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._process: subprocess.Popen[bytes] | None = None
        self.folder = cluster.folder

    def start(self) -> None:
        """Without waiting for anything."""
        script = Path(__file__).with_name("two_gpus.py")
        options = ("--node-name", "n1", "--kubeconfig", str(self._cluster.kubeconfig), "--port", "-1")
        folders = ("--kubelet-root", str(self._cluster.root), "--cdi-dir", str(self.folder / "cdi"))
        with (self.folder / "driver.log").open("ab") as log:
            command = [sys.executable, str(script), *options, *folders]
            self._process = subprocess.Popen(command, stdout=log, stderr=log)

    def start_if_dead(self) -> None:
        """Unless it runs."""
        if self._process is None or self._process.poll() is not None:
            self.start()

    def stop(self, number: int = signal.SIGTERM) -> None:
        """Send a signal and wait for the end."""
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(WAIT_S)
            self._process = None


def prepared(cluster: Cluster) -> int:
    """How many claims are recorded as prepared on the node."""
    state = json.loads((cluster.root / "dra_manager_state").read_text())
    return len(json.loads(state["Data"]).get("ClaimInfoStateList") or ())


def cdi_files(cluster: Cluster) -> list[str]:
    """The files of prepared claims."""
    return [each.name for each in (cluster.folder / "cdi").iterdir()]
