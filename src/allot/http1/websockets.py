"""The server side of a WebSocket: messages in both directions, answers to pings. The library handles frames (`websockets`, without
its I/O): violations of RFC 6455 close the connection with the matching code.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

from websockets.exceptions import ConnectionClosed, InvalidState
from websockets.frames import CloseCode, Frame, Opcode
from websockets.protocol import SEND_EOF, Protocol, Side, State
from websockets.utils import accept_key

from allot.http1.connections import Connection
from allot.http1.heads import Head, HttpError

_MESSAGE_BYTES_MAX = 16 * 1024 * 1024
# How much is read before others get a turn: it may be thousands of small frames.
_READ_BYTES = 32 * 1024
_CLOSING_S = 5.0
_SAID = (Opcode.TEXT, Opcode.BINARY, Opcode.CONT)


def handshake(head: Head, protocol: str) -> dict[str, str]:
    """The headers with which a server accepts a handshake; HttpError if it is not one. protocol: the selected one, if any."""
    key = head.get("sec-websocket-key")
    if head.method != "GET" or not key.isascii() or not key or head.get("sec-websocket-version") != "13":
        raise HttpError(400, "unable to upgrade: expected a WebSocket handshake of version 13")
    taken = {"Sec-WebSocket-Accept": accept_key(key)}
    return {**taken, "Sec-WebSocket-Protocol": protocol} if protocol else taken


class WebSocket:
    """A connection that has become a WebSocket."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._frames = Protocol(Side.SERVER, state=State.OPEN, max_size=_MESSAGE_BYTES_MAX)
        self._is_read = self._is_over = False
        # Set when the client has nothing more to send.
        self.closed = asyncio.Event()

    async def messages(self) -> AsyncIterator[bytes]:
        """The client's messages until it disconnects. For one reader."""
        self._is_read = True
        parts = bytearray()
        try:
            while not self._is_over:
                self._frames.receive_data(await self._connection.read(_READ_BYTES))
                await self._write()
                for frame in self._frames.events_received():
                    if isinstance(frame, Frame) and frame.opcode in _SAID:
                        parts += frame.data
                        if frame.fin:
                            yield bytes(parts)
                            parts.clear()
        except (ConnectionError, TimeoutError):
            return
        finally:
            self.closed.set()

    async def send(self, data: bytes) -> None:
        """A binary message; ConnectionError if the client has gone."""
        await self._say(self._frames.send_binary, data)

    async def send_text(self, text: str) -> None:
        """A text message; ConnectionError if the client has gone."""
        await self._say(self._frames.send_text, text.encode())

    async def _say(self, frame: Callable[[bytes], None], data: bytes) -> None:
        try:
            frame(data)
        except (ConnectionClosed, InvalidState):
            raise ConnectionResetError("the client has left") from None
        await self._write()

    async def ping(self) -> None:
        """Send a ping, so that a dead connection is detected."""
        if self._frames.state is State.OPEN:
            self._frames.send_ping(b"")
            await self._write()

    async def close(self) -> None:
        """Send a close frame, and wait a moment for the client's."""
        try:
            async with asyncio.timeout(_CLOSING_S):
                if self._frames.state is State.OPEN:
                    self._frames.send_close(CloseCode.NORMAL_CLOSURE)
                    await self._write()
                if self._is_read:
                    await self.closed.wait()
                async for _ in self.messages():
                    pass
        except (ConnectionError, TimeoutError):
            return

    async def _write(self) -> None:
        """Send the protocol's pending bytes in one piece, so that frames stay whole."""
        said = self._frames.data_to_send()
        self._is_over = self._is_over or SEND_EOF in said
        if data := b"".join(said):
            await self._connection.write(data)
