"""The driver under an API server and a kubelet: published, prepared, seen in containers, unprepared."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from allot.core.allocation.allocator import Unallocatable
from allot.core.model.codec import decode
from allot.core.model.resource_v1 import ResourceClaim
from allot.devices.gpu.gates import Gates
from allot.devices.gpu.simulated import inject, parse_fault
from allot.devices.profiles.mig import Placement
from devices.gpu.world import (
    DYNAMIC,
    api_client,
    claim,
    driver_world,
    eventually,
    gpu_world,
    mig_request,
    opaque,
    pause,
    request,
    simulated,
)

pytestmark = pytest.mark.slow


async def test_all_gpus_of_a_machine_are_published_and_prepared(tmp_path: Path) -> None:
    async with gpu_world(tmp_path, "h100x8") as world:
        slices = await world.published(8)
        assert [(each.spec.pool.name, each.spec.node_name) for each in slices] == [("worker", "worker")]
        one = await world.allocated(claim("one", request()))
        two = await world.allocated(claim("two", request(count=2)))
        first, second = await world.prepare(one), await world.prepare(two)
        assert (first.error, second.error) == ("", "")
        files = {path.name for path in world.cdi.glob("*.json")}
        assert f"k8s.gpu.nvidia.com-claim_{one.uid}.json" in files

        listed = world.container(first).run("nvidia-smi", "-L").stdout.splitlines()
        assert len(listed) == 1
        assert listed[0].startswith("GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-")
        others = world.container(second).run("nvidia-smi", "-L").stdout.splitlines()
        assert len(others) == 2
        assert not set(listed) & set(others)
        both = world.container(first, second).run("nvidia-smi", "-L").stdout.splitlines()
        assert len(both) == 3

        assert await world.unprepare(one) == ""
        assert await world.unprepare(two) == ""
        assert {path.name for path in world.cdi.glob("*.json")} == {"k8s.gpu.nvidia.com-claim_common.json"}


async def test_mig_instances_are_made_for_claims_and_destroyed_after_them(tmp_path: Path) -> None:
    async with gpu_world(tmp_path, "a3-highgpu-1g", DYNAMIC) as world:
        slices = await world.published(26)
        assert len(slices) == 2, "counters and devices"
        hardware = world.plugin.driver.hardware  # type: ignore[attr-defined]
        prod = await world.allocated(claim("prod", mig_request("mig", "3g.40gb")))
        dev = await world.allocated(claim("dev", mig_request("mig", "1g.10gb")))
        assert not hardware.gpus()[0].mig_mode
        first, second = await world.prepare(prod), await world.prepare(dev)
        gpu = hardware.gpus()[0]
        assert gpu.mig_mode
        assert [each.profile.name for each in gpu.mig_instances] == ["3g.40gb", "1g.10gb"]

        listed = world.container(first).run("nvidia-smi", "-L").stdout.splitlines()
        assert listed[0] == f"GPU 0: NVIDIA H100 80GB HBM3 (UUID: {gpu.uuid})"
        assert listed[1] == f"  MIG 3g.40gb     Device  0: (UUID: {gpu.mig_instances[0].uuid})"
        assert len(listed) == 2
        assert len(world.container(first, second).run("nvidia-smi", "-L").stdout.splitlines()) == 3

        whole = await world.allocate(decode(claim("whole", request()), ResourceClaim).object)
        assert isinstance(whole, Unallocatable)

        assert await world.unprepare(prod) == ""
        assert [each.profile.name for each in hardware.gpus()[0].mig_instances] == ["1g.10gb"]
        assert hardware.gpus()[0].mig_mode
        assert await world.unprepare(dev) == ""
        assert hardware.gpus()[0].mig_instances == ()
        assert not hardware.gpus()[0].mig_mode


# --- sharing ---


def shared(strategy: str, **more: object) -> dict[str, object]:
    return {"sharing": {"strategy": strategy, **more}}


async def test_time_slices_last_as_long_as_the_claim(tmp_path: Path) -> None:
    async with gpu_world(tmp_path, "a2-highgpu-1g") as world:
        await world.published(1)
        config = opaque("GpuConfig", shared("TimeSlicing", timeSlicingConfig={"interval": "Long"}))
        ref = await world.allocated(claim("sliced", request(), config=[config]))
        assert (await world.prepare(ref)).error == ""
        assert state_of(tmp_path)["time_slice"] == 3
        assert await world.unprepare(ref) == ""
        assert state_of(tmp_path)["time_slice"] == 0


async def test_mps_gives_containers_a_daemon_and_limits(tmp_path: Path) -> None:
    async with gpu_world(tmp_path, "a2-highgpu-1g") as world:
        await world.published(1)
        mps = {"defaultActiveThreadPercentage": 50, "defaultPinnedDeviceMemoryLimit": "15Gi"}
        config = opaque("GpuConfig", shared("MPS", mpsConfig=mps))
        ref = await world.allocated(claim("mps", request(), config=[config]))
        entry = await world.prepare(ref)
        assert entry.error == ""
        assert state_of(tmp_path)["compute_mode"] == "EXCLUSIVE_PROCESS"
        (daemon,) = (tmp_path / "state" / "mps").iterdir()
        assert re.fullmatch(rf"{ref.uid}-[0-9a-f]{{5}}", daemon.name)
        box = world.container(entry)
        assert box.env["CUDA_MPS_PIPE_DIRECTORY"] == "/tmp/nvidia-mps"
        assert box.mounts["/tmp/nvidia-mps"] == str(daemon / "pipe")
        assert box.mounts["/dev/shm"] == str(daemon / "shm")
        assert box.run("gpu-memory", "14Gi").returncode == 0
        assert "MPS limit 15360 MiB per client" in box.run("gpu-memory", "37683Mi").stderr
        assert await world.unprepare(ref) == ""
        assert not list((tmp_path / "state" / "mps").iterdir())
        assert state_of(tmp_path)["compute_mode"] == "DEFAULT"


async def test_two_gpus_of_a_claim_are_shared_each_in_its_way(tmp_path: Path) -> None:
    async with gpu_world(tmp_path, "a100-40x2") as world:
        await world.published(2)
        configs = [
            opaque("GpuConfig", shared("TimeSlicing", timeSlicingConfig={"interval": "Long"}), "ts"),
            opaque("GpuConfig", shared("MPS", mpsConfig={"defaultPinnedDeviceMemoryLimit": "10Gi"}), "mps"),
        ]
        ref = await world.allocated(claim("both", request("ts"), request("mps"), config=configs))
        entry = await world.prepare(ref)
        assert entry.error == ""
        by_request = {device.requests[0]: device for device in entry.devices}
        assert "CUDA_MPS_PIPE_DIRECTORY" not in world.edits(by_request["ts"].cdi_ids)["env"]
        assert "CUDA_MPS_PIPE_DIRECTORY" in world.edits(by_request["mps"].cdi_ids)["env"]
        assert [state_of(tmp_path, index)["time_slice"] for index in (0, 1)] == [3, 0]
        assert [state_of(tmp_path, index)["compute_mode"] for index in (0, 1)] == ["DEFAULT", "EXCLUSIVE_PROCESS"]


@pytest.mark.parametrize(
    ("kind", "value", "requests", "text"),
    [
        ("GpuConfig", shared("TimeSlicing"), (), "unknown GPU sharing strategy: TimeSlicing"),
        ("GpuConfig", {"sharng": {}}, (), 'strict decoding error: unknown field "sharng"'),
        (
            "MigDeviceConfig",
            {},
            ("gpu",),
            "request 'gpu': MigDeviceConfig cannot be applied to device gpu-0 of type gpu, expected GpuConfig",
        ),
        ("ComputeDomainChannelConfig", {}, (), "kind 'ComputeDomainChannelConfig'"),
    ],
)
async def test_parameters_that_make_no_sense_fail_the_claim(
    tmp_path: Path, kind: str, value: dict[str, object], requests: tuple[str, ...], text: str
) -> None:
    gates = Gates(time_slicing_settings=False)
    async with gpu_world(tmp_path, "h100x2", gates) as world:
        await world.published(2)
        # A second request: parameters that name all requests there are count as parameters for all.
        ref = await world.allocated(claim("bad", request(), request("other"), config=[opaque(kind, value, *requests)]))
        entry = await world.prepare(ref)
        assert text in entry.error
        assert entry.error.startswith("ResourceClaim default/bad: ")
        assert await world.unprepare(ref) == ""


async def test_parameters_for_all_requests_apply_where_they_fit(tmp_path: Path) -> None:
    async with gpu_world(tmp_path, "h100x1") as world:
        await world.published(1)
        config = [opaque("MigDeviceConfig", shared("MPS")), opaque("VfioDeviceConfig", {})]
        ref = await world.allocated(claim("mixed", request(), config=config))
        assert (await world.prepare(ref)).error == ""


# --- MIG ---


async def test_static_mig_instances_outlive_their_claims(tmp_path: Path) -> None:
    layout = {0: ("1g.5gb", "1g.5gb", "2g.10gb", "3g.20gb")}
    async with gpu_world(tmp_path, "a100-40x2", layout=layout) as world:
        await world.published(5)
        names = ("1g.5gb", "1g.5gb", "2g.10gb", "3g.20gb")
        requests = [mig_request(f"mig-{index}", name) for index, name in enumerate(names)]
        ref = await world.allocated(claim("four", *requests))
        entry = await world.prepare(ref)
        listed = world.container(entry).run("nvidia-smi", "-L").stdout.splitlines()
        assert [line.split()[1] for line in listed[1:]] == ["1g.5gb", "1g.5gb", "2g.10gb", "3g.20gb"]
        assert await world.unprepare(ref) == ""
        assert len(world.plugin.driver.hardware.gpus()[0].mig_instances) == 4  # type: ignore[attr-defined]


async def test_mig_instances_survive_a_driver_that_dies_and_unknown_ones_do_not(tmp_path: Path) -> None:
    async with api_client(tmp_path / "api") as client:
        async with driver_world(client, tmp_path, simulated(tmp_path / "state", "h100x1"), DYNAMIC) as world:
            await world.published(26)
            ref = await world.allocated(claim("kept", mig_request("mig", "2g.20gb")))
            before = await world.prepare(ref)
        # Made by a driver that died before it could say so.
        stray = simulated(tmp_path / "state", "h100x1")
        stray.open()
        gpu = stray.gpus()[0]
        profile = next(each for each in gpu.mig_profiles if each.name == "3g.40gb")
        stray.create_instance(gpu.uuid, profile, Placement(4, 4))
        hardware = simulated(tmp_path / "state", "h100x1")
        async with driver_world(client, tmp_path, hardware, DYNAMIC) as world:
            assert [each.profile.name for each in hardware.gpus()[0].mig_instances] == ["2g.20gb"]
            assert (await world.prepare(ref)).devices == before.devices
            assert await world.unprepare(ref) == ""
            assert hardware.gpus()[0].mig_instances == ()
            assert not hardware.gpus()[0].mig_mode


# --- passing through ---


async def test_a_gpu_is_either_used_or_passed_through(tmp_path: Path) -> None:
    gates = Gates(passthrough_support=True)
    async with gpu_world(tmp_path, "h100x1", gates) as world:
        await world.published(2)
        config = opaque("VfioDeviceConfig", {"iommu": {"enableAPIDevice": True}})
        machine = await world.allocated(claim("vm", request("vm", "vfio.gpu.nvidia.com"), config=[config]))
        rival = await world.allocated(claim("rival", request()))
        entry = await world.prepare(machine)
        assert entry.error == ""
        assert {path for path in world.container(entry).mounts if path.startswith("/dev")} == {
            "/dev/vfio/10",
            "/dev/vfio/vfio",
        }
        slices = await world.published(1)
        assert [device.name for each in slices for device in each.spec.devices or ()] == ["gpu-vfio-0"]
        assert "device gpu-0" in (await world.prepare(rival)).error
        assert await world.unprepare(machine) == ""
        await world.published(2)
        assert (await world.prepare(rival)).error == ""
        slices = await world.published(1)
        assert [device.name for each in slices for device in each.spec.devices or ()] == ["gpu-0"]


async def test_the_newer_way_to_pass_through_is_taken_where_it_is_preferred(tmp_path: Path) -> None:
    gates = Gates(passthrough_support=True)
    async with gpu_world(tmp_path, "h100x1", gates) as world:
        await world.published(2)
        iommu = {"backendPolicy": "PreferIommuFD", "enableAPIDevice": True}
        config = opaque("VfioDeviceConfig", {"iommu": iommu})
        ref = await world.allocated(claim("vm", request("vm", "vfio.gpu.nvidia.com"), config=[config]))
        entry = await world.prepare(ref)
        assert {path for path in world.container(entry).mounts if path.startswith("/dev")} == {
            "/dev/vfio/devices/vfio0",
            "/dev/iommu",
        }


# --- faults ---


async def test_a_fault_taints_what_is_published_and_is_healed(tmp_path: Path) -> None:
    async with gpu_world(tmp_path, "h100x2") as world:
        await world.published(2)
        async with world.kubelet.health() as reports:
            await wait_for_health(reports, "gpu-1", 1)
            inject(tmp_path / "state", "1", [parse_fault("xid=79")])
            await wait_for_health(reports, "gpu-1", 2, "XID 79: GPU has fallen off the bus")
            async with eventually():
                while True:
                    taints = [
                        (device.name, taint.key, taint.value, taint.effect)
                        for each in await world.slices()
                        for device in each.spec.devices or ()
                        for taint in device.taints
                    ]
                    if taints == [("gpu-1", "gpu.nvidia.com/xid", "79", "NoSchedule")]:
                        break
                    await pause()
            assert isinstance(
                await world.allocate(decode(claim("two", request(count=2)), ResourceClaim).object), Unallocatable
            )
            inject(tmp_path / "state", "1", [])
            await wait_for_health(reports, "gpu-1", 1)


async def test_a_claim_on_a_lost_gpu_can_be_unprepared(tmp_path: Path) -> None:
    async with gpu_world(tmp_path, "h100x1", DYNAMIC) as world:
        await world.published(26)
        ref = await world.allocated(claim("one", mig_request("mig", "1g.10gb")))
        other = await world.allocated(claim("two", mig_request("mig", "1g.10gb")))
        assert (await world.prepare(ref)).error == ""
        inject(tmp_path / "state", "0", [parse_fault("lost")])
        hardware = world.plugin.driver.hardware  # type: ignore[attr-defined]
        async with eventually():
            while not hardware.gpus()[0].faults:
                await pause()
        assert "GPU is lost" in (await world.prepare(other)).error
        assert await world.unprepare(ref) == ""
        assert await world.unprepare(other) == ""


async def wait_for_health(reports: AsyncIterator[Any], name: str, health: int, message: str = "") -> None:
    async with eventually():
        async for report in reports:
            for device in report.devices:
                if (device.device.device_name, device.health, device.message) == (name, health, message):
                    return
    raise AssertionError(f"{name} never became {health}")


def state_of(tmp_path: Path, index: int = 0) -> dict[str, Any]:
    """What the simulated card is set to."""
    cards = json.loads((tmp_path / "state" / "state.json").read_text())
    state: dict[str, Any] = list(cards.values())[index]
    return {"time_slice": 0, "compute_mode": "DEFAULT", **state}
