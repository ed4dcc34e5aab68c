"""Accelerators behind a fabric as people use them: the example's controller and node part, a scheduler, an agent, kubectl."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from e2e.kubectl import MISSING, find_kubectls
from e2e.parts import Part
from node.cluster import Cluster, shell
from short_paths import tmp_path as tmp_path
from waiting import WAIT_S, wait_for

pytestmark = pytest.mark.slow

NAME = "fabric.example.com"


class Fabric:
    """A node in the rack, and the driver's two parts."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.switch = cluster.folder / "fabric"
        folders = ("--kubelet-root", str(cluster.root), "--cdi-dir", str(cluster.folder / "cdi"))
        self._common = ("--fabric", str(self.switch), "--kubeconfig", str(cluster.kubeconfig))
        self.node = Part(cluster, "fabric.py", "node", *self._common, "--node-name", "n1", *folders)
        self.start_controller()

    def start_controller(self) -> None:
        self.controller = Part(self.cluster, "fabric.py", "controller", *self._common)

    def attached(self) -> dict[str, str]:
        return {path.name: path.read_text() for path in (self.switch / "attached").iterdir()}

    def pod(self, name: str) -> None:
        container = shell(
            "main", "env | grep ACCELERATOR_; sleep 9999", resources={"claims": [{"name": "accelerator"}]}
        )
        claims = [{"name": "accelerator", "resourceClaimTemplateName": "accelerator"}]
        self.cluster.pod(name, container, resourceClaims=claims)

    def wait_for_attaching(self) -> None:
        path = "jsonpath={.items[*].status.devices[*].conditions[*].message}"
        wait_for(
            "an attachment that waits",
            lambda: "attaching device" in self.cluster.run("get", "resourceclaims", "-o", path),
        )

    def explain(self, name: str) -> str:
        command = [
            sys.executable,
            "-m",
            "allot",
            "explain",
            f"pod/{name}",
            "--kubeconfig",
            str(self.cluster.kubeconfig),
        ]
        done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=False)
        return " ".join(done.stdout.split())


@pytest.fixture
def fabric(tmp_path: Path) -> Iterator[Fabric]:
    if not find_kubectls():
        pytest.skip(MISSING)
    request = {"name": "accelerator", "exactly": {"deviceClassName": NAME}}
    selector: dict[str, Any] = {"cel": {"expression": f'device.driver == "{NAME}"'}}
    with Cluster(tmp_path) as cluster:
        cluster.run("label", "node", "n1", f"{NAME}/rack=rack-1")
        meta = {"apiVersion": "resource.k8s.io/v1"}
        cluster.apply(
            {**meta, "kind": "DeviceClass", "metadata": {"name": NAME}, "spec": {"selectors": [selector]}},
            {
                **meta,
                "kind": "ResourceClaimTemplate",
                "metadata": {"name": "accelerator"},
                "spec": {"spec": {"devices": {"requests": [request]}}},
            },
        )
        fabric = Fabric(cluster)
        try:
            yield fabric
        finally:
            (fabric.switch / "busy").unlink(missing_ok=True)
            cluster.run("delete", "pods", "--all", "--grace-period=1", "--timeout=30s", check=False)
            fabric.controller.kill()
            fabric.node.kill()


def test_accelerators_are_attached_to_the_nodes_of_their_pods(fabric: Fabric) -> None:
    """One test for both, because a cluster takes long to start."""
    a_pod_gets_another_accelerator_if_the_first_cannot_be_attached(fabric)
    a_controller_that_dies_while_a_pod_waits_is_missed_by_nobody(fabric)


def a_pod_gets_another_accelerator_if_the_first_cannot_be_attached(fabric: Fabric) -> None:
    cluster = fabric.cluster
    (fabric.switch / "faults").write_text("accelerator-0 no carrier on port 0\n")
    (fabric.switch / "busy").touch()
    fabric.pod("train")
    fabric.wait_for_attaching()
    assert "attaching device accelerator-0 to node n1" in fabric.explain("train")
    assert cluster.get("pod", "train", "{.spec.nodeName}") == ""
    (fabric.switch / "busy").unlink()
    cluster.ready("train")
    assert sorted(cluster.run("logs", "train").split()) == ["ACCELERATOR_0=accelerator-1", "ACCELERATOR_0_PORT=1"]
    assert fabric.attached() == {"accelerator-1": "n1"}
    events = "\n".join(cluster.events("train"))
    assert "BindingConditionsPending: waiting for binding conditions for device on node n1" in events
    assert "no carrier on port 0" in events
    cluster.run("delete", "pod", "train", "--grace-period=1")
    wait_for("the end of the attachment", lambda: fabric.attached() == {})


def a_controller_that_dies_while_a_pod_waits_is_missed_by_nobody(fabric: Fabric) -> None:
    cluster = fabric.cluster
    (fabric.switch / "busy").touch()
    fabric.pod("again")
    fabric.wait_for_attaching()
    fabric.controller.kill()
    # Left by somebody who is gone.
    (fabric.switch / "attached" / "accelerator-7").write_text("n9")
    (fabric.switch / "busy").unlink()
    fabric.start_controller()
    cluster.ready("again")
    wait_for("one attachment", lambda: list(fabric.attached().values()) == ["n1"])
