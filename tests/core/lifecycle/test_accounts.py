"""What every namespace has."""

from __future__ import annotations

import base64
from typing import Any

from allot.core.lifecycle.accounts import (
    ACCOUNT_NAME,
    ACCOUNT_UID,
    ACCOUNTS,
    TOKEN_TYPE,
    account_key,
    default_account,
    filled,
    is_token_secret,
    needs_token,
    owner_of,
    root_ca,
    without_account,
    without_reference,
)
from allot.core.lifecycle.actions import Create, Delete, LookUp, Update
from allot.core.model.core_v1 import Namespace
from allot.core.model.meta import ObjectMeta

NAMESPACE = Namespace(metadata=ObjectMeta(name="ns"))
GOING = Namespace(metadata=ObjectMeta(name="ns", deletion_timestamp="2026-01-01T00:00:00Z"))
ACCOUNT = {"metadata": {"name": "robot", "namespace": "ns", "uid": "u1"}}


def secret(uid: str = "", **data: str) -> dict[str, Any]:
    annotations = {ACCOUNT_NAME: "robot", ACCOUNT_UID: uid} if uid else {ACCOUNT_NAME: "robot"}
    return {
        "metadata": {"name": "s", "namespace": "ns", "uid": "us", "annotations": annotations},
        "type": TOKEN_TYPE,
        "data": data,
    }


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def test_a_namespace_without_a_default_account_gets_one():
    (made,) = default_account(NAMESPACE, None)
    assert isinstance(made, Create) and made.may_exist
    assert made.object["metadata"] == {"name": "default", "namespace": "ns"}  # type: ignore[index]


def test_namespaces_that_go_or_are_gone_are_not_furnished():
    for namespace in (GOING, None):
        assert default_account(namespace, None) == ()
        assert root_ca(namespace, None, "pem") == ()
    assert default_account(NAMESPACE, ACCOUNT) == ()


def test_the_certificates_are_put_right_and_nothing_else_is():
    (made,) = root_ca(NAMESPACE, None, "pem")
    assert isinstance(made, Create)
    present: Any = made.object
    assert present["data"] == {"ca.crt": "pem"}
    assert root_ca(NAMESPACE, present, "pem") == ()
    present["metadata"]["annotations"]["mine"] = "kept"
    (update,) = root_ca(NAMESPACE, {**present, "data": {"ca.crt": "old", "more": "x"}}, "pem")
    assert isinstance(update, Update)
    changed: Any = update.object
    assert changed["data"] == {"ca.crt": "pem"} and changed["metadata"]["annotations"]["mine"] == "kept"


def test_only_secrets_that_say_whose_token_they_are_for_count():
    assert is_token_secret(secret()) and account_key(secret()) == "ns/robot"
    assert not is_token_secret({**secret(), "type": "Opaque"})
    assert not is_token_secret({"metadata": {"name": "s"}, "type": TOKEN_TYPE})


def test_an_account_that_the_cache_lacks_is_asked_for():
    question = owner_of(secret("u1"), None, {})
    assert question == LookUp(resource=ACCOUNTS, name="robot", namespace="ns")
    assert isinstance(question, LookUp)
    assert owner_of(secret("u1"), None, {question: ACCOUNT}) is ACCOUNT
    assert owner_of(secret("other"), ACCOUNT, {question: ACCOUNT}) is None
    assert owner_of(secret("u1"), ACCOUNT, {}) is ACCOUNT
    assert owner_of(secret(), ACCOUNT, {}) is ACCOUNT


def test_a_secret_is_filled_once():
    assert needs_token(secret())
    (update,) = filled(secret(), ACCOUNT, "pem", "jwt")
    assert isinstance(update, Update)
    full: Any = update.object
    assert full["data"] == {"ca.crt": encoded("pem"), "namespace": encoded("ns"), "token": encoded("jwt")}
    assert full["metadata"]["annotations"] == {ACCOUNT_NAME: "robot", ACCOUNT_UID: "u1"}
    assert not needs_token(full) and filled(full, ACCOUNT, "pem", "") == ()
    (renewed,) = filled(full, ACCOUNT, "new", "")
    assert isinstance(renewed, Update) and renewed.object["data"]["ca.crt"] == encoded("new")  # type: ignore[index]


def test_secrets_and_accounts_forget_each_other():
    (delete,) = without_account(secret())
    assert isinstance(delete, Delete) and (delete.name, delete.uid) == ("s", "us")
    naming = {**ACCOUNT, "secrets": [{"name": "s"}, {"name": "t"}]}
    (update,) = without_reference(naming, "s")
    assert isinstance(update, Update) and update.object["secrets"] == [{"name": "t"}]  # type: ignore[index]
    (last,) = without_reference({**ACCOUNT, "secrets": [{"name": "s"}]}, "s")
    assert isinstance(last, Update) and "secrets" not in last.object  # type: ignore[operator]
    assert without_reference(naming, "x") == () and without_reference(None, "s") == ()
