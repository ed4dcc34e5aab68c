"""nvidia-smi and gpu-memory in a container, word for word."""

from __future__ import annotations

import os
import re
import shutil
import signal
from pathlib import Path

import pytest

from allot.devices.gpu.hardware import ComputeMode, Gpu, MpsSettings
from allot.devices.gpu.programs import CONTAINER_CARDS
from allot.devices.gpu.simulated import SimulatedHardware, inject, parse_fault
from allot.devices.profiles.mig import Placement
from allot.driver import Edits
from devices.gpu.world import Container, simulated
from waiting import wait_for

GOLDENS = Path(__file__).parent / "goldens"
pytestmark = pytest.mark.slow


def container(root: Path, hardware: SimulatedHardware, *edits: Edits, env: dict[str, str] | None = None) -> Container:
    given = [hardware.common_edits(), *edits]
    return Container(
        root,
        {
            "env": {**given[0].env, **(env or {})},
            "mounts": [
                {"hostPath": mount.host_path, "containerPath": mount.container_path}
                for each in given
                for mount in each.mounts
            ],
            "nodes": [],
        },
    )


def opened(tmp_path: Path, machine: str, layout: dict[int, tuple[str, ...]] | None = None) -> SimulatedHardware:
    hardware = simulated(tmp_path / "state", machine, layout)
    hardware.open()
    return hardware


def edits(hardware: SimulatedHardware, *minors: int) -> list[Edits]:
    return [hardware.gpu_edits(hardware.gpus()[minor], f"gpu-{minor}") for minor in minors]


def check_golden(name: str, text: str) -> None:
    """Equal to the file but for the date."""
    text = re.sub(r"\A\w{3} \w{3} [ \d]\d \d\d:\d\d:\d\d \d{4} +\n", "<date>\n", text)
    assert text == (GOLDENS / name).read_text(), name


def test_list_shows_exactly_what_was_given(tmp_path: Path) -> None:
    hardware = opened(tmp_path, "h100x8")
    one = container(tmp_path / "one", hardware, *edits(hardware, 3))
    check_golden("list-one.txt", one.run("nvidia-smi", "-L").stdout)
    two = container(tmp_path / "two", hardware, *edits(hardware, 7, 2))
    check_golden("list-two.txt", two.run("nvidia-smi", "--list-gpus").stdout)


def test_list_shows_mig_instances_below_their_gpu(tmp_path: Path) -> None:
    hardware = opened(tmp_path, "h100x2", {1: ("3g.40gb", "2g.20gb", "1g.10gb+me")})
    gpu = hardware.gpus()[1]
    given = [hardware.instance_edits(gpu, each, f"mig-{each.placement.start}") for each in gpu.mig_instances]
    box = container(tmp_path / "c", hardware, *edits(hardware, 0), *given)
    check_golden("list-mig.txt", box.run("nvidia-smi", "-L").stdout)
    check_golden("table-mig.txt", box.run("nvidia-smi").stdout)


def test_the_table(tmp_path: Path) -> None:
    hardware = opened(tmp_path, "h100x8")
    hardware.set_compute_mode(hardware.gpus()[1].uuid, ComputeMode.EXCLUSIVE_PROCESS)
    box = container(tmp_path / "c", hardware, *edits(hardware, 0, 1))
    check_golden("table.txt", box.run("nvidia-smi").stdout)
    lines = box.run("nvidia-smi").stdout.splitlines()
    assert {len(line) for line in lines[1:] if line} == {91}


