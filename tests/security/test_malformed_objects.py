"""Where an object is expected comes text, a list, a number, nothing, or something deep: the client is told which field is
wrong, and never that the server is.

What kube-apiserver answers with 500 is the client's fault here, too (docs/reference/differences.md).
"""

from __future__ import annotations

import base64
import copy
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from security.servers import Both

pytestmark = pytest.mark.slow

WRONG: tuple[Any, ...] = ("text", ["x"], 7, True, 1.5)
POD = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
TEMPLATE = {"metadata": {"labels": {"a": "b"}}, "spec": POD["spec"]}
DEPLOYMENT = {
    "metadata": {"name": "d"},
    "spec": {"replicas": 0, "selector": {"matchLabels": {"a": "b"}}, "template": TEMPLATE},
}
MAP = {"metadata": {"name": "m"}, "data": {"a": "b"}}
AUTHENTICATION, AUTHORIZATION = "/apis/authentication.k8s.io/v1", "/apis/authorization.k8s.io/v1"
NAMESPACED = "/api/v1/namespaces/{0}"
ATTRIBUTES = {"namespace": "{0}", "verb": "get", "resource": "pods"}

# What is sent where, and the members that are replaced by something else.
BODIES: dict[str, tuple[str, str, dict[str, Any], str]] = {
    "eviction": (
        "POST",
        NAMESPACED + "/pods/p/eviction",
        {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": "p"},
            "deleteOptions": {"dryRun": ["All"]},
        },
        "metadata metadata.name metadata.labels deleteOptions deleteOptions.preconditions deleteOptions.preconditions.uid",
    ),
    "binding": (
        "POST",
        NAMESPACED + "/pods/p/binding?dryRun=All",
        {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n"}},
        "metadata metadata.uid metadata.resourceVersion metadata.annotations target",
    ),
    "scale": (
        "PUT",
        "/apis/apps/v1/namespaces/{0}/deployments/d/scale?dryRun=All",
        {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "d"}, "spec": {"replicas": 1}},
        "metadata metadata.labels metadata.namespace spec status",
    ),
    "token": (
        "POST",
        NAMESPACED + "/serviceaccounts/sa/token",
        {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "metadata": {},
            "spec": {"audiences": ["a"]},
        },
        "metadata metadata.labels spec spec.boundObjectRef spec.boundObjectRef.name status",
    ),
    "finalize": (
        "PUT",
        NAMESPACED + "/finalize?dryRun=All",
        {"metadata": {"name": "{0}"}, "spec": {"finalizers": ["kubernetes"]}},
        "metadata metadata.labels spec status",
    ),
    "status": ("PUT", NAMESPACED + "/pods/p/status?dryRun=All", POD, "metadata spec status status.conditions"),
    "ephemeral": ("PUT", NAMESPACED + "/pods/p/ephemeralcontainers?dryRun=All", POD, "metadata spec"),
    "resize": ("PUT", NAMESPACED + "/pods/p/resize?dryRun=All", POD, "metadata spec"),
    "token review": ("POST", f"{AUTHENTICATION}/tokenreviews", {"spec": {"token": "x"}}, "metadata spec status"),
    "who am I": ("POST", f"{AUTHENTICATION}/selfsubjectreviews", {}, "metadata status metadata.labels"),
    "access review": (
        "POST",
        f"{AUTHORIZATION}/subjectaccessreviews",
        {"spec": {"user": "u", "resourceAttributes": ATTRIBUTES}},
        "metadata spec spec.extra spec.resourceAttributes spec.resourceAttributes.fieldSelector spec.nonResourceAttributes",
    ),
    "own access": (
        "POST",
        f"{AUTHORIZATION}/selfsubjectaccessreviews",
        {"spec": {"resourceAttributes": ATTRIBUTES}},
        "metadata spec spec.resourceAttributes spec.resourceAttributes.labelSelector",
    ),
    "local access": (
        "POST",
        f"{AUTHORIZATION}/namespaces/{{0}}/localsubjectaccessreviews",
        {"spec": {"user": "u", "resourceAttributes": ATTRIBUTES}},
        "metadata spec spec.resourceAttributes",
    ),
    "own rules": ("POST", f"{AUTHORIZATION}/selfsubjectrulesreviews", {"spec": {"namespace": "{0}"}}, "metadata spec"),
    "deletion": (
        "DELETE",
        NAMESPACED + "/configmaps/m?dryRun=All",
        {"kind": "DeleteOptions", "apiVersion": "v1", "dryRun": ["All"]},
        "preconditions preconditions.uid preconditions.resourceVersion",
    ),
    "create": (
        "POST",
        NAMESPACED + "/configmaps?dryRun=All",
        {"metadata": {"name": "new"}, "data": {"a": "b"}},
        "metadata data metadata.labels metadata.annotations metadata.ownerReferences.0 metadata.managedFields.0",
    ),
    "update": ("PUT", NAMESPACED + "/configmaps/m?dryRun=All", MAP, "metadata data metadata.labels"),
}
# Lists, where text is expected, and texts, where a list is.
LISTS = ("metadata.ownerReferences", "metadata.finalizers", "metadata.managedFields")


