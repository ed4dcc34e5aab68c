"""Which CPUs there are, what is published about them, and which of them a claim gets."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allot.core.lifecycle.slice_publishing import Pool, check_pools
from allot.devices.command import UsageError
from allot.devices.cpu.choice import NotEnoughCpus, choose
from allot.devices.cpu.command import main, make_driver
from allot.devices.cpu.inventory import CAPACITY, DRIVER_NAME, GroupBy, Mode, Publishing, offers
from allot.devices.cpu.topology import Cpu, read_topology, simulated_topology
from allot.devices.profiles.machines import find_machine
from allot.devices.sysfs import CpuListError, format_cpu_list, parse_cpu_list
from allot.driver import Device
from waiting import WAIT_S


def write(root: Path, files: Mapping[str, object]) -> Path:
    """A folder tree such as the kernel's."""
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{content}\n")
    return root


def two_sockets(root: Path) -> Path:
    """Two sockets of two cores of two CPUs; siblings are 4 apart, CPU 7 is offline."""
    files: dict[str, object] = {
        "devices/system/cpu/online": "0-6",
        "devices/system/node/node0/cpulist": "0-1,4-5",
        "devices/system/node/node1/cpulist": "2-3,6-7",
        "devices/pci0000:00/0000:00:01.0/numa_node": 0,
        "devices/pci0000:80/0000:80:01.0/numa_node": 1,
        "devices/cpu_core/cpus": "0-1,4-5",
        "devices/cpu_atom/cpus": "2-3,6",
    }
    for cpu in range(8):
        base = f"devices/system/cpu/cpu{cpu}"
        files |= {
            f"{base}/topology/core_id": cpu % 2,
            f"{base}/topology/physical_package_id": cpu % 4 // 2,
            f"{base}/cache/index3/level": 3,
            f"{base}/cache/index3/id": cpu % 4 // 2,
        }
    return write(root, files)


def test_the_kernels_tree_is_read(tmp_path: Path) -> None:
    topology = read_topology(two_sockets(tmp_path))
    assert [cpu.id for cpu in topology.cpus] == [0, 4, 1, 5, 2, 6, 3], "siblings are neighbours"
    assert topology.cpus[5] == Cpu(id=6, core=0, socket=1, numa_node=1, cache_l3=1, core_type="e-core")
    assert topology.pcie_roots == {0: ("pci0000:00",), 1: ("pci0000:80",)}
    assert topology.has_smt


def test_a_tree_without_topology_is_a_plain_machine(tmp_path: Path) -> None:
    topology = read_topology(write(tmp_path, {"devices/system/cpu/cpu0/x": "", "devices/system/cpu/cpu1/x": ""}))
    assert topology.cpus == (Cpu(id=0, core=0), Cpu(id=1, core=1))
    assert not topology.has_smt
    assert read_topology(tmp_path / "nothing").cpus == ()


def test_this_machine_has_the_cpus_that_this_process_may_use() -> None:
    if not Path("/sys/devices/system/cpu/online").exists():
        pytest.skip("no /sys here")
    assert os.sched_getaffinity(0) <= {cpu.id for cpu in read_topology(Path("/sys")).cpus}


def attributes(device: Device) -> dict[str, object]:
    return {
        name: next(each for each in (value.int_, value.bool_, value.string, value.strings) if each not in (None, ()))
        for name, value in device.attributes.items()
    }


def published(publishing: Publishing, root: Path) -> list[Device]:
    found = [offer.device for offer in offers(read_topology(root), publishing)]
    assert check_pools(DRIVER_NAME, [Pool(name="n1", node_name="n1", devices=tuple(found))]) == ()
    return found


def test_cpus_are_grouped_by_numa_node(tmp_path: Path) -> None:
    devices = published(Publishing(has_pcie_roots=True, maps_node_allocatable=True), two_sockets(tmp_path))
    assert [device.name for device in devices] == ["cpudevnuma000", "cpudevnuma001"]
    assert attributes(devices[1]) == {
        "dra.cpu/numCPUs": 3,
        "dra.cpu/smtEnabled": True,
        "dra.cpu/socketID": 1,
        "dra.cpu/numaNodeID": 1,
        "dra.net/numaNode": 1,
        "resource.kubernetes.io/numaNode": 1,
        "resource.kubernetes.io/pcieRoot": ("pci0000:80",),
    }
    assert devices[1].allow_multiple_allocations
    assert str(devices[1].capacity[CAPACITY].value) == "3"
    mapping = devices[1].node_allocatable_resources["cpu"].mapping
    assert mapping is not None
    assert mapping.capacity_key == "dra.cpu/cpu"


def test_cpus_are_grouped_by_socket_or_machine(tmp_path: Path) -> None:
    root = two_sockets(tmp_path)
    sockets = published(Publishing(group_by=GroupBy.SOCKET, reserved=(0, 4)), root)
    assert [(device.name, str(device.capacity[CAPACITY].value)) for device in sockets] == [
        ("cpudevsocket000", "2"),
        ("cpudevsocket001", "3"),
    ]
    machine = published(Publishing(group_by=GroupBy.MACHINE), root)
    assert [device.name for device in machine] == ["cpudevmachine"]
    assert "dra.cpu/socketID" not in machine[0].attributes


def test_each_cpu_can_be_a_device(tmp_path: Path) -> None:
    root = two_sockets(tmp_path)
    devices = published(Publishing(mode=Mode.INDIVIDUAL, reserved=(0,), maps_node_allocatable=True), root)
    assert [(device.name, device.attributes["dra.cpu/cpuID"].int_) for device in devices[:2]] == [
        ("cpudev000", 4),
        ("cpudev001", 1),
    ]
    assert attributes(devices[-1]) == {
        "dra.cpu/cpuID": 3,
        "dra.cpu/coreID": 1,
        "dra.cpu/socketID": 1,
        "dra.cpu/cacheL3ID": 1,
        "dra.cpu/coreType": "e-core",
        "dra.cpu/smtEnabled": True,
        "dra.cpu/numaNodeID": 1,
        "dra.net/numaNode": 1,
        "resource.kubernetes.io/numaNode": 1,
    }
    assert devices[0].allow_multiple_allocations is None


