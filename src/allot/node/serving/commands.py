"""Remote commands (exec, attach) and forwarded ports over WebSockets and SPDY, in the protocols that kubectl speaks.

Moves bytes between a client and a program (`runtimes.port.Streams`). The result of a command is sent as a Status on a separate
stream.
"""

from __future__ import annotations

import asyncio
import base64
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, Protocol

import msgspec

from allot.http1.connections import Connection
from allot.http1.heads import HttpError
from allot.http1.requests import Request, Upgrade
from allot.http1.websockets import WebSocket, handshake
from allot.node.runtimes.port import RuntimeFailure, Streams
from allot.node.serving.spdy import Pipe, SpdySession, SpdyStream

_STDIN, _STDOUT, _STDERR, _ERROR, _RESIZE, _CLOSE = 0, 1, 2, 3, 4, 255
_COMMAND_PROTOCOLS = ("v5.channel.k8s.io", "v4.channel.k8s.io")
_BASE64 = "base64.channel.k8s.io"
# Without a version, the result of a command is a text, sent only on failure. A client that offers nothing means the first.
_OLDER_PROTOCOLS = ("channel.k8s.io", _BASE64, "")
_SOCKET_PROTOCOLS = (*_COMMAND_PROTOCOLS, f"v4.{_BASE64}", *_OLDER_PROTOCOLS[:2])
_PORT_PROTOCOL = "portforward.k8s.io"
_TUNNEL = f"SPDY/3.1+{_PORT_PROTOCOL}"
_STREAMS_S = 30.0
_SPDY = "SPDY/3.1"
_PROTOCOL_HEADER = "x-stream-protocol-version"

Connect = Callable[[int], Awaitable[Streams]]


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """The streams that a client requests."""

    stdin: bool
    stdout: bool
    stderr: bool
    tty: bool


class _Channels(Protocol):
    """A client of a remote command."""

    async def say(self, channel: int, data: bytes) -> None:
        """Send to the client."""

    def heard(self) -> AsyncIterator[tuple[int, bytes]]:
        """(channel, data) from the client; empty data on stdin means its end."""

    async def end(self) -> None:
        """Everything is sent."""


def status_of(code: int) -> dict[str, Any]:
    """How a command ended."""
    if code == 0:
        return {"metadata": {}, "status": "Success"}
    return {
        "metadata": {},
        "status": "Failure",
        "message": f"command terminated with non-zero exit code: exit status {code}",
        "reason": "NonZeroExitCode",
        "details": {"causes": [{"reason": "ExitCode", "message": str(code)}]},
    }


def failure_of(text: str) -> dict[str, Any]:
    """Why a command could not be run."""
    return {"metadata": {}, "status": "Failure", "message": text, "reason": "InternalError", "code": 500}


def wanted_streams(request: Request) -> Wanted:
    """The requested streams; HttpError."""
    asked = {name: request.flag(name) for name in ("input", "output", "error", "tty")}
    # A terminal has one output.
    wanted = Wanted(
        stdin=asked["input"], stdout=asked["output"], stderr=asked["error"] and not asked["tty"], tty=asked["tty"]
    )
    if not (wanted.stdin or wanted.stdout or wanted.stderr):
        raise HttpError(400, "you must specify at least 1 of stdin, stdout, stderr")
    return wanted


def run_command(request: Request, wanted: Wanted, start: Callable[[], Awaitable[Streams]]) -> Upgrade:
    """Connect a client with a program until one of them ends. Nothing is started before the request is valid; HttpError."""

    async def by_spdy(connection: Connection) -> None:
        session = SpdySession(connection)
        reading = asyncio.ensure_future(session.run())
        try:
            channels = _SpdyChannels()
            await channels.collect(session, wanted)
            await _converse(channels, wanted, start)
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)

    if request.head.upgrade == "websocket":
        protocol = _chosen(_SOCKET_PROTOCOLS, request.header("sec-websocket-protocol"), required=False)

        async def by_websocket(connection: Connection) -> None:
            await _converse(_SocketChannels(WebSocket(connection), protocol), wanted, start)

        return Upgrade("websocket", handshake(request.head, protocol), by_websocket)
    _expect_spdy(request)
    protocol = _chosen(_COMMAND_PROTOCOLS, request.header(_PROTOCOL_HEADER))
    return Upgrade(_SPDY, {"X-Stream-Protocol-Version": protocol}, by_spdy)


