"""Access to the kinds of a real server; each test over HTTP and in process."""

from __future__ import annotations

import asyncio
import copy
from typing import Any

import pytest

from allot.apiserver.request import User
from allot.client.api import Client, PatchType
from allot.client.errors import (
    AlreadyExists,
    ApiError,
    BadRequest,
    Conflict,
    Forbidden,
    Gone,
    Invalid,
    NotFound,
    UnexpectedAnswer,
    Unreachable,
    error_from_answer,
)
from allot.client.typed import TypedResource
from allot.core.model.core_v1 import Pod
from allot.core.model.meta import ObjectMeta
from allot.core.model.resource_v1 import (
    DeviceClaim,
    DeviceRequest,
    ExactDeviceRequest,
    ResourceClaim,
    ResourceClaimSpec,
)
from apiserver.live import LiveServer
from client.conftest import in_process_transport
from waiting import WAIT_S


def config_map(name: str, **data: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": "default", "labels": {"of": "test"}},
        "data": data,
    }


def claim(name: str) -> ResourceClaim:
    request = DeviceRequest(name="gpu", exactly=ExactDeviceRequest(device_class_name="gpu.example.com"))
    return ResourceClaim(
        metadata=ObjectMeta(name=name, namespace="default"),
        spec=ResourceClaimSpec(devices=DeviceClaim(requests=(request,))),
    )


POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "p", "namespace": "default"},
    "spec": {
        "containers": [{"name": "c", "image": "i", "terminationMessagePath": "/x"}],
        "serviceAccountName": "default",
    },
}


async def test_an_object_can_be_created_read_changed_and_deleted(client: Client) -> None:
    maps = client.resource("", "v1", "configmaps", namespaced=True)
    created = await maps.create(config_map("a", x="1"), field_manager="me")
    assert created["metadata"]["managedFields"][0]["manager"] == "me"
    assert (await maps.get("a", "default"))["data"] == {"x": "1"}
    updated = await maps.update({**created, "data": {"x": "2"}})
    assert updated["metadata"]["resourceVersion"] != created["metadata"]["resourceVersion"]
    with pytest.raises(Conflict, match="the object has been modified") as conflict:
        await maps.update({**created, "data": {"x": "3"}})
    assert conflict.value.code == 409
    assert conflict.value.request == "PUT /api/v1/namespaces/default/configmaps/a"
    with pytest.raises(Conflict):
        await maps.delete("a", "default", uid="another")
    await maps.delete("a", "default", uid=created["metadata"]["uid"])
    with pytest.raises(NotFound, match='configmaps "a" not found') as missing:
        await maps.get("a", "default")
    assert missing.value.reason == "NotFound"
    assert missing.value.details["name"] == "a"


async def test_patches_of_all_types_and_server_side_apply(client: Client) -> None:
    maps = client.resource("", "v1", "configmaps", namespaced=True)
    await maps.create(config_map("a", x="1"))
    merged = await maps.patch("a", {"data": {"y": "2"}}, PatchType.MERGE, "default")
    assert merged["data"] == {"x": "1", "y": "2"}
    steps = [{"op": "remove", "path": "/data/x"}]
    assert (await maps.patch("a", steps, PatchType.JSON, "default"))["data"] == {"y": "2"}
    strategic = await maps.patch("a", {"data": {"z": "3"}}, PatchType.STRATEGIC, "default")
    assert strategic["data"] == {"y": "2", "z": "3"}
    wanted = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "b", "namespace": "default"}}
    await maps.apply({**wanted, "data": {"k": "1"}}, "first")
    with pytest.raises(Conflict) as conflict:
        await maps.apply({**wanted, "data": {"k": "2"}}, "second")
    assert conflict.value.causes[0]["reason"] == "FieldManagerConflict"
    forced = await maps.apply({**wanted, "data": {"k": "2"}}, "second", force=True)
    assert forced["data"] == {"k": "2"}


