"""Pods with GPUs on a process node: control plane, agent and the GPU driver as real processes, containers that look."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from allot.core.model.codec import encode
from allot.devices.gpu.classes import device_classes
from allot.devices.gpu.simulated import inject, parse_fault
from devices.gpu.world import mig_request, opaque, request
from e2e.kubectl import MISSING
from node.cluster import Cluster, shell, wait_for

pytestmark = [pytest.mark.slow, pytest.mark.skipif(shutil.which("kubectl") is None, reason=MISSING)]
_WAIT = "; trap 'exit 0' TERM; while true; do sleep 0.1; done"


class GpuDriverProcess:
    """The driver as a process; it can be killed and started with other options."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, *options: str) -> None:
        folder = self._cluster.folder
        where = ("--node-name", "n1", "--kubeconfig", str(self._cluster.kubeconfig), "--port", "-1")
        folders = ("--kubelet-root", str(self._cluster.root), "--cdi-dir", str(folder / "cdi"))
        state = ("--state-dir", str(folder / "gpus"))
        with (folder / "gpu-driver.log").open("ab") as log:
            command = [sys.executable, "-m", "allot.devices.gpu", *options, *where, *folders, *state]
            self._process = subprocess.Popen(command, stdout=log, stderr=log)

    def stop(self, number: int = signal.SIGTERM) -> None:
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(20)
            self._process = None


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("g")) as made:
        made.apply(*(msgspec.to_builtins(encode(each)) for each in device_classes()))
        yield made


@pytest.fixture(scope="module")
def driver(cluster: Cluster) -> Iterator[GpuDriverProcess]:
    made = GpuDriverProcess(cluster)
    made.start("--profile", "h100x2", "--feature-gates", "DynamicMIG=true")
    wait_for("slices", lambda: "gpu.nvidia.com" in cluster.run("get", "resourceslices", "-o", "name"))
    yield made
    made.stop()


def template(cluster: Cluster, name: str, *requests: dict[str, Any], config: tuple[dict[str, Any], ...] = ()) -> None:
    devices: dict[str, Any] = {"requests": list(requests), **({"config": list(config)} if config else {})}
    cluster.apply(
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaimTemplate",
            "metadata": {"name": name},
            "spec": {"spec": {"devices": devices}},
        }
    )


def pod(cluster: Cluster, name: str, template_name: str, script: str) -> None:
    cluster.pod(
        name,
        shell("main", script, resources={"claims": [{"name": "gpu"}]}),
        restartPolicy="Never",
        resourceClaims=[{"name": "gpu", "resourceClaimTemplateName": template_name}],
    )


def said(cluster: Cluster, name: str, text: str) -> str:
    """The log of a pod once it has the text."""

    def look() -> str:
        log = cluster.run("logs", name, check=False)
        return log if text in log else ""

    return wait_for(f"{text!r} in the log of {name}", look)


def test_a_pod_sees_its_gpu_and_no_other(cluster: Cluster, driver: GpuDriverProcess) -> None:  # noqa: ARG001
    template(cluster, "one-gpu", request())
    pod(cluster, "first", "one-gpu", f"nvidia-smi -L{_WAIT}")
    pod(cluster, "second", "one-gpu", f"nvidia-smi -L{_WAIT}")
    first, second = said(cluster, "first", "GPU 0: "), said(cluster, "second", "GPU 0: ")
    assert len(first.splitlines()) == len(second.splitlines()) == 1
    assert first != second
    assert "No running processes found" in cluster.run("exec", "first", "--", "nvidia-smi")
    cluster.run("delete", "pod", "first", "second", "--grace-period=1")