def _expect_spdy(request: Request) -> None:
    if not request.head.upgrade.startswith("spdy/3.1"):
        raise HttpError(400, "unable to upgrade: expected a WebSocket or SPDY/3.1")


def _chosen(protocols: Sequence[str], offers: str, *, required: bool = True) -> str:
    """Our first protocol that the client offers; HttpError if it offers only others."""
    offered = [each.strip() for each in offers.split(",") if each.strip()]
    protocol = next((each for each in protocols if each in offered), "")
    if not protocol and (offered or required):
        raise HttpError(403, f"unable to upgrade: none of {', '.join(offered)} is supported")
    return protocol


async def _converse(channels: _Channels, wanted: Wanted, start: Callable[[], Awaitable[Streams]]) -> None:
    try:
        streams = await start()
    except RuntimeFailure as error:
        await channels.say(_ERROR, msgspec.json.encode(failure_of(str(error))))
        await channels.end()
        return
    listening = asyncio.ensure_future(_listen(channels, streams, wanted))
    talking = asyncio.ensure_future(_talk(channels, streams, wanted))
    try:
        # A client that leaves ends the session; one that only ends its input does not.
        await asyncio.wait((talking, listening), return_when=asyncio.FIRST_COMPLETED)
        if not talking.done():
            return
        await talking
        try:
            status = status_of(await streams.exit_code())
        except RuntimeFailure as error:
            status = failure_of(str(error))
        await channels.say(_ERROR, msgspec.json.encode(status))
        await channels.end()
    except (ConnectionError, TimeoutError):
        pass
    finally:
        for task in (listening, talking):
            task.cancel()
        await asyncio.gather(listening, talking, return_exceptions=True)
        await streams.close()


async def _listen(channels: _Channels, streams: Streams, wanted: Wanted) -> None:
    async for channel, data in channels.heard():
        if channel == _STDIN and wanted.stdin:
            await streams.write(data)
        elif channel == _RESIZE:
            try:
                size = msgspec.json.decode(data)
                await streams.resize(int(size["Width"]), int(size["Height"]))
            except (msgspec.DecodeError, KeyError, TypeError, ValueError, OSError, struct.error):
                continue


async def _talk(channels: _Channels, streams: Streams, wanted: Wanted) -> None:
    async for channel, data in streams.output():
        if (channel == _STDOUT and wanted.stdout) or (channel == _STDERR and wanted.stderr):
            await channels.say(channel, data)


class _SocketChannels:
    """Channels over a WebSocket: the first byte of a message is the channel, or its first digit if the rest is base64."""

    def __init__(self, socket: WebSocket, protocol: str) -> None:
        self._socket = socket
        self._in_base64 = protocol.endswith(_BASE64)
        self._tells_status = protocol not in _OLDER_PROTOCOLS

    async def say(self, channel: int, data: bytes) -> None:
        if channel == _ERROR and not self._tells_status:
            status = msgspec.json.decode(data)
            if status["status"] == "Success":
                return
            data = status["message"].encode()
        if self._in_base64:
            await self._socket.send_text(f"{channel}{base64.b64encode(data).decode()}")
        else:
            await self._socket.send(bytes((channel,)) + data)

    async def heard(self) -> AsyncIterator[tuple[int, bytes]]:
        # Clients take the first message as the signal to start.
        await self.say(_STDOUT, b"")
        async for said in self._socket.messages():
            message = _decoded(said) if self._in_base64 else said
            if not message:
                continue
            if message[0] == _CLOSE:
                if message[1:2] == bytes((_STDIN,)):
                    yield _STDIN, b""
            elif message[0] != _STDIN or len(message) > 1:
                yield message[0], message[1:]

    async def end(self) -> None:
        await self._socket.close()


