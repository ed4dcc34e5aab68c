"""The client side of HTTP/1.1: persistent connections to a server.

Bytes of a request in, its answer out, whole or in pieces. As strict as `heads` about where an answer ends. Requests, credentials and
retries are up to the caller. A tenth of the work of a full library, which matters where thousands of small
requests are sent: a scheduler sends four per pod.
"""

from __future__ import annotations

import asyncio
import base64
import socket
import ssl
from collections import deque
from typing import NamedTuple, cast
from urllib.parse import unquote, urlsplit

from allot.http1.connections import GONE
from allot.http1.heads import HEAD_BYTES_MAX, BadHead, Headers, chunk_size, parse_answer_head

# Servers close idle connections; one that is about to be closed should not be reused.
_IDLE_S = 15.0
_CHUNK_LINE_MAX = 256
# Bytes that may wait unread.
_AHEAD_BYTES_MAX = 4 << 20
_ROUNDS_TO_CLOSE_MAX = 1000
# A peer that vanished silently is detected after idle + count * interval; a watch waits for minutes.
_KEEPALIVE = (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3))

# What comes next on a connection.
_HEAD, _LENGTH, _CHUNK_SIZE, _CHUNK, _CHUNK_END, _TRAILERS, _UNTIL_CLOSED, _NOTHING = range(8)


class Lost(ConnectionError):
    """The connection ended before the answer did."""


class UnknownHost(OSError):
    """A host name that does not resolve."""


class TooLarge(Exception):
    """An answer larger than accepted."""


class Place(NamedTuple):
    """Where a server is, and how to reach it. proxy: a URL, or empty."""

    host: str
    port: int
    # None: no TLS.
    context: ssl.SSLContext | None = None
    # The name that the server's certificate must have.
    name: str = ""
    proxy: str = ""


