"""Aggregated ClusterRoles: the rules to store in them.

Our API server evaluates the selected roles and does not need the rules; people and other servers read them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from allot.core.access.rbac import GROUP, Policy
from allot.core.access.rules import rules_of
from allot.core.lifecycle.actions import Action, Apply, Resource

CLUSTER_ROLES = Resource(group=GROUP, version="v1", plural="clusterroles", kind="ClusterRole", namespaced=False)
MANAGER = "clusterrole-aggregation-controller"


def aggregate(policy: Policy, role: Mapping[str, Any] | None) -> tuple[Action, ...]:
    """The rules that a role should have, unless it has them or is not aggregated. policy: knows all ClusterRoles."""
    if role is None or role.get("aggregationRule") is None:
        return ()
    name = str(role["metadata"]["name"])
    wanted = policy.aggregations().get(name, ())
    if wanted == rules_of(role):
        return ()
    rules = [rule.as_object() for rule in wanted]
    return (Apply(resource=CLUSTER_ROLES, name=name, fields={"rules": rules}, manager=MANAGER),)
