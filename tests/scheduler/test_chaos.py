"""Pods that come and go, schedulers that end at any moment: in the end every pod that fits is bound, no device is held twice,
and nothing that is gone holds anything."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest

from allot.client.errors import NotFound
from allot.client.informers import Informers
from allot.controlplane.components import start_controllers
from scheduler.world import World, world

pytestmark = pytest.mark.slow

NODES = 4
DEVICES_PER_NODE = 4


async def _template(made: World) -> None:
    templates = made.client.resource("resource.k8s.io", "v1", "resourceclaimtemplates", namespaced=True)
    request = {"name": "gpu", "exactly": {"deviceClassName": "gpu"}}
    await templates.create(
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaimTemplate",
            "metadata": {"name": "t", "namespace": "chaos"},
            "spec": {"spec": {"devices": {"requests": [request]}}},
        }
    )


async def _pod(made: World, number: int, kind: str) -> None:
    if kind == "template":
        entry = {"name": "c", "resourceClaimTemplateName": "t"}
        await made.pod("chaos", f"p{number}", spec={"resourceClaims": [entry]})
    elif kind == "extended":
        await made.pod("chaos", f"p{number}", **{"example.com/gpu": "1"})
    elif kind == "shared":
        await made.pod("chaos", f"p{number}", "shared")
    else:
        await made.pod("chaos", f"p{number}")


async def _delete(made: World, number: int) -> None:
    try:
        await made.pods.delete(f"p{number}", "chaos", grace_period_seconds=0)
    except NotFound:
        pass


class Schedulers:
    """One scheduler or more of one name, each with a view of its own, that end and start again."""

    def __init__(self, made: World, count: int, is_guarded: bool) -> None:
        self._made = made
        self._is_guarded = is_guarded
        self.count = count
        for number in range(count):
            self._start(number)

    def _start(self, number: int) -> None:
        made = self._made
        informers = Informers(made.client, made.plane.clock, made.plane.ids)
        made.plane.start(f"informers {number}", informers.run)
        made.start(made.scheduler(informers=informers, is_guarded=self._is_guarded), f"scheduler {number}")

    async def crash(self, number: int) -> None:
        """End one in the midst of what it does, and start it anew."""
        for part in ("scheduler", "informers"):
            await self._made.plane.stop(f"{part} {number}")
        self._start(number)


@pytest.mark.parametrize(
    ("seed", "schedulers", "is_guarded"),
    [(1, 1, True), (2, 1, False), (3, 2, True), (4, 2, False)],
    ids=["one", "one on a server that checks nothing", "two", "two on a server that checks nothing"],
)
async def test_whatever_happens_the_end_is_right(tmp_path: Path, seed: int, schedulers: int, is_guarded: bool) -> None:
    dice = random.Random(seed)
    async with world(tmp_path, is_guarded=is_guarded) as made:
        await made.device_class(extendedResourceName="example.com/gpu")
        await made.namespace("chaos")
        await _template(made)
        await made.claim("chaos", "shared")
        for number in range(NODES):
            await made.node(f"n{number}", cpu="64")
            await made.devices(f"n{number}", DEVICES_PER_NODE)
        start_controllers(made.plane, ["resourceclaim-controller", "garbage-collector-controller"])
        running = Schedulers(made, schedulers, is_guarded)
        alive: dict[int, str] = {}
        for number in range(60):
            kind = dice.choice(["template", "template", "extended", "shared", "plain"])
            await _pod(made, number, kind)
            alive[number] = kind
            if dice.random() < 0.4:
                gone = dice.choice(sorted(alive))
                await _delete(made, gone)
                del alive[gone]
            if dice.random() < 0.15:
                await running.crash(dice.randrange(running.count))
            if dice.random() < 0.5:
                await asyncio.sleep(dice.random() * 0.02)
        await _thin_out(made, alive)
        pods = await made.until(
            lambda: made.pods.list("chaos"),
            lambda listed: len(listed.items) == len(alive) and all(pod["spec"].get("nodeName") for pod in listed.items),
            f"all of {sorted(alive.items())}",
        )
        await _check(made, list(pods.items))


async def _thin_out(made: World, alive: dict[int, str]) -> None:
    """Delete pods until what is left must fit."""
    wanting = [number for number, kind in alive.items() if kind in ("template", "extended")]
    for number in wanting[NODES * DEVICES_PER_NODE - 1 :]:
        await _delete(made, number)
        del alive[number]


async def _check(made: World, pods: list[dict[str, Any]]) -> None:
    by_uid = {pod["metadata"]["uid"]: pod for pod in pods}

    async def left_over() -> list[str]:
        """Claims that hold devices for nobody."""
        claims = (await made.claims.list("chaos")).items
        wrong = []
        for claim in claims:
            status = claim.get("status", {})
            users = [consumer["uid"] for consumer in status.get("reservedFor", [])]
            if status.get("allocation") and (not users or any(uid not in by_uid for uid in users)):
                wrong.append(claim["metadata"]["name"])
        return wrong

    await made.until(left_over, lambda wrong: not wrong, "claims of pods that are gone to be freed")
    held = await made.holders()
    assert all(len(holders) == 1 for holders in held.values()), held
    claims = {claim["metadata"]["name"]: claim for claim in (await made.claims.list("chaos")).items}
    for pod in pods:
        status = pod["status"]
        names = [entry["resourceClaimName"] for entry in status.get("resourceClaimStatuses", [])]
        names += [
            entry["resourceClaimName"]
            for entry in pod["spec"].get("resourceClaims", [])
            if "resourceClaimName" in entry
        ]
        if "extendedResourceClaimStatus" in status:
            names.append(status["extendedResourceClaimStatus"]["resourceClaimName"])
        for name in names:
            consumers = [consumer["uid"] for consumer in claims[name]["status"]["reservedFor"]]
            assert pod["metadata"]["uid"] in consumers
            (result,) = claims[name]["status"]["allocation"]["devices"]["results"]
            assert result["pool"] == pod["spec"]["nodeName"]