async def test_errors_carry_what_the_server_said(client: Client) -> None:
    maps = client.resource("", "v1", "configmaps", namespaced=True)
    await maps.create(config_map("a"))
    with pytest.raises(AlreadyExists):
        await maps.create(config_map("a"))
    with pytest.raises(Invalid) as invalid:
        await maps.create(config_map("Not_A_Name"))
    assert invalid.value.causes[0]["field"] == "metadata.name"
    with pytest.raises(BadRequest):
        await maps.list(field_selector="spec.nonsense=1")
    with pytest.raises(NotFound):
        await client.resource("nobody.example.com", "v1", "things", namespaced=False).list()


async def test_a_dry_run_changes_nothing(client: Client) -> None:
    maps = client.resource("", "v1", "configmaps", namespaced=True)
    await maps.create(config_map("a"), dry_run=True)
    with pytest.raises(NotFound):
        await maps.get("a", "default")


async def test_a_list_is_whole_whatever_the_size_of_its_pages(client: Client) -> None:
    maps = client.resource("", "v1", "configmaps", namespaced=True)
    for number in range(7):
        await maps.create(config_map(f"m{number}"))
    listed = await maps.list("default", label_selector="of=test", page_size=3)
    assert [item["metadata"]["name"] for item in listed.items] == [f"m{number}" for number in range(7)]
    assert all(item["kind"] == "ConfigMap" and item["apiVersion"] == "v1" for item in listed.items)
    assert listed.resource_version
    sizes = [len(page.items) async for page in maps.pages("default", label_selector="of=test", page_size=3)]
    assert sizes == [3, 3, 1]
    await maps.delete_collection("default", label_selector="of=test")
    assert (await maps.list("default", label_selector="of=test")).items == ()


async def test_a_watch_tells_changes_from_a_version_on(client: Client) -> None:
    maps = client.resource("", "v1", "configmaps", namespaced=True)
    listed = await maps.list("default")
    created = await maps.create(config_map("a", x="1"))
    await maps.update({**created, "data": {"x": "2"}})
    await maps.delete("a", "default")
    types = []
    async with asyncio.timeout(WAIT_S), maps.watch("default", resource_version=listed.resource_version) as events:
        async for event in events:
            types.append((event.type, event.object["data"]["x"]))
            if len(types) == 3:
                break
    assert types == [("ADDED", "1"), ("MODIFIED", "2"), ("DELETED", "2")]


async def test_a_watch_that_is_refused_raises(client: Client) -> None:
    maps = client.resource("", "v1", "configmaps", namespaced=True)
    with pytest.raises(BadRequest):
        async with maps.watch("default", field_selector="spec.nonsense=1") as events:
            await anext(events)


async def test_typed_objects_are_decoded_and_encoded(client: Client) -> None:
    claims = client.typed(ResourceClaim)
    created = await claims.create(claim("train"))
    assert created.spec.devices.requests[0].exactly is not None
    assert created.spec.devices.requests[0].exactly.count == 1
    assert await claims.get("train", "default") == created
    assert (await claims.list("default")).items == (created,)
    labelled = await claims.patch("train", {"metadata": {"labels": {"a": "b"}}}, PatchType.MERGE, "default")
    assert labelled.metadata.labels == {"a": "b"}
    async with (
        asyncio.timeout(WAIT_S),
        claims.watch("default", resource_version=created.metadata.resource_version) as events,
    ):
        event = await anext(events)
    assert (event.type, event.object) == ("MODIFIED", labelled)
    await claims.delete("train", "default")


async def test_typed_objects_can_be_asked_for_in_an_older_version(client: Client) -> None:
    created = await client.typed(ResourceClaim, version="v1beta1").create(claim("old"))
    assert created.spec == (await client.typed(ResourceClaim).get("old", "default")).spec


async def test_a_partly_typed_object_is_updated_by_its_envelope_only(client: Client) -> None:
    await client.resource("", "v1", "serviceaccounts", namespaced=True).list("default")
    pods: TypedResource[Pod] = client.typed(Pod)
    await pods.resource.create(POD)
    with pytest.raises(TypeError, match="Pod is only partly typed"):
        await pods.update(await pods.get("p", "default"))
    envelope = await pods.get_envelope("p", "default")
    await pods.update(envelope)
    kept = await pods.resource.get("p", "default")
    assert kept["spec"]["containers"][0]["terminationMessagePath"] == "/x"


