"""Autoscalers on a real server whose metrics an agent tells, on a clock that is in a hurry: targets of all kinds, conflicts, rivals,
deaths between two writes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from allot.client.api import Client
from allot.client.errors import Conflict, Unreachable
from allot.client.transport import Response
from allot.controllers import horizontalpodautoscaler
from controllers.cluster import Cluster, Hooked, Send, cluster
from controllers.hasty_clock import HastyClock
from told_metrics import PODS, ToldAgent, pod, told_agent
from waiting import until

pytestmark = pytest.mark.slow

Object = dict[str, Any]
CONTROLLERS = {"horizontal-pod-autoscaler": horizontalpodautoscaler.make}
LABELS = {"app": "x"}


class Scaled:
    """A cluster with an agent, and short ways to make what is scaled."""

    def __init__(self, made: Cluster, agent: ToldAgent) -> None:
        self.made = made
        self.agent = agent
        self.hpas = made.client.resource("autoscaling", "v2", "horizontalpodautoscalers", namespaced=True)
        self.deployments = made.client.resource("apps", "v1", "deployments", namespaced=True)

    def tell(self, waiting: float) -> None:
        """How much waits, from now on."""
        self.agent.tell(PODS, f'waiting{{namespace="default",pod="teller"}} {waiting}\n')

    async def deployment(self, name: str, replicas: int, labels: Object | None = None) -> None:
        labels = labels or LABELS
        template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
        spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
        metadata = {"name": name, "namespace": "default"}
        await self.deployments.create(
            {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec}
        )

    async def autoscaler(self, name: str, kind: str = "Deployment", api: str = "apps/v1", **spec: Any) -> None:
        target = {"apiVersion": api, "kind": kind, "name": name}
        external = {"metric": {"name": "waiting"}, "target": {"type": "AverageValue", "averageValue": "10"}}
        metrics = [{"type": "External", "external": external}]
        spec = {"scaleTargetRef": target, "minReplicas": 1, "maxReplicas": 9, "metrics": metrics, **spec}
        metadata = {"name": name, "namespace": "default"}
        await self.hpas.create(
            {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": metadata, "spec": spec}
        )

    async def replicas(self, name: str) -> int:
        return int((await self.deployments.get(name, "default"))["spec"]["replicas"])

    async def condition(self, name: str, type_: str) -> tuple[str, str]:
        found = (await self.hpas.get(name, "default")).get("status", {}).get("conditions") or []
        return next(((each["status"], each["reason"]) for each in found if each["type"] == type_), ("", ""))

    async def is_scaled(self, name: str, wanted: int) -> bool:
        return await self.replicas(name) == wanted

    async def is_said(self, name: str, type_: str, *wanted: str) -> bool:
        return await self.condition(name, type_) == wanted


@asynccontextmanager
async def scaled(folder: Path) -> AsyncIterator[Scaled]:
    # The server, which asks the agent again and again, ends first.
    async with told_agent(folder) as agent, cluster(folder, metric_resolution_s=0.5) as made:
        found = Scaled(made, agent)
        await made.create("pods", pod("teller"))
        found.tell(30)
        await agent.register(made.client)
        await until(lambda: _is_told(made.client))
        yield found


async def _is_told(client: Client) -> bool:
    body = (await client.request("GET", "/apis/external.metrics.k8s.io/v1beta1/namespaces/default/waiting")).body
    return bool(body["items"])


async def test_a_metric_scales_and_a_new_spec_counts_at_once(tmp_path: Path) -> None:
    async with scaled(tmp_path) as world, world.made.running(CONTROLLERS, clock=HastyClock()):
        await world.deployment("web", 1)
        await world.autoscaler("web")
        await until(lambda: world.is_scaled("web", 3))
        assert "New size: 3; reason: external metric waiting(nil) above target" in await until(
            lambda: world.made.events("SuccessfulRescale")
        )
        found = deepcopy(await world.hpas.get("web", "default"))
        found["spec"]["maxReplicas"] = 2
        await world.hpas.update(found)
        await until(lambda: world.is_scaled("web", 2))
        status = await until(lambda: _observed(world, "web"))
        assert status["desiredReplicas"] == 2


async def _observed(world: Scaled, name: str) -> Object:
    found = await world.hpas.get(name, "default")
    status: Object = found.get("status") or {}
    return status if status.get("observedGeneration") == found["metadata"]["generation"] else {}


async def test_to_zero_when_nothing_waits_and_back_when_something_does(tmp_path: Path) -> None:
    async with scaled(tmp_path) as world, world.made.running(CONTROLLERS, clock=HastyClock()):
        world.tell(0)
        await world.deployment("idle", 1)
        await world.deployment("off", 0, {"app": "off"})
        for name in ("idle", "off"):
            await world.autoscaler(name, minReplicas=0)
        await until(lambda: world.is_scaled("idle", 0))
        await until(lambda: world.is_said("idle", "ScaledToZero", "True", "ScaledToZero"))
        world.tell(20)
        await until(lambda: world.is_scaled("idle", 2))
        await until(lambda: world.is_said("idle", "ScaledToZero", "False", "NotScaledToZero"))
        # Who was turned off by hand stays off.
        assert await world.condition("off", "ScalingActive") == ("False", "ScalingDisabled")
        assert await world.replicas("off") == 0


async def test_targets_that_are_custom_resources(tmp_path: Path) -> None:
    names = {"plural": "servings", "kind": "Serving"}
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    scale = {
        "specReplicasPath": ".spec.replicas",
        "statusReplicasPath": ".status.replicas",
        "labelSelectorPath": ".status.selector",
    }
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}, "scale": scale},
    }
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "servings.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced", "names": names, "versions": [version]},
    }
    async with scaled(tmp_path) as world, world.made.running(CONTROLLERS, clock=HastyClock()):
        client = world.made.client
        # Before there is such a kind: that is said, and mended when there is.
        await world.autoscaler("llm", "Serving", "example.com/v1")
        await until(lambda: world.is_said("llm", "AbleToScale", "False", "FailedGetScale"))
        crds = client.resource("apiextensions.k8s.io", "v1", "customresourcedefinitions", namespaced=False)
        await crds.create(definition)
        servings = client.resource("example.com", "v1", "servings", namespaced=True)
        serving = {
            "apiVersion": "example.com/v1",
            "kind": "Serving",
            "metadata": {"name": "llm", "namespace": "default"},
            "spec": {"replicas": 1},
        }

        async def is_made() -> bool:
            try:
                made = await servings.create(serving)
            except Exception as error:
                assert "could not find" in str(error), error
                return False
            status = {"replicas": 1, "selector": "app=llm"}
            await servings.update({**made, "status": status}, subresource="status")
            return True

        await until(is_made)

        async def is_scaled() -> bool:
            return bool((await servings.get("llm", "default"))["spec"]["replicas"] == 3)

        await until(is_scaled)


async def test_two_that_want_the_same_pods_do_nothing_and_say_so(tmp_path: Path) -> None:
    async with scaled(tmp_path) as world, world.made.running(CONTROLLERS, clock=HastyClock()):
        await world.made.create("pods", pod("shared", app="x"))
        for name in ("one", "two"):
            await world.deployment(name, 1)
            await world.autoscaler(name)
        for name in ("one", "two"):
            await until(lambda name=name: world.is_said(name, "ScalingActive", "False", "AmbiguousSelector"))
        before = [await world.replicas(name) for name in ("one", "two")]
        await world.hpas.delete("two", "default")
        await until(lambda: world.is_said("one", "ScalingActive", "True", "ValidMetricFound"))
        await until(lambda: world.is_scaled("one", 3))
        assert await world.replicas("two") == before[1]


async def test_conflicts_are_tried_again_and_refusals_are_told(tmp_path: Path) -> None:
    refusals = 3

    async def around(method: str, path: str, send: Send) -> Response:
        nonlocal refusals
        if method == "PUT" and path.endswith("/scale") and refusals:
            refusals -= 1
            raise Conflict("the object has been modified", code=409, reason="Conflict")
        return await send()

    async with (
        scaled(tmp_path) as world,
        world.made.running(CONTROLLERS, through=hooked(around), clock=HastyClock()),
    ):
        await world.deployment("web", 1)
        await world.autoscaler("web")
        await until(lambda: world.is_scaled("web", 3))
        assert refusals == 0 and await world.made.events("FailedRescale") == []


def hooked(around: Callable[[str, str, Send], Awaitable[Response]]) -> Callable[[Client], Client]:
    return lambda client: Client(Hooked(client.transport, around))


@pytest.mark.parametrize("after", range(1, 6))
async def test_a_controller_may_die_between_any_two_writes(tmp_path: Path, after: int) -> None:
    """What it wrote stays true, and its successor ends where it would have ended."""
    writes = 0
    dead = asyncio.Event()

    async def around(method: str, _path: str, send: Send) -> Response:
        nonlocal writes
        if method in ("POST", "PUT", "PATCH"):
            writes += 1
            if writes >= after:
                dead.set()
                raise Unreachable("the process is gone")
        return await send()

    async with scaled(tmp_path) as world:
        await world.deployment("web", 1)
        await world.autoscaler("web", maxReplicas=3)
        async with world.made.running(CONTROLLERS, through=hooked(around), clock=HastyClock()):
            # It may have less to write than that.
            await until(lambda: dead.is_set() or world.is_said("web", "AbleToScale", "True", "ReadyForNewScale"))
        assert await world.replicas("web") in (1, 3)
        async with world.made.running(CONTROLLERS, clock=HastyClock()):
            await until(lambda: world.is_scaled("web", 3))
            await until(lambda: world.is_said("web", "ScalingActive", "True", "ValidMetricFound"))
            # Fewer only after five minutes, also for who has just begun.
            world.tell(1)
            await until(lambda: world.is_scaled("web", 1))
            assert await until(lambda: world.made.events("SuccessfulRescale"))
