"""Pods with CPUs, a network card and TPU chips on a process node: control plane, agent and drivers as real processes."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from allot.core.model.codec import encode
from allot.devices.cpu import classes as cpu_classes
from allot.devices.nic import classes as nic_classes
from allot.devices.tpu import classes as tpu_classes
from e2e.kubectl import MISSING
from node.cluster import Cluster, shell, wait_for

pytestmark = [pytest.mark.slow, pytest.mark.skipif(shutil.which("kubectl") is None, reason=MISSING)]
_WAIT = "; trap 'exit 0' TERM; while true; do sleep 0.1; done"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("d")) as made:
        classes = (*cpu_classes.device_classes(), *nic_classes.device_classes(), *tpu_classes.device_classes())
        made.apply(*(msgspec.to_builtins(encode(each)) for each in classes))
        where = ("--node-name", "n1", "--kubeconfig", str(made.kubeconfig), "--port", "-1")
        folders = ("--kubelet-root", str(made.root), "--cdi-dir", str(made.folder / "cdi"))
        commands = {
            "cpu": ("--pin",),
            "nic": ("--profile", "a3-ultragpu-8g", "--share-bandwidth"),
            "tpu": ("--profile", "ct6e-standard-4t", "--logs-dir", str(made.folder / "tpu-logs")),
        }
        running = []
        for name, options in commands.items():
            with (made.folder / f"{name}-driver.log").open("ab") as log:
                command = [sys.executable, "-m", f"allot.devices.{name}", *options, *where, *folders]
                running.append(subprocess.Popen(command, stdout=log, stderr=log))
        try:
            for driver in ("dra.cpu", "dra.net", "tpu.google.com"):
                wait_for(driver, lambda name=driver: name in made.run("get", "resourceslices", "-o", "name"))  # type: ignore[misc]
            yield made
        finally:
            for process in running:
                process.terminate()
            for process in running:
                process.wait(20)


def said(cluster: Cluster, name: str, text: str, exactly: dict[str, Any], script: str) -> str:
    """The log of a pod with one request, once it has the text."""
    cluster.apply(
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {"name": name},
            "spec": {"devices": {"requests": [{"name": "device", "exactly": exactly}]}},
        }
    )
    cluster.pod(
        name,
        shell("main", script + _WAIT, resources={"claims": [{"name": "device"}]}),
        restartPolicy="Never",
        resourceClaims=[{"name": "device", "resourceClaimName": name}],
    )

    def look() -> str:
        log = cluster.run("logs", name, check=False)
        return log if text in log else ""

    return wait_for(f"{text!r} in the log of {name}", look)


def test_a_container_runs_on_its_cpus_alone(cluster: Cluster) -> None:
    exactly = {"deviceClassName": "dra.cpu", "capacity": {"requests": {"dra.cpu/cpu": "1"}}}
    # The hook runs once the container does. Shells do not hand on
    # variables with dashes in their names, and $$ is one $ in a pod.
    script = "sleep 2; tr '\\0' '\\n' </proc/$$$$/environ | grep DRA_CPUSET; grep Cpus_allowed_list /proc/self/status; echo done"
    log = said(cluster, "pinned", "done", exactly, script)
    given = next(line.partition("=")[2] for line in log.splitlines() if line.startswith("DRA_CPUSET_"))
    allowed = next(line.split()[1] for line in log.splitlines() if line.startswith("Cpus_allowed_list"))
    assert given == allowed
    assert given.isdigit()
    cluster.run("delete", "pod", "pinned", "--grace-period=1")


def test_a_claim_tells_the_network_of_its_card(cluster: Cluster) -> None:
    exactly = {"deviceClassName": "mrdma.google.com", "capacity": {"requests": {"dra.net/bandwidth": "100G"}}}
    log = said(cluster, "net", "_BANDWIDTH=100000000000", exactly, "env | grep NET_DEVICE")
    name = "{.status.devices[0].networkData.interfaceName}"
    found = wait_for("network data", lambda: cluster.get("resourceclaim", "net", name))
    assert f"={found}\n" in log
    cluster.run("delete", "pod", "net", "--grace-period=1")


def test_all_chips_come_with_their_environment(cluster: Cluster) -> None:
    exactly = {"deviceClassName": "tpu.google.com", "allocationMode": "All"}
    log = said(cluster, "tpu", "done", exactly, "env | grep TPU_; echo done")
    assert {"TPU_TOPOLOGY=2x2", "TPU_ACCELERATOR_TYPE=v6e-4"} <= set(log.splitlines())
    assert log.count("_RESOURCE_CLAIM=") == 4
    cluster.run("delete", "pod", "tpu", "--grace-period=1")


def test_fewer_chips_than_all_are_an_event_on_the_pod(cluster: Cluster) -> None:
    cluster.run("delete", "resourceclaim", "tpu", "--ignore-not-found")
    exactly = {"deviceClassName": "tpu.google.com", "allocationMode": "ExactCount", "count": 2}
    requests = [{"name": "device", "exactly": exactly}]
    cluster.apply(
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {"name": "part"},
            "spec": {"devices": {"requests": requests}},
        }
    )
    cluster.pod(
        "part",
        shell("main", "true", resources={"claims": [{"name": "device"}]}),
        restartPolicy="Never",
        resourceClaims=[{"name": "device", "resourceClaimName": "part"}],
    )
    text = "you must request all 4 chips on this node together"
    wait_for("an event", lambda: text in cluster.run("get", "events", "-o", "jsonpath={.items[*].message}"))
