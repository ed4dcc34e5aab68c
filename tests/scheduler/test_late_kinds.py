"""Kinds of other schedulers that are defined while the scheduler runs: their groups count from then on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from allot.controlplane.users import SCHEDULER
from allot.core.model.foreign_groups import KAI
from allot.installation.definitions import install
from allot.scheduler.loop import Options, Scheduler
from scheduler.world import World, world

pytestmark = pytest.mark.slow


def _scheduler(made: World, late_kinds_s: float = 0.05) -> Scheduler:
    plane = made.plane
    options = Options(is_guarded=True, late_kinds_s=late_kinds_s)
    client = plane.client(SCHEDULER, "kube-scheduler")
    return made.start(Scheduler(client, plane.informers, plane.clock, plane.ids, None, made.gates, options=options))


async def _pod(made: World, name: str) -> None:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "600m"}}}
    metadata = {"name": name, "namespace": "default", "annotations": {"pod-group-name": "g"}}
    await made.pods.create(
        {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container]}}
    )


async def test_groups_of_a_kind_that_is_defined_later_start_together_and_learn_why_not(tmp_path: Path) -> None:
    async with world(tmp_path) as made:
        scheduler = _scheduler(made)
        await made.node("n1", cpu="1")
        await scheduler.synced.wait()
        assert not scheduler.machine.membership.serves(KAI)
        await install(made.client, made.plane.clock)

        async def served() -> bool:
            return scheduler.machine.membership.serves(KAI)

        await made.until(served, bool, "the scheduler to read KAI's groups")
        groups = made.client.resource(KAI, "v2alpha2", "podgroups", namespaced=True)
        group = {"metadata": {"name": "g", "namespace": "default"}, "spec": {"minMember": 2}}
        await groups.create({"apiVersion": f"{KAI}/v2alpha2", "kind": "PodGroup", **group})
        for name in ("p0", "p1"):
            await _pod(made, name)

        def conditions(found: dict[str, Any]) -> list[dict[str, Any]]:
            return list(found.get("status", {}).get("schedulingConditions", ()))

        told = await made.until(lambda: groups.get("g", "default"), conditions, "the group to learn why it waits")
        (condition,) = conditions(told)
        assert (condition["type"], condition["status"]) == ("UnschedulableOnNodePool", "True")
        assert condition["message"].startswith("minCount (2) cannot be satisfied")
        await made.node("n2", cpu="1")
        await made.all_bound("default", 2)
        started = "kai.scheduler/last-start-timestamp"
        await made.until(
            lambda: groups.get("g", "default"),
            lambda found: not conditions(found) and started in found["metadata"].get("annotations", {}),
            "the condition to be taken back, and the start to be noted",
        )


async def test_a_pod_whose_kind_of_group_was_defined_a_moment_ago_waits_for_the_others(tmp_path: Path) -> None:
    async with world(tmp_path) as made:
        # It would not look by itself.
        scheduler = _scheduler(made, late_kinds_s=3600.0)
        await made.node("n1", cpu="2")
        await scheduler.synced.wait()
        await install(made.client, made.plane.clock)
        groups = made.client.resource(KAI, "v2alpha2", "podgroups", namespaced=True)
        group = {"metadata": {"name": "g", "namespace": "default"}, "spec": {"minMember": 2}}
        await groups.create({"apiVersion": f"{KAI}/v2alpha2", "kind": "PodGroup", **group})
        await _pod(made, "p0")

        async def is_held_back() -> bool:
            return scheduler.machine.closed("default/p0") is not None

        await made.until(is_held_back, bool, "the first pod to wait for the second one")
        await _pod(made, "p1")
        await made.all_bound("default", 2)


async def test_a_pod_that_names_a_group_of_a_kind_that_nobody_defines_is_placed(tmp_path: Path) -> None:
    async with world(tmp_path) as made:
        scheduler = _scheduler(made, late_kinds_s=3600.0)
        await made.node("n1", cpu="2")
        await scheduler.synced.wait()
        for name in ("p0", "p1"):
            await _pod(made, name)
        await made.all_bound("default", 2)
        assert not scheduler.machine.membership.serves(KAI)
