"""Metrics and autoscaling as people use them: `allot up` with four simulated GPUs on two nodes, and kubectl."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from e2e.kubectl import MISSING, Kubectl, find_kubectls
from ports import free_port
from waiting import wait_for

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

WAIT = "--timeout=120s"
WAIT_S = 120.0
# As with the usual 15 seconds, without the wait.
QUICK = ("--horizontal-pod-autoscaler-sync-period", "1s", "--metric-resolution", "1s")

INFERENCE = """
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: one-gpu}
spec: {spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu.nvidia.com}}]}}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: inference}
spec:
  selector: {matchLabels: {app: inference}}
  template:
    metadata:
      labels: {app: inference}
      annotations:
        allot.dev/gpu-utilization: "180"
        allot.dev/load-is-shared: "true"
    spec:
      containers:
      - name: server
        image: example.com/server
        resources: {claims: [{name: gpu}], requests: {cpu: "2", memory: 4Gi}}
      - {name: proxy, image: example.com/proxy}
      resourceClaims: [{name: gpu, resourceClaimTemplateName: one-gpu}]
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: inference}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: inference}
  minReplicas: 1
  maxReplicas: 4
  behavior: {scaleDown: {stabilizationWindowSeconds: 0}}
  metrics:
  - type: Pods
    pods: {metric: {name: DCGM_FI_DEV_GPU_UTIL}, target: {type: AverageValue, averageValue: "60"}}
"""

# A program of its own, which listens on a port that the test chooses.
PROGRAM = """
apiVersion: apps/v1
kind: Deployment
metadata: {{name: queue}}
spec:
  selector: {{matchLabels: {{app: queue}}}}
  template:
    metadata:
      labels: {{app: queue}}
      annotations: {{prometheus.io/scrape: "true", prometheus.io/port: "{port}"}}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
      - name: main
        image: python
        command: [sh, -c, 'cd /tmp; echo "jobs_waiting{{kind=\\"slow\\"}} 30" > metrics; exec python3 -m http.server {port}']
"""
WATCHERS = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: workers}
spec:
  selector: {matchLabels: {app: workers}}
  template:
    metadata: {labels: {app: workers}}
    spec: {containers: [{name: main, image: example.com/worker}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: lonely}
spec:
  selector: {matchLabels: {app: lonely}}
  template:
    metadata: {labels: {app: lonely}}
    spec: {containers: [{name: main, image: example.com/worker}]}
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: by-metric-of-others}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: workers}
  maxReplicas: 3
  metrics:
  - type: External
    external: {metric: {name: jobs_waiting, selector: {matchLabels: {kind: slow}}}, target: {type: AverageValue, averageValue: "10"}}
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: missing-metric}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: lonely}
  maxReplicas: 3
  metrics:
  - type: Pods
    pods: {metric: {name: nobody_tells}, target: {type: AverageValue, averageValue: "10"}}
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: missing-target}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: nowhere}
  maxReplicas: 3
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: unknown-kind}
spec:
  scaleTargetRef: {apiVersion: example.com/v1, kind: Unicorn, name: nowhere}
  maxReplicas: 3
"""
BUSY = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: busy}
spec:
  selector: {matchLabels: {app: busy}}
  template:
    metadata:
      labels: {app: busy}
      annotations: {allot.dev/cpu-usage: 900m}
    spec: {containers: [{name: main, image: example.com/busy, resources: {requests: {cpu: 500m}}}]}
