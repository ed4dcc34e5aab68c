"""Client connections: pass requests one by one to a handler and send its answers; or, after an upgrade, carry bytes of
another protocol both ways.

Limits what a client can cost: the size of heads, the time to send one, idle time, and how much is
read ahead. Knows HTTP/1.1; the handler knows what requests mean.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol, cast

import msgspec

from allot.http1.heads import HEAD_BYTES_MAX, BadHead, Head, answer_head, check_trailer, chunk_size, parse_head

CONNECTIONS_MAX = 32_768
# How long a client may pause reading for a user who may look at a page for long: logs, terminals.
PATIENCE_S = 4 * 3600.0
_WRITE_BYTES = 1024 * 1024
_TAKEN_BYTES_PER_S_MIN = 256 * 1024
# Bytes that may wait unread while a request is handled.
_AHEAD_BYTES_MAX = 128 * 1024
_CHUNK_LINE_MAX = 256
_TRAILER_BYTES_MAX = 8 * 1024
_LINGER_S = 1.0
_END_OF_HEAD = b"\r\n\r\n"


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """How long clients may take, and how many connections there may be."""

    # From the first byte of a head to its last.
    head_s: float = 32.0
    # For the whole body.
    body_s: float = 60.0
    # Without a request.
    idle_s: float = 180.0
    # Until a client has taken what was written to it.
    write_s: float = 30.0
    # Open ones. An address gets more as long as it then has no more than are free: at most half, leaving room for others.
    connections: int = CONNECTIONS_MAX


class _TimeLimit:
    """Cancels a connection's task when its time is up: asyncio.timeout at a tenth of the cost, because nothing
    is scheduled; the listener checks all connections every second."""

    __slots__ = ("_connection", "_seconds", "expired")

    def __init__(self, connection: Connection, seconds: float) -> None:
        self._connection = connection
        self._seconds = seconds
        self.expired = False

    def __enter__(self) -> None:
        connection = self._connection
        connection.until = connection.now() + self._seconds
        connection.limit = self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        connection = self._connection
        connection.until, connection.limit = 0.0, None
        if self.expired:
            task = asyncio.current_task()
            assert task is not None, "connections run in tasks"
            if task.uncancel() <= 0 and isinstance(error, asyncio.CancelledError):
                raise TimeoutError from error


class BodyTooLarge(Exception):
    """A body larger than accepted."""


class _Gone(asyncio.Transport):
    """Replaces the transport of a connection that has ended; does nothing.

    uvloop's TLS keeps references to its protocol's methods, so a protocol that keeps its transport is garbage that only the
    collector finds; with TLS buffers that is 300 KB per connection, and the collector seldom runs
    (`process.interpreter`)."""

    def is_closing(self) -> bool:
        return True

    def write(self, data: bytes | bytearray | memoryview) -> None:
        pass

    def _nothing(self) -> None:
        pass

    close = abort = pause_reading = resume_reading = _nothing


GONE = _Gone()

Handler = Callable[["Connection", Head], Awaitable[None]]


class Server(Protocol):
    """The listener of connections."""

    loop: asyncio.AbstractEventLoop
    limits: Limits
    handler: Handler
    # The read buffer, the current time for Date headers, and whether requests are no longer accepted.
    view: memoryview
    date: str
    stopping: asyncio.Event


class Connection(asyncio.BufferedProtocol):
    """One client's connection."""

    def __init__(self, server: Server, remote: str = "") -> None:
        self._server = server
        # The client's address.
        self.remote = remote
        self.transport: asyncio.Transport = GONE
        self._limits = server.limits
        self.now = server.loop.time
        self._view = server.view
        self._data = bytearray()
        # The deadline, and whether it is for the end of a head.
        self.until = self.now() + self._limits.idle_s
        self._in_head = False
        # What to expire at the deadline while a request is handled, and the task that handles it.
        self.limit: _TimeLimit | None = None
        self._task: asyncio.Task[None] | None = None
        self._head: Head | None = None
        self._body_read = True
        self._answered = False
        self._keep = True
        self._discards = False
        self._lost = False
        # The reader waiting for this many bytes, or (0) for the end of a head.
        self._waiter: asyncio.Future[None] | None = None
        self._wanted = 0
        self._writable: asyncio.Future[None] | None = None
        self._paused_reading = False
        self._write_s = self._limits.write_s
        # Set when the server stops; set when it stops or the client has gone, so that streams end.
        self.stopping = server.stopping
        self.ending = asyncio.Event()
        self.certificate: bytes | None = None

    # --- from the transport ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection is accepted, and its handshake complete."""
        self.transport = cast(asyncio.Transport, transport)
        tls = transport.get_extra_info("ssl_object")
        if tls is not None:
            self.certificate = tls.getpeercert(binary_form=True)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - the signature is asyncio's
        """The read buffer, shared by all connections: it is emptied before anything else is read."""
        return self._view

    def buffer_updated(self, nbytes: int) -> None:
        """Bytes have arrived."""
        if self._discards:
            return
        data = self._data
        data += self._view[:nbytes]
        waiter = self._waiter
        if waiter is None:
            if len(data) > _AHEAD_BYTES_MAX and not self._paused_reading:
                self._paused_reading = True
                self.transport.pause_reading()
            return
        if self._wanted:
            if len(data) < self._wanted:
                return
        elif data.find(_END_OF_HEAD, max(0, len(data) - nbytes - 3)) < 0 and len(data) <= HEAD_BYTES_MAX:
            if not self._in_head:
                self._in_head = True
                self.until = self.now() + self._limits.head_s
            return
        self._waiter = None
        if not waiter.done():
            waiter.set_result(None)

    def eof_received(self) -> bool:
        """The client has closed its side; with TLS, no answers are possible after that."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - the signature is asyncio's
        """The client has gone."""
        self._lost = True
        self.ending.set()
        for future in (self._waiter, self._writable):
            if future is not None and not future.done():
                future.set_result(None)
        self._waiter = self._writable = None
        self.transport = GONE

    def pause_writing(self) -> None:
        """The client reads more slowly than we write."""
        if self._writable is None:
            self._writable = self._server.loop.create_future()

    def resume_writing(self) -> None:
        """It has caught up."""
        if self._writable is not None and not self._writable.done():
            self._writable.set_result(None)
        self._writable = None

    # --- reading ---

    async def _more(self, wanted: int) -> None:
        """Wait for this many bytes (0: a whole head)."""
        if self._paused_reading:
            self._paused_reading = False
            self.transport.resume_reading()
        if self._lost:
            raise ConnectionResetError("the client has left")
        self._wanted = wanted
        self._waiter = self._server.loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None
        if self._lost:
            raise ConnectionResetError("the client has left")

    async def _next_head(self) -> Head:
        data = self._data
        # Some clients end a body with an extra empty line.
        while data[:2] == b"\r\n":
            del data[:2]
        end = data.find(_END_OF_HEAD)
        if end < 0 and len(data) <= HEAD_BYTES_MAX:
            self._in_head = bool(data)
            self.until = self.now() + (self._limits.head_s if data else self._limits.idle_s)
            await self._more(0)
            while data[:2] == b"\r\n":
                del data[:2]
            end = data.find(_END_OF_HEAD)
        self._in_head = False
        self.until = 0.0
        if end < 0 or end > HEAD_BYTES_MAX:
            raise BadHead(431, "the head of the request is too long")
        head = parse_head(bytes(data[:end]))
        del data[: end + 4]
        return head

    async def body(self, limit: int) -> bytes:
        """The body of the current request; BodyTooLarge, TimeoutError, or BadHead if it is malformed."""
        head = self._head
        assert head is not None, "a body is read while its request is handled"
        if self._body_read:
            return b""
        if head.length > limit:
            raise BodyTooLarge
        data = self._data
        if head.chunked or len(data) < head.length:
            if head.get("expect").lower() == "100-continue":
                self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            async with asyncio.timeout(self._limits.body_s):
                if head.chunked:
                    body = await self._chunked_body(limit)
                    self._body_read = True
                    return body
                while len(data) < head.length:
                    await self._more(head.length)
        self._body_read = True
        return self._take(head.length)

    async def _chunked_body(self, limit: int) -> bytes:
        data, body = self._data, bytearray()
        while size := chunk_size(await self._line(_CHUNK_LINE_MAX)):
            if len(body) + size > limit:
                raise BodyTooLarge
            while len(data) < size + 2:
                await self._more(size + 2)
            if data[size : size + 2] != b"\r\n":
                raise BadHead(400, "malformed chunk")
            body += data[:size]
            del data[: size + 2]
        trailers = 0
        while line := await self._line(_TRAILER_BYTES_MAX):
            check_trailer(line)
            trailers += len(line)
            if trailers > _TRAILER_BYTES_MAX:
                raise BadHead(431, "the trailers of the request are too long")
        return bytes(body)

    async def _line(self, limit: int) -> bytes:
        data = self._data
        while (end := data.find(b"\r\n")) < 0:
            if len(data) > limit:
                raise BadHead(400, "malformed chunk")
            await self._more(len(data) + 1)
        return self._take(end + 2)[:-2]

    # --- another protocol ---

    async def upgrade(self, protocol: str, headers: Mapping[str, str]) -> None:
        """From here on the connection is for `read`, `read_exactly` and `write`; BadHead if the request has a body."""
        if not self._body_read:
            raise BadHead(400, "a request that changes the protocol has no body")
        self._answered, self._keep = True, False
        self._write_s = PATIENCE_S
        await self.write(answer_head(101, {"Connection": "Upgrade", "Upgrade": protocol, **headers}))

    async def read(self, most: int = _AHEAD_BYTES_MAX) -> bytes:
        """The client's next bytes; ConnectionError if it has gone."""
        if self._data:
            # A busy client must not starve others.
            await asyncio.sleep(0)
        else:
            await self._more(1)
        return self._take(min(most, len(self._data)))

    async def read_exactly(self, count: int) -> bytes:
        """This many bytes; ConnectionError if the client has gone."""
        while len(self._data) < count:
            await self._more(count)
        return self._take(count)

    def _take(self, count: int) -> bytes:
        data = self._data
        taken = bytes(data[:count])
        del data[:count]
        return taken

    # --- writing ---

    @property
    def answered(self) -> bool:
        """Whether the current request has its answer, or the start of one."""
        return self._answered

    @property
    def lost(self) -> bool:
        """Whether the client has gone."""
        return self._lost or self.transport.is_closing()

    def _keeps(self) -> bool:
        """Whether another request can follow the current one."""
        head = self._head
        if head is None or not head.keep_alive or self.stopping.is_set():
            return False
        # Unread body bytes are skipped.
        return self._body_read or (not head.chunked and len(self._data) >= head.length)

    async def answer(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        """A whole answer."""
        if len(body) > _WRITE_BYTES:
            await self.answer_in_pieces(status, headers, [body], len(body))
            return
        # One record, one system call.
        head = self._answer_head(status, headers, len(body))
        await self.write(head if self._is_to_head else head + body)

    async def answer_in_pieces(
        self, status: int, headers: Mapping[str, str], pieces: Sequence[bytes], length: int
    ) -> None:
        """A whole answer, sent without joining its pieces. It waits in memory, so the client must read at a moderate speed."""
        async with asyncio.timeout(self._limits.write_s + length / _TAKEN_BYTES_PER_S_MIN):
            await self.write(self._answer_head(status, headers, length))
            for piece in pieces if not self._is_to_head else ():
                view = memoryview(piece)
                for start in range(0, len(piece), _WRITE_BYTES):
                    await self.write(view[start : start + _WRITE_BYTES])

    @property
    def _is_to_head(self) -> bool:
        """Whether only the head of the answer is wanted (HEAD)."""
        return self._head is not None and self._head.method == "HEAD"

    def _answer_head(self, status: int, headers: Mapping[str, str], length: int) -> bytes:
        self._keep = self._keeps()
        self._answered = True
        return answer_head(status, {**headers, "Date": self._server.date}, length=length, closes=not self._keep)

    async def start_stream(self, status: int, headers: Mapping[str, str], patience_s: float | None = None) -> Stream:
        """An answer whose end is not known yet. patience_s: how long the client may pause reading, if not the default."""
        assert self._head is not None, "an answer is to a request"
        # Chunks came with HTTP/1.1; before that, an answer ends with its connection.
        chunked = self._head.version_minor > 0
        self._keep = self._keeps() and chunked
        self._answered = True
        self._write_s = patience_s or self._write_s
        sent = {**headers, "Date": self._server.date}
        if chunked:
            sent["Transfer-Encoding"] = "chunked"
        await self.write(answer_head(status, sent, closes=not self._keep))
        return Stream(self, chunked=chunked, empty=self._head.method == "HEAD")

    async def write(self, data: bytes | memoryview) -> None:
        """Send bytes, waiting while the client does not read; ConnectionError if it has gone, TimeoutError if it does not
        read at all."""
        if self._lost:
            raise ConnectionResetError("the client has left")
        self.transport.write(data)
        if self._writable is not None:
            async with asyncio.timeout(self._write_s):
                await asyncio.shield(self._writable)

    def abort(self) -> None:
        """End the connection now."""
        self._keep = False
        self.transport.abort()

    # --- one request after another ---

    def time_limit(self, seconds: float) -> _TimeLimit:
        """A block that ends with TimeoutError when it takes longer, to the second."""
        return _TimeLimit(self, seconds)

    async def run(self) -> None:
        """Serve requests until either side closes."""
        self._task = asyncio.current_task()
        try:
            while not self.stopping.is_set():
                self._answered, self._write_s = False, self._limits.write_s
                head = await self._next_head()
                self._head, self._body_read = head, not head.has_body
                await self._server.handler(self, head)
                if not self._keep or not self._answered:
                    break
                if not self._body_read:
                    del self._data[: head.length]
            await self._finish()
        except BadHead as error:
            await self._refuse(error)
        except (ConnectionError, TimeoutError):
            pass
        finally:
            if not self.transport.is_closing():
                self.transport.close()
            self.transport = GONE

    async def _refuse(self, error: BadHead) -> None:
        """Answer an invalid request, and close."""
        self._head, self._body_read = None, False
        try:
            if not self._answered:
                body = f"{error.code} {error}".encode()
                await self.answer(error.code, {"Content-Type": "text/plain; charset=utf-8"}, body)
            await self._finish()
        except (ConnectionError, TimeoutError):
            pass

    async def _finish(self) -> None:
        """Let the client read its answer before the connection is reset."""
        if self._lost or self._body_read or self.transport.is_closing():
            return
        self._discards = True
        self._data.clear()
        if self._paused_reading:
            self.transport.resume_reading()
        try:
            async with asyncio.timeout(_LINGER_S):
                await self.ending.wait()
        except TimeoutError:
            pass

    def expire(self) -> None:
        """Time is up: cancel the running request, or close, with an answer if a request has begun."""
        self.until = 0.0
        if self.limit is not None:
            self.limit.expired = True
            if self._task is not None:
                self._task.cancel()
            return
        if self._in_head:
            text = b"408 the head of the request did not end"
            head = answer_head(408, {"Content-Type": "text/plain"}, length=len(text), closes=True)
            self.transport.write(head + text)
        self.transport.close()

    def stop(self) -> None:
        """The server stops: end streams, and close if nothing is being handled."""
        self.ending.set()
        if self._waiter is not None and self.until:
            self.transport.close()


class Stream:
    """An answer in pieces."""

    __slots__ = ("_chunked", "_connection", "_empty")

    def __init__(self, connection: Connection, *, chunked: bool, empty: bool) -> None:
        self._connection = connection
        self._chunked = chunked
        self._empty = empty

    async def write(self, data: bytes) -> None:
        """The next piece."""
        if not data or self._empty:
            return
        await self._connection.write(b"%x\r\n%b\r\n" % (len(data), data) if self._chunked else data)

    async def end(self) -> None:
        """Nothing follows."""
        if self._chunked and not self._empty:
            await self._connection.write(b"0\r\n\r\n")
