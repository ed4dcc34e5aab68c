"""Plugins that register twice, answer late or with garbage, or vanish; devices with illegal CDI names: an event tells, the agent goes on."""

from __future__ import annotations

import json
from typing import Any

import pytest

from e2e.scenarios.world import World
from node.dra.misbehaviour import HANG_TEXT, MISBEHAVIOURS, hang
from node.dra.plugin import DriverOnSockets

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="session")]

FAILED = "FailedPrepareDynamicResources"


async def one_plugin(world: World, **more: Any) -> DriverOnSockets:
    """A driver with a device, a class and a claim c."""
    plugin = await world.plugin(**more).start()
    await world.slice_("n1", [{"name": "gpu-0"}])
    await world.device_class()
    await world.claim("c")
    return plugin


async def goes_on(world: World) -> None:
    """The agent runs other pods."""
    await world.pod("other", nodeName="n1")
    await world.running("other")


@pytest.mark.parametrize(
    ("around", "text"),
    [*MISBEHAVIOURS, (hang, HANG_TEXT)],
    ids=["unknown claim", "no claim", "garbage", "error", "late"],
)
async def test_a_wrong_answer_is_an_event_on_the_pod(world: World, around: Any, text: str) -> None:
    plugin = await one_plugin(world)
    plugin.around = around
    await world.pod("p1", claims={"gpu": "c"})
    await world.events("p1", FAILED, f"prepare dynamic resources: NodePrepareResources{text}")
    await world.is_pending("p1")
    await goes_on(world)
    plugin.around = None
    await world.running("p1")


async def test_a_plugin_that_registers_twice_is_refused_the_second_time(world: World) -> None:
    plugin = await one_plugin(world)
    await world.until(lambda: plugin.statuses, "the first registration")
    second = world.plugin(instance="-2", endpoint=plugin.endpoint)
    await second.start_registration()
    await world.until(lambda: second.statuses, "the refusal")
    is_registered, error = second.statuses[0]
    assert not is_registered and f"already registered for DRA driver plugin {world.driver}" in error
    await world.pod("p1", claims={"gpu": "c"})
    await world.running("p1")


async def test_a_plugin_whose_info_is_garbage_is_not_there_for_pods(world: World) -> None:
    plugin = world.plugin()
    plugin.raw_info = b"\x0a\xff\xff\xff\xff\x7f"
    await plugin.start()
    await world.slice_("n1", [{"name": "gpu-0"}])
    await world.device_class()
    await world.claim("c")
    await world.pod("p1", claims={"gpu": "c"})
    await world.events("p1", FAILED, f"DRA driver {world.driver} is not registered")
    await goes_on(world)
    plugin.raw_info = None
    await world.running("p1")


async def test_a_plugin_that_says_late_who_it_is_registers_when_it_is_quicker(world: World) -> None:
    plugin = world.plugin()
    # The agent waits for a second, as the kubelet does.
    plugin.info_delay_s = 1.5
    await plugin.start()
    await world.until(lambda: plugin.infos >= 2, "a second question")
    assert plugin.statuses == []
    plugin.info_delay_s = 0.0
    await world.until(lambda: plugin.statuses == [(True, "")], "the registration")


async def test_a_plugin_that_vanishes_while_it_is_asked(world: World) -> None:
    plugin = await one_plugin(world)

    plugin.around = hang
    await world.pod("p1", claims={"gpu": "c"})
    await world.until(lambda: plugin.calls, "the call")
    await plugin.stop()
    await world.events("p1", FAILED, "NodePrepareResources: rpc error: code = ")
    await goes_on(world)
    plugin.around = None
    await plugin.start()
    await world.running("p1")


ILLEGAL = [
    "no name at all",
    "example.com/gpu",
    "example.com/gpu=",
    "exa mple.com/gpu=0",
    "example.com/gpu=-0",
    "../x/y=z",
]


@pytest.mark.parametrize("name", [*ILLEGAL, "example.com/gpu=nowhere"])
async def test_a_device_whose_name_is_illegal_or_unknown_is_an_event_on_the_pod(world: World, name: str) -> None:
    plugin = await one_plugin(world)
    plugin.default_devices = ({"pool_name": "n1", "device_name": "gpu-0", "cdi_device_ids": [name]},)
    await world.pod("p1", claims={"gpu": "c"})
    [event, *_] = await world.events("p1", "Failed", name)
    assert "failed to inject CDI devices" in event["note"]
    pod = await world.get("pods", "p1")
    assert pod["status"]["containerStatuses"][0]["state"]["waiting"]["reason"] == "CreateContainerError"
    await goes_on(world)


async def test_a_cdi_file_with_illegal_content_is_as_good_as_none(world: World) -> None:
    plugin = await one_plugin(world)
    name = "example.com/gpu=0"
    plugin.default_devices = ({"pool_name": "n1", "device_name": "gpu-0", "cdi_device_ids": [name]},)
    device = {"name": "0", "containerEdits": {"env": ["no equals sign"]}}
    spec = {"cdiVersion": "0.8.0", "kind": "example.com/gpu", "devices": [device]}
    file = world.site.agents["n1"].cdi / f"{world.namespace}.json"
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps(spec))
    try:
        await world.pod("p1", claims={"gpu": "c"})
        await world.events("p1", "Failed", name)
        await goes_on(world)
    finally:
        file.unlink()
