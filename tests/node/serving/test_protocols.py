"""The agent's protocols with clients that keep to them and clients that do not."""

from __future__ import annotations

import asyncio
import base64
import struct
import zlib
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from urllib.parse import quote

import aiohttp
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allot.http1.heads import HttpError, parse_head
from allot.http1.requests import Request, Upgrade, serving
from allot.node.runtimes.port import RuntimeFailure, Streams
from allot.node.serving.commands import Wanted, failure_of, forward_ports, run_command, status_of
from allot.node.serving.spdy import DICTIONARY, SpdySession
from allot.process.clock import SystemClock
from waiting import WAIT_S


class Pipe:
    """Both ends of a connection in memory: what is fed is read by the server, what it writes is kept."""

    def __init__(self, fed: bytes) -> None:
        self._fed = fed
        self.written = b""

    async def read_exactly(self, count: int) -> bytes:
        if len(self._fed) < count:
            raise ConnectionResetError
        taken, self._fed = self._fed[:count], self._fed[count:]
        return taken

    async def write(self, data: bytes) -> None:
        self.written += data


class Echo(Streams):
    """A program that says what it hears, and ends when its input does."""

    def __init__(self, code: int = 0) -> None:
        self._said: asyncio.Queue[bytes] = asyncio.Queue()
        self._code = code
        self.sizes: list[tuple[int, int]] = []
        self.closed = asyncio.Event()

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
        self.closed.set()


def request(target: str = "/", **headers: str) -> Request:
    lines = [
        f"GET {target} HTTP/1.1",
        "Host: x",
        *(f"{name.replace('_', '-')}: {value}" for name, value in headers.items()),
    ]
    return Request(parse_head("\r\n".join(lines).encode()))


@asynccontextmanager
async def serving_to(answer: Callable[[Request], Upgrade]) -> AsyncIterator[int]:
    """A port of the loopback at which that is the answer."""

    async def handle(request: Request) -> Upgrade:
        return answer(request)

    async with serving(handle, SystemClock(), "127.0.0.1", 0) as port, asyncio.timeout(WAIT_S):
        yield port


@asynccontextmanager
async def websocket(port: int, *protocols: str) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
    async with (
        aiohttp.ClientSession() as session,
        session.ws_connect(f"http://127.0.0.1:{port}/?port=80", protocols=protocols) as socket,
    ):
        yield socket


