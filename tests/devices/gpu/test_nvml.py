"""Real cards, without any: a small NVML that is compiled here, and programs that note what they are asked."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from allot.core.lifecycle.slice_publishing import check_pools
from allot.devices.gpu import nvml
from allot.devices.gpu.driver_files import driver_edits, find_library
from allot.devices.gpu.hardware import ComputeMode, Fault, FaultKind, HardwareError, MpsSettings
from allot.devices.gpu.inventory import DRIVER_NAME, offers, pool
from allot.devices.gpu.nvml_hardware import NvmlHardware, numa_node, pcie_root
from allot.devices.profiles.mig import Placement, mig_tables
from allot.driver import Edits
from devices.gpu.world import DYNAMIC, NODE, api_client, claim, driver_world, mig_request, opaque, request

pytestmark = pytest.mark.slow
FIRST, SECOND, SMALL = (f"GPU-00000000-0000-0000-0000-{index:012d}" for index in range(3))
_SOURCE = Path(__file__).parent / "nvml_standin.c"
# Programs that note what they are asked, and a daemon that is there until it is told to quit.
_SMI = '#!/bin/sh\necho "$@" >> "$(dirname "$0")/asked"\n'
_MPS = """#!/bin/sh
if [ "$1" = -f ]; then
    echo "devices $CUDA_VISIBLE_DEVICES" >> "$(dirname "$0")/told"
    touch "$CUDA_MPS_PIPE_DIRECTORY/control"
    while [ -e "$CUDA_MPS_PIPE_DIRECTORY/control" ]; do sleep 0.05; done
    exit 0
fi
[ -e "$CUDA_MPS_PIPE_DIRECTORY/control" ] || { echo "Cannot find MPS control daemon process" >&2; exit 1; }
read -r command
echo "$command" >> "$(dirname "$0")/told"
case $command in quit*) rm "$CUDA_MPS_PIPE_DIRECTORY/control" ;; esac
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The stand-in, compiled."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("no C compiler (cc) to make the stand-in for NVML with")
    target = tmp_path_factory.mktemp("nvml") / "libnvidia-ml.so.1"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o", target, _SOURCE], check=True)
    return str(target)


@pytest.fixture
def standin(library: str) -> Any:
    """The part of the stand-in that is for tests."""
    loaded = ctypes.CDLL(library)
    loaded.standin_reset()
    return loaded


def program(path: Path, text: str) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return str(path)


def made(library: str, tmp_path: Path) -> NvmlHardware:
    sysfs = tmp_path / "sys"
    for index in range(3):
        address = f"0000:{0x8F + index:02x}:00.0"
        real = sysfs / "devices" / "pci0000:8c" / address
        real.mkdir(parents=True)
        (real / "numa_node").write_text("1\n")
        link = sysfs / "bus/pci/devices" / address
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(os.path.relpath(real, link.parent))
    return NvmlHardware(
        library,
        tmp_path / "state",
        tmp_path / "root",
        sysfs=sysfs,
        smi=program(tmp_path / "bin" / "nvidia-smi", _SMI),
        mps=program(tmp_path / "bin" / "nvidia-cuda-mps-control", _MPS),
    )


@pytest.fixture
def hardware(library: str, standin: Any, tmp_path: Path) -> Iterator[NvmlHardware]:  # noqa: ARG001
    opened = made(library, tmp_path)
    opened.open()
    yield opened
    opened.close()


def test_cards_are_what_nvml_says(hardware: NvmlHardware) -> None:
    first, _, small = hardware.gpus()
    assert (first.uuid, first.minor, first.product_name) == (FIRST, 0, "NVIDIA H100 80GB HBM3")
    assert (first.brand, first.architecture, first.cuda_compute_capability) == ("Nvidia", "Hopper", "9.0")
    assert (first.driver_version, first.cuda_driver_version, first.memory_mib) == ("580.95.05", "13.0", 81559)
    assert (first.pci_address, first.pcie_root, first.numa_node) == ("0000:8f:00.0", "pci0000:8c", 1)
    assert (first.addressing_mode, first.pci_device_id, first.mig_mode) == ("HMM", "0x2330", False)
    assert (small.product_name, small.mig_mode, small.mig_profiles, small.addressing_mode) == (
        "NVIDIA L4",
        None,
        (),
        "",
    )
    assert not first.mig_mode_needs_reset


def test_mig_profiles_of_nvml_are_those_of_the_tables(hardware: NvmlHardware) -> None:
    found = {profile.id: profile for profile in hardware.gpus()[0].mig_profiles}
    assert found == {profile.id: profile for profile in mig_tables()["h100-80gb"]}


def test_slices_of_real_cards_are_accepted_and_one_without_mig_is_whole(hardware: NvmlHardware) -> None:
    gpus = hardware.gpus()
    published = pool(NODE, offers(gpus, DYNAMIC), gpus)
    assert check_pools(DRIVER_NAME, [published]) == ()
    assert len(published.devices) == 26 + 26 + 1
    # One card's events cannot be had; that is said, and does no harm.
    assert [(taint.key, taint.effect) for taint in published.devices[-1].taints] == [
        ("gpu.nvidia.com/unmonitored", "None")
    ]


