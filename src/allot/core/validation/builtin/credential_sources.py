"""Projected volume sources that provide pods with certificates: trust anchors (clusterTrustBundle) and a key with its certificate
(podCertificate); and requests for the latter."""

from __future__ import annotations

from collections.abc import Mapping

from allot.core.validation import formats
from allot.core.validation.builtin.certificates import bundle_name_problems, check_signer_name
from allot.core.validation.builtin.checks import label_selector, told
from allot.core.validation.builtin.values import Object, given, members, number, text
from allot.core.validation.fields import (
    Findings,
    byte_length,
    child,
    invalid,
    invalid_whole,
    not_supported,
    required,
    too_long,
)
from allot.core.validation.object_meta import ANNOTATIONS_SIZE_MAX

_KEY_TYPES = ("RSA3072", "RSA4096", "ECDSAP256", "ECDSAP384", "ECDSAP521", "ED25519")
_CERTIFICATE_PATHS = ("credentialBundlePath", "keyPath", "certificateChainPath")
_EXPIRATION_SECONDS_MIN = 3600
_EXPIRATION_SECONDS_MAX = 91 * 24 * 3600
_KUBERNETES_EXPIRATION_SECONDS_MAX = 24 * 3600
EXPIRATION_SECONDS_DEFAULT = 24 * 3600
_UID_LENGTH_MAX = 128


def check_trust_bundle_source(source: Object, path: str) -> Findings:
    """Which trust anchors to project: those of one bundle by name, or of all bundles of a signer."""
    found: Findings = []
    if given(source, "name") and given(source, "signerName"):
        found.append(invalid(path, source, "only one of name and signerName may be used"))
    elif given(source, "name"):
        name, where = text(source, "name"), child(path, "name")
        if not name:
            found.append(required(where, "must be a valid object name"))
        problems = bundle_name_problems(name, _signer_in(name))
        found += told(where, name, [f"not a valid clustertrustbundlename: {each}" for each in problems])
        if given(source, "labelSelector"):
            detail = "labelSelector must be unset if name is specified"
            found.append(invalid(child(path, "labelSelector"), source["labelSelector"], detail))
    elif given(source, "signerName"):
        signer, where = text(source, "signerName"), child(path, "signerName")
        if not signer:
            found.append(required(where, "must be a valid signer name"))
        found += check_signer_name(signer, where)
        found += label_selector(source.get("labelSelector"), child(path, "labelSelector"))
    else:
        found.append(required(path, "either name or signerName must be specified"))
    if not text(source, "path"):
        found.append(required(child(path, "path")))
    return found


def _signer_in(bundle_name: str) -> str:
    """The signer that the name of a bundle starts with: `example.com:signer:name`."""
    return bundle_name.rpartition(":")[0].replace(":", "/")


def check_pod_certificate_source(source: Object, path: str) -> Findings:
    """Which certificate is requested, and where its files go."""
    signer = text(source, "signerName")
    found = check_signer_name(signer, child(path, "signerName"))
    found += _check_user_annotations(members(source, "userAnnotations"), child(path, "userAnnotations"))
    if text(source, "keyType") not in _KEY_TYPES:
        found.append(not_supported(child(path, "keyType"), text(source, "keyType"), _KEY_TYPES))
    seconds, where = number(source, "maxExpirationSeconds"), child(path, "maxExpirationSeconds")
    if seconds is not None and seconds < _EXPIRATION_SECONDS_MIN:
        detail = f"if provided, maxExpirationSeconds must be >= {_EXPIRATION_SECONDS_MIN}"
        found.append(invalid(where, seconds, detail))
    if seconds is not None and seconds > _longest(signer):
        found.append(invalid(where, seconds, f"if provided, maxExpirationSeconds must be <= {_longest(signer)}"))
    if not any(text(source, name) for name in _CERTIFICATE_PATHS):
        detail = "specify at least one of credentialBundlePath, keyPath, and certificateChainPath"
        found.append(required(path, detail))
    return found


def paths_of(kind: str, source: Object) -> list[tuple[str, str]]:
    """The path fields of such a source, with their values."""
    names = {"clusterTrustBundle": ("path",), "podCertificate": _CERTIFICATE_PATHS}.get(kind, ())
    return [(name, text(source, name)) for name in names if text(source, name)]


def _longest(signer: str) -> int:
    """Kubernetes' own signers issue certificates for at most a day."""
    domain = signer.partition("/")[0]
    is_kubernetes = domain == "kubernetes.io" or domain.endswith(".kubernetes.io")
    return _KUBERNETES_EXPIRATION_SECONDS_MAX if is_kubernetes else _EXPIRATION_SECONDS_MAX


def _check_user_annotations(annotations: Mapping[str, str], path: str) -> Findings:
    found: Findings = []
    size = 0
    for name, value in annotations.items():
        size += byte_length(name) + byte_length(str(value))
        problems = formats.label_key(name.lower())
        if not name:
            found.append(required(path))
        elif problems:
            found += told(path, name.lower(), problems)
        elif "/" not in name:
            found.append(invalid(path, name.lower(), 'must be a domain-prefixed key (such as "acme.io/foo")'))
    if size > ANNOTATIONS_SIZE_MAX:
        found.append(too_long(path, ANNOTATIONS_SIZE_MAX))
    return found


def check_certificate_request(request: Object) -> Findings:
    """A PodCertificateRequest: requester, signer, lifetime. The signer verifies the proof itself."""
    spec = members(request, "spec")
    signer = text(spec, "signerName")
    found = check_signer_name(signer, "spec.signerName")
    found += _check_user_annotations(members(spec, "unverifiedUserAnnotations"), "spec.unverifiedUserAnnotations")
    for thing in ("pod", "serviceAccount", "node"):
        name, uid = text(spec, f"{thing}Name"), text(spec, f"{thing}UID")
        found += told(f"spec.{thing}Name", name, formats.dns_subdomain(name))
        if not uid:
            found.append(invalid(f"spec.{thing}UID", uid, "must not be empty"))
        if byte_length(uid) > _UID_LENGTH_MAX:
            found.append(too_long(f"spec.{thing}UID", _UID_LENGTH_MAX))
    seconds = number(spec, "maxExpirationSeconds")
    if seconds is None:
        return [*found, required("spec.maxExpirationSeconds", "must be set")]
    if not _EXPIRATION_SECONDS_MIN <= seconds <= _longest(signer):
        detail = f"must be in the range [{_EXPIRATION_SECONDS_MIN}, {_longest(signer)}]"
        found.append(invalid("spec.maxExpirationSeconds", seconds, detail))
    stub, key, proof = (bool(text(spec, name)) for name in ("stubPKCS10Request", "pkixPublicKey", "proofOfPossession"))
    if (stub, key, proof) not in ((True, False, False), (False, True, True)):
        detail = "exactly one of (stubPKCS10Request) or (pkixPublicKey, proofOfPossession) must be set"
        found.append(invalid_whole("spec", detail))
    return found
