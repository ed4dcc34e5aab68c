"""Scenarios 47 to 51: pods wait for what can help them."""

from __future__ import annotations

import pytest

from e2e.scenarios.world import World

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="session")]


async def test_47_a_pod_waits_for_its_device_class(world: World) -> None:
    await world.gpus("n1", 1)
    await world.template("single")
    await world.pod("p1", templates={"gpu": "single"})
    message = await world.pending("p1", "does not exist")
    assert f"request gpu: device class {world.class_name} does not exist" in message
    await world.device_class()
    await world.running("p1")


async def test_48_a_pod_waits_for_a_class_that_selects_something(world: World) -> None:
    await world.gpus("n1", 1)
    await world.device_class("false")
    await world.template("single")
    await world.pod("p1", templates={"gpu": "single"})
    await world.pending("p1", "cannot allocate all claims")
    selectors = [{"cel": {"expression": f'device.driver == "{world.driver}"'}}]
    await world.patch("deviceclasses", world.class_name, {"spec": {"selectors": selectors}})
    await world.running("p1")


async def test_49_a_pod_with_an_extended_resource_waits_for_its_class(world: World) -> None:
    await world.gpus("n1", 1)
    resource = f"{world.namespace}.example.com/gpu"
    amounts = {resource: "1"}
    await world.pod("p1", resources={"requests": amounts, "limits": amounts})
    await world.pending("p1", f"Insufficient {resource}")
    await world.device_class(extendedResourceName=resource)
    await world.running("p1")


async def test_50_a_selector_that_fails_at_run_time_ends_the_attempt_and_says_where(world: World) -> None:
    await world.gpus("n1", 1, model="a")
    await world.gpus("n2", 1)
    await world.device_class()
    expression = f'device.attributes["{world.driver}"].model == "a"'
    await world.template("single", world.request(selectors=[{"cel": {"expression": expression}}]))
    await world.pod("p1", templates={"gpu": "single"})
    message = await world.pending("p1", "CEL runtime error")
    assert "no such key: model" in message
    conditions = (await world.get("pods", "p1"))["status"]["conditions"]
    [scheduled] = [condition for condition in conditions if condition["type"] == "PodScheduled"]
    assert scheduled["reason"] == "SchedulerError"


async def test_51_a_pod_waits_for_a_driver(world: World) -> None:
    await world.device_class()
    await world.template("single")
    await world.pod("p1", templates={"gpu": "single"})
    await world.pending("p1", "cannot allocate all claims")
    await world.publish("n1", [{"name": "gpu-0"}])
    await world.running("p1")


async def test_a_pod_whose_claim_does_not_exist_is_told_so_and_starts_when_it_comes(world: World) -> None:
    await world.gpus("n1", 1)
    await world.device_class()
    await world.pod("p1", claims={"gpu": "later"})
    [event, *_] = await world.events("p1", "FailedScheduling")
    assert f'could not find ResourceClaim "{world.namespace}/later"' in event["note"]
    await world.claim("later")
    await world.running("p1")


async def test_a_pod_that_never_fits_does_not_keep_others_waiting(world: World) -> None:
    await world.gpus("n1", 1)
    await world.device_class()
    await world.template("too-many", world.request(count=5))
    await world.template("single")
    for number in range(3):
        await world.pod(f"big{number}", templates={"gpu": "too-many"}, priority=None)
    await world.pod("p1", templates={"gpu": "single"})
    await world.running("p1")
    await world.pending("big0", "cannot allocate all claims")
