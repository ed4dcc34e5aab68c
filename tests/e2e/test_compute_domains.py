"""ComputeDomains as people use them: `allot up` with two racks of GB200, kubectl, a job over several trays (scenario 108)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from e2e.kubectl import MISSING, Kubectl, find_kubectls
from waiting import wait_for

pytestmark = pytest.mark.slow

TRAYS, RANKS = 20, 3
DAEMONS = "dra-driver-nvidia-gpu"
CLIQUE, DOMAIN = "nvidia.com/gpu.clique", "resource.nvidia.com/computeDomain"
CHANNEL_CLASS = "compute-domain-default-channel.nvidia.com"
JOB = f"""
apiVersion: resource.nvidia.com/v1beta1
kind: ComputeDomain
metadata: {{name: nccl}}
spec: {{numNodes: {RANKS}, channel: {{resourceClaimTemplate: {{name: nccl-channel}}}}}}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {{name: tray}}
spec: {{spec: {{devices: {{requests: [{{name: gpus, exactly: {{deviceClassName: gpu.nvidia.com, count: 4}}}}]}}}}}}
---
apiVersion: scheduling.k8s.io/v1beta1
kind: PodGroup
metadata: {{name: nccl}}
spec:
  schedulingPolicy: {{gang: {{minCount: {RANKS}}}}}
  schedulingConstraints: {{topology: [{{key: {CLIQUE}}}]}}
---
apiVersion: batch/v1
kind: Job
metadata: {{name: nccl}}
spec:
  parallelism: {RANKS}
  completions: {RANKS}
  template:
    metadata: {{labels: {{app: nccl}}}}
    spec:
      restartPolicy: OnFailure
      terminationGracePeriodSeconds: 1
      schedulingGroup: {{podGroupName: nccl}}
      containers:
      - name: rank
        image: nccl-tests
        command: [sh, -c, "ls /dev/nvidia-caps-imex-channels; nvidia-smi -L | wc -l; sleep 9999"]
        resources: {{claims: [{{name: gpus}}, {{name: channel}}]}}
      resourceClaims:
      - {{name: gpus, resourceClaimTemplateName: tray}}
      - {{name: channel, resourceClaimTemplateName: nccl-channel}}
"""


class Racks:
    """`allot up` whose objects outlive it, and kubectl."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._environment = {**os.environ, "HOME": str(folder)}
        self.kubectl: Kubectl

    def allot(self, *arguments: str, code: int = 0) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "allot", *arguments],
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout

    def start(self, *arguments: str) -> None:
        self.allot("up", "--detach", "--port", "0", "--data-dir", str(self.folder / "data"), *arguments)
        config = self.folder / "data" / "admin.kubeconfig"
        # Each start has a port of its own.
        self.kubectl = Kubectl(next(iter(find_kubectls().values())), config, self.folder, "nccl")

    def stop(self) -> None:
        self.allot("down", "--data-dir", str(self.folder / "data"))

    def fabric(self, node: str, fault: str) -> None:
        """What is wrong with the NVLink of a tray."""
        state = self.folder / "data" / "nodes" / "simulated" / "nodes" / node / "plugins" / "compute-domain.nvidia.com"
        command = [sys.executable, "-m", "allot.devices.computedomain", "fault", "--state-dir", str(state), fault]
        subprocess.run(command, check=True, timeout=60)

    def items(self, *what: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.kubectl.json("get", *what)["items"]
        return found

    def domain(self) -> dict[str, Any]:
        (found,) = self.items("computedomains")
        return found

    def ranks(self) -> dict[str, dict[str, Any]]:
        """The job's pods by node, as soon as each has one."""
        pods = self.items("pods", "-l", "app=nccl")
        found = {pod["spec"].get("nodeName", ""): pod for pod in pods}
        return found if len(found) == RANKS and "" not in found else {}

    def are_ready(self) -> bool:
        states = [pod["status"].get("containerStatuses", [{}])[0].get("ready") for pod in self.ranks().values()]
        return states == [True] * RANKS


@pytest.fixture
def racks() -> Iterator[Racks]:
    if not find_kubectls():
        pytest.skip(MISSING)
    with tempfile.TemporaryDirectory(prefix="w-") as folder:
        made = Racks(Path(folder))
        made.start("--node", f"gb200-nvl72={TRAYS}")
        try:
            yield made
        finally:
            made.stop()


def _thief(uid: str) -> dict[str, Any]:
    """A claim in another namespace that names the domain all the same."""
    parameters = {"apiVersion": "resource.nvidia.com/v1beta1", "kind": "ComputeDomainChannelConfig", "domainID": uid}
    devices = {
        "requests": [{"name": "channel", "exactly": {"deviceClassName": CHANNEL_CLASS}}],
        "config": [{"opaque": {"driver": "compute-domain.nvidia.com", "parameters": parameters}}],
    }
    claim = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "thief"}}
    container = {"name": "main", "image": "thief", "resources": {"claims": [{"name": "channel"}]}}
    spec = {"containers": [container], "resourceClaims": [{"name": "channel", "resourceClaimName": "thief"}]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "thief"}, "spec": spec}
    return {"apiVersion": "v1", "kind": "List", "items": [{**claim, "spec": {"devices": devices}}, pod]}