def test_instances_are_made_and_destroyed(hardware: NvmlHardware) -> None:
    profile = next(each for each in hardware.gpus()[0].mig_profiles if each.name == "3g.40gb")
    with pytest.raises(HardwareError, match=r"create MIG instance 3g.40gb on GPU-\S+: \w+: Not Supported"):
        hardware.create_instance(FIRST, profile, Placement(4, 4))
    hardware.set_mig_mode(FIRST, True)
    instance = hardware.create_instance(FIRST, profile, Placement(4, 4))
    assert instance.uuid == "MIG-00000000-0000-0000-0000-000900000004"
    assert hardware.create_instance(FIRST, profile, Placement(4, 4)) == instance
    assert hardware.gpus()[0].mig_instances == (instance,)
    small = next(each for each in hardware.gpus()[0].mig_profiles if each.name == "1g.10gb")
    with pytest.raises(HardwareError, match="Insufficient Resources"):
        hardware.create_instance(FIRST, small, Placement(5, 1))
    with pytest.raises(HardwareError, match="activation: In use by another client"):
        hardware.set_mig_mode(FIRST, False)
    hardware.destroy_instance(FIRST, instance)
    hardware.destroy_instance(FIRST, instance)
    hardware.set_mig_mode(FIRST, False)
    assert hardware.gpus()[0].mig_mode is False


def test_errors_of_a_card_are_noticed(hardware: NvmlHardware, standin: Any) -> None:
    assert not hardware.wait_for_change(0.01)
    standin.standin_xid(1, 63)
    assert hardware.wait_for_change(1.0)
    assert hardware.gpus()[1].faults == (Fault(kind=FaultKind.XID, xid=63),)
    assert hardware.gpus()[0].faults == ()
    hardware.gpus()
    standin.standin_lose(0)
    assert hardware.gpus()[0].faults == (Fault(kind=FaultKind.LOST),)
    assert hardware.gpus()[0].product_name == "NVIDIA H100 80GB HBM3"


def test_sharing_is_set_by_nvml_and_nvidia_smi(hardware: NvmlHardware, standin: Any, tmp_path: Path) -> None:
    hardware.set_compute_mode(FIRST, ComputeMode.EXCLUSIVE_PROCESS)
    assert standin.standin_compute_mode(0) == 3
    hardware.set_time_slice(FIRST, 2)
    assert (tmp_path / "bin" / "asked").read_text() == f"compute-policy -i {FIRST} --set-timeslice 2\n"
    program(tmp_path / "bin" / "nvidia-smi", "#!/bin/sh\necho no such policy >&2\nexit 3\n")
    with pytest.raises(HardwareError, match="--set-timeslice 1: no such policy"):
        hardware.set_time_slice(FIRST, 1)


def test_the_mps_daemon_is_started_told_and_stopped(hardware: NvmlHardware, tmp_path: Path) -> None:
    settings = MpsSettings(
        id="claim-12345",
        uuids=(FIRST, SECOND),
        active_thread_percentage=50,
        pinned_memory_limits_mib={FIRST: 10240},
    )
    folders = hardware.start_mps(settings)
    assert folders.pipe.is_dir()
    told = (tmp_path / "bin" / "told").read_text().splitlines()
    assert told[0] == f"devices {FIRST},{SECOND}"
    assert told[-2:] == [
        "set_default_active_thread_percentage 50",
        f"set_default_device_pinned_mem_limit {FIRST} 10240M",
    ]
    # One that runs is kept.
    hardware.start_mps(settings)
    assert (tmp_path / "bin" / "told").read_text().count("devices ") == 1
    hardware.stop_mps("claim-12345")
    assert not folders.pipe.parent.exists()
    assert "quit" in (tmp_path / "bin" / "told").read_text()
    hardware.stop_mps("claim-12345")


def test_containers_get_the_drivers_files(hardware: NvmlHardware, tmp_path: Path) -> None:
    root = tmp_path / "root"
    for name in (
        "usr/lib64/libcuda.so.580.95.05",
        "usr/lib64/libnvidia-ml.so.580.95.05",
        "usr/lib64/libfoo.so.580.95.05",
    ):
        program(root / name, "")
    program(root / "usr/bin/nvidia-smi", "")
    program(root / "usr/bin/nvidia-cdi-hook", "")
    program(root / "dev/nvidiactl", "")
    edits = hardware.common_edits()
    assert [mount.container_path for mount in edits.mounts] == [
        "/usr/lib64/libcuda.so.580.95.05",
        "/usr/lib64/libnvidia-ml.so.580.95.05",
        "/usr/bin/nvidia-smi",
    ]
    assert [node.path for node in edits.device_nodes] == ["/dev/nvidiactl"]
    assert edits.hooks[0].args == ("nvidia-cdi-hook", "update-ldcache", "--folder", "/usr/lib64")
    gpu = hardware.gpus()[1]
    assert [node.path for node in hardware.gpu_edits(gpu, "gpu-1").device_nodes] == ["/dev/nvidia1"]
    assert driver_edits(tmp_path / "nowhere", "1.2") == Edits(env={"NVIDIA_VISIBLE_DEVICES": "void"})


