"""Signing requests say who asked."""

from __future__ import annotations

from allot.apiserver.kinds.strategies import strategy_for
from allot.apiserver.kinds.table import builtin_resources
from allot.apiserver.request import User
from allot.apiserver.resources import Strategy

JANE = User("jane", groups=("dev",), extra={"scopes": ("a",)})


def strategy_of(kind: str) -> Strategy:
    return strategy_for(next(resource for resource in builtin_resources() if resource.kind == kind))


def test_a_signing_request_carries_its_requester_and_no_other() -> None:
    request = {"spec": {"request": "eA==", "username": "root", "groups": ["system:masters"], "uid": "1"}}
    assert strategy_of("CertificateSigningRequest").with_requester(request, JANE)["spec"] == {
        "request": "eA==",
        "username": "jane",
        "groups": ["dev"],
        "extra": {"scopes": ["a"]},
    }


def test_other_objects_stay_as_they_are() -> None:
    object_ = {"spec": {}}
    assert strategy_of("ConfigMap").with_requester(object_, JANE) is object_
