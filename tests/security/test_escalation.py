"""Rights grow only by the hand of those who have them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from security.servers import Both, Server
from waiting import wait_for

pytestmark = pytest.mark.slow

RBAC = "/apis/rbac.authorization.k8s.io/v1"
GROUP = "rbac.authorization.k8s.io"


def rule(verbs: str, resources: str, group: str = "", **more: Any) -> dict[str, Any]:
    return {"verbs": verbs.split(), "apiGroups": [group], "resources": resources.split(), **more}


def role(name: str, *rules: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, **more}, "rules": list(rules)}


def binding(name: str, role_name: str, *users: str, kind: str = "ClusterRole") -> dict[str, Any]:
    return {
        "metadata": {"name": name},
        "roleRef": {"apiGroup": GROUP, "kind": kind, "name": role_name},
        "subjects": [{"apiGroup": GROUP, "kind": "User", "name": user} for user in users],
    }


def wait_until(holds: Callable[[], bool], told: str) -> None:
    wait_for(told, holds)


class Somebody:
    """A user with the rights of one test on both servers."""

    def __init__(self, both: Both, name: str, *rules: dict[str, Any]) -> None:
        self.both, self.name = both, name
        self.who = both.user(name)
        both.create(f"{RBAC}/clusterroles", role(f"of-{name}", *rules))
        both.create(f"{RBAC}/clusterrolebindings", binding(f"of-{name}", f"of-{name}", name))
        # kube-apiserver learns of rights a moment later.
        for server in both.every:
            wait_until(partial(self._sees, server), f"{server.name}: the rights of {name} are in force")

    def _sees(self, server: Server) -> bool:
        path, body = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", {"spec": {"namespace": "default"}}
        rules = server.send("POST", path, body, who=self.who[server.name]).value["status"]["resourceRules"]
        return any(GROUP in each["apiGroups"] for each in rules)

    def status(self, method: str, path: str, body: Any = None, **sent: Any) -> int:
        return self.both.send(method, path, body, who=self.who, **sent).status


WRITES_ROLES = rule("get list create update patch delete", "roles clusterroles", GROUP)
WRITES_BINDINGS = rule("get list create update patch delete", "rolebindings clusterrolebindings", GROUP)
READS_PODS = rule("get list", "pods")


@pytest.fixture(scope="session")
def granter(both: Both) -> Somebody:
    """May write all roles and bindings, and read pods."""
    return Somebody(both, "granter", WRITES_ROLES, WRITES_BINDINGS, READS_PODS)


@pytest.mark.parametrize(
    ("name", "rules", "status"),
    [
        ("pods", [READS_PODS], 201),
        ("less", [rule("get", "pods", resourceNames=["a"])], 201),
        ("more-verbs", [rule("get delete", "pods")], 403),
        ("all-verbs", [rule("*", "pods")], 403),
        ("all-resources", [rule("get", "*")], 403),
        ("subresource", [rule("get", "pods/exec")], 403),
        ("all-subresources", [rule("get", "pods/*")], 403),
        ("secrets", [rule("get", "secrets")], 403),
        ("one-secret", [rule("get", "secrets", resourceNames=["a"])], 403),
        ("everything", [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}], 403),
        ("paths", [{"verbs": ["get"], "nonResourceURLs": ["/metrics"]}], 403),
        ("all-paths", [{"verbs": ["*"], "nonResourceURLs": ["*"]}], 403),
        ("escalate", [rule("escalate", "clusterroles", GROUP)], 403),
        ("bind", [rule("bind", "clusterroles", GROUP)], 403),
        ("impersonate", [rule("impersonate", "users")], 403),
        ("several", [READS_PODS, rule("get", "secrets")], 403),
    ],
)
def test_a_role_has_no_more_than_its_writer(
    granter: Somebody, name: str, rules: list[dict[str, Any]], status: int
) -> None:
    for path in (f"{RBAC}/clusterroles", f"{RBAC}/namespaces/default/roles"):
        assert granter.status("POST", path, role(f"more-{name}", *rules)) == status


def test_a_role_does_not_grow_by_update_patch_or_apply(granter: Somebody) -> None:
    path = f"{RBAC}/clusterroles"
    assert granter.status("POST", path, role("grows", READS_PODS)) == 201
    more = role("grows", READS_PODS, rule("get", "secrets"))
    assert granter.status("PUT", f"{path}/grows", more) == 403
    merge, strategic = "application/merge-patch+json", "application/strategic-merge-patch+json"
    for kind in (merge, strategic):
        assert granter.status("PATCH", f"{path}/grows", {"rules": more["rules"]}, kind=kind) == 403
    operation = [{"op": "add", "path": "/rules/-", "value": rule("get", "secrets")}]
    assert granter.status("PATCH", f"{path}/grows", operation, kind="application/json-patch+json") == 403
    applied = {"apiVersion": f"{GROUP}/v1", "kind": "ClusterRole", **more}
    query = "?fieldManager=me&force=true"
    assert granter.status("PATCH", f"{path}/grows{query}", applied, kind="application/apply-patch+yaml") == 403
    # What stays within is written.
    assert granter.status("PUT", f"{path}/grows", role("grows", rule("get", "pods"))) == 200


def test_a_role_does_not_grow_by_what_it_is_put_together_of(granter: Somebody) -> None:
    aggregating = {**role("together"), "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]}}
    assert granter.status("POST", f"{RBAC}/clusterroles", aggregating) == 403
    everything = {**role("together"), "aggregationRule": {"clusterRoleSelectors": [{}]}}
    assert granter.status("POST", f"{RBAC}/clusterroles", everything) == 403


@pytest.mark.parametrize(
    ("reference", "status"),
    [("cluster-admin", 403), ("system:node", 403), ("system:kube-scheduler", 403), ("gone", 404)],
)
@pytest.mark.parametrize("path", [f"{RBAC}/clusterrolebindings", f"{RBAC}/namespaces/default/rolebindings"])
def test_nobody_binds_what_they_do_not_have(granter: Somebody, path: str, reference: str, status: int) -> None:
    name = f"bound-{reference.replace(':', '-')}"
    assert granter.status("POST", path, binding(name, reference, "granter")) == status
    assert granter.status("POST", path, binding(name, reference, "system:anonymous")) == status


def test_a_binding_gets_no_other_role_later(granter: Somebody) -> None:
    path = f"{RBAC}/clusterrolebindings"
    assert granter.status("POST", path, binding("later", "of-granter", "granter")) == 201
    assert granter.status("PUT", f"{path}/later", binding("later", "cluster-admin", "granter")) in (403, 422)
    patch = {"roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": "cluster-admin"}}
    assert granter.status("PATCH", f"{path}/later", patch, kind="application/merge-patch+json") in (403, 422)


def test_bind_and_escalate_are_rights_of_their_own(both: Both) -> None:
    mine = {name: role(name, rule("get", "secrets")) for name in ("may-be-bound", "may-not")}
    for each in mine.values():
        both.create(f"{RBAC}/clusterroles", each)
    one = rule("bind", "clusterroles", GROUP, resourceNames=["may-be-bound"])
    binder = Somebody(both, "binder", WRITES_BINDINGS, one)
    path = f"{RBAC}/clusterrolebindings"
    assert binder.status("POST", path, binding("bound-by-right", "may-be-bound", "somebody-else")) == 201
    assert binder.status("POST", path, binding("bound-without", "may-not", "somebody-else")) == 403
    climber = Somebody(both, "climber", WRITES_ROLES, rule("escalate", "clusterroles", GROUP))
    assert climber.status("POST", f"{RBAC}/clusterroles", role("climbed", rule("get", "secrets"))) == 201


def test_admin_of_a_namespace_is_admin_there_alone(both: Both, namespace: str) -> None:
    admin = both.grant(f"admin-of-{namespace}", namespace, "admin")
    inside, outside = f"{RBAC}/namespaces/{namespace}", f"{RBAC}/namespaces/default"

    def status(method: str, path: str, body: Any = None) -> int:
        return both.send(method, path, body, who=admin).status

    assert status("POST", f"{inside}/rolebindings", binding("editor", "edit", "jane")) == 201
    assert status("POST", f"{inside}/roles", role("reader", rule("get", "secrets"))) == 201
    assert status("POST", f"{inside}/rolebindings", binding("master", "cluster-admin", "jane")) == 403
    assert status("POST", f"{inside}/roles", role("nodes", rule("get", "nodes"))) == 403
    assert status("POST", f"{outside}/rolebindings", binding("editor", "edit", "jane")) == 403
    assert status("POST", f"{RBAC}/clusterrolebindings", binding("editor", "edit", "jane")) == 403
    assert status("GET", "/api/v1/namespaces/kube-system/secrets") == 403
    assert status("GET", "/api/v1/secrets") == 403
    assert status("POST", "/api/v1/namespaces", {"metadata": {"name": "mine"}}) == 403
    assert status("PATCH", f"/api/v1/namespaces/{namespace}", {}) == 403


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/api/v1/namespaces/{0}/serviceaccounts/default/token"),
        ("GET", "/api/v1/namespaces/{0}/secrets"),
        ("POST", "/api/v1/namespaces/{0}/pods/p/exec?command=sh"),
        ("GET", "/api/v1/namespaces/{0}/pods/p/proxy/"),
        ("POST", "/api/v1/namespaces/{0}/pods/p/eviction"),
        ("POST", "/api/v1/namespaces/{0}/pods/p/binding"),
        ("PUT", "/api/v1/namespaces/{0}/pods/p/status"),
        ("POST", "/apis/authorization.k8s.io/v1/namespaces/{0}/localsubjectaccessreviews"),
    ],
)
def test_view_looks_and_does_nothing(both: Both, namespace: str, method: str, path: str) -> None:
    viewer = both.grant(f"viewer-of-{namespace}", namespace, "view")
    assert both.send("GET", f"/api/v1/namespaces/{namespace}/pods", who=viewer).status == 200
    body = None if method == "GET" else {}
    assert both.send(method, path.format(namespace), body, who=viewer).status == 403


def test_a_deletion_of_many_needs_its_own_right(both: Both, namespace: str) -> None:
    deleter = Somebody(both, f"deleter-{namespace}", rule("get list delete", "configmaps"), rule("get", "roles", GROUP))
    maps = f"/api/v1/namespaces/{namespace}/configmaps"
    assert deleter.status("DELETE", maps) == 403
    # Who may not create does not create by update, nor by apply.
    updater = Somebody(
        both, f"updater-{namespace}", rule("get update patch", "configmaps"), rule("get", "roles", GROUP)
    )
    map_ = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "new"}}
    assert updater.status("PATCH", f"{maps}/new?fieldManager=me", map_, kind="application/apply-patch+yaml") == 403
