"""What is published about cards, without a driver or a server around it."""

from __future__ import annotations

import itertools
from pathlib import Path

import msgspec
import pytest

from allot.core.allocation.allocator import Allocated, allocate
from allot.core.allocation.inventory import Inventory, claim_id
from allot.core.lifecycle.slice_publishing import check_pools, cut
from allot.core.model.codec import decode
from allot.core.model.core_v1 import Node
from allot.core.model.meta import ObjectMeta
from allot.core.model.resource_v1 import Device, ResourceClaim, ResourceSlice
from allot.devices.gpu.classes import device_classes, mig_profile_class
from allot.devices.gpu.gates import Gates
from allot.devices.gpu.hardware import Fault, FaultKind, Gpu
from allot.devices.gpu.inventory import (
    DRIVER_NAME,
    counters,
    offers,
    pool,
    semantic_version,
)
from allot.devices.profiles.gpus import gpu_models
from allot.devices.profiles.mig import MigProfile, Placement, placements
from devices.gpu.world import DYNAMIC, NODE, claim, mig_request, request, simulated

SHARED = {
    "productName", "brand", "architecture", "cudaComputeCapability", "driverVersion", "cudaDriverVersion", "type",
    "addressingMode", "resource.kubernetes.io/pciBusID", "resource.kubernetes.io/pcieRoot",
}  # fmt: skip


def gpus(tmp_path: Path, machine: str, layout: dict[int, tuple[str, ...]] | None = None) -> tuple[Gpu, ...]:
    hardware = simulated(tmp_path / "state", machine, layout)
    hardware.open()
    return hardware.gpus()


def devices(cards: tuple[Gpu, ...], gates: Gates | None = None) -> list[Device]:
    return [offer.device for offer in offers(cards, gates or Gates())]


def test_a_whole_gpu_is_as_nvidias_driver_publishes_it(tmp_path: Path) -> None:
    device = devices(gpus(tmp_path, "a2-ultragpu-1g"))[0]
    values = {
        name: value.string if value.string is not None else value.version for name, value in device.attributes.items()
    }
    assert device.name == "gpu-0"
    assert values.pop("uuid", "").startswith("GPU-")
    assert values == {
        "addressingMode": "None",
        "architecture": "Ampere",
        "brand": "Nvidia",
        "cudaComputeCapability": "8.0.0",
        "cudaDriverVersion": "13.0.0",
        "driverVersion": "580.126.20",
        "productName": "NVIDIA A100-SXM4-80GB",
        "resource.kubernetes.io/pciBusID": "0000:00:04.0",
        "resource.kubernetes.io/pcieRoot": "pci0000:00",
        "type": "gpu",
    }
    assert {name: str(capacity.value) for name, capacity in device.capacity.items()} == {"memory": "80Gi"}


@pytest.mark.parametrize(("machine", "memory"), [("a2-highgpu-1g", "40Gi"), ("h200x1", "143771Mi"), ("t4x1", "15Gi")])
def test_memory_is_written_as_in_the_tutorials(tmp_path: Path, machine: str, memory: str) -> None:
    assert str(devices(gpus(tmp_path, machine))[0].capacity["memory"].value) == memory


def test_attribute_sets_are_nvidias(tmp_path: Path) -> None:
    cards = gpus(tmp_path, "h100x2", {1: ("3g.40gb",)})
    whole, static = devices(cards)
    assert set(whole.attributes) == SHARED | {"uuid"}
    assert set(static.attributes) == SHARED | {"uuid", "parentUUID", "profile"}
    dynamic = devices(cards[:1], DYNAMIC)[1]
    assert set(dynamic.attributes) == SHARED | {"parentUUID", "profile"}
    assert (len(whole.attributes), len(dynamic.attributes), len(static.attributes)) == (11, 12, 13)


def test_a_mig_instance_that_exists_takes_the_place_of_its_gpu(tmp_path: Path) -> None:
    cards = gpus(tmp_path, "a100-40x2", {0: ("1g.5gb",)})
    assert [device.name for device in devices(cards)] == ["gpu-0-mig-1g5gb-19-0", "gpu-1"]
    capacity = {name: str(value.value) for name, value in devices(cards)[0].capacity.items()}
    assert capacity == {
        "memory": "4864Mi",
        "multiprocessors": "14",
        "copyEngines": "1",
        "decoders": "0",
        "encoders": "0",
        "jpegEngines": "0",
        "ofaEngines": "0",
        "memorySlice0": "1",
    }


