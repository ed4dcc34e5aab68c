"""The server's side of a WebSocket on which only the server has something to say: watches of browsers.

What clients say is read as far as needed to answer pings and to notice the end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from allot.apiserver.access.authentication import without_websocket_token
from allot.apiserver.connections import Connection
from allot.apiserver.errors import bad_request
from allot.process.heads import Head, answer_head
from allot.process.websocket_frames import (
    BINARY,
    CLOSE,
    MASKED,
    NORMAL_CLOSURE,
    PING,
    PONG,
    accept_value,
    frame,
    unmasked,
)

_SAID_BYTES_MAX = 64 * 1024
_CONTROL_BYTES_MAX = 125
_CLOSING_S = 5.0


class BadFrame(Exception):
    """A client that does not keep to the protocol."""


def take_frame(data: bytearray) -> tuple[int, bytes] | None:
    """Take the first frame of a client out of what has come: its code and what it says; None if it is not all there."""
    if len(data) < 2:
        return None
    length, start = data[1] & 0x7F, 2
    if not data[1] & MASKED:
        raise BadFrame("clients mask what they say")
    if length >= 126:
        start += 2 if length == 126 else 8
        if len(data) < start:
            return None
        length = int.from_bytes(data[2:start], "big")
    if length > _SAID_BYTES_MAX:
        raise BadFrame("a frame is too long")
    end = start + 4 + length
    if len(data) < end:
        return None
    code, mask, said = data[0] & 0x0F, data[start : start + 4], data[start + 4 : end]
    del data[:end]
    return code, unmasked(bytes(said), bytes(mask))


class WebSocket(asyncio.Protocol):
    """A connection that has become a WebSocket."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._data = bytearray()
        self._writable = asyncio.Event()
        self._writable.set()
        self._said_goodbye = False
        # Set when nothing can be said any more.
        self.closed = asyncio.Event()

    def data_received(self, data: bytes) -> None:
        """Frames have come, or parts of them."""
        self._data += data
        try:
            while not self.closed.is_set() and (found := take_frame(self._data)) is not None:
                code, said = found
                if code == PING:
                    self._send(PONG, said[:_CONTROL_BYTES_MAX])
                elif code == CLOSE:
                    self._end()
        except BadFrame:
            self._end()

    def eof_received(self) -> bool:
        """The client says no more."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - the signature is asyncio's
        """The client has gone."""
        self.closed.set()
        self._writable.set()

    def pause_writing(self) -> None:
        """The client does not read."""
        self._writable.clear()

    def resume_writing(self) -> None:
        """It reads again."""
        self._writable.set()

    def _send(self, code: int, said: bytes) -> None:
        if not self._transport.is_closing():
            self._transport.write(frame(code, said))

    def _end(self) -> None:
        self._say_goodbye()
        self.closed.set()
        self._writable.set()
        self._transport.close()

    def _say_goodbye(self) -> None:
        if not self._said_goodbye:
            self._said_goodbye = True
            self._send(CLOSE, NORMAL_CLOSURE)

    async def send(self, said: bytes) -> None:
        """A message; ConnectionError if the client has gone."""
        if self.closed.is_set():
            raise ConnectionResetError("the client has left")
        self._send(BINARY, said)
        await self._writable.wait()

    def ping(self) -> None:
        """Let the network notice whether the client is there."""
        self._send(PING, b"")

    async def close(self) -> None:
        """Say goodbye, and wait a moment for the client to do so too."""
        self._say_goodbye()
        try:
            async with asyncio.timeout(_CLOSING_S):
                await self.closed.wait()
        except TimeoutError:
            pass
        self._transport.close()


def accept(connection: Connection, head: Head, headers: Mapping[str, str]) -> WebSocket:
    """Make a connection a WebSocket; 400 if the client does not ask for one as it should."""
    key = head.get("sec-websocket-key").encode("utf-8", "surrogateescape")
    if head.method != "GET" or not key or head.get("sec-websocket-version") != "13":
        raise bad_request("unable to upgrade: expected a WebSocket handshake of version 13")
    answered = {
        **headers,
        "Upgrade": "websocket",
        "Connection": "Upgrade",
        "Sec-WebSocket-Accept": accept_value(key),
    }
    # Browsers insist on one of the protocols that they offer.
    offered = without_websocket_token(head.get("sec-websocket-protocol")).partition(",")[0]
    if offered:
        answered["Sec-WebSocket-Protocol"] = offered
    socket = WebSocket(connection.transport)
    come = connection.take_over(socket)
    connection.transport.write(answer_head(101, answered))
    socket.data_received(come)
    return socket
