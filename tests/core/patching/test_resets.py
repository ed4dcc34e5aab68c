"""Fields that cannot be written in some way, and the replicas seen through a Scale."""

from __future__ import annotations

from typing import Any

import pytest

from allot.core.patching import Tree, fields
from allot.core.patching.resets import reset_fields
from allot.core.patching.scale import resource_managed_fields, scale_managed_fields


@pytest.mark.parametrize(
    ("group", "resource", "subresource", "has_status", "expected"),
    [
        ("", "pods", "", True, fields("status")),
        ("", "pods", "status", True, fields("spec", "metadata.deletionTimestamp", "metadata.ownerReferences")),
        ("apps", "deployments", "status", True, fields("spec", "metadata.labels")),
        ("", "nodes", "status", True, fields("spec")),
        ("resource.k8s.io", "resourceclaims", "", True, fields("status")),
        ("resource.k8s.io", "resourceclaims", "status", True, fields("spec", "metadata")),
        ("example.com", "widgets", "status", True, fields("spec", "metadata")),
        ("example.com", "widgets", "", False, {}),
        ("", "configmaps", "", False, {}),
        ("apps", "deployments", "scale", True, {}),
    ],
)
def test_resets(group: str, resource: str, subresource: str, has_status: bool, expected: Tree) -> None:
    found = reset_fields(group, resource, subresource, has_status)
    assert found == expected
    assert found is reset_fields(group, resource, subresource, has_status)


REPLICAS = ("f:spec", "f:replicas")


def entry(manager: str, tree: Tree, version: str = "apps/v1", operation: str = "Update", **more: Any) -> dict[str, Any]:
    start = {"manager": manager, "operation": operation, "apiVersion": version, "time": "2026-01-01T00:00:00Z"}
    return {**start, "fieldsType": "FieldsV1", "fieldsV1": tree, **more}


def test_a_scale_shows_who_owns_the_replicas() -> None:
    before = [entry("a", fields("spec.replicas", "spec.paused")), entry("b", fields("spec.paused"))]
    assert scale_managed_fields(before, REPLICAS) == [entry("a", fields("spec.replicas"), "autoscaling/v1")]


def test_who_scales_owns_the_replicas_of_the_resource() -> None:
    before = [entry("a", fields("spec.replicas", "spec.paused"))]
    scaled = [entry("hpa", fields("spec.replicas"), "autoscaling/v1", subresource="scale")]
    assert resource_managed_fields(before, scaled, "apps/v1", REPLICAS) == [
        entry("a", fields("spec.paused")),
        entry("hpa", fields("spec.replicas"), subresource="scale"),
    ]


def test_a_scale_that_changes_nothing_changes_no_owner() -> None:
    before = [entry("a", fields("spec.replicas", "spec.paused"), operation="Apply")]
    scaled = scale_managed_fields(before, REPLICAS)
    assert resource_managed_fields(before, scaled, "apps/v1", REPLICAS) == before


def test_an_owner_of_nothing_else_goes() -> None:
    scaled = [entry("hpa", fields("spec.replicas"), "autoscaling/v1", subresource="scale")]
    after = resource_managed_fields([entry("a", fields("spec.replicas"))], scaled, "apps/v1", REPLICAS)
    assert after == [entry("hpa", fields("spec.replicas"), subresource="scale")]
