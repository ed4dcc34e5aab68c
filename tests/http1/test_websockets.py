"""WebSockets with a client that keeps to the protocol and one that does not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allot.http1.connections import Connection
from allot.http1.heads import HttpError, parse_head
from allot.http1.requests import Request, Upgrade, serving
from allot.http1.websockets import WebSocket, handshake
from allot.process.clock import SystemClock
from waiting import WAIT_S

TEXT, BINARY, CLOSE, PING, FINAL = 1, 2, 8, 9, 0x80
HANDSHAKE = (
    b"GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)


async def echo(request: Request) -> Upgrade:
    async def converse(connection: Connection) -> None:
        socket = WebSocket(connection)
        async for message in socket.messages():
            if message == b"goodbye":
                await socket.close()
                return
            await socket.send(message)

    return Upgrade("websocket", handshake(request.head, ""), converse)


@asynccontextmanager
async def socket() -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
    async with (
        serving(echo, SystemClock(), "127.0.0.1", 0) as port,
        asyncio.timeout(WAIT_S),
        aiohttp.ClientSession() as session,
        session.ws_connect(f"http://127.0.0.1:{port}/", autoping=False, max_msg_size=0) as opened,
    ):
        yield opened


async def said_to(data: bytes) -> bytes:
    """All that the server says after the handshake, to a client that then listens until it is over."""
    async with serving(echo, SystemClock(), "127.0.0.1", 0) as port, asyncio.timeout(WAIT_S):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(HANDSHAKE + data)
        heard = (await reader.read()).partition(b"\r\n\r\n")[2]
        writer.transport.abort()
        return heard


def masked(first: int, said: bytes, mask: bytes = b"\x01\x02\x03\x04") -> bytes:
    """A frame of a client."""
    hidden = bytes(byte ^ mask[position % 4] for position, byte in enumerate(said))
    return bytes((first, 0x80 | len(said))) + mask + hidden


GOODBYE = masked(FINAL | CLOSE, (1000).to_bytes(2, "big"))


async def test_messages_of_any_length_go_both_ways() -> None:
    async with socket() as client:
        for length in (0, 1, 125, 126, 65_535, 65_536, 1_000_000):
            said = bytes(position % 251 for position in range(length))
            await client.send_bytes(said)
            assert await client.receive_bytes() == said


async def test_pings_are_answered_and_goodbyes_too() -> None:
    async with socket() as client:
        await client.ping(b"are you there")
        pong = await client.receive()
        assert (pong.type, pong.data) == (aiohttp.WSMsgType.PONG, b"are you there")
        assert await client.close()
        assert client.close_code == 1000


async def test_the_server_may_say_goodbye_first() -> None:
    async with socket() as client:
        await client.send_bytes(b"goodbye")
        assert (await client.receive()).type is aiohttp.WSMsgType.CLOSE
        assert client.close_code == 1000


async def test_a_message_may_come_in_parts_with_pings_in_between() -> None:
    async with serving(echo, SystemClock(), "127.0.0.1", 0) as port, asyncio.timeout(WAIT_S):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        parts = (masked(BINARY, b"he"), masked(FINAL | PING, b"?"), masked(0, b"l"), masked(FINAL, b"lo"))
        writer.write(HANDSHAKE + b"".join(parts))
        await reader.readuntil(b"\r\n\r\n")
        assert await reader.readexactly(10) == b"\x8a\x01?" + b"\x82\x05hello"
        writer.write(GOODBYE)
        assert await reader.read() == b"\x88\x02\x03\xe8"
        writer.transport.abort()


@pytest.mark.parametrize(
    ("data", "code"),
    [
        pytest.param(bytes((FINAL | TEXT, 2)) + b"hi", 1002, id="not masked"),
        pytest.param(masked(FINAL | 0x40 | TEXT, b"hi"), 1002, id="a bit that is reserved"),
        pytest.param(masked(FINAL | 3, b"hi"), 1002, id="a code that is reserved"),
        pytest.param(masked(FINAL, b"hi"), 1002, id="a continuation of nothing"),
        pytest.param(masked(PING, b"hi"), 1002, id="a ping in parts"),
        pytest.param(masked(BINARY, b"a") + masked(BINARY, b"b"), 1002, id="a message within another"),
        pytest.param(bytes((FINAL | PING, 0xFE, 0, 126)) + b"\0" * 130, 1002, id="a ping that is too long"),
        pytest.param(bytes((FINAL | BINARY, 0xFF)) + b"\xff" * 8, 1009, id="a length that is negative"),
        pytest.param(bytes((FINAL | BINARY, 0xFF, 0, 0, 0, 0, 1, 0, 0, 1, 1, 2, 3, 4)), 1009, id="too long"),
    ],
)
async def test_what_breaks_the_rules_is_told_so_and_the_connection_ends(data: bytes, code: int) -> None:
    heard = await said_to(data)
    assert (heard[0], int.from_bytes(heard[2:4], "big")) == (FINAL | CLOSE, code)


@settings(deadline=None, max_examples=50)
@given(st.binary(max_size=100))
async def test_any_bytes_end_before_long(data: bytes) -> None:
    # 200 goodbyes: whatever length was announced, this is more.
    await said_to(data + GOODBYE * 200 if len(data) < 2 or data[1] & 0x7F < 126 else b"\x00\x00" + data)


@pytest.mark.parametrize(
    "head",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13",
        b"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nSec-WebSocket-Key: x\r\nSec-WebSocket-Version: 8",
        b"POST / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nSec-WebSocket-Key: x\r\nSec-WebSocket-Version: 13",
        b"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nSec-WebSocket-Key: \xff\r\nSec-WebSocket-Version: 13",
    ],
)
def test_a_handshake_that_is_none_is_refused(head: bytes) -> None:
    with pytest.raises(HttpError, match="version 13"):
        handshake(parse_head(head), "")


def test_a_handshake_is_answered_as_in_the_standard() -> None:
    headers = handshake(parse_head(HANDSHAKE.strip()), "binary.k8s.io")
    assert headers == {
        "Sec-WebSocket-Accept": "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=",
        "Sec-WebSocket-Protocol": "binary.k8s.io",
    }