def test_dynamic_mig_offers_every_placement_and_the_whole_card(tmp_path: Path) -> None:
    found = devices(gpus(tmp_path, "h100x1"), DYNAMIC)
    assert len(found) == 26
    names = [device.name for device in found]
    assert names[0] == "gpu-0"
    assert {"gpu-0-mig-1g10gb-me-20-6", "gpu-0-mig-7g80gb-0-0", "gpu-0-mig-3g40gb-9-4"} <= set(names)
    consumed = {device.name: device.consumes_counters[0] for device in found}
    assert consumed["gpu-0"].counters == counters(gpus(tmp_path, "h100x1")[0]).counters
    half = {name: str(value.value) for name, value in consumed["gpu-0-mig-3g40gb-9-4"].counters.items()}
    assert half == {
        "memory": "40448Mi",
        "multiprocessors": "60",
        "copy-engines": "3",
        "decoders": "3",
        "encoders": "0",
        "jpeg-engines": "3",
        "ofa-engines": "0",
        "memory-slice-4": "1",
        "memory-slice-5": "1",
        "memory-slice-6": "1",
        "memory-slice-7": "1",
    }


@pytest.mark.parametrize(
    ("machine", "layout", "names"),
    [
        # A card without MIG is published whole whatever the gate says.
        ("l4x1", None, ["gpu-0"]),
        # Ampere would need a reset: what is off stays off.
        ("a100-40x1", None, ["gpu-0"]),
    ],
)
def test_each_gpu_is_published_as_what_it_can_be(
    tmp_path: Path, machine: str, layout: dict[int, tuple[str, ...]] | None, names: list[str]
) -> None:
    assert [device.name for device in devices(gpus(tmp_path, machine, layout), DYNAMIC)] == names


def test_an_ampere_with_mig_on_offers_instances_only(tmp_path: Path) -> None:
    names = [device.name for device in devices(gpus(tmp_path, "a100-40x1", {0: ()}), DYNAMIC)]
    assert len(names) == 25
    assert "gpu-0" not in names


def test_passed_through_gpus_have_their_own_attributes(tmp_path: Path) -> None:
    found = devices(gpus(tmp_path, "a3-ultragpu-8g"), Gates(passthrough_support=True))
    vfio = next(device for device in found if device.name == "gpu-vfio-7")
    assert set(vfio.attributes) == {
        "type", "uuid", "productName", "deviceID", "vendorID", "numa", "iommuFDEnabled",
        "resource.kubernetes.io/pciBusID", "resource.kubernetes.io/pcieRoot",
    }  # fmt: skip
    assert (vfio.attributes["numa"].int_, vfio.attributes["vendorID"].string) == (1, "0x10de")
    assert list(vfio.capacity) == ["addressableMemory"]


@pytest.mark.parametrize("machine", ["h100x8", "a3-ultragpu-8g", "a4x-highgpu-4g", "b200x8", "a100-80x8", "t4x4"])
@pytest.mark.parametrize("gates", [Gates(), DYNAMIC])
def test_slices_are_what_the_api_server_accepts(tmp_path: Path, machine: str, gates: Gates) -> None:
    cards = gpus(tmp_path, machine)
    made = pool(NODE, offers(cards, gates), cards)
    assert check_pools(DRIVER_NAME, [made]) == ()


@pytest.mark.parametrize(
    ("text", "version"), [("580.95.05", "580.95.5"), ("8.0", "8.0.0"), ("13", "13.0.0"), ("550.54.15-rc1", "550.54.15")]
)
def test_versions_are_semantic(text: str, version: str) -> None:
    assert semantic_version(text) == version


def test_faults_are_taints_on_everything_of_a_card(tmp_path: Path) -> None:

    card = msgspec.structs.replace(gpus(tmp_path, "h100x1")[0], faults=(Fault(kind=FaultKind.XID, xid=79),))
    for device in devices((card,), DYNAMIC):
        assert [(taint.key, taint.value, taint.effect) for taint in device.taints] == [
            ("gpu.nvidia.com/xid", "79", "NoSchedule")
        ]
    quiet = Gates(nvml_device_health_check=False)
    assert devices((card,), quiet)[0].taints == ()


# --- MIG: what counters admit is what the hardware can do ---


def _fits(chosen: tuple[tuple[MigProfile, Placement], ...]) -> bool:
    """The rule of the hardware: memory slices apart, at most seven compute slices, one instance with media extensions."""
    slices = [index for _, place in chosen for index in place.slices]
    return (
        len(set(slices)) == len(slices)
        and sum(profile.compute_slices for profile, _ in chosen) <= 7
        and sum(profile.has_media_extensions for profile, _ in chosen) <= 1
    )