def test_query(tmp_path: Path) -> None:
    hardware = opened(tmp_path, "a100-40x2")
    box = container(tmp_path / "c", hardware, *edits(hardware, 0, 1))
    fields = (
        "index,name,uuid,pci.bus_id,driver_version,memory.total,memory.used,memory.free,utilization.gpu,"
        "temperature.gpu,power.draw,power.limit,compute_mode,compute_cap,mig.mode.current,count,pstate,"
        "ecc.errors.uncorrected.volatile.total"
    )
    check_golden("query.txt", box.run("nvidia-smi", f"--query-gpu={fields}", "--format=csv").stdout)
    plain = box.run("nvidia-smi", "--query-gpu", "index,memory.total", "--format", "csv,noheader,nounits")
    assert plain.stdout == "0, 40960\n1, 40960\n"
    chosen = box.run("nvidia-smi", "-i", "1", "--query-gpu=index,memory.total", "--format=csv,noheader")
    assert chosen.stdout == "1, 40960 MiB\n"


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (("--query-gpu=colour", "--format=csv"), 2, 'Field "colour" is not a valid field to query.\n'),
        (("--query-gpu=name",), 2, "\"--format=\" switch is missing. Please run 'nvidia-smi -h' for help.\n"),
        (("--reboot",), 2, "Invalid combination of input arguments. Please run 'nvidia-smi -h' for help.\n"),
        (("-i", "4", "-L"), 6, "No devices were found with the given id: 4\n"),
    ],
)
def test_wrong_questions_are_refused(tmp_path: Path, arguments: tuple[str, ...], code: int, text: str) -> None:
    hardware = opened(tmp_path, "h100x1")
    answer = container(tmp_path / "c", hardware, *edits(hardware, 0)).run("nvidia-smi", *arguments)
    assert (answer.returncode, answer.stdout) == (code, text)


