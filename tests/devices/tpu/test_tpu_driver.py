"""The driver under a real API server and the kubelet's protocol: published, prepared, unprepared."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from allot.core.model.resource_v1 import ResourceSlice
from allot.devices.profiles.tpus import find_tpu_machine
from allot.devices.tpu.chips import SimulatedChips
from allot.devices.tpu.driver import TpuDriver
from allot.devices.tpu.inventory import Slice
from allot.driver import DriverFailed, Health
from driver.cluster import cluster, make_claim, release, started
from waiting import until

pytestmark = pytest.mark.slow


async def test_a_claim_has_all_chips_or_none(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    driver = TpuDriver(SimulatedChips(find_tpu_machine("ct6e-standard-4t"), tmp_path), logs=logs)
    async with cluster(tmp_path) as plane, started(driver, plane.client(), tmp_path) as (plugin, kubelet):
        client = plane.client()
        await plugin.publisher.synced.wait()
        (slice_,) = (await client.typed(ResourceSlice).list()).items
        assert [device.name for device in slice_.spec.devices or ()] == ["0", "1", "2", "3"]

        part = await make_claim(client, "tpu.google.com", ["0", "1"])
        refused = (await kubelet.prepare([part]))[part.uid].error
        text = "invalid TPU chip count request, you must request all 4 chips on this node together"
        assert text in refused
        assert (await kubelet.unprepare([part]))[part.uid] == ""
        await release(client, part)

        whole = await make_claim(client, "tpu.google.com", ["0", "1", "2", "3"])
        entry = (await kubelet.prepare([whole]))[whole.uid]
        assert entry.error == ""
        assert len(entry.devices) == 4
        environment = [
            line
            for path in sorted((tmp_path / "cdi").glob("*.json"))
            for device in json.loads(path.read_text())["devices"]
            for line in device["containerEdits"]["env"]
        ]
        assert {
            "TPU_TOPOLOGY=2x2",
            "TPU_ACCELERATOR_TYPE=v6e-4",
            f"TPU_DEVICE_3_RESOURCE_CLAIM={whole.uid}",
        } <= set(environment)
        assert all(id_.startswith("k8s.tpu.google.com/tpu=") for device in entry.devices for id_ in device.cdi_ids)

        (logs / "tpu_driver.INFO").write_text("x")
        (logs / "old").mkdir()
        assert (await kubelet.unprepare([whole]))[whole.uid] == ""
        assert list(logs.iterdir()) == []
        assert not [path for path in (tmp_path / "cdi").glob("*.json") if whole.uid in path.name]


async def test_a_lost_chip_is_unhealthy_and_the_others_are_the_whole(tmp_path: Path) -> None:
    driver = TpuDriver(SimulatedChips(find_tpu_machine("v5px4"), tmp_path), logs=tmp_path / "logs")
    async with cluster(tmp_path) as plane, started(driver, plane.client(), tmp_path) as (plugin, kubelet):
        await plugin.publisher.synced.wait()
        (tmp_path / "lost").write_text("2\n")
        plugin.changed()

        async def gone() -> bool:
            slices = (await plane.client().typed(ResourceSlice).list()).items
            return [device.name for each in slices for device in each.spec.devices or ()] == ["0", "1", "3"]

        await until(gone)
        states = {each.name: (each.health, each.message) for each in driver.health()}
        assert states["2"] == (Health.UNHEALTHY, "the device file is missing")
        assert states["3"][0] is Health.HEALTHY
        rest = await make_claim(plane.client(), "tpu.google.com", ["0", "1", "3"])
        assert (await kubelet.prepare([rest]))[rest.uid].error == ""


async def test_a_slice_that_the_machine_cannot_be_part_of_is_refused_at_the_start(tmp_path: Path) -> None:
    chips = SimulatedChips(find_tpu_machine("v5px4"))
    driver = TpuDriver(chips, Slice(topology="3x3x3"), tmp_path / "logs")
    async with cluster(tmp_path) as plane:
        with pytest.raises((DriverFailed, ExceptionGroup)) as caught:
            async with started(driver, plane.client(), tmp_path):
                raise AssertionError("it started")
        error: BaseException = caught.value
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        assert "topology '3x3x3': cannot be made of machines with 2x2x1 chips" in str(error)
