"""What API servers ask, and what anybody else may send."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from allot.core.allocation.devices import ClaimID
from allot.guard.reviews import BadReview, allowed, parse_review, refused

ALLOCATION = {"devices": {"results": [{"request": "r", "driver": "d", "pool": "p", "device": "x"}]}}


def review(**changed: Any) -> bytes:
    request: dict[str, Any] = {
        "uid": "u",
        "resource": {"group": "resource.k8s.io", "version": "v1", "resource": "resourceclaims"},
        "subResource": "status",
        "operation": "UPDATE",
        "name": "c",
        "namespace": "ns",
        "object": {"metadata": {"resourceVersion": "7"}, "status": {"allocation": ALLOCATION}},
        "oldObject": {"metadata": {"resourceVersion": "7"}},
        "dryRun": True,
    }
    kind = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}
    return msgspec.json.encode({**kind, "request": {**request, **changed}})


def test_a_review_says_what_is_written_on_what() -> None:
    asked = parse_review(review())
    assert (asked.claim, asked.base, asked.allocation, asked.before) == (ClaimID("ns", "c"), 7, ALLOCATION, None)
    assert asked.is_dry_run


def test_what_is_not_a_claims_status_is_not_judged() -> None:
    assert parse_review(review(subResource="")).is_foreign
    assert parse_review(review(resource={"group": "", "resource": "pods"}, object=None)).is_foreign


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"", "Input data was truncated"),
        (b"{}", "missing required field `apiVersion`"),
        (b'\xff{"a": 1}', "JSON is malformed"),
        (
            review().replace(b"admission.k8s.io/v1", b"admission.k8s.io/v9"),
            "expected admission.k8s.io/v1 AdmissionReview",
        ),
        (review(object=None), "expected object and oldObject"),
        (review(oldObject={"metadata": {"resourceVersion": "x"}}), "expected a number, got 'x'"),
        (
            review(object={"status": {"allocation": {"devices": {"results": [{"driver": 1}]}}}}),
            "Expected `str`, got `int`",
        ),
        (review(object={"status": {"allocation": {"devices": {"results": [{}]}}}}), "missing required field `driver`"),
        (review(object={"status": {"allocation": []}}), "Expected `object | null`, got `array`"),
    ],
)
def test_what_is_no_review_is_refused_with_what_is_wrong(body: bytes, text: str) -> None:
    with pytest.raises(BadReview, match=text.replace("|", r"\|")):
        parse_review(body)


def test_answers_carry_the_reviews_uid() -> None:
    assert msgspec.json.decode(allowed("u"))["response"] == {"uid": "u", "allowed": True}
    answer = msgspec.json.decode(refused("u", "taken"))["response"]
    assert answer["uid"] == "u"
    assert not answer["allowed"]
    assert (answer["status"]["code"], answer["status"]["reason"], answer["status"]["message"]) == (
        409,
        "Conflict",
        "taken",
    )
