"""A scheduler that ends between the writes of a gang's members: the next one completes the gang, or what is left of it gives way."""

from __future__ import annotations

import asyncio
import os
import random
from pathlib import Path
from typing import Any

import pytest

from allot.client.api import Client, PatchType
from allot.controlplane.clients import transport_of
from allot.controlplane.users import SCHEDULER
from allot.core.scheduling.groups import halves
from scheduler.test_crash import Mortal
from scheduler.world import World, world

pytestmark = pytest.mark.slow
SIZE = 4
# `make crashes` plays 200 seeds.
SEEDS = int(os.environ.get("ALLOT_RUNS", "2"))


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
    by_half = 0
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
            by_half += 0 < _bound(list((await made.pods.list(namespace)).items)) < SIZE
            made.start(made.scheduler())
            await bound
            await made.plane.stop("scheduler")
            held = await made.holders()
            assert all(len(holders) == 1 for holders in held.values()), held
            await _clear(made, namespace)
            if not crashed:
                break
    # Some of the ends were between the bindings of members.
    assert by_half


async def _killed(made: World, namespace: str, write: int) -> int:
    """A scheduler ends at a write of the gang; how many of its pods are bound then."""
    mortal = Mortal(transport_of(made.plane.server, SCHEDULER, "kube-scheduler"), dies_at=write, after=True)
    made.start(made.scheduler(client=Client(mortal)), "mortal")
    await _make_gang(made, namespace)
    bound = asyncio.ensure_future(made.all_bound(namespace, SIZE))
    dead = asyncio.ensure_future(mortal.is_dead.wait())
    await asyncio.wait((bound, dead), return_when=asyncio.FIRST_COMPLETED)
    for waiting in (bound, dead):
        waiting.cancel()
    await made.plane.stop("mortal")
    return _bound(list((await made.pods.list(namespace)).items))


@pytest.mark.timeout(0)
async def test_a_gang_that_was_left_by_half_and_cannot_be_completed_gives_back_what_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(halves, "STALE_AFTER_S", 0.2)
    by_half = 0
    async with world(tmp_path, all_gates=True) as made:
        nodes = made.client.resource("", "v1", "nodes", namespaced=False)
        await made.device_class()
        await made.node("n1")
        await made.devices("n1", SIZE)
        for seed in range(SEEDS):
            namespace = f"seed-{seed}"
            # Each claim is a write, then come the bindings: somewhere among these.
            bound = await _killed(made, namespace, random.Random(seed).randrange(SIZE + 2, 2 * SIZE + 1))
            by_half += 0 < bound < SIZE
            # Whoever was not bound cannot be any more.
            await nodes.patch("n1", {"spec": {"unschedulable": True}}, PatchType.MERGE)
            made.start(made.scheduler())
            held = bound if bound < SIZE else 0
            await made.until(
                lambda namespace=namespace: made.pods.list(namespace),
                lambda listed, held=held: held == 0 or _left(list(listed.items)) == 0,
                "pods of the gang to give back their nodes",
            )
            await made.plane.stop("scheduler")
            await _clear(made, namespace)
            await nodes.patch("n1", {"spec": {"unschedulable": False}}, PatchType.MERGE)
    assert by_half


def _left(pods: list[dict[str, Any]]) -> int:
    """Pods that have a node and are not on their way out."""
    return sum(bool(pod["spec"].get("nodeName")) and "deletionTimestamp" not in pod["metadata"] for pod in pods)
