"""Certificates for pods (podCertificate projections): the agent creates a key and a PodCertificateRequest, and waits for a signer.

A key never leaves the node, and stays in memory until its certificate is issued: a restarted agent requests a new one, as the kubelet
does. The cluster provides the signer; without one, the pod waits, and its events name the signer.
"""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import Callable
from typing import Any

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from allot.client.api import Client
from allot.client.errors import ApiError, NotFound
from allot.core.lifecycle.certificate_files import cleaned
from allot.core.lifecycle.times import seconds_of
from allot.core.model.pods_v1 import RunnablePod
from allot.core.model.volumes_v1 import PodCertificateProjection
from allot.node.objects import Missing
from allot.process.clock import Clock
from allot.process.ids import Ids

_GROUP, _VERSION = "certificates.k8s.io", "v1"
# Certificates of many pods must not all be renewed at the same time.
_SPREAD_S = 300.0
_RSA_EXPONENT = 65537

# Pod, volume, number of the source.
Key = tuple[str, str, int]
_PrivateKey = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey


class Credentials(msgspec.Struct, frozen=True, kw_only=True):
    """A key with its certificates, as PEM, and when to renew them."""

    key: bytes
    chain: bytes
    refresh_at: float


class _Asked(msgspec.Struct, frozen=True, kw_only=True):
    """A request that waits for its signer."""

    name: str
    key: bytes


class PodCertificates:
    """The certificates of all pods of an agent. uid_of: the uid of a Node object."""

    def __init__(self, client: Client, clock: Clock, ids: Ids, uid_of: Callable[[str], str]) -> None:
        self._requests = client.resource(_GROUP, _VERSION, "podcertificaterequests", namespaced=True)
        self._accounts = client.resource("", "v1", "serviceaccounts", namespaced=True)
        self._clock = clock
        self._ids = ids
        self._uid_of = uid_of
        self._issued: dict[Key, Credentials] = {}
        self._asked: dict[Key, _Asked] = {}

    def forget(self, uid: str) -> None:
        """A pod is gone."""
        for known in (self._issued, self._asked):
            for key in [key for key in known if key[0] == uid]:
                del known[key]

    async def of(self, pod: RunnablePod, volume: str, position: int, source: PodCertificateProjection) -> Credentials:
        """The credentials of a volume; Missing while there are none, with the reason."""
        key = (pod.metadata.uid, volume, position)
        issued = self._issued.get(key)
        if issued is not None and self._clock.seconds() < issued.refresh_at:
            return issued
        try:
            if key not in self._asked:
                self._asked[key] = await self._ask(pod, source)
            found = await self._answer(pod, key, source)
        except (ApiError, Missing) as error:
            if issued is not None:
                return issued  # keep using the old ones until there are new ones
            if isinstance(error, Missing):
                raise
            raise Missing(f"certificate of signer {source.signer_name}: {error.message}") from error
        self._issued[key] = found
        del self._asked[key]
        return found

    async def _answer(self, pod: RunnablePod, key: Key, source: PodCertificateProjection) -> Credentials:
        asked, namespace = self._asked[key], pod.metadata.namespace
        about = f"PodCertificateRequest {namespace}/{asked.name}"
        try:
            request = await self._requests.get(asked.name, namespace)
        except NotFound:
            del self._asked[key]
            raise Missing(f"{about} was deleted before it was issued") from None
        status = request.get("status") or {}
        conditions = {each.get("type"): each for each in status.get("conditions") or () if each.get("status") == "True"}
        for type_, word in (("Denied", "denied"), ("Failed", "failed")):
            if (found := conditions.get(type_)) is not None:
                reason, message = found.get("reason", ""), found.get("message", "")
                raise Missing(f'{about} was permanently {word}: reason="{reason}" message="{message}"')
        if "Issued" not in conditions:
            raise Missing(f'{about} is not issued yet: it waits for signer "{source.signer_name}"')
        chain = cleaned(status.get("certificateChain") or "")
        if not chain or not status.get("beginRefreshAt"):
            raise Missing(f"{about} was issued without certificates")
        refresh_at = seconds_of(status["beginRefreshAt"]) + self._ids.jitter() * _SPREAD_S
        return Credentials(key=asked.key, chain=chain.encode(), refresh_at=refresh_at)

    async def _ask(self, pod: RunnablePod, source: PodCertificateProjection) -> _Asked:
        metadata = pod.metadata
        account = pod.spec.service_account_name or "default"
        found = await self._accounts.get(account, metadata.namespace)
        # Creating large keys takes time.
        key, proof = await asyncio.to_thread(_make_key, source.key_type)
        spec: dict[str, Any] = {
            "signerName": source.signer_name,
            "podName": metadata.name,
            "podUID": metadata.uid,
            "serviceAccountName": account,
            "serviceAccountUID": found["metadata"]["uid"],
            "nodeName": pod.spec.node_name,
            "nodeUID": self._uid_of(pod.spec.node_name),
            "stubPKCS10Request": b64encode(proof).decode(),
        }
        if source.max_expiration_seconds is not None:
            spec["maxExpirationSeconds"] = source.max_expiration_seconds
        if source.user_annotations:
            spec["unverifiedUserAnnotations"] = dict(source.user_annotations)
        owner = {"apiVersion": "v1", "kind": "Pod", "name": metadata.name, "uid": metadata.uid}
        request = {
            "apiVersion": f"{_GROUP}/{_VERSION}",
            "kind": "PodCertificateRequest",
            "metadata": {
                "generateName": "req-",
                "namespace": metadata.namespace,
                "ownerReferences": [owner],
            },
            "spec": spec,
        }
        made = await self._requests.create(request, metadata.namespace)
        return _Asked(name=made["metadata"]["name"], key=key)


def _make_key(kind: str) -> tuple[bytes, bytes]:
    """A key as PEM, and a request that proves its possession (PKCS#10, DER); Missing for an unknown key type."""
    made = _private_key(kind)
    digest = None if isinstance(made, ed25519.Ed25519PrivateKey) else hashes.SHA256()
    proof = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([])).sign(made, digest)
    text = made.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return text, proof.public_bytes(serialization.Encoding.DER)


def _private_key(kind: str) -> _PrivateKey:
    match kind:
        case "RSA3072":
            return rsa.generate_private_key(_RSA_EXPONENT, 3072)
        case "RSA4096":
            return rsa.generate_private_key(_RSA_EXPONENT, 4096)
        case "ECDSAP256":
            return ec.generate_private_key(ec.SECP256R1())
        case "ECDSAP384":
            return ec.generate_private_key(ec.SECP384R1())
        case "ECDSAP521":
            return ec.generate_private_key(ec.SECP521R1())
        case "ED25519":
            return ed25519.Ed25519PrivateKey.generate()
    raise Missing(f'unknown key type "{kind}"')
