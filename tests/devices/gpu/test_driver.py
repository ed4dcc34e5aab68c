"""The driver under an API server and a kubelet: published, prepared, seen in containers, unprepared."""

from __future__ import annotations

from pathlib import Path

import pytest

from allot.core.allocation.allocator import Unallocatable
from allot.core.model.codec import decode
from allot.core.model.resource_v1 import ResourceClaim
from devices.gpu.world import DYNAMIC, claim, gpu_world, mig_request, request

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
