"""A controller that allocates claims itself, met as the scheduler of Kubernetes 1.31 met it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from allot.apiserver.assembly import Settings
from allot.client.api import Client, ResourceClient
from allot.client.errors import NotFound
from allot.controlplane.plane import control_plane
from allot.core.features import DEFAULT_GATES
from allot.core.model.classic import GATE
from allot.driver import (
    Allocated,
    AllocateError,
    ClassicController,
    ClassicDevice,
    PendingClaim,
    running_classic_controller,
)
from allot.driver.plugin import DriverFailed
from allot.store.memory import MemoryStore
from driver.cluster import cluster
from waiting import until

NAME = "slots.example.com"
FINALIZER = f"{NAME}/deletion-protection"


class Slots(ClassicController):
    """Does what the test tells it to do."""

    name = NAME
    recheck_s = 0.2

    def __init__(self) -> None:
        self.full: set[str] = set()
        self.failure = ""
        self.deallocated: list[Allocated] = []

    def unsuitable_nodes(self, claims: Sequence[PendingClaim], nodes: Sequence[str]) -> Mapping[str, list[str]]:
        return {claim.name: [node for node in nodes if node in self.full] for claim in claims}

    def allocate(self, claims: Sequence[PendingClaim], node: str) -> Mapping[str, list[ClassicDevice]]:
        if self.failure:
            raise AllocateError(self.failure)
        return {claim.name: [ClassicDevice("slot", node, f"slot-{len(self.allocated)}")] for claim in claims}

    async def deallocate(self, claim: Allocated) -> None:
        self.deallocated.append(claim)


class World:
    """A pod, its claim and what the scheduler says of it."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.claims = self._resource("resourceclaims")
        self.contexts = self._resource("podschedulingcontexts")
        self._pod: dict[str, Any] = {}

    def _resource(self, plural: str, *, namespaced: bool = True) -> ResourceClient:
        return self.client.resource("resource.k8s.io", "v1alpha3", plural, namespaced=namespaced)

    async def begin(self, *, with_class: bool = True) -> None:
        if with_class:
            await self.make_class()
        config = {"opaque": {"driver": NAME, "parameters": {"colour": "red"}}}
        requests = [{"name": "slot", "deviceClassName": "slots"}]
        spec = {"controller": NAME, "devices": {"requests": requests, "config": [config]}}
        await self.claims.create(self._made("ResourceClaim", "c", spec), "default")
        pods = self.client.resource("", "v1", "pods", namespaced=True)
        container = {"name": "main", "image": "busybox", "resources": {"claims": [{"name": "slots"}]}}
        pod_spec = {"containers": [container], "resourceClaims": [{"name": "slots", "resourceClaimName": "c"}]}
        self._pod = await pods.create(
            {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": pod_spec}, "default"
        )

    async def make_class(self) -> None:
        await self._resource("deviceclasses", namespaced=False).create(self._made("DeviceClass", "slots", {}))

    async def offer(self, *nodes: str, selected: str = "") -> None:
        owner = {
            "apiVersion": "v1",
            "kind": "Pod",
            "name": "p",
            "uid": self._pod["metadata"]["uid"],
            "controller": True,
        }
        spec = {"potentialNodes": list(nodes), **({"selectedNode": selected} if selected else {})}
        try:
            known = await self.contexts.get("p", "default")
            await self.contexts.update({**known, "spec": spec}, "default")
        except NotFound:
            made = self._made("PodSchedulingContext", "p", spec)
            made["metadata"]["ownerReferences"] = [owner]
            await self.contexts.create(made, "default")

    async def unsuitable(self) -> list[str] | None:
        found = (await self.contexts.get("p", "default"))["status"].get("resourceClaims")
        return list(found[0].get("unsuitableNodes", ())) if found else None

    async def status(self) -> dict[str, Any]:
        return (await self.claims.get("c", "default")).get("status") or {}

    @staticmethod
    def _made(kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
        return {"apiVersion": "resource.k8s.io/v1alpha3", "kind": kind, "metadata": {"name": name}, "spec": spec}


@pytest_asyncio.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    gates = DEFAULT_GATES.changed((GATE,))
    async with control_plane(Settings(directory=tmp_path, port=0, gates=gates), MemoryStore()) as plane:
        yield World(plane.client())


async def test_a_claim_is_allocated_for_a_node_that_suits_and_given_back(world: World) -> None:
    slots = Slots()
    slots.full = {"n1"}
    await world.begin()
    async with running_classic_controller(slots, world.client):
        await world.offer("n1", "n2", selected="n1")

        async def is_told() -> bool:
            return await world.unsuitable() == ["n1"]

        await until(is_told, "what does not suit")
        assert "allocation" not in await world.status()
        await world.offer("n1", "n2", selected="n2")

        async def is_allocated() -> bool:
            return "allocation" in await world.status()

        await until(is_allocated, "the allocation")
        status = await world.status()
        assert [user["name"] for user in status["reservedFor"]] == ["p"]
        assert status["allocation"]["devices"]["results"] == [
            {"request": "slot", "driver": NAME, "pool": "n2", "device": "slot-0"}
        ]
        assert status["allocation"]["devices"]["config"] == [
            {"source": "FromClaim", "opaque": {"driver": NAME, "parameters": {"colour": "red"}}}
        ]
        claim = await world.claims.get("c", "default")
        assert claim["metadata"]["finalizers"] == [FINALIZER]
        # As the scheduler does when the pod is bound, and the claim controller when it is done.
        await world.contexts.delete("p", "default")
        await world.claims.update_status({**claim, "status": {**status, "reservedFor": []}}, "default")

        async def is_free() -> bool:
            return "finalizers" not in (await world.claims.get("c", "default"))["metadata"]

        await until(is_free, "the end of the allocation")
        assert "allocation" not in await world.status()
    assert [(each.name, each.nodes) for each in slots.deallocated] == [("c", ("n2",))]


async def test_what_cannot_be_done_now_is_tried_again(world: World, caplog: pytest.LogCaptureFixture) -> None:
    slots = Slots()
    slots.failure = "the switch is busy"
    await world.begin(with_class=False)
    async with running_classic_controller(slots, world.client):
        await world.offer("n1", selected="n1")
        await until(lambda: "device class 'slots' does not exist" in caplog.text, "the missing class")
        await world.make_class()
        await until(lambda: "the switch is busy" in caplog.text, "the failure")
        slots.failure = ""

        async def is_allocated() -> bool:
            return "allocation" in await world.status()

        await until(is_allocated, "the allocation")


async def test_a_claim_that_goes_before_it_is_allocated_goes(world: World) -> None:
    slots = Slots()
    slots.failure = "never"
    await world.begin()
    async with running_classic_controller(slots, world.client):
        await world.offer("n1", selected="n1")

        async def is_protected() -> bool:
            return (await world.claims.get("c", "default"))["metadata"].get("finalizers") == [FINALIZER]

        await until(is_protected, "the finalizer")
        await world.claims.delete("c", "default")

        async def is_gone() -> bool:
            return not (await world.claims.list("default")).items

        await until(is_gone, "the end of the claim")
    assert [each.devices for each in slots.deallocated] == [()]


async def test_a_server_without_the_protocol_is_told_of(tmp_path: Path) -> None:
    async with cluster(tmp_path) as plane:
        with pytest.raises(BaseExceptionGroup) as caught:
            async with running_classic_controller(Slots(), plane.client()) as runs:
                await runs.ready.wait()
    failed = caught.value.subgroup(DriverFailed)
    assert failed is not None and "is feature gate DRAControlPlaneController on?" in str(failed.exceptions[0])