async def test_the_driver_works_on_it(library: str, standin: Any, tmp_path: Path) -> None:
    capabilities = tmp_path / "root/proc/driver/nvidia/capabilities/gpu0/mig/gi1"
    (capabilities / "ci0").mkdir(parents=True)
    (capabilities / "access").write_text("DeviceFileMinor: 12\nDeviceFileMode: 256\n")
    (capabilities / "ci0" / "access").write_text("DeviceFileMinor: 13\nDeviceFileMode: 256\n")
    hardware = made(library, tmp_path)
    async with (
        api_client(tmp_path / "api") as client,
        driver_world(client, tmp_path, hardware, DYNAMIC) as world,
    ):
        await world.published(53)
        part = await world.allocated(claim("part", mig_request("mig", "2g.20gb")))
        entry = await world.prepare(part)
        assert entry.error == ""
        assert world.container(entry).nodes == [
            "/dev/nvidia0", "/dev/nvidia-caps/nvidia-cap12", "/dev/nvidia-caps/nvidia-cap13"
        ]  # fmt: skip
        mps = {"sharing": {"strategy": "MPS", "mpsConfig": {"defaultPinnedDeviceMemoryLimit": "10Gi"}}}
        whole = await world.allocated(claim("whole", request(), config=[opaque("GpuConfig", mps)]))
        entry = await world.prepare(whole)
        assert entry.error == ""
        assert [device.device for device in entry.devices] == ["gpu-1"]
        assert standin.standin_compute_mode(1) == 3
        assert await world.unprepare(part) == ""
        assert await world.unprepare(whole) == ""
        assert standin.standin_compute_mode(1) == 0
        assert hardware.gpus()[0].mig_instances == ()
        assert hardware.gpus()[0].mig_mode is False
        assert not list((tmp_path / "state" / "mps").iterdir())


def test_without_nvml_the_reason_is_clear(tmp_path: Path) -> None:
    with pytest.raises(HardwareError, match=r"NVML libnothing\.so: .*; is the NVIDIA driver installed\?"):
        NvmlHardware("libnothing.so", tmp_path).open()


def test_a_machine_that_does_not_say_where_a_card_is(tmp_path: Path) -> None:
    assert (pcie_root(tmp_path, "0000:01:00.0"), numa_node(tmp_path, "0000:01:00.0")) == ("", -1)


@pytest.mark.skipif(importlib.util.find_spec("pynvml") is None, reason="nvidia-ml-py is not installed to compare with")
def test_structures_are_as_long_as_those_of_nvidias_own_binding() -> None:
    import pynvml

    for ours, theirs in (
        (nvml.PciInfo, pynvml.nvmlPciInfo_t),
        (nvml.Memory, pynvml.c_nvmlMemory_t),
        (nvml.EventData, pynvml.c_nvmlEventData_t),
        (nvml.InstancePlacement, pynvml.c_nvmlGpuInstancePlacement_t),
        (nvml.InstanceProfileInfo, pynvml.c_nvmlGpuInstanceProfileInfo_v2_t),
        (nvml.InstanceInfo, pynvml.c_nvmlGpuInstanceInfo_t),
        (nvml.ComputeProfileInfo, pynvml.c_nvmlComputeInstanceProfileInfo_t),
        (nvml.ComputeInstanceInfo, pynvml.c_nvmlComputeInstanceInfo_t),
        (nvml.AddressingMode, pynvml.c_nvmlDeviceAddressingMode_t),
    ):
        assert ctypes.sizeof(ours) == ctypes.sizeof(theirs)
        offsets = [getattr(ours, name).offset for name, *_ in ours._fields_]
        assert offsets == [getattr(theirs, name).offset for name, *_ in theirs._fields_]


def test_a_driver_in_a_container_tells_paths_of_the_node(tmp_path: Path) -> None:
    root = tmp_path / "root"
    for name in ("usr/lib64/libcuda.so.580.95.05", "usr/lib64/libnvidia-ml.so.580.95.05", "usr/bin/nvidia-cdi-hook"):
        program(root / name, "")
    edits = driver_edits(root, "580.95.05", Path("/run/nvidia/driver"))
    assert [(mount.host_path, mount.container_path) for mount in edits.mounts] == [
        (f"/run/nvidia/driver/usr/lib64/{name}", f"/usr/lib64/{name}")
        for name in ("libcuda.so.580.95.05", "libnvidia-ml.so.580.95.05")
    ]
    assert [hook.path for hook in edits.hooks] == ["/run/nvidia/driver/usr/bin/nvidia-cdi-hook"]
    # A link of the distribution that is absolute leads nowhere from here.
    (root / "usr/lib64/libnvidia-ml.so.1").symlink_to("/etc/alternatives/nothing-of-this-machine")
    assert find_library(root, "libnvidia-ml.so.1") == str(root / "usr/lib64/libnvidia-ml.so.580.95.05")
    assert find_library(Path("/"), "libnvidia-ml.so.1") == "libnvidia-ml.so.1"
