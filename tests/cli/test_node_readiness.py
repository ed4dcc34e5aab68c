"""`allot up` waits until all drivers of its nodes have published, here on a control plane in memory."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from allot.apiserver.assembly import Settings
from allot.autoscaler.provider import POOL_LABEL
from allot.cli.up.node_readiness import NodesReady, wait_for_nodes
from allot.cli.up.node_sets import Nodes, parse_specs
from allot.client.api import Client
from allot.controlplane.plane import control_plane
from allot.core.model.compute_domains import DRIVER as COMPUTE_DOMAINS
from allot.core.model.core_v1 import Node
from allot.core.model.resource_v1 import ResourceSlice
from allot.devices.pool_files import PoolFile, PoolSpec
from allot.process.clock import rfc3339
from allot.store.memory import MemoryStore
from waiting import until

pytestmark = pytest.mark.slow

TRAY = "gb200-nvl72"
GPUS = "gpu.nvidia.com"


def test_all_drivers_with_devices_are_waited_for() -> None:
    assert parse_specs((f"{TRAY}=2", "n2-standard-4")).publishers == {
        f"{TRAY}-0": {GPUS, COMPUTE_DOMAINS},
        f"{TRAY}-1": {GPUS, COMPUTE_DOMAINS},
        "n2-standard-4": set(),
    }


@pytest.mark.parametrize("in_pool", [False, True])
async def test_a_node_is_ready_when_each_driver_has_published(
    tmp_path: Path, in_pool: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    wanted, labels, expected = parse_specs((TRAY,)), {}, {TRAY}
    if in_pool:
        wanted = Nodes(pools=PoolFile(pools=(PoolSpec(name="trays", machine=TRAY, min=1),)))
        labels, expected = {POOL_LABEL: "trays"}, {TRAY, "pool trays, node 0"}
    async with control_plane(Settings(directory=tmp_path / "pki", port=0), MemoryStore()) as plane:
        client, now = plane.client(), plane.clock.seconds()
        nodes, slices = NodesReady(plane, wanted, rfc3339(int(now))), plane.informers.typed(ResourceSlice)
        await _node(client, labels)
        await _slice(client, GPUS)
        await _slice(client, COMPUTE_DOMAINS)
        await until(lambda: len(plane.informers.typed(Node).cache) == 1 and len(slices.cache) == 2)
        assert nodes.names() == set(), "an earlier run may have left all of it"
        await _lease(client, now + 1.0)
        await until(lambda: nodes.names() == expected)
        await client.typed(ResourceSlice).delete(f"{COMPUTE_DOMAINS}-one")
        await until(lambda: len(slices.cache) == 1)
        assert nodes.names() == set(), "one of two drivers has published"
        # It ends when all of them have.
        waiting = asyncio.create_task(wait_for_nodes(plane, wanted, now))
        await _slice(client, COMPUTE_DOMAINS)
        await waiting
        assert nodes.names() == expected and "not ready" not in capsys.readouterr().err


async def _node(client: Client, labels: dict[str, str]) -> None:
    nodes = client.resource("", "v1", "nodes", namespaced=False)
    made: dict[str, Any] = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": TRAY, "labels": labels}}
    made = await nodes.create(made)
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": ""}
    await nodes.update_status({**made, "status": {"conditions": [ready]}})


async def _lease(client: Client, now: float) -> None:
    leases = client.resource("coordination.k8s.io", "v1", "leases", namespaced=True)
    spec = {"holderIdentity": TRAY, "renewTime": rfc3339(int(now)).replace("Z", ".000000Z")}
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": TRAY}, "spec": spec}
    await leases.create(lease, "kube-node-lease")


async def _slice(client: Client, driver: str) -> None:
    slices = client.resource("resource.k8s.io", "v1", "resourceslices", namespaced=False)
    pool = {"name": TRAY, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": driver, "nodeName": TRAY, "pool": pool, "devices": [{"name": "one"}]}
    made = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": f"{driver}-one"}}
    await slices.create({**made, "spec": spec})
