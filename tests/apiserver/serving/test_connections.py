"""Connections: keep-alive, pipelining, chunks, and clients that never end what they begin."""

from __future__ import annotations

import asyncio
import gc
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest
import uvloop

from allot.apiserver.access.certificates import ADMIN, Certificates
from allot.apiserver.assembly import Running, Settings, running
from allot.apiserver.bootstrap import SYSTEM
from allot.apiserver.request import PathRequest
from allot.http1.connections import Connection, Limits
from allot.http1.heads import Head
from allot.http1.listener import Listener
from allot.http1.websockets import WebSocket
from allot.process.clock import SystemClock
from allot.store.memory import MemoryStore
from waiting import WAIT_S

MAPS = "/api/v1/namespaces/default/configmaps"
Client = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@asynccontextmanager
async def serving(directory: Path, limits: Limits | None = None) -> AsyncIterator[Running]:
    settings = Settings(directory=directory / "pki", port=0, limits=limits or Limits())
    async with running(settings, MemoryStore()) as live:
        yield live


@asynccontextmanager
async def client(live: Running) -> AsyncIterator[Client]:
    """A connection of the administrator, byte by byte."""
    certificates = live.access.certificates
    certificates.client("admin", ADMIN)
    context = ssl.create_default_context(cadata=certificates.authority.pem.decode())
    context.load_cert_chain(certificates.directory / "admin.crt", certificates.directory / "admin.key")
    reader, writer = await asyncio.open_connection("127.0.0.1", live.port, ssl=context)
    try:
        async with asyncio.timeout(WAIT_S):
            yield reader, writer
    finally:
        writer.transport.abort()


