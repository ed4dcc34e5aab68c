"""Handlers that are functions: a request value in, a response value out.

For all servers except the API server, which reads bodies, monitors its clients and has metrics. No handler here needs a
body, so none is read: a client's body is skipped or ends its connection.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import unquote

import msgspec

from allot.http1.connections import PATIENCE_S, Connection, Limits
from allot.http1.connections import Handler as ConnectionHandler
from allot.http1.heads import Head, HttpError, Pairs, parse_query
from allot.http1.listener import Listener
from allot.process.clock import Clock
from allot.process.supervise import answer_or_none, until

TEXT = "text/plain; charset=utf-8"
_TRUE = ("1", "true", "True", "TRUE", "t")


class Request(msgspec.Struct, frozen=True):
    """A client's request. subject: of its certificate, verified by TLS."""

    head: Head
    subject: Mapping[str, tuple[str, ...]] = {}

    @property
    def method(self) -> str:
        """GET, POST and so on."""
        return self.head.method

    @property
    def path(self) -> str:
        """The path, unescaped."""
        return unquote(self.head.path)

    @property
    def query(self) -> Pairs:
        """The parameters, in order."""
        return parse_query(self.head.query)

    def get(self, name: str) -> str:
        """The first value of a parameter."""
        return next(iter(self.all(name)), "")

    def flag(self, name: str) -> bool:
        """Whether a parameter is true, parsed as in Go."""
        return self.get(name) in _TRUE

    def all(self, name: str) -> tuple[str, ...]:
        """All values of a parameter."""
        return tuple(value for key, value in self.query if key == name)

    def header(self, name: str) -> str:
        """A header, by its name in lower case."""
        return self.head.get(name)


class Response(msgspec.Struct, frozen=True):
    """An answer: whole, or streamed in pieces."""

    body: bytes | AsyncIterator[bytes]
    content_type: str = TEXT
    status: int = 200
    headers: Mapping[str, str] = {}


class Upgrade(msgspec.Struct, frozen=True):
    """Switches the connection to another protocol; converse implements it."""

    protocol: str
    headers: Mapping[str, str]
    converse: Callable[[Connection], Awaitable[None]]


# May raise HttpError as its answer.
Handler = Callable[[Request], Awaitable[Response | Upgrade]]


@asynccontextmanager
async def serving(
    handler: Handler,
    clock: Clock,
    host: str,
    port: int,
    context: ssl.SSLContext | None = None,
    *,
    connections: int = 4096,
    listening: socket.socket | None = None,
) -> AsyncIterator[int]:
    """Serve until the block ends; yields the port. OSError if it is not available. connections: how many may be open at a time; listening: a
    listening socket, instead of host and port."""

    async def answer(connection: Connection, head: Head) -> bool:
        return await _answer(connection, Request(head, _subject(connection)), handler)

    async with Listener(answering(answer), clock, Limits(connections=connections)).listening(
        host, port, context, listening
    ) as number:
        yield number


def answering(answer: Callable[[Connection, Head], Awaitable[bool]]) -> ConnectionHandler:
    """A handler for a listener: a bug in one request is reported and answered. answer: returns True when done."""

    async def handle(connection: Connection, head: Head) -> None:
        if await answer_or_none(f"{head.method} {head.path}", lambda: answer(connection, head)) is None:
            if connection.answered:
                connection.abort()
            else:
                await connection.answer(500, {"Content-Type": TEXT}, b"the request could not be handled")

    return handle


async def _answer(connection: Connection, request: Request, handler: Handler) -> bool:
    """Answer a request; returns True when done."""
    try:
        response = await handler(request)
        await _send(connection, response)
    except HttpError as error:
        # Bytes of names that are not text are replaced.
        await _send(connection, Response(str(error).encode(errors="replace"), status=error.code))
    return True


async def _send(connection: Connection, response: Response | Upgrade) -> None:
    try:
        if isinstance(response, Upgrade):
            await connection.upgrade(response.protocol, response.headers)
            await until(connection.stopping, response.converse(connection))
            return
        headers = {"Content-Type": response.content_type, **response.headers}
        if isinstance(response.body, bytes):
            await connection.answer(response.status, headers, response.body)
        else:
            await until(connection.ending, _stream(connection, response.status, headers, response.body))
    except (ConnectionError, TimeoutError):
        # The client has left, or does not read its answer.
        connection.abort()


async def _stream(
    connection: Connection, status: int, headers: Mapping[str, str], pieces: AsyncIterator[bytes]
) -> None:
    stream = await connection.start_stream(status, headers, PATIENCE_S)
    async for piece in pieces:
        await stream.write(piece)
    await stream.end()


def _subject(connection: Connection) -> dict[str, tuple[str, ...]]:
    certificate: Any = connection.transport.get_extra_info("peercert")
    found: dict[str, tuple[str, ...]] = {}
    for group in (certificate or {}).get("subject", ()):
        for name, value in group:
            found[name] = (*found.get(name, ()), value)
    return found
