"""Informers against servers that break: whatever happens, the cache becomes what the server has, and every handler is told
each change once and in order."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allot.apiserver.assembly import Settings, running
from allot.client.api import Client
from allot.client.cache import Cache
from allot.client.connection import Connection
from allot.client.http import HttpTransport
from allot.client.informer import Change, Informer
from allot.client.informers import Informers
from allot.client.kubeconfig import load_kubeconfig
from allot.core.model.core_v1 import Pod
from allot.core.model.meta import ObjectMeta
from allot.core.model.resource_v1 import DeviceClass, ResourceClaim
from allot.process.clock import SystemClock
from allot.process.ids import CountingIds, SystemIds
from allot.store.sqlite import SqliteStore
from apiserver.live import LiveServer
from client.conftest import http_transport, in_process_transport
from client.history import HistoryServer
from waiting import WAIT_S, until

Object = dict[str, Any]


class ImpatientClock(SystemClock):
    """Waits a thousandth of what it should."""

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds / 1000)


class Recorder:
    """A handler that holds the informer to its promises."""

    def __init__(self) -> None:
        self.state: dict[str, Object] = {}
        self.changes: list[Change[Object]] = []

    def __call__(self, change: Change[Object]) -> None:
        self.changes.append(change)
        known = self.state.get(change.key)
        if change.new is None:
            assert known is not None, f"{change.key} deleted without being there"
            assert change.old is not None
            assert uid(change.old) == uid(known), f"{change.key}: another one was deleted"
            del self.state[change.key]
            return
        assert change.old == known, f"{change.key}: an update from a state that was never told"
        if known is not None:
            assert uid(known) == uid(change.new), f"{change.key}: one object became another"
            assert version(known) < version(change.new), f"{change.key}: told twice or out of order"
        self.state[change.key] = change.new


def uid(object_: Object) -> str:
    return str(object_["metadata"]["uid"])


def version(object_: Object) -> int:
    return int(object_["metadata"]["resourceVersion"])


@asynccontextmanager
async def informing(server: HistoryServer, **more: Any) -> AsyncIterator[tuple[Informer[Object], Recorder]]:
    """An informer that follows a server, and what it told."""
    clock, ids = ImpatientClock(), CountingIds()
    transport = HttpTransport(Connection(server=server.url, source="test"), clock, ids)
    resource = Client(transport).resource("", "v1", "configmaps", namespaced=True)
    informer: Informer[Object] = Informer(resource, lambda item: item, clock, ids, **more)
    recorder = Recorder()
    informer.add_handler(recorder)
    try:
        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(informer.run())
            yield informer, recorder
            task.cancel()
    finally:
        await transport.close()


def server_state(server: HistoryServer) -> dict[str, Object]:
    return {f"default/{name}": object_ for name, object_ in server.objects.items()}


async def settled(server: HistoryServer, informer: Informer[Object], recorder: Recorder) -> None:
    """Wait until the informer is as far as the server; a time-out is a failure."""
    expected = server_state(server)
    await until(lambda: informer.resource_version == str(server.revision) and informer.has_synced)
    assert recorder.state == expected
    assert dict(informer.cache.items()) == expected


NAMES = st.sampled_from("abc")
STEPS = st.one_of(
    st.tuples(st.just("put"), NAMES),
    st.tuples(st.just("put"), NAMES),
    st.tuples(st.just("delete"), NAMES),
    st.tuples(st.sampled_from(["wait", "cut", "compact", "restart", "lose", "fail"]), st.just("")),
)


async def play(steps: list[tuple[str, str]], has_watch_list: bool) -> None:
    server = HistoryServer(has_watch_list=has_watch_list)
    server.put("a")
    await server.start()
    loses_nothing = not any(step in ("compact", "lose") for step, _ in steps)
    seen: list[tuple[str, Object]] = []
    async with informing(server) as (informer, recorder):
        await settled(server, informer, recorder)
        first = len(server.history)
        for step, name in steps:
            match step:
                case "put":
                    server.put(name)
                case "delete":
                    server.delete(name)
                case "wait":
                    await settled(server, informer, recorder)
                case "cut":
                    server.cut()
                    await asyncio.sleep(0)
                case "compact":
                    server.compact()
                case "lose":
                    server.lose_everything()
                    server.put("b")
                case "fail":
                    fault = {"kind": "Status", "apiVersion": "v1", "code": 500, "reason": "InternalError"}
                    server.errors.append(fault)
                    server.cut()
                case "restart":
                    await server.stop()
                    server.put("c")
                    await asyncio.sleep(0.002)
                    await server.start()
        await settled(server, informer, recorder)
        seen = [(type_, object_) for _, type_, object_ in server.history[first:]]
    await server.stop()
    if loses_nothing:
        told = [_as_event(change) for change in recorder.changes[1:]]
        assert told == seen, "nothing was lost, so that every change is told as it happened"
        assert server.lists == (0 if has_watch_list else 1)


def _as_event(change: Change[Object]) -> tuple[str, Object]:
    if change.new is None:
        assert not change.is_final_state_unknown
        return "DELETED", change.object
    return ("ADDED" if change.old is None else "MODIFIED"), change.object


@pytest.mark.slow
@settings(max_examples=40)
@given(steps=st.lists(STEPS, max_size=12), has_watch_list=st.booleans())
def test_whatever_breaks_the_informer_ends_up_right(steps: list[tuple[str, str]], has_watch_list: bool) -> None:
    asyncio.run(play(steps, has_watch_list))


@pytest.mark.parametrize("has_watch_list", [True, False])
@pytest.mark.parametrize("step", ["wait", "cut", "compact", "restart", "lose", "fail"])
async def test_each_way_to_break(step: str, has_watch_list: bool) -> None:
    await play([("put", "b"), (step, ""), ("put", "a"), ("delete", "b")], has_watch_list)


async def test_what_was_deleted_unseen_is_told_with_its_last_known_state() -> None:
    server = HistoryServer()
    server.put("a")
    server.put("b")
    await server.start()
    async with informing(server) as (informer, recorder):
        await settled(server, informer, recorder)
        assert all(change.is_initial for change in recorder.changes)
        known = server.objects["a"]
        await server.stop()
        server.put("a")
        server.delete("a")
        server.delete("b")
        server.put("b")
        server.compact()
        await server.start()
        await settled(server, informer, recorder)
    await server.stop()
    told = [
        (change.key, change.old is None, change.new is None, change.is_final_state_unknown)
        for change in recorder.changes[2:]
    ]
    assert told[0] == ("default/a", False, True, True)
    assert recorder.changes[2].object == known
    # The second object is another one now: its old life ends before the new one begins.
    assert told[1:] == [("default/b", False, True, True), ("default/b", True, False, False)]


async def test_a_handler_that_comes_late_is_told_everything_that_is_there() -> None:
    server = HistoryServer()
    server.put("a")
    await server.start()
    async with informing(server) as (informer, recorder):
        await settled(server, informer, recorder)
        late = Recorder()
        remove = informer.add_handler(late)
        assert list(late.state) == ["default/a"]
        server.put("b")
        await settled(server, informer, recorder)
        assert late.state == recorder.state
        remove()
        server.put("c")
        await settled(server, informer, recorder)
        assert "default/c" not in late.state
    await server.stop()


async def test_a_handler_that_fails_takes_nothing_from_the_others() -> None:
    server = HistoryServer()
    for name in "abc":
        server.put(name)
    await server.start()
    clock, ids = ImpatientClock(), CountingIds()
    transport = HttpTransport(Connection(server=server.url, source="test"), clock, ids)
    informer: Informer[Object] = Informer(
        Client(transport).resource("", "v1", "configmaps", namespaced=True), lambda item: item, clock, ids
    )
    failures = []

    def fail(change: Change[Object]) -> None:
        failures.append(change.key)
        raise RuntimeError(f"no {change.key}")

    recorder = Recorder()
    informer.add_handler(fail)
    informer.add_handler(recorder)
    for _ in range(3):
        with pytest.raises(RuntimeError):
            await informer.run()
    assert failures == ["default/a", "default/b", "default/c"]
    assert recorder.state == server_state(server)
    assert server.watches == 1
    await transport.close()
    await server.stop()


async def test_an_object_that_cannot_be_decoded_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    server = HistoryServer()
    server.put("a")
    server.put("b")
    await server.start()
    clock, ids = ImpatientClock(), CountingIds()
    transport = HttpTransport(Connection(server=server.url, source="test"), clock, ids)

    def decode(item: Object) -> str:
        if item["metadata"]["name"] == "b":
            raise ValueError("a field of tomorrow")
        return str(item["metadata"]["name"])

    resource = Client(transport).resource("", "v1", "configmaps", namespaced=True)
    informer = Informer(resource, decode, clock, ids, indexers={"letter": lambda name: [name]})
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(informer.run())
        await informer.wait_synced()
        assert list(informer.cache) == ["a"]
        assert informer.cache.by_index("letter", "a") == ("a",)
        task.cancel()
    assert "leaving out default/b: a field of tomorrow" in caplog.text
    await transport.close()
    await server.stop()


async def test_informers_are_shared_and_start_when_they_are_asked_for(server: LiveServer) -> None:
    client = Client(in_process_transport(server))
    informers = Informers(client, SystemClock(), SystemIds())
    classes = informers.typed(DeviceClass, indexers={"name": lambda found: [found.metadata.name]})
    assert informers.typed(DeviceClass) is classes
    await client.typed(DeviceClass).create(DeviceClass(metadata=ObjectMeta(name="gpu.example.com")))
    async with asyncio.timeout(WAIT_S), asyncio.TaskGroup() as tasks:
        task = tasks.create_task(informers.run())
        await informers.wait_synced()
        assert [found.metadata.name for found in classes.cache.by_index("name", "gpu.example.com")] == [
            "gpu.example.com"
        ]
        claims = informers.typed(ResourceClaim)
        await claims.wait_synced()
        maps = informers.dynamic("", "v1", "configmaps", namespaced=True, namespace="default")
        assert maps is informers.dynamic("", "v1", "configmaps", namespaced=True, namespace="default")
        await informers.wait_synced()
        task.cancel()


@pytest.mark.slow
async def test_our_own_server_can_be_restarted_under_an_informer(tmp_path: Path) -> None:
    client: Client | None = None
    recorder, port, names = Recorder(), 0, []
    informer: Informer[Object] | None = None
    async with contextlib.AsyncExitStack() as stack:
        tasks = await stack.enter_async_context(asyncio.TaskGroup())
        task: asyncio.Task[None] | None = None
        for life in range(3):
            options = Settings(directory=tmp_path / "pki", port=port)
            async with running(options, SqliteStore(tmp_path / "state.db")) as live:
                port = live.port
                if client is None or informer is None:
                    live.access.write_admin_kubeconfig(tmp_path / "kubeconfig", live.url)
                    connection = load_kubeconfig([tmp_path / "kubeconfig"]).connection()
                    client = Client(HttpTransport(connection, ImpatientClock(), SystemIds()))
                    stack.push_async_callback(client.close)
                    maps = client.resource("", "v1", "configmaps", namespaced=True)
                    informer = Informer(maps, lambda item: item, ImpatientClock(), SystemIds(), namespace="default")
                    informer.add_handler(recorder)
                    task = tasks.create_task(informer.run())
                for number in range(3):
                    names.append(f"default/m{life}-{number}")
                    metadata = {"name": f"m{life}-{number}", "namespace": "default"}
                    await maps.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})
                async with asyncio.timeout(WAIT_S):
                    while any(name not in recorder.state for name in names):
                        await asyncio.sleep(0.005)
        assert task is not None
        task.cancel()
    created = [change.key for change in recorder.changes if change.key in names]
    assert created == names


async def test_watch_lists_work_against_our_own_server(server: LiveServer) -> None:
    client = Client(http_transport(server))
    maps = client.resource("", "v1", "configmaps", namespaced=True)
    informer: Informer[Object] = Informer(maps, lambda item: item, SystemClock(), SystemIds(), namespace="default")
    recorder = Recorder()
    informer.add_handler(recorder)
    metadata = {"name": "a", "namespace": "default"}
    async with asyncio.timeout(WAIT_S), asyncio.TaskGroup() as tasks:
        task = tasks.create_task(informer.run())
        await informer.wait_synced()
        await maps.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})
        while "default/a" not in recorder.state:
            await asyncio.sleep(0.005)
        await maps.delete("a", "default")
        while "default/a" in recorder.state:
            await asyncio.sleep(0.005)
        task.cancel()
    await client.close()


def test_an_index_follows_its_objects() -> None:
    cache: Cache[tuple[str, ...]] = Cache({"words": lambda words: words})
    cache.put("1", ("a", "b"))
    cache.put("2", ("b",))
    assert cache.by_index("words", "b") == (("a", "b"), ("b",))
    cache.put("1", ("c",))
    assert cache.by_index("words", "a") == ()
    assert cache.by_index("words", "b") == (("b",),)
    assert cache.remove("2") == ("b",)
    assert cache.remove("2") is None
    assert cache.by_index("words", "b") == ()
    cache.add_index("length", lambda words: [str(len(words))])
    assert cache.by_index("length", "1") == (("c",),)
    with pytest.raises(ValueError, match="index 'length' exists"):
        cache.add_index("length", lambda words: words)
    assert "1" in cache
    assert len(cache) == 1


async def test_an_informer_of_all_objects_that_somebody_has_can_be_shared(client: Client) -> None:
    informers = Informers(client, SystemClock(), SystemIds())
    assert informers.shared("", "v1", "pods") is None
    informers.typed(Pod, namespace="default")
    assert informers.shared("", "v1", "pods") is None
    pods = informers.typed(Pod)
    maps = informers.dynamic("", "v1", "configmaps", namespaced=True)
    assert informers.shared("", "v1", "pods") is pods
    assert informers.shared("", "v1", "configmaps") is maps
    assert informers.shared("", "v1", "secrets") is None
