"""`allot explain` and `allot snapshot` on a cluster that is there, by somebody who may only read."""

from __future__ import annotations

import asyncio
import copy
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from allot.apiserver.assembly import Settings
from allot.client.api import Client
from allot.controlplane.plane import control_plane
from allot.store.memory import MemoryStore
from cli.command import allot
from core.advice.explain.clusters import asks, claim, device_class, gpus, holding, node, pool, running, wanting

pytestmark = pytest.mark.slow

CAUSE = "default/train is pending because the only device of class gpu (gpu-0 on node n) is in use by pod default/other"
READ = [
    {"apiGroups": [""], "resources": ["pods", "nodes"], "verbs": ["list"]},
    {"apiGroups": ["resource.k8s.io"], "resources": ["*"], "verbs": ["list"]},
]
ACCESS = "rbac.authorization.k8s.io/v1"


def reader(rules: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    role = {"apiVersion": ACCESS, "kind": "ClusterRole", "metadata": {"name": name}, "rules": rules}
    to = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
    whom = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name}
    binding = {"apiVersion": ACCESS, "kind": "ClusterRoleBinding", "metadata": {"name": name}}
    return [role, {**binding, "roleRef": to, "subjects": [whom]}]


async def create(client: Client, value: dict[str, Any]) -> None:
    """The object with its status, which only a second request can set."""
    resource = await client.of_kind(value["apiVersion"], value["kind"])
    made = await resource.create(copy.deepcopy(value))
    if value.get("status"):
        await resource.update_status({**made, "status": {**made.get("status", {}), **value["status"]}})


@pytest.fixture
async def kubeconfig(tmp_path: Path) -> AsyncIterator[Path]:
    """A server with a GPU that is held, and a kubeconfig of its administrator."""
    other = running("other", "n", "held")
    train = wanting("train", "wanted")
    for pod in (other, train):
        pod["spec"]["containers"][0] |= {"env": [{"name": "A", "value": "secret"}], "image": "x"}
    objects = [
        device_class(),
        node("n"),
        pool("n", gpus(1)),
        other,
        train,
        claim("wanted", asks()),
        *reader(READ, "reader"),
        *reader(READ[:1], "blind"),
    ]
    async with control_plane(Settings(directory=tmp_path / "server", port=0), MemoryStore()) as plane:
        path = tmp_path / "kubeconfig"
        plane.server.access.write_admin_kubeconfig(path, plane.server.url)
        client = plane.client()
        for value in objects:
            await create(client, value)
        pods = client.resource("", "v1", "pods", namespaced=True)
        uid = (await pods.get("other", "default"))["metadata"]["uid"]
        status = holding("n", "gpu-0", users=("other",))
        status["reservedFor"][0]["uid"] = uid
        await create(client, claim("held", asks(), status=status))
        yield path


def acting_as(kubeconfig: Path, user: str) -> str:
    config = yaml.safe_load(kubeconfig.read_text())
    config["users"][0]["user"]["as"] = user
    path = kubeconfig.with_name(user)
    path.write_text(json.dumps(config))
    return str(path)


async def test_whoever_may_list_gets_an_explanation_and_a_snapshot_without_secrets(kubeconfig: Path) -> None:
    asked = ("--kubeconfig", acting_as(kubeconfig, "reader"))
    found = await asyncio.to_thread(allot, "explain", "train", *asked)
    assert (found.code, found.stdout.splitlines()[0]) == (1, CAUSE)
    (note,) = found.stderr.splitlines()
    assert note.startswith("note: left out, as they may not be listed: ")
    assert "podgroups, " in note
    taken = await asyncio.to_thread(allot, "snapshot", *asked)
    assert "secret" not in taken.stdout
    again = await asyncio.to_thread(lambda: allot("explain", "train", "-f", "-", stdin=taken.stdout))
    assert again.stdout.splitlines()[0] == CAUSE
    blind = await asyncio.to_thread(allot, "explain", "train", "--kubeconfig", acting_as(kubeconfig, "blind"))
    assert blind.code == 1
    assert blind.stdout.startswith("default/train is pending: the scheduler ")
    assert "resourceslices, deviceclasses could not be read" in blind.stdout