async def answer(reader: asyncio.StreamReader) -> tuple[int, dict[str, str], bytes]:
    """Status, headers and body of the next answer."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:] if line)}
    body = b""
    if headers.get("transfer-encoding") == "chunked":
        while size := int(await reader.readline(), 16):
            body += (await reader.readexactly(size + 2))[:-2]
        await reader.readline()
    else:
        body = await reader.readexactly(int(headers.get("content-length", 0)))
    return int(head[0].split(" ")[1]), headers, body


def post(name: str, framing: str = "") -> tuple[bytes, bytes]:
    """Head and body of a create."""
    body = msgspec.json.encode({"metadata": {"name": name}, "data": {"k": "v"}})
    framing = framing or f"Content-Length: {len(body)}"
    head = f"POST {MAPS} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n{framing}\r\n\r\n"
    return head.encode(), body


GET = b"GET /version HTTP/1.1\r\nHost: x\r\n\r\n"


async def test_requests_can_follow_each_other_before_the_answers_come(tmp_path: Path) -> None:
    async with serving(tmp_path) as live, client(live) as (reader, writer):
        head, body = post("a")
        writer.write(GET + head + body + b"\r\n" + GET + b"HEAD /version HTTP/1.1\r\nHost: x\r\n\r\n" + GET)
        assert [(await answer(reader))[0] for _ in range(3)] == [200, 201, 200]
        # The answer to HEAD says how long the body would be, and has none.
        status_line = await reader.readuntil(b"\r\n\r\n")
        assert b"Content-Length: " in status_line
        assert (await answer(reader))[0] == 200


WATCH = (
    b"GET /api/v1/pods?watch=1 HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)


@pytest.mark.slow
@pytest.mark.parametrize("request_", [GET, WATCH, b"no request\r\n\r\n"], ids=["answered", "upgraded", "refused"])
def test_what_has_ended_is_freed_without_the_collector(tmp_path: Path, request_: bytes) -> None:
    """Each has 300 KB of TLS buffers, and the collector of a server seldom looks: clients could fill the memory."""

    async def scenario() -> None:
        async with serving(tmp_path) as live:
            for _ in range(3):
                async with client(live) as (reader, writer):
                    writer.write(request_)
                    await reader.readuntil(b"\r\n\r\n")
            async with asyncio.timeout(WAIT_S):
                while any(isinstance(each, Connection | WebSocket) for each in gc.get_objects()):
                    await asyncio.sleep(0.05)

    gc.collect()
    gc.disable()
    try:
        # What the command runs on; its TLS keeps other references than asyncio's own.
        uvloop.run(scenario())
    finally:
        gc.enable()


async def test_heads_and_bodies_may_come_in_any_pieces(tmp_path: Path) -> None:
    async with serving(tmp_path) as live, client(live) as (reader, writer):
        head, body = post("a")
        for byte in head + body:
            writer.write(bytes([byte]))
            await writer.drain()
        assert (await answer(reader))[0] == 201


async def test_bodies_may_come_in_chunks(tmp_path: Path) -> None:
    async with serving(tmp_path) as live, client(live) as (reader, writer):
        head, body = post("a", "Transfer-Encoding: chunked")
        pieces = b"".join(
            b"%x;extension\r\n%b\r\n" % (len(body[at : at + 7]), body[at : at + 7]) for at in range(0, len(body), 7)
        )
        writer.write(head + pieces + b"0\r\nTrailer: x\r\n\r\n" + GET)
        assert (await answer(reader))[0] == 201
        assert (await answer(reader))[0] == 200


@pytest.mark.parametrize("chunk", [b"ZZ\r\n", b"-1\r\n", b"\r\n", b"3\r\nabcd\r\n", b"123456789\r\n", b"1" * 500])
async def test_malformed_chunks_are_refused(tmp_path: Path, chunk: bytes) -> None:
    async with serving(tmp_path) as live, client(live) as (reader, writer):
        writer.write(post("a", "Transfer-Encoding: chunked")[0] + chunk)
        status, headers, _ = await answer(reader)
        assert (status, headers["connection"]) == (400, "close")


@pytest.mark.slow
async def test_bodies_in_chunks_have_a_limit_too(tmp_path: Path) -> None:
    async with serving(tmp_path) as live, client(live) as (reader, writer):
        writer.write(post("a", "Transfer-Encoding: chunked")[0] + b"100000\r\n" + b"x" * 0x100000 + b"\r\n300000\r\n")
        assert (await answer(reader))[0] == 413
        assert await reader.read() == b""


async def test_a_body_that_nobody_wants_is_passed_over(tmp_path: Path) -> None:
    async with serving(tmp_path) as live, client(live) as (reader, writer):
        writer.write(b"GET /version HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nabcde" + GET)
        assert (await answer(reader))[0] == 200
        assert (await answer(reader))[0] == 200


@pytest.mark.slow
@pytest.mark.parametrize(
    ("said", "status"),
    [
        (b"nonsense\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nA: " + b"b" * 70_000, 431),
        (b"GET / HTTP/1.1\r\nTransfer-Encoding: gzip\r\n\r\n", 501),
    ],
)
async def test_what_is_no_request_is_refused_and_the_connection_ends(tmp_path: Path, said: bytes, status: int) -> None:
    async with serving(tmp_path) as live, client(live) as (reader, writer):
        writer.write(said)
        assert (await answer(reader))[0] == status
        assert await reader.read() == b""


@pytest.mark.slow
async def test_heads_and_bodies_that_never_end_are_given_up(tmp_path: Path) -> None:
    limits = Limits(head_s=0.2, body_s=0.2, idle_s=0.6)
    async with serving(tmp_path, limits) as live:
        async with client(live) as (reader, writer):
            writer.write(b"GET /version HTTP/1.1\r\nHost: ")
            for _ in range(3):
                # A byte now and then does not buy time.
                await asyncio.sleep(0.05)
                writer.write(b"x")
            assert (await answer(reader))[0] == 408
            assert await reader.read() == b""
        for framing, beginning in (("Content-Length: 100", b"{"), ("Transfer-Encoding: chunked", b"ff\r\n{")):
            async with client(live) as (reader, writer):
                writer.write(post("a", framing)[0] + beginning)
                status, headers, _ = await answer(reader)
                assert (status, headers["connection"]) == (504, "close")
        async with client(live) as (reader, writer):
            writer.write(GET)
            assert (await answer(reader))[0] == 200
            # Then silence.
            assert await reader.read() == b""


async def test_clients_that_leave_in_the_middle_are_no_fault_of_ours(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(tmp_path) as live:
        for said in (
            b"GET /version HTTP/1.1\r\nHo",
            post("a")[0] + b"{",
            post("a", "Transfer-Encoding: chunked")[0],
            GET,
        ):
            async with client(live) as (_, writer):
                writer.write(said)
                await writer.drain()
        async with client(live) as (reader, writer):
            writer.write(GET)
            assert (await answer(reader))[0] == 200
    assert caplog.text == ""


async def test_a_fault_in_one_connection_does_not_end_the_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def handle(connection: Connection, head: Head) -> None:
        await connection.answer(200, {"A": "b\r\nc"} if head.path == "/fault" else {}, b"")

    certificates = Certificates(tmp_path, SystemClock())
    listener = Listener(handle, SystemClock(), Limits())
    async with listener.listening("127.0.0.1", 0, certificates.server_context()) as port:
        context = ssl.create_default_context(cadata=certificates.authority.pem.decode())
        for path, answered in (("/", True), ("/fault", False), ("/", True)):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
            writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
            assert (await reader.read()).startswith(b"HTTP/1.1 200 ") is answered
            writer.transport.abort()
    assert "more than one line" in caplog.text


async def test_what_takes_too_long_is_given_up_and_the_connection_goes_on(tmp_path: Path) -> None:
    async def handle(connection: Connection, head: Head) -> None:
        status = 200
        try:
            with connection.time_limit(0.05 if head.path == "/slow" else WAIT_S):
                await asyncio.sleep(WAIT_S if head.path == "/slow" else 0)
        except TimeoutError:
            status = 504
        await connection.answer(status, {}, b"")

    certificates = Certificates(tmp_path, SystemClock())
    listener = Listener(handle, SystemClock(), Limits(head_s=0.1))
    async with listener.listening("127.0.0.1", 0, certificates.server_context()) as port:
        context = ssl.create_default_context(cadata=certificates.authority.pem.decode())
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
        for path, status in (("/slow", 504), ("/", 200), ("/slow", 504)):
            writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            assert (await answer(reader))[0] == status
        writer.transport.abort()


@pytest.mark.slow
async def test_an_older_client_gets_a_watch_without_chunks(tmp_path: Path) -> None:
    async with serving(tmp_path) as live, client(live) as (reader, writer):
        writer.write(f"GET {MAPS}?watch=1&timeoutSeconds=1 HTTP/1.0\r\n\r\n".encode())
        head = await reader.readuntil(b"\r\n\r\n")
        assert b"Transfer-Encoding" not in head
        events = [msgspec.json.decode(line) for line in (await reader.read()).splitlines()]
        assert events[0]["object"]["metadata"]["name"] == "kube-root-ca.crt"


async def test_a_watch_ends_with_its_client_and_with_the_server(tmp_path: Path) -> None:
    async with serving(tmp_path) as live:
        async with client(live) as (reader, writer):
            writer.write(f"GET {MAPS}?watch=1 HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            await reader.readuntil(b"\r\n\r\n")
            watching = b'apiserver_longrunning_requests{group="",resource="configmaps"'
            assert watching in await metrics(live)
        async with asyncio.timeout(WAIT_S):
            while running_watches(await metrics(live)):
                await asyncio.sleep(0.01)
        stays = client(live)
        reader, writer = await stays.__aenter__()
        writer.write(f"GET {MAPS}?watch=1 HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        await reader.readuntil(b"\r\n\r\n")
    assert (await reader.read()).endswith(b"0\r\n\r\n")
    await stays.__aexit__(None, None, None)


async def metrics(live: Running) -> bytes:
    answer = await live.endpoints.handle(PathRequest(user=SYSTEM, verb="get", segments=("metrics",)))
    assert answer.body is not None
    return answer.body


def running_watches(text: bytes) -> float:
    lines = [line for line in text.splitlines() if line.startswith(b"apiserver_longrunning_requests{")]
    return sum(float(line.rpartition(b" ")[2]) for line in lines)


async def test_an_address_has_at_most_half_of_the_connections_and_what_is_refused_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def handle(connection: Connection, head: Head) -> None:
        await connection.answer(200, {}, head.path.encode())

    async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        writer.write(b"GET /a HTTP/1.1\r\nHost: x\r\n\r\n")
        return (await answer(reader))[2]

    certificates = Certificates(tmp_path, SystemClock())
    listener = Listener(handle, SystemClock(), Limits(connections=4, head_s=0.05))
    async with listener.listening("127.0.0.1", 0, certificates.server_context()) as port, asyncio.timeout(WAIT_S):
        context = ssl.create_default_context(cadata=certificates.authority.pem.decode())
        opened = [await asyncio.open_connection("127.0.0.1", port, ssl=context) for _ in range(2)]
        assert [await ask(*each) for each in opened] == [b"/a", b"/a"]
        with pytest.raises((ConnectionError, ssl.SSLError)):
            await asyncio.open_connection("127.0.0.1", port, ssl=context)
        while "refused" not in caplog.text:
            await asyncio.sleep(0.01)
        assert (
            "1 connections were refused, the last from 127.0.0.1, which has 2 of the 4 that may be open" in caplog.text
        )
        opened[0][1].transport.abort()
        # There is room again as soon as the server has noticed.
        while True:
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
                break
            except (ConnectionError, ssl.SSLError):
                await asyncio.sleep(0.01)
        assert await ask(reader, writer) == b"/a"
        for each in (writer, opened[1][1]):
            each.transport.abort()
