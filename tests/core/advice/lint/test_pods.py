"""Pods and the claims that they use or do not use."""

from __future__ import annotations

from allot.core.advice.lint.finding import Severity
from core.advice.lint.linting import by_rule, findings, the

_TEMPLATE = """\
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: t}
spec: {spec: {devices: {requests: [{name: r, exactly: {deviceClassName: gpu.nvidia.com}}]}}}
---
"""


def _deployment(containers: str, claims: str = "- {name: gpu, resourceClaimTemplateName: t}") -> str:
    return f"""\
apiVersion: apps/v1
kind: Deployment
metadata: {{name: d}}
spec:
  selector: {{matchLabels: {{a: b}}}}
  template:
    metadata: {{labels: {{a: b}}}}
    spec:
      containers:
      {containers}
      resourceClaims:
      {claims}
"""


_USES = "- {name: one, image: i, resources: {claims: [{name: gpu}]}}"


def test_a_workload_whose_container_uses_its_claim_is_in_order() -> None:
    assert findings(_TEMPLATE + _deployment(_USES)) == []


def test_a_claim_that_no_container_uses_is_warned_of() -> None:
    found = the(_TEMPLATE + _deployment("- {name: one, image: i}"), "unused-pod-claim")
    assert (found.severity, found.line) == (Severity.WARNING, 17)


def test_containers_that_share_a_claim_are_noted() -> None:
    found = the(_TEMPLATE + _deployment(f"{_USES}\n      {_USES.replace('one', 'two')}"), "containers-share-claim")
    assert found.severity is Severity.NOTE
    assert "one, two" in found.message


def test_a_template_that_no_pod_uses_is_noted_where_there_are_pods() -> None:
    other = _TEMPLATE.replace("name: t}", "name: other}")
    assert the(other + _TEMPLATE + _deployment(_USES), "unused-claim").object == "ResourceClaimTemplate other"
    assert not by_rule(other, "unused-claim")


def test_claims_of_pod_groups_are_used() -> None:
    group = """\
apiVersion: scheduling.k8s.io/v1beta1
kind: PodGroup
metadata: {name: g}
spec:
  schedulingPolicy: {gang: {minCount: 2}}
  resourceClaims:
  - {name: shared, resourceClaimTemplateName: other}
---
"""
    other = _TEMPLATE.replace("name: t}", "name: other}")
    assert not by_rule(other + _TEMPLATE + group + _deployment(_USES), "unused-claim")


def test_asking_for_the_same_hardware_twice_is_warned_of() -> None:
    both = _USES.replace("claims:", "limits: {nvidia.com/gpu: 1}, claims:")
    assert the(_TEMPLATE + _deployment(both), "extended-resource-and-claim").line == 15
    other = both.replace("nvidia.com/gpu", "example.com/fpga")
    assert not by_rule(_TEMPLATE + _deployment(other), "extended-resource-and-claim")


def test_pods_inside_custom_resources_are_found() -> None:
    text = """\
apiVersion: ray.io/v1
kind: RayCluster
metadata: {name: r}
spec:
  headGroupSpec:
    template:
      spec:
        containers: [{name: c, image: i}]
        resourceClaims: [{name: gpu, resourceClaimTemplateName: t}]
"""
    assert the(_TEMPLATE + text, "unused-pod-claim").object == "RayCluster r"
