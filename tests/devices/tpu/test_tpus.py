"""Which chips there are, what is published about them, and the environment of TPU programs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from allot.core.lifecycle.slice_publishing import Pool, check_pools
from allot.devices.command import UsageError
from allot.devices.profiles.tpus import UnknownTpuMachine, find_tpu_machine, tpu_machine_names
from allot.devices.tpu.chips import KernelChips, SimulatedChips
from allot.devices.tpu.command import main, make_driver
from allot.devices.tpu.inventory import DRIVER_NAME, Slice, chip_edits, common_edits, devices
from allot.devices.tpu.topology import TopologyError, bounds_text, host_bounds, single_host_topology


def kernel(root: Path, device: str, names: Mapping[str, str], subsystem: str = "0x0000") -> KernelChips:
    """Chips on a PCI bus: address to the name of the device file, `accel0` or a VFIO group."""
    (root / "dev" / "vfio").mkdir(parents=True)
    for address, name in names.items():
        folder = root / "sys" / "bus" / "pci" / "devices" / address
        folder.mkdir(parents=True)
        for file, content in (("vendor", "0x1ae0"), ("device", device), ("subsystem_device", subsystem)):
            (folder / file).write_text(f"{content}\n")
        if name.startswith("accel"):
            (folder / "accel" / name).mkdir(parents=True)
            (root / "dev" / name).touch()
        else:
            group = root / "sys" / "kernel" / "iommu_groups" / name
            group.mkdir(parents=True)
            (folder / "iommu_group").symlink_to(group)
            (root / "dev" / "vfio" / name).touch()
    return KernelChips(root / "sys", root / "dev")


def test_chips_behind_vfio_are_named_by_their_group(tmp_path: Path) -> None:
    chips = kernel(tmp_path, "0x006f", {"0000:00:05.0": "10", "0000:00:04.0": "9"}).read()
    assert [(chip.index, chip.name, chip.device_file) for chip in chips] == [
        (0, "9", "/dev/vfio/9"),
        (1, "10", "/dev/vfio/10"),
    ]
    edits = chip_edits(chips[0], "uid-1")
    assert edits.env == {"TPU_DEVICE_9_RESOURCE_CLAIM": "uid-1"}
    assert [(node.path, node.permissions) for node in edits.device_nodes] == [
        ("/dev/vfio/9", "mrw"),
        ("/dev/vfio/vfio", "mrw"),
    ]


def test_older_chips_have_files_of_their_own(tmp_path: Path) -> None:
    chips = kernel(tmp_path, "0x005e", {f"0000:00:0{number}.0": f"accel{number}" for number in range(4)}).read()
    assert [chip.device_file for chip in chips] == [f"/dev/accel{number}" for number in range(4)]
    assert [node.path for node in chip_edits(chips[3], "u").device_nodes] == ["/dev/accel3"]
    assert chips[0].generation.attribute == "v4"


def test_a_network_card_of_google_is_no_chip(tmp_path: Path) -> None:
    assert kernel(tmp_path, "0x0042", {"0000:00:04.0": "1"}).read() == ()
    assert KernelChips(tmp_path / "no", tmp_path / "no").read() == ()


def test_a_v3_is_known_by_its_subsystem(tmp_path: Path) -> None:
    assert kernel(tmp_path / "a", "0x0027", {"0000:00:04.0": "accel0"}).read() == ()
    assert len(kernel(tmp_path / "b", "0x0027", {"0000:00:04.0": "accel0"}, "0x004f").read()) == 1


def test_a_chip_whose_file_is_missing_is_not_published(tmp_path: Path) -> None:
    chips = kernel(tmp_path, "0x0062", {"0000:00:04.0": "0", "0000:00:05.0": "1"})
    (tmp_path / "dev" / "vfio" / "0").unlink()
    assert [device.name for device in devices(chips.read(), "n1", Slice())] == ["1"]


@pytest.mark.parametrize(
    ("machine", "generation", "accelerator", "topology", "type_", "name"),
    [
        ("ct4p-hightpu-4t", "v4", "tpu-v4-podslice", "2x2", "v4-8", "accel0"),
        ("ct5lp-hightpu-8t", "v5litepod", "tpu-v5-lite-podslice", "2x4", "v5litepod-8", "0"),
        ("ct5p-hightpu-4t", "v5p", "tpu-v5p-slice", "2x2", "v5p-8", "0"),
        ("ct6e-standard-1t", "v6e", "tpu-v6e-slice", "1x1", "v6e-1", "0"),
        ("v6ex2", "v6e", "tpu-v6e-slice", "1x2", "v6e-2", "0"),
    ],
)
def test_profiles_are_as_the_machines(
    machine: str, generation: str, accelerator: str, topology: str, type_: str, name: str
) -> None:
    chips = SimulatedChips(find_tpu_machine(machine)).read()
    published = devices(chips, "n1", Slice())
    attributes = {key: value.string or value.int_ for key, value in published[0].attributes.items()}
    assert str(attributes.pop("uuid")).startswith("tpu-")
    assert published[0].name == name
    assert attributes == {
        "index": 0,
        "tpuGen": generation,
        "brand": "Google",
        "accelerator": accelerator,
        "chipCount": len(chips),
        "topology": topology,
    }
    assert common_edits(chips, Slice(), "/l").env["TPU_ACCELERATOR_TYPE"] == type_
    assert chip_edits(chips[0], "u").device_nodes == ()


@pytest.mark.parametrize("machine", tpu_machine_names())
def test_slices_of_every_profile_are_legal(machine: str) -> None:
    found = devices(SimulatedChips(find_tpu_machine(machine)).read(), "n1", Slice())
    assert check_pools(DRIVER_NAME, [Pool(name="n1", node_name="n1", devices=found)]) == ()
    assert len({device.attributes["uuid"].string for device in found}) == 1


def test_programs_find_their_place_in_a_slice() -> None:
    chips = SimulatedChips(find_tpu_machine("ct5p-hightpu-4t")).read()
    part_of = Slice(topology="4x4x4", worker_id=3, worker_hostnames=("a", "b"))
    edits = common_edits(chips, part_of, "/var/logs")
    assert edits.env == {
        "TPU_SKIP_MDS_QUERY": "true",
        "TPU_CHIPS_PER_HOST_BOUNDS": "2,2,1",
        "TPU_HOST_BOUNDS": "2,2,4",
        "TPU_TOPOLOGY": "4x4x4",
        "TPU_ACCELERATOR_TYPE": "v5p-128",
        "TPU_WORKER_ID": "3",
        "TPU_WORKER_HOSTNAMES": "a,b",
    }
    assert [(mount.host_path, mount.container_path) for mount in edits.mounts] == [("/var/logs", "/tmp/tpu_logs")]
    assert common_edits((), part_of, "/l").is_empty


@pytest.mark.parametrize(
    ("topology", "chips", "text"),
    [
        ("4", 4, "topology '4': expected two or three numbers such as 2x4 or 4x4x4"),
        ("0x4", 4, "topology '0x4': expected"),
        ("2x2x2x2", 4, "topology '2x2x2x2': expected"),
        ("3x2", 4, "topology '3x2': cannot be made of machines with 2x2x1 chips"),
        ("2x2", 3, "3 chips on this node, expected 1, 2, 4 or 8"),
    ],
)
def test_a_topology_that_cannot_be_is_refused(topology: str, chips: int, text: str) -> None:
    with pytest.raises(TopologyError) as caught:
        host_bounds(topology, chips)
    assert str(caught.value).startswith(text)


def test_a_machine_alone_is_its_own_slice() -> None:
    for chips in (1, 2, 4, 8):
        assert bounds_text(host_bounds(single_host_topology(chips), chips)) == "1,1,1"
    assert single_host_topology(3) == ""


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--profile", "v6ex3"], "machine 'v6ex3': expected a generation and 1, 2, 4 or 8 chips such as v6ex4"),
        (["--topology", "big"], "topology 'big': expected two or three numbers"),
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


def test_unknown_machines_are_refused() -> None:
    with pytest.raises(UnknownTpuMachine, match="ct6e-standard-8t"):
        find_tpu_machine("v9x4")


def test_classes_are_printed_for_kubectl(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["classes"])
    assert json.loads(capsys.readouterr().out)["metadata"]["name"] == "tpu.google.com"
    assert make_driver(["--profile", "v4x4", "--port", "0"])[1] == ["--port", "0"]
