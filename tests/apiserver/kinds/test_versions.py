"""Conversion between versions."""

from __future__ import annotations

from typing import Any

import pytest

from allot.apiserver.kinds.table import builtin_resources
from allot.apiserver.kinds.versions import convert, from_storage, to_storage
from allot.apiserver.resources import Resource


def row(api_version: str, kind: str) -> Resource:
    return next(r for r in builtin_resources() if (r.api_version, r.kind) == (api_version, kind))


def test_events_of_both_groups_are_one() -> None:
    core, new = row("v1", "Event"), row("events.k8s.io/v1", "Event")
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "e"},
        "involvedObject": {"kind": "Pod"},
        "message": "hello",
        "source": {"component": "kubelet"},
        "count": 3,
        "reportingComponent": "kubelet",
        "reason": "Started",
    }
    converted = convert(event, core, new)
    assert converted == {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": "e"},
        "regarding": {"kind": "Pod"},
        "note": "hello",
        "deprecatedSource": {"component": "kubelet"},
        "deprecatedCount": 3,
        "reportingController": "kubelet",
        "reason": "Started",
    }
    assert to_storage(converted, new) == event
    assert from_storage(event, core) is event


METRICS = [
    {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}},
    {"type": "Resource", "resource": {"name": "memory", "target": {"type": "AverageValue", "averageValue": "1Gi"}}},
    {"type": "Pods", "pods": {"metric": {"name": "qps"}, "target": {"type": "AverageValue", "averageValue": "5"}}},
    {
        "type": "Object",
        "object": {
            "describedObject": {"kind": "Ingress", "name": "i", "apiVersion": "networking.k8s.io/v1"},
            "metric": {"name": "hits", "selector": {"matchLabels": {"a": "b"}}},
            "target": {"type": "Value", "value": "10k"},
        },
    },
    {
        "type": "External",
        "external": {"metric": {"name": "q"}, "target": {"type": "AverageValue", "averageValue": "3"}},
    },
]


@pytest.mark.parametrize("count", range(len(METRICS) + 1))
def test_an_autoscaler_survives_the_way_through_v1(count: int) -> None:
    v2, v1 = row("autoscaling/v2", "HorizontalPodAutoscaler"), row("autoscaling/v1", "HorizontalPodAutoscaler")
    spec: dict[str, Any] = {"scaleTargetRef": {"kind": "Deployment", "name": "web"}, "maxReplicas": 3}
    spec |= {"metrics": METRICS[:count]} if count else {}
    autoscaler = {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "web"},
        "spec": spec | {"behavior": {"scaleDown": {"stabilizationWindowSeconds": 5}}},
        "status": {"currentReplicas": 1, "conditions": [{"type": "AbleToScale", "status": "True"}]},
    }
    old = convert(autoscaler, v2, v1)
    assert old["apiVersion"] == "autoscaling/v1"
    assert old["spec"].get("targetCPUUtilizationPercentage") == (80 if count else None)
    assert convert(old, v1, v2) == autoscaler


def test_claims_are_converted_to_the_flat_requests_of_v1beta1() -> None:
    v1, beta = row("resource.k8s.io/v1", "ResourceClaim"), row("resource.k8s.io/v1beta1", "ResourceClaim")
    claim = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "c"},
        "spec": {"devices": {"requests": [{"name": "a", "exactly": {"deviceClassName": "gpu"}}]}},
    }
    flat = convert(claim, v1, beta)
    assert flat["spec"]["devices"]["requests"] == [{"name": "a", "deviceClassName": "gpu"}]
    assert convert(flat, beta, v1) == claim


def test_kinds_with_one_schema_only_change_their_version() -> None:
    beta, alpha = row("scheduling.k8s.io/v1beta1", "PodGroup"), row("scheduling.k8s.io/v1alpha3", "PodGroup")
    group = {"apiVersion": "scheduling.k8s.io/v1alpha3", "kind": "PodGroup", "spec": {"x": 1}}
    assert convert(group, alpha, beta) == {**group, "apiVersion": "scheduling.k8s.io/v1beta1"}