def _decoded(said: bytes) -> bytes:
    """A base64 message as a binary one; empty if it is invalid."""
    try:
        return bytes((said[0] - ord("0"),)) + base64.b64decode(said[1:], validate=True) if said else b""
    except ValueError:
        return b""


class _SpdyChannels:
    """Channels over SPDY: each is a stream, identified by its headers."""

    def __init__(self) -> None:
        self._streams: dict[str, SpdyStream] = {}
        self._session: SpdySession | None = None

    async def collect(self, session: SpdySession, wanted: Wanted) -> None:
        """Wait until the client has opened all requested streams."""
        self._session = session
        expected = 1 + wanted.stdin + wanted.stdout + (wanted.stderr and not wanted.tty) + wanted.tty
        async with asyncio.timeout(_STREAMS_S):
            while len(self._streams) < expected:
                stream = await session.opened.get()
                if stream is None:
                    raise ConnectionResetError("the client has left")
                self._streams[stream.headers.get("streamtype", "")] = stream

    async def say(self, channel: int, data: bytes) -> None:
        stream = self._streams.get({_STDOUT: "stdout", _STDERR: "stderr", _ERROR: "error"}[channel])
        if stream is not None:
            await stream.write(data)

    async def heard(self) -> AsyncIterator[tuple[int, bytes]]:
        said: asyncio.Queue[tuple[int, bytes] | None] = asyncio.Queue(16)

        async def follow(channel: int, stream: SpdyStream) -> None:
            async for data in stream.received():
                await said.put((channel, data))
            await said.put((channel, b""))

        async def until_left() -> None:
            # The client stays as long as its connection: the session reports its end.
            assert self._session is not None, "streams are collected first"
            while await self._session.opened.get() is not None:
                pass
            await said.put(None)

        follows = [(_STDIN, "stdin"), (_RESIZE, "resize")]
        tasks = [
            asyncio.ensure_future(follow(code, self._streams[name])) for code, name in follows if name in self._streams
        ]
        tasks.append(asyncio.ensure_future(until_left()))
        try:
            while (found := await said.get()) is not None:
                yield found
        finally:
            for task in tasks:
                task.cancel()

    async def end(self) -> None:
        for stream in self._streams.values():
            await stream.close()


# --- ports ---

_PORT_MAX = 65535


class _SocketPipe:
    """SPDY inside the messages of a WebSocket."""

    def __init__(self, socket: WebSocket) -> None:
        self._socket = socket
        self._messages = socket.messages()
        self._held = bytearray()

    async def read_exactly(self, count: int) -> bytes:
        while len(self._held) < count:
            try:
                self._held += await anext(self._messages)
            except StopAsyncIteration:
                raise ConnectionResetError("the client has left") from None
        data = bytes(self._held[:count])
        del self._held[:count]
        return data

    async def write(self, data: bytes) -> None:
        await self._socket.send(data)


def _port(text: str) -> int | None:
    """A port number; None if it is invalid."""
    number = int(text) if text.isascii() and text.isdigit() and len(text) <= 5 else 0
    return number if 0 < number <= _PORT_MAX else None


