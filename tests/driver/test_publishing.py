"""Slices on a real API server: published, kept, cut, repaired, and what the server drops is told once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from allot.apiserver.assembly import Settings
from allot.client.api import Client
from allot.controlplane.plane import control_plane
from allot.core.features import DEFAULT_GATES, FeatureGates
from allot.core.lifecycle.slice_publishing import Pool
from allot.core.model.resource_v1 import DeviceTaint, ResourceSlice
from allot.driver import counter_set, device
from allot.driver.metrics import DriverMetrics
from allot.driver.publishing import SlicePublisher
from allot.process.clock import SystemClock
from allot.process.ids import SystemIds
from allot.store.memory import MemoryStore
from driver.cluster import NODE
from waiting import until

NAME = "gpu.example.com"


@asynccontextmanager
async def server(directory: Path, gates: FeatureGates = DEFAULT_GATES) -> AsyncIterator[Client]:
    async with control_plane(Settings(directory=directory / "pki", port=0, gates=gates), MemoryStore()) as plane:
        nodes = plane.client().resource("", "v1", "nodes", namespaced=False)
        await nodes.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}})
        yield plane.client()


@asynccontextmanager
async def publishing(client: Client, **fields: Any) -> AsyncIterator[SlicePublisher]:
    metrics = DriverMetrics(CollectorRegistry(), NAME)
    publisher = SlicePublisher(client, NAME, NODE, metrics, SystemClock(), SystemIds(), repair_delay_s=0.05, **fields)
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(publisher.run())
        try:
            yield publisher
        finally:
            task.cancel()


async def slices(client: Client) -> tuple[ResourceSlice, ...]:
    listed = (await client.typed(ResourceSlice).list()).items
    return tuple(sorted(listed, key=lambda slice_: slice_.metadata.name))


def pool(count: int, **fields: Any) -> Pool:
    devices = tuple(device(f"gpu-{number}", **fields) for number in range(count))
    return Pool(name=NODE, node_name=NODE, devices=devices)


async def test_a_pool_grows_shrinks_and_goes(tmp_path: Path) -> None:
    async with server(tmp_path) as client, publishing(client) as publisher:
        for count, expected in ((1, 1), (300, 3), (130, 2), (0, 1)):
            publisher.set((pool(count),))
            await publisher.synced.wait()
            found = await slices(client)
            assert len(found) == expected
            assert sum(len(slice_.spec.devices or ()) for slice_ in found) == count
            assert len({slice_.spec.pool.generation for slice_ in found}) == 1
        publisher.set(())
        await publisher.synced.wait()
        assert await slices(client) == ()


async def test_counters_and_partitions_are_accepted(tmp_path: Path) -> None:
    wanted = Pool(
        name=NODE,
        node_name=NODE,
        counter_sets=tuple(counter_set(f"card-{number}", {"memory": "40Gi"}) for number in range(10)),
        devices=tuple(
            device(f"card-{number}-half-{half}", consumes={f"card-{number}": {"memory": "20Gi"}})
            for number in range(10)
            for half in range(8)
        ),
    )
    async with server(tmp_path) as client, publishing(client) as publisher:
        publisher.set((wanted,))
        await publisher.synced.wait()
        found = await slices(client)
        assert [(len(each.spec.shared_counters or ()), len(each.spec.devices or ())) for each in found] == [
            (8, 0),
            (2, 0),
            (0, 64),
            (0, 16),
        ]


async def test_a_taint_is_added_in_place_and_keeps_its_time(tmp_path: Path) -> None:
    async with server(tmp_path) as client, publishing(client) as publisher:
        publisher.set((pool(2),))
        await publisher.synced.wait()
        taint = DeviceTaint(key="gpu.example.com/xid", value="79", effect="NoSchedule")
        publisher.set((pool(2, taints=(taint,)),))
        await publisher.synced.wait()
        (tainted,) = await slices(client)
        assert tainted.spec.pool.generation == 1
        first = [each.taints[0].time_added for each in tainted.spec.devices or ()]
        assert all(first)
        publisher.set((pool(3, taints=(taint,)),))
        await publisher.synced.wait()
        (grown,) = await slices(client)
        assert [each.taints[0].time_added for each in (grown.spec.devices or ())[:2]] == first


async def test_a_pool_of_the_whole_cluster_belongs_to_no_node(tmp_path: Path) -> None:
    async with server(tmp_path) as client:
        async with publishing(client) as other:
            other.set((pool(1),))
            await other.synced.wait()
            async with publishing(client, cluster_pool="network") as publisher:
                publisher.set((Pool(name="network", all_nodes=True, devices=(device("port-0"),)),))
                await publisher.synced.wait()
        first, second = await slices(client)
        network = first if first.spec.pool.name == "network" else second
        assert (network.spec.all_nodes, network.metadata.owner_references) == (True, ())
        assert network.metadata.name.startswith("00000-gpu.example.com-")


async def test_what_the_server_drops_is_told_and_not_repeated(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    gates = DEFAULT_GATES.changed(disable=["DRAConsumableCapacity"])
    async with server(tmp_path, gates) as client, publishing(client) as publisher:
        publisher.set((pool(200, shared=True),))
        await publisher.synced.wait()
        assert "dropped allow_multiple_allocations; probably off there: DRAConsumableCapacity" in caplog.text
        before = [slice_.metadata.resource_version for slice_ in await slices(client)]
        # A further look finds nothing to write.
        publisher.synced.clear()
        publisher.sync_after(0.0)
        await publisher.synced.wait()
        assert [slice_.metadata.resource_version for slice_ in await slices(client)] == before


async def test_slices_that_others_change_are_put_right(tmp_path: Path) -> None:
    async with server(tmp_path) as client, publishing(client) as publisher:
        publisher.set((pool(200),))
        await publisher.synced.wait()
        first, second = await slices(client)
        typed = client.typed(ResourceSlice)
        await typed.delete(first.metadata.name)
        await typed.update(msgspec.structs.replace(second, spec=msgspec.structs.replace(second.spec, devices=())))

        async def restored() -> bool:
            found = await slices(client)
            return sum(len(slice_.spec.devices or ()) for slice_ in found) == 200 and len(found) == 2

        await until(restored)