class Exchange(asyncio.Protocol):
    """A connection: ask, read the answer to its end, ask again."""

    __slots__ = (
        "_data",
        "_error",
        "_is_paused",
        "_keeps_alive",
        "_left",
        "_loop",
        "_next",
        "_opens_tunnel",
        "_pieces",
        "_size",
        "_transport",
        "_waiter",
        "headers",
        "idle_since",
        "is_lost",
        "place",
        "socket",
        "status",
    )

    def __init__(self, place: Place, opened: socket.socket | None = None) -> None:
        self.place = place
        self.socket = opened
        self.status = 0
        self.headers = Headers(())
        self.is_lost = False
        self.idle_since = 0.0
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport = GONE
        self._data = bytearray()
        self._next = _NOTHING
        self._left = 0
        self._pieces: list[bytes] = []
        # Bytes of pieces.
        self._size = 0
        self._waiter: asyncio.Future[None] | None = None
        self._error: Exception | None = None
        self._is_paused = False
        self._keeps_alive = True
        self._opens_tunnel = False

    # --- for users ---

    async def ask(self, request: bytes, *, opens_tunnel: bool = False) -> int:
        """Send a request and read the head of its answer into `headers`; returns its status. opens_tunnel: what follows a success
        is not a body."""
        self._next, self._opens_tunnel = _HEAD, opens_tunnel
        self._transport.write(request)
        while self._next == _HEAD:
            await self._more()
        return self.status

    async def piece(self) -> bytes:
        """The next part of the body, at least one byte; empty at its end."""
        while not self._pieces and self._next != _NOTHING:
            await self._more()
        return self._take()

    async def whole(self, bytes_max: int) -> bytes:
        """The whole body."""
        taken, size = list[bytes](), 0
        while True:
            piece = self._take()
            size += len(piece)
            if size > bytes_max:
                raise TooLarge
            taken.append(piece)
            if self._next == _NOTHING and not self._pieces:
                return b"".join(taken) if len(taken) > 1 else piece
            await self._more()

    @property
    def is_reusable(self) -> bool:
        """Whether another request can follow."""
        is_over = self._next == _NOTHING and not self._pieces
        return is_over and self._keeps_alive and self._error is None and not self.is_lost

    @property
    def is_closed(self) -> bool:
        """Whether its socket is closed, which is a moment after it was lost."""
        return self.is_lost and (self.socket is None or self.socket.fileno() == -1)

    def abort(self) -> None:
        """Close it at once."""
        self._transport.abort()

    def close(self) -> None:
        """Close it in an orderly way."""
        self._transport.close()

    async def secure(self, context: ssl.SSLContext, name: str | None) -> None:
        """Continue with TLS."""
        if self.is_lost:
            raise self._error or Lost("the connection was closed")
        secured = await self._loop.start_tls(self._transport, self, context, server_hostname=name)
        # It may have ended right after the handshake; then the next request fails.
        if secured is not None and not self.is_lost:
            self._transport = secured

    # --- for the event loop ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It is open."""
        # uvloop's are not of that class.
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, error: Exception | None) -> None:
        """It has ended."""
        self.is_lost = True
        self._transport = GONE
        if self._next == _UNTIL_CLOSED and error is None:
            self._next = _NOTHING
        elif self._error is None:
            self._error = error or Lost("the connection was closed")
        self._wake()

    def data_received(self, data: bytes) -> None:
        """Bytes of an answer."""
        self._data += data
        try:
            while self._data and self._advance():
                pass
        except BadHead as error:
            self._error = error
            self._transport.abort()
        if self._size > _AHEAD_BYTES_MAX and not self._is_paused:
            self._is_paused = True
            self._transport.pause_reading()
        self._wake()

    # --- waiting ---

    async def _more(self) -> None:
        """Wait for more data."""
        if self._error is not None:
            raise self._error
        if self.is_lost:
            raise Lost("the connection was closed")
        waiter = self._waiter = self._loop.create_future()
        try:
            await waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _take(self) -> bytes:
        pieces = self._pieces
        if not pieces:
            return b""
        taken = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        pieces.clear()
        self._size = 0
        if self._is_paused:
            self._is_paused = False
            self._transport.resume_reading()
        return taken

    # --- reading ---

    def _advance(self) -> bool:
        """Parse one step; returns whether another may be possible."""
        state = self._next
        if state in (_LENGTH, _CHUNK):
            self._read_piece()
        elif state == _HEAD:
            return self._read_head()
        elif state == _CHUNK_SIZE:
            return self._read_chunk_size()
        elif state == _CHUNK_END:
            return self._read_chunk_end()
        elif state == _TRAILERS:
            return self._read_trailer()
        elif state == _UNTIL_CLOSED:
            self._left = len(self._data)
            self._read_piece()
        else:
            raise BadHead(502, "more than was asked for")
        return True

    def _read_head(self) -> bool:
        data = self._data
        end = data.find(b"\r\n\r\n")
        if end < 0:
            if len(data) > HEAD_BYTES_MAX:
                raise BadHead(502, "the head of the answer is too large")
            return False
        status, headers = parse_answer_head(bytes(data[:end]))
        is_newest = data.startswith(b"HTTP/1.1")
        del data[: end + 4]
        if 100 <= status < 200:
            if status == 101:
                raise BadHead(502, "an unrequested upgrade")
            return True
        self.status, self.headers = status, headers
        self._keeps_alive = is_newest and "close" not in headers.connection
        if status in (204, 304) or (self._opens_tunnel and status < 300):
            self._next = _NOTHING
        elif headers.chunked:
            self._next = _CHUNK_SIZE
        elif headers.get("content-length"):
            self._left = headers.length
            self._next = _LENGTH if headers.length else _NOTHING
        else:
            self._next, self._keeps_alive = _UNTIL_CLOSED, False
        return True

    def _read_piece(self) -> None:
        data, left = self._data, self._left
        if len(data) <= left:
            piece = bytes(data)
            data.clear()
        else:
            piece = bytes(data[:left])
            del data[:left]
        self._pieces.append(piece)
        self._size += len(piece)
        self._left = left - len(piece)
        if not self._left and self._next != _UNTIL_CLOSED:
            self._next = _CHUNK_END if self._next == _CHUNK else _NOTHING

    def _read_chunk_size(self) -> bool:
        line = self._line()
        if line is None:
            return False
        # Some servers pad the line with blanks.
        self._left = chunk_size(line.rstrip(b" \t"))
        self._next = _CHUNK if self._left else _TRAILERS
        return True

    def _read_chunk_end(self) -> bool:
        if len(self._data) < 2:
            return False
        if not self._data.startswith(b"\r\n"):
            raise BadHead(502, "malformed chunk")
        del self._data[:2]
        self._next = _CHUNK_SIZE
        return True

    def _read_trailer(self) -> bool:
        line = self._line()
        if line is None:
            return False
        if not line:
            self._next = _NOTHING
        return True

    def _line(self) -> bytes | None:
        end = self._data.find(b"\r\n", 0, _CHUNK_LINE_MAX + 2)
        if end < 0:
            if len(self._data) > _CHUNK_LINE_MAX:
                raise BadHead(502, "malformed chunk")
            return None
        line = bytes(self._data[:end])
        del self._data[: end + 2]
        return line


