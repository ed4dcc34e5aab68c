"""What the documents show happens: their manifests, converted, and their commands as they stand, on simulated hardware."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from allot.core.quantity import Quantity
from e2e.seeds.documents import AKS, GA, MISSING, RISEUNION, document, seeds_dir
from e2e.seeds.shell import Shell, cluster

pytestmark = [pytest.mark.slow, pytest.mark.skipif(seeds_dir() is None, reason=MISSING)]


# --- two pods, one GPU ---


@pytest.fixture(scope="module")
def with_one_gpu(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    """The cluster of the AKS document: a control plane, and a node with one T4."""
    with cluster(tmp_path_factory.mktemp("aks"), "--node", "Standard_NC4as_T4_v3") as shell:
        yield shell


def test_of_two_pods_that_want_the_only_gpu_the_second_runs_when_the_first_is_gone(with_one_gpu: Shell) -> None:
    apply, get, describe, delete, get_again = document(AKS).commands
    assert get == get_again
    printed = with_one_gpu.run(apply)
    assert {"namespace/gpu-test1 created", "pod/pod1 created", "pod/pod2 created"} <= set(printed.splitlines())
    with_one_gpu.shows(get, lambda table: _status(table, "gpu-test1", "pod1") == ("1/1", "Running"))
    assert _status(with_one_gpu.run(get), "gpu-test1", "pod2") == ("0/1", "Pending")
    described = with_one_gpu.shows(describe, lambda text: "FailedScheduling" in text)
    assert re.search(r"^Status: +Pending$", described, re.MULTILINE)
    assert re.search(r"^ +PodScheduled +False", described, re.MULTILINE)
    event = r"Warning +FailedScheduling .* default-scheduler +0/2 nodes are available: 1 cannot allocate all claims"
    assert re.search(event, described)
    assert 'pod "pod1" deleted' in with_one_gpu.run(delete)
    table = with_one_gpu.shows(get_again, lambda table: _status(table, "gpu-test1", "pod2") == ("1/1", "Running"))
    assert "pod1" not in table


def _status(table: str, namespace: str, name: str) -> tuple[str, str] | None:
    """READY and STATUS of a pod in a table of all namespaces."""
    found = re.search(rf"^{namespace} +{name} +(\S+) +(\S+)", table, re.MULTILINE)
    return (found[1], found[2]) if found else None


# --- manifests of the documents ---

# The drivers that the documents name, on hardware that would do and hardware that would not.
NODES = {
    "nodes": [
        {"name": "small", "profile": "t4", "drivers": {"gpu": {"driverName": "gpu-driver.example.com"}}},
        {"name": "large", "profile": "l4", "drivers": {"gpu": {"driverName": "gpu-driver.example.com"}}},
        {"name": "kitchen", "profile": "t4", "drivers": {"gpu": {"driverName": "resource-driver.example.com"}}},
        {"name": "trainer", "profile": "p4d.24xlarge"},
        {"name": "other", "profile": "h100x8"},
    ]
}


@pytest.fixture(scope="module")
def with_all_drivers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    """A cluster in which every driver of the documents has nodes, and gangs are known."""
    folder = tmp_path_factory.mktemp("all")
    (folder / "nodes.yaml").write_text(yaml.safe_dump(NODES))
    with cluster(folder, "--node", "nodes.yaml", "--feature-gates", "GenericWorkload=true") as shell:
        yield shell


def _apply(shell: Shell, folder: Path, title: str) -> list[str]:
    """Convert the manifests of a document and apply them; what kubectl says."""
    files = []
    for number, text in enumerate(document(title).manifests, 1):
        file = folder / f"{number}.yaml"
        file.write_text(text)
        files.append(str(file))
    return shell.run(f"allot convert --gangs {' '.join(files)} | kubectl apply -f -").splitlines()


def _wait_until_running(shell: Shell, pod: str) -> None:
    shell.shows(f"kubectl get pod {pod} -o jsonpath={{.status.phase}}", lambda phase: phase == "Running")


def _items(shell: Shell, kind: str) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = json.loads(shell.run(f"kubectl get {kind} -o json"))["items"]
    return items


def _claim(shell: Shell, prefix: str) -> dict[str, Any]:
    """The claim that was made for a pod."""
    (claim,) = [claim for claim in _items(shell, "resourceclaims") if claim["metadata"]["name"].startswith(prefix)]
    return claim


def test_the_stock_prediction_pod_runs_on_a_gpu_with_enough_memory(with_all_drivers: Shell, tmp_path: Path) -> None:
    applied = _apply(with_all_drivers, tmp_path, RISEUNION)
    assert "pod/stock-prediction-pod created" in applied
    _wait_until_running(with_all_drivers, "stock-prediction-pod")
    (allocated,) = _claim(with_all_drivers, "stock-prediction-pod-gpu-req-")["status"]["allocation"]["devices"][
        "results"
    ]
    slices = _items(with_all_drivers, "resourceslices")
    (memory,) = [
        device["capacity"]["memory"]["value"]
        for each in slices
        for device in each["spec"]["devices"]
        if each["spec"]["pool"]["name"] == allocated["pool"] and device["name"] == allocated["device"]
    ]
    assert Quantity.parse(memory) >= Quantity.parse("16Gi")


def test_two_containers_of_a_pod_share_one_claim(with_all_drivers: Shell, tmp_path: Path) -> None:
    applied = _apply(with_all_drivers, tmp_path, AKS)
    assert "pod/pod created" in applied
    _wait_until_running(with_all_drivers, "pod")
    seen = {with_all_drivers.run(f"kubectl exec pod -c container{number} -- nvidia-smi -L") for number in (0, 1)}
    (only,) = seen
    assert only.count("UUID: GPU-") == 1
    claim = _claim(with_all_drivers, "pod-gpu-")
    assert [user["name"] for user in claim["status"]["reservedFor"]] == ["pod"]


def test_the_training_job_has_four_gpus_on_the_machine_that_it_asked_for(
    with_all_drivers: Shell, tmp_path: Path
) -> None:
    slices, claims, smi, log = document(GA).commands
    applied = _apply(with_all_drivers, tmp_path, GA)
    assert {"pod/training-job created", "podgroup.scheduling.k8s.io/distributed-training created"} <= set(applied)
    _wait_until_running(with_all_drivers, "training-job")
    assert re.search(r"^\S+ +trainer +gpu\.nvidia\.com +trainer +\S+$", with_all_drivers.run(slices), re.MULTILINE)
    assert re.search(r"^training-gpus +allocated,reserved +\S+$", with_all_drivers.run(claims), re.MULTILINE)
    assert with_all_drivers.run(smi).count("NVIDIA A100-SXM4-40GB") == 4
    node = with_all_drivers.run("kubectl get pod training-job -o jsonpath={.spec.nodeName}")
    labels = with_all_drivers.run(f"kubectl get node {node} --show-labels")
    assert "node.kubernetes.io/instance-type=p4d.24xlarge" in labels
    # The document leaves out the end of the pod's name, which is that of the node.
    pods = with_all_drivers.run("kubectl get pods -n kube-system -o name").split()
    (scheduler,) = [pod.removeprefix("pod/") for pod in pods if pod.startswith("pod/kube-scheduler-")]
    decisions = with_all_drivers.run(log.replace("kube-scheduler- ", f"{scheduler} ")).splitlines()
    (decision,) = [line for line in decisions if "default/training-job" in line]
    assert "claim training-gpus" in decision
    assert decision.count("gpu.nvidia.com/trainer/gpu-") == 4
