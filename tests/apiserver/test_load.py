"""Many clients, idle ones and slow ones: everybody else is served as if they were not there.

The server runs on the event loop of the test, over HTTPS. Nothing here asserts seconds; waits are bounded so that a server
that is stuck fails the test instead of stopping it.
"""

from __future__ import annotations

import asyncio
import resource
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from apiserver.live import LiveServer
from waiting import WAIT_S

MAPS = "/api/v1/namespaces/default/configmaps"
# Files that are open besides the connections, both ends of which are in this process.
OTHER_FILES = 200

Client = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def trusting(server: LiveServer) -> ssl.SSLContext:
    """TLS of somebody without a credential."""
    return ssl.create_default_context(cadata=server.ca.decode())


@asynccontextmanager
async def clients(server: LiveServer, count: int, first_bytes: bytes = b"") -> AsyncIterator[list[Client]]:
    """Connections that have shaken hands and sent the beginning of something."""
    context = trusting(server)
    opened: list[Client] = []
    try:
        for _ in range(count):
            client = await asyncio.open_connection("127.0.0.1", server.live.port, ssl=context)
            opened.append(client)
            client[1].write(first_bytes)
        yield opened
    finally:
        for _, writer in opened:
            writer.transport.abort()


async def assert_serves(server: LiveServer, name: str) -> None:
    """Reads, writes and watches work, also for somebody who comes anew."""
    async with asyncio.timeout(WAIT_S):
        assert (await server.get("/readyz")).status == 200
        version = (await server.get(MAPS)).json["metadata"]["resourceVersion"]
        async with server.watch(f"{MAPS}?watch=true&resourceVersion={version}") as events:
            assert (await server.post(MAPS, {"metadata": {"name": name}})).status == 201
            assert (await anext(events))["object"]["metadata"]["name"] == name
        async with server.as_nobody() as nobody:
            assert (await server.get("/version", session=nobody)).status == 200
            assert (await server.get(MAPS, session=nobody)).status == 403


HALF_A_HEAD = b"GET /api/v1/pods HTTP/1.1\r\nHost: x\r\nX-Slow: "
HALF_A_BODY = (
    b"POST /api/v1/namespaces/default/configmaps HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    b'Content-Length: 1000\r\n\r\n{"metadata":'
)
HALF_A_CHUNK = (
    b"POST /api/v1/namespaces/default/configmaps HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    b"Transfer-Encoding: chunked\r\n\r\nff\r\n{"
)


@pytest.mark.slow
@pytest.mark.parametrize(
    "first_bytes",
    [b"", b"G", HALF_A_HEAD, HALF_A_BODY, HALF_A_CHUNK],
    ids=["idle", "one byte", "half a head", "half a body", "half a chunk"],
)
async def test_clients_that_never_finish_do_not_stop_others(server: LiveServer, first_bytes: bytes) -> None:
    async with clients(server, 300, first_bytes) as waiting:
        await assert_serves(server, "during")
        for _, writer in waiting[::2]:
            writer.transport.abort()
        await assert_serves(server, "after")


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_a_thousand_idle_connections_do_not_stop_others(server: LiveServer) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = 2 * 1000 + OTHER_FILES
    if hard != resource.RLIM_INFINITY and hard < needed:
        pytest.skip(f"at most {hard} files can be open here, this needs {needed}")
    if soft != resource.RLIM_INFINITY and soft < needed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
    try:
        async with clients(server, 1000):
            await assert_serves(server, "during")
        await assert_serves(server, "after")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_a_client_without_credential_gets_its_answer_before_its_body_is_read(server: LiveServer) -> None:
    async with clients(server, 1, HALF_A_BODY) as [(reader, _)], asyncio.timeout(WAIT_S):
        answer = await reader.readuntil(b"\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 403 ")
        assert b"connection: close" in answer.lower()


@pytest.mark.slow
async def test_a_watcher_that_does_not_read_does_not_stop_others(server: LiveServer) -> None:
    text = "x" * 100_000
    async with (
        server.session.get(f"{server.url}{MAPS}?watch=true") as lazy,
        server.watch(f"{MAPS}?watch=true&resourceVersion=0") as events,
        asyncio.timeout(WAIT_S),
    ):
        assert lazy.status == 200
        lazy.content._protocol.pause_reading()
        for number in range(100):
            made = await server.post(MAPS, {"metadata": {"name": f"m-{number}"}, "data": {"text": text}})
            assert made.status == 201
        seen: list[str] = []
        while "m-99" not in seen:
            seen.append((await anext(events))["object"]["metadata"]["name"])
        assert [name for name in seen if name.startswith("m-")] == [f"m-{number}" for number in range(100)]
        lazy.content._protocol.resume_reading()
        late = b""
        while b'"m-99"' not in late:
            late = late[-100:] + await lazy.content.readany()
