"""Requests for certificates: which are approved without a person, what the signers of Kubernetes sign, when requests are deleted,
and the bundle that publishes the server's authority.

As kube-controller-manager does it. Signing itself takes a key, a clock and random numbers: it is done by the caller.
Requests are JSON values: they are written back whole.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec
from cryptography import x509

from allot.core.access.certificate_requests import (
    CLIENT_SIGNER,
    KUBELET_CLIENT_SIGNER,
    KUBELET_SERVING_SIGNER,
    LEGACY_SIGNER,
    kubelet_client_problem,
    problem_for,
    read_request,
)
from allot.core.lifecycle.actions import (
    Action,
    Answers,
    Create,
    Delete,
    RequeueAfter,
    Resource,
    Retry,
    Review,
    Update,
)
from allot.core.lifecycle.times import seconds_of
from allot.core.quoting import quoted as quote

GROUP = "certificates.k8s.io"
REQUESTS = Resource(
    group=GROUP,
    version="v1",
    plural="certificatesigningrequests",
    kind="CertificateSigningRequest",
    namespaced=False,
)
POD_REQUESTS = Resource(
    group=GROUP, version="v1", plural="podcertificaterequests", kind="PodCertificateRequest", namespaced=True
)
BUNDLES = Resource(group=GROUP, version="v1", plural="clustertrustbundles", kind="ClusterTrustBundle", namespaced=False)
_ACCESS_REVIEWS = Resource(
    group="authorization.k8s.io",
    version="v1",
    plural="subjectaccessreviews",
    kind="SubjectAccessReview",
    namespaced=False,
)
# The signer of the API server's own certificate: nobody can request from it, but its authority is published.
SERVING_SIGNER = "kubernetes.io/kube-apiserver-serving"
SIGNERS = (CLIENT_SIGNER, KUBELET_CLIENT_SIGNER, KUBELET_SERVING_SIGNER, LEGACY_SIGNER)
# One year, as --cluster-signing-duration defaults to.
SIGNING_DURATION_S = 365 * 24 * 3600.0
# Twice as long as certificates are backdated.
_DURATION_MIN_S = 600.0
_DECIDED_S = 3600.0
_PENDING_S = 24 * 3600.0
_POD_REQUEST_S = 15 * 60.0

JSON = Mapping[str, Any]


class SigningOrder(msgspec.Struct, frozen=True, kw_only=True):
    """A certificate to sign."""

    # Base64 of PEM, as in the object.
    request: str
    usages: tuple[str, ...]
    duration_s: float


class CannotSign(Exception):
    """The authority cannot sign this request now; the text says why."""


# Returns the certificate as PEM, or raises CannotSign.
SignCertificate = Callable[[SigningOrder], str]


# --- approval ---

# What is asked before a request is approved, and the condition's message.
_SELF_NODE = ("selfnodeclient", "Auto approving self kubelet client certificate after SubjectAccessReview.")
_NODE = ("nodeclient", "Auto approving kubelet client certificate after SubjectAccessReview.")


def approve(request: JSON, answers: Answers) -> tuple[Action, ...]:
    """Approve a kubelet's client certificate if the requester may have it without a person's approval."""
    if _certificate(request) or _has(request, "Approved") or _has(request, "Denied"):
        return ()
    spec = request["spec"]
    if spec.get("signerName") != KUBELET_CLIENT_SIGNER:
        return ()
    requested = read_request(spec.get("request"))
    if requested is None:
        return (Retry(message=f"unable to parse csr {quote(_name(request))}"),)
    if kubelet_client_problem(requested, spec.get("usages") or ()):
        return ()
    permissions = (_SELF_NODE, _NODE) if spec.get("username") == requested.common_name else (_NODE,)
    for permission, message in permissions:
        question = _may_have(spec, permission)
        if question not in answers:
            return (question,)
        if answers[question].get("allowed"):
            approved = {"type": "Approved", "status": "True", "reason": "AutoApproved", "message": message}
            return (Update(resource=REQUESTS, object=_with_condition(request, approved), subresource="approval"),)
    tried = " ".join(permission for permission, _ in permissions)
    text = f"recognized csr {quote(_name(request))} as [{tried}] but subject access review was not approved"
    return (Retry(message=text),)


def _may_have(spec: JSON, permission: str) -> Review:
    """Whether the requester may create certificates of that sort."""
    question = {
        "user": spec.get("username", ""),
        "uid": spec.get("uid", ""),
        "groups": spec.get("groups") or [],
        "extra": spec.get("extra") or {},
        "resourceAttributes": {
            "group": GROUP,
            "resource": REQUESTS.plural,
            "subresource": permission,
            "verb": "create",
            "version": "*",
        },
    }
    return Review(resource=_ACCESS_REVIEWS, spec=msgspec.json.encode(question, order="deterministic"))


# --- signing ---


def sign(request: JSON, sign_certificate: SignCertificate, duration_max_s: float) -> tuple[Action, ...]:
    """Sign an approved request to a signer of Kubernetes, or say why it never will be."""
    spec = request["spec"]
    signer = spec.get("signerName")
    is_open = _has(request, "Approved") and not _has(request, "Denied") and not _has(request, "Failed")
    if signer not in SIGNERS or not is_open or _certificate(request):
        return ()
    requested = read_request(spec.get("request"))
    if requested is None:
        return (Retry(message=f"unable to parse csr {quote(_name(request))}"),)
    usages = tuple(spec.get("usages") or ())
    problem = problem_for(signer, requested, usages)
    if problem:
        failed = {"type": "Failed", "status": "True", "reason": "SignerValidationFailure", "message": problem}
        return (_status_update(_with_condition(request, failed)),)
    order = SigningOrder(
        request=spec["request"], usages=usages, duration_s=_duration_s(spec.get("expirationSeconds"), duration_max_s)
    )
    try:
        certificate = sign_certificate(order)
    except CannotSign as error:
        return (Retry(message=f"error auto signing csr: {error}"),)
    encoded = base64.b64encode(certificate.encode()).decode()
    return (_status_update({**request, "status": {**_status(request), "certificate": encoded}}),)


def _duration_s(requested_s: int | None, most_s: float) -> float:
    """How long a certificate is valid: no longer than the signer allows, which may be less than the least that can be requested."""
    return most_s if requested_s is None else min(most_s, max(float(requested_s), _DURATION_MIN_S))


def _status_update(request: JSON) -> Update:
    return Update(resource=REQUESTS, object=request, subresource="status")


# --- cleaning ---


def clean(request: JSON, now: float) -> tuple[Action, ...]:
    """Delete a request that is of no more use, or come back when it will be."""
    return _delete_at(_useless_at(request), REQUESTS, request, now)


def clean_pod_request(request: JSON, now: float) -> tuple[Action, ...]:
    """Delete a pod's request: its node has long read the answer, or asks again."""
    return _delete_at(_created(request, _POD_REQUEST_S), POD_REQUESTS, request, now)