def forward_ports(request: Request, connect: Connect) -> Upgrade:
    """Connect a client with ports of a pod until it leaves; HttpError."""
    if request.head.upgrade != "websocket":
        _expect_spdy(request)
        return Upgrade(_SPDY, {"X-Stream-Protocol-Version": _PORT_PROTOCOL}, lambda pipe: _forward(pipe, connect))
    texts = [each for value in request.all("port") for each in value.split(",")]
    ports = [port for port in map(_port, texts) if port is not None]
    if len(ports) != len(texts):
        raise HttpError(400, f"invalid port: expected numbers from 1 to {_PORT_MAX}")
    offers = request.header("sec-websocket-protocol")
    protocol = _chosen((_TUNNEL, *_COMMAND_PROTOCOLS), offers, required=False)

    async def converse(connection: Connection) -> None:
        socket = WebSocket(connection)
        if protocol == _TUNNEL:
            await _forward(_SocketPipe(socket), connect)
        else:
            await _forward_channels(socket, ports, connect)

    return Upgrade("websocket", handshake(request.head, protocol), converse)


async def _forward(pipe: Pipe, connect: Connect) -> None:
    session = SpdySession(pipe)
    # Request id -> the first of its two streams.
    halves: dict[str, SpdyStream] = {}
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(session.run())
        conversations: set[asyncio.Task[None]] = set()
        while (stream := await session.opened.get()) is not None:
            id_ = stream.headers.get("requestid", "")
            other = halves.pop(id_, None)
            if other is None:
                halves[id_] = stream
                continue
            data, errors = (stream, other) if stream.headers.get("streamtype") == "data" else (other, stream)
            task = tasks.create_task(_forward_one(session, data, errors, connect))
            conversations.add(task)
            task.add_done_callback(conversations.discard)
        for task in conversations:
            task.cancel()


async def _refuse(data: SpdyStream, errors: SpdyStream, port: str, error: RuntimeFailure) -> None:
    await _quietly(errors.write(f"an error occurred forwarding {port}: {error}".encode()))
    await _quietly(errors.close())
    await _quietly(data.close())


async def _forward_one(session: SpdySession, data: SpdyStream, errors: SpdyStream, connect: Connect) -> None:
    port = data.headers.get("port", "")
    number = _port(port)
    try:
        if number is None:
            raise RuntimeFailure("PortForwardError", f"expected a number from 1 to {_PORT_MAX}")
        streams = await connect(number)
    except RuntimeFailure as error:
        await _refuse(data, errors, port, error)
        return

    async def to_port() -> None:
        async for said in data.received():
            await streams.write(said)
        await streams.write(b"")

    sending = asyncio.ensure_future(to_port())
    try:
        async for _, said in streams.output():
            await data.write(said)
        await data.close()
        await errors.close()
    except RuntimeFailure as error:
        await _refuse(data, errors, port, error)
    except (ConnectionError, TimeoutError):
        pass
    finally:
        # The port first: a second cancellation takes effect at the next await.
        await streams.close()
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
        session.forget(data)
        session.forget(errors)


async def _forward_channels(socket: WebSocket, ports: list[int], connect: Connect) -> None:
    """The older way over WebSockets: two channels per port, each starting with the port number."""
    opened: dict[int, Streams] = {}

    async def tell(position: int, streams: Streams) -> None:
        try:
            async for _, said in streams.output():
                await _quietly(socket.send(bytes((2 * position,)) + said))
        except RuntimeFailure as error:
            await _quietly(socket.send(bytes((2 * position + 1,)) + str(error).encode()))

    tasks = []
    try:
        for position, port in enumerate(ports[:127]):
            for channel in (2 * position, 2 * position + 1):
                await socket.send(bytes((channel,)) + struct.pack("<H", port))
            try:
                opened[position] = await connect(port)
            except RuntimeFailure as error:
                await socket.send(bytes((2 * position + 1,)) + str(error).encode())
                continue
            tasks.append(asyncio.ensure_future(tell(position, opened[position])))
        async for message in socket.messages():
            streams = opened.get(message[0] // 2) if message else None
            if streams is not None and len(message) > 1:
                await streams.write(message[1:])
    finally:
        for streams in opened.values():
            await streams.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _quietly(doing: Awaitable[None]) -> None:
    try:
        await doing
    except (ConnectionError, TimeoutError):
        pass
