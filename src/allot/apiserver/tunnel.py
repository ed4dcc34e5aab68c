"""Moves bytes between a client and whom it is passed on to: plain answers as they come, and connections that change their
protocol.

An upgraded connection (WebSocket or SPDY) is passed through without being understood: what one side says, the other hears. Of
the heads before, only what is listed here is passed on, in both directions: a client's credentials are nobody else's business,
and what a pod says must not be taken for the server's word.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Mapping
from urllib.parse import urlsplit

from allot.apiserver.access.authentication import without_websocket_token
from allot.apiserver.connections import Connection
from allot.apiserver.dialing import CONNECT_S, Dialler, Upstream
from allot.apiserver.errors import bad_request
from allot.process.heads import BadHead, Head, Headers, answer_head, parse_answer_head

_CHUNK_BYTES = 64 * 1024
_BUFFERED_CHUNKS_MAX = 64
_IDLE_S = 4 * 3600.0
_UPGRADE_S = 60.0
# Answers before the answer, such as 100 and 103.
_INFORMATIONAL_MAX = 5
_TRAILERS_MAX = 100
_CHUNK_SIZE = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;[^\r\n]{0,256})?\r\n")
# What kubelets speak. Others could be a way to ask them more, in the server's name, after the first question was allowed.
_KUBELET_PROTOCOLS = ("websocket", "spdy/3.1")
_PROTOCOL = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+(/[!#$%&'*+\-.^_`|~0-9A-Za-z]+)?")

_ASKED = frozenset(
    [
        "accept",
        "accept-encoding",
        "accept-language",
        "cache-control",
        "content-encoding",
        "content-language",
        "content-type",
        "if-match",
        "if-modified-since",
        "if-none-match",
        "if-range",
        "if-unmodified-since",
        "origin",
        "pragma",
        "range",
        "sec-websocket-extensions",
        "sec-websocket-key",
        "sec-websocket-version",
        "traceparent",
        "tracestate",
        "user-agent",
        "x-requested-with",
        "x-stream-protocol-version",
    ]
)
_ANSWERED = (
    "Accept-Ranges",
    "Content-Disposition",
    "Content-Encoding",
    "Content-Language",
    "Content-Range",
    "ETag",
    "Last-Modified",
    "Retry-After",
    "Vary",
)
_UPGRADED = (
    "Upgrade",
    "Sec-WebSocket-Accept",
    "Sec-WebSocket-Protocol",
    "Sec-WebSocket-Extensions",
    "X-Stream-Protocol-Version",
)


class _ClientSide(asyncio.Protocol):
    """Takes the client's connection over from the HTTP server."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self.received: asyncio.Queue[bytes] = asyncio.Queue()
        self._writable = asyncio.Event()
        self._writable.set()

    def data_received(self, data: bytes) -> None:
        self.received.put_nowait(data)
        if self.received.qsize() > _BUFFERED_CHUNKS_MAX:
            self._transport.pause_reading()

    def eof_received(self) -> bool:
        self.received.put_nowait(b"")
        return False

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - the signature is asyncio's
        self.received.put_nowait(b"")
        self._writable.set()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    async def next(self) -> bytes:
        """What the client says next; empty at its end."""
        data = await self.received.get()
        if self.received.empty() and not self._transport.is_closing():
            self._transport.resume_reading()
        return data

    async def write(self, data: bytes) -> None:
        """Say something to the client, waiting while it does not listen."""
        if not self._transport.is_closing():
            self._transport.write(data)
        await self._writable.wait()


async def pass_through(
    connection: Connection,
    head: Head,
    to: Upstream,
    dialler: Dialler,
    upgrade: str,
    body: bytes,
    headers: Mapping[str, str],
) -> int:
    """Ask, and give the answer to the client, as a stream or as an upgraded connection; its status."""
    reader, writer = await dialler.connect(to)
    try:
        writer.write(_request(head, to, upgrade, body, connection.remote))
        async with asyncio.timeout(CONNECT_S):
            await writer.drain()
        async with asyncio.timeout(_UPGRADE_S if upgrade else _IDLE_S):
            status, received = await _answer(reader)
        if status == 101 and upgrade:
            await _upgraded(connection, received, reader, writer)
        elif status < 200 or (upgrade and status < 400):
            raise to.unreachable(f"invalid upgrade response: status code {status}")
        elif 300 <= status < 400 and not to.prefix:
            raise to.unreachable("the backend attempted to redirect this request, which is not permitted")
        else:
            await _streamed(connection, head, to, status, received, reader, headers)
        return status
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, BadHead, ConnectionError) as error:
        if connection.answered:
            connection.abort()
            return 502
        raise to.unreachable(f"the answer is not HTTP or not whole: {error}") from error
    finally:
        writer.close()


def wanted_protocol(head: Head, to: Upstream) -> str:
    """The protocol that a client wants to change to, empty if none; 400 if that cannot be passed on."""
    upgrade = head.get("upgrade")
    if not upgrade or "upgrade" not in (each.strip() for each in head.headers.connection.split(",")):
        return ""
    if not _PROTOCOL.fullmatch(upgrade) or (to.kubelet and upgrade.lower() not in _KUBELET_PROTOCOLS):
        raise bad_request(f"unable to upgrade to {upgrade[:64]!r}: expected websocket or SPDY/3.1")
    if head.has_body:
        raise bad_request("unable to upgrade: a request that changes the protocol has no body")
    return upgrade


