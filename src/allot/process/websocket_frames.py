"""Frames of WebSockets (RFC 6455), from the server's side. Knows nothing about sockets, nor about what is said in frames."""

from __future__ import annotations

import base64
import hashlib

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10
FINAL, MASKED = 0x80, 0x80
NORMAL_CLOSURE = (1000).to_bytes(2, "big")
_MAGIC = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


def accept_value(key: bytes) -> str:
    """What the answer to a handshake says in Sec-WebSocket-Accept. key: the client's Sec-WebSocket-Key."""
    return base64.b64encode(hashlib.sha1(key + _MAGIC).digest()).decode()


def frame(code: int, data: bytes) -> bytes:
    """A whole message, or a control frame, of a server."""
    length = len(data)
    if length < 126:
        return bytes((FINAL | code, length)) + data
    if length < 2**16:
        return bytes((FINAL | code, 126)) + length.to_bytes(2, "big") + data
    return bytes((FINAL | code, 127)) + length.to_bytes(8, "big") + data


def unmasked(data: bytes, mask: bytes) -> bytes:
    """What a client said. As one large number: byte by byte takes forty times as long."""
    length = len(data)
    long_mask = (mask * (length // 4 + 1))[:length]
    return (int.from_bytes(data, "big") ^ int.from_bytes(long_mask, "big")).to_bytes(length, "big")
