"""The scheduler against the real API server: what happens to pods, and what is said about it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from scheduler.world import World, world

pytestmark = [
    pytest.mark.slow,
    pytest.mark.asyncio(loop_scope="module"),
]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    """Two nodes with two devices each, and a scheduler."""
    path: Path = tmp_path_factory.mktemp("scheduler")
    async with world(path) as made:
        await made.device_class()
        for name in ("n1", "n2"):
            await made.node(name)
            await made.devices(name, 2)
        made.start(made.scheduler())
        yield made


async def test_a_pod_with_a_claim_gets_its_device_and_its_node(cluster: World) -> None:
    await cluster.namespace("bound")
    await cluster.claim("bound", "c")
    pod = await cluster.pod("bound", "p", "c")
    node = await cluster.bound("bound", "p")
    claim = await cluster.claims.get("c", "bound")
    assert claim["metadata"]["finalizers"] == ["resource.kubernetes.io/delete-protection"]
    status = claim["status"]
    assert status["allocation"]["devices"]["results"][0]["pool"] == node
    assert status["allocation"]["allocationTimestamp"]
    assert status["reservedFor"] == [{"resource": "pods", "name": "p", "uid": pod["metadata"]["uid"]}]
    (event,) = await cluster.events("bound", "Scheduled")
    assert event["note"] == f"Successfully assigned bound/p to {node}"
    assert (event["type"], event["action"]) == ("Normal", "Binding")
    assert event["reportingController"] == "default-scheduler"
    await cluster.pods.delete("p", "bound", grace_period_seconds=0)
    await cluster.claims.delete("c", "bound")
