"""The HTTP transport: a connection pool, credentials on each request, safe retries.

Retries reads without an answer or with a temporary failure; requests that the server refused with a Retry-After, since it then
did nothing; and requests that were never sent because no connection could be opened. A write that may have arrived is not
retried.
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import os
import re
import ssl
import zlib
from base64 import b64encode
from collections import deque
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import unquote, urlencode, urlsplit

import msgspec

from allot.client.backoff import Backoff
from allot.client.connection import Connection
from allot.client.credentials import Credential, CredentialError, Credentials
from allot.client.deadlines import Deadlines
from allot.client.errors import (
    ApiError,
    DeadlineExceeded,
    Unauthorized,
    UnexpectedAnswer,
    Unreachable,
    error_from_answer,
)
from allot.client.tls import TlsContexts
from allot.client.transport import JSON, REQUEST_TIMEOUT_S, ReadEvent, Response, WatchEvent
from allot.core.quoting import html_escaped
from allot.http1.exchanges import Exchange, Place, Pool, TooLarge, proxy_authorization
from allot.http1.heads import BadHead, Headers
from allot.process.clock import Clock
from allot.process.ids import Ids

CONNECTIONS_MAX = 256
TRIES_MAX = 10
# 100,000 pods are about 300 MB.
ANSWER_BYTES_MAX = 1 << 30
# Objects are at most 3 MiB; one that grew by conversion still fits.
EVENT_BYTES_MAX = 32 << 20
_CONNECT_TIMEOUT_S = 10.0
_REPEATED_STATUSES = (429, 502, 503, 504)

_WITHOUT_BODY = ("GET", "HEAD", "DELETE")
_is_target = re.compile(r"[!-~]*").fullmatch
_event_decoder = msgspec.json.Decoder(ReadEvent)


class HttpTransport:
    """Carries requests over HTTP/1.1. Use it from one event loop and close it."""

    def __init__(
        self,
        connection: Connection,
        clock: Clock,
        ids: Ids,
        *,
        environ: Mapping[str, str] | None = None,
        user_agent: str = "allot",
        connections_max: int = CONNECTIONS_MAX,
        tries_max: int = TRIES_MAX,
    ) -> None:
        self._connection = connection
        self._clock = clock
        self._ids = ids
        self._credentials = Credentials(connection, clock, environ or {})
        self._tls = TlsContexts(connection)
        self._tries_max = tries_max
        self._pool = Pool(connections_max)
        self._deadlines = Deadlines()
        self._closed = False
        self._target = _Target(connection)
        self._place: Place | None = None
        own = [("User-Agent", user_agent)]
        if connection.impersonation is not None:
            own.extend(connection.impersonation.headers())
        self._headers = _lines(own)
        # Compression costs more than it saves when nothing leaves the machine.
        self._compresses = not connection.disable_compression and not _is_loopback(self._target.host)

    async def request(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        content_type: str = JSON,
        headers: Mapping[str, str] | None = None,
        timeout: float = REQUEST_TIMEOUT_S,
    ) -> Response:
        """One request and its answer, retried where safe until the timeout."""
        text = f"{method} {path}"
        data = body if body is None or isinstance(body, bytes) else html_escaped(msgspec.json.encode(body))
        own = {"Accept": JSON, "Accept-Encoding": "gzip" if self._compresses else "identity"}
        if data is not None:
            own["Content-Type"], own["Content-Length"] = content_type, str(len(data))
        elif method not in _WITHOUT_BODY:
            own["Content-Length"] = "0"
        if headers:
            own |= headers
        last: list[ApiError] = []
        try:
            with self._deadlines.within(timeout):
                return await self._try(method, self._target.line(path, query), own, data or b"", text, last)
        except TimeoutError as error:
            why = f"; the last try: {last[-1].message}" if last else ""
            raise DeadlineExceeded(f"no answer from {self._server} within {timeout:g} s{why}", request=text) from error

    @asynccontextmanager
    async def stream(
        self,
        path: str,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float = REQUEST_TIMEOUT_S,
        duration: float | None = None,
    ) -> AsyncIterator[AsyncIterator[WatchEvent]]:
        """An open watch; tried once, because its user resumes in its own way."""
        text = f"GET {path} (watch)"
        own = {"Accept": JSON, "Accept-Encoding": "identity", **(headers or {})}
        line = self._target.line(path, {**(query or {}), "watch": "true"})
        try:
            with self._deadlines.within(timeout):
                exchange = await self._open_watch(line, own, text)
        except TimeoutError as error:
            raise DeadlineExceeded(f"no answer from {self._server} within {timeout:g} s", request=text) from error
        try:
            yield _Events(exchange, text, duration)
        finally:
            # A watch is seldom read to its end: then its connection cannot be reused, and is closed.
            self._pool.give(exchange)

    async def close(self) -> None:
        """Close all connections."""
        self._closed = True
        await self._pool.close()

    # --- one request ---

    async def _try(
        self, method: str, line: str, headers: Mapping[str, str], data: bytes, text: str, last: list[ApiError]
    ) -> Response:
        backoff: Backoff | None = None
        renewed = False
        for tries_left in range(self._tries_max - 1, -1, -1):
            try:
                credential, exchange = await self._send(f"{method} {line}", headers, data, text)
                response = await self._read(exchange, text)
            except Unreachable as error:
                if self._closed or not tries_left or not (method == "GET" or isinstance(error, _NotConnected)):
                    raise
                last.append(error)
                backoff = backoff or self._backoff()
                await self._clock.sleep(backoff.next_s())
                continue
            if 200 <= response.status < 300:
                return response
            if response.status == 401 and not renewed and self._credentials.refused(credential):
                renewed = True
                continue
            backoff = backoff or self._backoff()
            pause = self._pause_s(method, response, backoff)
            if pause is None or not tries_left:
                return response
            last.append(error_from_answer(response.status, response.body, text))
            await self._clock.sleep(pause)
        raise AssertionError("the last try returns or raises")

    def _backoff(self) -> Backoff:
        return Backoff(self._clock, self._ids, first_s=0.1, max_s=5.0)

    async def _open_watch(self, line: str, headers: Mapping[str, str], text: str) -> Exchange:
        credential, exchange = await self._send(f"GET {line}", headers, b"", text)
        if exchange.status == 200:
            return exchange
        answer = await self._read(exchange, text)
        if answer.status == 401:
            self._credentials.refused(credential)
        raise error_from_answer(answer.status, answer.body, text, answer.retry_after_s)

    def _pause_s(self, method: str, response: Response, backoff: Backoff) -> float | None:
        """How long to wait before a retry; None if the answer is final."""
        asked = response.retry_after_s
        if asked is not None and (response.status == 429 or response.status >= 500):
            # With jitter, or all refused clients would return together.
            return asked * (1 + 0.25 * self._ids.jitter())
        return backoff.next_s() if method == "GET" and response.status in _REPEATED_STATUSES else None

    async def _send(self, line: str, headers: Mapping[str, str], data: bytes, text: str) -> tuple[Credential, Exchange]:
        """Send the request and read the head of the answer. The caller must return the exchange."""
        try:
            credential = await self._credentials.current()
            context = self._tls.context(credential)
        except CredentialError as error:
            raise Unauthorized(str(error), request=text) from error
        authorization = f"Bearer {credential.token}" if credential.token else self._target.authorization
        try:
            shown = _lines([("Authorization", authorization)]) if authorization else ""
        except ValueError:
            raise Unauthorized("the token has a control character", request=text) from None
        request = f"{line} HTTP/1.1\r\n{self._target.headers}{self._headers}{shown}{_lines(headers.items())}\r\n"
        exchange = await self._connected(context, text)
        try:
            await exchange.ask(request.encode() + data)
        except (OSError, BadHead) as error:
            self._pool.give(exchange)
            raise Unreachable(f"no answer from {self._server}: {_reason(error)}", request=text) from error
        except BaseException:
            self._pool.give(exchange)
            raise
        return credential, exchange

    async def _connected(self, context: ssl.SSLContext | None, text: str) -> Exchange:
        if self._closed:
            raise Unreachable("the transport is closed", request=text)
        place = self._place
        if place is None or place.context is not context:
            target, connection = self._target, self._connection
            place = Place(target.host, target.port, context, connection.tls_server_name, connection.proxy_url)
            self._place = place
        try:
            return await self._pool.take(place, _CONNECT_TIMEOUT_S)
        except (OSError, BadHead, ValueError) as error:
            raise _NotConnected(f"cannot connect to {self._server}: {_reason(error)}", request=text) from error

    async def _read(self, exchange: Exchange, text: str) -> Response:
        try:
            data = await exchange.whole(ANSWER_BYTES_MAX)
            if exchange.headers.get("content-encoding") == "gzip":
                data = _decompressed(data)
        except TooLarge:
            raise UnexpectedAnswer(f"the answer has more than {ANSWER_BYTES_MAX >> 20} MiB", request=text) from None
        except (OSError, BadHead, zlib.error) as error:
            raise Unreachable(f"the answer of {self._server} broke off: {_reason(error)}", request=text) from error
        finally:
            # Reused for the next request if the answer was read completely, otherwise closed.
            self._pool.give(exchange)
        status, headers, body = exchange.status, exchange.headers, data
        if data and _is_json(headers.get("content-type")):
            try:
                body = msgspec.json.decode(data)
            except (msgspec.DecodeError, RecursionError) as error:
                raise UnexpectedAnswer(f"the answer is not JSON: {error}", code=status, request=text) from error
        return Response(status, dict(headers.items), body, _warnings(headers))

    @property
    def _server(self) -> str:
        source = f" ({self._connection.source})" if self._connection.source else ""
        return f"{self._connection.server}{source}"


class _Target:
    """A server's URL, split for request lines."""

    def __init__(self, connection: Connection) -> None:
        url = urlsplit(connection.server)
        is_secure = url.scheme == "https"
        self.host = url.hostname or ""
        self.port = url.port or (443 if is_secure else 80)
        shown = f"[{self.host}]" if ":" in self.host else self.host
        shown = f"{shown}:{url.port}" if url.port else shown
        self.headers = f"Host: {shown}\r\n"
        self._prefix = url.path.rstrip("/")
        if connection.proxy_url and not is_secure:
            # A plain HTTP proxy needs the full URL.
            self._prefix = f"http://{shown}{self._prefix}"
            self.headers += proxy_authorization(connection.proxy_url)
        user = f"{unquote(url.username)}:{unquote(url.password or '')}" if url.username else ""
        self.authorization = f"Basic {b64encode(user.encode()).decode()}" if user else ""

    def line(self, path: str, query: Mapping[str, str] | None) -> str:
        """The request target. path: percent-encoded."""
        if not _is_target(path):
            raise ValueError(f"path {path!r}: expected it percent-encoded")
        return f"{self._prefix}{path}?{urlencode(query)}" if query else self._prefix + path


