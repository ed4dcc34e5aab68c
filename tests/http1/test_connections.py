"""Connections: clients that take their time, and how long they have. More in tests/apiserver/serving, with TLS."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from pathlib import Path

import pytest
import uvloop

from allot.http1.connections import PATIENCE_S, Connection, Limits
from allot.http1.heads import Head
from allot.http1.listener import Listener
from allot.node.serving.certificates import server_context
from allot.process.clock import SystemClock
from waiting import WAIT_S, until

Loops = Callable[[], asyncio.AbstractEventLoop]

PIECE = b"x" * 65_536
# More than the buffers of both sides hold.
PIECES = 400


@pytest.mark.slow
@pytest.mark.parametrize(("path", "whole"), [("/watch", False), ("/log", True), ("/upgrade", True)])
async def test_who_reads_a_page_may_take_longer_than_who_watches(path: str, whole: bool) -> None:
    stuck = asyncio.Event()

    async def handle(connection: Connection, head: Head) -> None:
        if head.path == "/upgrade":
            await connection.upgrade("log", {})
            write = connection.write
        else:
            write = (await connection.start_stream(200, {}, PATIENCE_S if head.path == "/log" else None)).write
        for _ in range(PIECES):
            if connection.transport.get_write_buffer_size():
                stuck.set()
            await write(PIECE)

    limits = Limits(write_s=0.05)
    async with Listener(handle, SystemClock(), limits).listening("127.0.0.1", 0) as port, asyncio.timeout(WAIT_S):
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1024)
        writer.write(f"GET {path} HTTP/1.0\r\nConnection: keep-alive\r\n\r\n".encode())
        await stuck.wait()
        # Longer than a watch may wait; how much longer makes no difference.
        await asyncio.sleep(4 * limits.write_s)
        read = 0
        try:
            while read < PIECES * len(PIECE) and (data := await reader.read(1 << 20)):
                read += len(data)
        except ConnectionError:
            pass
        assert (read >= PIECES * len(PIECE)) is whole
        writer.transport.abort()


async def test_a_client_that_floods_an_upgraded_connection_leaves_others_their_turn() -> None:
    reads, done = 1000, asyncio.Event()
    turns = turns_before = 0

    async def handle(connection: Connection, _head: Head) -> None:
        nonlocal turns_before
        await connection.upgrade("flood", {})
        # All of it is there before the first byte is read.
        await connection.read_exactly(1000)
        turns_before = turns
        for _ in range(reads):
            await connection.read(1)
        done.set()

    async def count() -> None:
        nonlocal turns
        while not done.is_set():
            turns += 1
            await asyncio.sleep(0)

    async with Listener(handle, SystemClock(), Limits()).listening("127.0.0.1", 0) as port, asyncio.timeout(WAIT_S):
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" + b"x" * (1000 + reads))
        await count()
        assert turns - turns_before >= reads - 1
        writer.transport.abort()


async def nothing(_connection: Connection, _head: Head) -> None:
    raise AssertionError("nothing was asked")


@pytest.fixture
def context(tmp_path: Path) -> ssl.SSLContext:
    return server_context(tmp_path, "here", "127.0.0.1", b"", SystemClock().seconds())


def trusting() -> ssl.SSLContext:
    trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    return trusting


async def test_a_listener_that_stops_leaves_nobody_behind_who_has_not_shaken_hands(context: ssl.SSLContext) -> None:
    listener, clients = Listener(nothing, SystemClock(), Limits()), []
    async with asyncio.timeout(WAIT_S):
        async with listener.listening("127.0.0.1", 0, context) as port:
            clients = [await asyncio.open_connection("127.0.0.1", port) for _ in range(3)]
            await until(lambda: len(listener._shaking) == 3)
            # One has begun its handshake, and one connects as the listener stops.
            clients[0][1].write(b"\x16\x03\x01")
            clients.append(await asyncio.open_connection("127.0.0.1", port))
        assert not listener._shaking
        for reader, writer in clients:
            try:
                assert await reader.read() == b""
            except ConnectionResetError:
                pass
            writer.close()


async def test_clients_count_before_they_have_shaken_hands(context: ssl.SSLContext) -> None:
    async def answer(connection: Connection, _head: Head) -> None:
        await connection.answer(200, {}, b"")

    listener = Listener(answer, SystemClock(), Limits(connections=4))
    async with asyncio.timeout(WAIT_S), listener.listening("127.0.0.1", 0, context) as port:
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
        await until(lambda: len(listener._shaking) == 2)
        with pytest.raises((ConnectionError, ssl.SSLError)):
            await asyncio.open_connection("127.0.0.1", port, ssl=trusting())
        # Who gives up makes room.
        silent[0][1].close()
        await until(lambda: len(listener._shaking) == 1)
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trusting())
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert (await reader.read()).startswith(b"HTTP/1.1 200 OK\r\n")
        writer.close()
        await until(lambda: listener._open.held_by("127.0.0.1") == 1)
        # Who does not talk TLS gives back its share, too.
        silent[1][1].write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        await until(lambda: listener._open.held_by("127.0.0.1") == 0)
        silent[1][1].close()


@pytest.mark.parametrize("loops", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_a_request_may_come_with_the_end_of_the_handshake(context: ssl.SSLContext, loops: Loops) -> None:
    """Clients send their first request together with their last message of the handshake."""
    body = b"x" * 300_000

    async def answer(connection: Connection, _head: Head) -> None:
        server_end = connection.transport.get_extra_info("socket")
        assert server_end.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY), "small answers would wait"
        await connection.answer(200, {}, await connection.body(len(body)))

    def ask(port: int) -> bytes:
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = trusting().wrap_bio(incoming, outgoing, server_hostname="here")
        request = b"POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(body)
        with socket.create_connection(("127.0.0.1", port), WAIT_S) as connection:
            while True:
                try:
                    tls.do_handshake()
                    break
                except ssl.SSLWantReadError:
                    connection.sendall(outgoing.read())
                    incoming.write(connection.recv(65536))
            tls.write(request + body)
            connection.sendall(outgoing.read())
            answer = b""
            while True:
                try:
                    if not (piece := tls.read()):
                        return answer
                    answer += piece
                    continue
                except ssl.SSLWantReadError:
                    pass
                if data := connection.recv(65536):
                    incoming.write(data)
                else:
                    incoming.write_eof()

    async def serve() -> bytes:
        async with Listener(answer, SystemClock(), Limits()).listening("127.0.0.1", 0, context) as port:
            return await asyncio.to_thread(ask, port)

    with asyncio.Runner(loop_factory=loops) as runner:
        answered = runner.run(serve())
    assert answered.startswith(b"HTTP/1.1 200 OK\r\n")
    assert answered.endswith(b"\r\n\r\n" + body)
