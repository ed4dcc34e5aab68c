"""`allot up` as people use it: two simulated nodes, kubectl, and everything that can end before it should."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from allot.cli.up.instance import Instance, InstanceState, Part
from etcd_server import MISSING, find_etcd
from waiting import WAIT_S, wait_for

pytestmark = pytest.mark.slow

NODES = {"allot-control-plane", "t4-0", "t4-1"}
COMPONENTS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler")
POD = """
apiVersion: v1
kind: Pod
metadata: {name: NAME}
spec:
  terminationGracePeriodSeconds: 0
  containers: [{name: main, image: none, command: [sleep, "SECONDS"], resources: {claims: [{name: gpu}]}}]
  resourceClaims: [{name: gpu, resourceClaimTemplateName: one-gpu}]
"""
TEMPLATE = """
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: one-gpu}
spec: {spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu.nvidia.com}}]}}}
"""


_numbers = itertools.count(1)


class Up:
    """The cluster of a data directory."""

    def __init__(self, folder: Path) -> None:
        self.data = folder / "data"
        self.environment = {**os.environ, "HOME": str(folder), "KUBECONFIG": str(self.data / "admin.kubeconfig")}
        # What pods run, so that it can be told from what other tests run.
        # One of its own: programs are told apart by it.
        self.seconds = f"{100_000 + os.getpid()}.{next(_numbers)}"

    def allot(self, command: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        whole = [sys.executable, "-m", "allot", command, "--data-dir", str(self.data), *arguments]
        return subprocess.run(whole, env=self.environment, capture_output=True, text=True, check=False)

    def start(self, *arguments: str) -> str:
        done = self.allot("up", "--detach", "--port", "0", *arguments)
        assert done.returncode == 0, done.stderr
        return done.stderr

    def status(self) -> dict[str, Any]:
        status: dict[str, Any] = json.loads(self.allot("status", "-o", "json").stdout)
        return status

    def state(self) -> InstanceState:
        found = Instance(self.data).running()
        assert found is not None
        return found

    def part(self, name: str) -> Part:
        return next(part for part in self.state().parts if part.name == name)

    def kubectl(self, *arguments: str, stdin: str = "", code: int = 0) -> str:
        done = subprocess.run(
            ["kubectl", *arguments],
            env=self.environment,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=WAIT_S,
            check=False,
        )
        assert done.returncode == code, done.stderr
        return done.stdout if code == 0 else done.stderr

    def names(self, kind: str, *arguments: str) -> set[str]:
        return set(self.kubectl("get", kind, *arguments, "-o", "jsonpath={.items[*].metadata.name}").split())

    def run_pods(self, *names: str) -> None:
        pods = [POD.replace("NAME", name).replace("SECONDS", self.seconds) for name in names]
        self.kubectl("apply", "-f", "-", stdin="---".join((TEMPLATE, *pods)))

    def phase(self, pod: str) -> str:
        return self.kubectl("get", "pod", pod, "-o", "jsonpath={.status.phase}")

    def programs(self) -> list[str]:
        found = subprocess.run(["pgrep", "-f", f"^sleep {self.seconds}$"], capture_output=True, text=True, check=False)
        return found.stdout.split()

    def log(self, pod: str, *arguments: str, namespace: str = "kube-system") -> str:
        return self.kubectl("logs", "-n", namespace, pod, *arguments)


def is_alive(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is not on the PATH")
    cluster = Up(tmp_path_factory.mktemp("up"))
    cluster.start("--node", "t4", "--count", "2")
    try:
        yield cluster
    finally:
        done = cluster.allot("reset", "--yes")
        assert done.returncode == 0, done.stderr
        assert not cluster.data.exists()


def test_nodes_are_ready_and_have_published_their_devices(up: Up) -> None:
    assert up.names("nodes") == NODES
    slices = json.loads(up.kubectl("get", "resourceslices", "-o", "json"))["items"]
    assert {each["spec"]["nodeName"] for each in slices} == {"t4-0", "t4-1"}


def test_the_parts_of_the_control_plane_are_pods_with_their_own_logs(up: Up) -> None:
    pods = {f"{name}-allot-control-plane" for name in COMPONENTS}
    assert pods <= up.names("pods", "-n", "kube-system", "--field-selector", "status.phase=Running")
    assert "serving https://127.0.0.1:" in up.log("kube-apiserver-allot-control-plane")
    assert "controller resourceclaim-controller started" in up.log("kube-controller-manager-allot-control-plane")
    assert up.log("kube-scheduler-allot-control-plane", "--tail=0") == ""


def test_the_scheduler_logs_a_line_for_each_decision_about_devices(up: Up) -> None:
    up.run_pods("first", "second", "third")
    wait_for("two pods run", lambda: [up.phase("first"), up.phase("second")] == ["Running"] * 2)

    def lines() -> list[str]:
        log = up.log("kube-scheduler-allot-control-plane").splitlines()
        return [line for line in log if "DRA" in line]

    wait_for("a line for each", lambda: len(lines()) >= 3)
    placed = next(line for line in lines() if "pod default/first to node t4-" in line)
    assert "gets gpu.nvidia.com/t4-" in placed
    refused = next(line for line in lines() if "pod default/third not placed" in line)
    assert "0/3 nodes are available: 1 node(s) had untolerated taint" in refused
    assert "2 cannot allocate all claims" in refused
    one_log = Path(up.state().log).read_text()
    assert "[kube-scheduler] I DRA: pod default/first to node" in one_log


def test_drivers_are_pods_of_their_nodes_and_log_what_they_prepare(up: Up) -> None:
    up.run_pods("first", "second")
    wait_for("pods run", lambda: [up.phase("first"), up.phase("second")] == ["Running"] * 2)
    for node in ("t4-0", "t4-1"):
        log = up.log(f"gpu-kubelet-plugin-{node}", "-c", "gpus", namespace="dra-driver-nvidia-gpu")
        assert "prepare of ResourceClaim default/" in log
        assert "done: gpu-0" in log
    pods = up.names("pods", "-n", "dra-driver-nvidia-gpu", "-l", "app.kubernetes.io/name=dra-driver-nvidia-gpu")
    assert pods == {"gpu-kubelet-plugin-t4-0", "gpu-kubelet-plugin-t4-1"}, "where NVIDIA's chart puts its own"


def test_a_part_that_is_deleted_comes_back(up: Up) -> None:
    name = "kube-scheduler-allot-control-plane"
    get = ("get", "pod", "-n", "kube-system", name, "-o", "jsonpath={.metadata.uid}")
    before = up.kubectl(*get)
    up.kubectl("delete", "pod", "-n", "kube-system", name)
    wait_for("it is back", lambda: name in up.names("pods", "-n", "kube-system"))
    assert up.kubectl(*get) != before


def test_a_part_cannot_be_entered_and_says_why(up: Up) -> None:
    told = up.kubectl("exec", "-n", "kube-system", "kube-apiserver-allot-control-plane", "--", "ls", code=1)
    assert "runs outside containers" in told


def test_status_tells_how_everything_is(up: Up) -> None:
    status = up.status()
    assert status["running"] and status["ready"]
    assert status["url"].startswith("https://127.0.0.1:")
    assert status["nodes"] == {"total": 3, "ready": 3}
    assert status["devices"]["total"] == 2
    assert {part["name"]: part["state"] for part in status["parts"]} == dict.fromkeys(
        (*COMPONENTS, "pod-network", "simulated-nodes"), "running"
    )
    table = up.allot("status")
    assert table.returncode == 0
    assert "nodes: 3 of 3 ready" in table.stdout


def test_a_second_one_on_the_same_data_is_refused(up: Up) -> None:
    done = up.allot("up", "--port", "0")
    assert done.returncode == 1
    assert f"in use by process {up.state().pid}" in done.stderr
    assert "hint: allot status" in done.stderr


def test_a_child_that_is_killed_is_started_again_and_its_pods_run_on(up: Up) -> None:
    up.run_pods("first", "second")
    wait_for("pods run", lambda: len(up.programs()) == 2)
    programs = up.programs()
    os.kill(up.part("simulated-nodes").pid, signal.SIGKILL)
    wait_for("it is started again", lambda: up.part("simulated-nodes").restarts == 1)
    wait_for("it runs", lambda: up.part("simulated-nodes").state == "running")
    assert up.programs() == programs
    assert "simulated-nodes ended with signal SIGKILL; starting it again" in Path(up.state().log).read_text()


def test_data_and_nodes_are_kept_and_programs_end_with_the_cluster(up: Up) -> None:
    up.kubectl("create", "configmap", "kept")
    up.run_pods("first", "second")
    wait_for("pods run", lambda: len(up.programs()) == 2)
    done = up.allot("down")
    assert (done.returncode, done.stderr) == (0, "stopped\n")
    assert up.programs() == []
    assert up.allot("status").returncode == 3
    up.start()
    assert up.names("nodes") == NODES
    assert "kept" in up.names("configmaps")
    wait_for("pods run again", lambda: len(up.programs()) == 2)


def test_when_it_is_killed_its_children_end_too(up: Up) -> None:
    up.run_pods("first", "second")
    wait_for("pods run", lambda: len(up.programs()) == 2)
    state = up.state()
    os.kill(state.pid, signal.SIGKILL)
    for part in state.parts:
        wait_for(f"{part.name} ends", lambda pid=part.pid: not is_alive(pid))  # type: ignore[misc]
    assert up.allot("status").stdout.startswith("not running")
    assert up.allot("down").stderr == "stopped\n"
    assert up.programs() == []


def test_other_nodes_take_the_place_of_those_before_and_a_merged_kubeconfig_is_restored(up: Up) -> None:
    others = up.data.parent / "others"
    before = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "work",
        "clusters": [{"name": "work", "cluster": {"server": "https://work.example.com"}}],
        "users": [{"name": "work", "user": {}}],
        "contexts": [{"name": "work", "context": {"cluster": "work", "user": "work"}}],
    }
    others.write_text(yaml.safe_dump(before))
    # Whatever the tests before it did, which another worker may have had: it runs, and has something to keep.
    up.allot("down")
    up.start()
    if "stays" not in up.names("configmaps"):
        up.kubectl("create", "configmap", "stays")
    up.allot("down")
    up.environment["KUBECONFIG"] = str(others)
    up.start("--node", "ct5lp-hightpu-1t", "--merge-kubeconfig")
    assert up.kubectl("config", "current-context").strip() == "allot"
    assert up.names("nodes") == {"allot-control-plane", "ct5lp-hightpu-1t"}
    assert "stays" in up.names("configmaps")
    done = up.allot("reset", "--yes")
    assert str(others) in done.stderr
    assert yaml.safe_load(others.read_text()) == before


def test_this_machine_can_be_a_node() -> None:
    # Sockets have short names only.
    with tempfile.TemporaryDirectory(prefix="a-") as folder:
        up = Up(Path(folder))
        try:
            up.start("--node", "local", "--memory")
            own = socket.gethostname().lower()
            assert up.names("nodes") == {"allot-control-plane", own}
            wait_for("CPUs are published", lambda: f"dra.cpu-{own}" in " ".join(up.names("resourceslices")))
            up.kubectl("run", "hello", "--image=none", "--command", "--", "sleep", up.seconds)
            wait_for("a pod runs", lambda: up.programs())
            assert f"dra.cpu: ready on {own}" in up.log(f"cpu-kubelet-plugin-{own}")
        finally:
            done = up.allot("reset", "--yes")
            assert done.returncode == 0, done.stderr
        assert up.programs() == []


def is_let_in_without_certificate(etcd: int) -> bool:
    """Whether an etcd answers somebody who shows no certificate. etcd: its process."""
    words = Path(f"/proc/{etcd}/cmdline").read_text().split("\0")
    address = urlsplit(words[words.index("--listen-client-urls") + 1])
    anyone = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    anyone.check_hostname, anyone.verify_mode = False, ssl.CERT_NONE
    with socket.create_connection((address.hostname, address.port), timeout=WAIT_S) as plain:
        try:
            with anyone.wrap_socket(plain) as secured:
                secured.sendall(b"GET /version HTTP/1.1\r\nHost: etcd\r\n\r\n")
                return bool(secured.recv(1))
        except (ssl.SSLError, ConnectionError):
            return False


@pytest.mark.skipif(find_etcd() is None, reason=MISSING)
def test_objects_can_be_kept_in_an_etcd_of_its_own(tmp_path: Path) -> None:
    etcd = find_etcd()
    assert etcd is not None
    up = Up(tmp_path)
    up.environment["ALLOT_ETCD"] = etcd
    try:
        up.start("--etcd", "--node", "t4")
        assert "etcd-allot-control-plane" in up.names("pods", "-n", "kube-system")
        up.kubectl("create", "configmap", "kept")
        assert is_let_in_without_certificate(up.part("etcd").pid) is False
        os.kill(up.part("etcd").pid, signal.SIGKILL)
        wait_for("etcd is started again", lambda: up.part("etcd").restarts == 1 and up.part("etcd").pid)
        wait_for("objects are there", lambda: "kept" in up.names("configmaps"))
    finally:
        up.allot("reset", "--yes")


def test_what_goes_wrong_in_the_background_is_told_in_front(tmp_path: Path) -> None:
    done = Up(tmp_path).allot("up", "--detach", "--bind-address", "192.0.2.77", "--node", "none")
    assert done.returncode == 3
    assert "error: cannot serve on 192.0.2.77:6443" in done.stderr