@pytest.mark.timeout(300)
def test_a_job_over_several_trays_runs_in_one_nvlink_domain(racks: Racks) -> None:
    kubectl = racks.kubectl
    # 18 trays of one rack and two of another: the job fits into the first only. One tray of it is broken.
    cliques = {node["metadata"]["name"]: node["metadata"]["labels"].get(CLIQUE) for node in racks.items("nodes")}
    racks.fabric("gb200-nvl72-0", "fabric state is in progress")
    kubectl("create", "namespace", "nccl")
    kubectl.apply(JOB)
    ranks = wait_for("all ranks have nodes", racks.ranks)
    assert {cliques[node] for node in ranks} == {cliques["gb200-nvl72-0"]}
    assert "gb200-nvl72-0" in ranks, "nobody knows that its fabric is broken before a daemon is to run there"
    wait_for("the others are ready", lambda: _ready_nodes(racks.domain()) == set(ranks) - {"gb200-nvl72-0"})
    assert racks.domain()["status"]["status"] == "NotReady"

    # Whoever looks is told the domain, the node and the fault; and whoever has no business there, that.
    config = ("--kubeconfig", str(kubectl.kubeconfig))
    waiting = f"pod/{ranks['gb200-nvl72-0']['metadata']['name']}"

    def explained() -> str:
        said = racks.allot("explain", *config, "-n", "nccl", waiting, code=1)
        return said if "fabric state is in progress" in said else ""

    assert "ComputeDomain nccl/nccl is not ready on node gb200-nvl72-0" in wait_for("the fault is told", explained)
    uid = racks.domain()["metadata"]["uid"]
    kubectl.apply(json.dumps(_thief(uid)), "-n", "default")

    # Controllers, agents and drivers end in between; the tray is repaired meanwhile.
    racks.stop()
    racks.fabric("gb200-nvl72-0", "clear")
    racks.start()
    wait_for("the domain is ready", lambda: racks.domain()["status"]["status"] == "Ready")
    wait_for("all ranks run", racks.are_ready)
    assert sorted(each["index"] for each in racks.domain()["status"]["nodes"]) == list(range(RANKS))
    kubectl = racks.kubectl
    for pod in ranks.values():
        assert kubectl("logs", pod["metadata"]["name"]).split() == ["channel0", "4"]

    def refused() -> str:
        events = kubectl("get", "events", "-n", "default", "-o", "json")
        return events if f"ComputeDomain {uid} is not in namespace default" in events else ""

    wait_for("the thief is told", refused)

    # Nothing of a domain stays behind.
    kubectl("delete", "computedomain", "nccl", "--timeout=60s")
    assert racks.items("daemonsets", "-n", DAEMONS) == []
    assert racks.items("nodes", "-l", DOMAIN) == []
    assert [each["metadata"]["name"] for each in racks.items("resourceclaimtemplates")] == ["tray"]
    assert racks.items("resourceclaimtemplates", "-n", DAEMONS) == []


def _ready_nodes(domain: dict[str, Any]) -> set[str]:
    nodes = (domain.get("status") or {}).get("nodes") or ()
    return {each["name"] for each in nodes if each["status"] == "Ready"}
