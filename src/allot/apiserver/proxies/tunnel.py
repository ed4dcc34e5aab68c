"""Moves bytes between a client and its target: plain answers, and connections that change their
protocol.

An upgraded connection (WebSocket or SPDY) is passed through unparsed. Of
the heads, only the headers listed here are passed on, in both directions: a client's credentials must not reach the target,
and a pod's headers must not be mistaken for the server's.
"""

from __future__ import annotations

import asyncio
import base64
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import NamedTuple
from urllib.parse import urlsplit

from allot.apiserver.access.authentication import without_websocket_token
from allot.apiserver.errors import StatusError, bad_request
from allot.apiserver.proxies.dialing import CONNECT_S, Dialler, Upstream
from allot.apiserver.proxies.links import can_be_rewritten, led, rewritten
from allot.http1.answers import PIECE_BYTES, read_body, read_head
from allot.http1.connections import PATIENCE_S, Connection
from allot.http1.heads import BadHead, Head, Headers
from allot.http1.websockets import WebSocket, handshake

_IDLE_S = 4 * 3600.0
_UPGRADE_S = 60.0
# The protocols of kubelets. Others could allow further requests in the server's name once the first was authorized.
_KUBELET_PROTOCOLS = ("websocket", "spdy/3.1")
# How a byte stream is sent in messages; the first is the default.
_STREAM_PROTOCOLS = ("binary.k8s.io", "base64.binary.k8s.io")
# Only counted: the client got another status.
_BROKEN_OFF = 502
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
_ASKED_PLAINLY = frozenset(name for name in _ASKED if not name.startswith("sec-websocket-"))
_REFUSED = {400: "BadRequest", 404: "NotFound", 500: "InternalError"}
_REASON_BYTES_MAX = 4096
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
# What an extension API server tells clients besides.
_ANSWERED_BY_API = (
    *_ANSWERED,
    "Warning",
    "X-Kubernetes-Pf-Flowschema-Uid",
    "X-Kubernetes-Pf-Prioritylevel-Uid",
)
_UPGRADED = (
    "Sec-WebSocket-Accept",
    "Sec-WebSocket-Protocol",
    "Sec-WebSocket-Extensions",
    "X-Stream-Protocol-Version",
)


class _Answer(NamedTuple):
    """An answer whose head is read, and its connection."""

    status: int
    received: Headers
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter


@asynccontextmanager
async def _asked(
    connection: Connection, head: Head, to: Upstream, dialler: Dialler, upgrade: str = "", body: bytes = b""
) -> AsyncIterator[_Answer]:
    """Send the request. A failure is 503 if the client has no answer yet; otherwise it ends the client's connection and the block."""
    reader, writer = await dialler.connect(to)
    # Without it, a watch whose client has left would stay until something happens.
    leaving = asyncio.ensure_future(_end_with(connection, writer, to))
    try:
        writer.write(_request(head, to, upgrade, body, connection.remote))
        async with asyncio.timeout(CONNECT_S):
            await writer.drain()
        async with asyncio.timeout(_UPGRADE_S if upgrade else _IDLE_S):
            status, received = await read_head(reader)
        yield _Answer(status, received, reader, writer)
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, BadHead, ConnectionError) as error:
        if not connection.answered:
            told = error if to.secured is not None else f"the answer is not HTTP or not whole: {error}"
            raise to.unreachable(told) from error
        connection.abort()
    finally:
        leaving.cancel()
        writer.close()


async def _end_with(connection: Connection, writer: asyncio.StreamWriter, to: Upstream) -> None:
    """End a connection to a target when the client has left. When the server stops, requests may finish, but watches end."""
    await connection.ending.wait()
    if connection.lost or to.lasts:
        writer.transport.abort()


async def pass_through(
    connection: Connection,
    head: Head,
    to: Upstream,
    dialler: Dialler,
    upgrade: str,
    body: bytes,
    headers: Mapping[str, str],
) -> int:
    """Send the request and pass the answer to the client, as a stream or an upgraded connection; returns its status."""
    async with _asked(connection, head, to, dialler, upgrade, body) as answer:
        status = answer.status
        if status == 101 and upgrade:
            await _upgraded(connection, upgrade, answer)
        elif status < 200 or (upgrade and status < 400):
            raise to.unreachable(f"invalid upgrade response: status code {status}")
        elif 300 <= status < 400 and not to.prefix and (to.secured is None or answer.received.get("location")):
            raise _redirected(to)
        elif to.kubelet and not upgrade and status in _REFUSED and to.path.startswith("/containerLogs/"):
            raise await _refused(answer)
        else:
            await _streamed(connection, head, to, answer, headers)
        return status
    return _BROKEN_OFF


def _redirected(to: Upstream) -> StatusError:
    """Nobody is sent elsewhere with what was allowed here."""
    text = "the backend attempted to redirect this request, which is not permitted"
    return to.unreachable(text) if to.secured is None else StatusError(502, "", text)


async def _refused(answer: _Answer) -> StatusError:
    """Why there is no log, in the kubelet's words: kubectl shows those of a Status only."""
    text = b""
    async for piece in read_body(answer.reader, answer.received):
        text += piece
        if len(text) >= _REASON_BYTES_MAX:
            break
    return StatusError(
        answer.status, _REFUSED[answer.status], text[:_REASON_BYTES_MAX].decode(errors="replace").strip()
    )