def csr() -> dict[str, Any]:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "jane")])
    key = ec.generate_private_key(ec.SECP256R1())
    request = x509.CertificateSigningRequestBuilder().subject_name(name).sign(key, hashes.SHA256())
    encoded = base64.b64encode(request.public_bytes(serialization.Encoding.PEM)).decode()
    return {"request": encoded, "signerName": "example.com/own", "usages": ["client auth"]}


@pytest.fixture(scope="session")
def place(both: Both) -> str:
    """A namespace with one of each that is asked for."""
    name = "malformed"
    both.create("/api/v1/namespaces", {"metadata": {"name": name}})
    both.create(f"/api/v1/namespaces/{name}/pods", POD)
    both.create(f"/api/v1/namespaces/{name}/serviceaccounts", {"metadata": {"name": "sa"}})
    both.create(f"/api/v1/namespaces/{name}/configmaps", MAP)
    both.create(f"/apis/apps/v1/namespaces/{name}/deployments", DEPLOYMENT)
    return name


def with_member(body: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    changed = copy.deepcopy(body)
    *outer, last = path.split(".")
    inside: Any = changed
    if last == "0":
        *outer, last = outer
        value = [value]
    for step in outer:
        inside = inside.setdefault(step, {})
    inside[last] = value
    return changed


def cases() -> Iterator[Any]:
    for told, (method, path, body, members) in BODIES.items():
        for member in members.split():
            yield pytest.param(method, path, body, member, id=f"{told}: {member}")
    for member in LISTS:
        yield pytest.param(*BODIES["create"][:3], member, id=f"create: {member}")


def at(place: str, value: Any) -> Any:
    """The path or body in the test's namespace."""
    if isinstance(value, str):
        return value.replace("{0}", place)
    return msgspec.json.decode(msgspec.json.encode(value).replace(b"{0}", place.encode()))


@pytest.mark.parametrize(("method", "path", "body", "member"), list(cases()))
def test_a_member_of_another_type_is_400_and_named(
    both: Both, place: str, method: str, path: str, body: dict[str, Any], member: str
) -> None:
    expects_text = member.rpartition(".")[2] in ("name", "uid", "resourceVersion", "namespace")
    for wrong in WRONG:
        if (expects_text) and wrong == "text":
            continue
        if member in LISTS and wrong == ["x"]:
            wrong = {"x": "y"}
        answer = both.send(method, at(place, path), with_member(at(place, body), member, wrong))
        assert answer.status == 400, (wrong, answer.body)
        named = next(step for step in reversed(member.split(".")) if step != "0")
        assert named in answer.message, answer.message


@pytest.mark.parametrize("told", BODIES)
@pytest.mark.parametrize(
    "body", [b"", b"{", b"rubbish", b'"text"', b"[]", b"7", b"true", b"\x00\xff", b"[" * 20_000 + b"]" * 20_000]
)
def test_a_body_that_is_no_object_is_400(both: Both, place: str, told: str, body: bytes) -> None:
    method, path, *_ = BODIES[told]
    # A deletion needs no options, and a review of oneself no body that says more than nothing.
    expected = 200 if told == "deletion" and not body else 400
    assert both.send(method, at(place, path), body).status == expected


@pytest.mark.parametrize("told", BODIES)
def test_what_is_nested_without_end_is_400(both: Both, place: str, told: str) -> None:
    method, path, *_ = BODIES[told]
    deep = b'{"metadata":' + b'{"a":' * 9_000 + b"1" + b"}" * 9_000 + b"}"
    answer = both.allot.send(method, at(place, path), deep)
    assert (answer.status, "nested too deeply" in answer.message) == (400, True)


def test_approvals_and_certificates_of_a_signing_request_are_checked(both: Both) -> None:
    requests = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
    body = {"metadata": {"name": "malformed"}, "spec": csr()}
    both.create(requests, body)
    for part, member in (
        ("approval", "status"),
        ("approval", "status.conditions"),
        ("approval", "metadata"),
        ("approval", "spec"),
        ("status", "status"),
        ("status", "status.conditions"),
    ):
        for wrong in ("text", 7, True):
            answer = both.send("PUT", f"{requests}/malformed/{part}?dryRun=All", with_member(body, member, wrong))
            assert (answer.status, member.rpartition(".")[2] in answer.message) == (400, True), answer.body


JSON_PATCH, MERGE, STRATEGIC = (
    f"application/{kind}+json" for kind in ("json-patch", "merge-patch", "strategic-merge-patch")
)
PATCHES: list[tuple[str, Any, int]] = [
    *((JSON_PATCH, body, 400) for body in ({}, "x", 7, ["x"], [[]])),
    (JSON_PATCH, [{"op": "remove", "path": ""}], 422),
    (JSON_PATCH, [{"op": "replace", "path": "", "value": "x"}], 422),
    (JSON_PATCH, [{"op": "add", "path": "/metadata", "value": "x"}], 422),
    (JSON_PATCH, [{"op": "add", "path": "/metadata/labels", "value": [1]}], 422),
    (JSON_PATCH, [{"op": "add", "path": "/metadata/finalizers/99", "value": "x"}], 422),
    (JSON_PATCH, [{"op": "copy", "path": "/data"}], 422),
    *((kind, body, 400) for kind in (MERGE, STRATEGIC) for body in ("x", 7, [])),
    *((kind, {"metadata": wrong}, 422) for kind in (MERGE, STRATEGIC) for wrong in ("x", [])),
    *((kind, {"metadata": None}, 400) for kind in (MERGE, STRATEGIC)),
    *((kind, {"metadata": {"labels": "x"}}, 422) for kind in (MERGE, STRATEGIC)),
    (MERGE, {"metadata": {"ownerReferences": "x"}}, 422),
    (MERGE, {"metadata": {"managedFields": "x"}}, 422),
    (MERGE, {"metadata": {"finalizers": {}}}, 422),
    (MERGE, {"metadata": {"resourceVersion": 7}}, 422),
]


@pytest.mark.parametrize(("kind", "body", "status"), PATCHES)
def test_a_patch_that_makes_no_object_is_refused(both: Both, place: str, kind: str, body: Any, status: int) -> None:
    path = f"/api/v1/namespaces/{place}/configmaps/m?dryRun=All"
    assert both.send("PATCH", path, msgspec.json.encode(body), kind=kind).status == status


@pytest.mark.parametrize(
    "member", ["metadata", "metadata.labels", "metadata.ownerReferences", "metadata.finalizers", "data"]
)
def test_a_configuration_of_another_type_is_not_applied(both: Both, place: str, member: str) -> None:
    body = {"apiVersion": "v1", "kind": "ConfigMap", **MAP}
    path = f"/api/v1/namespaces/{place}/configmaps/m?dryRun=All&fieldManager=me"
    wrong = msgspec.json.encode(with_member(body, member, "text"))
    # kube-apiserver answers with 500.
    assert both.allot.send("PATCH", path, wrong, kind="application/apply-patch+yaml").status == 400


@pytest.mark.parametrize(
    "accept", ["application/json;as=Table;g=meta.k8s.io;v=v1", "application/json;as=Table;g=x;v=y"]
)
@pytest.mark.parametrize("include", ["Object", "None", "nonsense", "[]", "%00"])
def test_options_of_tables_are_checked(both: Both, place: str, accept: str, include: str) -> None:
    path = f"/api/v1/namespaces/{place}/configmaps?includeObject={include}"
    assert both.send("GET", path, headers={"Accept": accept}).status in (200, 400, 406)


@pytest.mark.parametrize(
    "query",
    [
        "limit=x",
        "limit=9999999999999999999999",
        "timeoutSeconds=x",
        "labelSelector=a+in+(",
        "fieldSelector=a",
        "fieldSelector=nonsense%3Dx",
        "resourceVersion=x",
        "continue=x",
        "resourceVersionMatch=x",
    ],
)
def test_options_of_lists_are_checked(both: Both, place: str, query: str) -> None:
    assert both.send("GET", f"/api/v1/namespaces/{place}/configmaps?{query}").status in (400, 422)
