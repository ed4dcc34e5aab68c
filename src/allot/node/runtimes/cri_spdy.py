"""The client side of SPDY/3.1 for a container runtime's streaming server: several streams on one connection, each of which either
side can end separately.

containerd and CRI-O also take WebSockets, but in a version in which a client cannot end standard input. Of SPDY, only what those
servers use is here: no flow control (they have none), and headers are sent but never read, since the servers open no streams and
answer without headers.
"""

from __future__ import annotations

import asyncio
import ssl
import struct
import zlib
from collections.abc import Mapping
from urllib.parse import urlsplit

from allot.http1.answers import read_head
from allot.http1.heads import BadHead
from allot.node.runtimes.port import RuntimeFailure

_CONNECT_S = 10.0
_ANSWER_BYTES_MAX = 64 * 1024
_FRAME = struct.Struct(">II")
_CONTROL = 0x8000_0000
_VERSION = 3
_SYN_STREAM, _RST_STREAM, _PING, _GOAWAY = 1, 3, 6, 7
_FIN = 0x01
# A frame's length has 24 bits; smaller frames let other streams in between.
DATA_BYTES_MAX = 64 * 1024


class SpdyClosed(Exception):
    """The connection is over."""


class SpdyConnection:
    """One connection with its streams."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        # One compressor for all headers of a connection.
        self._compress = zlib.compressobj()
        self._next_id = 1

    @classmethod
    async def open(cls, url: str, protocol: str) -> SpdyConnection:
        """Connect and switch to SPDY; RuntimeFailure if the server refuses."""
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise RuntimeFailure("StreamError", f"the runtime's streaming address {url!r} is not http or https")
        port = parts.port or (443 if parts.scheme == "https" else 80)
        context = ssl.create_default_context() if parts.scheme == "https" else None
        try:
            async with asyncio.timeout(_CONNECT_S):
                reader, writer = await asyncio.open_connection(
                    parts.hostname, port, ssl=context, limit=_ANSWER_BYTES_MAX
                )
                try:
                    await _upgrade(reader, writer, url, protocol)
                except BaseException:
                    writer.close()
                    raise
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, BadHead) as error:
            told = str(error) or "no answer"
            raise RuntimeFailure("StreamError", f"the runtime's streaming server {parts.netloc}: {told}") from error
        return cls(reader, writer)

    async def open_stream(self, headers: Mapping[str, str], *, end: bool = False) -> int:
        """Open a stream; returns its id. end: nothing will be sent on it."""
        id_ = self._next_id
        self._next_id += 2
        block = bytearray(struct.pack(">I", len(headers)))
        for name, value in headers.items():
            for text in (name.lower().encode(), value.encode()):
                block += struct.pack(">I", len(text)) + text
        packed = self._compress.compress(bytes(block)) + self._compress.flush(zlib.Z_SYNC_FLUSH)
        await self._send_control(_SYN_STREAM, _FIN if end else 0, struct.pack(">IIBB", id_, 0, 0, 0) + packed)
        return id_

    async def send(self, stream: int, data: bytes, *, end: bool = False) -> None:
        """Send data on a stream. end: nothing follows."""
        for start in range(0, len(data) or 1, DATA_BYTES_MAX):
            part = data[start : start + DATA_BYTES_MAX]
            last = end and start + DATA_BYTES_MAX >= len(data)
            await self._write(_FRAME.pack(stream, (_FIN if last else 0) << 24 | len(part)) + part)

    async def receive(self) -> tuple[int, bytes, bool]:
        """Stream, data, and whether it has ended. SpdyClosed at the end of the connection."""
        while True:
            try:
                first, second = _FRAME.unpack(await self._reader.readexactly(_FRAME.size))
                payload = await self._reader.readexactly(second & 0xFFFFFF)
            except (asyncio.IncompleteReadError, OSError) as error:
                raise SpdyClosed from error
            flags = second >> 24
            if not first & _CONTROL:
                return first, payload, bool(flags & _FIN)
            kind = first & 0xFFFF
            if kind == _RST_STREAM and len(payload) >= 4:
                return int.from_bytes(payload[:4], "big") & ~_CONTROL, b"", True
            if kind == _PING:
                await self._send_control(_PING, 0, payload)

    async def close(self) -> None:
        """Hang up."""
        if not self._writer.is_closing():
            try:
                await self._send_control(_GOAWAY, 0, struct.pack(">II", 0, 0))
            except SpdyClosed:
                pass
            self._writer.close()

    async def _send_control(self, kind: int, flags: int, payload: bytes) -> None:
        head = _FRAME.pack(_CONTROL | _VERSION << 16 | kind, flags << 24 | len(payload))
        await self._write(head + payload)

    async def _write(self, data: bytes) -> None:
        try:
            self._writer.write(data)
            await self._writer.drain()
        except (OSError, RuntimeError) as error:
            # uvloop raises RuntimeError for a connection that was closed on this side.
            raise SpdyClosed from error


async def _upgrade(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, url: str, protocol: str) -> None:
    parts = urlsplit(url)
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    writer.write(
        f"POST {target} HTTP/1.1\r\nHost: {parts.netloc}\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n"
        f"X-Stream-Protocol-Version: {protocol}\r\nContent-Length: 0\r\n\r\n".encode()
    )
    await writer.drain()
    status, _ = await read_head(reader)
    if status != 101:
        rest = (await reader.read(1024)).decode(errors="replace").strip()
        raise RuntimeFailure("StreamError", f"the runtime's streaming server answered {status}: {rest}")
