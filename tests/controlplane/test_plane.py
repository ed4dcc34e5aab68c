"""A whole control plane in one process: every component has the rights that it needs and no others."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from allot.apiserver.assembly import Settings
from allot.client.api import Client
from allot.client.errors import Forbidden, NotFound
from allot.controlplane.components import SCHEDULER_NAME, start_controllers, start_scheduler
from allot.controlplane.plane import ControlPlane, control_plane
from allot.controlplane.users import SCHEDULER, controller_user
from allot.core.features import ALL_GATES
from allot.store.sqlite import SqliteStore
from waiting import until

Object = dict[str, Any]


@pytest_asyncio.fixture
async def plane(tmp_path: Path) -> AsyncIterator[ControlPlane]:
    """Without components."""
    settings = Settings(directory=tmp_path / "pki", port=0, gates=ALL_GATES)
    async with control_plane(settings, SqliteStore(tmp_path / "state.db")) as plane:
        yield plane


async def make_node(client: Client) -> None:
    amounts = {"cpu": "8", "memory": "32Gi", "pods": "110"}
    nodes = client.resource("", "v1", "nodes", namespaced=False)
    ready = [{"type": "Ready", "status": "True"}]
    status = {"capacity": amounts, "allocatable": amounts, "conditions": ready}
    await nodes.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}, "status": status})
    slices = client.resource("resource.k8s.io", "v1", "resourceslices", namespaced=False)
    pool = {"name": "n1", "generation": 1, "resourceSliceCount": 1}
    devices = [{"name": f"gpu-{number}"} for number in range(2)]
    spec = {"driver": "gpu.example.com", "pool": pool, "nodeName": "n1", "devices": devices}
    await slices.create(
        {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": "n1"}, "spec": spec}
    )
    classes = client.resource("resource.k8s.io", "v1", "deviceclasses", namespaced=False)
    selectors = [{"cel": {"expression": 'device.driver == "gpu.example.com"'}}]
    metadata = {"name": "gpu.example.com"}
    body = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": metadata}
    await classes.create({**body, "spec": {"selectors": selectors}})


async def make_pod(client: Client, namespace: str, name: str) -> None:
    container = {"name": "main", "image": "example.com/main:1", "resources": {"claims": [{"name": "gpu"}]}}
    spec = {
        "containers": [container],
        "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "gpu"}],
        "tolerations": [{"operator": "Exists"}],
    }
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
    await client.resource("", "v1", "pods", namespaced=True).create(body, namespace)


async def make_namespace(client: Client, name: str) -> None:
    namespaces = client.resource("", "v1", "namespaces", namespaced=False)
    await namespaces.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    accounts = client.resource("", "v1", "serviceaccounts", namespaced=True)

    async def furnished() -> bool:
        return any(item["metadata"]["name"] == "default" for item in (await accounts.list(name)).items)

    await until(furnished)
    templates = client.resource("resource.k8s.io", "v1", "resourceclaimtemplates", namespaced=True)
    request = {"name": "gpu", "exactly": {"deviceClassName": "gpu.example.com"}}
    spec = {"spec": {"devices": {"requests": [request]}}}
    kind = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate", "metadata": {"name": "gpu"}}
    await templates.create({**kind, "spec": spec}, name)


def scheduled(client: Client, namespace: str, *names: str) -> Callable[[], Awaitable[bool]]:
    pods = client.resource("", "v1", "pods", namespaced=True)

    async def ask() -> bool:
        found = [await pods.get(name, namespace) for name in names]
        return all(pod["spec"].get("nodeName") for pod in found)

    return ask


@pytest.mark.slow
async def test_all_components_do_their_work_with_their_own_rights(
    plane: ControlPlane, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    start_controllers(plane)
    start_scheduler(plane)
    client = plane.client()
    await make_node(client)
    await make_namespace(client, "work")
    for name in ("p1", "p2"):
        await make_pod(client, "work", name)
    await until(scheduled(client, "work", "p1", "p2"))
    pods = client.resource("", "v1", "pods", namespaced=True)
    await pods.delete("p1", "work", grace_period_seconds=0)
    claims = client.resource("resource.k8s.io", "v1", "resourceclaims", namespaced=True)

    async def released() -> bool:
        return len((await claims.list("work")).items) == 1

    await until(released)
    namespaces = client.resource("", "v1", "namespaces", namespaced=False)
    # Nobody runs on the node, so nobody else would let the pod go.
    await pods.delete("p2", "work", grace_period_seconds=0)
    await namespaces.delete("work")

    async def gone() -> bool:
        try:
            await namespaces.get("work")
        except NotFound:
            return True
        return False

    await until(gone)
    told = [record.getMessage() for record in caplog.records]
    assert [text for text in told if "forbidden" in text.lower()] == []
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == []


@pytest.mark.slow
async def test_a_scheduler_that_was_stopped_goes_on_where_it_was(plane: ControlPlane) -> None:
    start_controllers(plane, ("resourceclaim-controller", "serviceaccount-controller"))
    start_scheduler(plane)
    client = plane.client()
    await make_node(client)
    await make_namespace(client, "work")
    await make_pod(client, "work", "p1")
    await until(scheduled(client, "work", "p1"))
    await plane.stop(SCHEDULER_NAME)
    await make_pod(client, "work", "p2")
    await asyncio.sleep(0.1)
    assert not await scheduled(client, "work", "p2")()
    start_scheduler(plane)
    await until(scheduled(client, "work", "p2"))


async def test_a_client_has_the_rights_of_its_user(plane: ControlPlane) -> None:
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}}
    for user in (SCHEDULER, controller_user("resource-claim-controller")):
        with pytest.raises(Forbidden):
            await plane.client(user).resource("", "v1", "secrets", namespaced=True).create(secret, "default")
    await plane.client().resource("", "v1", "secrets", namespaced=True).create(secret, "default")


async def test_clients_in_the_process_can_ask_what_is_served(plane: ControlPlane) -> None:
    client = plane.client(SCHEDULER)
    discovery = await client.discovery()
    assert discovery.find_kind("resource.k8s.io", "v1", "ResourceClaim") is not None
    assert (await client.request("GET", "/version")).body["major"] == "1"
    with pytest.raises(Forbidden):
        await client.request("GET", "/nowhere")
