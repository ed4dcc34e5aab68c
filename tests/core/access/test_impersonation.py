"""Acting as somebody else."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allot.core.access.attributes import Attributes, Decision, User
from allot.core.access.impersonation import BadImpersonation, ImpersonationRefused, impersonate, wanted_user

ASKER = User("alice", groups=("system:authenticated",))
GROUP = "authentication.k8s.io"


def allowing(*asked: str) -> Callable[[Attributes], Decision]:
    """asked: `verb group/resource[/subresource] [name]`; a missing name allows all names."""

    def authorize(attributes: Attributes) -> Decision:
        what = f"{attributes.group or 'core'}/{attributes.resource}"
        if attributes.subresource:
            what += f"/{attributes.subresource}"
        question = f"{attributes.verb} {what}"
        return Decision(question in asked or f"{question} {attributes.name}" in asked)

    return authorize


def acting(
    authorize: Callable[[Attributes], Decision], *headers: tuple[str, str], user: User = ASKER
) -> tuple[User, str]:
    wanted = wanted_user(headers)
    assert wanted is not None
    request = Attributes(user=user, verb="list", resource="pods", namespace="default")
    return impersonate(authorize, request, wanted)


def test_without_headers_nobody_is_impersonated() -> None:
    assert wanted_user([("Authorization", "x"), ("Accept", "y")]) is None


def test_a_user_with_groups_uid_and_extra() -> None:
    allowed = allowing(
        "impersonate core/users bob",
        "impersonate core/groups",
        "impersonate authentication.k8s.io/uids",
        "impersonate authentication.k8s.io/userextras/example.com/team blue",
    )
    user, constraint = acting(
        allowed,
        ("Impersonate-User", "bob"),
        ("impersonate-group", "dev"),
        ("Impersonate-Group", "ops"),
        ("Impersonate-Uid", "42"),
        ("Impersonate-Extra-Example.com%2fTeam", "blue"),
    )
    assert user == User("bob", "42", ("dev", "ops", "system:authenticated"), {"example.com/team": ("blue",)})
    assert constraint == ""


def test_each_part_needs_its_own_permission() -> None:
    headers = [("Impersonate-User", "bob"), ("Impersonate-Group", "dev")]
    with pytest.raises(ImpersonationRefused):
        acting(allowing("impersonate core/users bob"), *headers)
    with pytest.raises(ImpersonationRefused):
        acting(allowing("impersonate core/groups dev"), *headers)


def test_a_service_account_comes_with_its_groups() -> None:
    name = "system:serviceaccount:team:bot"
    user, _ = acting(allowing("impersonate core/serviceaccounts bot"), ("Impersonate-User", name))
    assert user.groups == ("system:serviceaccounts", "system:serviceaccounts:team", "system:authenticated")
    constrained = allowing(
        "impersonate-on:serviceaccount:list core/pods",
        "impersonate:serviceaccount authentication.k8s.io/serviceaccounts",
    )
    assert acting(constrained, ("Impersonate-User", name)) == (user, "impersonate:serviceaccount")


def test_anonymous_stays_unauthenticated() -> None:
    user, _ = acting(allowing("impersonate core/users"), ("Impersonate-User", "system:anonymous"))
    assert user.groups == ("system:unauthenticated",)


def test_a_constrained_asker_may_only_do_what_was_granted() -> None:
    granted = ("impersonate-on:user-info:list core/pods", "impersonate:user-info authentication.k8s.io/users bob")
    user, constraint = acting(allowing(*granted), ("Impersonate-User", "bob"))
    assert (user.name, constraint) == ("bob", "impersonate:user-info")
    with pytest.raises(ImpersonationRefused) as refused:
        acting(allowing(granted[1]), ("Impersonate-User", "bob"))
    assert refused.value.attributes.verb == "impersonate-on:user-info:list"


def test_constrained_impersonation_never_gives_system_masters() -> None:
    granted = allowing(
        "impersonate-on:user-info:list core/pods",
        "impersonate:user-info authentication.k8s.io/users",
        "impersonate:user-info authentication.k8s.io/groups",
    )
    with pytest.raises(ImpersonationRefused) as refused:
        acting(granted, ("Impersonate-User", "bob"), ("Impersonate-Group", "system:masters"))
    assert refused.value.reason == "impersonating the system:masters group is not allowed"


def test_a_service_account_may_act_as_the_node_it_runs_on() -> None:
    on_node = User("system:serviceaccount:kube-system:agent", extra={"authentication.kubernetes.io/node-name": ("n1",)})
    granted = allowing(
        "impersonate-on:associated-node:list core/pods", "impersonate:associated-node authentication.k8s.io/nodes *"
    )
    user, constraint = acting(granted, ("Impersonate-User", "system:node:n1"), user=on_node)
    assert user.groups == ("system:nodes", "system:authenticated")
    assert constraint == "impersonate:associated-node"
    with pytest.raises(ImpersonationRefused):
        acting(granted, ("Impersonate-User", "system:node:n2"), user=on_node)


def test_groups_without_a_user_make_no_sense() -> None:
    with pytest.raises(BadImpersonation) as bad:
        wanted_user([("Impersonate-Group", "dev")])
    assert str(bad.value) == (
        'requested &user.DefaultInfo{Name:"", UID:"", Groups:[]string{"dev"}, Extra:map[string][]string(nil)} '
        "without impersonating a user name"
    )


def test_headers_that_are_no_text_are_refused() -> None:
    with pytest.raises(BadImpersonation, match="is not UTF-8"):
        wanted_user([("Impersonate-User", "bob\udcff")])


@settings(max_examples=60)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["Impersonate-User", "Impersonate-Group", "Impersonate-Uid"])
            | st.text().map(lambda text: f"Impersonate-Extra-{text}"),
            st.text(),
        )
    )
)
def test_whoever_may_do_nothing_cannot_impersonate_whatever_the_headers_say(headers: list[tuple[str, str]]) -> None:
    try:
        wanted = wanted_user(headers)
    except BadImpersonation:
        return
    if wanted is None:
        return
    request = Attributes(user=ASKER, verb="list", resource="pods")
    with pytest.raises(ImpersonationRefused):
        impersonate(lambda _: Decision(False), request, wanted)
    user, _ = impersonate(lambda _: Decision(True), request, wanted)
    assert user.name == wanted.name
    assert set(wanted.groups) <= set(user.groups)
    assert msgspec.to_builtins(user.extra) == msgspec.to_builtins(wanted.extra)
