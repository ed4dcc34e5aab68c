"""Scenarios 65 to 87: agent and drivers talk, and either may fail, be late or be away."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Sequence
from typing import Any

import pytest

from e2e.scenarios.site import DriverHandle
from e2e.scenarios.world import World
from node.dra.plugin import CountedSocket, DriverOnSockets

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="session")]

PREPARE, UNPREPARE = "NodePrepareResources", "NodeUnprepareResources"
FAILED = "FailedPrepareDynamicResources"


async def one_gpu(world: World) -> DriverHandle:
    """A driver with a device, a class and a claim named c."""
    driver = await world.gpus("n1", 1)
    await world.device_class()
    await world.claim("c")
    return driver


async def one_plugin(world: World) -> DriverOnSockets:
    """The same with a driver whose answers the test gives."""
    plugin = await world.plugin().start()
    await world.slice_("n1", [{"name": "gpu-0"}])
    await world.device_class()
    await world.claim("c")
    return plugin


# --- registration ---


async def test_65_a_driver_is_registered_and_publishes_its_devices(world: World) -> None:
    plugin = await world.plugin(driver=f"{world.namespace}.bare.example.com").start()
    await world.until(lambda: plugin.statuses, "the registration")
    assert (plugin.infos, plugin.statuses) == (1, [(True, "")])
    await world.gpus("n1", 2)
    [made] = await world.slices_of("n1")
    node = await world.get("nodes", "n1")
    [owner] = made["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["uid"]) == ("Node", "n1", node["metadata"]["uid"])
    assert (made["spec"]["pool"]["name"], made["spec"]["pool"]["resourceSliceCount"]) == ("n1", 1)
    assert made["spec"]["nodeName"] == "n1"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=["stopped", "killed"])
async def test_66_drivers_are_registered_again_when_the_agent_comes_back(world: World, number: int) -> None:
    plugin = await world.plugin().start()
    await world.until(lambda: plugin.statuses, "the registration")
    agent = world.site.agents["n1"]
    agent.stop(number)
    agent.start()
    await world.until(lambda: plugin.statuses == [(True, "")] * 2, "the second registration")


async def test_67_a_driver_that_comes_back_is_registered_again(world: World) -> None:
    driver = await one_gpu(world)
    driver.stop()
    driver.start()
    await world.pod("p1", claims={"gpu": "c"})
    await world.running("p1")


async def test_67_a_driver_that_was_killed_still_knows_what_it_has_prepared(world: World) -> None:
    host = world.host()
    driver = world.driver_on("n1", host=host, pools=({"devices": [{"name": "gpu-0"}]},))
    driver.start()
    await world.device_class()
    await world.claim("c")
    await world.pod("p1", claims={"gpu": "c"})
    await world.running("p1")
    host.kill()
    host.start()
    await world.until(lambda: len(driver.said("registered")) == 2, "the second registration")
    await world.delete_pod("p1")
    assert [each.claim for each in driver.said("unprepare")] == ["c"]


@pytest.mark.parametrize("failing", ["info_failures", "notify_failures"], ids=["68-info", "69-notify"])
async def test_68_and_69_a_registration_that_fails_is_tried_again(world: World, failing: str) -> None:
    plugin = world.plugin()
    setattr(plugin, failing, 2)
    await plugin.start()
    await world.until(lambda: plugin.infos >= 3 and plugin.statuses[-1:] == [(True, "")], "the registration")
    await world.slice_("n1", [{"name": "gpu-0"}])
    await world.device_class()
    await world.claim("c")
    await world.pod("p1", claims={"gpu": "c"})
    await world.running("p1")


@pytest.mark.parametrize("common_socket", [False, True], ids=["two sockets", "one socket"])
async def test_80_the_service_may_come_after_the_registration(world: World, common_socket: bool) -> None:
    plugin = world.plugin(common_socket=common_socket)
    await plugin.start_registration()
    await world.until(lambda: plugin.statuses == [(True, "")], "the registration")
    await world.slice_("n1", [{"name": "gpu-0"}])
    await world.device_class()
    await world.claim("c")
    await world.pod("p1", claims={"gpu": "c"})
    if not common_socket:
        await world.events("p1", FAILED, "code = Unavailable")
        await plugin.start_service()
    await world.running("p1")


async def test_82_an_instance_is_connected_to_once(world: World) -> None:
    plugin = world.plugin()
    await plugin.start_service()
    async with CountedSocket(plugin) as counted:
        await plugin.start_registration()
        await world.slice_("n1", [{"name": "gpu-0"}])
        await world.device_class()
        await world.claim("c")
        for name in ("p1", "p2"):
            await world.pod(name, claims={"gpu": "c"})
            await world.running(name)
            await world.delete_pod(name)
        assert [operation for _, operation, _ in plugin.calls] == [PREPARE, UNPREPARE] * 2
        assert counted.connections == 1


# --- prepare ---


async def test_70_a_pod_that_was_bound_without_an_agent_runs_when_there_is_one(world: World) -> None:
    await one_gpu(world)
    agent = world.site.agents["n1"]
    agent.stop()
    await world.pod("p1", claims={"gpu": "c"})

    async def bound() -> bool:
        return bool((await world.get("pods", "p1"))["spec"].get("nodeName"))

    await world.until(bound, "the binding")
    agent.start()
    await world.running("p1")


async def test_71_a_driver_that_does_not_answer_holds_up_its_pod_and_no_other(world: World) -> None:
    driver = await one_gpu(world)
    driver.want(blocks=True)
    await world.pod("p1", claims={"gpu": "c"})
    await world.until(lambda: driver.said("prepare"), "the call")
    await world.pod("other", nodeName="n1")
    await world.running("other")
    await world.is_pending("p1")
    # In the end the call is given up, which is told.
    await world.events("p1", FAILED)
    await world.is_pending("p1")
    driver.want(blocks=False)
    await world.running("p1")


@pytest.mark.parametrize("restarts", [False, True], ids=["72", "73-restart"])
async def test_72_and_73_a_prepare_that_fails_is_told_and_tried_again(world: World, restarts: bool) -> None:
    driver = await one_gpu(world)
    driver.want(refuses="not today")
    await world.pod("p1", claims={"gpu": "c"})
    [event, *_] = await world.events("p1", FAILED)
    assert event["note"].startswith("Failed to prepare dynamic resources: prepare dynamic resources: ")
    assert "not today" in event["note"] and event["type"] == "Warning"
    await world.is_pending("p1")
    if restarts:
        agent = world.site.agents["n1"]
        agent.stop(signal.SIGKILL)
        agent.start()
    driver.want(refuses="")
    await world.running("p1")


async def test_76_what_was_deleted_while_the_agent_was_away_is_not_prepared_again(world: World) -> None:
    plugin = await one_plugin(world)

    async def forever(*_: Any) -> Any:
        await asyncio.sleep(600)

    plugin.around = forever
    await world.pod("p1", claims={"gpu": "c"})
    await world.until(lambda: plugin.asked(PREPARE), "the call")
    agent = world.site.agents["n1"]
    agent.stop(signal.SIGKILL)
    await world.delete_pod("p1", grace_s=0)
    plugin.around = None
    agent.start()
    # What was begun is undone.
    await world.until(lambda: plugin.asked(UNPREPARE), "the undoing")
    assert len(plugin.asked(PREPARE)) == 1


async def test_79_a_pod_that_was_put_on_a_node_by_hand_does_not_start_without_its_claim(world: World) -> None:
    driver = await one_gpu(world)
    await world.pod("p1", claims={"gpu": "c"}, nodeName="n1")
    [event, *_] = await world.events("p1", FAILED)
    assert "c" in event["note"]
    # It would have been prepared while another one was started.
    await world.pod("other", nodeName="n1")
    await world.running("other")
    await world.is_pending("p1")
    assert not driver.said("prepare")
    # Another pod has the claim allocated; then the first is let in as well.
    await world.pod("p2", claims={"gpu": "c"})
    await world.running("p2", "p1")
    claim = await world.get("resourceclaims", "c")
    assert {entry["name"] for entry in claim["status"]["reservedFor"]} == {"p1", "p2"}


# --- unprepare ---


@pytest.mark.parametrize("restarts", [False, True], ids=["same agent", "restart"])
async def test_74_a_pod_is_over_when_its_devices_are_given_back(world: World, restarts: bool) -> None:
    driver = await one_gpu(world)
    driver.want(refuses_unprepare="still busy")
    await world.pod("p1", claims={"gpu": "c"}, script="true", restartPolicy="Never")
    await world.until(lambda: driver.said("unprepare"), "the first try")
    await world.events("p1", "FailedToUnprepareDynamicResources", "still busy")
    pod = await world.get("pods", "p1")
    assert pod["status"]["phase"] not in ("Succeeded", "Failed")
    if restarts:
        agent = world.site.agents["n1"]
        agent.stop(signal.SIGKILL)
        agent.start()
    driver.want(refuses_unprepare="")
    await world.in_phase("p1", "Succeeded")
    assert world.site.agents["n1"].claims(world.namespace) == []


@pytest.mark.parametrize("grace_s", [None, 0], ids=["deleted", "force-deleted"])
async def test_75_a_deleted_pod_gives_its_devices_back_whenever_that_works(world: World, grace_s: int | None) -> None:
    driver = await one_gpu(world)
    await world.pod("p1", claims={"gpu": "c"})
    await world.running("p1")
    driver.want(refuses_unprepare="still busy")
    await world.delete_pod("p1", grace_s=grace_s, wait=False)
    await world.until(lambda: len(driver.said("unprepare")) >= 2, "two tries")
    assert world.site.agents["n1"].claims(world.namespace) == ["c"]
    assert (await world.find("pods", "p1") is None) == (grace_s == 0)
    driver.want(refuses_unprepare="")
    await world.gone("pods", "p1")
    await world.no_claims_on(world.site.agents["n1"])


async def test_77_a_force_deleted_pod_gives_its_devices_back(world: World) -> None:
    driver = await one_gpu(world)
    await world.pod("p1", claims={"gpu": "c"})
    await world.running("p1")
    await world.delete_pod("p1", grace_s=0)
    await world.until(lambda: driver.said("unprepare"), "the call")
    await world.no_claims_on(world.site.agents["n1"])


async def test_78_a_claim_of_the_same_name_waits_for_the_one_before(world: World) -> None:
    driver = await one_gpu(world)
    await world.pod("p1", claims={"gpu": "c"})
    await world.running("p1")
    driver.want(refuses_unprepare="still busy")
    await world.delete_pod("p1", grace_s=0)
    await world.kind("resourceclaims").delete("c", world.namespace)
    await world.gone("resourceclaims", "c")
    await world.claim("c")
    await world.pod("p1", claims={"gpu": "c"})
    await world.events("p1", FAILED, "old ResourceClaim with same name")
    await world.is_pending("p1")
    driver.want(refuses_unprepare="")
    await world.running("p1")


async def test_77_what_a_pod_left_is_given_back_although_agent_and_driver_were_killed(world: World) -> None:
    host = world.host()
    driver = world.driver_on("n1", host=host, pools=({"devices": [{"name": "gpu-0"}, {"name": "gpu-1"}]},))
    driver.start()
    await world.device_class()
    for name in ("stays", "goes"):
        await world.claim(name)
        await world.pod(name, claims={"gpu": name})
    await world.running("stays", "goes")
    agent = world.site.agents["n1"]
    agent.stop(signal.SIGKILL)
    host.kill()
    await world.delete_pod("goes", grace_s=0)
    host.start()
    agent.start()
    await world.until(lambda: agent.claims(world.namespace) == ["stays"], "one claim less")
    [pod] = await world.running("stays")
    assert pod["status"]["containerStatuses"][0]["restartCount"] == 0
    assert len(agent.cdi_files(world.driver)) == 1


async def test_81_a_service_that_was_away_gives_devices_back(world: World) -> None:
    plugin = await one_plugin(world)
    await world.pod("p1", claims={"gpu": "c"})
    await world.running("p1")
    await plugin.stop_service()
    await plugin.start_service()
    await world.delete_pod("p1")
    assert len(plugin.asked(UNPREPARE)) == 1


# --- two drivers ---


async def two_drivers(world: World) -> Sequence[DriverHandle]:
    """Each with a device, and one claim with a request for each."""
    other = f"{world.namespace}.nic.example.com"
    first = await world.gpus("n1", 1)
    second = await world.publish("n1", [{"name": "nic-0"}], driver=other)
    await world.device_class()
    await world.device_class(f'device.driver == "{other}"', ".nic")
    nic = {"name": "nic", "exactly": {"deviceClassName": f"{world.class_name}.nic"}}
    await world.claim("c", world.request(), nic)
    return first, second


@pytest.mark.parametrize("failing", ["", "refuses", "refuses_unprepare"], ids=["fine", "prepare", "unprepare"])
@pytest.mark.parametrize("restarts", [False, True], ids=["same agent", "restart"])
async def test_83_one_of_two_drivers_may_fail_for_a_while(world: World, failing: str, restarts: bool) -> None:
    drivers = await two_drivers(world)
    if failing:
        drivers[1].want(**{failing: "not today"})
    await world.pod("p1", claims={"both": "c"}, script="true", restartPolicy="Never")
    step = "unprepare" if failing == "refuses_unprepare" else "prepare"
    await world.until(lambda: drivers[1].said(step), "the call")
    if restarts:
        agent = world.site.agents["n1"]
        agent.stop(signal.SIGKILL)
        agent.start()
    drivers[1].want(refuses="", refuses_unprepare="")
    await world.in_phase("p1", "Succeeded")
    assert all(each.said("prepare") and each.said("unprepare") for each in drivers)
    assert world.site.agents["n1"].claims(world.namespace) == []


async def test_84_metrics_tell_how_many_claims_each_driver_has_in_use(world: World) -> None:
    drivers = await two_drivers(world)
    await world.pod("p1", claims={"both": "c"})
    await world.running("p1")

    async def in_use() -> dict[str, float]:
        answer = await world.client.request("GET", "/api/v1/nodes/n1/proxy/metrics")
        lines = answer.body.decode().splitlines()
        name = "dra_resource_claims_in_use{"
        return {line.split('"')[1]: float(line.split()[-1]) for line in lines if line.startswith(name)}

    assert await in_use() == {"<any>": 1, **{each.wanted.driver: 1 for each in drivers}}
    await world.delete_pod("p1")
    assert await in_use() == {"<any>": 0}


# --- operations that are not needed ---


@pytest.mark.parametrize(("skipped", "runs"), [(["*"], True), ([], False), ([UNPREPARE], False)])
async def test_86_devices_that_need_no_node_operations_need_no_plugin(
    world: World, skipped: list[str], runs: bool
) -> None:
    more: dict[str, Any] = {"skipNodeOperations": skipped} if skipped else {}
    await world.slice_("n1", [{"name": "gpu-0"}], **more)
    await world.device_class()
    await world.claim("c")
    await world.pod("p1", claims={"gpu": "c"})
    if not runs:
        await world.events("p1", FAILED, f"DRA driver {world.driver} is not registered")
        await world.is_pending("p1")
        return
    await world.running("p1")
    events = await world.events("p1", "Scheduled")
    assert events and not [each for each in await world.all("events") if each.get("reason") == FAILED]


@pytest.mark.parametrize(("skipped", "operations"), [(["*"], []), ([UNPREPARE], [PREPARE])], ids=["all", "unprepare"])
async def test_87_operations_that_are_not_needed_are_not_asked_for(
    world: World, skipped: list[str], operations: list[str]
) -> None:
    plugin = await world.plugin().start()
    await world.slice_("n1", [{"name": "gpu-0"}], skipNodeOperations=skipped)
    await world.device_class()
    await world.claim("c")
    await world.pod("p1", claims={"gpu": "c"})
    await world.running("p1")
    await world.delete_pod("p1")
    assert [operation for _, operation, _ in plugin.calls] == operations
