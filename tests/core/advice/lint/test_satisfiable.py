"""Claims that no known node can satisfy, with the allocator's reason."""

from __future__ import annotations

import pytest

from allot.core.advice.lint.finding import Severity
from core.advice.lint.linting import by_rule, cluster, findings, hardware, the


def _claim(wanted: str, *, kind: str = "ResourceClaim", name: str = "c", constraints: str = "[]") -> str:
    spec = f"{{devices: {{requests: [{{name: gpu, exactly: {{deviceClassName: gpu.nvidia.com{wanted}}}}}], constraints: {constraints}}}}}"
    spec = spec if kind == "ResourceClaim" else f"{{spec: {spec}}}"
    return f"apiVersion: resource.k8s.io/v1\nkind: {kind}\nmetadata: {{name: {name}}}\nspec: {spec}\n"


def _memory(size: str) -> str:
    return (
        ', selectors: [{cel: {expression: \'device.capacity["gpu.nvidia.com"].memory'
        f'.compareTo(quantity("{size}")) >= 0\'}}}}]'
    )


@pytest.mark.parametrize(("wanted", "profile"), [("", "t4"), (", count: 8", "h100x8"), (_memory("16Gi"), "l4")])
def test_a_claim_that_fits_on_an_empty_node_is_in_order(wanted: str, profile: str) -> None:
    assert findings(_claim(wanted), hardware(profile)) == []


@pytest.mark.parametrize("kind", ["ResourceClaim", "ResourceClaimTemplate"])
@pytest.mark.parametrize(("wanted", "reason"), [(", count: 9", "8 are free"), (_memory("100Gi"), "need 100Gi")])
def test_a_claim_that_fits_nowhere_is_told_with_the_reason(kind: str, wanted: str, reason: str) -> None:
    found = the(_claim(wanted, kind=kind), "unsatisfiable-claim", hardware("h100x8"))
    assert found.severity is Severity.WARNING
    assert reason in found.message


def test_one_of_several_profiles_is_enough() -> None:
    assert findings(_claim(_memory("100Gi")), hardware("t4", "h200x8")) == []


def test_without_devices_nothing_is_said() -> None:
    assert findings(_claim(", count: 9")) == []


_CLUSTER = """\
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: gpu.nvidia.com}
spec: {selectors: [{cel: {expression: device.driver == "gpu.nvidia.com"}}]}
---
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: s}
spec:
  driver: gpu.nvidia.com
  nodeName: n1
  pool: {name: n1, resourceSliceCount: 1}
  devices:
  - name: gpu-0
    taints: [{key: k, value: v, effect: NoSchedule}]
  - name: gpu-1
"""


def test_against_a_cluster_it_is_an_error() -> None:
    found = the(_claim(", count: 3"), "unsatisfiable-claim", cluster(_CLUSTER))
    assert found.severity is Severity.ERROR


def test_a_taint_that_is_the_only_obstacle_is_told_as_such() -> None:
    found = the(_claim(", count: 2"), "missing-toleration", cluster(_CLUSTER))
    assert "k=v:NoSchedule" in found.message
    tolerant = ", count: 2, tolerations: [{key: k, operator: Exists}]"
    assert findings(_claim(tolerant), cluster(_CLUSTER)) == []


def test_what_is_in_use_now_does_not_matter() -> None:
    held = """\
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: held, namespace: default}
spec: {devices: {requests: [{name: r, exactly: {deviceClassName: gpu.nvidia.com}}]}}
status: {allocation: {devices: {results: [{request: r, driver: gpu.nvidia.com, pool: n1, device: gpu-1}]}}}
"""
    assert findings(_claim(""), cluster(_CLUSTER + held)) == []


def test_claims_of_a_pod_have_to_fit_on_one_node_together() -> None:
    pod = """\
---
apiVersion: v1
kind: Pod
metadata: {name: p}
spec:
  containers:
  - name: c
    image: i
    resources: {claims: [{name: a}, {name: b}]}
  resourceClaims:
  - {name: a, resourceClaimName: first}
  - {name: b, resourceClaimName: second}
"""
    text = f"{_claim(', count: 5', name='first')}---\n{_claim(', count: 4', name='second')}{pod}"
    found = the(text, "unsatisfiable-claim", hardware("h100x8"))
    assert found.object == "Pod p"
    assert "together" in found.message
    assert not by_rule(text.replace("count: 5", "count: 4"), "unsatisfiable-claim", hardware("h100x8"))


def test_devices_of_slices_in_the_input_count() -> None:
    assert by_rule(_CLUSTER + "---\n" + _claim(", count: 3"), "unsatisfiable-claim")
