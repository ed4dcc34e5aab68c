"""The chain of those who may say yes, fed from the store; and the reviews that ask it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allot.apiserver.access.authorizer import WATCHED, Authorizer
from allot.apiserver.access.default_policy import default_objects
from allot.apiserver.access.escalation import check_rbac_write
from allot.apiserver.access.followed_store import FollowedStore
from allot.apiserver.access.impersonation import impersonated
from allot.apiserver.access.reviews import (
    local_subject_access_review,
    self_subject_access_review,
    self_subject_review,
    self_subject_rules_review,
    subject_access_review,
    token_review,
)
from allot.apiserver.access.setup import Access
from allot.apiserver.errors import StatusError
from allot.apiserver.request import ANONYMOUS, ApiRequest, Attributes, User
from allot.process.clock import ManualClock
from allot.store.memory import MemoryStore
from allot.store.port import Entry, Event, EventType

DEFAULTS = default_objects()
RBAC = "rbac.authorization.k8s.io/v1"
ALICE = User("alice", groups=("system:authenticated",))
NODE = User("system:node:n1", groups=("system:nodes", "system:authenticated"))


def bind(role: str, user: str, namespace: str = "default") -> dict[str, Any]:
    return {
        "apiVersion": RBAC,
        "kind": "RoleBinding",
        "metadata": {"name": f"{user}-{role}", "namespace": namespace},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "User", "name": user}],
    }


@pytest.fixture
def authorizer() -> Authorizer:
    found = Authorizer()
    for _, object_ in DEFAULTS:
        found.apply(object_)
    return found


def asked(user: User, verb: str, resource: str, **more: Any) -> Attributes:
    return Attributes(user=user, verb=verb, resource=resource, **{"namespace": "default", **more})


def status_of(authorizer: Authorizer, attributes: Attributes) -> dict[str, Any]:
    with pytest.raises(StatusError) as error:
        authorizer.check(attributes)
    return error.value.status()


def test_masters_may_do_everything_even_without_any_role() -> None:
    Authorizer().check(asked(User("root", groups=("system:masters",)), "frob", "anything"))


def test_a_refusal_is_the_status_of_kubernetes(authorizer: Authorizer) -> None:
    status = status_of(authorizer, asked(ALICE, "list", "pods"))
    assert (status["code"], status["reason"]) == (403, "Forbidden")
    assert status["message"] == (
        'pods is forbidden: User "alice" cannot list resource "pods" in API group "" in the namespace "default"'
    )
    assert status["details"] == {"kind": "pods"}
    named = asked(ALICE, "get", "deployments", group="apps", name="web", subresource="scale")
    assert status_of(authorizer, named)["message"] == (
        'deployments.apps "web" is forbidden: User "alice" cannot get resource "deployments/scale" in API group "apps" '
        'in the namespace "default"'
    )
    path = Attributes(user=ALICE, verb="get", path="/metrics")
    assert status_of(authorizer, path)["message"] == 'forbidden: User "alice" cannot get path "/metrics"'


def test_without_a_credential_one_may_ask_for_health_alone(authorizer: Authorizer) -> None:
    assert status_of(authorizer, asked(ANONYMOUS, "list", "pods"))["code"] == 403
    assert status_of(authorizer, Attributes(user=ANONYMOUS, verb="get", path="/api"))["code"] == 403
    authorizer.check(Attributes(user=ANONYMOUS, verb="get", path="/readyz"))


def test_a_node_is_refused_with_the_node_authorizers_reason(authorizer: Authorizer) -> None:
    message = status_of(authorizer, asked(NODE, "list", "resourceslices", group="resource.k8s.io", namespace=""))[
        "message"
    ]
    assert message.endswith(
        "at the cluster scope: can only list/watch/deletecollection resourceslices with nodeName field selector"
    )


async def test_changes_in_the_store_count_as_soon_as_they_are_applied(authorizer: Authorizer) -> None:
    store = MemoryStore()
    await store.open()
    watch = store.watch("/registry/", await store.revision())
    key = "/registry/rolebindings/default/alice-view"
    entry = await store.create(key, bind("view", "alice"))
    await store.delete(key, entry.revision)
    allowed = []
    async for event in watch:
        if isinstance(event, Event):
            authorizer.apply_change(event)
            allowed.append(authorizer.authorize(asked(ALICE, "list", "pods")).allowed)
            if event.type is EventType.DELETED:
                break
    await watch.close()
    await store.close()
    assert allowed == [True, False]


async def test_own_writes_count_before_the_watch_tells_of_them(authorizer: Authorizer) -> None:
    store = FollowedStore(MemoryStore(), authorizer)
    await store.open()
    watch = store.watch("/registry/", await store.revision())
    key = "/registry/rolebindings/default/alice-view"
    pods = asked(ALICE, "list", "pods")
    entry = await store.create(key, bind("view", "alice"))
    assert authorizer.authorize(pods).allowed
    changed = {**entry.object, "metadata": {**entry.object["metadata"]}, "subjects": []}
    entry = await store.update(key, changed, entry.revision)
    assert not authorizer.authorize(pods).allowed
    await store.delete(key, entry.revision)
    seen = []
    async for event in watch:
        if isinstance(event, Event):
            authorizer.apply_change(event)
            # What the watch tells late never brings back what is gone.
            assert not authorizer.authorize(pods).allowed
            seen.append(event)
            if event.type is EventType.DELETED:
                break
    # Nor does a writer that wakes up after the watch.
    authorizer.apply_write(seen[0].entry)
    assert not authorizer.authorize(pods).allowed
    await watch.close()
    await store.close()


def test_a_reload_forgets_what_was_deleted_unseen(authorizer: Authorizer) -> None:
    authorizer.apply(bind("view", "alice"))
    assert authorizer.authorize(asked(ALICE, "list", "pods")).allowed
    authorizer.reload(object_ for _, object_ in DEFAULTS)
    assert not authorizer.authorize(asked(ALICE, "list", "pods")).allowed
    authorizer.check(Attributes(user=ANONYMOUS, verb="get", path="/readyz"))


def test_kinds_of_other_groups_with_the_same_names_change_nothing(authorizer: Authorizer) -> None:
    impostor = bind("cluster-admin", "alice") | {"apiVersion": "example.com/v1"}
    authorizer.apply(impostor)
    authorizer.apply_change(
        Event(EventType.ADDED, Entry("/registry/x", {"kind": "Pod", "apiVersion": "x/v1"}, 1), None, 1)
    )
    assert not authorizer.authorize(asked(ALICE, "list", "pods")).allowed


def test_pods_open_their_claims_for_their_node(authorizer: Authorizer) -> None:
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "default"},
        "spec": {"nodeName": "n1", "resourceClaims": [{"name": "gpu", "resourceClaimName": "c"}]},
    }
    claim = asked(NODE, "get", "resourceclaims", group="resource.k8s.io", name="c")
    assert not authorizer.authorize(claim).allowed
    authorizer.apply(pod)
    assert authorizer.authorize(claim).allowed
    authorizer.apply(pod, deleted=True)
    assert not authorizer.authorize(claim).allowed


def test_what_has_to_be_watched_is_listed() -> None:
    assert ("rbac.authorization.k8s.io", "clusterroles") in WATCHED
    assert ("", "pods") in WATCHED
    assert ("resource.k8s.io", "resourceslices") in WATCHED


def test_a_watch_of_one_object_is_about_that_object() -> None:
    request = ApiRequest(
        user=NODE, verb="watch", group="", version="v1", resource="secrets", query={"fieldSelector": "metadata.name=s"}
    )
    assert request.attributes().name == "s"


# --- escalation, impersonation ---


def test_an_admin_of_a_namespace_cannot_hand_out_more(authorizer: Authorizer) -> None:
    authorizer.apply(bind("admin", "alice"))
    check_rbac_write(authorizer, ALICE, "rolebindings", "default", bind("edit", "bob"))
    with pytest.raises(StatusError) as error:
        check_rbac_write(authorizer, ALICE, "rolebindings", "default", bind("cluster-admin", "bob"))
    assert error.value.code == 403
    assert error.value.message.startswith(
        'rolebindings.rbac.authorization.k8s.io "bob-cluster-admin" is forbidden: user "alice" '
        '(groups=["system:authenticated"]) is attempting to grant RBAC permissions not currently held:\n'
    )
    with pytest.raises(StatusError) as missing:
        check_rbac_write(authorizer, ALICE, "rolebindings", "default", bind("gone", "bob"))
    assert (missing.value.code, missing.value.message) == (
        404,
        'clusterrole.rbac.authorization.k8s.io "gone" not found',
    )
    role = {"metadata": {"name": "r"}, "rules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]}
    with pytest.raises(StatusError, match="not currently held"):
        check_rbac_write(authorizer, ALICE, "roles", "default", role)


def test_impersonation_is_refused_or_goes_on_as_the_other(authorizer: Authorizer) -> None:
    request = asked(ALICE, "list", "pods")
    assert impersonated(authorizer, request, [("Accept", "x")]) == (request, "")
    with pytest.raises(StatusError) as error:
        impersonated(authorizer, request, [("Impersonate-User", "bob")])
    assert error.value.code == 403
    assert 'User "alice" cannot impersonate-on:user-info:list resource "pods"' in error.value.message
    with pytest.raises(StatusError) as bad:
        impersonated(authorizer, request, [("Impersonate-Group", "g")])
    assert bad.value.code == 400
    with pytest.raises(StatusError) as nobody:
        impersonated(authorizer, asked(ANONYMOUS, "list", "pods"), [("Impersonate-User", "bob")])
    assert nobody.value.code == 403
    root = asked(User("root", groups=("system:masters",)), "list", "pods")
    attributes, _ = impersonated(authorizer, root, [("Impersonate-User", "bob")])
    assert attributes.user == User("bob", groups=("system:authenticated",))


# --- reviews ---


def review(kind: str, **spec: Any) -> dict[str, Any]:
    return {"apiVersion": "authorization.k8s.io/v1", "kind": kind, "metadata": {}, "spec": spec}


def test_access_reviews_answer_what_would_be_decided(authorizer: Authorizer) -> None:
    authorizer.apply(bind("view", "alice"))
    pods = {"verb": "list", "resource": "pods", "namespace": "default"}
    answer = self_subject_access_review(authorizer, review("SelfSubjectAccessReview", resourceAttributes=pods), ALICE)
    assert answer["status"] == {
        "allowed": True,
        "reason": 'RBAC: allowed by RoleBinding "alice-view/default" of ClusterRole "view" to User "alice"',
    }
    answer = subject_access_review(
        authorizer, review("SubjectAccessReview", resourceAttributes=pods | {"verb": "delete"}, user="alice")
    )
    assert answer["status"] == {"allowed": False}
    answer = local_subject_access_review(
        authorizer, review("LocalSubjectAccessReview", resourceAttributes=pods, user="alice"), "default"
    )
    assert answer["status"]["allowed"] is True
    path = {"path": "/readyz", "verb": "get"}
    answer = subject_access_review(
        authorizer, review("SubjectAccessReview", nonResourceAttributes=path, groups=["system:unauthenticated"])
    )
    assert answer["status"]["allowed"] is True


def test_selectors_of_reviews_count(authorizer: Authorizer) -> None:
    def allowed(selector: dict[str, Any]) -> dict[str, Any]:
        slices = {"verb": "list", "group": "resource.k8s.io", "resource": "resourceslices", "fieldSelector": selector}
        posted = review("SubjectAccessReview", resourceAttributes=slices, user=NODE.name, groups=list(NODE.groups))
        status = subject_access_review(authorizer, posted)["status"]
        assert isinstance(status, dict)
        return status

    assert allowed({"rawSelector": "spec.nodeName=n1"})["allowed"] is True
    assert allowed({"requirements": [{"key": "spec.nodeName", "operator": "In", "values": ["n1"]}]})["allowed"] is True
    status = allowed({"requirements": [{"key": "spec.nodeName", "operator": "Exists"}]})
    assert status["allowed"] is False
    assert status["evaluationError"] == "spec.resourceAttributes.fieldSelector ignored due to parse error"


@pytest.mark.parametrize(
    ("spec", "metadata", "field"),
    [
        ({"user": "a"}, {}, "spec"),
        ({"user": "a", "resourceAttributes": {}, "nonResourceAttributes": {}}, {}, "spec"),
        ({"resourceAttributes": {}}, {}, "spec.user"),
        ({"user": "a", "resourceAttributes": {}}, {"name": "x"}, "metadata"),
        (
            {"user": "a", "resourceAttributes": {"fieldSelector": {}}},
            {},
            "spec.resourceAttributes.fieldSelector.requirements",
        ),
    ],
)
def test_reviews_that_make_no_sense_are_invalid(
    authorizer: Authorizer, spec: dict[str, Any], metadata: dict[str, Any], field: str
) -> None:
    with pytest.raises(StatusError) as error:
        subject_access_review(authorizer, review("SubjectAccessReview", **spec) | {"metadata": metadata})
    assert error.value.code == 422
    assert error.value.details is not None
    assert [cause["field"] for cause in error.value.details["causes"]] == [field]


def test_a_local_review_stays_in_its_namespace(authorizer: Authorizer) -> None:
    posted = review("LocalSubjectAccessReview", resourceAttributes={"namespace": "other"}, user="a")
    with pytest.raises(StatusError, match=r"must match metadata\.namespace"):
        local_subject_access_review(authorizer, posted, "default")


def test_a_rules_review_lists_what_one_may_do(authorizer: Authorizer) -> None:
    authorizer.apply(bind("view", "alice"))
    answer = self_subject_rules_review(authorizer, review("SelfSubjectRulesReview", namespace="default"), ALICE)
    status = answer["status"]
    assert {"verbs": ["get", "list", "watch"], "apiGroups": [""], "resources": ["namespaces"]} in status[
        "resourceRules"
    ]
    assert any("/healthz" in rule["nonResourceURLs"] for rule in status["nonResourceRules"])
    assert status["incomplete"] is False
    node = self_subject_rules_review(authorizer, review("SelfSubjectRulesReview", namespace="default"), NODE)["status"]
    assert node["incomplete"] is True
    assert node["evaluationError"] == "node authorizer does not support user rule resolution"
    with pytest.raises(StatusError) as error:
        self_subject_rules_review(authorizer, review("SelfSubjectRulesReview"), ALICE)
    assert error.value.code == 400


def test_who_am_i(clock: ManualClock) -> None:
    user = User("alice", "1", ("dev",), {"k": ("v",)})
    posted = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    assert self_subject_review(posted, user, clock)["status"] == {
        "userInfo": {"username": "alice", "uid": "1", "groups": ["dev"], "extra": {"k": ["v"]}}
    }


async def test_a_token_review_says_whose_token_it_is(access: Access, objects: Any) -> None:
    account = objects.put("serviceaccounts", "team", "bot")
    token = access.tokens.issue(account, ["vault"], 3600)

    async def reviewed(**spec: Any) -> dict[str, Any]:
        posted = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": spec}
        status = (await token_review(access.authenticator, posted, access.tokens.audiences))["status"]
        assert isinstance(status, dict)
        return status

    good = await reviewed(token=token, audiences=["vault", "other"])
    assert good["authenticated"] is True
    assert good["user"]["username"] == "system:serviceaccount:team:bot"
    assert good["audiences"] == ["vault"]
    assert "is invalid for the target audiences" in (await reviewed(token=token))["error"]
    assert await reviewed(token="rubbish") == {"error": "invalid bearer token", "user": {}}
    with pytest.raises(StatusError) as error:
        await reviewed()
    assert error.value.code == 400


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["resourceAttributes", "nonResourceAttributes", "user", "groups", "verb", "fieldSelector", "x"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=8,
)


@settings(max_examples=80)
@given(values)
def test_whatever_is_posted_gets_an_answer_or_a_client_error(spec: Any) -> None:
    posted = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "metadata": spec, "spec": spec}
    try:
        assert subject_access_review(Authorizer(), posted)["status"]["allowed"] is False
    except StatusError as error:
        assert error.code in (400, 422)
