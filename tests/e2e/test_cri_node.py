"""A node with a real containerd: kubectl with its pods, a driver's devices in them, and an agent that is killed in between."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TypeVar

import pytest

from allot import __version__
from containerd_server import IMAGE, ContainerdServer, why_not
from e2e.kubectl import MISSING, Kubectl, find_kubectls
from waiting import WAIT_S

pytestmark = pytest.mark.slow
Found = TypeVar("Found")
DRIVER = Path(__file__).parents[2] / "examples" / "drivers" / "dice.py"

BOX = f"""
apiVersion: v1
kind: Pod
metadata: {{name: box}}
spec:
  terminationGracePeriodSeconds: 0
  initContainers:
  - name: first
    image: {IMAGE}
    command: [sh, -c, echo from init > /shared/file]
    volumeMounts: [{{name: shared, mountPath: /shared}}]
  containers:
  - name: main
    image: {IMAGE}
    command: [sh, -c, 'cat /shared/file; echo $GREETING; while true; do nc -l -p 8080 -e cat; done']
    env: [{{name: GREETING, value: hello}}]
    volumeMounts: [{{name: shared, mountPath: /shared}}]
  volumes: [{{name: shared, emptyDir: {{}}}}]
"""

SHORT = f"""
apiVersion: v1
kind: Pod
metadata: {{{{name: {{name}}}}}}
spec:
  runtimeClassName: {{name}}
  restartPolicy: Never
  terminationGracePeriodSeconds: 0
  containers: [{{{{name: main, image: "{IMAGE}", command: ["true"]}}}}]
"""

# As the chart runs programs and drivers: without a shell, on a root that nobody writes to.
OWN_IMAGE = """
apiVersion: v1
kind: Pod
metadata: {{name: own}}
spec:
  restartPolicy: Never
  securityContext: {{runAsNonRoot: true}}
  containers:
  - name: main
    image: allot:{version}
    imagePullPolicy: Never
    args: [--version]
    securityContext: {{readOnlyRootFilesystem: true, capabilities: {{drop: [ALL]}}}}
---
apiVersion: v1
kind: Pod
metadata: {{name: driver}}
spec:
  restartPolicy: Never
  containers:
  - name: main
    image: allot:{version}
    imagePullPolicy: Never
    command: [python3, -m, allot.devices.gpu, classes]
"""

PLAYER = f"""
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {{name: dice}}
spec: {{selectors: [{{cel: {{expression: 'device.driver == "dice.example.com"'}}}}]}}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {{name: dice}}
spec:
  spec:
    devices:
      requests:
      - name: one
        exactly:
          deviceClassName: dice
          selectors: [{{cel: {{expression: 'device.attributes["dice.example.com"].sides == 20'}}}}]
---
apiVersion: v1
kind: Pod
metadata: {{name: player}}
spec:
  terminationGracePeriodSeconds: 0
  resourceClaims: [{{name: dice, resourceClaimTemplateName: dice}}]
  containers:
  - name: main
    image: {IMAGE}
    command: [sh, -c, echo rolling $DICE_0; sleep 1000]
    resources: {{claims: [{{name: dice}}]}}
