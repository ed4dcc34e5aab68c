"""The garbage collector and the namespace controller are ended again and again in the middle of their work."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from allot.apiserver.assembly import Settings
from allot.client.errors import Conflict
from allot.controlplane.components import start_controllers
from allot.controlplane.plane import ControlPlane, control_plane
from allot.store.memory import MemoryStore
from controllers.tidy_cluster import owned_by

pytestmark = pytest.mark.slow

NAMES = ("garbage-collector-controller", "namespace-controller")
FAMILIES = 12


async def family(plane: ControlPlane, namespace: str, number: int) -> None:
    """A parent with three children, each with a child."""
    maps = plane.client().resource("", "v1", "configmaps", namespaced=True)
    parent = await maps.create(config_map(f"parent-{number}", namespace))
    for child in range(3):
        owner = owned_by(parent, blocks=child != 2)
        made = await maps.create(config_map(f"child-{number}-{child}", namespace, **owner))
        await maps.create(config_map(f"grandchild-{number}-{child}", namespace, **owned_by(made, blocks=True)))


def config_map(name: str, namespace: str, **metadata: object) -> dict[str, object]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": namespace, **metadata}}


async def end_and_start(plane: ControlPlane, dice: random.Random) -> None:
    """A life of random length. What all components read by lives on."""
    shared = plane.components
    start_controllers(plane, NAMES)
    await plane.clock.sleep(dice.choice((0.0, 0.01, 0.03, 0.1, 0.3)))
    for name in plane.components:
        if name not in shared:
            await plane.stop(name)


async def test_what_has_to_go_goes_and_nothing_else_does(tmp_path: Path) -> None:
    dice = random.Random(1)
    async with control_plane(Settings(directory=tmp_path, port=0), MemoryStore()) as plane:
        client = plane.client()
        namespaces = client.resource("", "v1", "namespaces", namespaced=False)
        maps = client.resource("", "v1", "configmaps", namespaced=True)
        for name in ("stays", "goes"):
            await namespaces.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
            for number in range(FAMILIES):
                await family(plane, name, number)
        policies = ("Background", "Foreground", "Orphan", "")
        for number in range(FAMILIES):
            policy = policies[number % 4]
            if policy:
                await maps.delete(f"parent-{number}", "stays", propagation_policy=policy)
            if number == FAMILIES // 2:
                await namespaces.delete("goes")
            await end_and_start(plane, dice)
        expected = {"kube-root-ca.crt"}
        for number in range(FAMILIES):
            kept = {2: ("child", "grandchild"), 3: ("parent", "child", "grandchild")}.get(number % 4, ())
            expected |= {f"parent-{number}"} if "parent" in kept else set()
            expected |= {f"{one}-{number}-{child}" for one in kept if one != "parent" for child in range(3)}
        for _ in range(200):
            try:
                await end_and_start(plane, dice)
            except Conflict:
                continue
            left = {one["metadata"]["name"] for one in (await maps.list("stays")).items}
            spaces = {one["metadata"]["name"] for one in (await namespaces.list()).items}
            if left == expected and "goes" not in spaces:
                break
        assert left == expected
        assert "goes" not in spaces and (await maps.list("goes")).items == ()
        orphans = [one for one in (await maps.list("stays")).items if one["metadata"]["name"].startswith("child-2-")]
        assert len(orphans) == 3 and not any("ownerReferences" in one["metadata"] for one in orphans)