async def test_rights_are_the_same_in_process(server: LiveServer) -> None:
    client = Client(in_process_transport(server, User("somebody", groups=("system:authenticated",))))
    with pytest.raises(Forbidden, match='User "somebody" cannot list resource "configmaps"'):
        await client.resource("", "v1", "configmaps", namespaced=True).list("default")
    with pytest.raises(Forbidden):
        async with client.resource("", "v1", "configmaps", namespaced=True).watch("default"):
            pass


async def test_a_closed_transport_is_unreachable(client: Client) -> None:
    await client.close()
    with pytest.raises(Unreachable, match="the transport is closed"):
        await client.resource("", "v1", "nodes", namespaced=False).list()


def test_paths_that_make_no_sense_are_refused_before_anything_is_sent() -> None:
    nodes = Client(None).resource("", "v1", "nodes", namespaced=False)  # type: ignore[arg-type]
    pods = Client(None).resource("", "v1", "pods", namespaced=True)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="nodes have no namespace, got 'x'"):
        nodes.path("x", "n")
    with pytest.raises(ValueError, match="pods 'p': expected a namespace"):
        pods.path("", "p")
    with pytest.raises(ValueError, match="expected the name of an object"):
        pods.path("x", "", "status")
    assert pods.path("a/b", "../c", "log") == "/api/v1/namespaces/a%2Fb/pods/..%2Fc/log"


def test_answers_that_are_no_status_become_errors_too() -> None:
    page = error_from_answer(502, b"<html>\n bad   gateway</html>", "GET /x")
    assert str(page) == "GET /x: status 502: <html> bad gateway</html>"
    assert isinstance(error_from_answer(410, None, ""), Gone)
    assert isinstance(error_from_answer(0, {"kind": "Status", "apiVersion": "v1", "code": 410}, ""), Gone)
    assert type(error_from_answer(418, {"kind": "Status", "apiVersion": "v1", "details": 5}, "")) is ApiError
    assert len(str(error_from_answer(500, b"x" * 10_000, ""))) < 1100
    assert issubclass(UnexpectedAnswer, ApiError)


async def test_who_sent_an_object_may_change_it_afterwards(server: LiveServer) -> None:
    client = Client(in_process_transport(server))
    pods = client.resource("", "v1", "pods", namespaced=True)
    maps = client.resource("", "v1", "configmaps", namespaced=True)
    claims = client.resource("resource.k8s.io", "v1", "resourceclaims", namespaced=True)
    container: dict[str, Any] = {"name": "c", "image": "i:1", "env": [{"name": "A", "value": "1"}]}
    pod: dict[str, Any] = {"metadata": {"name": "a", "labels": {"x": "1"}}, "spec": {"containers": [container]}}
    request: dict[str, Any] = {
        "name": "gpu",
        "exactly": {"deviceClassName": "c", "selectors": [{"cel": {"expression": "true"}}]},
    }
    wish = {"metadata": {"name": "a"}, "spec": {"devices": {"requests": [request]}}}
    map_: dict[str, Any] = {"metadata": {"name": "a"}, "data": {"k": "1"}}
    sent = [(pods, pod), (claims, wish), (maps, map_)]
    stored = [copy.deepcopy(await resource.create(body, "default")) for resource, body in sent]

    pod["metadata"]["labels"]["x"] = "2"
    container["env"][0]["value"] = "2"
    request["exactly"]["selectors"][0]["cel"]["expression"] = "false"
    map_["data"]["k"] = "2"
    for (resource, _), before in zip(sent, stored, strict=True):
        assert await resource.get("a", "default") == before

    wanted = {**stored[2], "data": {"k": "3"}}
    await maps.update(wanted)
    wanted["data"]["k"] = "4"
    assert (await maps.get("a", "default"))["data"] == {"k": "3"}
    patch = {"data": {"k": "5"}}
    await maps.patch("a", patch, PatchType.MERGE, "default")
    patch["data"]["k"] = "6"
    assert (await maps.get("a", "default"))["data"] == {"k": "5"}