def test_a_profile_has_processors() -> None:
    topology = simulated_topology(find_machine("a3-ultragpu-8g"))
    found = offers(topology, Publishing())
    assert [(offer.device.name, len(offer.cpus)) for offer in found] == [("cpudevnuma000", 112), ("cpudevnuma001", 112)]
    assert "pci0000:8c" in topology.pcie_roots[0]
    assert len({cpu.id for cpu in topology.cpus}) == 224
    individual = offers(topology, Publishing(mode=Mode.INDIVIDUAL))
    pool = Pool(name="n1", node_name="n1", devices=tuple(offer.device for offer in individual))
    assert check_pools(DRIVER_NAME, [pool]) == ()


# --- choice ---


def cores(count: int) -> list[Cpu]:
    return [Cpu(id=core + thread * count, core=core) for core in range(count) for thread in range(2)]


def test_whole_cores_are_preferred_and_broken_cores_are_filled_up() -> None:
    assert choose(cores(4), (), 2) == (0, 4)
    assert choose(cores(4), (), 3) == (0, 1, 4)
    assert choose(cores(4), (0,), 1) == (4,), "the other half of a core that is in use"
    assert choose(cores(4), (0,), 3) == (1, 4, 5)


def test_what_is_not_there_is_refused_with_numbers() -> None:
    with pytest.raises(NotEnoughCpus, match="6 CPUs wanted, 5 of 8 are free"):
        choose(cores(4), (0, 1, 2), 6)


@given(st.integers(1, 8), st.sets(st.integers(0, 15)), st.integers(0, 16))
def test_a_choice_is_free_and_complete(count: int, taken: set[int], wanted: int) -> None:
    group = cores(count)
    free = {cpu.id for cpu in group} - taken
    if wanted > len(free):
        with pytest.raises(NotEnoughCpus):
            choose(group, taken, wanted)
    else:
        chosen = choose(group, taken, wanted)
        assert len(chosen) == len(set(chosen)) == wanted
        assert set(chosen) <= free


# --- lists of CPUs ---


@given(st.sets(st.integers(0, 200)))
def test_a_list_of_cpus_is_read_as_it_was_written(cpus: set[int]) -> None:
    assert parse_cpu_list(format_cpu_list(cpus)) == tuple(sorted(cpus))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0-x", "CPU list '0-x': '0-x', expected a number or a range such as 0-3"),
        ("-1", "CPU list '-1': '-1', expected"),
        ("0-99999999999", "CPU list '0-99999999999': '0-99999999999', expected"),
        ("3-1", "CPU list '3-1': range '3-1' goes backwards"),
        ("²", "CPU list '²': '²', expected"),
    ],
)
def test_text_that_is_no_list_of_cpus_is_refused(text: str, message: str) -> None:
    with pytest.raises(CpuListError) as caught:
        parse_cpu_list(text)
    assert str(caught.value).startswith(message)


# --- the command, the hook ---


def test_options_are_read_and_the_rest_is_left_for_the_sdk(tmp_path: Path) -> None:
    driver, rest = make_driver(
        ["--sys-root", str(two_sockets(tmp_path)), "--group-by", "machine", "--reserved-cpus", "0-1", "--port", "0"]
    )
    assert driver.publishing == Publishing(group_by=GroupBy.MACHINE, reserved=(0, 1))
    assert [device.name for device in driver.devices()] == ["cpudevmachine"]
    assert rest == ["--port", "0"]
    assert make_driver(["--device-metadata"])[0].has_device_metadata


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--reserved-cpus", "0-x"], "--reserved-cpus: CPU list '0-x'"),
        (["--profile", "pdp11"], "machine 'pdp11': expected a model and a number"),
    ],
)
def test_options_that_make_no_sense_are_refused(
    options: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(UsageError):
        make_driver(options)
    with pytest.raises(SystemExit) as ended:
        main(options)
    assert ended.value.code == 2
    assert capsys.readouterr().err.startswith(f"error: {text}")


def test_classes_are_printed_for_kubectl(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["classes"])
    printed = json.loads(capsys.readouterr().out)
    assert printed["metadata"]["name"] == "dra.cpu"
    assert printed["spec"]["selectors"][0]["cel"]["expression"] == 'device.driver == "dra.cpu"'


@pytest.mark.slow
def test_the_hook_binds_a_process_and_what_it_has_started_to_its_cpus() -> None:
    cpu = min(os.sched_getaffinity(0))
    script = "sh -c 'sleep 62 & echo $!; wait' & echo $!; wait"
    with subprocess.Popen(["sh", "-c", script], stdout=subprocess.PIPE, text=True, start_new_session=True) as shell:
        try:
            assert shell.stdout is not None
            started = [shell.pid, *(int(shell.stdout.readline()) for _ in range(2))]
            hook = [sys.executable, "-m", "allot.devices.cpu.pin", str(cpu)]
            subprocess.run(hook, input=json.dumps({"pid": shell.pid}), text=True, check=True, timeout=WAIT_S)
            assert [os.sched_getaffinity(each) for each in started] == [{cpu}] * 3
            failed = subprocess.run(hook, input="{}", text=True, capture_output=True, check=False, timeout=WAIT_S)
            assert (failed.returncode, failed.stderr) == (1, "error: pin: 'pid'\n")
        finally:
            os.killpg(shell.pid, signal.SIGKILL)
