"""AMD GPUs: what is read from the kernel's trees, what profiles have, and what programs in containers show."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from allot.core.lifecycle.slice_publishing import check_pools
from allot.core.model.resource_v1 import ResourceSlice
from allot.core.quantity import Quantity
from allot.devices.amd.command import make_driver
from allot.devices.amd.driver import CONTAINER_GPUS, AmdDriver
from allot.devices.amd.hardware import KernelGpus, SimulatedGpus
from allot.devices.amd.inventory import as_device
from allot.devices.catalogue import find_profile
from allot.devices.command import UsageError
from allot.devices.lost_devices import lost_file
from allot.devices.profiles.amd import amd_tables
from allot.devices.simulation import AmdSettings, Settings, SettingsError, SimulatedDrivers
from devices.published_values import values
from driver.cluster import cluster, make_claim, started


class Tree:
    """A made-up /sys."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._nodes = 0
        self.kfd(0, {"simd_count": 0})
        self._write("module/amdgpu/version", "6.12.12.31400000")

    def _write(self, path: str, text: str) -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{text}\n")

    def kfd(self, render: int, properties: Mapping[str, int], memory: int = 0) -> None:
        folder = f"class/kfd/kfd/topology/nodes/{self._nodes}"
        lines = {"drm_render_minor": render, **properties}
        self._write(f"{folder}/properties", "\n".join(f"{key} {value}" for key, value in lines.items()))
        if memory:
            self._write(f"{folder}/mem_banks/0/properties", f"heap_type 1\nsize_in_bytes {memory}")
        self._nodes += 1

    def card(self, bus: int, card: int, files: Mapping[str, str]) -> None:
        address = f"0000:{bus:02x}:00.0"
        folder = f"devices/pci0000:00/0000:00:01.1/{address}"
        common = {"vendor": "0x1002", "device": "0x74a1", "product_name": "AMD Instinct MI300X (OAM)", "numa_node": "0"}
        for name, text in {**common, **files}.items():
            self._write(f"{folder}/{name}", text)
        for name in (f"card{card}", f"renderD{128 + card}"):
            (self.root / folder / "drm" / name).mkdir(parents=True)
        link = self.root / "module/amdgpu/drivers/pci:amdgpu" / address
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(self.root / folder)

    def xcp(self, number: int, card: int) -> None:
        for name in (f"card{card}", f"renderD{128 + card}"):
            (self.root / f"devices/platform/amdgpu_xcp_{number}/drm" / name).mkdir(parents=True)


