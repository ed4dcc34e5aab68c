"""Signing requests say who asked."""

from __future__ import annotations

from allot.apiserver.kinds.requesters import with_requester
from allot.apiserver.kinds.table import builtin_resources
from allot.apiserver.request import User

JANE = User("jane", groups=("dev",), extra={"scopes": ("a",)})


def test_a_signing_request_carries_its_requester_and_no_other() -> None:
    row = next(r for r in builtin_resources() if r.kind == "CertificateSigningRequest")
    request = {"spec": {"request": "eA==", "username": "root", "groups": ["system:masters"], "uid": "1"}}
    assert with_requester(row, request, JANE)["spec"] == {
        "request": "eA==",
        "username": "jane",
        "groups": ["dev"],
        "extra": {"scopes": ["a"]},
    }


def test_other_objects_stay_as_they_are() -> None:
    row = next(r for r in builtin_resources() if r.kind == "ConfigMap")
    object_ = {"spec": {}}
    assert with_requester(row, object_, JANE) is object_
