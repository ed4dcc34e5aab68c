"""Moves bytes between a client and a node: plain answers as they come, and connections that change their protocol.

An upgraded connection (WebSocket or SPDY) is passed through without being understood: what one side says, the other hears.
"""

from __future__ import annotations

import asyncio
import ssl
from typing import Any

from aiohttp import hdrs, web

from allot.apiserver.errors import StatusError
from allot.apiserver.nodeproxy import Upstream

CONNECT_S = 10.0
_HEAD_BYTES_MAX = 64 * 1024
_CHUNK_BYTES = 64 * 1024
_BUFFERED_CHUNKS_MAX = 64
_IDLE_S = 4 * 3600.0
# Headers that concern one connection, and credentials that are not the node's business.
_NOT_PASSED_ON = frozenset(
    name.lower()
    for name in (
        hdrs.AUTHORIZATION,
        hdrs.CONNECTION,
        hdrs.UPGRADE,
        hdrs.HOST,
        hdrs.CONTENT_LENGTH,
        hdrs.TRANSFER_ENCODING,
        "Keep-Alive",
        "Proxy-Authorization",
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


class _Passed(web.StreamResponse):
    """Stands for an answer that was written by hand."""

    async def prepare(self, request: web.BaseRequest) -> Any:  # noqa: ARG002 - the signature is aiohttp's
        return None

    async def write_eof(self, data: bytes = b"") -> None:  # noqa: ARG002
        return None


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
    request: web.BaseRequest, to: Upstream, context: ssl.SSLContext, body: bytes, headers: dict[str, str]
) -> web.StreamResponse:
    """Ask the node and give its answer to the client, as a stream or as an upgraded connection."""
    reader, writer = await _connect(to, context)
    try:
        upgrade = request.headers.get(hdrs.UPGRADE, "")
        writer.write(_head(request, to, upgrade, body))
        async with asyncio.timeout(CONNECT_S):
            await writer.drain()
        async with asyncio.timeout(_IDLE_S if not upgrade else 60.0):
            head = await _answer_head(reader, to)
        status = _status(head, to)
        if status == 101 and request.transport is not None:
            return await _upgraded(request, head, reader, writer)
        return await _streamed(request, status, head, reader, headers)
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, ConnectionError) as error:
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


def _head(request: web.BaseRequest, to: Upstream, upgrade: str, body: bytes) -> bytes:
    lines = [f"{request.method} {to.path} HTTP/1.1", f"Host: {to.host}:{to.port}"]
    for name, value in request.headers.items():
        if name.lower() not in _NOT_PASSED_ON and not name.lower().startswith("impersonate-"):
            lines.append(f"{name}: {value}")
    lines += ["Connection: Upgrade", f"Upgrade: {upgrade}"] if upgrade else ["Connection: close"]
    if body or request.method in ("POST", "PUT", "PATCH"):
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
    request: web.BaseRequest, head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> web.StreamResponse:
    transport = request.transport
    assert transport is not None, "the client is connected"
    client = _ClientSide(transport)
    transport.set_protocol(client)
    await client.write(head)

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
    response = _Passed(status=101)
    response.force_close()
    return response


async def _streamed(
    request: web.BaseRequest, status: int, head: bytes, reader: asyncio.StreamReader, headers: dict[str, str]
) -> web.StreamResponse:
    """The node's answer as it comes. Connections to nodes are for one request, so an answer ends with its connection."""
    received = _headers(head)
    response = web.StreamResponse(status=status)
    response.headers.update(headers)
    response.headers[hdrs.CONTENT_TYPE] = received.get("content-type", "text/plain")
    response.enable_chunked_encoding()
    await response.prepare(request)
    chunked = "chunked" in received.get("transfer-encoding", "").lower()
    left = int(received["content-length"]) if received.get("content-length", "").isdigit() else None
    while True:
        data = await _chunk(reader) if chunked else await reader.read(min(_CHUNK_BYTES, left or _CHUNK_BYTES))
        if not data:
            break
        await response.write(data)
        if left is not None:
            left -= len(data)
            if left <= 0:
                break
    await response.write_eof()
    return response


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