"""


@pytest.fixture(scope="module")
def kubectl() -> Iterator[Kubectl]:
    """kubectl on a cluster with four GPUs, in a namespace of its own."""
    found = find_kubectls()
    if not found:
        pytest.skip(MISSING)
    with tempfile.TemporaryDirectory(prefix="m-") as folder:
        environment = {**os.environ, "HOME": folder}

        def allot(command: str, *arguments: str) -> None:
            whole = [sys.executable, "-m", "allot", command, "--data-dir", f"{folder}/data", *arguments]
            done = subprocess.run(whole, env=environment, capture_output=True, text=True, timeout=90, check=False)
            assert done.returncode == 0, done.stderr

        allot("up", "--detach", "--memory", "--port", "0", "--node", "a100-40x2=2", *QUICK)
        try:
            made = Kubectl(next(iter(found.values())), Path(folder) / "data" / "admin.kubeconfig", Path(folder), "team")
            made("create", "namespace", "team")
            yield made
        finally:
            allot("down")


def until(look: Callable[[], Any]) -> Any:
    """What a look finds; autoscalers have to look several times."""
    return wait_for("what was waited for", look, WAIT_S)


def raw(kubectl: Kubectl, path: str) -> Any:
    """What the server answers; empty if it does not."""
    found = kubectl.run("get", "--raw", path)
    return json.loads(found.stdout) if found.returncode == 0 else {}


def rows(kubectl: Kubectl, *arguments: str) -> list[list[str]]:
    """The cells of a table; none as long as the call fails."""
    return kubectl.rows(*arguments) if kubectl.run(*arguments).returncode == 0 else []


def condition(kubectl: Kubectl, name: str, type_: str) -> dict[str, Any]:
    """A condition of an autoscaler; empty if there is none yet."""
    found = kubectl.json("get", "hpa", name).get("status", {}).get("conditions") or []
    return next((each for each in found if each["type"] == type_), {})


def replicas(kubectl: Kubectl, name: str) -> int:
    return int(kubectl.json("get", "deployment", name)["spec"]["replicas"])


def test_an_inference_deployment_grows_by_gpu_utilization_and_its_pods_get_gpus(kubectl: Kubectl) -> None:
    """One GPU would be at 180 %: three at 60 % are what is wanted, and no more."""
    kubectl.apply(INFERENCE)
    until(lambda: replicas(kubectl, "inference") == 3)
    kubectl("wait", "--for=condition=Available", "deployment/inference", WAIT)
    until(lambda: kubectl.json("get", "deployment", "inference")["status"].get("readyReplicas") == 3)
    claims = kubectl.json("get", "resourceclaims")["items"]
    held = {
        (each["pool"], each["device"])
        for claim in claims
        for each in claim["status"]["allocation"]["devices"]["results"]
    }
    assert len(claims) == len(held) == 3
    settled = "the HPA was able to successfully calculate a replica count from pods metric DCGM_FI_DEV_GPU_UTIL"
    until(lambda: condition(kubectl, "inference", "ScalingActive").get("message") == settled)
    until(lambda: kubectl.rows("get", "hpa", "inference")[1][2] == "60/60")
    told = kubectl("describe", "hpa", "inference")
    assert "reason: pods metric DCGM_FI_DEV_GPU_UTIL above target" in told and "3 current / 3 desired" in told
    # The load goes away, and with it all but one.
    patch = '{"spec":{"template":{"metadata":{"annotations":{"allot.dev/gpu-utilization":"20"}}}}}'
    kubectl("patch", "deployment", "inference", "-p", patch)
    until(lambda: replicas(kubectl, "inference") == 1)
    until(lambda: len(kubectl.json("get", "resourceclaims")["items"]) == 1)
    events = [
        each["message"] for each in kubectl.json("get", "events")["items"] if each["reason"] == "SuccessfulRescale"
    ]
    assert "New size: 1; reason: All metrics below target" in events


def test_top_and_the_metrics_apis(kubectl: Kubectl) -> None:
    nodes = until(lambda: [row for row in rows(kubectl, "top", "nodes") if row[0].startswith("a100")])
    assert [row[0] for row in nodes] == ["a100-40x2-0", "a100-40x2-1"]
    kubectl.apply(INFERENCE.replace("name: inference", "name: shown").replace("app: inference", "app: shown"))
    top = ("top", "pods", "-l", "app=shown", "--containers")
    found = until(lambda: len(shown := rows(kubectl, *top)) > 2 and shown)
    assert found[0] == ["POD", "NAME", "CPU(cores)", "MEMORY(bytes)"]
    assert sorted(row[1:] for row in found[1:3]) == [["proxy", "1m", "16Mi"], ["server", "1000m", "2048Mi"]]
    table = kubectl.rows("get", "podmetrics", "-l", "app=shown")
    assert table[0] == ["NAME", "CPU", "MEMORY", "WINDOW"] and table[1][2] == "2064Mi"
    assert "How much a pod uses" in kubectl("explain", "podmetrics", "--api-version=metrics.k8s.io/v1beta1")
    pod = kubectl.json("get", "pods", "-l", "app=shown")["items"][0]
    node = pod["spec"]["nodeName"]
    other = ({"a100-40x2-0", "a100-40x2-1"} - {node}).pop()
    for name, expected in ((node, True), (other, False)):
        summary = raw(kubectl, f"/api/v1/nodes/{name}/proxy/stats/summary")
        assert summary["node"]["nodeName"] == name
        assert (pod["metadata"]["name"] in {each["podRef"]["name"] for each in summary["pods"]}) == expected
        text = kubectl("get", "--raw", f"/api/v1/nodes/{name}/proxy/metrics/resource")
        assert (f'pod="{pod["metadata"]["name"]}"' in text) == expected and text.count("\nnode_cpu_usage") == 1
    path = f"/apis/custom.metrics.k8s.io/v1beta1/nodes/{node}/DCGM_FI_DEV_FB_USED"
    assert until(lambda: raw(kubectl, path))["items"][0]["metricName"]


def test_who_may_see_pods_may_see_what_they_use(kubectl: Kubectl) -> None:
    kubectl("create", "rolebinding", "watcher", "--clusterrole=view", "--user=eve")
    assert kubectl("auth", "can-i", "list", "pods.metrics.k8s.io", "--as=eve").strip() == "yes"
    assert "cannot list resource" in kubectl.fails("top", "pods", "-n", "kube-system", "--as=eve")
    path = "/apis/custom.metrics.k8s.io/v1beta2/namespaces/team/pods/*/DCGM_FI_DEV_GPU_UTIL"
    assert "cannot get resource" in kubectl.fails("get", "--raw", path, "--as=eve")


def test_metrics_that_a_program_serves_scale_others(kubectl: Kubectl) -> None:
    kubectl.apply(PROGRAM.format(port=free_port()))
    kubectl.apply(WATCHERS)
    # Thirty wait, ten for each.
    until(lambda: replicas(kubectl, "workers") == 3)
    path = "/apis/custom.metrics.k8s.io/v1beta2/namespaces/team/deployments.apps/queue/jobs_waiting"
    assert raw(kubectl, path)["items"][0]["value"] == "30"


@pytest.mark.parametrize(
    ("name", "type_", "reason", "text"),
    [
        (
            "missing-metric",
            "ScalingActive",
            "FailedGetPodsMetric",
            "the HPA was unable to compute the replica count: unable to get metric nobody_tells: "
            "no metrics returned from custom metrics API",
        ),
        (
            "missing-target",
            "AbleToScale",
            "FailedGetScale",
            'the HPA controller was unable to get the target\'s current scale: deployments.apps "nowhere" not found',
        ),
        (
            "unknown-kind",
            "AbleToScale",
            "FailedGetScale",
            "the HPA controller was unable to get the target's current scale: "
            'no matches for kind "Unicorn" in version "example.com/v1"',
        ),
    ],
)
def test_what_is_missing_is_named(kubectl: Kubectl, name: str, type_: str, reason: str, text: str) -> None:
    # A test before may have done so, on this worker or not.
    kubectl.apply(WATCHERS)
    found = until(lambda: condition(kubectl, name, type_))
    assert (found["status"], found["reason"], found["message"]) == ("False", reason, text)
    assert reason in kubectl("describe", "hpa", name)


def test_metrics_that_cannot_be_had_are_told_at_the_pod(kubectl: Kubectl) -> None:
    kubectl(
        "run",
        "mute",
        "--image=x",
        "--annotations=prometheus.io/scrape=true",
        "--annotations=prometheus.io/port=metrics",
    )
    kubectl("run", "odd", "--image=x", "--annotations=allot.dev/cpu-usage=much")
    expected = {
        "mute": ("FailedScrape", 'annotation prometheus.io/port: "metrics": expected a port, 1 to 65535'),
        "odd": (
            "InvalidAnnotation",
            'annotation allot.dev/cpu-usage: "much": expected a quantity that is not negative',
        ),
    }
    for name, (reason, text) in expected.items():
        told = until(lambda name=name, reason=reason: _notes(kubectl, name, reason))
        assert told == [text]


def _notes(kubectl: Kubectl, name: str, reason: str) -> list[str]:
    events = kubectl.json("get", "events", f"--field-selector=involvedObject.name={name},reason={reason}")["items"]
    return [str(event["message"]) for event in events]


def test_autoscale_makes_an_autoscaler_that_works(kubectl: Kubectl) -> None:
    kubectl.apply(BUSY)
    kubectl("autoscale", "deployment", "busy", "--cpu-percent=60", "--min=1", "--max=2")
    until(lambda: replicas(kubectl, "busy") == 2)
    assert until(lambda: kubectl.rows("get", "hpa", "busy")[1][2] == "cpu: 180%/60%")
    limited = until(lambda: condition(kubectl, "busy", "ScalingLimited"))
    assert limited["reason"] in ("TooManyReplicas", "ScaleUpLimit")
