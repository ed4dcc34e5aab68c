"""The whole on one real node: the chart applied to Kubernetes' own control plane, kubelet and containerd, with the project's image.

Needs KUBEBUILDER_ASSETS with kube-apiserver, kube-controller-manager, kube-scheduler, kubelet and etcd, root, containerd, and ALLOT_IMAGE, the
archive that `make image` writes. ALLOT_CONTEST_PODS: how many pods each scheduler gets in the contest; a leader of the guard is then killed on
the way.
"""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from cli.command import allot
from containerd_server import IMAGE
from e2e.components import ASSETS
from e2e.contest import DoubleAllocations
from e2e.real_node import NODE, RealNode, real_node
from waiting import WAIT_S, wait_for

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]

DRIVER = "gpu.nvidia.com"
RUNS_S = 4 * WAIT_S
CONTEST_PODS = int(os.environ.get("ALLOT_CONTEST_PODS", "0"))
CONTEST_S = RUNS_S + 6.0 * CONTEST_PODS
GUARD_LEASE = "/apis/coordination.k8s.io/v1/namespaces/allot-system/leases/allot-guard"

TEMPLATE = """
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: gpu}
spec: {spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu.nvidia.com}}]}}}
"""
POD = """
---
apiVersion: v1
kind: Pod
metadata: {{name: {name}, labels: {labels}, annotations: {annotations}}}
spec:
  schedulerName: {scheduler}
  restartPolicy: Never
  terminationGracePeriodSeconds: 0
  resourceClaims: [{{name: gpu, resourceClaimTemplateName: gpu}}]
  containers:
  - name: main
    image: {image}
    command: [sh, -c, '/usr/local/bin/nvidia-smi -L; {command}']
    resources: {{claims: [{{name: gpu}}]}}
"""


def pod(name: str, scheduler: str, command: str = "sleep 1000", labels: str = "{}", annotations: str = "{}") -> str:
    return POD.format(
        name=name, scheduler=scheduler, command=command, labels=labels, annotations=annotations, image=IMAGE
    )


class World:
    """The node with what is installed on it."""

    def __init__(self, node: RealNode) -> None:
        self.node = node
        self.kubectl = node.kubectl
        self.caller = node.caller

    def run(self, *arguments: str) -> str:
        done = allot(*arguments, "--kubeconfig", str(self.node.kubeconfig))
        assert done.code == 0, f"{arguments}: {done.stdout[-2000:]}{done.stderr[-4000:]}"
        return done.stderr

    def install(self, *arguments: str) -> str:
        node = self.node
        values = {
            "kubelet.root": node.root,
            "cdi.dir": node.containerd.cdi,
            "apiServer.host": node.address,
            "apiServer.port": node.port,
        }
        settings = [part for key, value in values.items() for part in ("--set", f"{key}={value}")]
        return self.run("install", *arguments, *settings, "--image", "allot:0.1.0", "--timeout", f"{RUNS_S:g}s")

    def everything(self) -> set[str]:
        done = allot(
            "export", "--system", "--secrets", "--finished", "-o", "json", "--kubeconfig", str(self.node.kubeconfig)
        )
        return {
            f"{each['kind']} {each['metadata'].get('namespace', '')}/{each['metadata']['name']}" for each in done.lines
        }

    def pods(self) -> dict[str, Any]:
        return {each["metadata"]["name"]: each for each in self.caller.get("/api/v1/namespaces/default/pods")["items"]}

    def wait_for_phase(self, phase: str, *names: str, seconds: float = RUNS_S) -> None:
        def reached() -> bool:
            found = self.pods()
            return all(name in found and found[name]["status"].get("phase") == phase for name in names)

        wait_for(f"{', '.join(names)}: {phase}", reached, seconds)


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    archive = os.environ.get("ALLOT_IMAGE")
    if not archive or not Path(archive).exists():
        pytest.skip("ALLOT_IMAGE names no archive: make image writes one")
    if not os.environ.get(ASSETS):
        pytest.skip(f"{ASSETS} is not set")
    with real_node() as node:
        node.containerd.import_archive(Path(archive))
        yield World(node)


@contextmanager
def watched_registration(world: World) -> Iterator[list[float]]:
    """Moments at which no instance of the driver could be reached by the kubelet."""
    gaps: list[float] = []
    stop = threading.Event()

    def is_served(path: Path) -> bool:
        with socket.socket(socket.AF_UNIX) as probe:
            try:
                probe.connect(str(path))
            except OSError:
                return False
        return True

    def watch() -> None:
        folder = world.node.root / "plugins" / DRIVER
        while not stop.wait(0.05):
            if not any(is_served(path) for path in folder.glob("*.sock")):
                gaps.append(time.monotonic())

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield gaps
    finally:
        stop.set()
        thread.join()