class _NotConnected(Unreachable):
    """The request was never sent."""


class _Events:
    """The events of a watch, line by line."""

    def __init__(self, exchange: Exchange, text: str, duration: float | None) -> None:
        self._exchange = exchange
        self._text = text
        self._duration = duration
        self._deadline = None if duration is None else asyncio.get_running_loop().time() + duration
        self._lines: deque[bytes] = deque()
        self._rest: list[bytes] = []
        self._rest_bytes = 0

    def __aiter__(self) -> AsyncIterator[WatchEvent]:
        return self

    async def __anext__(self) -> WatchEvent:
        while not self._lines:
            if not await self._read():
                raise StopAsyncIteration
        return self._event(self._lines.popleft())

    async def batches(self) -> AsyncIterator[Sequence[WatchEvent]]:
        """The events in batches as they arrive."""
        while True:
            if self._lines:
                batch = [self._event(line) for line in self._lines]
                self._lines.clear()
                yield batch
            if not await self._read():
                return

    def _event(self, line: bytes) -> WatchEvent:
        try:
            return _event_decoder.decode(line)
        except (msgspec.DecodeError, RecursionError) as error:
            raise UnexpectedAnswer(f"not a watch event: {error}", request=self._text) from error

    async def _read(self) -> bool:
        """Whether data has arrived. An incomplete last line is a truncated event: it is sent again when the watch resumes."""
        chunk = await self._chunk()
        if chunk:
            self._add(chunk)
        return bool(chunk)

    async def _chunk(self) -> bytes:
        try:
            async with asyncio.timeout_at(self._deadline):
                return await self._exchange.piece()
        except TimeoutError as error:
            raise DeadlineExceeded(f"the watch did not end within {self._duration:g} s", request=self._text) from error
        except (OSError, BadHead) as error:
            raise Unreachable(f"the watch broke off: {_reason(error)}", request=self._text) from error

    def _add(self, chunk: bytes) -> None:
        """Split into lines."""
        if b"\n" not in chunk:
            self._rest.append(chunk)
            self._rest_bytes += len(chunk)
            if self._rest_bytes > EVENT_BYTES_MAX:
                raise UnexpectedAnswer(f"a watch event has more than {EVENT_BYTES_MAX >> 20} MiB", request=self._text)
            return
        *lines, rest = b"".join([*self._rest, chunk]).split(b"\n")
        self._rest, self._rest_bytes = [rest], len(rest)
        self._lines.extend(line for line in lines if line.strip())


