"""Nobody hands out more than they have."""

from __future__ import annotations

from typing import Any

import pytest

from allot.core.access.attributes import Attributes, Decision, User
from allot.core.access.escalation import check_binding_write, check_role_write
from allot.core.access.rbac import GROUP, Policy, RoleMissing
from allot.core.access.rules import SINGLE_RULES_MAX

ALICE = User("alice", groups=("dev", "system:authenticated"))


def rule(verbs: str, resources: str, groups: str = "core", names: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {
        "verbs": verbs.split(),
        "apiGroups": ["" if group == "core" else group for group in groups.split()],
        "resources": resources.split(),
    }
    if names:
        found["resourceNames"] = names.split()
    return found


def role(*rules: dict[str, Any], name: str = "new", **more: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "rules": list(rules), **more}


def policy_of_alice(*rules: dict[str, Any]) -> Policy:
    policy = Policy()
    policy.apply("clusterroles", "", "alices", role(*rules))
    reference = {"apiGroup": GROUP, "kind": "ClusterRole", "name": "alices"}
    policy.apply(
        "clusterrolebindings", "", "b", {"roleRef": reference, "subjects": [{"kind": "User", "name": "alice"}]}
    )
    return policy


def written(policy: Policy, new: dict[str, Any], old: dict[str, Any] | None = None, user: User = ALICE) -> str | None:
    return check_role_write(policy, policy.authorize, user, "clusterroles", "", new, old)


@pytest.mark.parametrize(
    ("owned", "wanted"),
    [
        (rule("get list", "pods"), rule("get", "pods")),
        (rule("*", "*", "*"), rule("get", "pods secrets", "core apps")),
        (rule("get", "pods"), rule("get", "pods", names="a")),
        (rule("get", "pods", names="a b"), rule("get", "pods", names="b")),
        (rule("get", "*/scale", "*"), rule("get", "deployments/scale", "apps")),
    ],
)
def test_what_one_has_can_be_handed_out(owned: dict[str, Any], wanted: dict[str, Any]) -> None:
    assert written(policy_of_alice(owned), role(wanted)) is None


@pytest.mark.parametrize(
    ("owned", "wanted", "told"),
    [
        (rule("get", "pods"), rule("get list", "pods"), '{APIGroups:[""], Resources:["pods"], Verbs:["list"]}'),
        (rule("get", "pods", names="a"), rule("get", "pods"), '{APIGroups:[""], Resources:["pods"], Verbs:["get"]}'),
        (
            rule("get", "pods"),
            rule("get list watch", "secrets", names="s"),
            '{APIGroups:[""], Resources:["secrets"], ResourceNames:["s"], Verbs:["get" "list" "watch"]}',
        ),
        (rule("get", "pods"), rule("get", "*", "*"), '{APIGroups:["*"], Resources:["*"], Verbs:["get"]}'),
        (
            rule("get", "pods"),
            {"verbs": ["get"], "nonResourceURLs": ["/metrics"]},
            '{NonResourceURLs:["/metrics"], Verbs:["get"]}',
        ),
    ],
)
def test_what_one_lacks_is_named(owned: dict[str, Any], wanted: dict[str, Any], told: str) -> None:
    assert written(policy_of_alice(owned), role(wanted)) == (
        'user "alice" (groups=["dev" "system:authenticated"]) is attempting to grant RBAC permissions not currently held:\n'
        + told
    )


def test_several_missing_permissions_are_lines_in_order() -> None:
    reason = written(policy_of_alice(), role(rule("get", "secrets pods")))
    assert reason is not None
    assert reason.split("\n")[1:] == [
        '{APIGroups:[""], Resources:["pods"], Verbs:["get"]}',
        '{APIGroups:[""], Resources:["secrets"], Verbs:["get"]}',
    ]


def test_masters_and_those_who_may_escalate_write_any_role() -> None:
    everything = role(rule("*", "*", "*"))
    assert written(policy_of_alice(), everything, user=User("root", groups=("system:masters",))) is None
    assert written(policy_of_alice(rule("escalate", "clusterroles", GROUP)), everything) is None
    named = policy_of_alice(rule("escalate", "clusterroles", GROUP, names="other"))
    assert written(named, everything) is not None


def test_an_aggregation_rule_takes_everything() -> None:
    aggregated = role(aggregationRule={"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]})
    needed = "must have cluster-admin privileges to use the aggregationRule"
    assert written(policy_of_alice(rule("get", "pods")), aggregated) == needed
    assert written(policy_of_alice(rule("get", "pods")), role(), aggregated) == needed
    full = policy_of_alice(rule("*", "*", "*"), {"verbs": ["*"], "nonResourceURLs": ["*"]})
    assert written(full, aggregated) is None


def test_the_garbage_collectors_fields_can_be_changed_by_anybody_who_may_write() -> None:
    old = {"metadata": {"name": "new", "finalizers": ["x"]}, "rules": [rule("*", "*", "*")]}
    assert written(policy_of_alice(), role(rule("*", "*", "*")), old) is None


def test_a_binding_takes_the_permissions_of_its_role_or_the_verb_bind() -> None:
    target = {"metadata": {"name": "b"}, "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": "target"}}

    def bound(policy: Policy, namespace: str = "") -> str | None:
        policy.apply("clusterroles", "", "target", role(rule("get", "secrets")))
        return check_binding_write(policy, policy.authorize, ALICE, namespace, target, None)

    refused = bound(policy_of_alice(rule("get", "pods")))
    assert refused is not None
    assert refused.endswith('\n{APIGroups:[""], Resources:["secrets"], Verbs:["get"]}')
    assert bound(policy_of_alice(rule("get", "secrets"))) is None
    assert bound(policy_of_alice(rule("bind", "clusterroles", GROUP, names="target")), "team") is None
    assert bound(policy_of_alice(rule("bind", "clusterroles", GROUP, names="other")), "team") is not None


def test_a_binding_to_a_missing_role_is_not_found_unless_one_may_bind_it() -> None:
    binding = {"metadata": {"name": "b"}, "roleRef": {"apiGroup": GROUP, "kind": "Role", "name": "gone"}}
    policy = policy_of_alice()
    with pytest.raises(RoleMissing, match="gone"):
        check_binding_write(policy, policy.authorize, ALICE, "default", binding, None)

    def anything(_: Attributes) -> Decision:
        return Decision(True)

    assert check_binding_write(policy, anything, ALICE, "default", binding, None) is None


def test_a_role_with_absurdly_many_permissions_is_refused_without_counting_them_out() -> None:
    many = " ".join(f"n{number}" for number in range(1000))
    reason = written(policy_of_alice(), role(rule(many, many, many)))
    assert reason is not None
    assert str(SINGLE_RULES_MAX) in reason
    assert written(policy_of_alice(rule("*", "*", "*")), role(rule(many, many, many))) is None
