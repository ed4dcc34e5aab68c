"""Kinds and versions that the API server does not serve."""

from __future__ import annotations

import pytest

from allot.core.advice.lint.finding import Severity
from core.advice.lint.linting import findings, the


def test_a_version_that_is_gone_is_an_error_and_every_old_field_is_named() -> None:
    text = """\
        apiVersion: resource.k8s.io/v1alpha2
        kind: ResourceClaim
        metadata: {name: c}
        spec:
          resourceClassName: gpu.nvidia.com
        """
    assert the(text, "old-api-version").severity is Severity.ERROR
    old = the(text, "old-form")
    assert old.line == 5
    assert old.fix is not None
    assert "deviceClassName: gpu.nvidia.com" in old.fix.text


@pytest.mark.parametrize(
    ("api_version", "kind", "hint"),
    [
        ("v1", "Pdo", 'did you mean "Pod"?'),
        ("apps/v1beta1", "Deployment", "expected apps/v1"),
        ("v1", "Deployment", "Deployment is in apps/v1 Deployment"),
        ("resource.k8s.io/v1", "DeviceClas", 'did you mean "DeviceClass"?'),
        ("resources.k8s.io/v1", "DeviceClass", "DeviceClass is in resource.k8s.io/v1 DeviceClass"),
        ("extensions/v1beta1", "Ingress", "Ingress is in networking.k8s.io/v1 Ingress"),
        ("scheduling.k8s.io/v1alpha1", "PriorityClass", "write it in scheduling.k8s.io/v1"),
    ],
)
def test_kinds_that_kubernetes_does_not_have_are_errors_with_a_hint(api_version: str, kind: str, hint: str) -> None:
    (found,) = findings(f"apiVersion: {api_version}\nkind: {kind}\nmetadata: {{name: x}}\n")
    assert found.severity is Severity.ERROR
    assert hint in found.message + (found.fix.text if found.fix else "")


@pytest.mark.parametrize(
    "api_version",
    [
        "ray.io/v1",
        "kueue.x-k8s.io/v1beta1",
        "cert-manager.io/v1",
        "gpu.nvidia.com/v1",
        "audit.k8s.io/v1",
        "kubelet.config.k8s.io/v1beta1",
    ],
)
def test_nothing_is_said_about_custom_resources(api_version: str) -> None:
    assert findings(f"apiVersion: {api_version}\nkind: Thing\nmetadata: {{name: x}}\nspec: {{a: 1}}\n") == []


@pytest.mark.parametrize(
    "group", ["scheduling.x-k8s.io/v1alpha1", "scheduling.run.ai/v2alpha2", "scheduling.volcano.sh/v1beta1"]
)
def test_pod_groups_of_other_schedulers_are_warned_of(group: str) -> None:
    text = f"apiVersion: {group}\nkind: PodGroup\nmetadata: {{name: g}}\nspec: {{minMember: 8}}\n"
    assert the(text, "foreign-pod-group").severity is Severity.WARNING
