"""The server's side of SPDY/3.1, as far as kubectl uses it: streams in both directions over one connection.

The client opens streams. There is no flow control: Kubernetes clients do not use it. Data for a stream that no one reads blocks
the whole connection, so memory stays bounded.
"""

from __future__ import annotations

import asyncio
import struct
import zlib
from collections.abc import AsyncIterator, Mapping
from typing import Protocol

_VERSION = 3
_SYN_STREAM, _SYN_REPLY, _RST_STREAM, _SETTINGS, _PING, _GOAWAY, _HEADERS, _WINDOW = 1, 2, 3, 4, 6, 7, 8, 9
_FIN = 1
_DATA_BYTES_MAX = 32 * 1024
_HEADERS_BYTES_MAX = 256 * 1024
_STREAMS_MAX = 1000
_WAITING_MAX = 64

# The initial dictionary of header compression (SPDY draft 3.1, section 2.6.10.1).
_WORDS = [
    "options",
    "head",
    "post",
    "put",
    "delete",
    "trace",
    "accept",
    "accept-charset",
    "accept-encoding",
    "accept-language",
    "accept-ranges",
    "age",
    "allow",
    "authorization",
    "cache-control",
    "connection",
    "content-base",
    "content-encoding",
    "content-language",
    "content-length",
    "content-location",
    "content-md5",
    "content-range",
    "content-type",
    "date",
    "etag",
    "expect",
    "expires",
    "from",
    "host",
    "if-match",
    "if-modified-since",
    "if-none-match",
    "if-range",
    "if-unmodified-since",
    "last-modified",
    "location",
    "max-forwards",
    "pragma",
    "proxy-authenticate",
    "proxy-authorization",
    "range",
    "referer",
    "retry-after",
    "server",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "user-agent",
    "vary",
    "via",
    "warning",
    "www-authenticate",
    "method",
    "get",
    "status",
]
_MORE_WORDS = ("200 OK", "version", "HTTP/1.1", "url", "public", "set-cookie", "keep-alive", "origin")
_TEXT = (
    "100101201202205206300302303304305306307402405406407408409410411412413414415416417502504505"
    "203 Non-Authoritative Information204 No Content301 Moved Permanently400 Bad Request401 Unauthorized403 Forbidden"
    "404 Not Found500 Internal Server Error501 Not Implemented503 Service Unavailable"
    "Jan Feb Mar Apr May Jun Jul Aug Sept Oct Nov Dec 00:00:00 Mon, Tue, Wed, Thu, Fri, Sat, Sun, GMT"
    "chunked,text/html,image/png,image/jpg,image/gif,application/xml,application/xhtml+xml,text/plain,text/javascript,"
    "publicprivatemax-age=gzip,deflate,sdchcharset=utf-8charset=iso-8859-1,utf-,*,enq=0."
)
DICTIONARY = b"".join(struct.pack(">I", len(word)) + word.encode() for word in (*_WORDS, *_MORE_WORDS)) + _TEXT.encode()


class BadFrame(Exception):
    """A client violates the protocol."""


class Pipe(Protocol):
    """Transports frames: a connection, or a tunnel through another protocol."""

    async def read_exactly(self, count: int) -> bytes:
        """Exactly this many bytes; ConnectionError at the end."""

    async def write(self, data: bytes) -> None:
        """Write, and wait while the other side does not read."""


class SpdyStream:
    """One stream of a session."""

    def __init__(self, session: SpdySession, number: int, headers: Mapping[str, str]) -> None:
        self._session = session
        self.number = number
        self.headers = headers
        self._come: asyncio.Queue[bytes] = asyncio.Queue(_WAITING_MAX)
        self.is_ended = False
        self._has_said_all = False

    async def received(self) -> AsyncIterator[bytes]:
        """Data from the client, until the stream ends."""
        while data := await self._come.get():
            yield data

    async def write(self, data: bytes) -> None:
        """Send data."""
        for start in range(0, len(data), _DATA_BYTES_MAX):
            await self._session.send_data(self.number, data[start : start + _DATA_BYTES_MAX])

    async def close(self) -> None:
        """End our side."""
        if not self._has_said_all:
            self._has_said_all = True
            await self._session.send_data(self.number, b"", ends=True)

    async def take(self, data: bytes) -> None:
        """Data from the session; empty at the end."""
        if not self.is_ended:
            self.is_ended = not data
            await self._come.put(data)


