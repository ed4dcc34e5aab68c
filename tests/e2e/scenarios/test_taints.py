"""Scenarios 52 to 56: tainted devices."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from e2e.scenarios.objects import RESOURCE
from e2e.scenarios.world import World

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="session")]


async def tainted_node(world: World, effect: str) -> None:
    taints = [{"key": "example.com/broken", "value": "yes", "effect": effect}]
    await world.publish("n1", [{"name": "gpu-0", "taints": taints}])
    await world.device_class()


async def taint_rule(world: World, effect: str) -> dict[str, Any]:
    taint = {"key": "example.com/broken", "value": "yes", "effect": effect}
    body = {"apiVersion": RESOURCE, "kind": "DeviceTaintRule", "metadata": {"name": world.name("rule")}}
    spec = {"deviceSelector": {"driver": world.driver}, "taint": taint}
    return await world.make("devicetaintrules", {**body, "spec": spec})


async def test_52_tainted_devices_are_not_allocated(world: World) -> None:
    await tainted_node(world, "NoSchedule")
    await world.template("single")
    await world.pod("p1", templates={"gpu": "single"})
    await world.pending("p1", "cannot allocate all claims")


async def test_53_a_toleration_makes_them_usable(world: World) -> None:
    await tainted_node(world, "NoSchedule")
    tolerations = [{"key": "example.com/broken", "operator": "Exists", "effect": "NoSchedule"}]
    await world.template("single", world.request(tolerations=tolerations))
    await world.pod("p1", templates={"gpu": "single"})
    await world.running("p1")


async def test_54_a_rule_evicts_running_pods_and_says_why(world: World) -> None:
    await world.gpus("n1", 1)
    await world.device_class()
    await world.claim("c")
    # The finalizer keeps the pod to be looked at after its eviction.
    made = await world.pod("p1", claims={"gpu": "c"})
    await world.patch("pods", "p1", {"metadata": {"finalizers": ["example.com/look"]}})
    await world.running("p1")
    rule = await taint_rule(world, "NoExecute")
    assert rule["spec"]["taint"]["timeAdded"]

    async def evicted() -> dict[str, Any] | None:
        pod = await world.get("pods", "p1")
        return pod if pod["metadata"].get("deletionTimestamp") else None

    pod = await world.until(evicted, "the eviction")
    assert pod["metadata"]["uid"] == made["metadata"]["uid"]
    [condition] = [entry for entry in pod["status"]["conditions"] if entry["type"] == "DisruptionTarget"]
    assert condition["status"] == "True"
    assert condition["reason"] == "DeletionByDeviceTaintManager"
    assert condition["message"] == "Device Taint manager: deleting due to NoExecute taint"
    await world.events("p1", "DeviceTaintManagerEviction")
    await world.patch("pods", "p1", {"metadata": {"finalizers": None}})


async def test_55_a_tolerated_eviction_does_not_happen(world: World) -> None:
    await world.gpus("n1", 2)
    await world.device_class()
    # Only this effect counts for evictions; an empty one would do for the scheduler.
    tolerations = [{"key": "example.com/broken", "operator": "Exists", "effect": "NoExecute"}]
    await world.claim("tolerant", world.request(tolerations=tolerations))
    await world.claim("delicate")
    await world.pod("stays", claims={"gpu": "tolerant"})
    await world.pod("goes", claims={"gpu": "delicate"})
    await world.running("stays", "goes")
    await taint_rule(world, "NoExecute")
    await world.gone("pods", "goes")
    [pod] = await world.running("stays")
    assert not pod["metadata"].get("deletionTimestamp")


async def test_56_a_toleration_for_some_seconds_delays_the_eviction(world: World) -> None:
    await world.gpus("n1", 1)
    await world.device_class()
    toleration = {"key": "example.com/broken", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 1}
    await world.claim("c", world.request(tolerations=[toleration]))
    await world.pod("p1", claims={"gpu": "c"})
    await world.running("p1")
    rule = await taint_rule(world, "NoExecute")
    added = datetime.fromisoformat(rule["spec"]["taint"]["timeAdded"])
    await world.gone("pods", "p1")
    assert (datetime.now(UTC) - added).total_seconds() >= 1
    await world.events("p1", "DeviceTaintManagerEviction")
