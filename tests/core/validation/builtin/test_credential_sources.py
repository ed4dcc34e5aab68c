"""Certificates in projected volumes, and requests for them."""

from __future__ import annotations

from typing import Any

import pytest

from allot.core.validation.builtin.other_kinds import POD_CERTIFICATE_REQUEST
from allot.core.validation.builtin.volumes import check_volumes

Object = dict[str, Any]
CERTIFICATE = {"signerName": "example.com/pods", "keyType": "ED25519", "credentialBundlePath": "bundle.pem"}
BUNDLE = {"signerName": "example.com/pods", "path": "anchors.pem"}
REQUEST = {
    "signerName": "example.com/pods",
    "podName": "a",
    "podUID": "1",
    "serviceAccountName": "default",
    "serviceAccountUID": "2",
    "nodeName": "n1",
    "nodeUID": "3",
    "maxExpirationSeconds": 86400,
    "stubPKCS10Request": "AAAA",
}


def problems(*sources: Object) -> list[str]:
    found = check_volumes([{"name": "v", "projected": {"sources": list(sources)}}], "p", "spec.volumes")
    return [str(each.error).replace("spec.volumes[0].projected", "v") for each in found]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({}, ""),
        ({"maxExpirationSeconds": 3600}, ""),
        (
            {"maxExpirationSeconds": 3599},
            "maxExpirationSeconds: Invalid value: 3599: if provided, maxExpirationSeconds must be >= 3600",
        ),
        (
            {"maxExpirationSeconds": 7862401},
            "maxExpirationSeconds: Invalid value: 7862401: if provided, maxExpirationSeconds must be <= 7862400",
        ),
        (
            {"signerName": "kubernetes.io/pods", "maxExpirationSeconds": 86401},
            "maxExpirationSeconds: Invalid value: 86401: if provided, maxExpirationSeconds must be <= 86400",
        ),
        (
            {"keyType": "DSA"},
            'keyType: Unsupported value: "DSA": supported values: "ECDSAP256", "ECDSAP384", "ECDSAP521", "ED25519", '
            '"RSA3072", "RSA4096"',
        ),
        ({"credentialBundlePath": "../x"}, "credentialBundlePath: Invalid value: \"../x\": must not contain '..'"),
        (
            {"userAnnotations": {"plain": "x"}},
            'userAnnotations: Invalid value: "plain": must be a domain-prefixed key (such as "acme.io/foo")',
        ),
        ({"userAnnotations": {"acme.io/foo": "x"}}, ""),
    ],
)
def test_a_certificate_for_a_pod(change: Object, told: str) -> None:
    found = problems({"podCertificate": {**CERTIFICATE, **change}})
    assert found == ([f"v.sources[0].podCertificate.{told}"] if told else [])


def test_a_certificate_has_to_go_somewhere_and_nowhere_twice() -> None:
    nowhere = {name: value for name, value in CERTIFICATE.items() if name != "credentialBundlePath"}
    assert problems({"podCertificate": nowhere}) == [
        "v.sources[0].podCertificate: Required value: specify at least one of credentialBundlePath, keyPath, and "
        "certificateChainPath"
    ]
    twice = {"podCertificate": CERTIFICATE}, {"clusterTrustBundle": {**BUNDLE, "path": "bundle.pem"}}
    assert problems(*twice) == ['v: Invalid value: "bundle.pem": conflicting duplicate paths']


@pytest.mark.parametrize(
    ("source", "told"),
    [
        (BUNDLE, ""),
        ({"name": "example.com:pods:one", "path": "a"}, ""),
        ({"name": "one", "path": "a"}, ""),
        ({"path": "a"}, ": Required value: either name or signerName must be specified"),
        ({"signerName": "example.com/pods"}, ".path: Required value"),
        (
            {"name": "a:", "path": "a"},
            '.name: Invalid value: "a:": not a valid clustertrustbundlename: a lowercase RFC 1123 subdomain must consist of',
        ),
        (
            {"name": "one", "path": "a", "labelSelector": {}},
            ".labelSelector: Invalid value: {}: labelSelector must be unset if name is specified",
        ),
        ({"name": "one", "signerName": "example.com/pods", "path": "a"}, ": Invalid value: "),
    ],
)
def test_trust_anchors(source: Object, told: str) -> None:
    found = problems({"clusterTrustBundle": source})
    assert len(found) == bool(told)
    assert not told or found[0].startswith(f"v.sources[0].clusterTrustBundle{told}")


def test_a_request_that_does_not_say_how_long_is_for_a_day() -> None:
    request: Object = {"spec": {name: value for name, value in REQUEST.items() if name != "maxExpirationSeconds"}}
    POD_CERTIFICATE_REQUEST.defaults(request)
    assert request["spec"]["maxExpirationSeconds"] == 86400
    assert POD_CERTIFICATE_REQUEST.check(request) == []


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"podUID": ""}, 'spec.podUID: Invalid value: "": must not be empty'),
        ({"nodeName": "N"}, 'spec.nodeName: Invalid value: "N": a lowercase RFC 1123 subdomain'),
        (
            {"maxExpirationSeconds": 60},
            "spec.maxExpirationSeconds: Invalid value: 60: must be in the range [3600, 7862400]",
        ),
        (
            {"pkixPublicKey": "AAAA"},
            "spec: Invalid value: exactly one of (stubPKCS10Request) or (pkixPublicKey, proofOfPossession) must be set",
        ),
    ],
)
def test_a_request_names_who_asks(change: Object, told: str) -> None:
    (found,) = POD_CERTIFICATE_REQUEST.check({"spec": {**REQUEST, **change}})
    assert str(found.error).startswith(told)
