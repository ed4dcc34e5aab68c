"""The node of the control plane and its pods, in one process: what they say, and that they come back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from allot.apiserver.assembly import Settings
from allot.client.api import ResourceClient
from allot.client.errors import NotFound
from allot.controlplane.own_node import NAME, OwnNode
from allot.controlplane.plane import ControlPlane, control_plane
from allot.node.static_pods import NodeFacts, PartState, StaticPod
from allot.store.memory import MemoryStore
from waiting import WAIT_S, until

pytestmark = pytest.mark.slow

POD = f"part-{NAME}"


class Part:
    """A part that can be made to fail."""

    def __init__(self, log: Path) -> None:
        self.state = PartState(started_at=1_800_000_000.0)
        self._log = log

    def pods(self, node: NodeFacts) -> Sequence[StaticPod]:
        return (
            StaticPod(
                name="part",
                node=node,
                image="image",
                command=("part",),
                labels={"component": "part"},
                log=self._log,
                state=lambda: self.state,
            ),
        )


@asynccontextmanager
async def running(folder: Path, part: Part) -> AsyncIterator[tuple[ControlPlane, OwnNode, ResourceClient]]:
    async with control_plane(Settings(directory=folder / "pki", port=0), MemoryStore()) as plane:
        node = OwnNode(plane, folder / "node", part.pods)
        (folder / "node").mkdir()
        plane.start("node", node.run)
        pods = plane.client().resource("", "v1", "pods", namespaced=True)
        async with asyncio.timeout(WAIT_S):
            await node.is_ready.wait()
        yield plane, node, pods


async def once_there(ask: Callable[[], Awaitable[Any]]) -> Any:
    """What is there before long."""

    async def look() -> Any:
        try:
            return await ask()
        except NotFound:
            return None

    return await until(look)


async def container(pods: ResourceClient) -> dict[str, Any]:
    pod = await pods.get(POD, "kube-system")
    statuses: list[dict[str, Any]] = pod["status"].get("containerStatuses", [])
    return statuses[0] if statuses else {}


async def test_the_node_keeps_others_off_and_its_pod_tells_how_the_part_is(tmp_path: Path) -> None:
    part = Part(tmp_path / "part.log")
    async with running(tmp_path, part) as (plane, node, pods):
        found = await plane.client().resource("", "v1", "nodes", namespaced=False).get(NAME)
        assert {"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"} in found["spec"]["taints"]
        told = await once_there(lambda: container(pods))
        assert told["state"] == {"running": {"startedAt": "2027-01-15T08:00:00Z"}}
        part.state = PartState(started_at=1_800_000_100.0, restarts=1, is_running=False)
        node.changed()

        async def is_restarted() -> bool:
            return bool((await container(pods))["restartCount"] == 1)

        await once_there(is_restarted)
        assert (await container(pods))["state"]["waiting"]["reason"] == "CrashLoopBackOff"


async def test_a_pod_that_is_deleted_comes_back_as_a_new_one(tmp_path: Path) -> None:
    async with running(tmp_path, Part(tmp_path / "part.log")) as (_, _, pods):
        await once_there(lambda: container(pods))
        before = (await pods.get(POD, "kube-system"))["metadata"]["uid"]
        await pods.delete(POD, "kube-system")

        async def is_new() -> bool:
            return bool((await pods.get(POD, "kube-system"))["metadata"]["uid"] != before)

        await once_there(is_new)
        assert (await once_there(lambda: container(pods)))["ready"]
