"""Moves bytes between a client and a node: plain answers as they come, and connections that change their protocol.

An upgraded connection (WebSocket or SPDY) is passed through without being understood: what one side says, the other hears.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping

from allot.apiserver.connections import Connection
from allot.apiserver.errors import StatusError
from allot.apiserver.heads import Head
from allot.apiserver.nodeproxy import Upstream

CONNECT_S = 10.0
_HEAD_BYTES_MAX = 64 * 1024
_CHUNK_BYTES = 64 * 1024
_BUFFERED_CHUNKS_MAX = 64
_IDLE_S = 4 * 3600.0
# Headers that concern one connection, and credentials that are not the node's business.
_NOT_PASSED_ON = frozenset(
    (
        "authorization",
        "connection",
        "upgrade",
        "host",
        "content-length",
        "transfer-encoding",
        "expect",
        "keep-alive",
        "proxy-authorization",
    )
)


def client_context(certificate: str, key: str) -> ssl.SSLContext:
    """TLS towards kubelets: with the server's own client certificate; their certificates are self-signed by default and, as
    in upstream without --kubelet-certificate-authority, not verified."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.load_cert_chain(certificate, key)
    return context


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
    context: ssl.SSLContext,
    body: bytes,
    headers: Mapping[str, str],
) -> int:
    """Ask the node and give its answer to the client, as a stream or as an upgraded connection; its status."""
    reader, writer = await _connect(to, context)
    try:
        upgrade = head.get("upgrade")
        writer.write(_head(head, to, upgrade, body))
        async with asyncio.timeout(CONNECT_S):
            await writer.drain()
        async with asyncio.timeout(_IDLE_S if not upgrade else 60.0):
            answer = await _answer_head(reader, to)
        status = _status(answer, to)
        if status == 101:
            await _upgraded(connection, answer, reader, writer)
        else:
            await _streamed(connection, status, answer, reader, headers)
        return status
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, ConnectionError) as error:
        if connection.answered:
            connection.abort()
            return 502
        raise _unreachable(to, error) from error
    finally:
        writer.close()


async def _connect(to: Upstream, context: ssl.SSLContext) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    try:
        async with asyncio.timeout(CONNECT_S):
            return await asyncio.open_connection(
                to.host, to.port, ssl=context if to.tls else None, limit=_HEAD_BYTES_MAX
            )
    except (OSError, TimeoutError) as error:
        raise _unreachable(to, error) from error


def _unreachable(to: Upstream, error: Exception) -> StatusError:
    told = str(error) or type(error).__name__
    return StatusError(502, "", f"error dialing backend: {to.host}:{to.port}: {told}")


def _head(head: Head, to: Upstream, upgrade: str, body: bytes) -> bytes:
    lines = [f"{head.method} {to.path} HTTP/1.1", f"Host: {to.host}:{to.port}"]
    for name, value in head.headers.items:
        if name not in _NOT_PASSED_ON and not name.startswith("impersonate-"):
            lines.append(f"{name}: {value}")
    lines += ["Connection: Upgrade", f"Upgrade: {upgrade}"] if upgrade else ["Connection: close"]
    if body or head.method in ("POST", "PUT", "PATCH"):
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode("utf-8", "surrogateescape") + body


async def _answer_head(reader: asyncio.StreamReader, to: Upstream) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    if not head.startswith(b"HTTP/1."):
        raise StatusError(502, "", f"error dialing backend: {to.host}:{to.port}: the answer is not HTTP")
    return head


def _status(head: bytes, to: Upstream) -> int:
    pieces = head.split(b" ", 2)
    if len(pieces) < 2 or not pieces[1].isdigit():
        raise StatusError(502, "", f"error dialing backend: {to.host}:{to.port}: the answer is not HTTP")
    return int(pieces[1])


async def _upgraded(
    connection: Connection, answer: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    transport = connection.transport
    client = _ClientSide(transport)
    come = connection.take_over(client)
    if come:
        client.received.put_nowait(come)
    await client.write(answer)

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
    connection: Connection, status: int, answer: bytes, reader: asyncio.StreamReader, headers: Mapping[str, str]
) -> None:
    """The node's answer as it comes. Connections to nodes are for one request, so an answer ends with its connection."""
    received = _headers(answer)
    sent = {**headers, "Content-Type": received.get("content-type", "text/plain")}
    stream = await connection.start_stream(status, sent)
    chunked = "chunked" in received.get("transfer-encoding", "").lower()
    left = int(received["content-length"]) if received.get("content-length", "").isdigit() else None
    while left is None or left > 0:
        data = await _chunk(reader) if chunked else await reader.read(min(_CHUNK_BYTES, left or _CHUNK_BYTES))
        if not data:
            break
        await stream.write(data)
        if left is not None:
            left -= len(data)
    await stream.end()


def _headers(head: bytes) -> dict[str, str]:
    lines = head.decode("latin-1").split("\r\n")[1:]
    pairs = (line.partition(":") for line in lines if ":" in line)
    return {name.strip().lower(): value.strip() for name, _, value in pairs}


async def _chunk(reader: asyncio.StreamReader) -> bytes:
    line = await reader.readline()
    try:
        size = int(line.split(b";")[0].strip() or b"0", 16)
    except ValueError:
        return b""
    if not 0 < size <= 16 * 1024 * 1024:
        return b""
    data = await reader.readexactly(size)
    await reader.readline()
    return data
