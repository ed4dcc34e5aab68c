"""What the server does for its store from time to time."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from allot.apiserver.assembly import Settings, running
from allot.apiserver.bootstrap import SYSTEM
from allot.apiserver.errors import StatusError
from allot.apiserver.handlers.lists import encode_token
from allot.apiserver.housekeeping import COMPACT_EVERY_S, last_seen, sweep_events_once
from allot.apiserver.request import ApiRequest
from allot.process.clock import ManualClock
from allot.store.memory import MemoryStore
from allot.store.port import Store
from allot.store.sqlite import SqliteStore
from apiserver.live import LiveServer
from waiting import until

EVENTS = "/api/v1/namespaces/default/events"


async def test_events_are_forgotten_an_hour_after_they_were_last_seen(server: LiveServer) -> None:
    involved = {"kind": "Pod", "name": "p", "namespace": "default"}
    for name, seen in (("old", "2020-01-01T00:00:00Z"), ("new", None)):
        event = {"metadata": {"name": name}, "involvedObject": involved, "lastTimestamp": seen}
        assert (await server.post(EVENTS, event)).status == 201
    context = server.live.server.context
    # Both were created now; only one hour from now will they be old.
    await sweep_events_once(context)
    assert len((await server.get(EVENTS)).json["items"]) == 2


def test_an_event_is_as_old_as_its_last_sign_of_life() -> None:
    created = {"metadata": {"creationTimestamp": "2026-01-01T00:00:00Z"}}
    assert last_seen(created) == "2026-01-01T00:00:00Z"
    assert last_seen({**created, "lastTimestamp": "2026-01-02T00:00:00Z"}) == "2026-01-02T00:00:00Z"
    series = {"lastObservedTime": "2026-01-03T00:00:00.000000Z"}
    assert last_seen({**created, "series": series}) == "2026-01-03T00:00:00.000000Z"


async def test_status_belongs_to_nobody_who_writes_the_object(server: LiveServer) -> None:
    path = "/apis/apps/v1/namespaces/default/deployments"
    template = {"metadata": {"labels": {"app": "x"}}, "spec": {"containers": [{"name": "c", "image": "x"}]}}
    spec = {"selector": {"matchLabels": {"app": "x"}}, "template": template}
    body = {"metadata": {"name": "d"}, "spec": spec, "status": {"replicas": 5}}
    answer = await server.post(path, body)
    (entry,) = answer.json["metadata"]["managedFields"]
    assert "f:status" not in entry["fieldsV1"]


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_history_is_forgotten_after_five_minutes_whatever_the_store(tmp_path: Path, kind: str) -> None:
    store: Store = MemoryStore() if kind == "memory" else SqliteStore(tmp_path / "state.db")
    clock = ManualClock()
    settings = Settings(directory=tmp_path / "pki", port=0)
    async with running(settings, store, clock=clock) as live:
        context = live.server.context
        served = context.registry.find("", "v1", "namespaces")
        assert served is not None
        page = await context.store.list(served.prefix(""), limit=1)
        token = encode_token(page.revision, page.continue_key, served.prefix(""))
        request = ApiRequest(
            user=SYSTEM,
            verb="list",
            group="",
            version="v1",
            resource="namespaces",
            query={"continue": token, "limit": "1"},
        )
        assert await live.server.handle(request)
        made = ApiRequest(
            user=SYSTEM,
            verb="create",
            group="",
            version="v1",
            resource="namespaces",
            body={"metadata": {"name": "new"}},
        )
        await live.server.handle(made)

        async def has_expired() -> bool:
            clock.advance(COMPACT_EVERY_S)
            await asyncio.sleep(0)
            try:
                await live.server.handle(request)
            except StatusError as error:
                assert (error.code, error.reason) == (410, "Expired")
                return True
            return False

        await until(has_expired, "the token has expired")
