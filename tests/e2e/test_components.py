"""Kubernetes' own components and allot take each other for what they are.

Needs the components' binaries (KUBEBUILDER_ASSETS); envtest's assets have kube-apiserver and etcd, kube-scheduler,
kube-controller-manager and kubelet have to be put beside them. The kubelet also needs root and containerd.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from containerd_server import IMAGE
from e2e.components import ASSETS, Caller, Component, component, gates
from e2e.real_node import NODE, kubelet_on_allot
from e2e.servers import ServerProcess, client_context
from waiting import WAIT_S, wait_for

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

DRIVER = "gpu.example.com"
RESOURCE = "/apis/resource.k8s.io/v1"
SCHEDULER_CONFIGURATION = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection: {{leaderElect: false}}
clientConnection: {{kubeconfig: "{kubeconfig}", contentType: application/json, acceptContentTypes: application/json}}
"""


def device_class(name: str) -> dict[str, Any]:
    return {
        "metadata": {"name": name},
        "spec": {"selectors": [{"cel": {"expression": f'device.driver == "{DRIVER}"'}}]},
    }


def device_slice(node: str) -> dict[str, Any]:
    return {
        "metadata": {"name": f"{node}-gpus"},
        "spec": {
            "driver": DRIVER,
            "nodeName": node,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": "gpu-0", "attributes": {"model": {"string": "a100"}}}],
        },
    }