async def spdy(port: int, said: bytes, *until: bytes) -> bytes:
    """What the server says after the head, when all of that was among it."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = "GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n"
    writer.write(f"{head}X-Stream-Protocol-Version: v4.channel.k8s.io,v3.channel.k8s.io\r\n\r\n".encode() + said)
    assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101 ")
    heard = b""
    while not all(each in heard for each in until):
        heard += await reader.read(65_536)
    writer.transport.abort()
    return heard


async def test_a_command_over_a_websocket_has_channels_and_ends_with_a_status() -> None:
    size = msgspec.json.encode({"Width": 80, "Height": 24})
    echo = Echo(code=3)

    async def start() -> Streams:
        return echo

    wanted = Wanted(stdin=True, stdout=True, stderr=True, tty=True)
    async with serving_to(lambda asked: run_command(asked, wanted, start)) as port:
        async with websocket(port, "v5.channel.k8s.io") as socket:
            assert socket.protocol == "v5.channel.k8s.io"
            large = b"x" * 300_000
            for said in (b"\x04" + size, b"\x04not json", b"\x00typed", b"\x00" + large, b"\xff\x00"):
                await socket.send_bytes(said)
            heard = [message.data async for message in socket]
        assert heard[:2] == [b"\x01", b"\x01typed"]
        assert heard[2] == b"\x01" + large
        assert msgspec.json.decode(heard[3][1:]) == status_of(3)
        assert socket.close_code == 1000
        assert echo.sizes == [(80, 24)]
        await echo.closed.wait()


async def test_a_program_that_cannot_be_started_is_told_as_a_status() -> None:
    async def start() -> Streams:
        raise RuntimeFailure("ExecError", "no such container")

    wanted = Wanted(stdin=False, stdout=True, stderr=True, tty=False)
    async with (
        serving_to(lambda asked: run_command(asked, wanted, start)) as port,
        websocket(port, "v4.channel.k8s.io") as socket,
    ):
        heard = [message.data async for message in socket]
    assert msgspec.json.decode(heard[-1][1:]) == failure_of("no such container")


async def test_a_command_ends_with_its_client() -> None:
    echo = Echo()

    async def start() -> Streams:
        return echo

    wanted = Wanted(stdin=True, stdout=True, stderr=False, tty=False)
    async with serving_to(lambda asked: run_command(asked, wanted, start)) as port:
        async with websocket(port, "v5.channel.k8s.io") as socket:
            assert await socket.receive_bytes() == b"\x01"
        await echo.closed.wait()


async def test_a_command_ends_with_the_server() -> None:
    echo = Echo()

    async def start() -> Streams:
        return echo

    wanted = Wanted(stdin=True, stdout=True, stderr=False, tty=False)
    async with asyncio.timeout(WAIT_S), AsyncExitStack() as client:
        async with serving_to(lambda asked: run_command(asked, wanted, start)) as port:
            socket = await client.enter_async_context(websocket(port, "v5.channel.k8s.io"))
            assert await socket.receive_bytes() == b"\x01"
        assert echo.closed.is_set()


_SOCKET = {"upgrade": "websocket", "sec_websocket_key": "x", "sec_websocket_version": "13"}


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
def test_clients_that_speak_something_else_are_refused_before_anything_starts(headers: dict[str, str]) -> None:
    async def start() -> Streams:
        raise AssertionError("nothing is started")

    wanted = Wanted(stdin=False, stdout=True, stderr=False, tty=False)
    with pytest.raises(HttpError):
        run_command(request(**headers), wanted, start)


@pytest.mark.parametrize("ports", ["", "0", "65536", "80,x", "²"])
def test_ports_are_numbers_of_ports(ports: str) -> None:
    async def connect(_port: int) -> Streams:
        raise AssertionError("nothing is connected")

    with pytest.raises(HttpError, match="invalid port"):
        forward_ports(request(f"/?port={quote(ports)}", **_SOCKET), connect)


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
    fed += client.control(6, b"\0\0\0\1") + client.data(3, b"typed") + client.data(3, b"", ends=True)

    async def start() -> Streams:
        return Echo()

    wanted = Wanted(stdin=True, stdout=True, stderr=False, tty=False)
    async with serving_to(lambda asked: run_command(asked, wanted, start)) as port:
        said = data_frames(await spdy(port, fed, msgspec.json.encode(status_of(0))))
    assert said[5] == b"typed"
    assert msgspec.json.decode(said[1]) == status_of(0)


REFUSED = b"an error occurred forwarding 81: connection refused"


async def connect(port: int) -> Streams:
    if port == 81:
        raise RuntimeFailure("PortForwardError", "connection refused")
    return Echo()


def forwarding() -> bytes:
    """A client that says hello at one port, and cannot at another."""
    client = SpdyClient()
    opened = b"".join(
        client.open(first + place, streamtype=kind, port=port, requestid=str(first))
        for first, port in ((1, "80"), (5, "81"))
        for place, kind in ((0, "error"), (2, "data"))
    )
    return opened + client.data(3, b"hello") + client.data(3, b"", ends=True)


async def test_ports_are_forwarded_and_refusals_told_on_the_error_stream() -> None:
    async with serving_to(lambda asked: forward_ports(asked, connect)) as port:
        said = data_frames(await spdy(port, forwarding(), b"hello", REFUSED))
    assert (said[3], said[5]) == (b"hello", REFUSED)


async def test_ports_are_forwarded_through_a_websocket() -> None:
    async with (
        serving_to(lambda asked: forward_ports(asked, connect)) as port,
        websocket(port, "SPDY/3.1+portforward.k8s.io") as socket,
    ):
        fed, heard = forwarding(), b""
        for start in range(0, len(fed), 7):
            await socket.send_bytes(fed[start : start + 7])
        while b"hello" not in heard or REFUSED not in heard:
            heard += await socket.receive_bytes()
    said = data_frames(heard)
    assert (said[3], said[5]) == (b"hello", REFUSED)


async def test_ports_are_forwarded_through_channels_of_a_websocket() -> None:
    async with (
        serving_to(lambda asked: forward_ports(asked, connect)) as port,
        websocket(port, "v4.channel.k8s.io") as socket,
    ):
        number = struct.pack("<H", 80)
        assert [await socket.receive_bytes() for _ in range(2)] == [b"\0" + number, b"\1" + number]
        await socket.send_bytes(b"\0hello")
        assert await socket.receive_bytes() == b"\0hello"


@given(st.binary(max_size=300), st.booleans())
@settings(max_examples=40)
def test_garbage_ends_a_session_and_nothing_else(garbage: bytes, after_start: bool) -> None:
    async def check() -> None:
        pipe = Pipe((SpdyClient().open(1, streamtype="data") if after_start else b"") + garbage)
        session = SpdySession(pipe)
        async with asyncio.timeout(WAIT_S):
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
    async with asyncio.timeout(WAIT_S):
        await session.run()
    assert await session.opened.get() is None


@pytest.mark.parametrize("protocol", ["channel.k8s.io", ""])
@pytest.mark.parametrize("code", [0, 3])
async def test_without_a_version_a_command_ends_with_a_text_if_it_failed(protocol: str, code: int) -> None:
    echo = Echo(code=code)

    async def start() -> Streams:
        return echo

    wanted = Wanted(stdin=True, stdout=True, stderr=True, tty=False)
    async with (
        serving_to(lambda asked: run_command(asked, wanted, start)) as port,
        websocket(port, *filter(None, (protocol,))) as socket,
    ):
        assert socket.protocol == (protocol or None)
        await socket.send_bytes(b"\x00typed")
        await socket.send_bytes(b"\xff\x00")
        heard = [message.data async for message in socket]
    told = b"\x03command terminated with non-zero exit code: exit status 3"
    assert heard == [b"\x01", b"\x01typed", *([told] if code else [])]


@pytest.mark.parametrize("protocol", ["base64.channel.k8s.io", "v4.base64.channel.k8s.io"])
async def test_channels_may_be_texts(protocol: str) -> None:
    wanted = Wanted(stdin=True, stdout=True, stderr=True, tty=False)
    echo = Echo()

    async def start() -> Streams:
        return echo

    async with serving_to(lambda asked: run_command(asked, wanted, start)) as port, websocket(port, protocol) as socket:
        for said in ("0not base64!", "", "\u0129", "/AA==", "0dHlwZWQ="):
            await socket.send_str(said)
        assert [await socket.receive_str() for _ in range(2)] == ["1", "1dHlwZWQ="]

    async def fail() -> Streams:
        raise RuntimeFailure("ExecError", "no such container")

    async with serving_to(lambda asked: run_command(asked, wanted, fail)) as port, websocket(port, protocol) as socket:
        heard = [message.data async for message in socket]
    told = msgspec.json.encode(failure_of("no such container")) if "v4" in protocol else b"no such container"
    assert heard[-1] == f"3{base64.b64encode(told).decode()}"
