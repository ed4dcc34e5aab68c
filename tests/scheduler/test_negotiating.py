"""Pods whose claims controllers allocate: scheduler and controllers agree on a node, with the real API server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import pytest_asyncio

from allot.client.api import PatchType
from allot.driver import ClassicController, ClassicDevice, PendingClaim, running_classic_controller
from scheduler.world import World, world
from waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

NODES = ("n1", "n2", "n3")


class Picky(ClassicController):
    """Has enough of everything, but not on all nodes."""

    recheck_s = 0.2
    refuses: frozenset[str] = frozenset()

    def unsuitable_nodes(self, claims: Sequence[PendingClaim], nodes: Sequence[str]) -> Mapping[str, list[str]]:
        return {claim.name: [node for node in nodes if node in self.refuses] for claim in claims}

    def allocate(self, claims: Sequence[PendingClaim], node: str) -> Mapping[str, list[ClassicDevice]]:
        return {claim.name: [ClassicDevice("gpu", node, _device_of(claim))] for claim in claims}


def _device_of(claim: PendingClaim) -> str:
    """Each claim has a device of its own."""
    return f"{claim.object['metadata']['namespace']}-{claim.name}"


class First(Picky):
    name = "first.example.com"
    refuses = frozenset(("n1",))


class Second(Picky):
    name = "second.example.com"
    refuses = frozenset(("n2",))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    """Three nodes, the third with a device that the scheduler allocates, and two controllers."""
    path: Path = tmp_path_factory.mktemp("negotiating")
    async with world(path, all_gates=True) as made, AsyncExitStack() as stack:
        await made.device_class()
        for name in NODES:
            await made.node(name)
        await made.devices("n3", 1)
        made.current = made.start(made.scheduler())
        for controller in (First(), Second()):
            await stack.enter_async_context(running_classic_controller(controller, made.client))
        yield made


async def claim(cluster: World, namespace: str, name: str, controller: str) -> None:
    claims = cluster.client.resource("resource.k8s.io", "v1alpha3", "resourceclaims", namespaced=True)
    spec = {"controller": controller, "devices": {"requests": [{"name": "gpu", "deviceClassName": "gpu"}]}}
    kind = {"apiVersion": "resource.k8s.io/v1alpha3", "kind": "ResourceClaim"}
    await claims.create({**kind, "metadata": {"name": name, "namespace": namespace}, "spec": spec}, namespace)


async def devices_of(cluster: World, namespace: str, name: str) -> list[tuple[str, str]]:
    status = (await cluster.claims.get(name, namespace)).get("status") or {}
    results = ((status.get("allocation") or {}).get("devices") or {}).get("results") or ()
    return [(result["pool"], result["device"]) for result in results]


async def test_two_controllers_and_the_scheduler_agree(cluster: World) -> None:
    await cluster.namespace("agree")
    await claim(cluster, "agree", "one", First.name)
    await claim(cluster, "agree", "two", Second.name)
    await cluster.pod("agree", "p", "one", "two")
    assert await cluster.bound("agree", "p") == "n3"
    assert await devices_of(cluster, "agree", "one") == [("n3", "agree-one")]
    assert await devices_of(cluster, "agree", "two") == [("n3", "agree-two")]
    contexts = cluster.client.resource("resource.k8s.io", "v1alpha3", "podschedulingcontexts", namespaced=True)

    async def is_over() -> bool:
        return not (await contexts.list("agree")).items

    await until(is_over, "the end of the negotiation")


async def test_devices_that_the_scheduler_allocates_decide_too(cluster: World) -> None:
    await cluster.namespace("mixed")
    await claim(cluster, "mixed", "one", First.name)
    await cluster.claim("mixed", "own")
    await cluster.pod("mixed", "p", "one", "own")
    assert await cluster.bound("mixed", "p") == "n3"
    assert await devices_of(cluster, "mixed", "own") == [("n3", "gpu-0")]


async def test_an_allocation_that_is_of_no_use_is_given_back_and_made_anew(cluster: World) -> None:
    await cluster.namespace("anew")
    await claim(cluster, "anew", "one", First.name)
    claims = cluster.client.resource("resource.k8s.io", "v1alpha3", "resourceclaims", namespaced=True)
    # Allocated before for a node where the pod may not be.
    made = await claims.get("one", "anew")
    here = {"key": "metadata.name", "operator": "In", "values": ["n2"]}
    result = {"request": "gpu", "driver": First.name, "pool": "n2", "device": "anew-one"}
    allocation = {
        "controller": First.name,
        "devices": {"results": [result]},
        "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [here]}]},
    }
    metadata = {**made["metadata"], "finalizers": [f"{First.name}/deletion-protection"]}
    made = await claims.update({**made, "metadata": metadata}, "anew")
    # Nothing is negotiated for a pod that is not to be placed yet.
    spec = {"nodeSelector": {"kubernetes.io/hostname": "n3"}, "schedulingGates": [{"name": "example.com/wait"}]}
    pod = await cluster.pod("anew", "p", "one", spec=spec)
    user = {"resource": "pods", "name": "p", "uid": pod["metadata"]["uid"]}
    patch = {"status": {"allocation": allocation, "reservedFor": [user]}}
    await claims.patch("one", patch, PatchType.MERGE, "anew", subresource="status")
    await cluster.pods.patch("p", {"spec": {"schedulingGates": None}}, PatchType.MERGE, "anew")
    assert await cluster.bound("anew", "p") == "n3"
    assert await devices_of(cluster, "anew", "one") == [("n3", "anew-one")]


async def test_a_node_that_nobody_likes_is_told(cluster: World) -> None:
    await cluster.namespace("nowhere")
    await claim(cluster, "nowhere", "one", First.name)
    await cluster.pod("nowhere", "p", "one", spec={"nodeSelector": {"kubernetes.io/hostname": "n1"}})
    contexts = cluster.client.resource("resource.k8s.io", "v1alpha3", "podschedulingcontexts", namespaced=True)

    async def is_told() -> bool:
        found = (await contexts.list("nowhere")).items
        claims = found[0]["status"].get("resourceClaims") if found else None
        return bool(claims) and claims[0].get("unsuitableNodes") == ["n1"] and not found[0]["spec"].get("selectedNode")

    await until(is_told, "a negotiation without an end")
    assert await devices_of(cluster, "nowhere", "one") == []
