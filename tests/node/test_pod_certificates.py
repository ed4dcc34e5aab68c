"""Certificates of pods against a real API server in memory: asked for, refused, renewed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from cryptography.x509 import load_pem_x509_certificate

from allot.apiserver.assembly import Settings, running
from allot.client.api import Client, PatchType
from allot.controlplane.clients import client_of
from allot.controlplane.users import ADMINISTRATOR
from allot.core.model.pods_v1 import decode_runnable
from allot.core.model.volumes_v1 import PodCertificateProjection
from allot.node.objects import Missing
from allot.node.pod_certificates import PodCertificates
from allot.process.clock import SystemClock
from allot.process.ids import SystemIds
from allot.store.memory import MemoryStore
from node.signing import Signer

SOURCE = PodCertificateProjection(signer_name="example.com/pods", key_type="ED25519", key_path="key")


class Skipping(SystemClock):
    """A clock of which parts can be skipped."""

    __slots__ = ("skipped",)

    def __init__(self) -> None:
        super().__init__()
        self.skipped = 0.0

    def seconds(self) -> float:
        return super().seconds() + self.skipped


class World:
    """A pod that is to have a certificate."""

    def __init__(self, client: Client, pod: dict[str, Any]) -> None:
        self.clock = Skipping()
        self.pod = decode_runnable(pod)
        self.certificates = PodCertificates(client, self.clock, SystemIds(), lambda _: "uid-of-n1")
        self._requests = client.resource("certificates.k8s.io", "v1", "podcertificaterequests", namespaced=True)

    async def has(self) -> Any:
        """What the pod's volume has."""
        return await self.certificates.of(self.pod, "certificates", 0, SOURCE)

    async def requests(self) -> list[dict[str, Any]]:
        """What was asked for, the oldest first."""
        found = (await self._requests.list("default")).items
        return sorted(found, key=lambda each: int(each["metadata"]["resourceVersion"]))

    async def answer(self, name: str, status: dict[str, Any]) -> None:
        """What a signer says."""
        await self._requests.patch(name, {"status": status}, PatchType.MERGE, "default", subresource="status")


async def make(client: Client) -> World:
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "robot"}}
    await client.resource("", "v1", "serviceaccounts", namespaced=True).create(account, "default")
    spec = {"nodeName": "n1", "serviceAccountName": "robot", "containers": [{"name": "main", "image": "i"}]}
    pods = client.resource("", "v1", "pods", namespaced=True)
    made = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec}
    return World(client, await pods.create(made, "default"))


async def test_a_certificate_is_asked_for_once_and_renewed_when_its_signer_says_so(tmp_path: Path) -> None:
    async with running(Settings(directory=tmp_path, port=0), MemoryStore()) as server:
        world = await make(client_of(server, ADMINISTRATOR))
        for _ in range(2):
            with pytest.raises(Missing, match=r'is not issued yet: it waits for signer "example.com/pods"'):
                await world.has()
        (asked,) = await world.requests()
        assert asked["spec"]["nodeUID"] == "uid-of-n1"
        signer = Signer("authority")
        await world.answer(asked["metadata"]["name"], signer.answer(asked))
        first = await world.has()
        certificate = load_pem_x509_certificate(first.chain)
        assert certificate.public_key() == load_pem_private_key(first.key, None).public_key()
        assert await world.has() is first

        world.clock.skipped = 13 * 3600.0
        assert await world.has() is first, "the old one serves until there is another"
        renewed = next(each for each in await world.requests() if not each.get("status"))
        assert renewed["spec"]["stubPKCS10Request"] != asked["spec"]["stubPKCS10Request"]
        await world.answer(renewed["metadata"]["name"], signer.answer(renewed))
        second = await world.has()
        assert (second.key, second.chain) != (first.key, first.chain)


async def test_a_request_that_was_denied_says_so(tmp_path: Path) -> None:
    async with running(Settings(directory=tmp_path, port=0), MemoryStore()) as server:
        world = await make(client_of(server, ADMINISTRATOR))
        with pytest.raises(Missing):
            await world.has()
        (asked,) = await world.requests()
        denied = {"type": "Denied", "status": "True", "reason": "Unknown", "message": "not you"}
        denied["lastTransitionTime"] = "2026-01-01T00:00:00Z"
        await world.answer(asked["metadata"]["name"], {"conditions": [denied]})
        with pytest.raises(Missing, match=r'permanently denied: reason="Unknown" message="not you"'):
            await world.has()
        world.certificates.forget(world.pod.metadata.uid)
        with pytest.raises(Missing, match="is not issued yet"):
            await world.has()


async def test_a_kind_of_key_that_there_is_not_is_named(tmp_path: Path) -> None:
    async with running(Settings(directory=tmp_path, port=0), MemoryStore()) as server:
        world = await make(client_of(server, ADMINISTRATOR))
        odd = PodCertificateProjection(signer_name="example.com/pods", key_type="DSA")
        with pytest.raises(Missing, match='unknown key type "DSA"'):
            await world.certificates.of(world.pod, "certificates", 0, odd)
