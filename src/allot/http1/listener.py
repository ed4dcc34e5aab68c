"""Accepts connections, with or without TLS, and enforces limits: how many in total and per client, how long they may take, and that
all of them end.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import weakref
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from email.utils import formatdate

from allot.http1.connections import Connection, Handler, Limits
from allot.process.clock import Clock
from allot.process.shares import Shares
from allot.process.supervise import answer_or_none, supervise

_log = logging.getLogger("allot")

_READ_BYTES = 256 * 1024
_STOP_S = 5.0
_LOOK_EVERY_S = 1.0
_HANDSHAKE_S = 30.0
# How long a stopping listener waits for clients still in the handshake, and how often it checks.
_SHAKING_S, _SHAKING_LOOK_S = 1.0, 0.01
_BACKLOG = 4096


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
        # Accepted, but still in the TLS handshake. asyncio does not report which of them fail, so the references are weak.
        self._shaking: weakref.WeakSet[Connection] = weakref.WeakSet()
        self._connections: set[Connection] = set()
        self._open = Shares(limits.connections)
        # How many were refused since the last log line, and where the last one came from.
        self._refused, self._refused_from = 0, ""
        self._running: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def listening(
        self, host: str, port: int, context: ssl.SSLContext | None = None, sock: socket.socket | None = None
    ) -> AsyncIterator[int]:
        """Accept connections until the block ends; yields the port, a free one if 0 was requested. OSError if that is
        not possible. context: for TLS, plain HTTP without it; sock: instead of host and port."""
        patience = None if context is None else _HANDSHAKE_S
        if sock is not None:
            server = await self.loop.create_server(
                self._accepted, sock=sock, ssl=context, backlog=_BACKLOG, ssl_handshake_timeout=patience
            )
        else:
            server = await self.loop.create_server(
                self._accepted,
                host,
                port,
                ssl=context,
                backlog=_BACKLOG,
                reuse_address=True,
                ssl_handshake_timeout=patience,
            )
        watching = asyncio.ensure_future(supervise("the watch over connections", self._watch_over, self._clock))
        try:
            yield int(server.sockets[0].getsockname()[1])
        finally:
            server.close()
            watching.cancel()
            await self._stop()

    def _accepted(self) -> Connection:
        connection = Connection(self)
        self._shaking.add(connection)
        return connection

    def opened(self, connection: Connection) -> None:
        """A connection was accepted."""
        self._shaking.discard(connection)
        if self.stopping.is_set():
            connection.abort()
            return
        if not self._open.take(connection.remote):
            self._refused += 1
            self._refused_from = connection.remote
            connection.abort()
            return
        self._connections.add(connection)
        # A bug that hits one connection must not end the others.
        task = asyncio.ensure_future(answer_or_none(f"the connection from {connection.remote}", connection.run))
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    def closed(self, connection: Connection) -> None:
        """A connection has ended. May be called twice."""
        if connection in self._connections:
            self._connections.remove(connection)
            self._open.give_back(connection.remote)

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
        _log.warning(
            "%d connections were refused, the last from %s, which has %d of the %d that may be open; %d are",
            *(self._refused, where or "nowhere", self._open.held_by(where), limit, len(self._connections)),
        )
        self._refused = 0

    async def _stop(self) -> None:
        """Wait a while for requests in progress."""
        self.stopping.set()
        for connection in tuple(self._connections):
            connection.stop()
        if self._running:
            await asyncio.wait(self._running, timeout=_STOP_S)
        left = tuple(self._running)
        for task in left:
            task.cancel()
        for connection in tuple(self._connections):
            connection.abort()
        await asyncio.gather(*left, return_exceptions=True)
        # They are refused once connected, or give up; nothing would close their sockets later.
        until = self.loop.time() + _SHAKING_S
        while self._shaking and self.loop.time() < until:
            await asyncio.sleep(_SHAKING_LOOK_S)
