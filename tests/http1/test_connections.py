"""Connections: clients that take their time, and how long they have. More in tests/apiserver/serving, with TLS."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import pytest

from allot.http1.connections import PATIENCE_S, Connection, Limits
from allot.http1.heads import Head
from allot.http1.listener import Listener
from allot.node.serving.certificates import server_context
from allot.process.clock import SystemClock
from waiting import WAIT_S, until

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


async def test_a_listener_that_stops_leaves_nobody_behind_who_has_not_shaken_hands(tmp_path: Path) -> None:
    async def handle(_connection: Connection, _head: Head) -> None:
        raise AssertionError("nothing was asked")

    clock = SystemClock()
    context = server_context(tmp_path, "here", "127.0.0.1", b"", clock.seconds())
    listener, port = Listener(handle, clock, Limits()), asyncio.get_running_loop().create_future()

    async def serve() -> None:
        async with listener.listening("127.0.0.1", 0, context) as number:
            port.set_result(number)
            await until(lambda: listener._shaking)

    serving = asyncio.ensure_future(serve())
    reader, writer = await asyncio.open_connection("127.0.0.1", await port)
    await listener.stopping.wait()
    for _ in range(10):
        await asyncio.sleep(0)
    assert not serving.done(), "nobody would close the server's end"
    trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    await writer.start_tls(trusting)
    assert await reader.read() == b""
    writer.close()
    await serving
