"""RBAC decisions: what rules allow, whom bindings reach, what aggregation adds."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allot.apiserver.access.default_policy import default_objects
from allot.core.access.attributes import ANONYMOUS, Attributes, User, refusal
from allot.core.access.rbac import Policy, RoleMissing

GROUP = "rbac.authorization.k8s.io"


def rule(verbs: str, groups: str = "", resources: str = "", names: str = "", urls: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {"verbs": verbs.split()}
    if resources:
        found["apiGroups"] = [group if group != "core" else "" for group in groups.split()]
        found["resources"] = resources.split()
    if names:
        found["resourceNames"] = names.split()
    if urls:
        found["nonResourceURLs"] = urls.split()
    return found


def role(
    *rules: dict[str, Any], labels: dict[str, str] | None = None, select: dict[str, str] | None = None
) -> dict[str, Any]:
    found: dict[str, Any] = {"metadata": {"labels": labels or {}}, "rules": list(rules)}
    if select is not None:
        found["aggregationRule"] = {"clusterRoleSelectors": [{"matchLabels": select}]}
    return found


def binding(kind: str, name: str, *subjects: str) -> dict[str, Any]:
    found = []
    for subject in subjects:
        subject_kind, _, subject_name = subject.partition(" ")
        entry = {"kind": subject_kind, "name": subject_name}
        if "/" in subject_name:
            entry["namespace"], entry["name"] = subject_name.split("/")
        found.append(entry)
    return {"roleRef": {"apiGroup": GROUP, "kind": kind, "name": name}, "subjects": found}


def policy_with(*rules: dict[str, Any], subject: str = "User alice", namespace: str = "") -> Policy:
    policy = Policy()
    policy.apply("clusterroles", "", "r", role(*rules))
    resource = "rolebindings" if namespace else "clusterrolebindings"
    policy.apply(resource, namespace, "b", binding("ClusterRole", "r", subject))
    return policy


def may(policy: Policy, request: str, user: User | None = None, *, namespace: str = "default", name: str = "") -> bool:
    """request: `verb group/resource[/subresource]` (core for the group without a name) or `verb /path`."""
    verb, _, what = request.partition(" ")
    user = user or User("alice", groups=("dev",))
    if what.startswith("/"):
        return policy.authorize(Attributes(user=user, verb=verb, path=what)).allowed
    group, resource, *rest = what.split("/")
    attributes = Attributes(
        user=user,
        verb=verb,
        group="" if group == "core" else group,
        resource=resource,
        subresource=rest[0] if rest else "",
        namespace=namespace,
        name=name,
    )
    return policy.authorize(attributes).allowed


@pytest.mark.parametrize(
    ("given_rule", "request_", "name", "allowed"),
    [
        (rule("get list", "core", "pods"), "get core/pods", "", True),
        (rule("get list", "core", "pods"), "delete core/pods", "", False),
        (rule("get", "core", "pods"), "get apps/pods", "", False),
        (rule("get", "core", "pods"), "get core/pods/log", "", False),
        (rule("get", "core", "pods/log"), "get core/pods/log", "", True),
        (rule("get", "core", "pods/log"), "get core/pods", "", False),
        (rule("*", "*", "*"), "frob example.com/things/part", "", True),
        (rule("get", "*", "*/scale"), "get apps/deployments/scale", "", True),
        (rule("get", "*", "*/scale"), "get apps/deployments", "", False),
        (rule("get", "*", "*/scale"), "get apps/deployments/status", "", False),
        (rule("get", "core", "pods", "a b"), "get core/pods", "b", True),
        (rule("get", "core", "pods", "a b"), "get core/pods", "c", False),
        (rule("list", "core", "pods", "a b"), "list core/pods", "", False),
        (rule("get", urls="/metrics"), "get /metrics", "", True),
        (rule("get", urls="/metrics"), "get /metrics/slis", "", False),
        (rule("get", urls="/apis/*"), "get /apis/apps/v1", "", True),
        (rule("get", urls="/apis/*"), "get /apis", "", False),
        (rule("get", urls="*"), "get /anything", "", True),
        (rule("get", urls="*"), "get core/pods", "", False),
        (rule("*", "*", "*"), "get /metrics", "", False),
        (rule("get", "core"), "get core/pods", "", False),
    ],
)
def test_a_rule_allows_what_it_says(given_rule: dict[str, Any], request_: str, name: str, allowed: bool) -> None:
    assert may(policy_with(given_rule), request_, name=name) is allowed


@pytest.mark.parametrize(
    ("subject", "user", "allowed"),
    [
        ("User alice", User("alice"), True),
        ("User bob", User("alice"), False),
        ("Group dev", User("alice", groups=("dev",)), True),
        ("Group alice", User("alice"), False),
        ("ServiceAccount team/bot", User("system:serviceaccount:team:bot"), True),
        ("ServiceAccount other/bot", User("system:serviceaccount:team:bot"), False),
        ("ServiceAccount bot", User("system:serviceaccount:default:bot"), False),
    ],
)
def test_a_cluster_binding_reaches_its_subjects(subject: str, user: User, allowed: bool) -> None:
    assert may(policy_with(rule("get", "core", "pods"), subject=subject), "get core/pods", user) is allowed


def test_a_service_account_without_namespace_is_one_of_the_bindings_namespace() -> None:
    policy = policy_with(rule("get", "core", "pods"), subject="ServiceAccount bot", namespace="team")
    bot = User("system:serviceaccount:team:bot")
    assert may(policy, "get core/pods", bot, namespace="team")
    assert not may(policy, "get core/pods", bot, namespace="default")


def test_a_role_binding_counts_in_its_namespace_only() -> None:
    policy = policy_with(rule("get", "core", "pods"), rule("get", urls="/x"), namespace="team")
    assert may(policy, "get core/pods", namespace="team")
    assert not may(policy, "get core/pods", namespace="other")
    assert not may(policy, "get core/pods", namespace="")
    assert not may(policy, "get /x")


def test_every_change_of_role_or_binding_counts_at_once() -> None:
    policy = policy_with(rule("get", "core", "pods"))
    assert may(policy, "get core/pods")
    policy.apply("clusterroles", "", "r", role(rule("list", "core", "pods")))
    assert not may(policy, "get core/pods")
    assert may(policy, "list core/pods")
    policy.apply("clusterrolebindings", "", "b", binding("ClusterRole", "r", "User bob"))
    assert not may(policy, "list core/pods")
    assert may(policy, "list core/pods", User("bob"))
    policy.apply("clusterrolebindings", "", "b", None)
    assert not may(policy, "list core/pods", User("bob"))


def test_a_missing_role_is_the_reason_of_a_refusal() -> None:
    policy = Policy()
    policy.apply("clusterrolebindings", "", "b", binding("ClusterRole", "gone", "User alice"))
    policy.apply("rolebindings", "default", "b", binding("Role", "gone", "User alice"))
    asked = Attributes(user=User("alice"), verb="get", resource="pods", namespace="default")
    assert policy.authorize(asked).reason == (
        'RBAC: [clusterrole.rbac.authorization.k8s.io "gone" not found, role.rbac.authorization.k8s.io "gone" not found]'
    )
    with pytest.raises(RoleMissing):
        policy.role_rules("Role", "", "gone")


def test_the_reason_names_binding_role_and_subject() -> None:
    policy = policy_with(rule("get", "core", "pods"), subject="ServiceAccount bot", namespace="team")
    asked = Attributes(user=User("system:serviceaccount:team:bot"), verb="get", resource="pods", namespace="team")
    assert policy.authorize(asked).reason == (
        'RBAC: allowed by RoleBinding "b/team" of ClusterRole "r" to ServiceAccount "bot/team"'
    )


def test_aggregated_roles_have_the_rules_of_what_they_select_also_over_several_steps() -> None:
    policy = Policy()
    policy.apply("clusterroles", "", "top", role(select={"to": "top"}))
    policy.apply("clusterroles", "", "middle", role(labels={"to": "top"}, select={"to": "middle"}))
    policy.apply("clusterroles", "", "leaf", role(rule("get", "core", "pods"), labels={"to": "middle"}))
    policy.apply("clusterrolebindings", "", "b", binding("ClusterRole", "top", "User alice"))
    assert may(policy, "get core/pods")
    policy.apply("clusterroles", "", "leaf", role(rule("list", "core", "pods"), labels={"to": "middle"}))
    assert not may(policy, "get core/pods")
    policy.apply("clusterroles", "", "leaf", None)
    assert not may(policy, "list core/pods")
    assert policy.aggregations() == {"top": (), "middle": ()}


def test_roles_that_aggregate_each_other_settle() -> None:
    policy = Policy()
    policy.apply("clusterroles", "", "a", role(labels={"to": "b"}, select={"to": "a"}))
    policy.apply("clusterroles", "", "b", role(labels={"to": "a"}, select={"to": "b"}))
    policy.apply("clusterroles", "", "leaf", role(rule("get", "core", "pods"), labels={"to": "a"}))
    rules = policy.aggregations()
    assert len(rules["a"]) == len(rules["b"]) == 1


DEFAULTS = default_objects()


def default_policy() -> Policy:
    policy = Policy()
    for resource, object_ in DEFAULTS:
        metadata = object_["metadata"]
        policy.apply(resource, metadata.get("namespace", ""), metadata["name"], object_)
    return policy


AUTHENTICATED = ("system:authenticated",)


def with_role(name: str, namespace: str = "default") -> Policy:
    policy = default_policy()
    policy.apply("rolebindings", namespace, "b", binding("ClusterRole", name, "User alice"))
    return policy


@pytest.mark.parametrize(
    ("request_", "view", "edit", "admin"),
    [
        ("list core/pods", True, True, True),
        ("get core/pods/log", True, True, True),
        ("get core/secrets", False, True, True),
        ("create core/pods", False, True, True),
        ("create core/pods/exec", False, True, True),
        ("list resource.k8s.io/resourceclaims", True, True, True),
        ("create resource.k8s.io/resourceclaims", False, True, True),
        ("create resource.k8s.io/resourceclaimtemplates", False, True, True),
        ("update resource.k8s.io/resourceclaims/status", False, False, False),
        ("list resource.k8s.io/resourceslices", False, False, False),
        ("create rbac.authorization.k8s.io/rolebindings", False, False, True),
        ("create rbac.authorization.k8s.io/clusterroles", False, False, False),
        ("create core/serviceaccounts/token", False, True, True),
        ("update core/resourcequotas", False, False, False),
        ("list core/nodes", False, False, False),
    ],
)
def test_the_usual_roles_allow_the_usual_things(request_: str, view: bool, edit: bool, admin: bool) -> None:
    assert may(with_role("view"), request_) is view
    assert may(with_role("edit"), request_) is edit
    assert may(with_role("admin"), request_) is admin
    assert not may(with_role("admin"), request_, namespace="other")


@pytest.mark.parametrize(
    ("user", "request_", "allowed"),
    [
        ("system:kube-scheduler", "create core/pods/binding", True),
        ("system:kube-scheduler", "patch resource.k8s.io/resourceclaims/binding", True),
        ("system:kube-scheduler", "update resource.k8s.io/resourceclaims/status", True),
        ("system:kube-scheduler", "patch resource.k8s.io/resourceclaims/driver", False),
        ("system:kube-scheduler", "list resource.k8s.io/resourceslices", True),
        ("system:kube-scheduler", "create resource.k8s.io/resourceslices", False),
        ("system:kube-controller-manager", "list example.com/anything", True),
        ("system:kube-controller-manager", "delete core/pods", False),
        (
            "system:serviceaccount:kube-system:resource-claim-controller",
            "create resource.k8s.io/resourceclaims",
            True,
        ),
        (
            "system:serviceaccount:kube-system:resource-claim-controller",
            "update resource.k8s.io/resourceclaims/binding",
            True,
        ),
        ("system:serviceaccount:kube-system:namespace-controller", "deletecollection example.com/anything", True),
        ("alice", "create authorization.k8s.io/selfsubjectaccessreviews", True),
        ("alice", "create authorization.k8s.io/subjectaccessreviews", False),
        ("alice", "get /apis/apps/v1", True),
        ("alice", "get /metrics", False),
    ],
)
def test_the_default_roles_serve_components_and_everybody(user: str, request_: str, allowed: bool) -> None:
    assert may(default_policy(), request_, User(user, groups=AUTHENTICATED)) is allowed


@pytest.mark.parametrize(
    ("path", "allowed"), [("/livez", True), ("/readyz", True), ("/healthz", True), ("/version", True), ("/api", False)]
)
def test_without_a_credential_only_health_and_version_can_be_read(path: str, allowed: bool) -> None:
    assert may(default_policy(), f"get {path}", ANONYMOUS) is allowed
    assert not may(default_policy(), f"post {path}", ANONYMOUS)


def test_refusals_are_told_in_kubernetes_words() -> None:
    alice = User("alice")
    assert refusal(Attributes(user=alice, verb="list", resource="pods", namespace="default")) == (
        'User "alice" cannot list resource "pods" in API group "" in the namespace "default"'
    )
    assert refusal(Attributes(user=alice, verb="get", group="apps", resource="deployments", subresource="scale")) == (
        'User "alice" cannot get resource "deployments/scale" in API group "apps" at the cluster scope'
    )
    assert refusal(Attributes(user=alice, verb="get", path="/metrics")) == 'User "alice" cannot get path "/metrics"'
    assert refusal(Attributes(user=User("<b>"), verb="get", path="/"), "why") == (
        'User "&lt;b&gt;" cannot get path "/": why'
    )


names = st.sampled_from(["a", "b", "c", "*", ""])
some = st.lists(names, max_size=3)
rules = st.lists(
    st.fixed_dictionaries(
        {"verbs": some, "apiGroups": some, "resources": some, "resourceNames": some, "nonResourceURLs": some}
    ),
    max_size=4,
)


@settings(max_examples=60)
@given(rules, names, names, names, names, names)
def test_kept_answers_are_those_of_the_rules(
    given_rules: list[dict[str, Any]], verb: str, group: str, resource: str, subresource: str, name: str
) -> None:
    policy = policy_with(*given_rules)
    asked = Attributes(
        user=User("alice"), verb=verb, group=group, resource=resource or "x", subresource=subresource, name=name
    )
    combined = f"{asked.resource}/{subresource}" if subresource else asked.resource
    expected = any(
        ("*" in each["verbs"] or verb in each["verbs"])
        and ("*" in each["apiGroups"] or group in each["apiGroups"])
        and (
            "*" in each["resources"]
            or combined in each["resources"]
            or (bool(subresource) and f"*/{subresource}" in each["resources"])
        )
        and (not each["resourceNames"] or name in each["resourceNames"])
        for each in given_rules
    )
    assert policy.authorize(asked).allowed is expected
    assert policy.authorize(asked).allowed is expected


def test_questions_about_users_with_names_of_megabytes_are_answered_and_not_kept() -> None:
    policy = Policy()
    policy.apply("clusterroles", "", "reader", role(rule("get", "core", "pods")))
    policy.apply("clusterrolebindings", "", "readers", binding("ClusterRole", "reader", "Group people"))
    for groups in (("people",), ("people", *(f"group-{number}" for number in range(1000)))):
        user = User("somebody", groups=groups)
        asked = Attributes(user=user, verb="get", version="v1", resource="pods", namespace="default")
        assert policy.authorize(asked).allowed
    assert len(policy._answers) == len(policy._grants) == 1