def _delete_at(times: Iterable[float], resource: Resource, object_: JSON, now: float) -> tuple[Action, ...]:
    at = min(times, default=None)
    if at is None:
        return ()
    if now <= at:
        return (RequeueAfter(seconds=at - now + 1),)
    metadata = object_["metadata"]
    return (
        Delete(
            resource=resource,
            name=metadata["name"],
            namespace=metadata.get("namespace", ""),
            uid=metadata.get("uid", ""),
        ),
    )


def _useless_at(request: JSON) -> list[float]:
    """The times from which a request is of no use, each for another reason."""
    conditions = _status(request).get("conditions") or []
    if not conditions:
        return _created(request, _PENDING_S)
    certificate, times = _certificate(request), []
    for condition in conditions:
        since = condition.get("lastUpdateTime")
        if condition.get("type") in ("Denied", "Failed") and since:
            times.append(seconds_of(since) + _DECIDED_S)
        elif condition.get("type") == "Approved":
            if since:
                times.append(seconds_of(since) + (_DECIDED_S if certificate else _PENDING_S))
            times += _expiry(certificate)
    return times


def _created(object_: JSON, age_s: float) -> list[float]:
    created = object_["metadata"].get("creationTimestamp")
    return [seconds_of(created) + age_s] if created else []


def _expiry(certificate: str) -> list[float]:
    """When a certificate expires; nothing if there is none, or it cannot be read: others sign, too."""
    try:
        read = x509.load_pem_x509_certificate(base64.b64decode(certificate)) if certificate else None
    except ValueError:
        return []
    return [] if read is None else [read.not_valid_after_utc.timestamp()]


# --- the bundle of the API server's authority ---


def publish(bundles: Iterable[JSON], authority: str) -> tuple[Action, ...]:
    """One bundle for the signer of the API server's certificate, named after what is in it, and no other."""
    digest = hashlib.sha256(authority.encode()).digest()[:12].hex()
    name = f"{SERVING_SIGNER.replace('/', ':')}:{digest}"
    present = {_name(bundle): bundle for bundle in bundles}
    spec = {"signerName": SERVING_SIGNER, "trustBundle": authority}
    actions: list[Action] = []
    if name not in present:
        made = {"apiVersion": BUNDLES.api_version, "kind": BUNDLES.kind, "metadata": {"name": name}, "spec": spec}
        actions.append(Create(resource=BUNDLES, object=made, may_exist=True))
    elif present[name].get("spec") != spec:
        actions.append(Update(resource=BUNDLES, object={**present[name], "spec": spec}))
    # Only afterwards: clients must find one at any time.
    actions += (Delete(resource=BUNDLES, name=other) for other in sorted(present) if other != name)
    return tuple(actions)


# --- reading ---


def _name(object_: JSON) -> str:
    return str(object_["metadata"]["name"])


def _status(request: JSON) -> JSON:
    status = request.get("status")
    return status if isinstance(status, Mapping) else {}


def _certificate(request: JSON) -> str:
    return str(_status(request).get("certificate") or "")


def _has(request: JSON, type_: str) -> bool:
    """Whether a request has a condition; those of these types are never false."""
    return any(condition.get("type") == type_ for condition in _status(request).get("conditions") or ())


def _with_condition(request: JSON, condition: JSON) -> JSON:
    status = _status(request)
    return {**request, "status": {**status, "conditions": [*(status.get("conditions") or ()), condition]}}
