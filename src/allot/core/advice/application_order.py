"""The order in which to apply objects: dependencies first, admission webhooks and policies last."""

from __future__ import annotations

from typing import Any

# Other kinds come between these and workloads.
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
    # They do not apply to objects that already exist.
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
    "MutatingAdmissionPolicy",
    "MutatingAdmissionPolicyBinding",
    "ValidatingWebhookConfiguration",
    "MutatingWebhookConfiguration",
)


def rank(kind: str) -> int:
    """The position of a kind; smaller ones are applied first."""
    if kind in _FIRST:
        return _FIRST.index(kind)
    return len(_FIRST) + 1 + _LAST.index(kind) if kind in _LAST else len(_FIRST)


def order_of(object_: dict[str, Any]) -> tuple[int, str, str, str]:
    """The position of an object: by kind, then by name."""
    kind, metadata = str(object_["kind"]), object_["metadata"]
    return rank(kind), kind, str(metadata.get("namespace", "")), str(metadata.get("name", ""))
