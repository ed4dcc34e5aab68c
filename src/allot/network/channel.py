"""Messages with descriptors over a unix socket, for both sides of the border of a network namespace.

A message is a JSON value; one that is too large for a packet is sent as shared memory. A peer that does not read is disconnected.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

Message = dict[str, Any]
# Limits of a packet, which carries the descriptors, and of a message sent as memory.
PACKET_BYTES_MAX = 64 * 1024
MESSAGE_BYTES_MAX = 64 * 1024 * 1024
_HANDLES_MAX = 8
_WAITING_MAX = 4096
_IN_MEMORY = "memory"


class Channel:
    """One side. received: called with each message and its descriptors, which the receiver then owns; closed: called once, when the
    other side is gone."""

    def __init__(
        self,
        connection: socket.socket,
        received: Callable[[Message, list[int]], None],
        closed: Callable[[], None] = lambda: None,
    ) -> None:
        connection.setblocking(False)
        self._socket = connection
        self._received = received
        self._closed = closed
        self._waiting: deque[tuple[bytes, tuple[int, ...]]] = deque()
        self._loop = asyncio.get_running_loop()
        self.is_open = True
        self._loop.add_reader(connection.fileno(), self._read)

    def send(self, message: Message, handles: Sequence[int] = ()) -> None:
        """Send a message. The caller keeps the descriptors and can close them afterwards. ConnectionError if no one is there."""
        if not self.is_open:
            raise ConnectionResetError("the other side is gone")
        data = msgspec.json.encode(message)
        copies = [os.dup(each) for each in handles]
        if len(data) > PACKET_BYTES_MAX - 1024:
            copies.append(_as_memory(data))
            data = msgspec.json.encode({_IN_MEMORY: len(data)})
        self._waiting.append((data, tuple(copies)))
        if len(self._waiting) > _WAITING_MAX:
            self.close()
            raise ConnectionResetError("the other side does not read")
        self._write()

    def _write(self) -> None:
        while self._waiting:
            data, handles = self._waiting[0]
            try:
                socket.send_fds(self._socket, [data], handles)
            except BlockingIOError:
                self._loop.add_writer(self._socket.fileno(), self._write)
                return
            except OSError:
                self.close()
                return
            self._waiting.popleft()
            for each in handles:
                os.close(each)
        self._loop.remove_writer(self._socket.fileno())

    def _read(self) -> None:
        try:
            data, handles, _, _ = socket.recv_fds(self._socket, PACKET_BYTES_MAX, _HANDLES_MAX)
        except BlockingIOError:
            return
        except OSError:
            data, handles = b"", []
        for each in handles:
            os.set_inheritable(each, False)
        if not data:
            for each in handles:
                os.close(each)
            self.close()
            return
        try:
            message = msgspec.json.decode(data, type=Message)
            if _IN_MEMORY in message:
                message = msgspec.json.decode(_from_memory(handles.pop(), int(message[_IN_MEMORY])), type=Message)
        except (msgspec.DecodeError, IndexError, OSError, ValueError):
            for each in handles:
                os.close(each)
            self.close()
            return
        self._received(message, handles)

    def close(self) -> None:
        """Close the socket."""
        if not self.is_open:
            return
        self.is_open = False
        self._loop.remove_reader(self._socket.fileno())
        self._loop.remove_writer(self._socket.fileno())
        self._socket.close()
        for _, handles in self._waiting:
            for each in handles:
                os.close(each)
        self._waiting.clear()
        self._closed()


def _as_memory(data: bytes) -> int:
    if len(data) > MESSAGE_BYTES_MAX:
        raise ValueError(f"a message of {len(data)} bytes")
    handle = os.memfd_create("allot", os.MFD_CLOEXEC)
    with os.fdopen(os.dup(handle), "wb") as file:
        file.write(data)
    return handle


def _from_memory(handle: int, size: int) -> bytes:
    try:
        if not 0 <= size <= MESSAGE_BYTES_MAX:
            raise ValueError(f"a message of {size} bytes")
        return os.pread(handle, size, 0)
    finally:
        os.close(handle)
