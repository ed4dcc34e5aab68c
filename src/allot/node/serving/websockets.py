"""The server's side of a WebSocket: messages in both directions, pings answered."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

from allot.node.serving.http import HttpError, Request
from allot.process.websocket_frames import (
    BINARY,
    CLOSE,
    CONTINUATION,
    FINAL,
    MASKED,
    NORMAL_CLOSURE,
    PING,
    PONG,
    TEXT,
    accept_value,
    frame,
    unmasked,
)

_MESSAGE_BYTES_MAX = 16 * 1024 * 1024
_WRITE_S = 60.0


def wants_websocket(request: Request) -> bool:
    """Whether a client asks for a WebSocket."""
    return request.header("upgrade").lower() == "websocket"


class WebSocket:
    """A connection that has become a WebSocket. protocol: the one of those offered that was chosen."""

    def __init__(self, request: Request, protocol: str) -> None:
        self._reader = request.reader
        self._writer = request.writer
        self.protocol = protocol
        self._is_closed = False

    @classmethod
    async def accept(cls, request: Request, protocols: Sequence[str]) -> WebSocket:
        """Make a connection a WebSocket with the first of our protocols that the client offers; HttpError if none."""
        key = request.header("sec-websocket-key").encode()
        if not key or request.header("sec-websocket-version") != "13":
            raise HttpError(400, "expected a WebSocket handshake of version 13")
        offered = [each.strip() for each in request.header("sec-websocket-protocol").split(",") if each.strip()]
        protocol = next((each for each in protocols if each in offered), "")
        if offered and not protocol:
            raise HttpError(403, f"unable to upgrade: none of {', '.join(offered)} is supported")
        headers = {"Sec-WebSocket-Accept": accept_value(key)}
        if protocol:
            headers["Sec-WebSocket-Protocol"] = protocol
        await request.upgrade("websocket", headers)
        return cls(request, protocol)

    async def messages(self) -> AsyncIterator[bytes]:
        """What the client says, until it leaves."""
        parts = bytearray()
        while True:
            try:
                final, code, data = await self._frame()
            except (asyncio.IncompleteReadError, ConnectionError, ValueError):
                return
            if code == PING:
                await self._send(PONG, data)
            elif code == CLOSE:
                await self.close()
                return
            elif code in (TEXT, BINARY, CONTINUATION):
                parts += data
                if len(parts) > _MESSAGE_BYTES_MAX:
                    return
                if final:
                    yield bytes(parts)
                    parts.clear()

    async def _frame(self) -> tuple[bool, int, bytes]:
        first, second = await self._reader.readexactly(2)
        length = second & 0x7F
        if length == 126:
            length = int.from_bytes(await self._reader.readexactly(2), "big")
        elif length == 127:
            length = int.from_bytes(await self._reader.readexactly(8), "big")
        if not second & MASKED or length > _MESSAGE_BYTES_MAX:
            raise ValueError("a frame that clients do not send")
        mask = await self._reader.readexactly(4)
        data = await self._reader.readexactly(length)
        return bool(first & FINAL), first & 0x0F, unmasked(data, mask)

    async def send(self, data: bytes) -> None:
        """A binary message; ConnectionError if the client has gone."""
        await self._send(BINARY, data)

    async def _send(self, code: int, data: bytes) -> None:
        if self._is_closed or self._writer.is_closing():
            raise ConnectionResetError("the client has left")
        self._writer.write(frame(code, data))
        async with asyncio.timeout(_WRITE_S):
            await self._writer.drain()

    async def close(self) -> None:
        """Say goodbye."""
        if not self._is_closed:
            try:
                await self._send(CLOSE, NORMAL_CLOSURE)
            except (ConnectionError, TimeoutError):
                pass
            self._is_closed = True
