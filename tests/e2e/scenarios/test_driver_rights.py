"""Scenarios 63 and 97: the account of a driver can do its work on its own node, and nothing on others."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import yaml

from allot.client.api import ResourceClient
from allot.client.errors import ApiError
from allot.driver.skeleton import write_skeleton
from e2e.scenarios.world import World

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="session")]


@asynccontextmanager
async def rights(world: World) -> AsyncIterator[str]:
    """What `allot driver new` writes for a cluster: the account and the policy for it. The account's name."""
    write_skeleton(world.driver, world.folder / "driver")
    made: list[tuple[ResourceClient, str]] = []
    for name in ("rbac", "admission-policy"):
        for object_ in yaml.safe_load_all((world.folder / "driver" / "manifests" / f"{name}.yaml").read_text()):
            resource = await world.client.of_kind(object_["apiVersion"], object_["kind"])
            await resource.create(object_, object_["metadata"].get("namespace", ""))
            if not resource.is_namespaced:
                made.append((resource, object_["metadata"]["name"]))
    account = f"{world.namespace}-driver"
    yield f"system:serviceaccount:{account}:{account}"
    for resource, name in reversed(made):
        await resource.delete(name)


def as_account(account: str, node: str) -> dict[str, str]:
    """Headers of a request by an account whose token is bound to a pod on a node."""
    return {
        "Impersonate-User": account,
        "Impersonate-Group": "system:serviceaccounts",
        "Impersonate-Extra-authentication.kubernetes.io%2fnode-name": node,
    }


def network_data(claim: dict[str, Any]) -> dict[str, Any]:
    """The claim with what a driver tells about its device."""
    [result] = claim["status"]["allocation"]["devices"]["results"]
    device = {key: result[key] for key in ("driver", "pool", "device")}
    return {**claim, "status": {**claim["status"], "devices": [{**device, "data": {"by": "another"}}]}}


async def test_63_what_a_driver_tells_of_devices_is_in_the_claim(world: World) -> None:
    network = {"interfaceName": "eth1", "ips": ["10.9.8.7/24"], "hardwareAddress": "02:00:00:00:00:01"}
    driver = await world.gpus("n1", 1)
    driver.want(status={"data": {"some": ["data", 1]}, "networkData": network})
    await world.device_class()
    await world.claim("c")
    await world.pod("p1", claims={"gpu": "c"})
    await world.running("p1")

    async def told() -> list[dict[str, Any]] | None:
        found: list[dict[str, Any]] | None = (await world.get("resourceclaims", "c"))["status"].get("devices")
        return found

    [device] = await world.until(told, "the status of the device")
    assert device["data"] == {"some": ["data", 1]} and device["networkData"] == network


async def test_63_only_the_drivers_account_on_the_same_node_may_tell(world: World) -> None:
    await world.gpus("n1", 1)
    await world.device_class()
    await world.claim("c")
    await world.pod("p1", claims={"gpu": "c"})
    await world.running("p1")
    path = world.kind("resourceclaims").path(world.namespace, "c", "status")
    async with rights(world) as account:
        body = network_data(await world.get("resourceclaims", "c"))
        with pytest.raises(ApiError, match="cannot arbitrary-node:update"):
            await world.client.request("PUT", path, body=body, headers=as_account(account, "n2"))
        stranger = f"system:serviceaccount:{world.namespace}:default"
        with pytest.raises(ApiError, match="cannot update resource"):
            await world.client.request("PUT", path, body=body, headers=as_account(stranger, "n1"))
        answer = await world.client.request("PUT", path, body=body, headers=as_account(account, "n1"))
        assert answer.body["status"]["devices"][0]["data"] == {"by": "another"}


async def test_97_an_account_may_not_write_slices_of_another_node(world: World) -> None:
    slice_ = await world.slice_("n1", [{"name": "gpu-0"}])
    stolen = {**slice_, "metadata": {"name": world.name("stolen")}, "spec": {**slice_["spec"], "nodeName": "n2"}}
    path = world.kind("resourceslices").path()
    text = "this user is on node 'n1' and may not change ResourceSlices of node 'n2'"
    async with rights(world) as account:

        async def refused() -> bool:
            # A policy holds a moment after it was made.
            try:
                await world.client.request("POST", path, {"dryRun": "All"}, stolen, headers=as_account(account, "n1"))
            except ApiError as error:
                return text in str(error)
            return False

        await world.until(refused, "the refusal")
        # The node itself is held by its own rules.
        with pytest.raises(ApiError, match="the same NodeName as the requesting node"):
            await world.client.request(
                "POST",
                path,
                body=stolen,
                headers={"Impersonate-User": "system:node:n1", "Impersonate-Group": "system:nodes"},
            )
