"""Requests as bytes, sent as they are, and the answers to them. Knows HTTP/1.1 as far as a client must, and tolerates nothing."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Mapping
from urllib.parse import quote

import msgspec
import yaml

STATUS_TEXT_TYPES = ("text/plain",)
# A stream that says nothing for so long has said what it had to say.
_QUIET_S = 0.03
_HEAD_BYTES_MAX = 256 * 1024
_LIMIT = 64 * 1024 * 1024


class Request(msgspec.Struct, kw_only=True):
    """A request before it is bytes."""

    method: str
    path: str
    query: list[tuple[str, str]] = msgspec.field(default_factory=list)
    headers: list[tuple[str, str]] = msgspec.field(default_factory=list)
    body: bytes | None = None
    user: str = "admin"

    def head(self) -> bytes:
        """Everything before the body, without the empty line."""
        target = self.path
        if self.query:
            target += "?" + "&".join(f"{quote(name, safe='')}={quote(text, safe='')}" for name, text in self.query)
        lines = [f"{self.method} {target} HTTP/1.1", "Host: fuzz"]
        lines += [f"{name}: {text}" for name, text in self.headers]
        if self.body is not None:
            lines.append(f"Content-Length: {len(self.body)}")
        return "\r\n".join(lines).encode("utf-8", "surrogatepass")

    def raw(self) -> bytes:
        """All of it."""
        return self.head() + b"\r\n\r\n" + (self.body or b"")


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What came back. status: 0 if nothing did."""

    status: int = 0
    headers: Mapping[str, str] = msgspec.field(default_factory=dict)
    body: bytes = b""
    # Whether another request may follow on the connection.
    keeps: bool = False
    # Whether it was not waited for any longer: the server may want to hear more.
    pending: bool = False

    @property
    def media_type(self) -> str:
        """Of the body."""
        return self.headers.get("content-type", "").partition(";")[0].strip()

    def reason_of_status(self) -> str | None:
        """The reason and message of a Status body; None if it is none."""
        try:
            value = yaml.safe_load(self.body) if "yaml" in self.media_type else msgspec.json.decode(self.body)
        except (yaml.YAMLError, msgspec.DecodeError, UnicodeDecodeError):
            return None
        if not isinstance(value, dict) or value.get("kind") != "Status" or value.get("code") != self.status:
            return None
        return f"{value.get('reason', '')}: {value.get('message', '')}"


Ask = Callable[[Request], Awaitable[Answer]]


class Malformed(Exception):
    """An answer that is not HTTP."""


class Link:
    """A connection to a server."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self.answered = 0

    @classmethod
    async def open(cls, host: str, port: int, context: ssl.SSLContext) -> Link:
        """OSError if that is not possible."""
        reader, writer = await asyncio.open_connection(
            host, port, ssl=context, server_hostname="localhost", limit=_LIMIT
        )
        return cls(reader, writer)

    async def send(self, data: bytes) -> None:
        """Bytes."""
        self._writer.write(data)
        await self._writer.drain()

    def close(self) -> None:
        """Now."""
        self._writer.transport.abort()

    async def answer(self, method: str) -> Answer:
        """The next answer, after those with status 100; one without a status if the connection ended. Malformed."""
        while True:
            try:
                head = await self._reader.readuntil(b"\r\n\r\n")
            except (asyncio.IncompleteReadError, ConnectionError, ssl.SSLError) as error:
                if isinstance(error, asyncio.IncompleteReadError) and error.partial:
                    raise Malformed(f"the connection ended within a head: {error.partial[:100]!r}") from error
                return Answer()
            status, headers = _parse_head(head)
            if status == 100:
                continue
            self.answered += 1
            keeps = "close" not in headers.get("connection", "").lower()
            if status == 101:
                return Answer(status=status, headers=headers)
            if method == "HEAD" or status in (204, 304):
                # Of a watch only the head is seen, and it continues.
                return Answer(status=status, headers=headers, keeps=keeps and "transfer-encoding" not in headers)
            try:
                body, ended = await self._body(headers)
            except (asyncio.IncompleteReadError, ConnectionError, ssl.SSLError) as error:
                raise Malformed(f"the connection ended within a body of status {status}") from error
            return Answer(status=status, headers=headers, body=body, keeps=keeps and ended)

    async def _body(self, headers: Mapping[str, str]) -> tuple[bytes, bool]:
        if headers.get("transfer-encoding", "") == "chunked":
            return await self._chunks()
        length = headers.get("content-length")
        if length is None:
            return await self._reader.read(), False
        return await self._reader.readexactly(int(length)), True

    async def _chunks(self) -> tuple[bytes, bool]:
        """The body, and whether it ended: a watch is left when it falls silent."""
        parts: list[bytes] = []
        while True:
            try:
                async with asyncio.timeout(_QUIET_S):
                    line = await self._reader.readuntil(b"\r\n")
            except TimeoutError:
                return b"".join(parts), False
            try:
                size = int(line.strip(), 16)
            except ValueError:
                raise Malformed(f"not the size of a chunk: {line[:50]!r}") from None
            data = await self._reader.readexactly(size + 2)
            if not size:
                return b"".join(parts), True
            parts.append(data[:-2])

    async def rest(self, seconds: float) -> bytes:
        """What else comes within a time."""
        try:
            async with asyncio.timeout(seconds):
                return await self._reader.read(65536)
        except (TimeoutError, ConnectionError, ssl.SSLError):
            return b""


def _parse_head(head: bytes) -> tuple[int, dict[str, str]]:
    first, *lines = head[:-4].decode("latin-1").split("\r\n")
    words = first.split(" ", 2)
    if len(words) < 2 or not words[0].startswith("HTTP/1.") or not words[1].isdigit() or len(words[1]) != 3:
        raise Malformed(f"not a status line: {first[:100]!r}")
    headers = {}
    for line in lines:
        name, colon, text = line.partition(":")
        if not colon or not name or name != name.strip():
            raise Malformed(f"not a header: {line[:100]!r}")
        headers[name.lower()] = text.strip()
    return int(words[1]), headers
