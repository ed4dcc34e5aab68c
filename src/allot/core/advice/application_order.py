"""The order in which objects can be applied: what others need comes first, what judges others last."""

from __future__ import annotations

from typing import Any

# What is not here comes between these and what runs pods.
_FIRST = (
    "CustomResourceDefinition",
    "Namespace",
    "PriorityClass",
    "StorageClass",
    "RuntimeClass",
    "IngressClass",
    "DeviceClass",
    "DeviceTaintRule",
    "ResourceSlice",
    "ResourceQuota",
    "LimitRange",
    "ServiceAccount",
    "ClusterRole",
    "Role",
    "ClusterRoleBinding",
    "RoleBinding",
    "Secret",
    "ConfigMap",
    "PersistentVolume",
    "PersistentVolumeClaim",
    "ResourceClaimTemplate",
    "ResourceClaim",
    "Workload",
    "PodGroup",
    "Service",
)
_LAST = (
    "ReplicationController",
    "DaemonSet",
    "StatefulSet",
    "ReplicaSet",
    "Deployment",
    "CronJob",
    "Job",
    "Pod",
    "PodDisruptionBudget",
    "HorizontalPodAutoscaler",
    # Objects that are here already are not judged.
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
    "MutatingAdmissionPolicy",
    "MutatingAdmissionPolicyBinding",
    "ValidatingWebhookConfiguration",
    "MutatingWebhookConfiguration",
)


def rank(kind: str) -> int:
    """The place of a kind among others; smaller ones are applied first."""
    if kind in _FIRST:
        return _FIRST.index(kind)
    return len(_FIRST) + 1 + _LAST.index(kind) if kind in _LAST else len(_FIRST)


def order_of(object_: dict[str, Any]) -> tuple[int, str, str, str]:
    """The place of an object: by kind, then by name."""
    kind, metadata = str(object_["kind"]), object_["metadata"]
    return rank(kind), kind, str(metadata.get("namespace", "")), str(metadata.get("name", ""))
