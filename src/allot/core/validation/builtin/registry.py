"""Which rules a kind has."""

from __future__ import annotations

from collections.abc import Mapping

from allot.core.validation import formats
from allot.core.validation.builtin.rules import Rules

_GENERIC = Rules()

_RBAC = Rules(name_format=formats.path_segment)

_RULES: Mapping[tuple[str, str], Rules] = {
    ("rbac.authorization.k8s.io", kind): _RBAC
    for kind in ("Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding")
}


def rules_for(group: str, kind: str) -> Rules:
    """The rules of a kind, in the group in which it is stored; those of its schema only when it has no more."""
    return _RULES.get((group, kind), _GENERIC)
