"""Sockets have upstream's names, operations take one lock, devices are declared in plain values, overlaps are found."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest

from allot.core.lifecycle.slice_publishing import Pool
from allot.core.model.resource_v1 import DeviceAttribute, ResourceSliceSpec
from allot.driver import Version, counter_set, device
from allot.driver.checkpoint import Phase, Record, RecordedDevice
from allot.driver.declare import attribute
from allot.driver.health import cut_message
from allot.driver.inventory import Inventory
from allot.driver.operation_lock import OperationLock
from allot.driver.overlap import find_overlap
from allot.driver.plugin import as_pools
from allot.driver.publishing import dropped_fields
from allot.driver.sockets import (
    PATH_BYTES_MAX,
    SocketPathError,
    registration_socket,
    remove_dead_sockets,
    service_socket,
)
from allot.process.clock import SystemClock

REGISTRY = Path("/var/lib/kubelet/plugins_registry")
NONE = Inventory()
POD = "11111111-2222-4333-8444-555555555555"


def test_sockets_have_the_names_that_the_kubelet_knows() -> None:
    assert registration_socket(REGISTRY, "gpu.example.com").name == "gpu.example.com-reg.sock"
    assert registration_socket(REGISTRY, "g.example.com", POD).name == f"g.example.com-{POD}-reg.sock"
    assert service_socket(Path("/d")).name == "dra.sock"
    assert service_socket(Path("/d"), POD).name == f"dra-{POD}.sock"


def test_long_names_are_shortened_until_they_fit() -> None:
    driver = "a" * 40 + ".example.com"
    shorter = registration_socket(REGISTRY, driver, POD)
    assert shorter.name.startswith(f"{driver}-") and POD not in shorter.name
    longest = registration_socket(REGISTRY / ("x" * 20), "b" * 63, POD)
    assert longest.name.startswith("dra-")
    assert all(len(bytes(path)) <= PATH_BYTES_MAX for path in (shorter, longest))


def test_a_folder_that_is_too_deep_is_told() -> None:
    with pytest.raises(SocketPathError, match="expected at most 107"):
        registration_socket(Path("/" + "x" * 120), "gpu.example.com")


def test_sockets_of_dead_instances_are_removed_and_no_others(tmp_path: Path) -> None:
    names = ("g.example.com-dead-reg.sock", "g.example.com-alive-reg.sock", "other.example.com-dead-reg.sock")
    listeners = [socket.socket(socket.AF_UNIX) for _ in names]
    for listener, name in zip(listeners, names, strict=True):
        listener.bind(str(tmp_path / name))
    listeners[1].listen()
    assert remove_dead_sockets(tmp_path, tmp_path / "data", "g.example.com") == (tmp_path / names[0],)
    for listener in listeners:
        listener.close()


async def test_operations_of_all_instances_take_one_lock(tmp_path: Path) -> None:
    taken_over: list[str] = []
    locks = [
        OperationLock(tmp_path / "lock", name, SystemClock(), lambda n=name: taken_over.append(n)) for name in "ab"
    ]  # type: ignore[misc]
    for each in locks:
        each.open()
    inside = 0

    async def work(lock: OperationLock) -> None:
        nonlocal inside
        for _ in range(20):
            async with lock.held():
                inside += 1
                assert inside == 1
                await asyncio.sleep(0)
                inside -= 1

    await asyncio.gather(*(work(each) for each in locks), work(locks[0]))
    assert set(taken_over) == {"a", "b"}
    taken_over.clear()
    async with locks[0].held():
        pass
    taken_over.clear()
    async with locks[0].held():
        pass
    assert taken_over == []
    for each in locks:
        each.close()


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("x", DeviceAttribute(string="x")),
        (3, DeviceAttribute(int_=3)),
        (True, DeviceAttribute(bool_=True)),
        (Version("1.2.3"), DeviceAttribute(version="1.2.3")),
        (["a", "b"], DeviceAttribute(strings=("a", "b"))),
        ([1, 2], DeviceAttribute(ints=(1, 2))),
        ([True], DeviceAttribute(bools=(True,))),
        ([Version("1.0.0")], DeviceAttribute(versions=("1.0.0",))),
    ],
)
def test_an_attribute_has_the_type_of_its_value(value: object, expected: DeviceAttribute) -> None:
    assert attribute(value) == expected  # type: ignore[arg-type]


def test_a_list_of_different_types_is_no_attribute() -> None:
    with pytest.raises(TypeError, match="attribute value"):
        attribute(["a", 1])  # type: ignore[list-item]


def test_devices_make_a_pool_named_as_the_node() -> None:
    (pool,) = as_pools([device("gpu-0")], "n1")
    assert (pool.name, pool.node_name, len(pool.devices)) == ("n1", "n1", 1)
    assert as_pools([], "n1")[0].devices == ()


def test_devices_and_pools_cannot_be_mixed() -> None:
    with pytest.raises(TypeError, match="devices only or pools only"):
        as_pools([device("gpu-0"), Pool(name="p")], "n1")


def held(uid: str, *devices: RecordedDevice) -> Record:
    return Record(uid=uid, namespace="default", name=f"claim-{uid}", phase=Phase.STARTED, devices=devices)


def of(name: str, share_id: str | None = None, admin: bool = False) -> RecordedDevice:
    return RecordedDevice(request="r", pool="n1", device=name, share_id=share_id, admin_access=admin)


def test_a_device_of_another_claim_is_an_overlap() -> None:
    records = [held("u1", of("gpu-0"))]
    assert "already allocated to different claim default/claim-u1" in find_overlap("u2", [of("gpu-0")], records, NONE)
    assert find_overlap("u2", [of("gpu-1")], records, NONE) == ""
    assert find_overlap("u1", [of("gpu-0")], records, NONE) == ""


def test_admin_access_overlaps_nobody() -> None:
    assert find_overlap("u2", [of("gpu-0", admin=True)], [held("u1", of("gpu-0"))], NONE) == ""
    assert find_overlap("u2", [of("gpu-0")], [held("u1", of("gpu-0", admin=True))], NONE) == ""


def test_shares_of_a_device_do_not_overlap_but_the_whole_does() -> None:
    records = [held("u1", of("gpu-0", "s1"))]
    assert find_overlap("u2", [of("gpu-0", "s2")], records, NONE) == ""
    assert find_overlap("u2", [of("gpu-0")], records, NONE) != ""
    assert find_overlap("u2", [of("gpu-0", "s1")], records, NONE) != ""


def test_a_whole_device_overlaps_its_partitions_by_their_counters() -> None:
    pool = Pool(
        name="n1",
        counter_sets=(counter_set("gpu-0", {"memory": "40Gi"}),),
        devices=(
            device("whole", consumes={"gpu-0": {"memory": "40Gi"}}),
            device("half-0", consumes={"gpu-0": {"memory": "20Gi"}}),
            device("half-1", consumes={"gpu-0": {"memory": "20Gi"}}),
        ),
    )
    pools = Inventory([pool])
    records = [held("u1", of("half-0"))]
    assert find_overlap("u2", [of("half-1")], records, pools) == ""
    assert "counter memory of gpu-0 is exhausted" in find_overlap("u2", [of("whole")], records, pools)


def test_dropped_fields_are_named() -> None:
    sent = ResourceSliceSpec(devices=(device("a", shared=True, capacity={"memory": 1}),))
    stored = ResourceSliceSpec(devices=(device("a", capacity={"memory": 1}),))
    assert dropped_fields(sent, stored) == {"allow_multiple_allocations"}
    assert dropped_fields(sent, sent) == frozenset()


def test_a_long_message_is_cut_between_characters() -> None:
    assert cut_message("é" * 600).encode() == ("é" * 510).encode() + b"..."
    assert cut_message("short") == "short"
