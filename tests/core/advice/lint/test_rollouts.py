"""Rolling updates that need devices which are not there."""

from __future__ import annotations

import pytest

from allot.core.advice.lint.finding import Severity
from core.advice.lint.linting import NOTHING, by_rule, cluster, the

RULE = "surge-needs-devices"
TEMPLATE = """
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: one-gpu}
spec: {spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu.nvidia.com}}]}}}
---
"""
CLASS = """
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: gpu.nvidia.com}
spec: {selectors: [{cel: {expression: 'device.driver == "gpu.nvidia.com"'}}]}
---
apiVersion: v1
kind: Node
metadata: {name: node-1}
status: {allocatable: {cpu: 8, memory: 8Gi, pods: 110}}
---
"""
HELD = """
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: held, namespace: other}
spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu.nvidia.com}}]}}
status:
  allocation: {devices: {results: [{request: gpu, driver: gpu.nvidia.com, pool: node-1, device: gpu-0}]}}
---
"""


def deployment(replicas: int = 2, strategy: str = "{}", entry: str = "resourceClaimTemplateName: one-gpu") -> str:
    return f"""
apiVersion: apps/v1
kind: Deployment
metadata: {{name: infer}}
spec:
  replicas: {replicas}
  strategy: {strategy}
  selector: {{matchLabels: {{app: infer}}}}
  template:
    metadata: {{labels: {{app: infer}}}}
    spec:
      containers: [{{name: c, image: 'i:1', resources: {{claims: [{{name: gpu}}]}}}}]
      resourceClaims: [{{name: gpu, {entry}}}]
"""


def devices(count: int) -> str:
    named = ", ".join(f"{{name: gpu-{number}}}" for number in range(count))
    return f"""
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {{name: node-1}}
spec: {{driver: gpu.nvidia.com, nodeName: node-1, pool: {{name: node-1, generation: 1, resourceSliceCount: 1}}, devices: [{named}]}}
---
"""


@pytest.mark.parametrize(
    ("count", "held", "told"),
    [(2, "", True), (3, "", False), (3, HELD, True), (4, HELD, False), (1, "", True)],
    ids=["all taken by itself", "one to spare", "held by others", "room beside others", "too few at all"],
)
def test_a_cluster_without_a_device_for_the_new_pod_is_told(count: int, held: str, told: bool) -> None:
    known = cluster(CLASS + devices(count) + held)
    found = by_rule(TEMPLATE + deployment(), RULE, known)
    assert bool(found) == told
    if told:
        assert found[0].severity is Severity.WARNING
        assert "takes devices for 3 pods at a time (2 and a new one)" in found[0].message


def test_a_deployment_that_runs_needs_a_free_device_for_one_more_pod() -> None:
    runs = deployment() + "---\n" + TEMPLATE
    assert not by_rule(TEMPLATE + deployment(), RULE, cluster(CLASS + devices(2) + HELD + runs))
    found = the(TEMPLATE + deployment(), RULE, cluster(CLASS + devices(1) + HELD + runs))
    assert "takes devices for 1 more pod; there are devices for 0" in found.message


def test_without_a_cluster_it_is_a_note() -> None:
    found = the(TEMPLATE + deployment(), RULE, NOTHING)
    assert found.severity is Severity.NOTE and "25% of 2 rounded down" in found.message


@pytest.mark.parametrize(
    "text",
    [
        deployment(replicas=4),
        deployment(replicas=0),
        deployment(strategy="{type: Recreate}"),
        deployment(strategy="{rollingUpdate: {maxSurge: 0, maxUnavailable: 1}}"),
        deployment(entry="resourceClaimName: shared"),
    ],
    ids=["unavailable 1", "none", "recreate", "no surge", "shared claim"],
)
def test_updates_that_can_go_on_are_fine(text: str) -> None:
    assert not by_rule(TEMPLATE + text, RULE)
