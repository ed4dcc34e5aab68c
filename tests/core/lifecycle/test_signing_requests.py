"""Requests for certificates: approved, signed, refused, deleted."""

from __future__ import annotations

import base64
from typing import Any

import msgspec
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from allot.core.lifecycle.actions import Create, Delete, RequeueAfter, Retry, Review, Update
from allot.core.lifecycle.signing_requests import (
    CannotSign,
    SigningOrder,
    approve,
    clean,
    clean_pod_request,
    publish,
    sign,
)

Object = dict[str, Any]
NODE_CLIENT = "kubernetes.io/kube-apiserver-client-kubelet"
SERVING = "kubernetes.io/kubelet-serving"
CLIENT = "kubernetes.io/kube-apiserver-client"
KUBELET_USAGES = ("digital signature", "client auth")
SERVER_USAGES = ("digital signature", "key encipherment", "server auth")
APPROVED = {"type": "Approved", "status": "True", "lastUpdateTime": "2026-01-01T00:00:00Z"}
KEY = ec.generate_private_key(ec.SECP256R1())
HOUR = 3600.0
NEW_YEAR = 1767225600.0


def encoded(name: str, *groups: str, names: tuple[x509.GeneralName, ...] = ()) -> str:
    attributes = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
    subject = x509.Name([*attributes, x509.NameAttribute(NameOID.COMMON_NAME, name)])
    builder = x509.CertificateSigningRequestBuilder(subject)
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    pem = builder.sign(KEY, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    return base64.b64encode(pem).decode()


def request(
    signer: str,
    asked: str,
    usages: tuple[str, ...] = KUBELET_USAGES,
    *conditions: Object,
    user: str = "boot",
    **more: Any,
) -> Object:
    spec = {"signerName": signer, "request": asked, "usages": list(usages), "username": user, **more}
    metadata = {"name": "csr", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z"}
    return {"metadata": metadata, "spec": spec, "status": {"conditions": list(conditions)} if conditions else {}}


NODE = encoded("system:node:n", "system:nodes")


def permission(question: Review) -> str:
    return str(msgspec.json.decode(question.spec)["resourceAttributes"]["subresource"])


def test_a_kubelet_gets_its_certificate_if_it_may_have_it() -> None:
    mine = request(NODE_CLIENT, NODE, user="system:node:n", groups=["system:nodes"])
    (first,) = approve(mine, {})
    assert isinstance(first, Review)
    assert permission(first) == "selfnodeclient"
    (second,) = approve(mine, {first: {"allowed": False}})
    assert isinstance(second, Review)
    assert permission(second) == "nodeclient"
    (approval,) = approve(mine, {first: {"allowed": True}})
    assert isinstance(approval, Update)
    assert approval.subresource == "approval"
    assert approval.object["status"]["conditions"] == [  # type: ignore[index]
        {
            "type": "Approved",
            "status": "True",
            "reason": "AutoApproved",
            "message": "Auto approving self kubelet client certificate after SubjectAccessReview.",
        }
    ]
    assert approve(mine, {first: {}, second: {"allowed": False}}) == (
        Retry(message='recognized csr "csr" as [selfnodeclient nodeclient] but subject access review was not approved'),
    )


def test_the_question_is_about_the_requester() -> None:
    (question,) = approve(request(NODE_CLIENT, NODE, user="boot", uid="1", groups=["g"], extra={"a": ["b"]}), {})
    assert isinstance(question, Review)
    asked = msgspec.json.decode(question.spec)
    assert (asked["user"], asked["uid"], asked["groups"], asked["extra"]) == ("boot", "1", ["g"], {"a": ["b"]})
    assert permission(question) == "nodeclient"


@pytest.mark.parametrize(
    "unusual",
    [
        request(NODE_CLIENT, NODE, KUBELET_USAGES, APPROVED),
        request(NODE_CLIENT, NODE, KUBELET_USAGES, {"type": "Denied"}),
        request(NODE_CLIENT, NODE, SERVER_USAGES),
        request(NODE_CLIENT, encoded("system:node:n", "system:masters")),
        request(NODE_CLIENT, encoded("system:node:n", "system:nodes", "system:masters")),
        request(NODE_CLIENT, encoded("admin", "system:nodes")),
        request(NODE_CLIENT, encoded("system:node:n", "system:nodes", names=(x509.DNSName("a"),))),
        request(SERVING, NODE),
        request(CLIENT, NODE),
    ],
)
def test_nothing_else_is_approved_without_a_person(unusual: Object) -> None:
    assert approve(unusual, {}) == ()


def order_of(asked: Object, most_s: float = 24 * HOUR) -> SigningOrder:
    orders: list[SigningOrder] = []

    def note(order: SigningOrder) -> str:
        orders.append(order)
        return "PEM"

    (update,) = sign(asked, note, most_s)
    assert isinstance(update, Update)
    assert update.subresource == "status"
    assert update.object["status"]["certificate"] == base64.b64encode(b"PEM").decode()  # type: ignore[index]
    return orders[0]


@pytest.mark.parametrize(
    ("requested", "most", "expected"),
    [(None, 24, 24), (7200, 24, 2), (48 * 3600, 24, 24), (60, 24, 1 / 6), (600, 24, 1 / 6)],
)
def test_a_request_may_ask_for_less_than_the_longest_time(requested: int | None, most: int, expected: float) -> None:
    asked = request(CLIENT, encoded("jane"), ("client auth",), APPROVED, expirationSeconds=requested)
    assert order_of(asked, most * HOUR).duration_s == pytest.approx(expected * HOUR)


DNS, EMAIL, URI = x509.DNSName("a"), x509.RFC822Name("a@b.c"), x509.UniformResourceIdentifier("a://b")


@pytest.mark.parametrize(
    ("signer", "asked", "usages", "message"),
    [
        (CLIENT, encoded("jane"), ("client auth", "server auth"), "invalid usage for client certificate: server auth"),
        (CLIENT, encoded("jane"), ("digital signature",), "missing required usage for client certificate: client auth"),
        (NODE_CLIENT, encoded("system:node:n"), KUBELET_USAGES, "subject organization is not system:nodes"),
        (NODE_CLIENT, encoded("n", "system:nodes"), KUBELET_USAGES, "subject common name does not begin with system:node:"),
        (NODE_CLIENT, encoded("n", "system:nodes", names=(URI, DNS)), KUBELET_USAGES, "DNS subjectAltNames are not allowed"),
        (NODE_CLIENT, NODE, SERVER_USAGES, "usages did not match [client auth digital signature key encipherment]"),
        (SERVING, NODE, SERVER_USAGES, "DNS or IP subjectAltName is required"),
        (SERVING, encoded("n", "system:nodes", names=(DNS, URI)), SERVER_USAGES, "URI subjectAltNames are not allowed"),
        (SERVING, encoded("n", "system:nodes", names=(DNS, EMAIL)), SERVER_USAGES, "Email subjectAltNames are not allowed"),
        (SERVING, encoded("n", "system:nodes", names=(DNS,)), SERVER_USAGES,
         "subject common name does not begin with system:node:"),
    ],
)  # fmt: skip
def test_a_signer_says_why_it_will_never_sign(signer: str, asked: str, usages: tuple[str, ...], message: str) -> None:
    (update,) = sign(request(signer, asked, usages, APPROVED), lambda _: pytest.fail("signed"), HOUR)
    assert isinstance(update, Update)
    failed = update.object["status"]["conditions"][-1]  # type: ignore[index]
    assert failed == {"type": "Failed", "status": "True", "reason": "SignerValidationFailure", "message": message}


@pytest.mark.parametrize(
    "other",
    [
        request(CLIENT, encoded("jane"), ("client auth",)),
        request(CLIENT, encoded("jane"), ("client auth",), {"type": "Denied"}),
        request(CLIENT, encoded("jane"), ("client auth",), APPROVED, {"type": "Failed"}),
        request("example.com/signer", encoded("jane"), ("client auth",), APPROVED),
        request("kubernetes.io/kube-apiserver-serving", encoded("jane"), ("client auth",), APPROVED),
    ],
)
def test_what_is_not_approved_or_for_others_is_not_signed(other: Object) -> None:
    assert sign(other, lambda _: pytest.fail("signed"), HOUR) == ()


def test_an_authority_that_cannot_sign_is_asked_again() -> None:
    def fail(_: SigningOrder) -> str:
        raise CannotSign("expired")

    asked = request(CLIENT, encoded("jane"), ("client auth",), APPROVED)
    assert sign(asked, fail, HOUR) == (Retry(message="error auto signing csr: expired"),)


def issued(certificate: str) -> Object:
    asked = request(CLIENT, "", (), APPROVED)
    return {**asked, "status": {**asked["status"], "certificate": certificate}}


@pytest.mark.parametrize(
    ("asked", "hours"),
    [
        (request(CLIENT, ""), 24),
        (request(CLIENT, "", (), {**APPROVED, "type": "Denied"}), 1),
        (request(CLIENT, "", (), {**APPROVED, "type": "Failed"}), 1),
        (request(CLIENT, "", (), APPROVED), 24),
        (issued(base64.b64encode(b"what others sign").decode()), 1),
    ],
)
def test_a_request_of_no_more_use_is_deleted(asked: Object, hours: int) -> None:
    end = NEW_YEAR + hours * HOUR
    assert clean(asked, end) == (RequeueAfter(seconds=1),)
    (deleted,) = clean(asked, end + 1)
    assert isinstance(deleted, Delete)
    assert (deleted.name, deleted.uid) == ("csr", "u")


def test_a_condition_without_a_time_deletes_nothing() -> None:
    assert clean(request(CLIENT, "", (), {"type": "Denied"}), NEW_YEAR + 1000 * HOUR) == ()


def test_the_request_of_a_pod_lasts_a_quarter_of_an_hour() -> None:
    asked = {"metadata": {"name": "r", "namespace": "ns", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z"}}
    assert clean_pod_request(asked, NEW_YEAR) == (RequeueAfter(seconds=901),)
    (deleted,) = clean_pod_request(asked, NEW_YEAR + 901)
    assert isinstance(deleted, Delete)
    assert deleted.namespace == "ns"


def test_one_bundle_has_the_authority_and_the_old_one_goes_last() -> None:
    create, delete = publish([{"metadata": {"name": "kubernetes.io:kube-apiserver-serving:old"}}], "PEM")
    assert isinstance(create, Create)
    assert isinstance(delete, Delete)
    assert create.object["metadata"]["name"] == (  # type: ignore[index]
        "kubernetes.io:kube-apiserver-serving:384fb9a44fabe158be2757b9"
    )
    made = dict(create.object)  # type: ignore[arg-type]
    assert publish([made], "PEM") == ()
    (update,) = publish([{**made, "spec": {**made["spec"], "trustBundle": "other"}}], "PEM")
    assert isinstance(update, Update)
    assert update.object == made
