"""Claims that a driver's controller allocates, with manifests of Kubernetes 1.31 and the example's controller (gate DRAControlPlaneController)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.kubectl import MISSING, find_kubectls
from e2e.parts import Part
from node.cluster import Cluster
from short_paths import tmp_path as tmp_path
from waiting import wait_for

pytestmark = pytest.mark.slow

NAME = "slots.example.com"
MANIFESTS = """
apiVersion: resource.k8s.io/v1alpha3
kind: DeviceClass
metadata: {name: slots}
spec:
  suitableNodes: {nodeSelectorTerms: [{matchExpressions: [{key: zone, operator: In, values: [a]}]}]}
---
apiVersion: resource.k8s.io/v1alpha3
kind: ResourceClaimTemplate
metadata: {name: two-slots}
spec:
  spec:
    controller: slots.example.com
    devices: {requests: [{name: slot, deviceClassName: slots, count: 2}]}
---
apiVersion: resource.k8s.io/v1alpha3
kind: ResourceClaim
metadata: {name: nobodys}
spec:
  controller: gone.example.com
  devices: {requests: [{name: slot, deviceClassName: slots}]}
"""


def pod(name: str, claim: str) -> str:
    return f"""
apiVersion: v1
kind: Pod
metadata: {{name: {name}}}
spec:
  terminationGracePeriodSeconds: 1
  resourceClaims: [{{name: slots, {claim}}}]
  containers:
  - name: main
    image: busybox
    command: [sh, -c, "env | grep SLOT_; sleep 9999"]
    resources: {{claims: [{{name: slots}}]}}
"""


class Site:
    """A cluster, with the parts of the driver if it has any use for them."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        folders = ("--kubelet-root", str(cluster.root), "--cdi-dir", str(cluster.folder / "cdi"))
        common = ("--kubeconfig", str(cluster.kubeconfig))
        self.node = Part(cluster, "classic.py", "node", *common, "--node-name", "n1", *folders)
        self.controller = Part(cluster, "classic.py", "controller", *common)

    def apply(self, text: str) -> None:
        self.cluster.run("apply", "-f", "-", stdin=text)

    def claim_of(self, name: str) -> dict[str, object]:
        claim = self.cluster.get("pod", name, "{.status.resourceClaimStatuses[0].resourceClaimName}")
        found: dict[str, object] = json.loads(
            self.cluster.run("get", "resourceclaims.v1alpha3.resource.k8s.io", claim, "-o", "json")
        )
        return found


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    if not find_kubectls():
        pytest.skip(MISSING)
    with Cluster(tmp_path, plane_options=("--feature-gates", "DRAControlPlaneController=true")) as cluster:
        site = Site(cluster)
        try:
            yield site
        finally:
            cluster.run("delete", "pods", "--all", "--grace-period=1", "--timeout=30s", check=False)
            site.controller.kill()
            site.node.kill()


def test_the_controller_allocates_where_scheduler_and_it_agree(site: Site) -> None:
    cluster = site.cluster
    site.apply(MANIFESTS)
    site.apply(pod("first", "resourceClaimTemplateName: two-slots"))
    cluster.ready("first")
    assert sorted(cluster.run("logs", "first").split()) == ["SLOT_0=slot-0", "SLOT_1=slot-1"]
    claim = site.claim_of("first")
    assert claim["spec"]["controller"] == NAME  # type: ignore[index]
    assert claim["status"]["allocation"]["controller"] == NAME  # type: ignore[index]
    contexts = ("get", "podschedulingcontexts", "first", "--ignore-not-found")
    wait_for("the end of the negotiation", lambda: not cluster.run(*contexts))
    # The node is full now, and the controller says so.
    site.apply(pod("second", "resourceClaimTemplateName: two-slots"))
    unsuitable = "{.status.resourceClaims[0].unsuitableNodes[0]}"
    contexts = ("get", "podschedulingcontexts", "second", "--ignore-not-found", "-o", f"jsonpath={unsuitable}")
    wait_for("the controller's answer", lambda: cluster.run(*contexts) == "n1")
    text = f"waiting for controller {NAME} to allocate it"
    wait_for("the reason", lambda: any(text in event for event in cluster.events("second")))
    assert cluster.get("pod", "second", "{.spec.nodeName}") == ""
    # What the first pod had is given back by the controller, and the second pod gets it.
    cluster.run("delete", "pod", "first", "--grace-period=1")
    cluster.ready("second")
    # A controller that does not run is waited for, and named.
    site.apply(pod("third", "resourceClaimName: nobodys"))
    wait_for("the reason", lambda: any("controller gone.example.com" in event for event in cluster.events("third")))
    answer = cluster.run(
        "patch", "resourceclaims.v1alpha3.resource.k8s.io", "nobodys", "--type=merge", "-p",
        '{"spec": {"controller": "slots.example.com"}}', check=False,
    )  # fmt: skip
    assert "spec.controller: Invalid value" in answer and "field is immutable" in answer
