"""Intel GPUs: what is read from the kernel's trees, what profiles have, and what the program in containers shows."""

from __future__ import annotations

import json
import os
import struct
import subprocess
from pathlib import Path

import pytest

from allot.core.lifecycle.slice_publishing import Pool, check_pools
from allot.core.model.resource_v1 import ResourceSlice
from allot.devices.catalogue import find_profile
from allot.devices.command import UsageError
from allot.devices.intel.command import make_driver
from allot.devices.intel.driver import CONTAINER_GPUS, IntelDriver
from allot.devices.intel.hardware import KernelGpus, SimulatedGpus
from allot.devices.intel.inventory import as_device
from allot.devices.intel.memory import device_memory_mib, memory_mib
from allot.devices.lost_devices import ill_file, lost_file
from allot.devices.profiles.intel import intel_tables
from allot.devices.simulation import IntelSettings, Settings, SettingsError, SimulatedDrivers
from devices.published_values import values
from driver.cluster import cluster, make_claim, started


class Tree:
    """A made-up /sys."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def gpu(
        self, address: str, device: str, driver: str, card: int = -1, *, vendor: str = "0x8086", **files: str
    ) -> Path:
        folder = self.root / "devices" / "pci0000:00" / "0000:00:01.0" / address
        folder.mkdir(parents=True)
        for name, text in {"vendor": vendor, "device": device, "class": "0x030000", **files}.items():
            (folder / name).write_text(f"{text}\n")
        if driver:
            kernel = self.root / "bus" / "pci" / "drivers" / driver
            kernel.mkdir(parents=True, exist_ok=True)
            (folder / "driver").symlink_to(kernel)
        for name in (f"card{card}", f"renderD{128 + card}") if card >= 0 else ():
            (folder / "drm" / name).mkdir(parents=True)
        link = self.root / "bus" / "pci" / "devices" / address
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(folder)
        return folder


def test_cards_are_read_from_the_kernel_with_intels_names(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    tree.gpu("0000:04:00.0", "0xe211", "xe", 0, sriov_totalvfs="24", sriov_drivers_autoprobe="1")
    tree.gpu("0000:05:00.0", "0xe211", "xe", 1, vendor="0x10de")
    tree.gpu("0000:06:00.0", "0x1234", "e1000", **{"class": "0x020000"})
    # Its driver has not made the files of DRM yet.
    tree.gpu("0000:07:00.0", "0x56c0", "i915")
    asked: list[str] = []

    def ask(path: Path, driver: str) -> int:
        asked.append(f"{path} {driver}")
        return 24480

    gpus = KernelGpus(tmp_path, Path("/dev"), ask)
    (gpu,) = gpus.read()
    assert gpus.read() == (gpu,)
    assert asked == ["/dev/dri/card0 xe"]
    found = as_device(gpu)
    assert found.name == "0000-04-00-0-0xe211"
    assert values(found) == {
        "model": "B60",
        "family": "Arc Pro B-Series",
        "driver": "xe",
        "type": "gpu",
        "sriov": True,
        "pciId": "0xe211",
        "health": "Unknown",
        "pciAddress": "0000:04:00.0",
        "pciRoot": "00",
        "resource.kubernetes.io/pciBusID": "0000:04:00.0",
        "resource.kubernetes.io/pcieRoot": "pci0000:00",
        "memory": "24480Mi",
        "millicores": "1k",
    }
    assert gpu.device_files == ("/dev/dri/card0", "/dev/dri/renderD128")
    assert KernelGpus(tmp_path / "nothing").read() == ()


def test_virtual_functions_and_cards_for_virtual_machines_are_told_apart(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    card = tree.gpu("0000:04:00.0", "0x56c0", "i915", 0, sriov_totalvfs="31", sriov_drivers_autoprobe="0")
    function = tree.gpu("0000:04:00.1", "0x56c0", "i915", 1)
    (function / "physfn").symlink_to(card)
    (card / "i915.mei-gsc.1024" / "mei" / "mei0").mkdir(parents=True)
    passed_through = tree.gpu("0000:05:00.0", "0x0bda", "vfio-pci")
    (passed_through / "iommu_group").symlink_to(tmp_path / "kernel" / "iommu_groups" / "17")
    tree.gpu("0000:06:00.0", "0x9999", "")
    gpus = KernelGpus(tmp_path, tmp_path / "dev").read()
    assert [values(as_device(gpu))["type"] for gpu in gpus] == ["gpu", "vf", "gpu", "gpu"]
    assert [values(as_device(gpu))["sriov"] for gpu in gpus] == [False] * 4
    assert [values(as_device(gpu))["memory"] for gpu in gpus] == ["0"] * 4
    assert gpus[0].management_files == ("/dev/mei0",)
    assert gpus[2].device_files == ("/dev/vfio/vfio", "/dev/vfio/17")
    unbound = as_device(gpus[3])
    assert (values(unbound)["model"], values(unbound)["driver"]) == ("Unknown", "")
    assert [(taint.key, taint.effect) for taint in unbound.taints] == [("UnboundUnmanaged", "NoSchedule")]
    pool = Pool(name="n", node_name="n", devices=tuple(as_device(gpu) for gpu in gpus))
    assert check_pools("gpu.intel.com", (pool,)) == ()


@pytest.mark.parametrize("head", ["=I4x", "=I12x"])
def test_memory_of_the_device_is_what_counts(head: str) -> None:
    region = struct.Struct("=HHIQ72x")
    regions = region.pack(0, 0, 4096, 2**40) + region.pack(1, 0, 65536, 16 * 2**30) + region.pack(1, 1, 65536, 2**30)
    answer = struct.pack(head, 3) + regions
    assert device_memory_mib(answer, struct.Struct(head)) == 17 * 1024
    # An answer that is cut off, or promises more than it has.
    assert device_memory_mib(answer[:-1], struct.Struct(head)) == 16 * 1024
    assert device_memory_mib(b"", struct.Struct(head)) == 0
    assert device_memory_mib(struct.pack(head, 2**31), struct.Struct(head)) == 0


@pytest.mark.parametrize("driver", ["i915", "xe"])
def test_who_may_not_ask_or_asks_no_card_gets_no_memory(tmp_path: Path, driver: str) -> None:
    assert memory_mib(tmp_path / "card0", driver) == 0
    assert memory_mib(Path("/dev/null"), driver) == 0


@pytest.mark.parametrize(
    ("profile", "functions", "count", "memory", "last"),
    [
        ("max1550x6", 0, 6, "128Gi", "0000-c5-00-0-0x0bd5"),
        ("aurora", 0, 6, "128Gi", "0000-c5-00-0-0x0bd5"),
        ("flex170", 31, 32, "528Mi", "0000-00-03-7-0x56c0"),
    ],
)
def test_a_profile_has_cards_and_functions(profile: str, functions: int, count: int, memory: str, last: str) -> None:
    drivers = SimulatedDrivers(find_profile(profile), Settings(intel=IntelSettings(functions=functions)))
    ((name, pool),) = drivers.pools("n")
    assert (name, len(pool.devices)) == ("gpu.intel.com", count)
    assert check_pools(name, (pool,)) == ()
    assert (values(pool.devices[-1])["memory"], pool.devices[-1].name) == (memory, last)
    assert len({device.name for device in pool.devices}) == count
    assert [each.metadata.name for each in drivers.device_classes] == ["gpu.intel.com", "gpu-vfio.intel.com"]


def test_what_a_card_cannot_have_is_refused() -> None:
    for functions in (-1, 1):
        with pytest.raises(SettingsError, match="can have 0") as caught:
            SimulatedDrivers(find_profile("b580"), Settings(intel=IntelSettings(functions=functions)))
        assert caught.value.field == ("intel", "functions")
    with pytest.raises(UsageError, match="only for simulated cards"):
        make_driver(["--functions", "2"])
    with pytest.raises(UsageError, match="max1550x8"):
        make_driver(["--profile", "max9999"])


def test_cards_that_are_lost_or_ill_are_told(tmp_path: Path) -> None:
    driver = IntelDriver(SimulatedGpus(intel_tables().find("b60x2")), tmp_path)
    first, second = (device.name for device in driver.devices())
    ill_file(tmp_path).write_text(f"{second} Temperature Memory\n\n")
    assert [values(device)["health"] for device in driver.devices()] == ["Healthy", "Unhealthy"]
    (_, ill) = driver.devices()
    assert [(taint.key, taint.effect) for taint in ill.taints] == [("HealthIssues-Temperature_Memory", "NoExecute")]
    assert [each.message for each in driver.health()] == ["", "Temperature, Memory"]
    lost_file(tmp_path).write_text(first)
    assert [device.name for device in driver.devices()] == [second]


@pytest.mark.slow
async def test_the_program_in_a_container_shows_exactly_what_was_given(tmp_path: Path) -> None:
    driver = IntelDriver(SimulatedGpus(intel_tables().find("flex170x2"), 2), tmp_path / "s")
    async with cluster(tmp_path) as plane, started(driver, plane.client(), tmp_path) as (plugin, kubelet):
        await plugin.publisher.synced.wait()
        (slice_,) = (await plane.client().typed(ResourceSlice).list()).items
        names = [each.name for each in slice_.spec.devices or ()]
        claim = await make_claim(plane.client(), driver.name, [names[1], names[3]])
        assert (await kubelet.prepare([claim]))[claim.uid].error == ""
    specs = [json.loads(path.read_text()) for path in (tmp_path / "cdi").glob("*.json")]
    mounts = [mount for spec in specs for each in spec["devices"] for mount in each["containerEdits"].get("mounts", ())]
    root = tmp_path / "container"
    for mount in mounts:
        target = root / mount["containerPath"].lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.symlink_to(mount["hostPath"])

    def says(*arguments: str, code: int = 0) -> str:
        command = (str(tmp_path / "s" / "bin" / "xpu-smi"), *arguments)
        environment = {**os.environ, "INTEL_SIMULATED_GPUS": str(root / CONTAINER_GPUS.lstrip("/"))}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == code, done.stderr
        return done.stdout or done.stderr

    (function, card) = json.loads(says("discovery", "-j"))["device_list"]
    assert [each["device_id"] for each in (function, card)] == [0, 1]
    assert [each["device_function_type"] for each in (function, card)] == ["virtual", "physical"]
    assert card["pci_bdf_address"].replace(":", "-").replace(".", "-") in names[3]
    assert function["memory_physical_size_byte"] == str(8192 * 2**20)
    table = says("discovery").splitlines()
    assert {len(line) for line in table} == {len(table[0])}
    assert [line.split("|")[2].strip() for line in table if "UUID" in line] == [
        f"UUID: {each['uuid']}" for each in (function, card)
    ]
    assert "Memory Physical Size: 16384.00 MiB" in says("discovery", "-d", "1")
    assert len(says("discovery", "--dump", "1,2").splitlines()) == 3
    assert says("--list-gpus").splitlines()[0].startswith("GPU 0: Intel(R) Data Center GPU Flex 170")
    assert "device not found" in says("discovery", "-d", "2", code=1)
    assert "stand-in knows" in says("dance", code=2)


async def test_a_class_that_needs_another_kernel_driver_is_refused(tmp_path: Path) -> None:
    driver = IntelDriver(SimulatedGpus(intel_tables().find("b580")), tmp_path / "s")
    async with cluster(tmp_path) as plane, started(driver, plane.client(), tmp_path) as (_, kubelet):
        name = "0000-00-04-0-0xe20b"
        claim = await make_claim(plane.client(), driver.name, [name], device_class="gpu-vfio.intel.com")
        error = (await kubelet.prepare([claim]))[claim.uid].error
    assert "is bound to kernel driver xe, class gpu-vfio.intel.com needs vfio-pci or xe-vfio-pci" in error
