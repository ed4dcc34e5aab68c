"""A control plane and a node as processes of the command, for tests that use them as people do."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Self

import msgspec
import yaml

from allot.apiserver.access.certificates import Certificates, node_identity
from allot.apiserver.access.kubeconfig import write_kubeconfig
from allot.process.clock import SystemClock
from ports import free_port
from waiting import WAIT_S, wait_for


class AllotProcess:
    """The command as a process, which can be killed and started again."""

    def __init__(self, folder: Path, name: str, *arguments: str) -> None:
        self._command = [sys.executable, "-m", "allot", *arguments]
        self._log = folder / f"{name}.log"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def log(self) -> str:
        """What it has said since its last start."""
        return self._log.read_text(errors="replace")

    def start(self, ready: str) -> None:
        """Start it, and wait for a text in its log."""
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log)

        def is_ready() -> bool:
            assert self.is_alive, f"{self._command} ended: {self.log[-2000:]}"
            return ready in self.log

        wait_for(f"{self._command}: {ready!r} in its log", is_ready)

    @property
    def is_alive(self) -> bool:
        """Whether it runs."""
        return self._process is not None and self._process.poll() is None

    def stop(self, number: int = signal.SIGTERM) -> None:
        """Send a signal and wait for the end."""
        if self._process is not None:
            self._process.send_signal(number)
            try:
                self._process.wait(WAIT_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None


def write_node_kubeconfig(path: Path, name: str, data: Path, admin: Path) -> None:
    """An agent has the rights of its node and no others, as a kubelet. data: the folder of the control plane."""
    certificates = Certificates(data / "pki", SystemClock())
    pair = certificates.client(f"node-{name}", node_identity(name))
    server = yaml.safe_load(admin.read_text())["clusters"][0]["cluster"]["server"]
    write_kubeconfig(path, server, certificates.authority.pem, pair.certificate, pair.key, f"system:node:{name}")


class Cluster:
    """One node named n1 with the process runtime."""

    def __init__(
        self,
        folder: Path,
        *,
        is_durable: bool = False,
        node_options: tuple[str, ...] = (),
        plane_options: tuple[str, ...] = (),
    ) -> None:
        self.folder = folder
        self.kubeconfig = folder / "kubeconfig"
        self.node_kubeconfig = folder / "node-kubeconfig"
        self.root = folder / "node"
        # Where a node with a container runtime has the control groups of pods.
        self.groups = ""
        # A port of its own that stays the same when the control plane is killed and started again.
        port = free_port()
        folders = ("--data-dir", str(folder / "data"), "--kubeconfig", str(self.kubeconfig))
        store = () if is_durable else ("--memory",)
        self.plane = AllotProcess(
            folder, "up", "up", "--node", "none", "--port", str(port), *folders, *store, *plane_options
        )
        self.node = AllotProcess(
            folder,
            "node",
            *(
                "node",
                "--kubeconfig",
                str(self.node_kubeconfig),
                "--name",
                "n1",
                "--root-dir",
                str(self.root),
                "--port",
                "0",
            ),
            *("--node-labels", "zone=a", "--cdi-spec-dir", str(folder / "cdi"), *node_options),
        )

    def __enter__(self) -> Self:
        self.plane.start("ready: ")
        write_node_kubeconfig(self.node_kubeconfig, "n1", self.folder / "data", self.kubeconfig)
        self.start_node()
        return self

    def start_node(self) -> None:
        """Start the agent, again if need be."""
        self.node.start("serving ")
        wait_for("a node that is ready", lambda: "True" in self.get("nodes", "n1", "{.status.conditions[-1:].status}"))

    def start_plane_if_dead(self) -> None:
        """Start the control plane unless it runs."""
        if not self.plane.is_alive:
            self.plane.start("ready: ")

    def start_node_if_dead(self) -> None:
        """Start the agent unless it runs."""
        if not self.node.is_alive:
            self.start_node()

    def __exit__(self, *_: object) -> None:
        self.run("delete", "pods", "--all", "-A", "--grace-period=1", "--timeout=20s", check=False)
        self.node.stop()
        self.plane.stop()

    # --- kubectl ---

    def run(self, *arguments: str, stdin: str = "", check: bool = True, binary: str = "kubectl") -> str:
        """What kubectl prints."""
        environment = {"PATH": os.environ["PATH"], "HOME": str(self.folder), "KUBECONFIG": str(self.kubeconfig)}
        done = subprocess.run(
            [binary, *arguments], input=stdin, capture_output=True, text=True, timeout=60, env=environment, check=False
        )
        assert not check or done.returncode == 0, f"kubectl {arguments}: {done.stderr}\n{self.node.log[-2000:]}"
        return done.stdout if check else f"{done.stdout}{done.stderr}"

    def get(self, kind: str, name: str, path: str) -> str:
        """A field of an object; empty if it is not there."""
        return self.run("get", kind, name, "-o", f"jsonpath={path}", check=False)

    def apply(self, *objects: dict[str, Any]) -> None:
        """Create or change objects."""
        listed = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
        self.run("apply", "-f", "-", stdin=msgspec.json.encode(listed).decode())

    def pod(self, name: str, *containers: dict[str, Any], **spec: Any) -> None:
        """Create a pod."""
        self.apply(pod_of(name, *containers, **spec))

    def pid(self, name: str) -> int:
        """The first process of a pod's only container, as this machine knows it."""
        for path in self.root.glob("runtime/containers/*/run.json"):
            made = msgspec.json.decode((path.parent / "container.json").read_bytes())
            if made["spec"]["pod"]["name"] == name:
                return int(msgspec.json.decode(path.read_bytes())["pid"])
        return 0

    def phase(self, name: str, *phases: str) -> str:
        """Wait for a phase."""
        return wait_for(
            f"pod {name} in {phases}",
            lambda: found if (found := self.get("pod", name, "{.status.phase}")) in phases else None,
        )

    def ready(self, name: str) -> None:
        """Wait until a pod is ready."""
        self.run("wait", "--for=condition=Ready", f"pod/{name}", "--timeout=30s")

    def events(self, name: str) -> list[str]:
        """The reasons and texts of a pod's events."""
        path = "jsonpath={range .items[*]}{.reason}: {.message}{'\\n'}{end}"
        return self.run("get", "events", f"--field-selector=involvedObject.name={name}", "-o", path).splitlines()


def pod_of(name: str, *containers: dict[str, Any], **spec: Any) -> dict[str, Any]:
    """A pod, to be created."""
    made = {"terminationGracePeriodSeconds": 2, "containers": list(containers), **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": name}}, "spec": made}


def sharing(folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """A folder of the machine at its own path in a container: a volume, and where it is mounted."""
    return {"name": "shared", "hostPath": {"path": str(folder)}}, {"name": "shared", "mountPath": str(folder)}


def shell(name: str, script: str, **more: Any) -> dict[str, Any]:
    """A container that runs a script."""
    return {"name": name, "image": "busybox:1", "command": ["sh", "-c", script], **more}