def _request(head: Head, to: Upstream, upgrade: str, body: bytes, client: str) -> bytes:
    lines = [f"{head.method} {to.path} HTTP/1.1", f"Host: {to.place}"]
    lines += [f"{name}: {value}" for name, value in head.headers.items if name in _ASKED]
    if protocols := without_websocket_token(head.get("sec-websocket-protocol")):
        lines.append(f"Sec-WebSocket-Protocol: {protocols}")
    if client:
        lines.append(f"X-Forwarded-For: {client}")
    if to.prefix:
        lines.append(f"X-Forwarded-Uri: {to.prefix}{to.path.partition('?')[0]}")
    lines += ["Connection: Upgrade", f"Upgrade: {upgrade}"] if upgrade else ["Connection: close"]
    if body or head.method in ("POST", "PUT", "PATCH"):
        lines.append(f"Content-Length: {len(body)}")
    text = "\r\n".join([*lines, "", ""])
    assert text.count("\n") == len(lines) + 1, "parsed values have no line ends"
    return text.encode("utf-8", "surrogateescape") + body


async def _answer(reader: asyncio.StreamReader) -> tuple[int, Headers]:
    """Status and headers of the answer."""
    status, received = 0, Headers(())
    for _ in range(_INFORMATIONAL_MAX):
        status, received = parse_answer_head((await reader.readuntil(b"\r\n\r\n")).removesuffix(b"\r\n\r\n"))
        if status == 101 or status >= 200:
            break
    return status, received


async def _upgraded(
    connection: Connection, received: Headers, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    transport = connection.transport
    client = _ClientSide(transport)
    come = connection.take_over(client)
    if come:
        client.received.put_nowait(come)
    told = {name: value for name in _UPGRADED if (value := received.get(name.lower()))}
    await client.write(answer_head(101, {"Connection": "Upgrade", **told}))

    async def to_node() -> None:
        while data := await client.next():
            writer.write(data)
            await writer.drain()
        raise ConnectionResetError

    async def to_client() -> None:
        while data := await reader.read(_CHUNK_BYTES):
            await client.write(data)
        raise ConnectionResetError

    try:
        async with asyncio.timeout(_IDLE_S), asyncio.TaskGroup() as tasks:
            tasks.create_task(to_node())
            tasks.create_task(to_client())
    except* (ConnectionError, TimeoutError):
        # One side has ended, so the other is told.
        transport.close()


async def _streamed(
    connection: Connection,
    head: Head,
    to: Upstream,
    status: int,
    received: Headers,
    reader: asyncio.StreamReader,
    headers: Mapping[str, str],
) -> None:
    """The answer as it comes. Connections are for one request, so an answer of unknown length ends with its connection."""
    sent = {
        **headers,
        "Content-Type": received.get("content-type") or "text/plain",
        "X-Content-Type-Options": "nosniff",
    }
    sent |= {name: value for name in _ANSWERED if (value := received.get(name.lower()))}
    if location := _location(received.get("location"), to):
        sent["Location"] = location
    if status in (204, 304):
        await connection.answer(status, sent, b"")
        return
    stream = await connection.start_stream(status, sent)
    if head.method != "HEAD":
        async for piece in _pieces(reader, received):
            await stream.write(piece)
    await stream.end()


def _location(location: str, to: Upstream) -> str:
    """Where a redirect leads the client: through the server again if it stays where it was, elsewhere as it is."""
    if not location or not to.prefix:
        return ""
    try:
        pieces = urlsplit(location)
    except ValueError:
        return ""
    if pieces.scheme not in ("", "http", "https"):
        return ""
    if pieces.netloc not in ("", to.host, to.place) or not pieces.path.startswith("/"):
        return location
    path = pieces.path if pieces.path.startswith(f"{to.prefix}/") else to.prefix + pieces.path
    return pieces._replace(scheme="", netloc="", path=path).geturl()


async def _pieces(reader: asyncio.StreamReader, received: Headers) -> AsyncIterator[bytes]:
    """The body; BadHead or IncompleteReadError if it is not all there."""
    if received.chunked:
        while size := await _chunk_size(reader):
            async for piece in _exactly(reader, size):
                yield piece
            if await reader.readexactly(2) != b"\r\n":
                raise BadHead(502, "malformed chunk")
        for _ in range(_TRAILERS_MAX):
            if await reader.readuntil(b"\r\n") == b"\r\n":
                return
        raise BadHead(502, "too many trailers")
    if received.get("content-length"):
        async for piece in _exactly(reader, received.length):
            yield piece
        return
    while data := await reader.read(_CHUNK_BYTES):
        yield data


async def _chunk_size(reader: asyncio.StreamReader) -> int:
    found = _CHUNK_SIZE.fullmatch(await reader.readuntil(b"\r\n"))
    if found is None:
        raise BadHead(502, "malformed chunk")
    return int(found[1], 16)


async def _exactly(reader: asyncio.StreamReader, length: int) -> AsyncIterator[bytes]:
    while length > 0:
        data = await reader.read(min(_CHUNK_BYTES, length))
        if not data:
            raise asyncio.IncompleteReadError(b"", length)
        length -= len(data)
        yield data