def claim_spec(class_name: str) -> dict[str, Any]:
    return {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": class_name}}]}}


def pod(claim: dict[str, str]) -> dict[str, Any]:
    container = {"name": "main", "image": "registry.example/app:v1", "resources": {"claims": [{"name": "gpu"}]}}
    return {
        "metadata": {"name": "worker"},
        "spec": {"containers": [container], "resourceClaims": [{"name": "gpu", **claim}]},
    }


def add_node(caller: Caller, name: str) -> None:
    """A node that is ready and has room."""
    caller.create("/api/v1/nodes", {"metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}}})
    status = {
        "allocatable": {"cpu": "8", "memory": "16Gi", "pods": "110"},
        "capacity": {"cpu": "8", "memory": "16Gi", "pods": "110"},
        "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
    }
    merge = "application/merge-patch+json"
    assert caller.send("PATCH", f"/api/v1/nodes/{name}/status", {"status": status}, merge)[0] == 200
    # New nodes are tainted until somebody has seen that they are ready.
    assert caller.send("PATCH", f"/api/v1/nodes/{name}", {"spec": {"taints": None}}, merge)[0] == 200


def allocated(caller: Caller, claims: str) -> Any:
    """The claim that has devices and is reserved for a pod, if there is one."""
    for claim in (caller.get(claims) or {"items": []})["items"]:
        status = claim.get("status") or {}
        if status.get("allocation") and status.get("reservedFor"):
            return claim
    return None


def test_kube_scheduler_schedules_a_pod_with_a_claim(server_on: Callable[[str], ServerProcess], tmp_path: Path) -> None:
    scheduler = component("kube-scheduler")
    manager = shutil.which("kube-controller-manager", path=os.environ[ASSETS])
    server = server_on("memory")
    caller = Caller(server.url, client_context(server.kubeconfig))
    namespace, node, class_name = "components", "components-node", "components-gpu"
    place = f"/namespaces/{namespace}"
    caller.create("/api/v1/namespaces", {"metadata": {"name": namespace}})
    add_node(caller, node)
    caller.create(f"{RESOURCE}/deviceclasses", device_class(class_name))
    caller.create(f"{RESOURCE}/resourceslices", device_slice(node))
    with ExitStack() as stack:
        claim = {"resourceClaimName": "gpu"}
        if manager is not None:
            # It makes the claim from the template.
            claim = {"resourceClaimTemplateName": "gpu"}
            arguments = [
                *("--kubeconfig", str(server.kubeconfig), "--kube-api-content-type=application/json"),
                *("--leader-elect=false", "--secure-port=0", "--controllers=resourceclaim-controller"),
                *gates(Path(manager)),
            ]
            stack.enter_context(Component(Path(manager), arguments, tmp_path))
            template = {"metadata": {"name": "gpu"}, "spec": {"spec": claim_spec(class_name)}}
            caller.create(f"{RESOURCE}{place}/resourceclaimtemplates", template)
        else:
            object_ = {"metadata": {"name": "gpu"}, "spec": claim_spec(class_name)}
            caller.create(f"{RESOURCE}{place}/resourceclaims", object_)
        configuration = tmp_path / "scheduler.yaml"
        configuration.write_text(SCHEDULER_CONFIGURATION.format(kubeconfig=server.kubeconfig))
        kubeconfigs = [f"--{use}-kubeconfig={server.kubeconfig}" for use in ("authentication", "authorization")]
        arguments = ["--config", str(configuration), "--secure-port=0", *kubeconfigs, *gates(scheduler)]
        running = stack.enter_context(Component(scheduler, arguments, tmp_path))
        caller.create(f"/api/v1{place}/pods", pod(claim))

        def bound() -> Any:
            found = caller.get(f"/api/v1{place}/pods/worker")
            return found if found and found["spec"].get("nodeName") else None

        assert running.wait_for("the pod is bound", bound)["spec"]["nodeName"] == node
        found = running.wait_for(
            "the claim is allocated", lambda: allocated(caller, f"{RESOURCE}{place}/resourceclaims")
        )
    results = found["status"]["allocation"]["devices"]["results"]
    assert [(result["driver"], result["device"]) for result in results] == [(DRIVER, "gpu-0")]
    assert found["status"]["reservedFor"][0]["name"] == "worker"


POD_OF_KUBELET = """
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {{name: gpu}}
spec: {{spec: {{devices: {{requests: [{{name: gpu, exactly: {{deviceClassName: gpu.nvidia.com}}}}]}}}}}}
---
apiVersion: v1
kind: Pod
metadata: {{name: worker}}
spec:
  restartPolicy: Never
  terminationGracePeriodSeconds: 0
  resourceClaims: [{{name: gpu, resourceClaimTemplateName: gpu}}]
  containers:
  - name: main
    image: {image}
    command: [sh, -c, '/usr/local/bin/nvidia-smi -L; echo "in $(cat /var/run/secrets/kubernetes.io/serviceaccount/namespace)"; sleep 1000']
    resources: {{claims: [{{name: gpu}}]}}
"""


def status_of(url: str) -> int:
    try:
        with urllib.request.urlopen(url, timeout=WAIT_S) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def test_a_real_kubelet_joins_and_runs_a_pod_with_a_claim_of_our_driver() -> None:
    with ExitStack() as stack:
        node = stack.enter_context(kubelet_on_allot())
        kubectl, caller = node.kubectl, node.caller
        own = ["--kubelet-root", str(node.root), "--cdi-dir", str(node.containerd.cdi), "--profile=t4", "--port=0"]
        arguments = ["-m", "allot.devices.gpu", *own, "--node-name", NODE, "--kubeconfig", str(node.kubeconfig)]
        folder = node.folder / "driver"
        folder.mkdir()
        driver = stack.enter_context(Component(Path(sys.executable), arguments, folder))
        # Whoever installs a driver brings its classes.
        classes = subprocess.run(
            [sys.executable, "-m", "allot.devices.gpu", "classes"], capture_output=True, text=True, check=True
        ).stdout
        kubectl.apply(classes)
        health = driver.wait_for("it serves", lambda: re.search(r"health and metrics: (\S+)", driver.log()))[1]
        # The kubelet knows the driver, and the API server its devices.
        driver.wait_for("it is ready", lambda: status_of(f"{health}/readyz") == 200 or None)
        kubectl.apply(POD_OF_KUBELET.format(image=IMAGE))
        place = "/api/v1/namespaces/default/pods/worker"

        def runs() -> Any:
            found = caller.get(place)
            return found if found and found["status"].get("phase") == "Running" else None

        pod = node.kubelet.wait_for("the pod runs", runs)
        assert pod["spec"]["nodeName"] == NODE
        assert pod["status"]["containerStatuses"][0]["ready"]
        log = wait_for("it sees its device", lambda: "in default" in (seen := kubectl("logs", "worker")) and seen)
        assert "GPU 0: Tesla T4" in log, log
        assert "uid=0" in kubectl("exec", "worker", "--", "id")
        (claim,) = caller.get(f"{RESOURCE}/namespaces/default/resourceclaims")["items"]
        (device,) = claim["status"]["allocation"]["devices"]["results"]
        assert (device["driver"], device["pool"]) == ("gpu.nvidia.com", NODE)
        # The kubelet's own requests, all of them: none is refused.
        refused = [
            line for line in node.kubelet.log().splitlines() if " is forbidden" in line or "Unauthorized (" in line
        ]
        assert refused == []
        kubectl("delete", "pod", "worker", "--timeout=60s")
        wait_for("the claim goes", lambda: not caller.get(f"{RESOURCE}/namespaces/default/resourceclaims")["items"])
        # The kubelet has unprepared it; what is for all claims stays.
        uid = claim["metadata"]["uid"]
        wait_for("the device is given back", lambda: not list(node.containerd.cdi.glob(f"*{uid}*")))