class Pool:
    """Connections of one client. A connection is taken, used for one request, and returned."""

    def __init__(self, connections_max: int) -> None:
        self._room = asyncio.Semaphore(connections_max)
        # The most recently used one is reused first, so that no more stay open than needed.
        self._idle: deque[Exchange] = deque()
        # Includes dropped ones until they are closed.
        self._open: set[Exchange] = set()

    async def take(self, place: Place, connect_timeout_s: float) -> Exchange:
        """A connection to a place. OSError or ssl.SSLError if that fails, TimeoutError if it takes too long."""
        await self._room.acquire()
        try:
            now = asyncio.get_running_loop().time()
            while self._idle:
                found = self._idle.pop()
                if found.place == place and not found.is_lost and now - found.idle_since < _IDLE_S:
                    return found
                self._drop(found)
            async with asyncio.timeout(connect_timeout_s):
                made = await connect(place)
            self._open = {each for each in self._open if not each.is_closed} | {made}
            return made
        except BaseException:
            self._room.release()
            raise

    def give(self, exchange: Exchange) -> None:
        """Return a connection. It is closed if its answer was not read to the end."""
        self._room.release()
        now = asyncio.get_running_loop().time()
        while self._idle and now - self._idle[0].idle_since >= _IDLE_S:
            self._drop(self._idle.popleft())
        if exchange.is_reusable:
            exchange.idle_since = now
            self._idle.append(exchange)
        else:
            self._drop(exchange)

    def _drop(self, exchange: Exchange) -> None:
        if not exchange.is_lost:
            exchange.abort()

    async def close(self) -> None:
        """Close all connections and wait until they are closed; slow ones wait for a peer that does not answer."""
        left = tuple(self._open)
        self._idle.clear()
        for exchange in left:
            exchange.abort()
        for _ in range(_ROUNDS_TO_CLOSE_MAX):
            if all(exchange.is_closed for exchange in left):
                return
            await asyncio.sleep(0)


# --- connecting ---


async def connect(place: Place) -> Exchange:
    """A new connection."""
    loop = asyncio.get_running_loop()
    proxy = urlsplit(place.proxy) if place.proxy else None
    if proxy is None:
        opened = await _socket(place.host, place.port)
    else:
        opened = await _socket(proxy.hostname or "", proxy.port or (443 if proxy.scheme == "https" else 80))
    exchange = Exchange(place, opened)
    try:
        await loop.create_connection(lambda: exchange, sock=opened)
    except BaseException:
        opened.close()
        raise
    try:
        # Not at once with the connection: asyncio waits for the peer to close one that is cancelled when its handshake has just succeeded.
        if proxy is not None and proxy.scheme == "https":
            await exchange.secure(ssl.create_default_context(), proxy.hostname)
        if place.context is not None:
            if proxy is not None:
                await _tunnel(exchange, place)
            await exchange.secure(place.context, place.name or place.host)
    except BaseException:
        exchange.abort()
        raise
    return exchange


async def _tunnel(exchange: Exchange, place: Place) -> None:
    """Open a tunnel through a proxy, which sees nothing of what follows."""
    target = f"[{place.host}]:{place.port}" if ":" in place.host else f"{place.host}:{place.port}"
    head = f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n{proxy_authorization(place.proxy)}\r\n"
    status = await exchange.ask(head.encode(), opens_tunnel=True)
    if not 200 <= status < 300:
        raise ConnectionRefusedError(f"the proxy answered {status}")


def proxy_authorization(proxy: str) -> str:
    """The header for a proxy whose URL has a user, with its line end; otherwise empty."""
    found = urlsplit(proxy)
    if not found.username:
        return ""
    user = f"{unquote(found.username)}:{unquote(found.password or '')}"
    return f"Proxy-Authorization: Basic {base64.b64encode(user.encode()).decode()}\r\n"


async def _socket(host: str, port: int) -> socket.socket:
    """A socket connected to the host's first address that answers."""
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except socket.gaierror as error:
        raise UnknownHost(f"the name {host} is unknown") from error
    failure: OSError | None = None
    for family, type_, protocol, _, address in found:
        made = socket.socket(family=family, type=type_, proto=protocol)
        try:
            made.setblocking(False)
            made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for option, value in _KEEPALIVE:
                if hasattr(socket, option):
                    made.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
            await loop.sock_connect(made, address)
            return made
        except OSError as error:
            made.close()
            failure = error
        except BaseException:
            made.close()
            raise
    raise failure or OSError(f"{host} has no address")
