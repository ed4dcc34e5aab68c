"""Snapshots of a server that runs, inside of an event loop, as a dashboard would take them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from allot.apiserver.assembly import Settings
from allot.client.api import Client, ResourceClient
from allot.client.connection import Connection, Impersonation
from allot.client.http import HttpTransport
from allot.client.informer import Change
from allot.client.kubeconfig import connection_from_environment
from allot.controlplane.plane import control_plane
from allot.core.advice.snapshot import KINDS, snapshot_kind
from allot.core.model.core_v1 import Node
from allot.core.model.meta import APIStruct
from allot.core.model.team_queues import KaiQueue
from allot.installation.definitions import install
from allot.process.clock import SystemClock
from allot.process.ids import SystemIds
from allot.reading.errors import Denied, NotReached
from allot.reading.listener import Notes
from allot.reading.live import fetch_snapshot, watch_snapshots, watching
from allot.store.memory import MemoryStore
from waiting import until

pytestmark = pytest.mark.slow


class Cluster(msgspec.Struct, frozen=True):
    """A server, and a connection of its administrator."""

    connection: Connection
    nodes: ResourceClient


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with control_plane(Settings(directory=tmp_path / "server", port=0), MemoryStore()) as plane:
        path = tmp_path / "kubeconfig"
        plane.server.access.write_admin_kubeconfig(path, plane.server.url)
        nodes = plane.client().resource("", "v1", "nodes", namespaced=False)
        await nodes.create(node("a"))
        yield Cluster(connection_from_environment({}, kubeconfig=path), nodes)


def node(name: str) -> dict[str, object]:
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}


async def test_a_snapshot_is_taken_inside_of_an_event_loop(cluster: Cluster) -> None:
    snapshot = await fetch_snapshot(cluster.connection, Notes())
    assert [each.metadata.name for each in snapshot.of(Node)] == ["a"]
    assert snapshot.taken_at


async def test_another_snapshot_follows_each_change(cluster: Cluster) -> None:
    views = watch_snapshots(cluster.connection, Notes())
    async for snapshot, stale in views:
        names = {each.metadata.name for each in snapshot.of(Node)}
        assert not stale
        if names == {"a", "b"}:
            break
        assert names == {"a"}
        await cluster.nodes.create(node("b"))
    await views.aclose()


async def test_who_may_not_list_is_told_which_rights_are_needed(cluster: Cluster) -> None:
    nobody = msgspec.structs.replace(cluster.connection, impersonation=Impersonation(user="nobody"))
    with pytest.raises(Denied) as caught:
        await fetch_snapshot(nobody, Notes())
    assert 'User "nobody" cannot list resource' in caught.value.message
    assert caught.value.hint is not None
    assert caught.value.hint.startswith("you need permission to list nodes, pods")
    with pytest.raises(Denied, match="nobody"):
        await anext(watch_snapshots(nobody, Notes()))


async def test_a_server_that_is_away_is_not_reached() -> None:
    with pytest.raises(NotReached) as caught:
        await fetch_snapshot(Connection(server="http://127.0.0.1:1"), Notes())
    assert "127.0.0.1:1" in caught.value.message


async def test_kinds_that_are_installed_later_are_watched_from_then_on(cluster: Cluster) -> None:
    seen: list[str] = []

    def tell(change: Change[APIStruct]) -> None:
        seen.append(f"{type(change.object).__name__} {change.key}")

    admin = Client(HttpTransport(cluster.connection, SystemClock(), SystemIds()))
    try:
        async with watching(cluster.connection, Notes(), KINDS, tell, user_agent="test", late_every_s=0.05) as watched:
            assert "Node a" in seen
            assert not watched.watches(snapshot_kind(KaiQueue))
            await install(admin, SystemClock())
            free = {"quota": -1, "limit": -1, "overQuotaWeight": 1}
            spec = {"resources": dict.fromkeys(("gpu", "cpu", "memory"), free)}
            queue = {"apiVersion": "scheduling.run.ai/v2", "kind": "Queue", "metadata": {"name": "q"}, "spec": spec}
            await admin.resource("scheduling.run.ai", "v2", "queues", namespaced=False).create(queue)
            await until(lambda: "KaiQueue q" in seen)
            with pytest.raises(PermissionError):
                await watched.client.resource("", "v1", "nodes", namespaced=False).delete("a")
    finally:
        await admin.close()
