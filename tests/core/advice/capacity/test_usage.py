"""What is free, in use and by whom: each GPU counted once, shares and partitions by what is left of them."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from allot.core.advice.snapshot import Snapshot
from allot.core.advice.usage.claims import ClaimState, claim_usage
from allot.core.advice.usage.devices import By, DeviceUsage, class_usage, device_usage
from allot.core.advice.usage.fragmentation import unusable_share
from allot.core.advice.usage.nodes import node_usage
from allot.core.advice.usage.partitions import partition_usage
from allot.core.advice.what_if import WhatIfCluster
from allot.devices.node_files import NodeSet
from allot.devices.node_templates import objects_of
from allot.devices.simulation import GpuSettings, Settings

from .world import board, device_class, gpu, gpus, held, model_is, node, pod, situation, slices, snapshot


def _row(found: WhatIfCluster, name: str, by: By = By.CLASS) -> DeviceUsage:
    return next(row for row in device_usage(found, by).rows if row.name == name)


def _counts(row: DeviceUsage) -> tuple[int, int, int, int, int]:
    return row.total, row.free, row.partly, row.in_use, row.unavailable


def test_devices_are_free_or_in_use_and_holders_are_named_with_their_pods() -> None:
    found = situation(node("n1"), slices("n1", gpus(4)), device_class(), held("c", "n1", "gpu-0", "gpu-1", pods=("p",)))
    row = _row(found, "gpu")
    assert _counts(row) == (4, 2, 0, 2, 0)
    assert [(holder.claim, holder.devices, holder.pods) for holder in row.holders] == [("c", 2, ("p",))]


def test_a_class_has_the_devices_that_its_selectors_take_and_a_device_may_be_in_several() -> None:
    found = situation(slices("n1", [*gpus(2), gpu("other", "B")]), device_class(), device_class("b", model_is("B")))
    report = device_usage(found)
    assert [(row.name, row.total) for row in report.rows] == [("b", 1), ("gpu", 3)]
    assert report.units == 3
    assert report.in_several_rows == 1


def test_a_class_whose_selector_fails_says_so() -> None:
    found = situation(slices("n1", gpus(1)), device_class("odd", 'device.attributes["x.com"].y == "z"'))
    row = _row(found, "odd")
    assert row.total == 0
    assert "no such key" in row.problem


def test_tainted_devices_are_unavailable_but_counted_once_when_in_use() -> None:
    taint = {"key": "sick", "effect": "NoSchedule"}
    devices = [gpu("gpu-0", taints=[taint]), gpu("gpu-1", taints=[taint]), gpu("gpu-2")]
    row = _row(situation(slices("n1", devices), device_class(), held("c", "n1", "gpu-0")), "gpu")
    assert _counts(row) == (3, 1, 0, 1, 1)
    assert row.tainted == 2


def test_a_taint_rule_makes_devices_unavailable() -> None:
    rule = {
        "apiVersion": "resource.k8s.io/v1beta2",
        "kind": "DeviceTaintRule",
        "metadata": {"name": "rule"},
        "spec": {"deviceSelector": {"device": "gpu-1"}, "taint": {"key": "sick", "effect": "NoExecute"}},
    }
    assert _counts(_row(situation(slices("n1", gpus(2)), device_class(), rule), "gpu")) == (2, 1, 0, 0, 1)


def test_admin_access_is_not_use() -> None:
    row = _row(situation(slices("n1", gpus(2)), device_class(), held("c", "n1", "gpu-0", adminAccess=True)), "gpu")
    assert _counts(row) == (2, 2, 0, 0, 0)
    assert row.watched == 1
    assert not row.holders


def test_shares_count_by_what_is_left_of_capacities() -> None:
    capacity = {"memory": {"value": "80Gi"}}
    devices = [gpu(f"gpu-{number}", allowMultipleAllocations=True, capacity=capacity) for number in range(3)]
    shares = [
        held(
            name,
            "n1",
            device,
            shareID=f"00000000-0000-0000-0000-00000000000{number}",
            consumedCapacity={"memory": size},
        )
        for number, (name, device, size) in enumerate(
            (("a", "gpu-0", "20Gi"), ("b", "gpu-0", "10Gi"), ("c", "gpu-1", "80Gi"))
        )
    ]
    row = _row(situation(slices("n1", devices), device_class(), shares), "gpu")
    assert _counts(row) == (3, 1, 1, 1, 0)
    assert [(use.name, use.free, use.total) for use in row.capacity] == [("memory", "130Gi", "240Gi")]


def test_a_board_is_one_unit_whatever_it_can_be_cut_into() -> None:
    devices, counters = board("b0")
    more, other = board("b1")
    found = situation(slices("n1", [*devices, *more], [counters, other]), device_class(), held("c", "n1", "b0-half-0"))
    assert _counts(_row(found, "gpu")) == (2, 1, 1, 0, 0)
    assert {(use.partition, use.in_use, use.fits) for use in partition_usage(found)} == {
        ("whole", 0, 1),
        ("half", 1, 3),
        ("quarter", 0, 6),
    }


def test_for_a_class_of_whole_boards_one_that_has_been_cut_is_in_use() -> None:
    devices, counters = board("b0")
    whole = device_class("whole", 'device.attributes["gpu.example.com"].profile == "whole"')
    found = situation(slices("n1", devices, [counters]), whole, held("c", "n1", "b0-quarter-3"))
    row = _row(found, "whole")
    assert _counts(row) == (1, 0, 0, 1, 0)
    assert row.holders[0].claim == "c"


def test_dynamic_mig_is_counted_by_gpus_and_by_what_profiles_still_fit() -> None:
    drivers = Settings(gpu=GpuSettings(feature_gates={"DynamicMIG": True}))
    objects = tuple(objects_of(NodeSet(profile="h100x8", name="n1", drivers=drivers)))
    taken = snapshot(_mig_claim("a", "gpu-0-mig-1g10gb-19-0"), _mig_claim("b", "gpu-1")).objects
    found = WhatIfCluster(Snapshot((*objects, *taken)))
    assert _counts(_row(found, "gpu.nvidia.com")) == (8, 6, 0, 2, 0)
    assert _counts(_row(found, "NVIDIA H100 80GB HBM3", By.MODEL)) == (8, 6, 1, 1, 0)
    fits = {use.partition: use.fits for use in partition_usage(found)}
    assert fits["1g.10gb"] == 6 * 7 + 6
    assert fits["7g.80gb"] == 6
    assert fits["gpu"] == 6


@pytest.mark.slow
def test_pools_that_look_alike_count_as_much_as_each_of_them_alone() -> None:
    alike = 0
    for seed in range(200):
        dice = Random(seed)
        pools = [_cut_pool(f"n{number}", dice) for number in range(dice.randint(2, 5))]
        together = partition_usage(situation(*(part for pool in pools for part in pool)))
        alone = [partition_usage(situation(*pool)) for pool in pools]
        sums: dict[str, list[int]] = {}
        for use in (use for uses in alone for use in uses):
            counts = sums.setdefault(use.partition, [0, 0, 0])
            counts[:] = [counts[0] + use.places, counts[1] + use.in_use, counts[2] + use.fits]
        assert {use.partition: [use.places, use.in_use, use.fits] for use in together} == sums, seed
        alike += any(uses in alone[:number] for number, uses in enumerate(alone))
    assert alike > 20


def _cut_pool(name: str, dice: Random) -> list[list[dict[str, Any]] | dict[str, Any]]:
    """One or two boards, in part in use or tainted; sometimes with slots that are gone, or a slice that is missing."""
    boards = [board(f"b{number}") for number in range(dice.randint(1, 2))]
    devices = [device for found, _ in boards for device in found]
    counters = [found for _, found in boards]
    if dice.random() < 0.2:
        counters[0]["counters"]["slot-1"] = {"value": "0"}
    if dice.random() < 0.2:
        dice.choice(devices)["taints"] = [{"key": "broken", "effect": "NoSchedule"}]
    taken = [device["name"] for device in devices if dice.random() < 0.1]
    published = slices(name, devices, counters)
    kept = published if dice.random() < 0.9 else published[:1]
    return [kept, *(held(f"{name}-{device}", name, device) for device in taken)]


def _mig_claim(name: str, device: str) -> dict[str, object]:
    claim = held(name, "n1", device)
    claim["status"]["allocation"]["devices"]["results"][0]["driver"] = "gpu.nvidia.com"
    return claim


def test_of_an_incomplete_pool_nothing_can_be_had_and_it_is_named() -> None:
    published = slices("n1", gpus(2))
    published[0]["spec"]["pool"]["resourceSliceCount"] = 2
    report = device_usage(situation(published, device_class()))
    assert _counts(report.rows[0]) == (2, 0, 0, 0, 2)
    assert report.incomplete_pools == ("gpu.example.com/n1",)


def test_only_the_newest_generation_of_a_pool_counts() -> None:
    old, new = slices("n1", gpus(5)), slices("n1", gpus(2))
    new[0]["metadata"]["name"] = "newer"
    new[0]["spec"]["pool"]["generation"] = 2
    assert _counts(_row(situation(old, new, device_class()), "gpu")) == (2, 2, 0, 0, 0)


def test_devices_that_several_nodes_can_use_are_a_row_of_their_own() -> None:
    report = device_usage(situation(slices("n1", gpus(1)), slices("net", gpus(2), allNodes=True)), By.NODE)
    assert [(row.name, row.total) for row in report.rows] == [("(several nodes)", 2), ("n1", 1)]


def test_rows_by_model_driver_and_pool() -> None:
    found = situation(slices("n1", [*gpus(2), gpu("x", "B")]), slices("n2", gpus(1)))
    assert {row.name: row.total for row in device_usage(found, By.MODEL).rows} == {"A": 3, "B": 1}
    assert {row.name: row.total for row in device_usage(found, By.DRIVER).rows} == {"gpu.example.com": 4}
    assert {row.name: row.total for row in device_usage(found, By.POOL).rows} == {"n1": 3, "n2": 1}


def test_some_classes_alone_are_counted_as_among_all() -> None:
    found = situation(slices("n1", gpus(2)), device_class(), device_class("b", model_is("B")))
    assert class_usage(found, ("gpu", "unknown")) == {"gpu": _row(found, "gpu")}


# --- fragmentation ---


def test_free_devices_on_nodes_with_too_few_of_them_are_fragmented() -> None:
    assert unusable_share([4, 2, 1], {1: 1}) == 0.0
    assert unusable_share([4, 2, 1], {4: 1}) == 3 / 7
    assert unusable_share([4, 2, 1], {1: 1, 4: 1}) == 3 / 14
    assert unusable_share([], {1: 1}) == 0.0


def test_what_is_typical_is_what_claims_hold_now_or_else_a_whole_node() -> None:
    empty = situation(slices("n1", gpus(4)), slices("n2", gpus(2)), device_class())
    assert _row(empty, "gpu").fragmentation.share == round(2 / 6, 4)
    used = situation(
        slices("n1", gpus(4)),
        slices("n2", gpus(2)),
        device_class(),
        held("c", "n1", "gpu-0", "gpu-1"),
        held("d", "n2", "gpu-0"),
    )
    found = _row(used, "gpu").fragmentation
    assert found.request_sizes == {"1": 1, "2": 1}
    assert found.share == round((1 / 3 + 0) / 2, 4)
    assert (found.largest_block, found.free_on_used_nodes, found.free_nodes) == (2, 3, 0)


# --- claims and nodes ---


def test_claims_are_pending_in_use_idle_or_unused() -> None:
    waiting = {**held("waiting", "n1"), "status": {}}
    unused = {**held("unused", "n1"), "status": {}}
    found = situation(
        node("n1"),
        slices("n1", gpus(4)),
        held("idle", "n1", "gpu-0"),
        held("used", "n1", "gpu-1", pods=("worker",)),
        waiting,
        unused,
        pod("hopeful", claims=("waiting",)),
    )
    states = {usage.name: usage.state for usage in claim_usage(found)}
    assert states == {
        "idle": ClaimState.IDLE,
        "used": ClaimState.IN_USE,
        "waiting": ClaimState.PENDING,
        "unused": ClaimState.UNUSED,
    }
    used = next(usage for usage in claim_usage(found) if usage.name == "used")
    assert (used.pods, used.nodes, used.devices) == (("worker",), ("n1",), ("gpu.example.com/n1/gpu-1",))
    assert next(usage for usage in claim_usage(found) if usage.name == "waiting").waiting == ("hopeful",)
    assert claim_usage(found, "elsewhere") == ()


def test_claims_have_an_age_and_the_time_that_they_have_held_their_devices() -> None:
    claim = held("c", "n1", "gpu-0")
    claim["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"
    claim["status"]["allocation"]["allocationTimestamp"] = "2026-01-01T00:01:00Z"
    found = claim_usage(situation(slices("n1", gpus(1)), claim, taken_at=1767225600.0 + 100))[0]
    assert (found.age_seconds, found.allocated_seconds) == (100.0, 40.0)


def test_nodes_have_devices_and_what_pods_asked_for() -> None:
    running = pod("p", cpu="2", nodeName="n1")
    found = node_usage(situation(node("n1"), node("n2", unschedulable=True), slices("n1", gpus(3)), running))
    first, second = found
    assert (first.devices, first.free, first.cpu.requested, first.cpu.total, first.pods) == (3, 3, "2", "8", 1)
    assert (second.devices, second.schedulable) == (0, False)