@pytest.mark.parametrize("arguments", [(), ("-L",), ("--query-gpu=name", "--format=csv")])
def test_without_devices_it_says_so(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    answer = container(tmp_path / "c", opened(tmp_path, "h100x1")).run("nvidia-smi", *arguments)
    assert (answer.returncode, answer.stdout) == (6, "No devices were found\n")


def test_a_lost_gpu_is_lost_in_running_containers(tmp_path: Path) -> None:
    hardware = opened(tmp_path, "h100x1")
    box = container(tmp_path / "c", hardware, *edits(hardware, 0))
    inject(tmp_path / "state", "0", [parse_fault("ecc")])
    assert hardware.wait_for_change(5.0)
    query = ("--query-gpu=ecc.errors.uncorrected.volatile.total", "--format=csv,noheader")
    assert box.run("nvidia-smi", *query).stdout == "1\n"
    inject(tmp_path / "state", "0", [parse_fault("lost")])
    assert hardware.wait_for_change(5.0)
    answer = box.run("nvidia-smi", "-L")
    assert answer.returncode == 15
    assert answer.stdout == (
        "Unable to determine the device handle for GPU0: 00000000:00:04.0: GPU is lost.  "
        "Reboot the system to recover this GPU\n"
    )
    failed = box.run("gpu-memory", "1Gi")
    assert (failed.returncode, failed.stderr) == (
        1,
        f"CUDA error: device 0 ({hardware.gpus()[0].uuid}) is lost\n",
    )


# --- memory ---


def test_memory_is_counted_across_containers(tmp_path: Path) -> None:
    hardware = opened(tmp_path, "a100-40x1")
    uuid = hardware.gpus()[0].uuid
    first = container(tmp_path / "1", hardware, *edits(hardware, 0))
    second = container(tmp_path / "2", hardware, *edits(hardware, 0))
    query = ("--query-gpu=memory.used,memory.free", "--format=csv,noheader,nounits")
    holder = first.start("gpu-memory", "30Gi", "--hold", "60")
    try:
        assert second.run("nvidia-smi", *query).stdout == "30720, 10240\n"
        assert "gpu-memory" in second.run("nvidia-smi").stdout
        assert "30720MiB" in second.run("nvidia-smi").stdout
        refused = second.run("gpu-memory", "11Gi")
        assert (refused.returncode, refused.stderr) == (
            1,
            f"CUDA error: out of memory: cannot allocate 11264 MiB on GPU 0 ({uuid}): "
            "30720 MiB of 40960 MiB device memory in use\n",
        )
        assert second.run("gpu-memory", "10Gi").stdout == f"allocated 10240 MiB on GPU 0 ({uuid})\n"
    finally:
        # As a container is ended that does not listen: what it held must be free.
        os.killpg(holder.pid, signal.SIGKILL)
        holder.communicate()
    if shutil.which("flock"):
        assert second.run("gpu-memory", "40Gi").returncode == 0
        assert second.run("nvidia-smi", *query).stdout == "0, 40960\n"


def test_who_holds_memory_and_is_asked_to_end_leaves_nothing(tmp_path: Path) -> None:
    hardware = opened(tmp_path, "a100-40x1")
    box = container(tmp_path / "c", hardware, *edits(hardware, 0))
    holder = box.start("gpu-memory", "30Gi", "--hold", "600")
    try:
        holder.terminate()
        holder.communicate()
        assert holder.returncode == 143
        wait_for("what it started has ended", lambda: not is_running(holder.pid))
    finally:
        if is_running(holder.pid):
            os.killpg(holder.pid, signal.SIGKILL)
    assert box.run("nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits").stdout == "0\n"


def is_running(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_mig_instance_has_only_its_own_memory(tmp_path: Path) -> None:
    hardware = opened(tmp_path, "h100x1")
    gpu = hardware.gpus()[0]
    hardware.set_mig_mode(gpu.uuid, True)
    profile = next(each for each in gpu.mig_profiles if each.name == "1g.10gb")
    instance = hardware.create_instance(gpu.uuid, profile, Placement(0, 1))
    box = container(tmp_path / "c", hardware, hardware.instance_edits(gpu, instance, "mig"))
    assert box.run("gpu-memory", "9984").returncode == 0
    answer = box.run("gpu-memory", "10Gi")
    assert (answer.returncode, answer.stderr) == (
        1,
        f"CUDA error: out of memory: cannot allocate 10240 MiB on GPU 0 ({instance.uuid}): "
        "0 MiB of 9984 MiB memory of MIG instance 1g.10gb in use\n",
    )


def test_a_client_of_mps_has_no_more_than_its_limit(tmp_path: Path) -> None:
    hardware = opened(tmp_path, "a100-40x1")
    gpu = hardware.gpus()[0]
    settings = MpsSettings(
        id="x", uuids=(gpu.uuid,), active_thread_percentage=50, pinned_memory_limits_mib={gpu.uuid: 15360}
    )
    folders = hardware.start_mps(settings)
    env = {"CUDA_MPS_PIPE_DIRECTORY": "/tmp/nvidia-mps"}
    box = container(tmp_path / "c", hardware, *edits(hardware, 0), env=env)
    (tmp_path / "c" / "tmp").mkdir()
    (tmp_path / "c" / "tmp" / "nvidia-mps").symlink_to(folders.pipe)
    assert box.run("gpu-memory", "14Gi").returncode == 0
    answer = box.run("gpu-memory", "37683Mi")
    assert (answer.returncode, answer.stderr) == (
        1,
        f"CUDA error: out of memory: cannot allocate 37683 MiB on GPU 0 ({gpu.uuid}): MPS limit 15360 MiB per client\n",
    )
    assert (folders.log / "control.log").read_text().splitlines() == [
        f"start_server -uuids {gpu.uuid}",
        "set_default_active_thread_percentage 50",
        f"set_default_device_pinned_mem_limit {gpu.uuid} 15360M",
    ]


@pytest.mark.parametrize("arguments", [(), ("lots",), ("10Ti",), ("1Gi", "--hold", "long"), ("99999999999",), ("-x",)])
def test_wrong_usage_of_gpu_memory_is_refused(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    hardware = opened(tmp_path, "h100x1")
    answer = container(tmp_path / "c", hardware, *edits(hardware, 0)).run("gpu-memory", *arguments)
    assert answer.returncode == 2
    assert answer.stderr.startswith("usage: gpu-memory SIZE[Mi|Gi]")


def test_without_devices_there_is_no_memory(tmp_path: Path) -> None:
    answer = container(tmp_path / "c", opened(tmp_path, "h100x1")).run("gpu-memory", "1Gi")
    assert (answer.returncode, answer.stderr) == (
        1,
        "CUDA error: no CUDA-capable device is detected (GPU 0 of 0)\n",
    )


@pytest.mark.skipif(shutil.which("busybox") is None, reason="busybox is not installed")
def test_the_programs_run_in_busybox(tmp_path: Path) -> None:
    hardware = opened(tmp_path, "h100x1")
    box = container(tmp_path / "c", hardware, *edits(hardware, 0))
    for shell_arguments in (("nvidia-smi", "-L"), ("gpu-memory", "1Gi")):
        assert box.run(*shell_arguments, shell=("busybox", "sh")).returncode == 0


def test_a_container_finds_its_cards_where_the_programs_look(tmp_path: Path) -> None:
    hardware = opened(tmp_path, "h100x8")
    gpu: Gpu = hardware.gpus()[5]
    (mount,) = hardware.gpu_edits(gpu, "gpu-5").mounts
    assert mount.container_path == f"{CONTAINER_CARDS}/005-gpu-5"
    assert mount.host_path == str(tmp_path / "state" / "cards" / gpu.uuid)
