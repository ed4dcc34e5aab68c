"""Events on a real server: series, the filter, and a server that is away."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from allot.client.api import Client
from allot.client.events import (
    HELP_FROM,
    NOTE_BYTES_MAX,
    SERIES_FINISH_S,
    SPAM_BURST,
    TRIES_MAX,
    EventRecorder,
    Reference,
    shorten,
)
from allot.core.model.meta import ObjectMeta
from allot.core.model.resource_v1 import ResourceClaim
from allot.process.clock import ManualClock
from allot.process.ids import CountingIds
from apiserver.live import LiveServer
from client.conftest import in_process_transport
from client.test_leader import FlakyTransport

CLAIM = ResourceClaim(metadata=ObjectMeta(name="train", namespace="default", uid="u", resource_version="7"))


class Recording:
    """A recorder on a server, with a clock and a plug of its own."""

    def __init__(self, server: LiveServer, **more: Any) -> None:
        self._server = server
        self.clock = ManualClock()
        self.transport = FlakyTransport(in_process_transport(server))
        self.recorder = EventRecorder(
            Client(self.transport), self.clock, CountingIds(), controller="test.example.com/c", instance="i-1", **more
        )

    async def events(self) -> list[dict[str, Any]]:
        await self.recorder.flush(5)
        answer = await self._server.get("/apis/events.k8s.io/v1/namespaces/default/events")
        return [item for item in answer.json["items"] if item.get("reportingController") == "test.example.com/c"]

    async def pass_time(self, seconds: float) -> None:
        self.clock.advance(seconds)
        for _ in range(50):
            await asyncio.sleep(0)


@asynccontextmanager
async def recording(server: LiveServer, **more: Any) -> AsyncIterator[Recording]:
    made = Recording(server, **more)
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(made.recorder.run())
        yield made
        task.cancel()


async def test_another_note_is_another_event_where_notes_are_told_apart(server: LiveServer) -> None:
    async with recording(server, tells_notes_apart=True) as here:
        for note in ("not registered", "not registered", "it burns"):
            here.recorder.record(CLAIM, "Warning", "Failed", "Prepare", note)
        found = {each["note"]: (each.get("series") or {}).get("count", 1) for each in await here.events()}
        assert found == {"not registered": 2, "it burns": 1}


async def test_an_event_is_about_an_object(server: LiveServer) -> None:
    async with recording(server) as made:
        other = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1", "uid": "n"}}
        made.recorder.record(CLAIM, "Normal", "Allocated", "Allocating", "allocated on n1", related=other)
        (event,) = await made.events()
    regarding = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "name": "train",
        "namespace": "default",
        "uid": "u",
        "resourceVersion": "7",
    }
    assert event["regarding"] == regarding
    assert event["related"] == {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "n"}
    assert (event["type"], event["reason"], event["action"]) == ("Normal", "Allocated", "Allocating")
    assert event["note"] == "allocated on n1"
    assert event["reportingInstance"] == "i-1"
    assert event["metadata"]["name"].startswith("train.")
    assert "series" not in event


async def test_what_repeats_becomes_a_series_that_is_counted_here(server: LiveServer) -> None:
    async with recording(server) as made:
        for number in range(10):
            made.recorder.record(CLAIM, "Warning", "Unschedulable", "Scheduling", f"try {number}")
            await made.recorder.flush(5)
            made.clock.advance(1)
        (event,) = await made.events()
        assert event["series"]["count"] == 2
        await made.pass_time(SERIES_FINISH_S)
        await made.pass_time(SERIES_FINISH_S)
        (event,) = await made.events()
        assert event["series"]["count"] == 10
        # The series is over: the next one is a new event.
        made.recorder.record(CLAIM, "Warning", "Unschedulable", "Scheduling", "again")
        assert len(await made.events()) == 2


async def test_an_event_whose_time_has_run_out_is_told_anew(server: LiveServer) -> None:
    async with recording(server) as made:
        made.recorder.record(CLAIM, "Normal", "Seen", "Looking", "")
        (event,) = await made.events()
        await server.delete(f"/apis/events.k8s.io/v1/namespaces/default/events/{event['metadata']['name']}")
        made.recorder.record(CLAIM, "Normal", "Seen", "Looking", "")
        (event,) = await made.events()
        assert event["series"]["count"] == 2


async def test_who_says_too_much_about_one_object_is_filtered(server: LiveServer) -> None:
    async with recording(server) as made:
        for number in range(SPAM_BURST + 15):
            made.recorder.record(CLAIM, "Normal", f"Reason{number}", "Talking", "")
        assert len(await made.events()) == SPAM_BURST
        assert made.recorder.counts.filtered == 15
        made.recorder.record(
            Reference(api_version="v1", kind="Pod", name="p", namespace="default"), "Normal", "R", "A", ""
        )
        assert len(await made.events()) == SPAM_BURST + 1
        await made.pass_time(300)
        made.recorder.record(CLAIM, "Normal", "Later", "Talking", "")
        assert len(await made.events()) == SPAM_BURST + 2


async def test_when_the_server_is_away_events_wait_and_what_does_not_fit_is_dropped(server: LiveServer) -> None:
    async with recording(server, queue_max=3) as made:
        made.transport.is_unplugged = True
        for number in range(10):
            pod = Reference(api_version="v1", kind="Pod", name=f"p{number}", namespace="default")
            made.recorder.record(pod, "Normal", "Seen", "Looking", "")
            await made.pass_time(0)
        # The sender tries one, three wait; the others only help when many do.
        assert made.recorder.counts.dropped == 6
        made.transport.is_unplugged = False
        await made.pass_time(20)
        assert len(await made.events()) == 4
        made.transport.is_unplugged = True
        made.recorder.record(CLAIM, "Normal", "Seen", "Looking", "")
        for _ in range(TRIES_MAX):
            await made.pass_time(20)
        assert made.recorder.counts.dropped == 7
        assert made.recorder.counts.sent == 4


async def test_more_senders_help_when_many_events_wait(server: LiveServer) -> None:
    async with recording(server, queue_max=10 * HELP_FROM) as made:
        made.transport.is_unplugged = True
        for number in range(3 * HELP_FROM):
            pod = Reference(api_version="v1", kind="Pod", name=f"p{number}", namespace="default")
            made.recorder.record(pod, "Normal", "Seen", "Looking", "")
        await made.pass_time(0)
        assert made.recorder.waiting == 3 * HELP_FROM - 3
        made.transport.is_unplugged = False
        await made.pass_time(20)
        await made.recorder.flush(30)
        assert made.recorder.counts.sent == 3 * HELP_FROM


async def test_what_the_server_does_not_want_is_counted_and_forgotten(server: LiveServer) -> None:
    async with recording(server) as made:
        made.recorder.record(
            Reference(api_version="v1", kind="Pod", name="p", namespace="no-such-namespace"), "Normal", "R", "A", ""
        )
        await made.recorder.flush(5)
        assert made.recorder.counts.refused == 1


async def test_names_are_valid_and_never_the_same(server: LiveServer) -> None:
    async with recording(server) as made:
        for name in ("Not A Valid Name", "x" * 250, "p", "p2"):
            made.recorder.record(Reference(api_version="v1", kind="Thing", name=name), "Normal", "R", "A", "n")
        assert len({event["metadata"]["name"] for event in await made.events()}) == 4
        assert made.recorder.counts.refused == 0


async def test_a_type_that_does_not_exist_is_refused(server: LiveServer) -> None:
    with pytest.raises(ValueError, match="event 'R': type must be Normal or Warning, got 'Error'"):
        Recording(server).recorder.record(CLAIM, "Error", "R", "A", "")


def test_long_notes_are_shortened_between_characters() -> None:
    assert shorten("x" * NOTE_BYTES_MAX) == "x" * NOTE_BYTES_MAX
    short = shorten("é" * NOTE_BYTES_MAX)
    assert len(short.encode()) <= NOTE_BYTES_MAX
    assert short.endswith("é...")
