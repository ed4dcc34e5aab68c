"""The driver under a real API server and the kubelet's protocol: published, prepared, unprepared."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from allot.client.api import Client
from allot.core.model.resource_v1 import ResourceSlice
from allot.devices.cpu.driver import CpuDriver
from allot.devices.cpu.inventory import GroupBy, Mode, Publishing
from allot.devices.cpu.topology import read_topology
from allot.driver.conformance.kubelet import ClaimRef, DriverConnection, Entry
from devices.cpu.test_cpus import two_sockets
from driver.cluster import cluster, make_claim, release, started
from waiting import WAIT_S, until

pytestmark = pytest.mark.slow


class World:
    def __init__(self, client: Client, kubelet: DriverConnection, folder: Path) -> None:
        self.client = client
        self.kubelet = kubelet
        self.folder = folder
        self._shares = 0

    async def claim(self, device: str, cpus: int = 0, cpuset: str = "", source: str = "FromClaim") -> ClaimRef:
        fields: dict[str, Any] = {}
        if cpus:
            self._shares += 1
            share = f"00000000-0000-4000-8000-{self._shares:012}"
            fields = {"shareID": share, "consumedCapacity": {"dra.cpu/cpu": str(cpus)}}
        return await make_claim(
            self.client, "dra.cpu", [device], configs=[config(cpuset, source)] if cpuset else (), **fields
        )

    async def prepare(self, claim: ClaimRef) -> Entry:
        return (await self.kubelet.prepare([claim]))[claim.uid]

    async def prepared(self, claim: ClaimRef) -> str:
        """The cpuset in the container's environment."""
        entry = await self.prepare(claim)
        assert entry.error == ""
        (id_,) = entry.devices[0].cdi_ids
        for path in (self.folder / "cdi").glob("*.json"):
            spec = json.loads(path.read_text())
            for device in spec["devices"]:
                if f"{spec['kind']}={device['name']}" == id_:
                    (line,) = device["containerEdits"]["env"]
                    name, _, value = str(line).partition("=")
                    assert name == f"DRA_CPUSET_{claim.uid}"
                    return value
        raise AssertionError(id_)


def config(cpuset: str, source: str = "FromClaim") -> Mapping[str, Any]:
    parameters = {"apiVersion": "v1alpha1", "cpuConfig": {"cpuset": cpuset}}
    return {"source": source, "opaque": {"driver": "dra.cpu", "parameters": parameters}}


@asynccontextmanager
async def world(folder: Path, publishing: Publishing | None = None) -> AsyncIterator[World]:
    root = two_sockets(folder / "sys")
    driver = CpuDriver(lambda: read_topology(root), publishing)
    async with cluster(folder) as plane, started(driver, plane.client(), folder) as (plugin, kubelet):
        async with asyncio.timeout(WAIT_S):
            await plugin.publisher.synced.wait()
        yield World(plane.client(), kubelet, folder)


async def test_claims_get_cpus_of_their_own(tmp_path: Path) -> None:
    async with world(tmp_path, Publishing(maps_node_allocatable=True)) as here:
        (slice_,) = (await here.client.typed(ResourceSlice).list()).items
        assert [device.name for device in slice_.spec.devices or ()] == ["cpudevnuma000", "cpudevnuma001"]
        one, two = [await here.claim("cpudevnuma000", count) for count in (2, 1)]
        assert await here.prepared(one) == "0,4"
        assert await here.prepared(two) == "1"
        assert await here.prepared(one) == "0,4", "asked again, answered again"
        # The cluster has taken it back, the node has not been told yet.
        await release(here.client, one)
        three = await here.claim("cpudevnuma000", 2)
        refused = await here.prepare(three)
        assert "device cpudevnuma000: 2 CPUs wanted, 1 of 4 are free" in refused.error
        assert (await here.kubelet.unprepare([one]))[one.uid] == ""
        assert await here.prepared(three) == "0,4"
        for claim in (two, three):
            assert (await here.kubelet.unprepare([claim]))[claim.uid] == ""
        assert list((tmp_path / "cdi").glob("*")) == []


async def test_who_does_not_say_how_many_gets_all(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        assert await here.prepared(await here.claim("cpudevnuma001", 3)) == "2-3,6"


async def test_single_cpus_are_given_as_allocated(tmp_path: Path) -> None:
    async with world(tmp_path, Publishing(mode=Mode.INDIVIDUAL)) as here:
        claim = await make_claim(here.client, "dra.cpu", ["cpudev001", "cpudev002"])
        assert (await here.prepare(claim)).error == ""
        await release(here.client, claim)
        second = await make_claim(here.client, "dra.cpu", ["cpudev001"])
        assert "is already allocated to different claim" in (await here.prepare(second)).error


async def test_a_claim_can_name_cpus_of_the_machine(tmp_path: Path) -> None:
    async with world(tmp_path, Publishing(group_by=GroupBy.MACHINE, reserved=(0,))) as here:
        assert await here.prepared(await here.claim("cpudevmachine", 2, "2-3")) == "2-3"
        for cpuset, source, message in (
            ("3,5", "FromClaim", "device cpudevmachine: CPUs 3 belong to other claims"),
            ("0-1", "FromClaim", "cpuset '0-1': CPU 0 is not available"),
            ("1", "FromClaim", "cpuset '1' has 1 CPUs, the claim was allocated 2"),
            ("x", "FromClaim", "CPU list 'x': 'x', expected a number or a range such as 0-3"),
            ("1,4", "FromClass", "cpuConfig of a device class, expected it in the claim"),
        ):
            claim = await here.claim("cpudevmachine", 2, cpuset, source)
            assert message in (await here.prepare(claim)).error
            await release(here.client, claim)


async def test_named_cpus_are_refused_where_a_device_is_not_the_machine(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        refused = await here.prepare(await here.claim("cpudevnuma000", 1, "0"))
        assert "cpuConfig is only for CPUs that are grouped by machine" in refused.error


async def test_a_cpu_that_goes_offline_is_unhealthy_and_no_longer_published(tmp_path: Path) -> None:
    root = two_sockets(tmp_path / "sys")
    driver = CpuDriver(lambda: read_topology(root), Publishing(mode=Mode.INDIVIDUAL))
    async with cluster(tmp_path) as plane, started(driver, plane.client(), tmp_path) as (plugin, _):
        await plugin.publisher.synced.wait()
        (root / "devices/system/cpu/online").write_text("0-5")
        plugin.changed()

        async def gone() -> bool:
            slices = (await plane.client().typed(ResourceSlice).list()).items
            return sum(len(each.spec.devices or ()) for each in slices) == 6

        await until(gone)
        assert [each.message for each in driver.health() if each.message] == ["offline"]
