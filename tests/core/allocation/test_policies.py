"""Policy pack: of all valid answers the one that leaves the node least fragmented."""

from __future__ import annotations

from typing import Any

from allot.core.allocation import FIRST_FIT, PACK, POLICIES

from .builders import DRIVER, claim, device, request, same, world
from .scenarios import run


def chosen(scenario: dict[str, Any], policy: str = "pack") -> list[str]:
    results, error, answer = run(scenario, POLICIES[policy])
    assert results is not None, error or answer.summary()
    return [result["device"] for allocation in results for result in allocation["devices"]["results"]]


def shareable(name: str, memory: str) -> dict[str, Any]:
    return device(name, memory=memory) | {"allowMultipleAllocations": True}


def share_of(name: str, memory: str) -> dict[str, Any]:
    result = {"request": "r", "driver": DRIVER, "pool": "pool", "device": name}
    result |= {"shareID": f"share-of-{name}", "consumedCapacity": {"memory": memory}}
    allocation = {"devices": {"results": [result]}}
    return {"metadata": {"namespace": "ns", "name": f"holder-{name}"}, "status": {"allocation": allocation}}


def wants(memory: str) -> dict[str, Any]:
    return {"capacity": {"requests": {"memory": memory}}}


def test_policies_are_known_by_name() -> None:
    assert POLICIES == {"first-fit": FIRST_FIT, "pack": PACK}


def test_pack_takes_the_smallest_device_that_will_do() -> None:
    devices = [device("large", memory="80Gi"), device("small", memory="40Gi")]
    assert chosen(world(devices, claim(request("r"))), "first-fit") == ["large"]
    assert chosen(world(devices, claim(request("r")))) == ["small"]


def test_pack_fills_a_shared_device_that_is_in_use_before_it_opens_another() -> None:
    scenario = world([shareable("fresh", "10Gi"), shareable("used", "10Gi")], claim(request("r", **wants("2Gi"))))
    scenario["allocated"] = [share_of("used", "4Gi")]
    assert chosen(scenario, "first-fit") == ["fresh"]
    assert chosen(scenario) == ["used"]


def test_pack_takes_the_tightest_fit_among_shared_devices_in_use() -> None:
    scenario = world([shareable("loose", "10Gi"), shareable("tight", "10Gi")], claim(request("r", **wants("2Gi"))))
    scenario["allocated"] = [share_of("loose", "3Gi"), share_of("tight", "7Gi")]
    assert chosen(scenario) == ["tight"]


def test_pack_keeps_two_shares_on_one_device() -> None:
    devices = [shareable("a", "10Gi"), shareable("b", "4Gi")]
    requests = [request("r0", **wants("2Gi")), request("r1", **wants("2Gi"))]
    assert chosen(world(devices, claim(*requests))) == ["b", "b"]


def test_pack_breaks_as_few_partitioned_devices_as_possible() -> None:
    halves = [
        device(f"{gpu}-{half}") | {"consumesCounters": [{"counterSet": gpu, "counters": {"memory": {"value": "20Gi"}}}]}
        for half in ("left", "right")
        for gpu in ("gpu0", "gpu1")
    ]
    scenario = world(halves, claim(request("r", 2)), counters={"memory": "0"})
    sets = [{"name": gpu, "counters": {"memory": {"value": "40Gi"}}} for gpu in ("gpu0", "gpu1")]
    scenario["slices"][1]["spec"]["sharedCounters"] = sets
    assert chosen(scenario, "first-fit") == ["gpu0-left", "gpu1-left"]
    assert chosen(scenario) == ["gpu0-left", "gpu0-right"]


def test_pack_takes_the_smallest_group_that_is_large_enough() -> None:
    devices = [device(f"big{n}", numa=0) for n in range(4)] + [device(f"small{n}", numa=1) for n in range(2)]
    scenario = world(devices, claim(request("r", 2), constraints=[same("numa")]))
    assert chosen(scenario, "first-fit") == ["big0", "big1"]
    assert chosen(scenario) == ["small0", "small1"]


def test_pack_keeps_the_alternative_that_the_user_prefers() -> None:
    alternatives = [
        {"name": "two", "deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 2},
        {"name": "one", "deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1},
    ]
    scenario = world([device("a"), device("b")], claim({"name": "r", "firstAvailable": alternatives}))
    assert chosen(scenario) == ["a", "b"]
