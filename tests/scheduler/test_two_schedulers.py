"""Two schedulers at once, with views of their own: no device is in two allocations, and every pod that fits is bound."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from allot.client.informers import Informers
from allot.scheduler.configuration import Profile, SchedulerConfiguration
from scheduler.world import World, world

pytestmark = pytest.mark.slow

DEVICES = 12


def _own_view(made: World, name: str) -> Informers:
    informers = Informers(made.client, made.plane.clock, made.plane.ids)
    made.plane.start(f"informers of {name}", informers.run)
    return informers


async def _prepare(made: World, pods: int, names: tuple[str, ...]) -> None:
    await made.device_class()
    for node in ("n1", "n2", "n3"):
        await made.node(node)
        await made.devices(node, DEVICES // 3)
    await made.namespace("race")
    for number in range(pods):
        await made.claim("race", f"c{number}")
    await asyncio.gather(
        *(
            made.pod("race", f"p{number}", f"c{number}", spec={"schedulerName": names[number % len(names)]})
            for number in range(pods)
        )
    )


def _configured(name: str) -> SchedulerConfiguration:
    return SchedulerConfiguration(profiles=(Profile(scheduler_name=name),))


async def _check(made: World, pods: list[dict[str, Any]]) -> None:
    held = await made.holders()
    assert all(len(holders) == 1 for holders in held.values()), held
    assert len(held) == DEVICES
    where = {pod["metadata"]["name"][1:]: pod["spec"].get("nodeName") for pod in pods}
    for (pool, _), (claim,) in held.items():
        assert where[claim[1:]] == pool


@pytest.mark.parametrize("is_guarded", [True, False], ids=["our server", "a server that checks nothing"])
@pytest.mark.parametrize("names", [("one", "two"), ("same", "same")], ids=["different pods", "the same pods"])
async def test_devices_are_given_away_once(tmp_path: Path, is_guarded: bool, names: tuple[str, str]) -> None:
    async with world(tmp_path, is_guarded=is_guarded) as made:
        await _prepare(made, DEVICES, names)
        for number, name in enumerate(names):
            scheduler = made.scheduler(
                _configured(name), informers=_own_view(made, f"{name}{number}"), is_guarded=is_guarded
            )
            made.start(scheduler, f"scheduler {number}")
        await made.all_bound("race", DEVICES)
        # Neither may give away anything when it decides again.
        for number, name in enumerate(names):
            await made.pod("race", f"later{number}", spec={"schedulerName": name})
        await made.all_bound("race", DEVICES + len(names))
        await _check(made, list((await made.pods.list("race")).items))


async def test_an_allocation_that_nobody_has_checked_gives_way_before_its_pod_is_bound(tmp_path: Path) -> None:
    """On a server that checks nothing: a scheduler has ended between its write and its look at what others wrote."""
    async with world(tmp_path, is_guarded=False) as made:
        await made.device_class()
        await made.node("n1")
        await made.devices("n1", 2)
        await made.namespace("race")
        for name in ("a", "b"):
            await made.claim("race", name)
            await made.pod("race", name, name)
        made.start(made.scheduler(is_guarded=False))
        await made.all_bound("race", 2)
        await made.plane.stop("scheduler")
        await made.claim("race", "c")
        pod = await made.pod("race", "c", "c", cpu="200m")
        theirs, ours = await made.claims.get("a", "race"), await made.claims.get("c", "race")
        reserved = [{"resource": "pods", "name": "c", "uid": pod["metadata"]["uid"]}]
        status = {"allocation": theirs["status"]["allocation"], "reservedFor": reserved}
        await made.claims.update_status({**ours, "status": status})
        await made.node("n2")
        await made.devices("n2", 1)
        made.start(made.scheduler(is_guarded=False))
        assert await made.bound("race", "c") == "n2"
        held = await made.holders()
        assert len(held) == 3
        assert all(len(holders) == 1 for holders in held.values())
