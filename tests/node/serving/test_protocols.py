"""The agent's protocols with clients that keep to them and clients that do not."""

from __future__ import annotations

import asyncio
import struct
import zlib
from collections.abc import AsyncIterator

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allot.node.runtimes.port import RuntimeFailure, Streams
from allot.node.serving.commands import Wanted, failure_of, forward_ports, run_command, status_of
from allot.node.serving.http import HttpError, Request
from allot.node.serving.spdy import DICTIONARY, SpdySession


class Wire:
    """Both ends of a connection in memory: what is fed is read by the server, what it writes is kept."""

    def __init__(self, fed: bytes = b"") -> None:
        self.reader = asyncio.StreamReader()
        self.reader.feed_data(fed)
        self.written = bytearray()

    # As a writer.
    def write(self, data: bytes) -> None:
        self.written += data

    async def drain(self) -> None:
        await asyncio.sleep(0)

    def is_closing(self) -> bool:
        return False

    def get_extra_info(self, _name: str) -> None:
        return None

    # As a pipe.
    async def read_exactly(self, count: int) -> bytes:
        return await self.reader.readexactly(count)


class Pipe(Wire):
    """The same for frames."""

    async def write(self, data: bytes) -> None:  # type: ignore[override]
        self.written += data


class Echo(Streams):
    """A program that says what it hears, and ends when its input does."""

    def __init__(self, code: int = 0) -> None:
        self._said: asyncio.Queue[bytes] = asyncio.Queue()
        self._code = code
        self.sizes: list[tuple[int, int]] = []
        self.is_closed = False

    async def write(self, data: bytes) -> None:
        await self._said.put(data)

    async def output(self) -> AsyncIterator[tuple[int, bytes]]:
        while data := await self._said.get():
            yield 1, data

    async def resize(self, columns: int, rows: int) -> None:
        self.sizes.append((columns, rows))

    async def exit_code(self) -> int:
        return self._code

    async def close(self) -> None:
        self.is_closed = True


def request(wire: Wire, **headers: str) -> Request:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Request("GET", "/exec?port=80", named, b"", wire.reader, wire)  # type: ignore[arg-type]


def message(*data: bytes) -> bytes:
    """A masked frame of a WebSocket's client."""
    said, mask = b"".join(data), b"\x01\x02\x03\x04"
    masked = bytes(each ^ mask[place % 4] for place, each in enumerate(said))
    return bytes((0x82, 0x80 | 126)) + len(said).to_bytes(2, "big") + mask + masked


def messages(written: bytes) -> list[bytes]:
    """What a server said on a WebSocket after its head."""
    data, found = written.partition(b"\r\n\r\n")[2], []
    while data:
        length, start = data[1], 2
        if length == 126:
            length, start = int.from_bytes(data[2:4], "big"), 4
        if data[0] == 0x82:
            found.append(data[start : start + length])
        data = data[start + length :]
    return found


_SOCKET = {"upgrade": "websocket", "sec_websocket_key": "x", "sec_websocket_version": "13"}


async def test_a_command_over_a_websocket_has_channels_and_ends_with_a_status() -> None:
    size = msgspec.json.encode({"Width": 80, "Height": 24})
    wire = Wire(message(b"\x04", size) + message(b"\x04not json") + message(b"\x00typed") + message(b"\xff\x00"))
    echo = Echo(code=3)

    async def start() -> Streams:
        return echo

    wanted = Wanted(stdin=True, stdout=True, stderr=True, tty=True)
    async with asyncio.timeout(5):
        await run_command(request(wire, sec_websocket_protocol="v5.channel.k8s.io", **_SOCKET), wanted, start)
    assert b"Sec-WebSocket-Protocol: v5.channel.k8s.io" in wire.written
    said = messages(bytes(wire.written))
    assert said[:2] == [b"\x01", b"\x01typed"]
    assert msgspec.json.decode(said[2][1:]) == status_of(3)
    assert echo.sizes == [(80, 24)]
    assert echo.is_closed


async def test_a_program_that_cannot_be_started_is_told_as_a_status() -> None:
    wire = Wire()

    async def start() -> Streams:
        raise RuntimeFailure("ExecError", "no such container")

    wanted = Wanted(stdin=False, stdout=True, stderr=True, tty=False)
    await run_command(request(wire, sec_websocket_protocol="v4.channel.k8s.io", **_SOCKET), wanted, start)
    assert msgspec.json.decode(messages(bytes(wire.written))[-1][1:]) == failure_of("no such container")


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"upgrade": "h2c"},
        {"upgrade": "websocket"},
        {**_SOCKET, "sec_websocket_protocol": "chat"},
        {"upgrade": "SPDY/3.1", "x_stream_protocol_version": "v1"},
    ],
)
async def test_clients_that_speak_something_else_are_refused_before_anything_starts(headers: dict[str, str]) -> None:
    async def start() -> Streams:
        raise AssertionError("nothing is started")

    wanted = Wanted(stdin=False, stdout=True, stderr=False, tty=False)
    with pytest.raises(HttpError):
        await run_command(request(Wire(), **headers), wanted, start)