def test_mig_instances_come_and_go_with_their_pods(cluster: Cluster, driver: GpuDriverProcess) -> None:
    template(cluster, "prod", mig_request("gpu", "3g.40gb"))
    template(cluster, "dev", mig_request("gpu", "1g.10gb"))
    pod(cluster, "prod", "prod", f"nvidia-smi -L{_WAIT}")
    pod(cluster, "dev", "dev", f"nvidia-smi -L; gpu-memory 9Gi; gpu-memory 10Gi{_WAIT}")
    prod, dev = said(cluster, "prod", "MIG 3g.40gb"), said(cluster, "dev", "CUDA error: out of memory")
    assert prod.splitlines()[0] == dev.splitlines()[0], "both on one GPU"
    assert "allocated 9216 MiB" in dev
    assert "9984 MiB memory of MIG instance 1g.10gb" in dev
    state = cluster.folder / "gpus" / "state.json"
    assert state.read_text().count('"start":') == 2
    # The driver may die meanwhile.
    driver.stop(signal.SIGKILL)
    driver.start("--profile", "h100x2", "--feature-gates", "DynamicMIG=true")
    cluster.run("delete", "pod", "prod", "dev", "--grace-period=1")
    wait_for("no MIG instances", lambda: '"start":' not in state.read_text())
    wait_for("no CDI files", lambda: not list((cluster.folder / "cdi").glob("*claim_*-*.json")))


def test_a_program_that_wants_more_than_its_mps_limit_fails(cluster: Cluster, driver: GpuDriverProcess) -> None:  # noqa: ARG001
    mps = {"defaultActiveThreadPercentage": 50, "defaultPinnedDeviceMemoryLimit": "15Gi"}
    config = opaque("GpuConfig", {"sharing": {"strategy": "MPS", "mpsConfig": mps}})
    template(cluster, "mps", request(), config=(config,))
    pod(cluster, "greedy", "mps", "gpu-memory 14Gi && gpu-memory 37683Mi")
    log = said(cluster, "greedy", "MPS limit 15360 MiB per client")
    assert "allocated 14336 MiB" in log
    wait_for("a failed pod", lambda: cluster.get("pod", "greedy", "{.status.phase}") == "Failed")
    wait_for("no MPS daemon", lambda: not list((cluster.folder / "gpus" / "mps").iterdir()))


def test_parameters_that_make_no_sense_are_an_event_on_the_pod(cluster: Cluster, driver: GpuDriverProcess) -> None:  # noqa: ARG001
    template(cluster, "odd", request(), config=(opaque("GpuConfig", {"sharin": {}}),))
    pod(cluster, "odd", "odd", "true")
    text = 'strict decoding error: unknown field "sharin"'
    wait_for("an event", lambda: text in cluster.run("get", "events", "-o", "jsonpath={.items[*].message}"))
    cluster.run("delete", "pod", "odd", "--grace-period=1")


def test_a_gpu_can_be_had_as_an_extended_resource(cluster: Cluster, driver: GpuDriverProcess) -> None:  # noqa: ARG001
    limits = {"limits": {"nvidia.com/gpu": "1"}}
    cluster.pod("plain", shell("main", f"nvidia-smi -L{_WAIT}", resources=limits), restartPolicy="Never")
    log = said(cluster, "plain", "GPU 0: ")
    assert len(log.splitlines()) == 1
    assert cluster.get("pod", "plain", "{.status.extendedResourceClaimStatus.resourceClaimName}")
    cluster.run("delete", "pod", "plain", "--grace-period=1")


def test_a_fault_is_seen_in_the_status_of_the_pod(cluster: Cluster, driver: GpuDriverProcess) -> None:  # noqa: ARG001
    template(cluster, "one-gpu", request())
    pod(cluster, "sick", "one-gpu", f"nvidia-smi -L{_WAIT}")
    said(cluster, "sick", "GPU 0: ")
    state = cluster.folder / "gpus"
    inject(state, "0", [parse_fault("lost")])
    inject(state, "1", [parse_fault("lost")])
    path = "{.status.containerStatuses[0].allocatedResourcesStatus[0].resources[0].health}"
    wait_for("an unhealthy device", lambda: cluster.get("pod", "sick", path) == "Unhealthy")
    assert "GPU is lost" in cluster.run("exec", "sick", "--", "nvidia-smi", "-L", check=False)
    slices = "{.items[*].spec.devices[*].taints[*].key}"
    wait_for("taints", lambda: "gpu-lost" in cluster.run("get", "resourceslices", "-o", f"jsonpath={slices}"))
    inject(state, "0", [])
    inject(state, "1", [])
    wait_for("a healthy device", lambda: cluster.get("pod", "sick", path) == "Healthy")
    cluster.run("delete", "pod", "sick", "--grace-period=1")
