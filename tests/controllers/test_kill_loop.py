"""Scheduler, claim controller and garbage collector end together again and again while pods come and go: no device is in two
allocations at any time, no claim is left behind, and every pod gets its node."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from allot.apiserver.assembly import Settings
from allot.client.api import PatchType
from allot.client.informers import Informers
from allot.controllers.metrics import ControllerMetrics
from allot.controllers.runner import Services
from allot.controllers.table import select
from allot.controlplane.clients import client_of
from allot.controlplane.plane import ControlPlane, control_plane
from allot.controlplane.users import CONTROLLERS, SCHEDULER, controller_user
from allot.core.features import DEFAULT_GATES
from allot.scheduler.loop import Options, Scheduler
from allot.store.memory import MemoryStore
from controllers.cluster import Cluster, Object, from_template, pod, template
from waiting import until

NAMES = ("resourceclaim-controller", "garbage-collector-controller")
NODES, DEVICES, PODS = 3, 8, 150
DRIVER = "gpu.example.com"


def node(name: str) -> Object:
    amounts = {"cpu": "64", "memory": "64Gi", "pods": "500"}
    conditions = [{"type": "Ready", "status": "True"}]
    status = {"capacity": amounts, "allocatable": amounts, "conditions": conditions}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": status}


def devices_of(node_name: str) -> Object:
    pool = {"name": node_name, "generation": 1, "resourceSliceCount": 1}
    devices = [{"name": f"gpu-{number}"} for number in range(DEVICES)]
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": node_name},
        "spec": {"driver": DRIVER, "nodeName": node_name, "pool": pool, "devices": devices},
    }


async def furnish(made: Cluster) -> None:
    """Nodes with devices, a class and a template."""
    for number in range(NODES):
        name = f"node-{number}"
        await made.create("nodes", node(name))
        # Nobody looks after nodes here, so nobody else would say that they are ready.
        await made.of("nodes").patch(name, {"spec": {"taints": None}}, PatchType.MERGE)
        await made.create("resourceslices", devices_of(name))
    selector = {"cel": {"expression": f'device.driver == "{DRIVER}"'}}
    kind = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "gpu"}}
    await made.create("deviceclasses", {**kind, "spec": {"selectors": [selector]}})
    await made.create("resourceclaimtemplates", template("t"))


async def live(plane: ControlPlane, seconds: float) -> None:
    """One life of all components, with everything in memory their own."""
    informers = Informers(client_of(plane.server, CONTROLLERS), plane.clock, plane.ids)
    metrics = ControllerMetrics(CollectorRegistry())
    scheduler = Scheduler(
        client_of(plane.server, SCHEDULER), informers, plane.clock, plane.ids, options=Options(is_guarded=True)
    )
    async with asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(scheduler.run())]
        for row in select(NAMES, DEFAULT_GATES):
            services = Services(
                client=client_of(plane.server, controller_user(row.account)),
                informers=informers,
                clock=plane.clock,
                ids=plane.ids,
                metrics=metrics,
            )
            running.append(tasks.create_task(row.make(services).run()))
        running.append(tasks.create_task(informers.run()))
        try:
            await asyncio.sleep(seconds)
        finally:
            for task in running:
                task.cancel()


async def check_devices(made: Cluster) -> int:
    """No device in two allocations; how many claims there are."""
    holders: dict[tuple[str, str], str] = {}
    claims = await made.items("resourceclaims")
    for claim in claims:
        allocation = (claim.get("status") or {}).get("allocation") or {}
        for result in allocation.get("devices", {}).get("results", []):
            device, name = (result["pool"], result["device"]), claim["metadata"]["name"]
            assert device not in holders, f"{device} is held by {holders[device]} and {name}"
            holders[device] = name
    return len(claims)


async def end_pods(made: Cluster, dice: random.Random, ended: set[str]) -> None:
    """Pods with a node finish, or are deleted while they run."""
    while len(ended) < PODS:
        for item in await made.items("pods"):
            name = item["metadata"]["name"]
            if item["spec"].get("nodeName") and name not in ended:
                ended.add(name)
                if dice.random() < 0.5:
                    await made.set_phase(name, "Succeeded")
                else:
                    await made.of("pods").delete(name, "default", grace_period_seconds=0)
        await check_devices(made)
        await asyncio.sleep(0.02)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
async def test_nothing_is_lost_or_given_twice_however_often_everything_dies(tmp_path: Path, seed: int) -> None:
    dice = random.Random(seed)
    settings = Settings(directory=tmp_path / "pki", port=0)
    async with control_plane(settings, MemoryStore()) as plane, asyncio.timeout(100), asyncio.TaskGroup() as tasks:
        made = Cluster(plane.server, DEFAULT_GATES)
        await furnish(made)
        ended: set[str] = set()
        ending = tasks.create_task(end_pods(made, dice, ended))

        async def come() -> None:
            for number in range(PODS):
                await made.create("pods", pod(f"pod-{number}", claims=[from_template("gpu", "t")]))
                if number % 20 == 0:
                    await asyncio.sleep(0.02)

        coming = tasks.create_task(come())
        deaths = 0
        while not (ending.done() and coming.done()):
            await live(plane, dice.choice((0.0, 0.02, 0.05, 0.1, 0.2)))
            deaths += 1
        assert deaths > 3 and len(ended) == PODS
        survivor = tasks.create_task(live(plane, 90))

        async def is_tidy() -> bool:
            return await check_devices(made) == 0

        await until(is_tidy)
        survivor.cancel()
