"""Slices of simulated nodes: there from the start, changed by what drivers say, back when somebody deletes them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from allot.apiserver.assembly import Settings
from allot.client.typed import TypedResource
from allot.controlplane.plane import control_plane
from allot.core.lifecycle.slice_publishing import Pool
from allot.core.model.resource_v1 import DeviceTaint, ResourceSlice
from allot.devices.catalogue import find_profile
from allot.devices.simulation import SimulatedDrivers
from allot.node.simulated_slices import SimulatedSlices
from allot.store.memory import MemoryStore
from waiting import until

DRIVER = "gpu.nvidia.com"
DRIVERS = SimulatedDrivers(find_profile("h100x2"))


@asynccontextmanager
async def slices_of_one_node(root: Path) -> AsyncIterator[tuple[SimulatedSlices, TypedResource[ResourceSlice]]]:
    async with control_plane(Settings(directory=root / "server", port=0), MemoryStore()) as plane:
        client = plane.client()
        nodes = client.resource("", "v1", "nodes", namespaced=False)
        node = await nodes.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}})
        uids = {"n": node["metadata"]["uid"]}
        made = SimulatedSlices(
            client, plane.clock, plane.ids, {"n": lambda: DRIVERS.pools("n")}, lambda name: uids[name], 0.05
        )
        plane.start("slices", made.run)
        await made.publish("n", (await made.published()).get("n", ()))
        yield made, client.typed(ResourceSlice)


async def one_slice(api: TypedResource[ResourceSlice], is_so: Callable[[ResourceSlice], bool]) -> None:
    """Until there is one, and it is so."""

    async def look() -> bool:
        found = (await api.list()).items
        return len(found) == 1 and is_so(found[0])

    await until(look)


def tainted(pool: Pool) -> Pool:
    taint = DeviceTaint(key="hot", effect="NoSchedule")
    first = msgspec.structs.replace(pool.devices[0], taints=(taint,))
    return msgspec.structs.replace(pool, devices=(first, *pool.devices[1:]))


def has_taint(slice_: ResourceSlice) -> bool:
    return any(device.taints for device in slice_.spec.devices or ())


async def test_what_a_driver_says_is_published_and_its_first_word_changes_nothing(tmp_path: Path) -> None:
    async with slices_of_one_node(tmp_path) as (made, api):
        ((_, usual),) = DRIVERS.pools("n")
        (before,) = (await api.list()).items
        made.changed("n", DRIVER, (usual,))
        made.changed("n", DRIVER, (tainted(usual),))
        await one_slice(api, has_taint)
        made.changed("n", DRIVER, (usual,))
        await one_slice(api, lambda slice_: not has_taint(slice_))
        (after,) = (await api.list()).items
        assert after.metadata.name == before.metadata.name


async def test_a_slice_that_somebody_deletes_comes_back_as_it_was(tmp_path: Path) -> None:
    async with slices_of_one_node(tmp_path) as (made, api):
        ((_, usual),) = DRIVERS.pools("n")
        made.changed("n", DRIVER, (tainted(usual),))
        await one_slice(api, has_taint)
        (before,) = (await api.list()).items
        await api.delete(before.metadata.name)
        await one_slice(api, lambda slice_: has_taint(slice_) and slice_.metadata.uid != before.metadata.uid)
        await made.publish("n", (await made.published())["n"])
        assert len((await api.list()).items) == 1