def _lines(headers: Iterable[tuple[str, str]]) -> str:
    """Encoded headers. ValueError if one contains a line break."""
    lines = [f"{name}: {value}\r\n" for name, value in headers]
    text = "".join(lines)
    if not text.count("\r") == text.count("\n") == len(lines) or "\0" in text:
        raise ValueError("a header of a request has a control character")
    return text


def _is_json(content_type: str) -> bool:
    return content_type.partition(";")[0].rstrip().endswith("json")


def _decompressed(data: bytes) -> bytes:
    """Decompress gzip; TooLarge beyond the limit."""
    unpacking = zlib.decompressobj(16 + zlib.MAX_WBITS)
    found = unpacking.decompress(data, ANSWER_BYTES_MAX)
    if unpacking.unconsumed_tail:
        raise TooLarge
    if not unpacking.eof:
        raise zlib.error("the end is missing")
    return found


def _warnings(headers: Headers) -> tuple[str, ...]:
    """The texts of Warning headers: `299 - "text"` with backslash escapes."""
    if not headers.get("warning"):
        return ()
    texts = []
    for name, value in headers.items:
        code, _, rest = value.partition(" ")
        _agent, _, quoted = rest.partition(" ")
        if name == "warning" and code == "299" and len(quoted) > 1 and quoted[0] == '"' and quoted[-1] == '"':
            texts.append(quoted[1:-1].replace('\\"', '"').replace("\\\\", "\\"))
    return tuple(texts)


def _reason(error: BaseException) -> str:
    """The failure as a message."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"certificate not accepted: {error}"
    if isinstance(error, ssl.SSLError) and error.reason:
        return f"TLS: {error.reason}"
    if type(error) is TimeoutError:
        return f"not within {_CONNECT_TIMEOUT_S:g} s"
    if isinstance(error, OSError) and error.errno is not None and error.errno in errno.errorcode:
        return os.strerror(error.errno).lower()
    return str(error) or type(error).__name__


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
