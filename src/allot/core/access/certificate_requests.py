"""What a certificate signing request asks for, and what the signers of Kubernetes require of it.

Requests are read by `cryptography`; who may ask, approve and sign is decided elsewhere.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable

import msgspec
from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.x509.oid import NameOID

from allot.core.access.attributes import NODE_USER_PREFIX, NODES_GROUP

CLIENT_SIGNER = "kubernetes.io/kube-apiserver-client"
KUBELET_CLIENT_SIGNER = "kubernetes.io/kube-apiserver-client-kubelet"
KUBELET_SERVING_SIGNER = "kubernetes.io/kubelet-serving"
LEGACY_SIGNER = "kubernetes.io/legacy-unknown"

_OPTIONAL_CLIENT_USAGES = ("digital signature", "key encipherment")
# In the order in which upstream looks for them.
_NAME_KINDS: tuple[tuple[type[x509.GeneralName], str], ...] = (
    (x509.DNSName, "DNS"),
    (x509.RFC822Name, "Email"),
    (x509.IPAddress, "IP"),
    (x509.UniformResourceIdentifier, "URI"),
)


class Requested(msgspec.Struct, frozen=True):
    """The subject that a request names."""

    common_name: str
    organizations: tuple[str, ...]
    # Kinds of alternative names that it has: DNS, Email, IP, URI.
    name_kinds: tuple[str, ...] = ()


def decoded_request(encoded: object) -> x509.CertificateSigningRequest | None:
    """A signing request as objects carry it, base64 of PEM; None if it cannot be read."""
    if not isinstance(encoded, str):
        return None
    try:
        return x509.load_pem_x509_csr(base64.b64decode(encoded, validate=True))
    except (ValueError, binascii.Error):
        return None


def read_request(encoded: object) -> Requested | None:
    """What a request asks for; None if it cannot be read."""
    request = decoded_request(encoded)
    if request is None:
        return None
    try:
        names = texts_of(request.subject, NameOID.COMMON_NAME)
        organizations = texts_of(request.subject, NameOID.ORGANIZATION_NAME)
        kinds = {type(name) for name in alternative_names(request)}
    except (ValueError, UnsupportedAlgorithm, x509.DuplicateExtension):
        return None
    return Requested(
        names[-1] if names else "", organizations, tuple(label for kind, label in _NAME_KINDS if kind in kinds)
    )


def texts_of(subject: x509.Name, oid: x509.ObjectIdentifier) -> tuple[str, ...]:
    """The values of one attribute of a subject."""
    return tuple(str(attribute.value) for attribute in subject.get_attributes_for_oid(oid))


def alternative_names(request: x509.CertificateSigningRequest) -> tuple[x509.GeneralName, ...]:
    """The names besides the subject, of the kinds that certificates get; ValueError if they cannot be read."""
    try:
        found = request.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return ()
    return tuple(name for kind, _ in _NAME_KINDS for name in found if isinstance(name, kind))


# --- what signers require ---


def problem_for(signer: str, requested: Requested, usages: Iterable[str]) -> str:
    """Why a signer of Kubernetes refuses a request; empty if it does not."""
    if signer == CLIENT_SIGNER:
        return _client_problem(tuple(usages))
    if signer == KUBELET_CLIENT_SIGNER:
        return kubelet_client_problem(requested, usages)
    return _kubelet_serving_problem(requested, usages) if signer == KUBELET_SERVING_SIGNER else ""


def _client_problem(usages: tuple[str, ...]) -> str:
    for usage in usages:
        if usage != "client auth" and usage not in _OPTIONAL_CLIENT_USAGES:
            return f"invalid usage for client certificate: {usage}"
    return "" if "client auth" in usages else "missing required usage for client certificate: client auth"


def kubelet_client_problem(requested: Requested, usages: Iterable[str]) -> str:
    """Why a request is not one for the client certificate of a kubelet; empty if it is."""
    if requested.organizations != (NODES_GROUP,):
        return f"subject organization is not {NODES_GROUP}"
    if requested.name_kinds:
        return f"{requested.name_kinds[0]} subjectAltNames are not allowed"
    return _name_problem(requested) or _usages_problem(usages, "client auth")


def _kubelet_serving_problem(requested: Requested, usages: Iterable[str]) -> str:
    if requested.organizations != (NODES_GROUP,):
        return f"subject organization is not {NODES_GROUP}"
    if not {"DNS", "IP"} & set(requested.name_kinds):
        return "DNS or IP subjectAltName is required"
    for kind in ("Email", "URI"):
        if kind in requested.name_kinds:
            return f"{kind} subjectAltNames are not allowed"
    return _usages_problem(usages, "server auth") or _name_problem(requested)


def _name_problem(requested: Requested) -> str:
    if requested.common_name.startswith(NODE_USER_PREFIX):
        return ""
    return f"subject common name does not begin with {NODE_USER_PREFIX}"


def _usages_problem(usages: Iterable[str], purpose: str) -> str:
    """Keys other than RSA's need no key encipherment."""
    wanted = {"digital signature", "key encipherment", purpose}
    if set(usages) in (wanted, wanted - {"key encipherment"}):
        return ""
    return f"usages did not match [{' '.join(sorted(wanted))}]"
