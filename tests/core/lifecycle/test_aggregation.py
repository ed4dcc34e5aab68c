"""ClusterRoles that are made of others."""

from __future__ import annotations

from typing import Any

from allot.core.access.rbac import Policy
from allot.core.lifecycle.actions import Apply
from allot.core.lifecycle.aggregation import aggregate

RULE = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}


def role(name: str, rules: list[Any], **more: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": more.pop("labels", {})}, "rules": rules, **more}


def test_rules_are_written_when_they_differ_and_only_into_aggregated_roles():
    selector = {"clusterRoleSelectors": [{"matchLabels": {"part": "true"}}]}
    whole = role("whole", [], aggregationRule=selector)
    part = role("part", [RULE, RULE], labels={"part": "true"})
    policy = Policy()
    for one in (whole, part):
        policy.apply("clusterroles", "", one["metadata"]["name"], one)
    (apply,) = aggregate(policy, whole)
    assert isinstance(apply, Apply)
    assert (apply.name, apply.fields, apply.manager) == (
        "whole",
        {"rules": [RULE]},
        "clusterrole-aggregation-controller",
    )
    assert aggregate(policy, {**whole, "rules": [RULE]}) == ()
    assert aggregate(policy, part) == () and aggregate(policy, None) == ()
