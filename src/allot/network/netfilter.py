"""The kernel's protocol for packet filters (nfnetlink): messages, attributes, answers. Callers know what they mean."""

from __future__ import annotations

import errno
import os
import socket
import struct
from collections.abc import Iterator

_NETFILTER = 12
HEAD = struct.Struct("=IHHII")
GENERIC = struct.Struct("!BBH")
_ATTRIBUTE = struct.Struct("=HH")
_ERROR = struct.Struct("=i")
REQUEST, ACK, DUMP, CREATE, APPEND = 0x1, 0x4, 0x300, 0x400, 0x800
IS_ERROR, IS_DONE = 2, 3
_NESTED = 0x8000
_WAIT_S = 10.0
_BUFFER_BYTES = 32 * 2**20
_PIECE_BYTES = 256 * 1024


class NetfilterSocket:
    """A socket in the current network namespace."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _NETFILTER)
        try:
            self._socket.bind((0, 0))
            self._socket.settimeout(_WAIT_S)
            # A transaction is one message, however many rules it has.
            self._socket.setsockopt(socket.SOL_SOCKET, 32, _BUFFER_BYTES)  # SO_SNDBUFFORCE
            self._socket.setsockopt(socket.SOL_SOCKET, 33, _BUFFER_BYTES)  # SO_RCVBUFFORCE
        except BaseException:
            self._socket.close()
            raise
        self._number = 0

    def close(self) -> None:
        """What belongs to the socket is removed with it."""
        self._socket.close()

    def message(self, subsystem: int, kind: int, family: int, body: bytes = b"", *, flags: int = 0) -> bytes:
        """A request, to be sent alone or with others; it gets the next number."""
        self._number += 1
        length = HEAD.size + GENERIC.size + len(body)
        head = HEAD.pack(length, subsystem << 8 | kind, REQUEST | flags, self._number, 0)
        return head + GENERIC.pack(family, 0, 0) + body

    def ask(self, subsystem: int, kind: int, family: int, body: bytes = b"", *, flags: int) -> int:
        """Send a request; returns its number."""
        self.send(self.message(subsystem, kind, family, body, flags=flags))
        return self._number

    def send(self, data: bytes) -> None:
        """Send messages."""
        self._socket.send(data)

    def answers(self) -> Iterator[tuple[int, int, bytes]]:
        """Kind, request number and body of each answer, for as long as the caller iterates; OSError if none comes."""
        while True:
            try:
                data = self._socket.recv(_PIECE_BYTES)
            except TimeoutError as error:
                raise OSError(errno.ETIMEDOUT, "the kernel does not answer") from error
            at = 0
            while at + HEAD.size <= len(data):
                size, kind, _, number, _ = HEAD.unpack_from(data, at)
                yield kind, number, data[at + HEAD.size : at + size]
                at += (size + 3) & ~3

    def dump(self, subsystem: int, kind: int, family: int) -> list[bytes]:
        """The bodies of all answers to a request for everything; OSError."""
        self.ask(subsystem, kind, family, flags=DUMP)
        found = []
        for answer, _, body in self.answers():
            if answer == IS_DONE:
                break
            if answer == IS_ERROR:
                raise OSError(error_code(body), os.strerror(error_code(body)).lower())
            found.append(body)
        return found


def error_code(body: bytes) -> int:
    """The code in an answer of kind IS_ERROR; 0 for success."""
    return -int(_ERROR.unpack_from(body)[0])


# --- attributes ---


def attribute(kind: int, data: bytes) -> bytes:
    """A value."""
    length = _ATTRIBUTE.size + len(data)
    return _ATTRIBUTE.pack(length, kind) + data + bytes(-length % 4)


def nested(kind: int, *parts: bytes) -> bytes:
    """Attributes in an attribute."""
    return attribute(kind | _NESTED, b"".join(parts))


def text(kind: int, value: str) -> bytes:
    """A name."""
    return attribute(kind, value.encode() + b"\0")


def number(kind: int, value: int) -> bytes:
    """An unsigned number."""
    return attribute(kind, struct.pack("!I", value))


def signed(kind: int, value: int) -> bytes:
    """A signed number."""
    return attribute(kind, struct.pack("!i", value))


def parsed(data: bytes) -> dict[int, bytes]:
    """Attributes by kind."""
    at, found = 0, {}
    while at + _ATTRIBUTE.size <= len(data):
        length, kind = _ATTRIBUTE.unpack_from(data, at)
        if length < _ATTRIBUTE.size:
            break
        found[kind & 0x3FFF] = data[at + _ATTRIBUTE.size : at + length]
        at += (length + 3) & ~3
    return found


def word(data: bytes) -> str:
    """A name from an attribute."""
    return data.rstrip(b"\0").decode(errors="replace")
