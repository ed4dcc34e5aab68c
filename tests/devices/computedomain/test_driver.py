"""The driver under a real API server and the kubelet's protocol: channels wait for their domain, and nobody gets that of others."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from allot.client.api import Client, PatchType
from allot.client.errors import Invalid
from allot.core.model.compute_domains import CLIQUE_LABEL, DOMAIN_LABEL, DRIVER
from allot.devices.computedomain import driver as driver_module
from allot.devices.computedomain.driver import ComputeDomainDriver
from allot.devices.computedomain.imex import CHANNELS, SimulatedImex, break_fabric
from allot.driver.conformance.kubelet import ClaimRef, DriverConnection
from allot.installation.definitions import objects
from driver.cluster import NODE, cluster, make_claim, release, started
from waiting import until

pytestmark = pytest.mark.slow

RACK = "9f410827-489f-46fd-8203-51266ca08eb7.32766"
STRANGER = "00000000-0000-4000-8000-000000000000"


def _config(kind: str, **parameters: Any) -> dict[str, Any]:
    """For all requests of a claim."""
    given = {"apiVersion": "resource.nvidia.com/v1beta1", "kind": f"ComputeDomain{kind}Config", **parameters}
    return {"source": "FromClaim", "opaque": {"driver": DRIVER, "parameters": given}}


class Rig:
    """A node with the driver, and ComputeDomains that nobody controls but the test."""

    def __init__(self, client: Client, kubelet: DriverConnection, folder: Path) -> None:
        self.client = client
        self.kubelet = kubelet
        self.folder = folder
        self._domains = client.resource("resource.nvidia.com", "v1beta1", "computedomains", namespaced=True)
        self._nodes = client.resource("", "v1", "nodes", namespaced=False)

    async def domain(self, namespace: str = "default") -> dict[str, Any]:
        spec = {"channel": {"resourceClaimTemplate": {"name": "channel"}}}
        metadata = {"generateName": "nccl-", "namespace": namespace}
        body = {"apiVersion": "resource.nvidia.com/v1beta1", "kind": "ComputeDomain", "metadata": metadata}
        return await self._domains.create({**body, "spec": spec}, namespace)

    async def with_nodes(self, domain: dict[str, Any], nodes: int) -> dict[str, Any]:
        metadata = domain["metadata"]
        patch = {"spec": {"numNodes": nodes}}
        return await self._domains.patch(metadata["name"], patch, PatchType.MERGE, metadata["namespace"])

    async def set_ready(self, domain: dict[str, Any], status: str = "Ready") -> None:
        nodes = [{"name": NODE, "ipAddress": "10.0.0.1", "cliqueID": RACK, "index": 0, "status": status}]
        patch = {"status": {"status": status, "nodes": nodes}}
        metadata = domain["metadata"]
        await self._domains.patch(metadata["name"], patch, PatchType.MERGE, metadata["namespace"], subresource="status")

    async def claim(self, device: str = "channel-0", kind: str = "Channel", **parameters: Any) -> ClaimRef:
        return await make_claim(self.client, DRIVER, [device], configs=[_config(kind, **parameters)])

    async def prepare(self, claim: ClaimRef) -> str:
        return (await self.kubelet.prepare([claim]))[claim.uid].error

    async def unprepare(self, claim: ClaimRef) -> None:
        assert (await self.kubelet.unprepare([claim]))[claim.uid] == ""
        await release(self.client, claim)

    async def label(self, name: str = DOMAIN_LABEL) -> str:
        return str((await self._nodes.get(NODE))["metadata"].get("labels", {}).get(name, ""))

    async def set_label(self, value: str | None) -> None:
        await self._nodes.patch(NODE, {"metadata": {"labels": {DOMAIN_LABEL: value}}}, PatchType.MERGE)

    def edits(self, claim: ClaimRef) -> dict[str, Any]:
        (path,) = (self.folder / "cdi").glob(f"*{claim.uid}*.json")
        (device,) = json.loads(path.read_text())["devices"]
        found: dict[str, Any] = device["containerEdits"]
        return found


@asynccontextmanager
async def rig(folder: Path, *, wait_s: float = 0.0, clique: str = RACK) -> AsyncIterator[Rig]:
    made = ComputeDomainDriver(
        SimulatedImex(folder / "state"), clique=clique, driver_namespace="default", wait_s=wait_s
    )
    async with cluster(folder) as plane:
        client = plane.client()
        definitions = client.resource("apiextensions.k8s.io", "v1", "customresourcedefinitions", namespaced=False)
        (definition,) = [each for each in objects() if each["metadata"]["name"].startswith("computedomains.")]
        await definitions.create(definition)
        domains = client.resource("resource.nvidia.com", "v1beta1", "computedomains", namespaced=True)

        async def is_served() -> bool:
            found = (await definitions.get(definition["metadata"]["name"])).get("status", {}).get("conditions", ())
            return any(each["type"] == "Established" and each["status"] == "True" for each in found)

        await until(is_served, "the definition")
        assert (await domains.list()).items == ()
        async with started(made, client, folder) as (_, kubelet):
            yield Rig(client, kubelet, folder)


async def test_a_channel_waits_until_the_daemon_on_its_node_is_ready(tmp_path: Path) -> None:
    async with rig(tmp_path) as made:
        assert await made.label(CLIQUE_LABEL) == RACK
        domain = await made.domain()
        uid, name = domain["metadata"]["uid"], f"default/{domain['metadata']['name']}"
        claim = await made.claim(domainID=uid)
        error = await made.prepare(claim)
        assert f"ComputeDomain {name} is not ready on node {NODE}: its daemon does not run there yet" in error
        assert await made.label() == uid, "the label brings the daemon"
        await made.set_ready(domain, "NotReady")
        assert f"is not ready on node {NODE}: its daemon there is NotReady" in await made.prepare(claim)
        await made.set_ready(domain)
        assert await made.prepare(claim) == ""
        (mount,) = made.edits(claim)["mounts"]
        assert mount["containerPath"] == "/dev/nvidia-caps-imex-channels"
        assert [each.name for each in Path(mount["hostPath"]).iterdir()] == ["channel0"]
        await made.unprepare(claim)
        assert await made.label() == ""
        assert not Path(mount["hostPath"]).exists()


async def test_a_channel_is_had_in_one_call_if_the_daemon_comes_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver_module, "_PAUSE_FIRST_S", 0.01)
    async with rig(tmp_path, wait_s=60.0) as made:
        domain = await made.domain()
        claim = await made.claim(domainID=domain["metadata"]["uid"], allocationMode="All")
        waiting = asyncio.ensure_future(made.prepare(claim))
        await until(made.label)
        # Meanwhile the daemon's own claim is prepared by the same driver.
        daemon = await made.claim("daemon-0", "Daemon", domainID=domain["metadata"]["uid"])
        assert await made.prepare(daemon) == ""
        assert not waiting.done()
        await made.set_ready(domain)
        assert await waiting == ""
        (mount,) = made.edits(claim)["mounts"]
        assert len(list(Path(mount["hostPath"]).iterdir())) == CHANNELS
        edits = made.edits(daemon)
        assert f"CLIQUE_ID={RACK}" in edits["env"]
        assert next(each["containerPath"] for each in edits["mounts"]) == "/imexd"
        await made.unprepare(daemon)
        assert await made.label() == domain["metadata"]["uid"], "the channel is still there"
        await made.unprepare(claim)
        assert await made.label() == ""


async def test_who_must_not_have_a_channel_is_told_why(tmp_path: Path) -> None:
    async with rig(tmp_path) as made:
        namespaces = made.client.resource("", "v1", "namespaces", namespaced=False)
        await namespaces.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other"}})
        foreign = (await made.domain("other"))["metadata"]["uid"]
        own = await made.domain()
        cases: list[tuple[dict[str, Any], str]] = [
            ({"domainID": foreign}, f"ComputeDomain {foreign} is not in namespace default"),
            ({"domainID": STRANGER}, f"ComputeDomain {STRANGER} does not exist"),
            ({"domainID": "../../etc"}, "domainID '../../etc': expected the uid of a ComputeDomain"),
            ({}, "domainID is empty"),
            ({"domainID": own["metadata"]["uid"], "allocationMode": "Some"}, "allocationMode 'Some': expected Single"),
            ({"domainID": own["metadata"]["uid"], "channels": 3}, 'strict decoding error: unknown field "channels"'),
        ]
        for parameters, text in cases:
            claim = await made.claim(**parameters)
            error = await made.prepare(claim)
            assert text in error, error
            await made.unprepare(claim)
        assert await made.label() == ""
        with pytest.raises(Invalid, match="immutable"):
            await made.with_nodes(own, 3)
        await made.set_ready(own)
        await made.set_label(foreign)
        claim = await made.claim(domainID=own["metadata"]["uid"])
        assert f"node {NODE} is in another ComputeDomain ({foreign})" in await made.prepare(claim)
        await made.unprepare(claim)
        assert await made.label() == foreign, "another domain's label is not ours to remove"


async def test_a_daemon_does_not_start_on_a_fabric_that_is_broken(tmp_path: Path) -> None:
    async with rig(tmp_path) as made:
        uid = (await made.domain())["metadata"]["uid"]
        (tmp_path / "state").mkdir(exist_ok=True)
        break_fabric(tmp_path / "state", "fabric state is in progress")
        claim = await made.claim("daemon-0", "Daemon", domainID=uid)
        assert f"the NVLink fabric of node {NODE} is broken: fabric state is in progress" in await made.prepare(claim)
        break_fabric(tmp_path / "state", "")
        assert await made.prepare(claim) == ""


async def test_a_claim_with_both_devices_leaves_nothing_behind(tmp_path: Path) -> None:
    async with rig(tmp_path) as made:
        domain = await made.domain()
        await made.set_ready(domain)
        configs = [_config(kind, domainID=domain["metadata"]["uid"]) for kind in ("Channel", "Daemon")]
        claim = await make_claim(made.client, DRIVER, ["channel-0", "daemon-0"], configs=configs)
        assert await made.prepare(claim) == ""
        await made.unprepare(claim)
        assert await made.label() == ""
        assert [list((tmp_path / "state" / name).iterdir()) for name in ("claims", "domains")] == [[], []]


async def test_without_nvlink_there_are_no_channels(tmp_path: Path) -> None:
    async with rig(tmp_path, clique="") as made:
        domain = await made.domain()
        await made.set_ready(domain)
        claim = await made.claim(domainID=domain["metadata"]["uid"])
        assert await made.prepare(claim) == ""
        assert not list((tmp_path / "cdi").glob(f"*{claim.uid}*.json"))
