"""Scenarios 57 to 62: the health of devices in the status of pods."""

from __future__ import annotations

from typing import Any

import pytest

from e2e.scenarios.world import World
from node.dra.plugin import CountedSocket

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="session")]

V1, V1ALPHA1 = "v1.DRAResourceHealth", "v1alpha1.DRAResourceHealth"
HEALTHY = 1


async def health_is(world: World, pod: str, health: str, message: str | None = None) -> dict[str, Any]:
    """The entry for the claim of a pod's first container, as soon as its only device is like that."""

    async def ask() -> dict[str, Any] | None:
        [container] = (await world.get("pods", pod))["status"].get("containerStatuses") or [{}]
        for entry in container.get("allocatedResourcesStatus") or ():
            [device] = entry["resources"]
            if device["health"] == health and message in (None, device.get("message", "")):
                return dict(entry)
        return None

    found: dict[str, Any] = await world.until(ask, f"health {health} {message or ''} of {pod}")
    return found


async def test_57_health_and_message_follow_what_the_driver_says(world: World) -> None:
    driver = await world.gpus("n1", 1)
    await world.device_class()
    await world.claim("c")
    await world.pod("p1", claims={"my-gpu": "c"})
    await world.running("p1")
    for health, message in (("Healthy", "msg1"), ("Unhealthy", "msg2"), ("Unhealthy", "msg3"), ("Healthy", "msg4")):
        driver.want(health={"gpu-0": (health.upper(), message)})
        entry = await health_is(world, "p1", health, message)
        assert entry["name"] == "claim:my-gpu"


@pytest.mark.parametrize("versions", [(V1,), (V1ALPHA1,), (V1ALPHA1, V1)], ids=["v1", "v1alpha1", "both"])
async def test_58_the_newest_health_service_is_used(world: World, versions: tuple[str, ...]) -> None:
    plugin = world.plugin(versions=("v1.DRAPlugin", *versions))
    plugin.default_devices = ({"pool_name": "n1", "device_name": "gpu-0", "cdi_device_ids": []},)
    await plugin.start()
    await world.slice_("n1", [{"name": "gpu-0"}])
    await world.device_class()
    await world.claim("c")
    await world.pod("p1", claims={"gpu": "c"})
    await world.running("p1")
    plugin.health.put_nowait([("n1", "gpu-0", HEALTHY, "fine", 0)])
    await health_is(world, "p1", "Healthy", "fine")
    assert plugin.health_streams == [V1 if V1 in versions else V1ALPHA1]


async def test_59_without_its_driver_the_health_of_a_device_is_unknown(world: World) -> None:
    driver = await world.gpus("n1", 1)
    await world.device_class()
    await world.claim("c")
    await world.pod("p1", claims={"gpu": "c"})
    await health_is(world, "p1", "Healthy")
    driver.stop()
    await health_is(world, "p1", "Unknown")
    driver.start()
    await health_is(world, "p1", "Healthy")


async def test_60_three_pods_hear_of_their_devices_over_one_connection(world: World) -> None:
    plugin = world.plugin(versions=("v1.DRAPlugin", V1))
    await plugin.start_service()
    async with CountedSocket(plugin) as counted:
        await plugin.start_registration()
        names = [f"gpu-{number}" for number in range(3)]
        await world.slice_("n1", [{"name": name} for name in names])
        await world.device_class()
        for name in names:
            claim = await world.claim(name)
            device = {"pool_name": "n1", "device_name": name, "cdi_device_ids": []}
            plugin.devices[claim["metadata"]["uid"]] = [device]
            await world.pod(name, claims={"gpu": name})
        await world.running(*names)
        for turn in ("Healthy", "Unhealthy"):
            number = 1 if turn == "Healthy" else 2
            plugin.health.put_nowait([("n1", name, number, f"{turn} {name}", 0) for name in names])
            for name in names:
                await health_is(world, name, turn, f"{turn} {name}")
        assert counted.connections == 1
        # While the driver can be reached: without it pods do not go.
        await world.end()


async def test_61_with_the_gate_off_nothing_is_said_about_health(world: World) -> None:
    async with world.agent("n3", "--feature-gates", "ResourceHealthStatus=false"):
        await world.gpus("n3", 1)
        await world.device_class()
        await world.claim("c")
        await world.pod("p1", claims={"gpu": "c"})
        [pod] = await world.running("p1")
        assert pod["spec"]["nodeName"] == "n3"
        [container] = pod["status"]["containerStatuses"]
        assert "allocatedResourcesStatus" not in container


async def test_62_shares_of_a_device_have_its_health(world: World) -> None:
    capacity = {"memory": {"value": "8Gi"}}
    driver = await world.publish("n1", [{"name": "gpu-0", "allowMultipleAllocations": True, "capacity": capacity}])
    await world.device_class()
    for name in ("a", "b"):
        await world.claim(name, world.request(capacity={"requests": {"memory": "4Gi"}}))
        await world.pod(name, claims={"gpu": name})
    await world.running("a", "b")
    driver.want(health={"gpu-0": ("UNHEALTHY", "too hot")})
    for name in ("a", "b"):
        await health_is(world, name, "Unhealthy", "too hot")
