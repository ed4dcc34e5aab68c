"""Accepts connections, with or without TLS, and enforces limits: how many in total and per client, how long they may take, and that
all of them end.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from email.utils import formatdate
from functools import partial

from allot.http1.connections import Connection, Handler, Limits
from allot.process.clock import Clock
from allot.process.shares import Shares
from allot.process.supervise import answer_or_none, supervise

_log = logging.getLogger("allot")

_READ_BYTES = 256 * 1024
_STOP_S = 5.0
_LOOK_EVERY_S = 1.0
_HANDSHAKE_S = 30.0
_BACKLOG = 4096
# How many are accepted before others have their turn, and the pause when the process can open no more files.
_ACCEPTED_PER_TURN = 64
_PAUSE_S = 1.0


class Listener:
    """Accepts and supervises connections."""

    def __init__(self, handler: Handler, clock: Clock, limits: Limits) -> None:
        self.handler = handler
        self.limits = limits
        self.loop = asyncio.get_running_loop()
        self.view = memoryview(bytearray(_READ_BYTES))
        self.stopping = asyncio.Event()
        self.date = formatdate(clock.seconds(), usegmt=True)
        self._clock = clock
        self._open = Shares(limits.connections)
        # How many were refused since the last log line, and where the last one came from.
        self._refused, self._refused_from = 0, ""
        # Clients in their handshake, and after it, with the tasks that serve them.
        self._shaking: dict[Connection, asyncio.Future[None]] = {}
        self._connections: dict[Connection, asyncio.Future[None]] = {}

    @asynccontextmanager
    async def listening(
        self, host: str, port: int, context: ssl.SSLContext | None = None, sock: socket.socket | None = None
    ) -> AsyncIterator[int]:
        """Accept connections until the block ends; yields the port, a free one if 0 was requested. OSError if that is
        not possible. context: for TLS, plain HTTP without it; sock: instead of host and port."""
        sockets = [sock] if sock is not None else await self._bound(host, port)
        for each in sockets:
            each.setblocking(False)
            each.listen(_BACKLOG)
            # Accepted connections inherit it; asyncio would set it only for sockets made with a protocol number.
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, True)
            self.loop.add_reader(each, self._accept, each, context)
        watching = asyncio.ensure_future(supervise("the watch over connections", self._watch_over, self._clock))
        try:
            yield int(sockets[0].getsockname()[1])
        finally:
            self.stopping.set()
            for each in sockets:
                self.loop.remove_reader(each)
                each.close()
            watching.cancel()
            await self._stop()

    async def _bound(self, host: str, port: int) -> list[socket.socket]:
        """A socket for each address of a host, of all interfaces if it is empty, with the same port."""
        found = await self.loop.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        sockets: list[socket.socket] = []
        missing: OSError | None = None
        try:
            for family, _, _, _, address in dict.fromkeys(found):
                number = port or (sockets[0].getsockname()[1] if sockets else 0)
                where = (address[0], number, *address[2:])
                try:
                    sockets.append(socket.create_server(where, family=family))
                except OSError as error:
                    # Names like localhost have addresses that a machine without IPv6 lacks.
                    if error.errno not in (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL):
                        raise
                    missing = error
            if missing is not None and not sockets:
                raise missing
        except OSError:
            for each in sockets:
                each.close()
            raise
        return sockets

    def _accept(self, listening: socket.socket, context: ssl.SSLContext | None) -> None:
        """Accept who waits, and count them before their handshake, which costs more than most requests.

        asyncio's servers count handshakes neither, nor do they end them."""
        for _ in range(_ACCEPTED_PER_TURN):
            try:
                client, address = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                _log.error("connections wait for %.0f s, as none can be accepted: %s", _PAUSE_S, error)
                self.loop.remove_reader(listening)
                self.loop.call_later(_PAUSE_S, self._accept_again, listening, context)
                return
            remote = str(address[0]) if address else ""
            if not self._open.take(remote):
                self._refused += 1
                self._refused_from = remote
                client.close()
                continue
            client.setblocking(False)
            connection = Connection(self, remote)
            serving = answer_or_none(f"the connection from {remote}", partial(self._serve, connection, client, context))
            self._shaking[connection] = asyncio.ensure_future(serving)

    def _accept_again(self, listening: socket.socket, context: ssl.SSLContext | None) -> None:
        if not self.stopping.is_set():
            self.loop.add_reader(listening, self._accept, listening, context)

    async def _serve(self, connection: Connection, client: socket.socket, context: ssl.SSLContext | None) -> None:
        """One client, who counts until nothing of it is handled any more."""
        try:
            if await self._shake_hands(connection, client, context):
                self._connections[connection] = self._shaking.pop(connection)
                await connection.run()
        finally:
            self._shaking.pop(connection, None)
            self._connections.pop(connection, None)
            self._open.give_back(connection.remote)

    async def _shake_hands(self, connection: Connection, client: socket.socket, context: ssl.SSLContext | None) -> bool:
        """Connect a client, with TLS if there is a context; returns whether that worked."""
        patience = None if context is None else _HANDSHAKE_S
        try:
            await self.loop.connect_accepted_socket(
                lambda: connection, client, ssl=context, ssl_handshake_timeout=patience
            )
        except OSError as error:
            _log.debug("no connection with %s: %s", connection.remote, error)
            return False
        return True

    async def _watch_over(self) -> None:
        while True:
            await asyncio.sleep(min(_LOOK_EVERY_S, self.limits.head_s, self.limits.idle_s))
            self.date = formatdate(self._clock.seconds(), usegmt=True)
            now = self.loop.time()
            for connection in [each for each in self._connections if 0.0 < each.until < now]:
                connection.expire()
            if self._refused:
                self._tell_refused()

    def _tell_refused(self) -> None:
        """Log at most one line per second, however many are refused."""
        where, limit = self._refused_from, self._open.limit
        count = len(self._connections) + len(self._shaking)
        _log.warning(
            "%d connections were refused, the last from %s, which has %d of the %d that may be open; %d are",
            *(self._refused, where or "nowhere", self._open.held_by(where), limit, count),
        )
        self._refused = 0

    async def _stop(self) -> None:
        """Wait a while for requests in progress, but not for handshakes."""
        # What was accepted last begins, so that it can end.
        await asyncio.sleep(0)
        handshakes = tuple(self._shaking.values())
        for task in handshakes:
            task.cancel()
        for connection in tuple(self._connections):
            connection.stop()
        if self._connections:
            await asyncio.wait(self._connections.values(), timeout=_STOP_S)
        left = tuple(self._connections.items())
        for connection, task in left:
            task.cancel()
            connection.abort()
        await asyncio.gather(*handshakes, *(task for _, task in left), return_exceptions=True)
