"""A small HTTPS server: one request per connection, answers whole or in pieces, and connections that change their protocol.

The API server opens a connection per request and scrapers do well with that, so nothing is kept alive.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Any
from urllib.parse import unquote

from allot.process.heads import HEAD_BYTES_MAX, BadHead, chunk_size, parse_head, parse_query
from allot.process.supervise import answer_or_none

BODY_BYTES_MAX = 1024 * 1024
_HEAD_S = 30.0
_WRITE_S = 60.0
_CLOSE_S = 5.0
_LINGER_S = 1.0
_TRAILERS_MAX = 100
_CLIENT_HAS_GONE = (ConnectionError, TimeoutError, asyncio.IncompleteReadError, ssl.SSLError)
_TRUE = ("1", "true", "True", "TRUE", "t")


class HttpError(Exception):
    """An answer that is no success."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class Request:
    """A request, with its connection for those who take it over."""

    def __init__(
        self,
        method: str,
        target: str,
        headers: Mapping[str, str],
        body: bytes,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        path, _, query = target.partition("?")
        self.method = method
        self.path = unquote(path)
        self.query = parse_query(query)
        self.headers = headers
        self.body = body
        self.reader = reader
        self.writer = writer
        self.is_answered = False

    def get(self, name: str) -> str:
        """The first value of a parameter."""
        return next((value for key, value in self.query if key == name), "")

    def flag(self, name: str) -> bool:
        """Whether a parameter is true, as Go reads it."""
        return self.get(name) in _TRUE

    def all(self, name: str) -> tuple[str, ...]:
        """All values of a parameter."""
        return tuple(value for key, value in self.query if key == name)

    def header(self, name: str) -> str:
        """A header, by its name in lower case."""
        return self.headers.get(name, "")

    @property
    def peer_subject(self) -> dict[str, tuple[str, ...]]:
        """Whom the client's certificate is for, empty without one. TLS has verified it."""
        certificate: Any = self.writer.get_extra_info("peercert")
        found: dict[str, tuple[str, ...]] = {}
        for group in (certificate or {}).get("subject", ()):
            for name, value in group:
                found[name] = (*found.get(name, ()), value)
        return found

    # --- answers ---

    async def answer(self, status: int, body: bytes, content_type: str = "text/plain; charset=utf-8") -> None:
        """A whole answer."""
        self._head(status, {"Content-Type": content_type, "Content-Length": str(len(body))})
        self.writer.write(body if self.method != "HEAD" else b"")
        await self.drain()

    async def start_stream(self, content_type: str) -> None:
        """An answer in pieces."""
        self._head(200, {"Content-Type": content_type, "Transfer-Encoding": "chunked"})
        await self.drain()

    async def piece(self, data: bytes) -> None:
        """The next piece; an empty one is the end."""
        self.writer.write(b"%x\r\n%b\r\n" % (len(data), data))
        await self.drain()

    async def upgrade(self, protocol: str, headers: Mapping[str, str]) -> None:
        """From here on the connection speaks another protocol."""
        self.is_answered = True
        lines = ["HTTP/1.1 101 Switching Protocols", "Connection: Upgrade", f"Upgrade: {protocol}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        self.writer.write("\r\n".join([*lines, "", ""]).encode())
        await self.drain()

    def _head(self, status: int, headers: Mapping[str, str]) -> None:
        self.is_answered = True
        lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}", "Connection: close"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        self.writer.write("\r\n".join([*lines, "", ""]).encode())

    async def drain(self) -> None:
        """Wait until the client has read enough."""
        async with asyncio.timeout(_WRITE_S):
            await self.writer.drain()


Handler = Callable[[Request], Awaitable[None]]


@asynccontextmanager
async def serving(host: str, port: int, context: ssl.SSLContext, handler: Handler) -> AsyncIterator[int]:
    """Serve until the block ends; the port. OSError if it cannot be had."""
    tasks: set[asyncio.Task[Any]] = set()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None, "streams are served by tasks"
        tasks.add(task)
        try:
            await _serve(reader, writer, handler)
        except _CLIENT_HAS_GONE:
            pass
        except asyncio.CancelledError:
            pass  # the server stops; whoever waits for the task need not hear of it
        finally:
            tasks.discard(task)
            writer.close()

    server = await asyncio.start_server(
        connected, host, port, ssl=context, limit=HEAD_BYTES_MAX, ssl_handshake_timeout=10.0
    )
    try:
        yield int(server.sockets[0].getsockname()[1])
    finally:
        server.close()
        for task in tuple(tasks):
            task.cancel()
        if tasks:
            await asyncio.wait(tuple(tasks), timeout=_CLOSE_S)


async def _serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, handler: Handler) -> None:
    # What has not been read is a request for whoever is to be told about it.
    request = Request("GET", "/", {}, b"", reader, writer)
    try:
        async with asyncio.timeout(_HEAD_S):
            request = await _read(reader, writer)
    except HttpError as error:
        await request.answer(error.status, _encoded(error))
        await _pass_over(reader)
        return
    # A fault of ours in one request is reported, and answered.
    if await answer_or_none(f"{request.method} {request.path}", lambda: _handled(request, handler)) is None:
        if request.is_answered:
            writer.transport.abort()
            return
        await request.answer(500, b"the request could not be handled")
    async with asyncio.timeout(_CLOSE_S):
        await writer.drain()


async def _handled(request: Request, handler: Handler) -> bool:
    """True when there is nothing more to say."""
    try:
        await handler(request)
    except HttpError as error:
        if not request.is_answered:
            await request.answer(error.status, _encoded(error))
    except _CLIENT_HAS_GONE:
        request.writer.transport.abort()
    return True


def _encoded(error: HttpError) -> bytes:
    """Names that are no text are told as far as they are."""
    return str(error).encode(errors="replace")


async def _pass_over(reader: asyncio.StreamReader) -> None:
    """Let a client read its answer before it learns that nobody reads the rest of what it says."""
    try:
        async with asyncio.timeout(_LINGER_S):
            while await reader.read(HEAD_BYTES_MAX):
                pass
    except TimeoutError:
        pass


async def _read(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Request:
    try:
        head = parse_head((await reader.readuntil(b"\r\n\r\n"))[:-4])
        body = await _chunks(reader) if head.chunked else await _bytes(reader, head.length)
    except asyncio.LimitOverrunError:
        raise HttpError(431, "the head of the request is too long") from None
    except BadHead as error:
        raise HttpError(error.code, str(error)) from None
    target = f"{head.path}?{head.query}" if head.query else head.path
    headers = {name: head.get(name) for name, _ in head.headers.items}
    return Request(head.method, target, headers, body, reader, writer)


async def _bytes(reader: asyncio.StreamReader, length: int) -> bytes:
    if length > BODY_BYTES_MAX:
        raise HttpError(413, "the body of the request is too long")
    return await reader.readexactly(length)


async def _chunks(reader: asyncio.StreamReader) -> bytes:
    body = bytearray()
    while size := chunk_size(await _line(reader)):
        if len(body) + size > BODY_BYTES_MAX:
            raise HttpError(413, "the body of the request is too long")
        data = await reader.readexactly(size + 2)
        if data[-2:] != b"\r\n":
            raise BadHead(400, "malformed chunk")
        body += data[:-2]
    for _ in range(_TRAILERS_MAX):
        if not await _line(reader):
            return bytes(body)
    raise BadHead(431, "the trailers of the request are too long")


async def _line(reader: asyncio.StreamReader) -> bytes:
    return (await reader.readuntil(b"\r\n"))[:-2]
