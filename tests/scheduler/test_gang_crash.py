"""A scheduler that ends between the writes of a gang's members: the next one completes the gang, or what is left of it gives way."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from allot.client.api import Client
from allot.controlplane.clients import transport_of
from allot.controlplane.users import SCHEDULER
from scheduler.test_crash import Mortal
from scheduler.world import World, world

pytestmark = pytest.mark.slow
SIZE = 4


async def _make_gang(made: World, namespace: str) -> None:
    await made.namespace(namespace)
    await made.client.resource("scheduling.k8s.io", "v1beta1", "podgroups", namespaced=True).create(
        {
            "apiVersion": "scheduling.k8s.io/v1beta1",
            "kind": "PodGroup",
            "metadata": {"name": "g", "namespace": namespace},
            "spec": {"schedulingPolicy": {"gang": {"minCount": SIZE}}},
        }
    )
    for number in range(SIZE):
        await made.claim(namespace, f"c{number}")
        await made.pod(namespace, f"p{number}", f"c{number}", spec={"schedulingGroup": {"podGroupName": "g"}})


async def _clear(made: World, namespace: str) -> None:
    for pod in (await made.pods.list(namespace)).items:
        await made.pods.delete(pod["metadata"]["name"], namespace, grace_period_seconds=0)
    for claim in (await made.claims.list(namespace)).items:
        name = claim["metadata"]["name"]
        await made.claims.update_status({**claim, "status": {}})
        fresh = await made.claims.get(name, namespace)
        await made.claims.update({**fresh, "metadata": {**fresh["metadata"], "finalizers": []}})
        await made.claims.delete(name, namespace)


def _bound(pods: list[dict[str, Any]]) -> int:
    return sum(bool(pod["spec"].get("nodeName")) for pod in pods)


@pytest.mark.timeout(300)
async def test_a_gang_whose_scheduler_ended_between_any_two_writes_is_completed_by_the_next(tmp_path: Path) -> None:
    halves = 0
    async with world(tmp_path, all_gates=True) as made:
        await made.device_class()
        await made.node("n1")
        await made.devices("n1", SIZE)
        for write in range(1, 40):
            namespace = f"crash-{write}"
            mortal = Mortal(transport_of(made.plane.server, SCHEDULER, "kube-scheduler"), dies_at=write, after=True)
            made.start(made.scheduler(client=Client(mortal)), "mortal")
            await _make_gang(made, namespace)
            bound = asyncio.ensure_future(made.all_bound(namespace, SIZE))
            dead = asyncio.ensure_future(mortal.is_dead.wait())
            await asyncio.wait((bound, dead), return_when=asyncio.FIRST_COMPLETED)
            crashed = mortal.is_dead.is_set()
            dead.cancel()
            await made.plane.stop("mortal")
            halves += 0 < _bound(list((await made.pods.list(namespace)).items)) < SIZE
            made.start(made.scheduler())
            await bound
            await made.plane.stop("scheduler")
            held = await made.holders()
            assert all(len(holders) == 1 for holders in held.values()), held
            await _clear(made, namespace)
            if not crashed:
                break
    # Some of the ends were between the bindings of members.
    assert halves
