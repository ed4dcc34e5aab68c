"""The inventory follows the cluster change by change, and a change costs what it touches."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any

import pytest

from allot.core.allocation import Allocated, ClaimID, Inventory, Unallocatable, allocate, claim_id, place
from allot.core.model import resource_v1 as api
from allot.core.model.codec import decode
from allot.core.model.core_v1 import Node
from allot.core.model.meta import ObjectMeta

from .builders import DRIVER, claim, device, request, same


def slice_for(node: str, *devices: dict[str, Any], generation: int = 1) -> api.ResourceSlice:
    pool = {"name": node, "generation": generation, "resourceSliceCount": 1}
    spec = {"driver": DRIVER, "pool": pool, "nodeName": node, "devices": list(devices)}
    return decode({"metadata": {"name": f"slice-{node}"}, "spec": spec}, api.ResourceSlice).object


def gpu_class(*expressions: str) -> api.DeviceClass:
    selectors = [{"cel": {"expression": expression}} for expression in expressions]
    return decode({"metadata": {"name": "gpu"}, "spec": {"selectors": selectors}}, api.DeviceClass).object


def claim_for(*requests: dict[str, Any], name: str = "claim", **more: Any) -> api.ResourceClaim:
    return decode(claim(*requests, name=name, **more), api.ResourceClaim).object


def node(name: str) -> Node:
    return Node(metadata=ObjectMeta(name=name))


def cluster(nodes: int, devices: int) -> Inventory:
    inventory = Inventory()
    inventory.put_class(gpu_class())
    for number in range(nodes):
        inventory.put_slice(slice_for(f"node-{number}", *(device(f"gpu-{n}", numa=n // 2) for n in range(devices))))
    return inventory


def fits(inventory: Inventory, name: str, *requests: dict[str, Any]) -> bool:
    return isinstance(allocate(inventory, node(name), [claim_for(*requests)]), Allocated)


def test_devices_come_and_go_with_their_slice() -> None:
    inventory = cluster(1, 1)
    assert fits(inventory, "node-0", request("r"))
    inventory.put_slice(slice_for("node-0", device("gpu-0"), device("gpu-1"), generation=2))
    assert fits(inventory, "node-0", request("r", 2))
    inventory.delete_slice("slice-node-0")
    assert not fits(inventory, "node-0", request("r"))
    assert inventory.nodes() == ()


def test_a_claim_that_is_released_or_changed_gives_its_devices_back() -> None:
    inventory = cluster(1, 1)
    one = claim_for(request("r"))
    answer = allocate(inventory, node("node-0"), [one])
    assert isinstance(answer, Allocated)
    inventory.hold(claim_id(one), answer.results[0])
    assert not fits(inventory, "node-0", request("r"))
    inventory.put_claim(one)  # stored without an allocation
    assert fits(inventory, "node-0", request("r"))


def test_a_class_that_changes_selects_anew() -> None:
    inventory = cluster(1, 1)
    assert fits(inventory, "node-0", request("r"))
    inventory.put_class(gpu_class("false"))
    assert not fits(inventory, "node-0", request("r"))


def test_a_taint_rule_keeps_devices_from_being_allocated_while_it_is_there() -> None:
    inventory = cluster(1, 1)
    taint = api.DeviceTaint(key="broken", effect="NoSchedule")
    spec = api.DeviceTaintRuleSpec(device_selector=api.DeviceTaintSelector(device="gpu-0"), taint=taint)
    inventory.put_taint_rule(api.DeviceTaintRule(metadata=ObjectMeta(name="rule"), spec=spec))
    assert not fits(inventory, "node-0", request("r"))
    inventory.delete_taint_rule("rule")
    assert fits(inventory, "node-0", request("r"))


def test_a_device_held_by_a_claim_stays_held_when_its_slice_is_published_again() -> None:
    inventory = cluster(1, 1)
    result = api.DeviceRequestAllocationResult(request="r", driver=DRIVER, pool="node-0", device="gpu-0")
    inventory.hold(ClaimID("ns", "holder"), api.AllocationResult(devices=api.DeviceAllocationResult(results=(result,))))
    inventory.delete_slice("slice-node-0")
    inventory.put_slice(slice_for("node-0", device("gpu-0")))
    answer = allocate(inventory, node("node-0"), [claim_for(request("r"))])
    assert isinstance(answer, Unallocatable)
    assert answer.summary() == ['request "r": 1 device in class gpu: 1 is in use (claim ns/holder)']


def test_only_nodes_with_enough_free_devices_are_worth_trying() -> None:
    inventory = cluster(4, 2)
    by_name = {name: node(name) for name in inventory.nodes()}
    wanted = claim_for(request("r", 2))
    for number in range(3):
        one = claim_for(request("r", 2), name=f"claim-{number}")
        found = place(inventory, [one], by_name)
        assert found is not None
        inventory.hold(claim_id(one), found[1].results[0])
    assert len(list(inventory.nodes_worth_trying([wanted]))) == 1


def test_a_matched_claim_is_only_tried_where_one_group_is_large_enough() -> None:
    inventory = cluster(3, 4)
    pair = claim_for(request("r", 2), constraints=[same("numa")])
    assert list(inventory.nodes_worth_trying([pair])) == ["node-0", "node-1", "node-2"]
    results = tuple(
        api.DeviceRequestAllocationResult(request="r", driver=DRIVER, pool="node-1", device=name)
        for name in ("gpu-0", "gpu-2")
    )
    inventory.hold(ClaimID("ns", "holder"), api.AllocationResult(devices=api.DeviceAllocationResult(results=results)))
    # Two are free on node-1, but not two of one group.
    assert list(inventory.nodes_worth_trying([pair])) == ["node-0", "node-2"]


def test_the_view_of_a_node_outlives_changes_elsewhere() -> None:
    inventory = cluster(2, 1)
    view = inventory.view(node("node-0"))
    inventory.put_slice(slice_for("node-1", device("gpu-0"), device("gpu-1"), generation=2))
    assert inventory.view(node("node-0")) is view
    inventory.put_slice(slice_for("node-0", device("gpu-0"), device("gpu-1"), generation=2))
    assert inventory.view(node("node-0")) is not view


def test_equal_claims_share_one_plan() -> None:
    inventory = cluster(1, 1)
    assert inventory.plan(claim_for(request("r"), name="a").spec) is inventory.plan(
        claim_for(request("r"), name="b").spec
    )


def test_partitions_are_worth_trying_again_when_counters_are_given_back_after_slices_changed() -> None:
    inventory = Inventory()
    inventory.put_class(gpu_class())
    pool = {"name": "node-0", "generation": 1, "resourceSliceCount": 2}
    place_ = {"driver": DRIVER, "pool": pool, "nodeName": "node-0"}
    devices = [device("small", counters={"mem": "6"}), device("large", counters={"mem": "8"})]
    counters = [{"name": "set", "counters": {"mem": {"value": "12"}}}]
    body = {"metadata": {"name": "devices"}, "spec": {**place_, "devices": devices}}
    inventory.put_slice(decode(body, api.ResourceSlice).object)
    body = {"metadata": {"name": "counters"}, "spec": {**place_, "sharedCounters": counters}}
    published = decode(body, api.ResourceSlice).object
    inventory.put_slice(published)
    wanted = claim_for(request("r", 1, 'device.driver == "gpu.example.com"'))
    holder = claim_for(request("r"), name="holder")
    answer = allocate(inventory, node("node-0"), [holder])
    assert isinstance(answer, Allocated)
    assert list(inventory.nodes_worth_trying([wanted])) == ["node-0"]
    inventory.hold(claim_id(holder), answer.results[0])
    assert list(inventory.nodes_worth_trying([wanted])) == []
    inventory.delete_slice("counters")
    inventory.put_slice(published)
    inventory.release(claim_id(holder))
    both = claim_for(request("r", 2, 'device.driver == "gpu.example.com"'))
    assert list(inventory.nodes_worth_trying([both])) == ["node-0"], "counts are upper bounds"


def cut_boards(dice: Random) -> tuple[api.ResourceSlice, ...]:
    """A pool with three sets of counters, and partitions that draw on one of them or on two."""
    sets = [{"name": f"board-{n}", "counters": {"memory": {"value": str(dice.randint(2, 5))}}} for n in range(3)]
    devices = []
    for number in range(dice.randint(3, 9)):
        drawn = dice.sample(range(3), dice.choice((1, 1, 2)))
        amounts = {"memory": {"value": str(dice.randint(1, 3))}}
        consumed = [{"counterSet": f"board-{n}", "counters": amounts} for n in drawn]
        devices.append({"name": f"gpu-{number}", "consumesCounters": consumed})
    pool = {"name": "node", "generation": 1, "resourceSliceCount": 2}
    contents: tuple[dict[str, Any], ...] = ({"devices": devices}, {"sharedCounters": sets})
    return tuple(
        decode(
            {
                "metadata": {"name": f"slice-{number}"},
                "spec": {"driver": DRIVER, "pool": pool, "nodeName": "node", **content},
            },
            api.ResourceSlice,
        ).object
        for number, content in enumerate(contents)
    )


def inventory_of(
    slices: tuple[api.ResourceSlice, ...], held: Mapping[ClaimID, api.AllocationResult] | None = None
) -> Inventory:
    inventory = Inventory()
    inventory.put_class(gpu_class())
    for slice_ in slices:
        inventory.put_slice(slice_)
    for id_, allocation in (held or {}).items():
        inventory.hold(id_, allocation)
    inventory.view(node("node"))
    return inventory


def free_partitions(inventory: Inventory) -> int:
    ((index, _),) = inventory.needs([inventory.plan(claim_for(request("r")).spec)])
    return index.count("node")


@pytest.mark.slow
def test_however_partitions_were_taken_and_given_back_those_left_are_as_if_counted_anew() -> None:
    overcommitted = 0
    for seed in range(200):
        dice = Random(seed)
        slices = cut_boards(dice)
        followed = inventory_of(slices)
        held: dict[ClaimID, api.AllocationResult] = {}
        free_partitions(followed)
        for step in range(12):
            if held and dice.random() < 0.45:
                id_ = dice.choice(list(held))
                del held[id_]
                followed.release(id_)
            else:
                # Whatever is free: another scheduler may have taken more than there is.
                name = dice.choice(slices[0].spec.devices or ()).name
                result = api.DeviceRequestAllocationResult(request="r", driver=DRIVER, pool="node", device=name)
                id_ = ClaimID("ns", f"claim-{step}")
                held[id_] = api.AllocationResult(devices=api.DeviceAllocationResult(results=(result,)))
                followed.hold(id_, held[id_])
            counters = followed.view(node("node")).pools[0].counters
            assert counters is not None
            overcommitted += counters.overcommitted
            assert free_partitions(followed) == free_partitions(inventory_of(slices, held)), (seed, step)
    assert overcommitted > 100


def test_the_inventory_tells_which_node_has_changed() -> None:
    inventory = cluster(2, 1)
    told: list[str | None] = []
    inventory.listen(told.append)
    answer = allocate(inventory, node("node-1"), [claim_for(request("r"))])
    assert isinstance(answer, Allocated)
    inventory.hold(ClaimID("ns", "c"), answer.results[0])
    inventory.hold(ClaimID("ns", "c"), answer.results[0])
    inventory.release(ClaimID("ns", "c"))
    inventory.put_slice(slice_for("node-0", device("gpu-0"), device("gpu-1"), generation=2))
    assert told == ["node-1", "node-1", "node-0", "node-0"]


def test_nodes_with_devices_that_selectors_fail_on_are_known() -> None:
    inventory = cluster(1, 1)
    inventory.put_slice(slice_for("node-1", device("gpu-0", other=1)))
    asked = claim_for(request("r", 1, 'device.attributes["gpu.example.com"].numa == 0'))
    ((index, _),) = inventory.needs([inventory.plan(asked.spec)])
    assert index.has_selector_failures
    assert not index.has_selector_failure_on("node-0")
    assert index.has_selector_failure_on("node-1")
    inventory.delete_slice("slice-node-1")
    assert not index.has_selector_failures
