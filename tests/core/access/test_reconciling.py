"""What a start adds to default roles and bindings that exist already."""

from __future__ import annotations

from typing import Any

from allot.core.access.reconciling import is_protected, reconciled
from allot.core.access.rules import COMPARISONS_MAX

Object = dict[str, Any]

UPDATED = {"rbac.authorization.kubernetes.io/autoupdate": "true"}


def role(*rules: Object, **more: Any) -> Object:
    metadata = {"name": "r", "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"}, "annotations": UPDATED}
    return {"kind": "ClusterRole", "metadata": metadata, "rules": list(rules), **more}


def rule(verbs: str, resources: str) -> Object:
    return {"verbs": verbs.split(), "apiGroups": [""], "resources": resources.split()}


def binding(*subjects: str, role_name: str = "r") -> Object:
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role_name}
    users = [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name} for name in subjects]
    return {"kind": "ClusterRoleBinding", "metadata": {"name": "b"}, "roleRef": reference, "subjects": users}


def test_what_is_as_expected_stays_the_same_object() -> None:
    existing = role(rule("get list", "pods"))
    assert reconciled(existing, role(rule("list get", "pods"))) is existing
    assert reconciled(existing, role(rule("get", "pods"))) is existing
    bound = binding("a", "b")
    assert reconciled(bound, binding("b")) is bound


def test_missing_permissions_are_added_one_by_one_and_others_stay() -> None:
    existing = role(rule("get", "pods"), rule("delete", "secrets"))
    wanted = reconciled(existing, role(rule("get watch", "pods nodes")))
    assert wanted is not None
    assert wanted["rules"] == [
        rule("get", "pods"),
        rule("delete", "secrets"),
        rule("watch", "pods"),
        rule("get", "nodes"),
        rule("watch", "nodes"),
    ]
    assert existing["rules"] == [rule("get", "pods"), rule("delete", "secrets")]
    assert reconciled(wanted, role(rule("get watch", "pods nodes"))) is wanted


def test_labels_and_annotations_are_added_and_keep_what_an_administrator_wrote() -> None:
    existing = {"metadata": {"name": "r", "labels": {"kubernetes.io/bootstrapping": "mine", "team": "a"}}, "rules": []}
    wanted = reconciled(existing, role())
    assert wanted is not None
    assert wanted["metadata"]["labels"] == {"kubernetes.io/bootstrapping": "mine", "team": "a"}
    assert wanted["metadata"]["annotations"] == UPDATED


def test_missing_subjects_are_added_and_others_stay() -> None:
    wanted = reconciled(binding("mine"), binding("system:a"))
    assert wanted is not None
    assert [subject["name"] for subject in wanted["subjects"]] == ["mine", "system:a"]


def test_a_binding_of_another_role_has_to_be_made_anew() -> None:
    assert reconciled(binding("a", role_name="other"), binding("a")) is None


def test_aggregated_roles_get_missing_selectors_and_their_rules_are_not_compared() -> None:
    one, two = ({"matchLabels": {label: "true"}} for label in ("one", "two"))
    expected = role(rule("get", "pods"), aggregationRule={"clusterRoleSelectors": [one]})
    existing = role(aggregationRule={"clusterRoleSelectors": [two]})
    wanted = reconciled(existing, expected)
    assert wanted is not None
    assert wanted["aggregationRule"] == {"clusterRoleSelectors": [two, one]}
    assert wanted["rules"] == []
    assert reconciled(wanted, expected) is wanted


def test_a_role_that_should_not_aggregate_stops_it() -> None:
    existing = role(rule("get", "pods"), aggregationRule={"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]})
    wanted = reconciled(existing, role(rule("get", "pods")))
    assert wanted is not None
    assert "aggregationRule" not in wanted


def test_a_role_with_more_rules_than_can_be_compared_gets_the_expected_ones() -> None:
    many = [rule("get", f"thing{number}") for number in range(int(COMPARISONS_MAX**0.5) + 1)]
    expected = [rule("get", f"other{number}") for number in range(len(many))]
    wanted = reconciled(role(*many), role(many[0], *expected))
    assert wanted is not None
    assert wanted["rules"] == [*many, *expected]


def test_the_annotation_protects_an_object() -> None:
    assert not is_protected(role())
    assert not is_protected({"metadata": {"name": "r"}})
    assert is_protected({"metadata": {"annotations": {"rbac.authorization.kubernetes.io/autoupdate": "false"}}})
