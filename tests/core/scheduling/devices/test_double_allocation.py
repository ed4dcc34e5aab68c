"""Devices that two schedulers gave away: found, and decided which allocation goes."""

from __future__ import annotations

from typing import Any

from allot.core.scheduling.devices.claims import Claims
from allot.core.scheduling.devices.double_allocation import DoubleAllocation

from ..device_world import allocation, ask, claim, device_class, gpus, node, place, pod, slice_of, world


def at(second: int, **found: Any) -> dict[str, Any]:
    return {"allocation": {**found, "allocationTimestamp": f"2026-01-01T00:00:{second:02d}Z"}}


def test_nothing_is_double_as_long_as_every_device_has_one_holder() -> None:
    claims = world("n1")
    claims.put_claim(claim("a", status=at(1, **allocation("gpu-0"))))
    claims.put_claim(claim("b", status=at(2, **allocation("gpu-1"))))
    assert (
        claims.double_allocations("ns", "a")
        == claims.double_allocations("ns", "b")
        == claims.double_allocations("ns", "none")
        == ()
    )


def test_of_two_holders_the_later_one_has_to_go() -> None:
    claims = world("n1")
    claims.put_claim(claim("a", version=5, status=at(2, **allocation("gpu-0"))))
    claims.put_claim(claim("b", version=9, status=at(1, **allocation("gpu-0"))))
    (double,) = claims.double_allocations("ns", "a")
    assert double.text == "device gpu.example.com/n1/gpu-0 is allocated to claims ns/a and ns/b"
    assert double.later.name == "a"
    assert claims.double_allocations("ns", "b") == (double,)


def test_at_the_same_time_the_higher_version_then_the_uid_decides() -> None:
    claims = world("n1")
    claims.put_claim(claim("a", version=10, status=at(1, **allocation("gpu-0"))))
    claims.put_claim(claim("b", version=9, status=at(1, **allocation("gpu-0"))))
    assert claims.double_allocations("ns", "b")[0].later.name == "a"
    claims.put_claim(claim("a", version=9, status=at(1, **allocation("gpu-0"))))
    assert claims.double_allocations("ns", "b")[0].later.name == "b"


def test_what_is_only_decided_goes_before_what_is_stored() -> None:
    claims = world("n1")
    claims.put_claim(claim("mine"))
    place(claims, pod("p", "mine"), node("n1"))
    claims.put_claim(claim("theirs", status=at(59, **allocation("gpu-0"))))
    assert claims.double_allocations("ns", "theirs")[0].later.name == "mine"


def test_admin_access_doubles_nothing() -> None:
    claims = world("n1")
    claims.put_claim(claim("a", status=at(1, **allocation("gpu-0"))))
    claims.put_claim(claim("b", status=at(2, **allocation("gpu-0", adminAccess=True))))
    assert claims.double_allocations("ns", "a") == claims.double_allocations("ns", "b") == ()


def shared() -> Claims:
    claims = Claims()
    claims.put_class(device_class())
    device = {"name": "gpu-0", "allowMultipleAllocations": True, "capacity": {"mem": {"value": "8Gi"}}}
    claims.put_slice(slice_of("n1", [device]))
    return claims


def share(id_: str, amount: str) -> dict[str, Any]:
    return allocation("gpu-0", shareID=id_, consumedCapacity={"mem": amount})  # type: ignore[arg-type]


def test_shares_are_double_if_there_is_not_enough_for_all() -> None:
    claims = shared()
    claims.put_claim(claim("a", status=at(1, **share("1", "5Gi"))))
    claims.put_claim(claim("b", status=at(2, **share("2", "3Gi"))))
    assert claims.double_allocations("ns", "a") == ()
    claims.put_claim(claim("c", status=at(3, **share("3", "1Gi"))))
    (double,) = claims.double_allocations("ns", "a")
    assert double == DoubleAllocation(
        "capacity mem of device gpu.example.com/n1/gpu-0: 9Gi of 8Gi is allocated to claims ns/a, ns/b and ns/c",
        double.holders,
    )
    assert double.later.name == "c"


def test_a_device_in_shares_cannot_be_held_whole() -> None:
    claims = shared()
    claims.put_claim(claim("a", status=at(1, **share("1", "1Gi"))))
    claims.put_claim(claim("b", status=at(2, **allocation("gpu-0"))))
    assert claims.double_allocations("ns", "a")[0].later.name == "b"


def test_counters_can_be_overdrawn_too() -> None:
    claims = Claims()
    claims.put_class(device_class())
    consumes = [{"counterSet": "set", "counters": {"mem": {"value": "6"}}}]
    pool = {"name": "n1", "generation": 1, "resourceSliceCount": 2}
    claims.put_slice(slice_of("n1", gpus(2, consumesCounters=consumes), name="devices", pool=pool))
    counters = [{"name": "set", "counters": {"mem": {"value": "10"}}}]
    claims.put_slice(slice_of("n1", [], name="counters", pool=pool, sharedCounters=counters))
    claims.put_claim(claim("c"))
    assert ask(claims, pod("p", "c")).exact(node("n1")) is None
    claims.put_claim(claim("a", status=at(1, **allocation("gpu-0"))))
    assert claims.double_allocations("ns", "a") == ()
    claims.put_claim(claim("b", status=at(2, **allocation("gpu-1"))))
    (double,) = claims.double_allocations("ns", "a")
    assert double.text == "counter set/mem of pool gpu.example.com/n1 is overcommitted by claims ns/a and ns/b"
    assert double.later.name == "b"
