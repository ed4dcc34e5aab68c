"""The client's side of HTTP/1.1: where answers end, which connections are used again, and how proxies are passed."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allot.http1 import exchanges
from allot.http1.exchanges import Exchange, Lost, Place, Pool, TooLarge
from allot.http1.heads import BadHead
from allot.http1.self_signed import self_signed
from allot.process.clock import SystemClock
from waiting import WAIT_S, until

REQUEST = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"
BYTES_MAX = 1 << 20

Answering = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def serving(answering: Answering, context: ssl.SSLContext | None = None) -> AsyncIterator[Place]:
    """A peer that does with each connection what it is told to."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await answering(reader, writer)
        finally:
            writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context)
    async with server, asyncio.timeout(WAIT_S):
        yield Place("127.0.0.1", server.sockets[0].getsockname()[1])


@asynccontextmanager
async def pool(connections_max: int = 8) -> AsyncIterator[Pool]:
    made = Pool(connections_max)
    try:
        yield made
    finally:
        await made.close()


def saying(*answers: bytes, keeps_open: bool = True) -> Answering:
    """The answers to the requests of each connection."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for each in answers:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(each)
            await writer.drain()
        if keeps_open:
            await reader.read()

    return answer


async def asked(made: Pool, place: Place, bytes_max: int = BYTES_MAX) -> tuple[int, bytes]:
    exchange = await made.take(place, WAIT_S)
    try:
        return await exchange.ask(REQUEST), await exchange.whole(bytes_max)
    finally:
        made.give(exchange)


@pytest.mark.parametrize(
    ("answer", "body"),
    [
        (OK, b"hi"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n5;x=y\r\n you!\r\n0\r\n\r\n", b"hi you!"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2  \r\nhi\r\n0\r\nTrailer: x\r\n\r\n", b"hi"),
        (b"HTTP/1.1 100 Continue\r\n\r\n" + OK, b"hi"),
        (b"HTTP/1.1 204 No Content\r\n\r\n", b""),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", b""),
    ],
)
@settings(max_examples=25, deadline=None)
@given(cuts=st.lists(st.integers(0, 200), max_size=6))
async def test_an_answer_is_the_same_however_it_is_cut(answer: bytes, body: bytes, cuts: list[int]) -> None:
    exchange = Exchange(Place("x", 1))
    asking = asyncio.ensure_future(exchange.ask(b""))
    await asyncio.sleep(0)
    places = sorted({0, len(answer), *(cut % len(answer) for cut in cuts)})
    for begin, end in pairwise(places):
        exchange.data_received(answer[begin:end])
        await asyncio.sleep(0)
    assert await asking in (200, 204)
    assert await exchange.whole(BYTES_MAX) == body
    assert exchange.is_reusable


async def test_a_connection_is_used_again_and_there_are_no_more_than_are_needed() -> None:
    async with serving(saying(OK, OK, OK)) as place, pool() as made:
        first = await made.take(place, WAIT_S)
        second = await made.take(place, WAIT_S)
        made.give(second)
        made.give(first)
        assert await asked(made, place) == (200, b"hi")
        assert await made.take(place, WAIT_S) is first
        assert await made.take(place, WAIT_S) is second


async def test_connections_that_nobody_needs_any_more_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchanges, "_IDLE_S", 0.0)
    async with serving(saying(OK)) as place, pool() as made:
        first, second = await made.take(place, WAIT_S), await made.take(place, WAIT_S)
        made.give(first)
        made.give(second)
        await until(lambda: first.is_closed)
        assert not second.is_lost


async def test_there_are_no_more_connections_than_may_be() -> None:
    async with serving(saying(OK)) as place, pool(1) as made:
        only = await made.take(place, WAIT_S)
        waiting = asyncio.ensure_future(made.take(place, WAIT_S))
        await asyncio.sleep(0)
        assert not waiting.done()
        made.give(only)
        assert await waiting is only


async def test_another_context_is_another_connection() -> None:
    async with serving(saying(OK)) as place, pool() as made:
        first = await made.take(place, WAIT_S)
        made.give(first)
        other = place._replace(name="other")
        assert await made.take(other, WAIT_S) is not first


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nhi",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi",
    ],
)
async def test_a_connection_that_is_to_be_closed_is_not_used_again(answer: bytes) -> None:
    async with serving(saying(answer)) as place, pool() as made:
        exchange = await made.take(place, WAIT_S)
        assert (await exchange.ask(REQUEST), await exchange.whole(BYTES_MAX)) == (200, b"hi")
        assert not exchange.is_reusable
        made.give(exchange)


async def test_without_a_length_the_end_of_the_connection_ends_the_answer() -> None:
    async with serving(saying(b"HTTP/1.1 200 OK\r\n\r\nhi", keeps_open=False)) as place, pool() as made:
        assert await asked(made, place) == (200, b"hi")


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhi",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhi",
    ],
)
async def test_an_answer_that_breaks_off_is_none(answer: bytes) -> None:
    async with serving(saying(answer, keeps_open=False)) as place, pool() as made:
        with pytest.raises((Lost, ConnectionError)):
            await asked(made, place)


@pytest.mark.parametrize(
    "answer",
    [
        b"SMTP\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n2\r\nhi\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-2\r\nhi\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi!!0\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * 70_000,
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"0" * 1000,
    ],
)
async def test_what_is_no_answer_is_refused(answer: bytes) -> None:
    async with serving(saying(answer)) as place, pool() as made:
        with pytest.raises(BadHead):
            await asked(made, place)


async def test_more_than_was_asked_for_ends_the_connection() -> None:
    async with serving(saying(OK + OK, OK)) as place, pool() as made:
        exchange = await made.take(place, WAIT_S)
        with pytest.raises(BadHead):
            await exchange.ask(REQUEST)
            # The second answer may come with the first, or after it.
            await exchange.whole(BYTES_MAX)
            await exchange.ask(REQUEST)
        made.give(exchange)


async def test_a_body_that_is_too_large_is_not_read() -> None:
    async with serving(saying(OK)) as place, pool() as made:
        with pytest.raises(TooLarge):
            await asked(made, place, bytes_max=1)


async def test_a_server_that_sends_more_than_is_read_waits() -> None:
    sent = 0

    async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        try:
            for _ in range(64):
                writer.write(bytes(1 << 20))
                await writer.drain()
                sent += 1
        except ConnectionError:
            return

    async with serving(flood) as place, pool() as made:
        exchange = await made.take(place, WAIT_S)
        assert await exchange.ask(REQUEST) == 200
        before = -1
        while before != sent:
            before = sent
            await asyncio.sleep(0.1)
        assert sent < 64
        read = 0
        while piece := await exchange.piece():
            read += len(piece)
        assert read == 64 << 20
        made.give(exchange)


@pytest.mark.parametrize("allows", [True, False])
async def test_a_proxy_is_asked_for_a_tunnel(allows: bool, tmp_path: Path) -> None:
    pair = self_signed("server", ("server.example",), SystemClock().seconds(), timedelta(days=1))
    (tmp_path / "pair.pem").write_bytes(pair.key + pair.certificate)
    theirs = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    theirs.load_cert_chain(tmp_path / "pair.pem")
    ours = ssl.create_default_context(cadata=pair.certificate.decode())
    heads: list[bytes] = []

    async with serving(saying(OK), theirs) as server:

        async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            heads.append(await reader.readuntil(b"\r\n\r\n"))
            if not allows:
                writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")
                return
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            there_reader, there_writer = await asyncio.open_connection(server.host, server.port)
            await asyncio.gather(_pass_on(reader, there_writer), _pass_on(there_reader, writer))

        async with serving(forward) as proxy, pool() as made:
            address = f"http://us%40er:secret@127.0.0.1:{proxy.port}"
            place = Place("server.example", 6443, ours, proxy=address)
            if allows:
                assert await asked(made, place) == (200, b"hi")
            else:
                with pytest.raises(OSError, match="the proxy answered 407"):
                    await asked(made, place)
    assert heads[0].startswith(b"CONNECT server.example:6443 HTTP/1.1\r\n")
    assert b"Proxy-Authorization: Basic dXNAZXI6c2VjcmV0\r\n" in heads[0]


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    except (ConnectionError, ssl.SSLError):
        pass
    writer.close()
