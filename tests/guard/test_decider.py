"""The decider on a real API server, seen through a transport that holds back what it is told to."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from allot.client.api import Client, ResourceClient
from allot.client.transport import Response, Transport, WatchEvent
from allot.core.features import DEFAULT_GATES
from allot.guard.decider import LOOK_S, Decider, GuardMetrics
from allot.process.clock import SystemClock
from allot.process.ids import SystemIds
from allot.store.memory import MemoryStore
from apiserver.live import live_server
from client.conftest import http_transport
from controllers.cluster import Hooked, Send
from waiting import WAIT_S, until

pytestmark = pytest.mark.slow

TAKEN = "device gpu.example.com/n/gpu-0 is allocated to claim default/holder already"


class Holding(Hooked):
    """Another transport, whose watches and reads of claims come through only while they may."""

    def __init__(self, transport: Transport) -> None:
        super().__init__(transport, self._held)
        self.watching, self.reading = asyncio.Event(), asyncio.Event()
        self.watching.set()
        self.reading.set()
        self.reads = 0

    async def _held(self, method: str, path: str, send: Send) -> Response:
        if method == "GET" and "/resourceclaims/" in path:
            self.reads += 1
            await self.reading.wait()
        return await send()

    @asynccontextmanager
    async def stream(
        self,
        path: str,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float = WAIT_S,
        duration: float | None = None,
    ) -> AsyncIterator[AsyncIterator[WatchEvent]]:
        async with self._inner.stream(path, query, headers, timeout, duration) as events:

            async def held() -> AsyncIterator[WatchEvent]:
                async for event in events:
                    await self.watching.wait()
                    yield event

            yield held()


class World:
    """A decider, and an administrator beside it."""

    def __init__(self, decider: Decider, holding: Holding, claims: ResourceClient) -> None:
        self.decider = decider
        self.holding = holding
        self.claims = claims

    async def claim(self, name: str) -> dict[str, Any]:
        spec = {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu"}}]}}
        kind = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim"}
        return await self.claims.create({**kind, "metadata": {"name": name, "namespace": "default"}, "spec": spec})

    async def touch(self, claim: dict[str, Any]) -> dict[str, Any]:
        """As a scheduler does before it allocates."""
        metadata = {**claim["metadata"], "finalizers": ["resource.kubernetes.io/delete-protection"]}
        return await self.claims.update({**claim, "metadata": metadata})

    async def store(self, claim: dict[str, Any], device: str) -> dict[str, Any]:
        status = {"allocation": allocation(device)} if device else {}
        return await self.claims.update_status({**claim, "status": status})

    async def ask(self, claim: dict[str, Any], device: str) -> str:
        """Empty if the write may be stored, else why not."""
        request = {
            "uid": "u",
            "resource": {"group": "resource.k8s.io", "version": "v1", "resource": "resourceclaims"},
            "subResource": "status",
            "operation": "UPDATE",
            "name": claim["metadata"]["name"],
            "namespace": "default",
            "object": {**claim, "status": {"allocation": allocation(device)}},
            "oldObject": claim,
        }
        kind = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}
        body = msgspec.json.encode({**kind, "request": request})
        response = msgspec.json.decode(await self.decider.review(body, lambda: True))["response"]
        return "" if response["allowed"] else str(response["status"]["message"])


def allocation(device: str) -> dict[str, Any]:
    return {"devices": {"results": [{"request": "gpu", "driver": "gpu.example.com", "pool": "n", "device": device}]}}


@asynccontextmanager
async def world(folder: Path, look_s: float = LOOK_S) -> AsyncIterator[World]:
    async with live_server(folder, MemoryStore()) as server, asyncio.timeout(WAIT_S):
        holding, admin = Holding(http_transport(server)), Client(http_transport(server))
        metrics = GuardMetrics(CollectorRegistry(), lambda: None)
        decider = Decider(Client(holding), SystemClock(), SystemIds(), DEFAULT_GATES, 30.0, metrics, look_s=look_s)
        running = asyncio.create_task(decider.run())
        try:
            await decider.synced.wait()
            yield World(decider, holding, admin.resource("resource.k8s.io", "v1", "resourceclaims", namespaced=True))
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            await holding.close()
            await admin.close()


async def test_a_refusal_does_not_wait_for_a_server_that_is_slow(tmp_path: Path) -> None:
    async with world(tmp_path) as made:
        holder, other = await made.claim("holder"), await made.claim("other")
        await made.store(holder, "gpu-0")
        await until(lambda: made.decider.ledger.holdings.claims())
        made.holding.watching.clear()
        made.holding.reading.clear()
        other = await made.touch(other)
        # The second asks while the look of the first is under way: there is only one.
        assert [await made.ask(other, "gpu-0"), await made.ask(other, "gpu-0")] == [TAKEN, TAKEN]
        assert made.holding.reads == 1


async def test_what_was_given_back_is_found_although_the_watch_is_late(tmp_path: Path) -> None:
    async with world(tmp_path, look_s=WAIT_S) as made:
        holder, other = await made.claim("holder"), await made.claim("other")
        stored = await made.store(holder, "gpu-0")
        await until(lambda: made.decider.ledger.holdings.claims())
        made.holding.watching.clear()
        await made.store(stored, "")
        assert await made.ask(await made.touch(other), "gpu-0") == ""


async def test_while_the_watch_keeps_up_nothing_is_read(tmp_path: Path) -> None:
    async with world(tmp_path, look_s=WAIT_S) as made:
        other, holder = await made.claim("other"), await made.claim("holder")
        await made.store(holder, "gpu-0")
        await until(lambda: made.decider.ledger.holdings.claims())
        assert await made.ask(other, "gpu-0") == TAKEN
        assert made.holding.reads == 0


async def test_of_who_was_let_through_a_moment_ago_nothing_is_read(tmp_path: Path) -> None:
    async with world(tmp_path, look_s=WAIT_S) as made:
        holder, other = await made.claim("holder"), await made.claim("other")
        made.holding.watching.clear()
        assert await made.ask(await made.touch(holder), "gpu-0") == ""
        assert await made.ask(await made.touch(other), "gpu-0") == TAKEN
        assert made.holding.reads == 0