@pytest.mark.slow
@pytest.mark.parametrize("key", [key for key, model in gpu_models().items() if model.mig_profiles])
def test_counters_admit_exactly_what_fits_on_a_card(tmp_path: Path, key: str) -> None:
    (card,) = gpus(tmp_path, f"{key}x1", {0: ()})
    offered = [offer for offer in offers((card,), DYNAMIC) if offer.profile is not None]
    limits = {name: counter.value.nano for name, counter in counters(card).counters.items()}
    costs = [
        {name: counter.value.nano for name, counter in offer.device.consumes_counters[0].counters.items()}
        for offer in offered
    ]
    places = [(offer.profile, offer.placement) for offer in offered]
    seen = 0
    # All sets of placements whose memory slices are apart, built one by one; and all neighbours of these.
    pending: list[tuple[int, ...]] = [()]
    while pending:
        chosen = pending.pop()
        for index in range(chosen[-1] + 1 if chosen else 0, len(offered)):
            extended = (*chosen, index)
            names = set(itertools.chain.from_iterable(costs[each] for each in extended))
            admitted = all(sum(costs[each].get(name, 0) for each in extended) <= limits[name] for name in names)
            real = _fits(tuple((places[each][0], places[each][1]) for each in extended))  # type: ignore[misc]
            assert admitted == real, [offered[each].device.name for each in extended]
            seen += 1
            if admitted:
                pending.append(extended)
    assert seen > 5000


def test_every_profile_has_the_number_of_places_that_nvidia_lists() -> None:
    for key, model in gpu_models().items():
        counts = {profile.id: len(list(placements(profile))) for profile in model.mig_profiles}
        assert not counts or counts == {19: 7, 20: 7, 15: 4, 14: 3, 9: 2, 5: 1, 0: 1}, key


def _inventory(tmp_path: Path, machine: str) -> Inventory:
    cards = gpus(tmp_path, machine)
    inventory = Inventory()
    for device_class in (*device_classes(), mig_profile_class("1g.10gb")):
        inventory.put_class(device_class)
    made = pool(NODE, offers(cards, DYNAMIC), cards)

    for index, spec in enumerate(cut(DRIVER_NAME, made)):
        numbered = msgspec.structs.replace(spec, pool=msgspec.structs.replace(spec.pool, generation=1))
        inventory.put_slice(ResourceSlice(metadata=ObjectMeta(name=f"slice-{index}"), spec=numbered))
    return inventory


def _allocated(inventory: Inventory, name: str, *requests: dict[str, object]) -> list[str] | None:
    wanted = decode(claim(name, *requests), ResourceClaim).object
    answer = allocate(inventory, Node(metadata=ObjectMeta(name=NODE)), [wanted])
    if not isinstance(answer, Allocated):
        return None
    inventory.hold(claim_id(wanted), answer.results[0])
    return [result.device for result in answer.results[0].devices.results]


def test_the_allocator_never_lets_instances_overlap(tmp_path: Path) -> None:
    inventory = _inventory(tmp_path, "h100x1")
    assert _allocated(inventory, "a", mig_request("mig", "3g.40gb")) == ["gpu-0-mig-3g40gb-9-0"]
    assert _allocated(inventory, "whole", request()) is None
    assert _allocated(inventory, "b", mig_request("mig", "4g.40gb")) is None
    assert _allocated(inventory, "c", mig_request("mig", "1g.10gb+me")) == ["gpu-0-mig-1g10gb-me-20-4"]
    assert _allocated(inventory, "d", mig_request("mig", "1g.10gb+me")) is None
    assert _allocated(inventory, "e", mig_request("mig", "2g.20gb")) is None
    assert _allocated(inventory, "f", mig_request("mig", "1g.20gb")) == ["gpu-0-mig-1g20gb-15-6"]
    assert _allocated(inventory, "g", mig_request("mig", "1g.10gb")) == ["gpu-0-mig-1g10gb-19-5"]
    assert _allocated(inventory, "h", mig_request("mig", "1g.10gb")) is None


def test_seven_small_instances_fill_a_card_and_an_eighth_takes_the_next(tmp_path: Path) -> None:
    inventory = _inventory(tmp_path, "h100x2")
    small = _allocated(inventory, "seven", mig_request("mig", "1g.10gb", 7))
    assert small is not None
    assert {name.partition("-mig-")[0] for name in small} == {"gpu-0"}
    assert _allocated(inventory, "eighth", mig_request("mig", "1g.10gb")) == ["gpu-1-mig-1g10gb-19-0"]


def test_classes_are_those_of_nvidias_chart() -> None:
    classes = {each.metadata.name: each.spec for each in device_classes()}
    assert list(classes) == ["gpu.nvidia.com", "mig.nvidia.com", "vfio.gpu.nvidia.com"]
    assert classes["gpu.nvidia.com"].extended_resource_name == "nvidia.com/gpu"
    cel = classes["mig.nvidia.com"].selectors[0].cel
    assert cel is not None
    assert cel.expression == "device.driver == 'gpu.nvidia.com' && device.attributes['gpu.nvidia.com'].type == 'mig'"
    assert mig_profile_class("1g.12gb").spec.extended_resource_name == "nvidia.com/mig-1g.12gb"
