"""Relays bytes between two connections until both sides are done, with a limit on concurrent relays."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Awaitable, Callable

RELAYS_MAX = 4096
CONNECT_S = 10.0
_PIECE_BYTES = 64 * 1024
_AT_ONCE_RESET = struct.pack("ii", 1, 0)


class Relays:
    """The connections being relayed. New ones beyond the limit are rejected."""

    def __init__(self, relays_max: int = RELAYS_MAX) -> None:
        self._max = relays_max
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def is_full(self) -> bool:
        """Whether the limit is reached."""
        return len(self._tasks) >= self._max

    def start(self, connection: socket.socket, connect: Callable[[], Awaitable[socket.socket]]) -> None:
        """Relay a connection to the one opened for it; reset it if that fails."""
        if self.is_full:
            reset(connection)
            return
        task = asyncio.get_running_loop().create_task(_relay_to(connection, connect))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """End all."""
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


async def _relay_to(connection: socket.socket, connect: Callable[[], Awaitable[socket.socket]]) -> None:
    try:
        async with asyncio.timeout(CONNECT_S):
            other = await connect()
    except (OSError, TimeoutError):
        reset(connection)
        return
    except BaseException:
        connection.close()
        raise
    await relay(connection, other)


async def relay(one: socket.socket, other: socket.socket) -> None:
    """Relay until both sides have ended or one has failed. Closes both."""
    with one, other:
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(_move(one, other))
                tasks.create_task(_move(other, one))
        except* OSError:
            for each in (one, other):
                _will_reset(each)


async def _move(source: socket.socket, to: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    piece = bytearray(_PIECE_BYTES)
    view = memoryview(piece)
    while size := await loop.sock_recv_into(source, piece):
        await loop.sock_sendall(to, view[:size])
    to.shutdown(socket.SHUT_WR)


def reset(connection: socket.socket) -> None:
    """Close a connection so that the other side sees an error."""
    _will_reset(connection)
    connection.close()


def _will_reset(connection: socket.socket) -> None:
    try:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE_RESET)
    except OSError:
        pass  # it is closed already


async def connected(address: str, port: int, kind: int = socket.SOCK_STREAM) -> socket.socket:
    """Connect from the namespace of this process; OSError or TimeoutError."""
    return await finish_connecting(socket.socket(socket.AF_INET, kind | socket.SOCK_CLOEXEC), address, port)


async def finish_connecting(made: socket.socket, address: str, port: int) -> socket.socket:
    """Connect a socket that was created elsewhere."""
    made.setblocking(False)
    try:
        async with asyncio.timeout(CONNECT_S):
            await asyncio.get_running_loop().sock_connect(made, (address, port))
    except BaseException:
        made.close()
        raise
    return made


def bound(address: str, port: int, kind: int = socket.SOCK_STREAM, *, shared: bool = False) -> socket.socket:
    """A socket that listens, or receives datagrams. shared: others of this user may have the port on other addresses."""
    made = socket.socket(socket.AF_INET, kind | socket.SOCK_CLOEXEC)
    try:
        made.setblocking(False)
        if kind == socket.SOCK_STREAM:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        made.bind((address, port))
        if kind == socket.SOCK_STREAM:
            made.listen(128)
    except BaseException:
        made.close()
        raise
    return made


class Listener:
    """Accepts connections until closed. accepted: takes them over."""

    def __init__(self, listening: socket.socket, accepted: Callable[[socket.socket], None]) -> None:
        listening.setblocking(False)
        self._socket = listening
        self._accepted = accepted
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(listening.fileno(), self._accept)

    def _accept(self) -> None:
        try:
            connection, _ = self._socket.accept()
        except OSError:
            return  # the client has left, or there are no descriptors left
        connection.setblocking(False)
        self._accepted(connection)

    def close(self) -> None:
        """Stop accepting."""
        self._loop.remove_reader(self._socket.fileno())
        self._socket.close()