"""


class Process:
    """A part of the cluster."""

    def __init__(self, name: str, command: Sequence[str], folder: Path) -> None:
        self._log = folder / f"{name}.log"
        with self._log.open("ab") as log:
            self.popen = subprocess.Popen([sys.executable, *command], stdout=log, stderr=log, cwd=folder)

    def wait_for(self, what: str, look: Callable[[], Found | None]) -> Found:
        until = time.monotonic() + WAIT_S
        while time.monotonic() < until and self.popen.poll() is None:
            if (found := look()) is not None:
                return found
            time.sleep(0.05)
        raise AssertionError(f"{what}: not within {WAIT_S} s: {self._log.read_text(errors='replace')[-3000:]}")

    def says(self, text: str) -> bool | None:
        return text in self._log.read_text(errors="replace") or None

    def stop(self) -> None:
        self.popen.terminate()
        try:
            self.popen.wait(WAIT_S)
        except subprocess.TimeoutExpired:
            self.popen.kill()
            self.popen.wait()


class World:
    """A control plane, a node with containerd, and a driver."""

    def __init__(self, folder: Path, containerd: ContainerdServer, stack: ExitStack) -> None:
        self.folder = folder
        self.containerd = containerd
        self._stack = stack
        kubeconfig = folder / "kubeconfig"
        plane = ("up", "--node", "none", "--memory", "--port", "0", "--data-dir", "data")
        up = self._start("up", *plane, "--kubeconfig", str(kubeconfig))
        up.wait_for("the control plane", lambda: up.says("ready: "))
        self._arguments = ["--kubeconfig", str(kubeconfig)]
        self.agent = self.start_agent()
        driver = [str(DRIVER), *self._arguments, "--node-name", "n1", "--kubelet-root", str(folder / "node")]
        self._run("driver", [*driver, "--cdi-dir", str(containerd.cdi)])
        home = folder / "home"
        home.mkdir()
        self.kubectl = Kubectl(next(iter(find_kubectls().values())), kubeconfig, home, "default")

    def start_agent(self) -> Process:
        node = ["node", *self._arguments, "--name", "n1", "--root-dir", str(self.folder / "node"), "--port", "0"]
        socket, groups = str(self.containerd.socket), self.containerd.groups
        agent = self._start(
            "node", *node, "--runtime", "cri", "--container-runtime-endpoint", socket, "--cgroup-root", groups
        )
        agent.wait_for("the agent", lambda: agent.says("serving https"))
        return agent

    def _start(self, name: str, *arguments: str) -> Process:
        return self._run(name, ["-m", "allot", *arguments])

    def _run(self, name: str, command: Sequence[str]) -> Process:
        process = Process(name, command, self.folder)
        self._stack.callback(process.stop)
        return process

    def container(self, pod: str) -> tuple[str, int]:
        (status,) = self.kubectl.json("get", "pod", pod)["status"]["containerStatuses"]
        return status["containerID"], status["restartCount"]


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    if reason := why_not():
        pytest.skip(reason)
    if not find_kubectls():
        pytest.skip(MISSING)
    # Sockets below it must have short names.
    folder = Path(tempfile.mkdtemp(prefix="allot-cri-"))
    (folder / "containerd").mkdir()
    containerd = ContainerdServer(folder / "containerd")
    with ExitStack() as stack:
        stack.callback(containerd.clean, folder)
        stack.callback(containerd.kill)
        containerd.start()
        containerd.import_image()
        stack.callback(containerd.remove_containers)
        yield World(folder, containerd, stack)


def test_kubectl_uses_a_pod_in_containerd(world: World) -> None:
    kubectl = world.kubectl
    world.agent.wait_for("the node", lambda: "n1" in kubectl("get", "nodes") or None)
    kubectl.apply(BOX)
    kubectl("wait", "--for=condition=Ready", "pod/box", f"--timeout={WAIT_S}s")
    assert kubectl("logs", "box", "-c", "main") == "from init\nhello\n"
    assert kubectl("exec", "box", "-c", "main", "--", "cat", "/shared/file") == "from init\n"
    assert kubectl.run("exec", "box", "-c", "main", "--", "sh", "-c", "exit 9").returncode == 9
    assert '"absent": executable file not found' in kubectl.fails("exec", "box", "-c", "main", "--", "absent")
    assert kubectl("exec", "-i", "box", "-c", "main", "--", "cat", stdin="typed") == "typed"
    sent = kubectl.home / "sent"
    sent.write_bytes(bytes(range(256)) * 4096)
    kubectl("cp", "sent", "box:/tmp/sent", "-c", "main")
    kubectl("cp", "box:/tmp/sent", "back", "-c", "main")
    assert (kubectl.home / "back").read_bytes() == sent.read_bytes()
    assert _through_port_forward(kubectl, b"ping") == b"ping"
    kubectl("delete", "pod", "box")


def test_the_projects_image_runs_and_not_as_root(world: World) -> None:
    """ALLOT_IMAGE: the archive that `make image` writes."""
    archive = os.environ.get("ALLOT_IMAGE", "")
    if not Path(archive).is_file():
        pytest.skip("ALLOT_IMAGE names no archive: make image writes one")
    world.containerd.import_archive(Path(archive))
    kubectl = world.kubectl
    kubectl.apply(OWN_IMAGE.format(version=__version__))

    def ended() -> bool | None:
        phases = kubectl("get", "pods", "own", "driver", "-o", "jsonpath={.items[*].status.phase}").split()
        return phases == ["Succeeded", "Succeeded"] or None

    world.agent.wait_for("both end", ended)
    assert kubectl("logs", "own") == f"allot {__version__}\n"
    assert "gpu.nvidia.com" in kubectl("logs", "driver")
    kubectl("delete", "pod", "own", "driver")


def test_a_runtime_class_names_the_handler(world: World) -> None:
    kubectl = world.kubectl
    for name, handler in (("known", "runc"), ("strange", "strange")):
        kubectl.apply(
            f"{{apiVersion: node.k8s.io/v1, kind: RuntimeClass, metadata: {{name: {name}}}, handler: {handler}}}"
        )
        kubectl.apply(SHORT.format(name=name))
    kubectl("wait", "--for=jsonpath={.status.phase}=Succeeded", "pod/known", f"--timeout={WAIT_S}s")

    def told() -> bool | None:
        return 'no runtime for "strange" is configured' in kubectl("get", "events") or None

    world.agent.wait_for("the event", told)
    kubectl("delete", "pod", "known", "strange")


def _through_port_forward(kubectl: Kubectl, said: bytes) -> bytes:
    command = kubectl.command(("port-forward", "pod/box", ":8080"))
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=kubectl.environment(), cwd=kubectl.home) as forward:
        assert forward.stdout is not None
        try:
            port = int(forward.stdout.readline().split(b" -> ")[0].rpartition(b":")[2])
            with socket.create_connection(("127.0.0.1", port), timeout=WAIT_S) as connection:
                connection.sendall(said)
                return connection.recv(100)
        finally:
            forward.terminate()


def test_a_claimed_device_is_in_its_container_also_after_the_agent_was_killed(world: World) -> None:
    kubectl = world.kubectl
    kubectl.apply(PLAYER)
    kubectl("wait", "--for=condition=Ready", "pod/player", f"--timeout={WAIT_S}s")
    assert kubectl("logs", "player") == "rolling dice-3\n"
    before = world.container("player")
    world.agent.popen.kill()
    world.agent.popen.wait()
    world.agent = world.start_agent()
    assert world.agent.wait_for("exec", lambda: kubectl.run("exec", "player", "--", "true").returncode == 0 or None)
    assert world.container("player") == before
    assert kubectl("exec", "player", "--", "sh", "-c", "echo $DICE_0") == "dice-3\n"
    assert list(world.containerd.cdi.glob("*.json"))
    kubectl("delete", "pod", "player")
    world.agent.wait_for("the CDI file to go", lambda: not list(world.containerd.cdi.glob("*.json")) or None)
