"""A scheduler that ends between any two writes loses nothing: the next one finishes what it finds."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from allot.client.api import Client
from allot.client.transport import JSON, REQUEST_TIMEOUT_S, Response, Transport, WatchEvent
from allot.controlplane.clients import transport_of
from allot.controlplane.users import SCHEDULER
from scheduler.world import World, world

pytestmark = pytest.mark.slow


class Mortal:
    """A transport that stops answering at a certain write: before it is made, or after."""

    def __init__(self, inner: Transport, *, dies_at: int, after: bool) -> None:
        self._inner = inner
        self._left = dies_at
        self._after = after
        self.is_dead = asyncio.Event()

    async def request(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        content_type: str = JSON,
        headers: Mapping[str, str] | None = None,
        timeout: float = REQUEST_TIMEOUT_S,
    ) -> Response:
        dies = False
        if method != "GET" and "/events" not in path:
            self._left -= 1
            dies = self._left == 0
        if self.is_dead.is_set() or (dies and not self._after):
            await self._hang()
        answer = await self._inner.request(method, path, query, body, content_type, headers, timeout)
        if dies:
            await self._hang()
        return answer

    async def _hang(self) -> None:
        self.is_dead.set()
        await asyncio.Event().wait()

    def stream(
        self,
        path: str,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float = REQUEST_TIMEOUT_S,
        duration: float | None = None,
    ) -> AbstractAsyncContextManager[AsyncIterator[WatchEvent]]:
        return self._inner.stream(path, query, headers, timeout, duration)

    async def close(self) -> None:
        await self._inner.close()


async def _make(made: World, namespace: str) -> None:
    """A pod with one claim, two that share one, one with two claims, one with an extended resource."""
    await made.namespace(namespace)
    for claim in ("one", "shared", "two-a", "two-b"):
        await made.claim(namespace, claim)
    await made.pod(namespace, "single", "one")
    await made.pod(namespace, "sharer-a", "shared")
    await made.pod(namespace, "sharer-b", "shared")
    await made.pod(namespace, "double", "two-a", "two-b")
    await made.pod(namespace, "extended", **{"example.com/gpu": "1"})


async def _clear(made: World, namespace: str) -> None:
    for pod in (await made.pods.list(namespace)).items:
        await made.pods.delete(pod["metadata"]["name"], namespace, grace_period_seconds=0)
    for claim in (await made.claims.list(namespace)).items:
        name = claim["metadata"]["name"]
        await made.claims.update_status({**claim, "status": {}})
        fresh = await made.claims.get(name, namespace)
        await made.claims.update({**fresh, "metadata": {**fresh["metadata"], "finalizers": []}})
        await made.claims.delete(name, namespace)


@pytest.mark.timeout(300)
async def test_a_crash_at_any_write_is_made_good_by_the_next_scheduler(tmp_path: Path) -> None:
    async with world(tmp_path) as made:
        await made.device_class(extendedResourceName="example.com/gpu")
        for name in ("n1", "n2"):
            await made.node(name)
            await made.devices(name, 4)
        writes = 0
        for write in range(1, 40):
            for after in (False, True):
                namespace = f"crash-{write}-{'after' if after else 'before'}"
                mortal = Mortal(
                    transport_of(made.plane.server, SCHEDULER, "kube-scheduler"), dies_at=write, after=after
                )
                made.start(made.scheduler(client=Client(mortal)), "mortal")
                await _make(made, namespace)
                bound = asyncio.ensure_future(made.all_bound(namespace, 5))
                dead = asyncio.ensure_future(mortal.is_dead.wait())
                await asyncio.wait((bound, dead), return_when=asyncio.FIRST_COMPLETED)
                crashed = mortal.is_dead.is_set()
                dead.cancel()
                await made.plane.stop("mortal")
                made.start(made.scheduler())
                pods = {pod["metadata"]["name"]: pod for pod in await bound}
                await made.plane.stop("scheduler")
                await _check(made, namespace, pods)
                await _clear(made, namespace)
                writes += crashed
            if not crashed:
                break
        # Four claims with two writes each, a claim made and named in its pod, and five bindings, at least.
        assert writes > 2 * 14


async def _check(made: World, namespace: str, pods: Mapping[str, Any]) -> None:
    held = await made.holders()
    assert all(len(holders) == 1 for holders in held.values()), held
    claims = {claim["metadata"]["name"]: claim for claim in (await made.claims.list(namespace)).items}
    for pod, names in (("single", ["one"]), ("sharer-a", ["shared"]), ("sharer-b", ["shared"])):
        for name in names:
            uids = [consumer["uid"] for consumer in claims[name]["status"]["reservedFor"]]
            assert pods[pod]["metadata"]["uid"] in uids
    extended = pods["extended"]["status"]["extendedResourceClaimStatus"]["resourceClaimName"]
    # The one that is named, and no other that was left behind.
    assert set(claims) == {"one", "shared", "two-a", "two-b", extended}, namespace
    assert claims[extended]["status"]["reservedFor"][0]["name"] == "extended"
    for name, claim in claims.items():
        node = claim["status"]["allocation"]["devices"]["results"][0]["pool"]
        users = [consumer["name"] for consumer in claim["status"]["reservedFor"]]
        assert users, name
        assert {pods[user]["spec"]["nodeName"] for user in users} == {node}
