"""The dashboard's RBAC rules: read what its pages show, and nothing else."""

from __future__ import annotations

from typing import Any

from allot.core.advice.snapshot import KINDS
from allot.dashboard.autoscalers import STATUS_NAME
from allot.dashboard.measuring import API, METRICS

ROLE = "allot-dashboard"
_READ = ("get", "list", "watch")


def cluster_role() -> dict[str, Any]:
    """The ClusterRole."""
    groups: dict[str, set[str]] = {}
    for kind in KINDS:
        groups.setdefault(kind.group, set()).add(kind.plural)
    rules: list[dict[str, Any]] = [
        {"apiGroups": [group], "resources": sorted(plurals), "verbs": list(_READ)}
        for group, plurals in sorted(groups.items())
    ]
    rules.append({"apiGroups": [API], "resources": [f"pods/{metric}" for metric in sorted(METRICS)], "verbs": ["get"]})
    rules.append({"apiGroups": [""], "resources": ["configmaps"], "resourceNames": [STATUS_NAME], "verbs": ["get"]})
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": ROLE},
        "rules": rules,
    }


def cluster_role_binding(subject: dict[str, str]) -> dict[str, Any]:
    """The binding of the role. subject: an RBAC user or service account."""
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": ROLE},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": ROLE},
        "subjects": [subject],
    }