async def stream_by_websocket(
    connection: Connection, head: Head, to: Upstream, dialler: Dialler, headers: Mapping[str, str]
) -> int:
    """Send the request and pass the answer to the client as WebSocket messages; returns its status. Errors are passed on as they are."""
    async with _asked(connection, head, to, dialler) as answer:
        if answer.status != 200:
            await _streamed(connection, head, to, answer, headers)
            return answer.status
        offered = [each.strip() for each in without_websocket_token(head.get("sec-websocket-protocol")).split(",")]
        protocol = next((each for each in offered if each in _STREAM_PROTOCOLS), "")
        if not protocol and any(offered):
            raise bad_request(f"unable to upgrade: none of {', '.join(offered)[:200]} is supported")
        await connection.upgrade("websocket", {**headers, **handshake(head, protocol)})
        pieces = read_body(answer.reader, answer.received)
        await _tell(WebSocket(connection), pieces, in_base64=protocol == _STREAM_PROTOCOLS[1])
        return 101
    return _BROKEN_OFF


async def _tell(socket: WebSocket, pieces: AsyncIterator[bytes], *, in_base64: bool) -> None:
    """Send pieces as messages until they end or the client leaves. The first message is empty: the client can begin."""

    async def send() -> None:
        await socket.send(b"")
        async for piece in pieces:
            if in_base64:
                await socket.send_text(base64.b64encode(piece).decode())
            else:
                await socket.send(piece)

    async def listen() -> None:
        async for _ in socket.messages():
            pass

    sending, listening = asyncio.ensure_future(send()), asyncio.ensure_future(listen())
    try:
        await asyncio.wait((sending, listening), return_when=asyncio.FIRST_COMPLETED)
        if sending.done():
            sending.result()
            await socket.close()
    finally:
        for task in (sending, listening):
            task.cancel()
        await asyncio.gather(sending, listening, return_exceptions=True)


def wanted_protocol(head: Head, to: Upstream) -> str:
    """The protocol that a client wants to switch to, or empty; 400 if it cannot be passed on."""
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
    lines += [
        f"{name}: {value}" for name, value in head.headers.items if name in (_ASKED if upgrade else _ASKED_PLAINLY)
    ]
    if upgrade and (protocols := without_websocket_token(head.get("sec-websocket-protocol"))):
        lines.append(f"Sec-WebSocket-Protocol: {protocols}")
    lines += [f"{name}: {value}" for name, value in to.headers]
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


async def _upgraded(connection: Connection, upgrade: str, answer: _Answer) -> None:
    received, reader, writer = answer.received, answer.reader, answer.writer
    told = {name: value for name in _UPGRADED if (value := received.get(name.lower()))}
    await connection.upgrade(received.get("upgrade") or upgrade, told)

    async def to_node() -> None:
        while True:
            writer.write(await connection.read())
            await writer.drain()

    async def to_client() -> None:
        while data := await reader.read(PIECE_BYTES):
            await connection.write(data)
        raise ConnectionResetError

    async def until_stop() -> None:
        await connection.stopping.wait()
        raise ConnectionResetError

    try:
        async with asyncio.timeout(_IDLE_S), asyncio.TaskGroup() as tasks:
            for moving in (to_node, to_client, until_stop):
                tasks.create_task(moving())
    except* (ConnectionError, TimeoutError):
        # One side has ended; when this returns, the other is closed.
        pass


async def _streamed(
    connection: Connection,
    head: Head,
    to: Upstream,
    answer: _Answer,
    headers: Mapping[str, str],
) -> None:
    """The answer as it comes. Connections are for one request, so an answer of unknown length ends with its connection."""
    status, received = answer.status, answer.received
    sent = {
        **headers,
        "Content-Type": received.get("content-type") or "text/plain",
        "X-Content-Type-Options": "nosniff",
    }
    told = _ANSWERED if to.secured is None else _ANSWERED_BY_API
    sent |= {name: value for name in told if (value := received.get(name.lower()))}
    body, encoding = read_body(answer.reader, received), received.get("content-encoding")
    if to.prefix and status != 206 and can_be_rewritten(received.get("content-type"), encoding):
        sent.pop("Content-Encoding", None)
        body = rewritten(body, encoding, lambda link: _led(link, to))
    if location := _location(received.get("location"), to):
        sent["Location"] = location
    if status in (204, 304):
        await connection.answer(status, sent, b"")
        return
    stream = await connection.start_stream(status, sent, PATIENCE_S)
    if head.method != "HEAD":
        async for piece in body:
            await stream.write(piece)
    await stream.end()


def _location(location: str, to: Upstream) -> str:
    """The client's redirect target: through the server again on the same host, otherwise unchanged."""
    if not location or not to.prefix:
        return ""
    try:
        scheme = urlsplit(location).scheme
    except ValueError:
        return ""
    return _led(location, to) if scheme in ("", "http", "https") else ""


def _led(link: str, to: Upstream) -> str:
    return led(link, to.prefix, (to.host, to.place))