def test_whole_and_partitioned_cards_are_read_from_the_kernel(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    tree.card(0x05, 0, {"current_compute_partition": "SPX", "current_memory_partition": "NPS1"})
    tree.kfd(128, {"simd_count": 1216, "simd_per_cu": 4, "location_id": 0x500}, 196592 * 2**20)
    tree.card(0x27, 8, {"current_compute_partition": "DPX", "current_memory_partition": "NPS1"})
    tree.kfd(136, {"simd_count": 608, "simd_per_cu": 4, "location_id": 0x2700}, 98296 * 2**20)
    tree.kfd(137, {"simd_count": 608, "simd_per_cu": 4, "location_id": 0x2701}, 98296 * 2**20)
    tree.xcp(0, 9)
    # KFD does not know this one: it is of no card.
    tree.xcp(1, 10)
    whole, first, second = (as_device(gpu) for gpu in KernelGpus(tmp_path).read())
    assert [each.name for each in (whole, first, second)] == ["gpu-0-128", "gpu-8-136", "gpu-9-137"]
    assert values(whole) == {
        "type": "amdgpu",
        "productName": "AMD_Instinct_MI300X_OAM",
        "driverVersion": "6.12.12",
        "deviceID": "0x74a1",
        "partitionProfile": "spx_nps1",
        "numaNode": 0,
        "resource.kubernetes.io/pciBusID": "0000:05:00.0",
        "resource.kubernetes.io/pcieRoot": "pci0000:00",
        "memory": "196592Mi",
        "computeUnits": "304",
        "simdUnits": "1216",
    }
    assert values(second) == values(first)
    assert values(second)["type"] == "amdgpu-partition"
    assert values(second)["resource.kubernetes.io/pciBusID"] == "0000:27:00.0"
    assert KernelGpus(tmp_path).read()[2].device_files == ("/dev/kfd", "/dev/dri/card9", "/dev/dri/renderD137")


def test_a_card_without_partition_files_or_memory_is_a_whole_one(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    tree.card(0x05, 0, {})
    (device,) = (as_device(gpu) for gpu in KernelGpus(tmp_path).read())
    found = values(device)
    assert "partitionProfile" not in found
    assert (found["type"], found["memory"]) == ("amdgpu", "80Gi")
    assert KernelGpus(tmp_path / "nothing").read() == ()


@pytest.mark.parametrize(
    ("partitions", "count", "memory", "units"),
    [("", 8, "196592Mi", "304"), ("dpx_nps1", 16, "98296Mi", "152"), ("cpx_nps4", 64, "24574Mi", "38")],
)
def test_a_profile_is_cut_as_its_settings_say(partitions: str, count: int, memory: str, units: str) -> None:
    drivers = SimulatedDrivers(find_profile("mi300xx8"), Settings(amd=AmdSettings(partitions=partitions)))
    ((name, pool),) = drivers.pools("n")
    assert name == "gpu.amd.com"
    assert len(pool.devices) == count
    assert check_pools(name, (pool,)) == ()
    assert (values(pool.devices[-1])["memory"], values(pool.devices[-1])["computeUnits"]) == (memory, units)
    assert [each.spec.extended_resource_name for each in drivers.device_classes] == ["amd.com/gpu"]


@pytest.mark.parametrize(
    ("profile", "partitions", "count", "memory", "units"),
    [("mi300ax4", "tpx_nps1", 12, 43690, "76"), ("mi350xx8", "cpx_nps2", 64, 36862, "32")],
)
def test_other_models_are_cut_as_they_can_be(
    profile: str, partitions: str, count: int, memory: int, units: str
) -> None:
    drivers = SimulatedDrivers(find_profile(profile), Settings(amd=AmdSettings(partitions=partitions)))
    ((name, pool),) = drivers.pools("n")
    assert (len(pool.devices), check_pools(name, (pool,))) == (count, ())
    assert values(pool.devices[0])["computeUnits"] == units
    assert pool.devices[0].capacity["memory"].value == Quantity.parse(f"{memory}Mi")


def test_a_simulated_card_that_is_lost_is_not_published(tmp_path: Path) -> None:
    driver = AmdDriver(SimulatedGpus(amd_tables().find("mi250x2")), tmp_path)
    first, second = (device.name for device in driver.devices())
    lost_file(tmp_path).write_text(f"{first}\n")
    assert [device.name for device in driver.devices()] == [second]


def test_partitions_that_a_card_cannot_have_are_refused() -> None:
    for profile, partitions in (("mi300x", "cpx_nps2"), ("mi250x4", "cpx_nps1")):
        with pytest.raises(SettingsError) as caught:
            SimulatedDrivers(find_profile(profile), Settings(amd=AmdSettings(partitions=partitions)))
        assert caught.value.field == ("amd", "partitions")
    with pytest.raises(UsageError, match="only simulated cards"):
        make_driver(["--partitions", "cpx_nps4"])
    with pytest.raises(UsageError, match="mi300xx8"):
        make_driver(["--profile", "mi999"])


@pytest.mark.slow
async def test_programs_in_a_container_show_exactly_what_was_given(tmp_path: Path) -> None:
    driver = AmdDriver(SimulatedGpus(amd_tables().find("mi300xx8"), "dpx_nps1"), tmp_path / "s")
    async with cluster(tmp_path) as plane, started(driver, plane.client(), tmp_path) as (plugin, kubelet):
        await plugin.publisher.synced.wait()
        (slice_,) = (await plane.client().typed(ResourceSlice).list()).items
        names = [slice_.spec.devices[0].name, slice_.spec.devices[3].name] if slice_.spec.devices else []
        claim = await make_claim(plane.client(), driver.name, names)
        assert (await kubelet.prepare([claim]))[claim.uid].error == ""
    specs = [json.loads(path.read_text()) for path in (tmp_path / "cdi").glob("*.json")]
    mounts = [mount for spec in specs for each in spec["devices"] for mount in each["containerEdits"].get("mounts", ())]
    root = tmp_path / "container"
    for mount in mounts:
        target = root / mount["containerPath"].lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.symlink_to(mount["hostPath"])

    def says(program: str, *arguments: str) -> str:
        command = (str(tmp_path / "s" / "bin" / program), *arguments)
        environment = {**os.environ, "AMD_SIMULATED_GPUS": str(root / CONTAINER_GPUS.lstrip("/"))}
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout

    listed = says("amd-smi", "list").splitlines()
    assert [line for line in listed if "GPU:" in line or "PARTITION_ID" in line] == [
        "GPU: 0",
        "    PARTITION_ID: 0",
        "GPU: 1",
        "    PARTITION_ID: 1",
    ]
    assert says("amd-smi").count("DPX/NPS1") == 2 and "283/98296 MB" in says("amd-smi")
    assert says("amd-smi", "partition").splitlines()[-1].split() == ["1", "NPS1", "DPX", "N/A", "1"]
    assert says("rocm-smi", "--showbus").count("PCI Bus: 0000:") == 2
    assert says("rocm-smi").count("NPS1, DPX, ") == 2