def test_the_whole(world: World) -> None:
    kubectl = world.kubectl
    before = world.everything()
    # A driver, and a pod of kube-scheduler's that sees its device.
    world.install("drivers", "gpu", "--simulate", "h100x8")
    wait_for("slices", lambda: world.caller.get("/apis/resource.k8s.io/v1/resourceslices")["items"])
    kubectl.apply(TEMPLATE + pod("plain", "default-scheduler"))
    world.wait_for_phase("Running", "plain")
    wait_for("it sees its device", lambda: "H100" in kubectl("logs", "plain"))
    # The guard with a standby, and a scheduler beside kube-scheduler, on the same devices.
    world.install("guard")
    world.install("scheduler", "--isolation", "guard", "--set", "scheduler.replicas=1")
    _contest(world)
    # An update of the driver while pods come: one instance or the other answers, all the time.
    with watched_registration(world) as gaps:
        world.install("drivers", "gpu", "--simulate", "h100x8", "--set", "drivers.gpu.podAnnotations.round=second")
    kubectl.apply(pod("after", "allot"))
    world.wait_for_phase("Running", "after")
    assert gaps == []
    refused = allot("uninstall", "drivers", "--kubeconfig", str(world.node.kubeconfig))
    assert refused.code == 1 and "devices of these drivers are in use by 2 claims" in refused.stderr
    _gang_in_a_queue(world)
    kubectl("delete", "pods", "--all", "--timeout=60s")
    kubectl("delete", "resourceclaimtemplate", "gpu")
    world.run("uninstall", "--definitions", "--timeout", f"{RUNS_S:g}s")
    assert world.everything() - before == set()
    # The kubelet removes slices of a driver that is gone, after half a minute.
    wait_for("no slices", lambda: not world.caller.get("/apis/resource.k8s.io/v1/resourceslices")["items"], RUNS_S)


def _contest(world: World) -> None:
    """Pods of both schedulers on the same devices; no device is ever in two claims."""
    seen_twice = DoubleAllocations(world.caller, "default")
    seen_twice.start()
    started = time.monotonic()
    count, schedulers = CONTEST_PODS or 6, ("allot", "default-scheduler")
    names = [f"{scheduler}-{number}" for number in range(count) for scheduler in schedulers]
    world.kubectl.apply("".join(pod(name, name.rpartition("-")[0], "sleep 1") for name in names))
    if CONTEST_PODS:
        world.wait_for_phase("Succeeded", *names[: count // 2], seconds=CONTEST_S)
        leader = world.caller.get(GUARD_LEASE)["spec"]["holderIdentity"].partition("_")[0]
        world.kubectl("delete", "pod", leader, "--namespace=allot-system", "--grace-period=0", "--force")
    world.wait_for_phase("Succeeded", *names, seconds=CONTEST_S)
    episodes = seen_twice.finish()
    sys.stdout.write(f"{len(names)} pods, {len(episodes)} double allocations, {time.monotonic() - started:.0f} s\n")
    assert episodes == []
    world.kubectl("delete", "resourceclaim", "the-end")


def _gang_in_a_queue(world: World) -> None:
    """Two pods that start together or not at all, in a queue: neither before both are there."""
    world.install("queues", "--set", "queues.replicas=1")
    world.kubectl.apply(
        "apiVersion: scheduling.run.ai/v2\nkind: Queue\nmetadata: {name: team}\n"
        "spec: {resources: {gpu: {quota: 4, limit: 4}, cpu: {quota: -1, limit: -1}, memory: {quota: -1, limit: -1}}}\n"
    )
    world.kubectl.apply(
        "apiVersion: scheduling.run.ai/v2alpha2\nkind: PodGroup\nmetadata: {name: gang}\nspec: {minMember: 2, queue: team}\n"
    )
    labels, annotations = "{kai.scheduler/queue: team}", "{pod-group-name: gang}"
    world.kubectl.apply(pod("gang-0", "allot", labels=labels, annotations=annotations))
    # Whoever came after it is placed: it could have been, too.
    world.kubectl.apply(pod("later", "allot"))
    world.wait_for_phase("Running", "later")
    assert "nodeName" not in world.pods()["gang-0"]["spec"]
    world.kubectl.apply(pod("gang-1", "allot", labels=labels, annotations=annotations))
    world.wait_for_phase("Running", "gang-0", "gang-1")
    assert {world.pods()[name]["spec"]["nodeName"] for name in ("gang-0", "gang-1")} == {NODE}
    world.kubectl("delete", "queues.scheduling.run.ai", "team")
