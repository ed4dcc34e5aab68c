"""What is said about claims that do not fit: which request, which devices, what stood in the way."""

from __future__ import annotations

from typing import Any

from allot.core.explain import Obstacle

from .builders import DRIVER, claim, device, different, request, same, world
from .scenarios import run

MEMORY_80 = f'device.capacity["{DRIVER}"].memory.compareTo(quantity("80Gi")) >= 0'
IS_GPU = f'device.driver == "{DRIVER}"'


def refused(scenario: dict[str, Any]) -> Any:
    results, error, answer = run(scenario)
    assert (results, error) == (None, None)
    return answer


def summary(scenario: dict[str, Any]) -> list[str]:
    return refused(scenario).summary()


def test_devices_are_grouped_by_what_is_wrong_with_them() -> None:
    small = [device(f"small{n}", memory="40Gi") for n in range(5)]
    large = [device(f"large{n}", memory="80Gi") for n in range(3)]
    scenario = world(
        small + large,
        claim(request("gpu", 1, MEMORY_80)),
        selectors=(IS_GPU,),
        in_use={f"large{n}": f"ml/train-{n}" for n in range(3)},
    )
    assert summary(scenario) == [
        'request "gpu": 8 devices in class gpu: 5 have memory 40Gi, need 80Gi; '
        "3 are in use (claims ml/train-0, ml/train-1, ml/train-2)"
    ]


def test_many_holders_are_counted_not_listed() -> None:
    devices = [device(f"d{n}") for n in range(5)]
    scenario = world(devices, claim(request("gpu")), in_use={f"d{n}": f"ml/train-{n}" for n in range(5)})
    assert summary(scenario) == ['request "gpu": 5 devices in class gpu: 5 are in use (claim ml/train-0 and 4 more)']


def test_a_selector_is_explained_by_the_part_that_decided() -> None:
    expression = f'{IS_GPU} && device.attributes["{DRIVER}"].model == "h100"'
    reason = refused(world([device("d0", model="a100")], claim(request("gpu", 1, expression)))).reasons[0]
    (found,) = reason.in_the_way
    assert found.obstacle == Obstacle.SELECTOR
    assert found.device == f"{DRIVER}/pool/d0"
    assert found.expression == f'device.attributes["{DRIVER}"].model == "h100"'
    assert (found.actual, found.needed) == ('"a100"', '"h100"')
    assert reason.sentence() == 'request "gpu": 1 device in class gpu: 1 has model "a100", need "h100"'


def test_devices_outside_the_class_are_told_when_there_are_no_others() -> None:
    scenario = world([device("d0")], claim(request("gpu")), selectors=('device.driver == "nic.example.com"',))
    assert summary(scenario) == [
        'request "gpu": no devices in class gpu on node node: 1 has driver "gpu.example.com", need "nic.example.com"'
    ]


def test_a_node_without_devices_says_so() -> None:
    assert summary(world([], claim(request("gpu")))) == ['request "gpu": no devices in class gpu on node node']


def test_a_taint_is_named() -> None:
    tainted = device("d0") | {"taints": [{"key": "ecc", "value": "errors", "effect": "NoSchedule"}]}
    assert summary(world([tainted], claim(request("gpu")))) == [
        'request "gpu": 1 device in class gpu: 1 has taint ecc=errors:NoSchedule that is not tolerated'
    ]


def test_a_counter_says_how_much_is_short_and_who_has_it() -> None:
    devices = [device("whole", counters={"memory": "40Gi"}), device("half", counters={"memory": "20Gi"})]
    scenario = world(devices, claim(request("gpu")), counters={"memory": "40Gi"}, in_use={"half": "ml/a"})
    assert summary(scenario) == [
        'request "gpu": 2 devices in class gpu: 1 needs 40Gi of counter set/memory, '
        "and 20Gi of 40Gi are free (claim ml/a); 1 is in use (claim ml/a)"
    ]


def test_shared_capacity_says_how_much_is_left() -> None:
    shared = device("d0", memory="10Gi") | {"allowMultipleAllocations": True}
    scenario = world([shared], claim(request("gpu", capacity={"requests": {"memory": "4Gi"}})))
    result = {"request": "r", "driver": DRIVER, "pool": "pool", "device": "d0", "shareID": "x"}
    result["consumedCapacity"] = {"memory": "8Gi"}
    holder = {
        "metadata": {"namespace": "ml", "name": "a"},
        "status": {"allocation": {"devices": {"results": [result]}}},
    }
    scenario["allocated"] = [holder]
    (sentence,) = summary(scenario)
    assert sentence.startswith(
        'request "gpu": 1 device in class gpu: 1 has memory 2Gi left of 10Gi, need 4Gi (claim ml/a'
    )


def test_a_constraint_shows_the_values_that_clash() -> None:
    devices = [device(f"d{n}", numa=n) for n in range(3)]
    assert summary(world(devices, claim(request("gpu", 2), constraints=[same("numa")]))) == [
        f'request "gpu": 3 devices in class gpu: 3 are free; the claim needs the same {DRIVER}/numa, they have 0, 1, 2'
    ]
    devices = [device(f"d{n}", numa=1) for n in range(3)]
    assert summary(world(devices, claim(request("gpu", 2), constraints=[different("numa")]))) == [
        f'request "gpu": 3 devices in class gpu: 3 are free; '
        f"the claim needs different values of {DRIVER}/numa, they have 1 (3 devices)"
    ]


def test_requests_that_compete_are_told_together() -> None:
    scenario = world([device("d0")], claim(request("a"), request("b")))
    assert summary(scenario) == [
        'requests "a", "b": 1 device in class gpu: 1 is free; 2 requests compete for 1 device and need 2'
    ]


def test_an_incomplete_pool_is_named() -> None:
    scenario = world([device("d0")], claim(request("gpu")))
    scenario["slices"][0]["spec"]["pool"]["resourceSliceCount"] = 2
    assert summary(scenario) == [
        'request "gpu": 1 device in class gpu: '
        "1 is in pool gpu.example.com/pool, which is incomplete: its driver has not published all slices"
    ]


def test_reasons_are_not_made_for_claims_that_fit() -> None:
    results, _, answer = run(world([device("d0")], claim(request("gpu"))))
    assert results is not None
    assert not hasattr(answer, "reasons")
