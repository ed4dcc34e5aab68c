"""Pods are charged for what their claims really take, or would take at least."""

from __future__ import annotations

from typing import Any

import pytest

from allot.core.allocation import Features, Inventory
from allot.core.features import ALL_GATES
from allot.core.model import resource_v1 as api
from allot.core.model.codec import decode
from allot.core.scheduling.queues.amounts import ONE
from allot.core.scheduling.queues.charges import Charges

from ..device_world import DRIVER, claim, device_class, either, exactly, gpus, slice_of

RESOURCES = ("gpu", "deviceclass/gpu", "deviceclass/half", "memory.deviceclass/shared")


def charges(*slices: api.ResourceSlice) -> Charges:
    inventory = Inventory(Features.from_gates(ALL_GATES))
    for name, kind in (("gpu", "whole"), ("half", "half"), ("shared", "shared")):
        selector = {"cel": {"expression": f'device.attributes["{DRIVER}"].kind == "{kind}"'}}
        inventory.put_class(device_class(name, selectors=[selector]))
    for found in slices:
        inventory.put_slice(found)
    made = Charges(inventory)
    made.count(RESOURCES)
    return made


def kind(name: str, **more: Any) -> dict[str, Any]:
    return {"attributes": {"kind": {"string": name}}, **more}


WHOLE = slice_of("n", gpus(4, **kind("whole")))
HALVES = slice_of(
    "n",
    [
        {
            "name": "half-0",
            **kind("half"),
            "consumesCounters": [{"counterSet": "board", "counters": {"slices": {"value": "3"}}}],
        },
    ],
    name="halves",
)
COUNTERS = slice_of(
    "n", [], name="counters", pool={"name": "halves", "generation": 1, "resourceSliceCount": 2},
    sharedCounters=[{"name": "board", "counters": {"slices": {"value": "6"}}}],
)  # fmt: skip
SHARED = slice_of(
    "n",
    [{"name": "s-0", **kind("shared"), "allowMultipleAllocations": True, "capacity": {"memory": {"value": "80"}}}],
    name="shared",
)


def spec(*requests: dict[str, Any]) -> api.ResourceClaimSpec:
    return claim("c", *requests).spec


def allocated(*results: dict[str, Any]) -> api.AllocationResult:
    rows = [{"driver": DRIVER, "pool": "n", **result} for result in results]
    return decode({"devices": {"results": rows}}, api.AllocationResult).object


def test_whole_devices_are_counted() -> None:
    made = charges(WHOLE)
    wanted = spec(exactly("r", 3))
    assert made.of_claim(wanted, None) == {"gpu": 3 * ONE, "deviceclass/gpu": 3 * ONE}
    held = allocated({"request": "r", "device": "gpu-0"}, {"request": "r", "device": "gpu-1"})
    assert made.of_claim(wanted, held)["gpu"] == 2 * ONE, "what is held counts, not what was asked for"


def test_all_is_at_least_one_and_then_what_it_got() -> None:
    made = charges(WHOLE)
    wanted = spec({"name": "r", "exactly": {"deviceClassName": "gpu", "allocationMode": "All"}})
    assert made.of_claim(wanted, None)["gpu"] == ONE
    held = allocated(*({"request": "r", "device": f"gpu-{number}"} for number in range(4)))
    assert made.of_claim(wanted, held)["gpu"] == 4 * ONE


def test_the_cheapest_alternative_counts_until_one_is_chosen() -> None:
    made = charges(WHOLE)
    wanted = spec(either("r", ("many", "gpu", 4), ("few", "gpu", 2)))
    assert made.of_claim(wanted, None)["gpu"] == 2 * ONE
    held = allocated(*({"request": "r/many", "device": f"gpu-{number}"} for number in range(4)))
    assert made.of_claim(wanted, held)["gpu"] == 4 * ONE


def test_a_share_counts_as_the_part_of_the_capacity_that_it_takes() -> None:
    made = charges(SHARED)
    wanted = spec(exactly("r", 1, "shared", capacity={"requests": {"memory": "20"}}))
    assert made.of_claim(wanted, None) == {"memory.deviceclass/shared": 20 * ONE}
    held = allocated(
        {"request": "r", "pool": "shared", "device": "s-0", "consumedCapacity": {"memory": "40"}, "shareID": "x"}
    )
    assert made.of_claim(wanted, held) == {"memory.deviceclass/shared": 40 * ONE}


def test_admin_access_is_free_of_charge() -> None:
    made = charges(WHOLE)
    wanted = spec(exactly("r", 1, adminAccess=True))
    held = allocated({"request": "r", "device": "gpu-0", "adminAccess": True})
    assert not sum(made.of_claim(wanted, held).values())


@pytest.mark.parametrize(
    ("name", "weight"), [("nvidia.com/gpu", 1), ("nvidia.com/mig-2g.10gb", 2), ("example.com/nic", 0)]
)
def test_extended_resources_count_as_gpus(name: str, weight: int) -> None:
    assert sum(amount for resource, amount in charges().extended_keys(name) if resource == "gpu") == weight


def test_a_partition_counts_as_the_part_of_the_counters_that_it_draws() -> None:
    made = charges(HALVES, COUNTERS)
    held = allocated({"request": "r", "pool": "halves", "device": "half-0"})
    assert made.of_claim(spec(exactly("r", 1, "half")), held) == {"deviceclass/half": ONE // 2}
