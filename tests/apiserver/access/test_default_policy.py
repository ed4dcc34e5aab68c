"""The roles and bindings that a cluster starts with."""

from __future__ import annotations

from typing import Any

from allot.apiserver.access.default_policy import default_objects, node_rules, parse_rules
from allot.core.access.rules import Rule
from allot.core.features import ALL_GATES, DEFAULT_GATES

REQUIRED_ROLES = """
cluster-admin admin edit view system:aggregate-to-admin system:aggregate-to-edit system:aggregate-to-view
system:discovery system:basic-user system:public-info-viewer system:kube-scheduler system:kube-controller-manager
system:node system:node-bootstrapper system:node-proxier system:volume-scheduler system:auth-delegator system:monitoring
system:controller:resource-claim-controller system:controller:device-taint-eviction-controller
system:controller:generic-garbage-collector system:controller:namespace-controller
"""


def by_kind(kind: str, gates: Any = DEFAULT_GATES) -> dict[str, dict[str, Any]]:
    return {object_["metadata"]["name"]: object_ for resource, object_ in default_objects(gates) if resource == kind}


def test_the_usual_roles_are_there_and_marked_as_kubernetes_marks_them() -> None:
    roles = by_kind("clusterroles")
    assert set(REQUIRED_ROLES.split()) <= set(roles)
    # Kubernetes' own, that of metrics-server, and that of agents which lead pods to Services.
    assert len(roles) == 73 + 2
    for role in roles.values():
        assert role["metadata"]["labels"]["kubernetes.io/bootstrapping"] == "rbac-defaults"
        assert role["metadata"]["annotations"] == {"rbac.authorization.kubernetes.io/autoupdate": "true"}


def test_every_binding_binds_a_role_that_is_there() -> None:
    objects = default_objects()
    roles = {
        (object_["kind"], object_["metadata"].get("namespace", ""), object_["metadata"]["name"])
        for _, object_ in objects
        if "rules" in object_
    }
    for _, object_ in objects:
        if "roleRef" in object_:
            reference = object_["roleRef"]
            assert (reference["kind"], object_["metadata"].get("namespace", ""), reference["name"]) in roles


def test_admin_edit_and_view_come_with_their_aggregated_rules() -> None:
    roles = by_kind("clusterroles")
    for name in ("admin", "edit", "view"):
        assert roles[name]["aggregationRule"]["clusterRoleSelectors"]
    assert len(roles["admin"]["rules"]) > len(roles["edit"]["rules"]) > len(roles["view"]["rules"]) > 0


def test_gated_rules_and_roles_come_with_their_gate() -> None:
    assert "system:controller:podgroup-protection-controller" not in by_kind("clusterroles")
    roles = by_kind("clusterroles", ALL_GATES)
    assert "system:controller:podgroup-protection-controller" in roles
    assert "system:controller:podgroup-protection-controller" in by_kind("clusterrolebindings", ALL_GATES)
    binding_rule = {
        "verbs": ["patch", "update"],
        "apiGroups": ["resource.k8s.io"],
        "resources": ["resourceclaims/binding"],
    }
    assert binding_rule in by_kind("clusterroles")["system:kube-scheduler"]["rules"]
    without = DEFAULT_GATES.changed(disable=["DRAResourceClaimGranularStatusAuthorization"])
    assert binding_rule not in by_kind("clusterroles", without)["system:kube-scheduler"]["rules"]


def test_the_tables_short_words_are_spelled_out() -> None:
    assert parse_rules("read | core | pods\nwrite | apps | * | a b\nget | /x /y\nevents", DEFAULT_GATES) == (
        Rule(("get", "list", "watch"), ("",), ("pods",)),
        Rule(("create", "delete", "deletecollection", "patch", "update"), ("apps",), ("*",), ("a", "b")),
        Rule(("get",), non_resource_urls=("/x", "/y")),
        Rule(("create", "patch", "update"), ("", "events.k8s.io"), ("events",)),
    )
    assert Rule(("get",), ("resource.k8s.io",), ("resourceclaims",)) in node_rules()