class SpdyClient:
    """Makes a client's frames."""

    def __init__(self) -> None:
        self._deflate = zlib.compressobj(zdict=DICTIONARY)

    def open(self, number: int, **headers: str) -> bytes:
        block = struct.pack(">I", len(headers))
        for name, value in headers.items():
            block += struct.pack(">I", len(name)) + name.encode() + struct.pack(">I", len(value)) + value.encode()
        data = struct.pack(">IIH", number, 0, 0) + self._deflate.compress(block)
        return self.control(1, data + self._deflate.flush(zlib.Z_SYNC_FLUSH))

    def control(self, kind: int, data: bytes) -> bytes:
        return struct.pack(">HHI", 0x8003, kind, len(data)) + data

    def data(self, number: int, data: bytes, *, ends: bool = False) -> bytes:
        return struct.pack(">II", number, (1 if ends else 0) << 24 | len(data)) + data


def data_frames(written: bytes) -> dict[int, bytes]:
    """What a server said on each stream; control frames are left out."""
    found: dict[int, bytes] = {}
    while written:
        length = int.from_bytes(written[5:8], "big")
        if not written[0] & 0x80:
            number = int.from_bytes(written[:4], "big")
            found[number] = found.get(number, b"") + written[8 : 8 + length]
        written = written[8 + length :]
    return found


async def test_a_command_over_spdy_has_a_stream_for_each_purpose() -> None:
    client = SpdyClient()
    fed = client.open(1, streamtype="error") + client.open(3, streamtype="stdin") + client.open(5, streamtype="stdout")
    wire = Wire(fed + client.control(6, b"\0\0\0\1") + client.data(3, b"typed") + client.data(3, b"", ends=True))

    async def start() -> Streams:
        return Echo()

    wanted = Wanted(stdin=True, stdout=True, stderr=False, tty=False)
    headers = {"upgrade": "SPDY/3.1", "x_stream_protocol_version": "v4.channel.k8s.io,v3.channel.k8s.io"}
    async with asyncio.timeout(5):
        await run_command(request(wire, **headers), wanted, start)
    said = data_frames(bytes(wire.written).partition(b"\r\n\r\n")[2])
    assert said[5] == b"typed"
    assert msgspec.json.decode(said[1]) == status_of(0)


async def test_ports_are_forwarded_and_refusals_told_on_the_error_stream() -> None:
    client = SpdyClient()
    fed = b"".join(
        client.open(first + place, streamtype=kind, port=port, requestid=str(first))
        for first, port in ((1, "80"), (5, "81"))
        for place, kind in ((0, "error"), (2, "data"))
    )
    wire = Wire(fed + client.data(3, b"hello") + client.data(3, b"", ends=True))

    async def connect(port: int) -> Streams:
        if port == 81:
            raise RuntimeFailure("PortForwardError", "connection refused")
        return Echo()

    async def hang_up() -> None:
        await asyncio.sleep(0.1)
        wire.reader.feed_eof()

    async with asyncio.timeout(5), asyncio.TaskGroup() as tasks:
        tasks.create_task(hang_up())
        await forward_ports(request(wire, upgrade="SPDY/3.1"), connect)
    said = data_frames(bytes(wire.written).partition(b"\r\n\r\n")[2])
    assert said[3] == b"hello"
    assert said[5] == b"an error occurred forwarding 81: connection refused"


@given(st.binary(max_size=300), st.booleans())
@settings(max_examples=40, deadline=None)
def test_garbage_ends_a_session_and_nothing_else(garbage: bytes, after_start: bool) -> None:
    async def check() -> None:
        pipe = Pipe((SpdyClient().open(1, streamtype="data") if after_start else b"") + garbage)
        pipe.reader.feed_eof()
        session = SpdySession(pipe)
        async with asyncio.timeout(5):
            await session.run()
            while (stream := await session.opened.get()) is not None:
                async for _ in stream.received():
                    pass

    asyncio.run(check())


async def test_headers_that_would_fill_the_memory_end_the_session() -> None:
    bomb = zlib.compressobj(zdict=DICTIONARY)
    block = bomb.compress(b"\0" * 5_000_000) + bomb.flush(zlib.Z_SYNC_FLUSH)
    pipe = Pipe(SpdyClient().control(1, struct.pack(">IIH", 1, 0, 0) + block))
    session = SpdySession(pipe)
    async with asyncio.timeout(5):
        await session.run()
    assert await session.opened.get() is None
