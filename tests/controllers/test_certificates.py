"""Certificate requests on a real API server: from the request to a client that uses the certificate."""

from __future__ import annotations

import base64
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from allot.client.api import PatchType
from allot.controllers import certificates
from controllers.tidy_cluster import Cluster, cluster

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

Object = dict[str, Any]
V1 = "certificates.k8s.io/v1"
CSR = "CertificateSigningRequest"
CLIENT = "kubernetes.io/kube-apiserver-client"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def tidy(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cluster]:
    makes = (
        certificates.make_approver,
        certificates.make_signer,
        certificates.make_cleaner,
        certificates.make_pod_cleaner,
        certificates.make_publisher,
    )
    async with cluster(tmp_path_factory.mktemp("certified"), *makes) as made:
        yield made


class Requester:
    """A key, and requests for it."""

    def __init__(self) -> None:
        self.key = ec.generate_private_key(ec.SECP256R1())

    def request(self, name: str, *groups: str) -> str:
        attributes = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
        subject = x509.Name([*attributes, x509.NameAttribute(NameOID.COMMON_NAME, name)])
        request = x509.CertificateSigningRequestBuilder(subject).sign(self.key, hashes.SHA256())
        return base64.b64encode(request.public_bytes(serialization.Encoding.PEM)).decode()

    def context(self, server_ca: bytes, certificate: bytes, folder: Path) -> ssl.SSLContext:
        """TLS as the client whose certificate this is."""
        key = self.key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        (folder / "client.pem").write_bytes(certificate + key)
        context = ssl.create_default_context(cadata=server_ca.decode())
        context.load_cert_chain(folder / "client.pem")
        return context


async def create(tidy: Cluster, name: str, signer: str, request: str, *usages: str, **more: Any) -> None:
    spec = {"signerName": signer, "request": request, "usages": list(usages), **more}
    await tidy.create(V1, CSR, name, spec=spec)


async def approve(tidy: Cluster, name: str) -> None:
    condition = {"type": "Approved", "status": "True", "reason": "Test", "message": "by a test"}
    requests = await tidy.client.of_kind(V1, CSR)
    await requests.patch(name, {"status": {"conditions": [condition]}}, PatchType.MERGE, subresource="approval")


async def certificate(tidy: Cluster, name: str) -> bytes:
    """The certificate of a request as soon as it is signed."""

    async def signed() -> bytes | None:
        found = await tidy.get(V1, CSR, name)
        encoded = (found or {}).get("status", {}).get("certificate")
        return base64.b64decode(encoded) if encoded else None

    found: bytes = await tidy.eventually(signed)
    return found


async def test_an_approved_request_becomes_a_client(tidy: Cluster, tmp_path: Path) -> None:
    jane = Requester()
    request = jane.request("jane", "people")
    await create(tidy, "jane", CLIENT, request, "client auth", "digital signature", expirationSeconds=3600)
    await approve(tidy, "jane")
    pem = await certificate(tidy, "jane")
    read = x509.load_pem_x509_certificate(pem)
    assert (read.not_valid_after_utc - read.not_valid_before_utc).total_seconds() == 3900
    tls = jane.context(tidy.server.ca, pem, tmp_path)
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=tls)) as session:
        path = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
        answer = await tidy.server.post(path, review, session=session)
    user = answer.json["status"]["userInfo"]
    assert (user["username"], user["groups"]) == ("jane", ["people", "system:authenticated"])


async def test_a_request_that_no_signer_may_sign_fails_with_the_reason(tidy: Cluster) -> None:
    await create(tidy, "wrong", CLIENT, Requester().request("x"), "server auth")
    await approve(tidy, "wrong")

    async def failed() -> Object | None:
        found = await tidy.get(V1, CSR, "wrong")
        conditions = (found or {}).get("status", {}).get("conditions", [])
        return next((each for each in conditions if each["type"] == "Failed"), None)

    condition = await tidy.eventually(failed)
    assert condition["message"] == "invalid usage for client certificate: server auth"
    assert condition["lastUpdateTime"]


async def test_a_kubelet_gets_its_certificate_by_itself_once_its_group_may(tidy: Cluster) -> None:
    node, signer = Requester(), "kubernetes.io/kube-apiserver-client-kubelet"
    await create(
        tidy, "node", signer, node.request("system:node:n1", "system:nodes"), "client auth", "digital signature"
    )
    # The administrator requests, who may do anything.
    read = x509.load_pem_x509_certificate(await certificate(tidy, "node"))
    assert read.subject.rfc4514_string() == "CN=system:node:n1,O=system:nodes"
    found = await tidy.get(V1, CSR, "node")
    assert found is not None
    assert found["status"]["conditions"][0]["reason"] == "AutoApproved"


async def test_the_authority_of_the_server_is_published_and_comes_back(tidy: Cluster) -> None:
    bundles = await tidy.client.of_kind(V1, "ClusterTrustBundle")

    async def published() -> Object | None:
        found = (await bundles.list()).items
        return found[0] if len(found) == 1 else None

    first = await tidy.eventually(published)
    assert first["spec"] == {
        "signerName": "kubernetes.io/kube-apiserver-serving",
        "trustBundle": tidy.server.ca.decode(),
    }
    other = "kubernetes.io:kube-apiserver-serving:old"
    await tidy.create(V1, "ClusterTrustBundle", other, spec=first["spec"])
    await tidy.gone(V1, "ClusterTrustBundle", other)
    await bundles.delete(first["metadata"]["name"])
    assert (await tidy.eventually(published))["metadata"]["uid"] != first["metadata"]["uid"]
