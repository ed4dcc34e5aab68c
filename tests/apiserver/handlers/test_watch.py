"""Watches: what is told, when, and what happens when it cannot be."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import msgspec
import pytest

from apiserver.live import LiveServer
from waiting import WAIT_S, until

MAPS = "/api/v1/namespaces/default/configmaps"
Events = AsyncIterator[dict[str, Any]]


async def take(events: Events, count: int) -> list[dict[str, Any]]:
    async with asyncio.timeout(WAIT_S):
        return [await anext(events) for _ in range(count)]


def told(events: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(each["type"], each["object"]["metadata"].get("name", "")) for each in events]


async def add(server: LiveServer, name: str, **labels: str) -> dict[str, Any]:
    body = {"metadata": {"name": name, "labels": labels}}
    answer: dict[str, Any] = (await server.post(MAPS, body)).json
    return answer


async def revision(server: LiveServer) -> str:
    version: str = (await server.get(MAPS)).json["metadata"]["resourceVersion"]
    return version


async def test_changes_after_a_revision_are_told_in_order(any_server: LiveServer) -> None:
    start = await revision(any_server)
    await add(any_server, "a")
    await any_server.patch(f"{MAPS}/a", {"data": {"k": "v"}})
    async with any_server.watch(f"{MAPS}?watch=true&resourceVersion={start}") as events:
        first = await take(events, 2)
        await any_server.delete(f"{MAPS}/a")
        last = await take(events, 1)
    assert told(first + last) == [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a")]
    versions = [int(each["object"]["metadata"]["resourceVersion"]) for each in first + last]
    assert versions == sorted(set(versions))
    assert first[0]["object"]["kind"] == "ConfigMap"


async def test_without_a_revision_what_is_there_is_told_first(any_server: LiveServer) -> None:
    await add(any_server, "a")
    for query in ("watch=1", "watch=true&resourceVersion=0"):
        async with any_server.watch(f"{MAPS}?{query}") as events:
            assert told(await take(events, 2)) == [("ADDED", "a"), ("ADDED", "kube-root-ca.crt")]


async def test_selectors_turn_changes_into_coming_and_going(any_server: LiveServer) -> None:
    start = await revision(any_server)
    path = f"{MAPS}?watch=true&labelSelector=color%3Dred&resourceVersion={start}"
    async with any_server.watch(path) as events:
        await add(any_server, "a", color="blue")
        await any_server.patch(f"{MAPS}/a", {"metadata": {"labels": {"color": "red"}}})
        await any_server.patch(f"{MAPS}/a", {"data": {"k": "v"}})
        answer = await any_server.patch(f"{MAPS}/a", {"metadata": {"labels": {"color": "green"}}})
        await any_server.delete(f"{MAPS}/a")
        await add(any_server, "b", color="red")
        found = await take(events, 4)
    assert told(found) == [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a"), ("ADDED", "b")]
    gone = found[2]["object"]["metadata"]
    assert gone["labels"] == {"color": "red"}
    assert gone["resourceVersion"] == answer.json["metadata"]["resourceVersion"]


async def test_one_object_can_be_watched(server: LiveServer) -> None:
    start = await revision(server)
    await add(server, "a")
    await add(server, "b")
    path = f"{MAPS}?watch=true&fieldSelector=metadata.name=b&resourceVersion={start}"
    async with server.watch(path) as events:
        assert told(await take(events, 1)) == [("ADDED", "b")]
    async with server.watch(f"/api/v1/watch/namespaces/default/configmaps/b?resourceVersion={start}") as events:
        assert told(await take(events, 1)) == [("ADDED", "b")]


async def test_initial_events_end_with_a_bookmark(any_server: LiveServer) -> None:
    await add(any_server, "a")
    query = "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
    async with any_server.watch(f"{MAPS}?{query}") as events:
        found = await take(events, 3)
        assert told(found)[:2] == [("ADDED", "a"), ("ADDED", "kube-root-ca.crt")]
        mark = found[2]
        assert mark["type"] == "BOOKMARK"
        assert mark["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
        assert int(mark["object"]["metadata"]["resourceVersion"]) >= int(
            found[0]["object"]["metadata"]["resourceVersion"]
        )
        await add(any_server, "b")
        assert told(await take(events, 1)) == [("ADDED", "b")]


async def test_initial_events_have_their_rules(server: LiveServer) -> None:
    answer = await server.get(f"{MAPS}?watch=true&sendInitialEvents=true")
    assert answer.status == 422
    assert "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan" in answer.json["message"]
    answer = await server.get(f"{MAPS}?watch=true&resourceVersionMatch=NotOlderThan")
    assert "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided" in answer.json["message"]


@pytest.mark.slow
async def test_a_watch_ends_when_its_time_is_up_after_a_bookmark(server: LiveServer) -> None:
    start = await revision(server)
    await server.post("/api/v1/namespaces/default/secrets", {"metadata": {"name": "s"}})
    path = f"{MAPS}?watch=true&resourceVersion={start}&timeoutSeconds=1&allowWatchBookmarks=true"
    async with server.watch(path) as events:
        async with asyncio.timeout(WAIT_S):
            found = [each async for each in events]
    assert [each["type"] for each in found] == ["BOOKMARK"]
    assert found[0]["object"]["kind"] == "ConfigMap"


async def test_a_revision_that_was_compacted_has_expired(any_server: LiveServer) -> None:
    start = await revision(any_server)
    await add(any_server, "a")
    await add(any_server, "b")
    store = any_server.live.server.context.store
    await store.compact(await store.revision())
    async with any_server.watch(f"{MAPS}?watch=true&resourceVersion={start}") as events:
        (event,) = await take(events, 1)
    assert event["type"] == "ERROR"
    assert (event["object"]["code"], event["object"]["reason"]) == (410, "Expired")


async def test_a_watch_shows_tables(server: LiveServer) -> None:
    headers = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"}
    url = f"{server.url}{MAPS}?watch=true"
    await add(server, "a")
    async with server.session.get(url, headers=headers) as response:
        first = msgspec.json.decode(await response.content.readline())
        second = msgspec.json.decode(await response.content.readline())
    assert first["object"]["kind"] == "Table"
    assert [column["name"] for column in first["object"]["columnDefinitions"]] == ["Name", "Data", "Age"]
    assert second["object"]["columnDefinitions"] is None
    assert second["object"]["rows"][0]["cells"][0] == "kube-root-ca.crt"


async def test_a_watch_speaks_websocket(server: LiveServer) -> None:
    await add(server, "a")
    async with server.session.ws_connect(f"{server.url}{MAPS}?watch=true") as socket:
        message = await asyncio.wait_for(socket.receive(), WAIT_S)
        assert message.type is aiohttp.WSMsgType.BINARY
        assert msgspec.json.decode(message.data)["object"]["metadata"]["name"] == "a"


async def test_watches_end_when_the_client_leaves(server: LiveServer) -> None:
    async with server.watch(f"{MAPS}?watch=true") as events:
        await take(events, 1)
    for name in ("a", "b", "c"):
        await add(server, name)

    await until(lambda: _watches(server, 0))


async def _watches(server: LiveServer, count: int) -> bool:
    """Whether so many watches of config maps are open."""
    lines = (await server.get("/metrics")).raw.decode().splitlines()
    watches = [each for each in lines if each.startswith("apiserver_longrunning_requests{") and "configmaps" in each]
    return [float(each.rsplit(" ", 1)[1]) for each in watches] == [count]


@pytest.mark.slow
async def test_many_watchers_see_the_same(any_server: LiveServer) -> None:
    start = await revision(any_server)

    async def follow() -> list[tuple[str, str, str]]:
        async with any_server.watch(f"{MAPS}?watch=true&resourceVersion={start}") as events:
            found = await take(events, 30)
        return [
            (each["type"], *(each["object"]["metadata"][key] for key in ("name", "resourceVersion"))) for each in found
        ]

    async with asyncio.TaskGroup() as tasks:
        watchers = [tasks.create_task(follow()) for _ in range(10)]
        await until(lambda: _watches(any_server, 10))
        for number in range(10):
            await add(any_server, f"m{number}")
            await any_server.patch(f"{MAPS}/m{number}", {"data": {"k": "v"}})
            await any_server.delete(f"{MAPS}/m{number}")
    seen = [watcher.result() for watcher in watchers]
    assert all(each == seen[0] for each in seen)
    versions = [int(version) for _, _, version in seen[0]]
    assert versions == sorted(set(versions))


async def test_other_versions_are_watched_in_their_own_words(server: LiveServer) -> None:
    claim = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "c"},
        "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "x"}}]}},
    }
    assert (await server.post("/apis/resource.k8s.io/v1/namespaces/default/resourceclaims", claim)).status == 201
    path = "/apis/resource.k8s.io/v1beta1/namespaces/default/resourceclaims"
    async with server.watch(f"{path}?watch=true") as events:
        (event,) = await take(events, 1)
    assert event["object"]["apiVersion"] == "resource.k8s.io/v1beta1"
    assert event["object"]["spec"]["devices"]["requests"][0]["deviceClassName"] == "x"
