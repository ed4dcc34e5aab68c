"""Specs of pods are found by their shape, and how many pods there are by what is around them."""

from __future__ import annotations

from typing import Any

import pytest

from allot.core.advice.pod_templates import pod_spec_paths, pods_made

_POD: dict[str, Any] = {"containers": [{"name": "c", "image": "i"}]}
_CLAIMS = [{"name": "gpu", "resourceClaimTemplateName": "t"}]


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ({"kind": "Pod", "spec": _POD}, ("spec",)),
        ({"spec": {"template": {"spec": _POD}}}, ("spec", "template", "spec")),
        ({"spec": {"predictor": _POD}}, ("spec", "predictor")),
        (
            {"spec": {"predictor": {"resourceClaims": _CLAIMS, "model": {"resources": {"claims": [{"name": "gpu"}]}}}}},
            ("spec", "predictor"),
        ),
        ({"spec": {"tasks": [{"template": {"spec": _POD}}]}}, ("spec", "tasks", 0, "template", "spec")),
    ],
)
def test_it_is_found(value: dict[str, Any], path: tuple[Any, ...]) -> None:
    assert list(pod_spec_paths(value)) == [path]


@pytest.mark.parametrize(
    "value",
    [
        # A PodGroup has claims, and no containers.
        {"kind": "PodGroup", "spec": {"resourceClaims": _CLAIMS, "schedulingPolicy": {"gang": {"minCount": 2}}}},
        # The schema of a custom resource.
        {"spec": {"properties": {"containers": {"type": "array", "items": {"properties": {"name": {}}}}}}},
        # Names and counts of containers.
        {"spec": {"containers": ["a", "b"]}},
        {"spec": {"containers": [{"cpu": 1}]}},
        {"spec": {"containers": []}},
        {"status": {"spec": _POD}},
        {"kind": "ConfigMap", "data": {"spec": _POD}},
        {"kind": "NIMService", "spec": {"draResources": _CLAIMS, "resources": {"claims": [{"name": "gpu"}]}}},
    ],
)
def test_it_is_not_seen_where_there_is_none(value: dict[str, Any]) -> None:
    assert list(pod_spec_paths(value)) == []


@pytest.mark.parametrize(
    ("value", "count"),
    [
        ({"spec": _POD}, 1),
        ({"spec": {"replicas": 3, "template": {"spec": _POD}}}, 3),
        ({"spec": {"replicas": 0, "template": {"spec": _POD}}}, 0),
        ({"spec": {"parallelism": 4, "completions": 2, "template": {"spec": _POD}}}, 2),
        ({"spec": {"parallelism": 4, "template": {"spec": _POD}}}, 4),
        # JobSet.
        (
            {"spec": {"replicatedJobs": [{"replicas": 2, "template": {"spec": {"parallelism": 4, "template": {"spec": _POD}}}}]}},
            8,
        ),
        # LeaderWorkerSet.
        ({"spec": {"replicas": 2, "leaderWorkerTemplate": {"size": 4, "workerTemplate": {"spec": _POD}}}}, 6),
        ({"spec": {"replicas": 2, "leaderWorkerTemplate": {"size": 4, "leaderTemplate": {"spec": _POD}}}}, 2),
        # PyTorchJob.
        ({"spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": 5, "template": {"spec": _POD}}}}}, 5),
        # KServe.
        ({"spec": {"predictor": {"minReplicas": 2, "maxReplicas": 9, **_POD}}}, 2),
        ({"spec": {"replicas": "3", "template": {"spec": _POD}}}, 1),
    ],
)  # fmt: skip
def test_replicas_of_all_that_is_around_are_multiplied(value: dict[str, Any], count: int) -> None:
    (path,) = pod_spec_paths(value)
    assert pods_made(value, path) == count