class SpdySession:
    """A connection that speaks SPDY."""

    def __init__(self, pipe: Pipe) -> None:
        self._pipe = pipe
        self._inflate = zlib.decompressobj(zdict=DICTIONARY)
        self._deflate = zlib.compressobj(zdict=DICTIONARY)
        self._streams: dict[int, SpdyStream] = {}
        self._writing = asyncio.Lock()
        self.opened: asyncio.Queue[SpdyStream | None] = asyncio.Queue()

    async def run(self) -> None:
        """Read frames until the connection ends; then every stream ends, and `opened` gets None."""
        try:
            while True:
                await self._frame()
        except (ConnectionError, TimeoutError, BadFrame, zlib.error, struct.error):
            pass
        finally:
            self.opened.put_nowait(None)
            for stream in self._streams.values():
                if not stream.is_ended:
                    stream.is_ended = True
                    if stream._come.full():
                        stream._come.get_nowait()
                    stream._come.put_nowait(b"")

    async def _frame(self) -> None:
        head = await self._pipe.read_exactly(8)
        flags, length = head[4], int.from_bytes(head[5:8], "big")
        data = await self._pipe.read_exactly(length)
        if not head[0] & 0x80:
            await self._data(int.from_bytes(head[:4], "big"), flags, data)
            return
        if int.from_bytes(head[:2], "big") & 0x7FFF != _VERSION:
            raise BadFrame("another version of the protocol")
        kind = int.from_bytes(head[2:4], "big")
        if kind == _SYN_STREAM:
            await self._open(flags, data)
        elif kind == _RST_STREAM:
            stream = self._streams.pop(struct.unpack_from(">I", data)[0], None)
            if stream is not None:
                await stream.take(b"")
        elif kind == _PING:
            await self._send_control(_PING, 0, data)
        elif kind == _HEADERS:
            self._headers(data[4:])
        elif kind == _GOAWAY:
            raise ConnectionResetError("the client leaves")

    async def _open(self, flags: int, data: bytes) -> None:
        number = struct.unpack_from(">I", data)[0] & 0x7FFFFFFF
        if len(self._streams) >= _STREAMS_MAX:
            raise BadFrame("too many streams")
        stream = SpdyStream(self, number, self._headers(data[10:]))
        self._streams[number] = stream
        async with self._writing:
            block = self._deflate.compress(struct.pack(">I", 0)) + self._deflate.flush(zlib.Z_SYNC_FLUSH)
            await self._write_control(_SYN_REPLY, 0, struct.pack(">I", number) + block)
        if flags & _FIN:
            await stream.take(b"")
        self.opened.put_nowait(stream)

    async def _data(self, number: int, flags: int, data: bytes) -> None:
        stream = self._streams.get(number & 0x7FFFFFFF)
        if stream is None:
            return
        if data:
            await stream.take(data)
        if flags & _FIN:
            await stream.take(b"")

    def _headers(self, block: bytes) -> dict[str, str]:
        text = self._inflate.decompress(block, _HEADERS_BYTES_MAX)
        if self._inflate.unconsumed_tail:
            raise BadFrame("headers are too long")
        count, at = struct.unpack_from(">I", text)[0], 4
        found = {}
        for _ in range(count):
            pair = []
            for _ in range(2):
                length = struct.unpack_from(">I", text, at)[0]
                pair.append(text[at + 4 : at + 4 + length].decode("latin-1"))
                at += 4 + length
            found[pair[0].lower()] = pair[1]
        return found

    async def send_data(self, number: int, data: bytes, *, ends: bool = False) -> None:
        """A data frame; ConnectionError if the client has gone."""
        async with self._writing:
            flags = _FIN if ends else 0
            await self._pipe.write(struct.pack(">II", number, flags << 24 | len(data)) + data)

    async def _send_control(self, kind: int, flags: int, data: bytes) -> None:
        async with self._writing:
            await self._write_control(kind, flags, data)

    async def _write_control(self, kind: int, flags: int, data: bytes) -> None:
        await self._pipe.write(struct.pack(">HHI", 0x8000 | _VERSION, kind, flags << 24 | len(data)) + data)

    def forget(self, stream: SpdyStream) -> None:
        """Nothing more is expected on a stream."""
        self._streams.pop(stream.number, None)
