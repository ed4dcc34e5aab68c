"""What is refused beside what others hold."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from allot.core.allocation.devices import ClaimID
from allot.core.allocation.features import ALL_FEATURES, Features
from allot.core.allocation.holdings import Conflict, Holdings

A, B, C = ClaimID("default", "a"), ClaimID("default", "b"), ClaimID("other", "c")
DRIVER = "gpu.example.com"


def allocation(*results: dict[str, Any]) -> dict[str, Any]:
    return {"devices": {"results": list(results)}}


def result(device: str, *, pool: str = "n1", admin: bool = False, share: str = "", **consumed: str) -> dict[str, Any]:
    made: dict[str, Any] = {"request": "r", "driver": DRIVER, "pool": pool, "device": device}
    if admin:
        made["adminAccess"] = True
    if share:
        made |= {"shareID": share, "consumedCapacity": consumed}
    return made


def take(holdings: Holdings, claim: ClaimID, *results: dict[str, Any]) -> Conflict | None:
    held = holdings.read(allocation(*results))
    found = holdings.conflict(claim, held)
    if found is None:
        holdings.hold(claim, held)
    return found


def slice_spec(*devices: dict[str, Any], generation: int = 1, counters: dict[str, str] | None = None) -> dict[str, Any]:
    spec: dict[str, Any] = {"driver": DRIVER, "pool": {"name": "n1", "generation": generation}}
    if devices:
        spec["devices"] = list(devices)
    if counters:
        values = {name: {"value": value} for name, value in counters.items()}
        spec["sharedCounters"] = [{"name": "set", "counters": values}]
    return spec


def partition(name: str, **counters: str) -> dict[str, Any]:
    values = {key: {"value": value} for key, value in counters.items()}
    return {"name": name, "consumesCounters": [{"counterSet": "set", "counters": values}]}


def shareable(name: str, **capacity: str) -> dict[str, Any]:
    values = {key: {"value": value} for key, value in capacity.items()}
    return {"name": name, "allowMultipleAllocations": True, "capacity": values}


def test_a_device_that_another_claim_holds_is_refused_naming_the_holder() -> None:
    holdings = Holdings(ALL_FEATURES)
    assert take(holdings, A, result("gpu-0")) is None
    found = take(holdings, B, result("gpu-1"), result("gpu-0"))
    assert found is not None
    assert found.text == "device gpu.example.com/n1/gpu-0 is allocated to claim default/a already"
    assert found.holders == (A,)
    assert holdings.of(B) == ()


def test_a_device_of_the_same_name_in_another_pool_is_another_device() -> None:
    holdings = Holdings(ALL_FEATURES)
    assert take(holdings, A, result("gpu-0")) is None
    assert take(holdings, B, result("gpu-0", pool="n2")) is None


def test_a_released_device_can_be_held_again() -> None:
    holdings = Holdings(ALL_FEATURES)
    take(holdings, A, result("gpu-0"))
    holdings.hold(A, ())
    assert take(holdings, B, result("gpu-0")) is None


def test_admin_access_takes_nothing_and_is_always_possible() -> None:
    holdings = Holdings(ALL_FEATURES)
    assert take(holdings, A, result("gpu-0", admin=True)) is None
    assert take(holdings, B, result("gpu-0")) is None
    assert take(holdings, C, result("gpu-0", admin=True)) is None


def test_a_claim_may_be_written_again_with_what_it_holds() -> None:
    holdings = Holdings(ALL_FEATURES)
    take(holdings, A, result("gpu-0"))
    assert take(holdings, A, result("gpu-0")) is None


def test_shares_of_a_device_go_together_until_its_capacity_is_used_up() -> None:
    holdings = Holdings(ALL_FEATURES)
    holdings.put_slice("s", slice_spec(shareable("gpu-0", memory="10Gi")))
    assert take(holdings, A, result("gpu-0", share="1", memory="6Gi")) is None
    assert take(holdings, B, result("gpu-0", share="2", memory="4Gi")) is None
    found = take(holdings, C, result("gpu-0", share="3", memory="1Gi"))
    assert found is not None
    assert found.text == (
        "capacity memory of device gpu.example.com/n1/gpu-0: 1Gi of 10Gi asked for, "
        "10Gi allocated to claims default/a, default/b already"
    )


def test_a_share_and_the_whole_device_exclude_each_other() -> None:
    holdings = Holdings(ALL_FEATURES)
    take(holdings, A, result("gpu-0", share="1", memory="1Gi"))
    found = take(holdings, B, result("gpu-0"))
    assert found is not None and "is allocated in shares to claim default/a" in found.text
    take(holdings, C, result("gpu-1"))
    found = take(holdings, B, result("gpu-1", share="2", memory="1Gi"))
    assert found is not None
    assert found.text == "share 2 of device gpu.example.com/n1/gpu-1 is allocated to claim other/c already"


def test_a_share_belongs_to_one_claim() -> None:
    holdings = Holdings(ALL_FEATURES)
    take(holdings, A, result("gpu-0", share="1", memory="1"))
    assert take(holdings, B, result("gpu-0", share="1", memory="1")) is not None


def test_without_consumable_capacity_a_share_is_the_whole_device() -> None:
    holdings = Holdings(Features())
    take(holdings, A, result("gpu-0", share="1", memory="1"))
    assert take(holdings, B, result("gpu-0", share="2", memory="1")) is not None


def test_devices_that_share_counters_exclude_each_other_when_too_little_is_left() -> None:
    holdings = Holdings(ALL_FEATURES)
    holdings.put_slice("counters", slice_spec(counters={"memory": "80Gi"}))
    devices = [partition(f"p{number}", memory="40Gi") for number in range(3)]
    holdings.put_slice("devices", slice_spec(*devices))
    assert take(holdings, A, result("p0")) is None
    assert take(holdings, B, result("p1")) is None
    found = take(holdings, C, result("p2"))
    assert found is not None
    assert found.text == (
        "counter memory of counter set set of pool gpu.example.com/n1: 40Gi of 80Gi asked for, "
        "80Gi allocated to claims default/a, default/b already"
    )
    holdings.hold(A, ())
    assert take(holdings, C, result("p2")) is None


def test_counters_are_not_checked_while_the_gate_is_off_or_nothing_is_published() -> None:
    holdings = Holdings(Features())
    holdings.put_slice("counters", slice_spec(counters={"memory": "80Gi"}))
    holdings.put_slice("devices", slice_spec(*(partition(f"p{number}", memory="80Gi") for number in range(2))))
    assert take(holdings, A, result("p0")) is None
    assert take(holdings, B, result("p1")) is None
    holdings = Holdings(ALL_FEATURES)
    assert take(holdings, A, result("p0")) is None
    assert take(holdings, B, result("p1")) is None


def test_only_the_newest_generation_of_a_pool_counts() -> None:
    holdings = Holdings(ALL_FEATURES)
    holdings.put_slice("old", slice_spec(shareable("gpu-0", memory="1Gi")))
    holdings.put_slice("new", slice_spec(shareable("gpu-0", memory="2Gi"), generation=2))
    assert take(holdings, A, result("gpu-0", share="1", memory="1Gi")) is None
    assert take(holdings, B, result("gpu-0", share="2", memory="1Gi")) is None
    holdings.delete_slice("new")
    assert take(holdings, C, result("gpu-0", share="3", memory="1Gi")) is not None


CLAIMS = [ClaimID("ns", str(number)) for number in range(4)]
_ACTS = st.lists(st.tuples(st.sampled_from(CLAIMS), st.sets(st.integers(0, 5), max_size=3)), max_size=40)


@given(_ACTS)
def test_counters_are_never_exceeded_and_checks_equal_a_recount(acts: list[tuple[ClaimID, set[int]]]) -> None:
    holdings = Holdings(ALL_FEATURES)
    holdings.put_slice("counters", slice_spec(counters={"unit": "6"}))
    sizes = [1, 1, 2, 2, 3, 4]
    holdings.put_slice(
        "devices", slice_spec(*(partition(f"p{number}", unit=str(size)) for number, size in enumerate(sizes)))
    )
    model: dict[ClaimID, set[int]] = {}
    for claim, devices in acts:
        others = [device for other, held in model.items() if other != claim for device in held]
        taken, wanted = sum(sizes[device] for device in others), sum(sizes[device] for device in devices)
        # What a claim asks for in itself is the validation's business, not this one's.
        fits = not devices & set(others) and (not taken or not wanted or taken + wanted <= 6)
        found = take(holdings, claim, *(result(f"p{device}") for device in sorted(devices)))
        assert (found is None) == fits
        if fits:
            model[claim] = devices
