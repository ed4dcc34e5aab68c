"""Scenarios 88 to 96: slices come and go with their drivers, and stay over short absences and updates."""

from __future__ import annotations

import time
from typing import Any

import pytest

from e2e.scenarios.site import WIPE_S
from e2e.scenarios.world import World

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="session")]

_ONE = ({"devices": [{"name": "gpu-0"}]},)


async def no_slices(world: World, driver: str = "") -> None:
    """Until a driver has none on n1."""

    async def none() -> bool:
        return not await world.slices_of("n1", driver)

    await world.until(none, "the end of all slices")


async def meanwhile(world: World) -> None:
    """Until a driver that never serves has lost its slices: one that has gone before it, and not come back, would have, too."""
    driver = f"other.{world.driver}"
    await world.slice_("n1", [{"name": "gpu-0"}], driver=driver)
    await world.plugin(driver=driver).start_registration()
    await no_slices(world, driver)


async def uids(world: World, driver: str = "") -> list[str]:
    """Which slices a driver has on n1."""
    return [each["metadata"]["uid"] for each in await world.slices_of("n1", driver)]


async def test_88_an_agent_that_starts_deletes_the_slices_of_its_own_node_only(world: World) -> None:
    for node in ("n1", "n2"):
        await world.slice_(node, [{"name": "gpu-0"}])
    agent = world.site.agents["n1"]
    agent.stop()
    assert len(await world.slices_of("n1")) == 1
    agent.start()
    await no_slices(world)
    assert len(await world.slices_of("n2")) == 1


async def test_89_the_slices_of_a_driver_that_goes_follow_it_after_a_while(world: World) -> None:
    driver = await world.gpus("n1", 1)
    begin = time.monotonic()
    driver.stop()
    await no_slices(world)
    # A busy machine makes it later, never earlier.
    assert time.monotonic() - begin >= WIPE_S


async def test_90_the_slices_of_a_driver_that_never_serves_are_deleted(world: World) -> None:
    await world.slice_("n1", [{"name": "gpu-0"}])
    plugin = world.plugin()
    await plugin.start_registration()
    await no_slices(world)
    assert plugin.statuses == [(True, "")]


async def test_91_slices_stay_when_the_service_is_away_for_a_moment(world: World) -> None:
    plugin = await world.plugin().start()
    await world.slice_("n1", [{"name": "gpu-0"}])
    before = await uids(world)
    await plugin.stop_service()
    # As short as can be: a gap that a busy machine makes too long would be no moment any more.
    await plugin.start_service()
    await meanwhile(world)
    assert await uids(world) == before


async def one_pod(world: World, name: str, driver: str) -> None:
    """A pod with a device of a driver, from its beginning to its end."""
    request = world.request()
    if await world.find("deviceclasses", world.class_name) is None:
        await world.device_class(f'device.driver == "{driver}"')
    await world.claim(name, request)
    await world.pod(name, claims={"gpu": name})
    await world.running(name)
    await world.delete_pod(name)


@pytest.mark.parametrize("is_long", [False, True], ids=["name", "long name"])
async def test_92_an_update_moves_calls_to_the_newer_instance_and_keeps_the_slices(world: World, is_long: bool) -> None:
    name = f"{world.namespace}.{'x' * (62 - len(world.driver))}.example.com" if is_long else world.driver
    assert len(name) == (63 if is_long else len(world.driver))
    old = world.driver_on("n1", driver=name, instance="old", pools=_ONE)
    old.start()
    await world.published("n1", name)
    before = await uids(world, name)
    await one_pod(world, "p1", name)
    new = world.driver_on("n1", driver=name, instance="new", pools=_ONE)
    new.start()
    await one_pod(world, "p2", name)
    assert [each.claim for each in new.said("prepare")] == ["p2"]
    old.stop()
    await one_pod(world, "p3", name)
    assert [each.claim for each in old.said("prepare")] == ["p1"]
    assert [each.claim for each in new.said("unprepare")] == ["p2", "p3"]
    assert await uids(world, name) == before


async def test_93_after_a_failed_update_the_old_instance_serves(world: World) -> None:
    old = world.driver_on("n1", instance="old", pools=_ONE)
    old.start()
    host = world.host()
    new = world.driver_on("n1", instance="new", pools=_ONE, host=host)
    new.start()
    host.kill()
    before = await uids(world)
    await one_pod(world, "p1", world.driver)
    assert [each.claim for each in old.said("prepare")] == ["p1"]
    assert await uids(world) == before
    new.forget()


async def test_94_slices_stay_over_an_update_with_a_gap_and_go_with_the_driver(world: World) -> None:
    driver = await world.gpus("n1", 1)
    before = await uids(world)
    driver.stop()
    driver.start()
    await meanwhile(world)
    assert await uids(world) == before
    driver.stop()
    await no_slices(world)


async def test_95_slices_that_somebody_deletes_are_made_again(world: World) -> None:
    await world.gpus("n1", 1)
    [before] = await uids(world)
    await world.kind("resourceslices").delete_collection(field_selector=f"spec.driver={world.driver}")

    async def again() -> bool:
        found = await uids(world)
        return len(found) == 1 and found[0] != before

    await world.until(again, "a new slice")


def maximal_device(number: int) -> dict[str, Any]:
    """As many attributes and capacities as a device can have, with names and values as long as they can be."""
    return {
        "name": f"device-{number}".ljust(63, "x"),
        "attributes": {f"attribute_{each}_".ljust(32, "x"): {"string": "v" * 64} for each in range(24)},
        "capacity": {f"capacity_{each}_".ljust(32, "x"): {"value": f"{each}Gi"} for each in range(8)},
    }


async def test_96_ten_slices_that_are_as_large_as_they_may_be(world: World) -> None:
    await world.publish("n1", [maximal_device(number) for number in range(1280)])
    found = await world.published("n1", count=10)
    assert [len(each["spec"]["devices"]) for each in found] == [128] * 10
    assert {each["spec"]["pool"]["resourceSliceCount"] for each in found} == {10}
