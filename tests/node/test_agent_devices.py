"""Pods with claims on a process node: scheduler, claim controller, agent and a driver as real processes."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from e2e.kubectl import MISSING
from node.cluster import Cluster, shell, wait_for

pytestmark = [pytest.mark.slow, pytest.mark.skipif(shutil.which("kubectl") is None, reason=MISSING)]

_CLASS = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "DeviceClass",
    "metadata": {"name": "gpu.example.com"},
    "spec": {"selectors": [{"cel": {"expression": 'device.driver == "gpu.example.com"'}}]},
}
_REQUESTS = {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.example.com"}}]}}
_TEMPLATE = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceClaimTemplate",
    "metadata": {"name": "one-gpu"},
    "spec": {"spec": _REQUESTS},
}
_LOOP = "env | grep ^GPU_; trap 'exit 0' TERM; while true; do sleep 0.1; done"


class DriverProcess:
    """The driver, which can be killed and started again."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._process: subprocess.Popen[bytes] | None = None
        self.folder = cluster.folder

    def start(self) -> None:
        script = Path(__file__).with_name("two_gpus.py")
        options = ("--node-name", "n1", "--kubeconfig", str(self._cluster.kubeconfig), "--port", "-1")
        folders = ("--kubelet-root", str(self._cluster.root), "--cdi-dir", str(self.folder / "cdi"))
        with (self.folder / "driver.log").open("ab") as log:
            command = [sys.executable, str(script), str(self.folder), *options, *folders]
            self._process = subprocess.Popen(command, stdout=log, stderr=log)

    def start_if_dead(self) -> None:
        if self._process is None or self._process.poll() is not None:
            self.start()

    def stop(self, number: int = signal.SIGTERM) -> None:
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(20)
            self._process = None


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("d")) as made:
        made.apply(_CLASS, _TEMPLATE)
        yield made


@pytest.fixture(scope="module")
def driver(cluster: Cluster) -> Iterator[DriverProcess]:
    made = DriverProcess(cluster)
    made.start()
    wait_for("a slice", lambda: cluster.run("get", "resourceslices", "-o", "name"))
    yield made
    made.stop()


def pod(cluster: Cluster, name: str, script: str = _LOOP, **spec: Any) -> None:
    """A pod with one device."""
    cluster.pod(
        name,
        shell("main", script, resources={"claims": [{"name": "gpu"}]}),
        resourceClaims=[{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}],
        **spec,
    )


def prepared(cluster: Cluster) -> int:
    """How many claims are recorded as prepared on the node."""
    state = json.loads((cluster.root / "dra_manager_state").read_text())
    return len(json.loads(state["Data"]).get("ClaimInfoStateList") or ())


def cdi_files(cluster: Cluster) -> list[str]:
    """The files of prepared claims."""
    return [each.name for each in (cluster.folder / "cdi").iterdir()]


def test_pods_get_different_devices_and_give_them_back(cluster: Cluster, driver: DriverProcess) -> None:  # noqa: ARG001
    for name in ("one", "two"):
        pod(cluster, name)
    for name in ("one", "two"):
        cluster.ready(name)
    said = {wait_for("a log", lambda name=name: cluster.run("logs", name)) for name in ("one", "two")}
    assert said == {"GPU_0=gpu-0\n", "GPU_1=gpu-1\n"}
    assert prepared(cluster) == 2
    pod(cluster, "three", "env | grep GPU_", restartPolicy="Never")
    assert cluster.get("pod", "three", "{.status.phase}") == "Pending"
    cluster.run("delete", "pod", "one", "--timeout=20s")
    # The device of the first is free: the third runs, ends, and gives it back.
    assert cluster.phase("three", "Succeeded", "Failed") == "Succeeded"
    wait_for("one claim left", lambda: prepared(cluster) == 1)
    cluster.run("delete", "pod", "two", "three", "--timeout=20s")
    wait_for("no claim left", lambda: prepared(cluster) == 0)
    assert cdi_files(cluster) == []
    wait_for("no claims", lambda: cluster.run("get", "resourceclaims", "-o", "name") == "")


def test_what_a_driver_refuses_is_told_and_tried_again(cluster: Cluster, driver: DriverProcess) -> None:
    refuse = driver.folder / "refuse"
    refuse.touch()
    pod(cluster, "waits")
    text = "FailedPrepareDynamicResources: Failed to prepare dynamic resources: prepare dynamic resources: "
    told = wait_for("an event", lambda: [each for each in cluster.events("waits") if each.startswith(text)])
    assert "the test refuses" in told[0]
    assert cluster.get("pod", "waits", "{.status.containerStatuses[0].state.waiting.reason}") == "ContainerCreating"
    refuse.unlink()
    cluster.ready("waits")
    refuse.touch()
    cluster.run("delete", "pod", "waits", "--wait=false")
    wait_for("stopped", lambda: "terminated" in cluster.get("pod", "waits", "{.status.containerStatuses[0].state}"))
    # The pod stays, and so does its claim, until the driver has taken the device back.
    assert cluster.get("pod", "waits", "{.status.phase}") == "Running"
    refuse.unlink()
    cluster.run("wait", "--for=delete", "pod/waits", "--timeout=30s")
    wait_for("no claim left", lambda: prepared(cluster) == 0)


def test_health_of_devices_is_told_in_the_pod(cluster: Cluster, driver: DriverProcess) -> None:
    pod(cluster, "healthy", "sleep 600")
    pod(cluster, "other", "sleep 600")
    cluster.ready("healthy")
    cluster.ready("other")
    path = "{.items[*].status.containerStatuses[0].allocatedResourcesStatus[0].resources[0].health}"

    def health() -> list[str]:
        return sorted(cluster.run("get", "pods", "-o", f"jsonpath={path}").split())

    wait_for("health", lambda: health() == ["Healthy", "Healthy"])
    (driver.folder / "sick").touch()
    wait_for("a sick device", lambda: health() == ["Healthy", "Unhealthy"])
    (driver.folder / "sick").unlink()
    cluster.run("delete", "pod", "healthy", "other", "--timeout=20s")


def test_devices_survive_the_death_of_agent_and_driver(cluster: Cluster, driver: DriverProcess) -> None:
    pod(cluster, "stays")
    pod(cluster, "goes")
    cluster.ready("stays")
    cluster.ready("goes")
    cluster.node.stop(signal.SIGKILL)
    driver.stop(signal.SIGKILL)
    cluster.run("delete", "pod", "goes", "--force", "--grace-period=0")
    driver.start()
    cluster.start_node()
    wait_for("one claim left", lambda: prepared(cluster) == 1, 90.0)
    assert cluster.get("pod", "stays", "{.status.containerStatuses[0].restartCount}") == "0"
    assert len(cdi_files(cluster)) == 1
    cluster.run("delete", "pod", "stays", "--timeout=30s")
    wait_for("no claim left", lambda: prepared(cluster) == 0)
    assert cdi_files(cluster) == []
