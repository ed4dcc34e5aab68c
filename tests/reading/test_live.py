"""Snapshots of a server that runs, inside of an event loop, as a dashboard would take them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from allot.apiserver.assembly import Settings
from allot.client.api import ResourceClient
from allot.client.connection import Connection, Impersonation
from allot.client.kubeconfig import connection_from_environment
from allot.controlplane.plane import control_plane
from allot.core.model.core_v1 import Node
from allot.reading.errors import Denied, NotReached
from allot.reading.listener import Notes
from allot.reading.live import fetch_snapshot, watch_snapshots
from allot.store.memory import MemoryStore

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
    assert caught.value.hint.startswith("the right to list nodes, pods")
    with pytest.raises(Denied, match="nobody"):
        await anext(watch_snapshots(nobody, Notes()))


async def test_a_server_that_is_away_is_not_reached() -> None:
    with pytest.raises(NotReached) as caught:
        await fetch_snapshot(Connection(server="http://127.0.0.1:1"), Notes())
    assert "127.0.0.1:1" in caught.value.message
