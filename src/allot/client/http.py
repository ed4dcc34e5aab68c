"""API servers over HTTP: a pool of connections, credentials on each request, repetition where it is safe.

Repeated are: reads that got no answer or one that says "not now"; anything that the server refused with a Retry-After, since
it then did nothing; anything that never left because no connection could be made. A write that may have arrived is not.
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import os
import socket
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlencode, urlsplit
from weakref import WeakSet

import aiohttp
import msgspec
from multidict import CIMultiDict
from yarl import URL

from allot.client.backoff import Backoff
from allot.client.connection import Connection
from allot.client.credentials import Credential, CredentialError, Credentials
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
from allot.process.clock import Clock
from allot.process.ids import Ids

CONNECTIONS_MAX = 256
TRIES_MAX = 10
# 100,000 pods are about 300 MB.
ANSWER_BYTES_MAX = 1 << 30
# Objects are at most 3 MiB; one that grew by conversion still fits.
EVENT_BYTES_MAX = 32 << 20
_CONNECT_TIMEOUT_S = 10.0
_READ_BYTES = 1 << 20
_REPEATED_STATUSES = (429, 502, 503, 504)
# A peer that is gone without a word is noticed after idle + count * interval.
_KEEPALIVE_IDLE_S, _KEEPALIVE_INTERVAL_S, _KEEPALIVE_COUNT = 30, 10, 3
# Closing takes two; whatever takes longer waits for a peer that does not answer, and is left to the system.
_ROUNDS_TO_CLOSE_MAX = 1000

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
        self._connections_max = connections_max
        self._tries_max = tries_max
        self._session: aiohttp.ClientSession | None = None
        self._sockets = Sockets()
        self._closed = False
        self._headers = [("User-Agent", user_agent)]
        if connection.impersonation is not None:
            self._headers.extend(connection.impersonation.headers())
        # Compressing costs more than it saves when nothing leaves the machine.
        compresses = not connection.disable_compression and not _is_loopback(connection.server)
        self._encoding = "gzip" if compresses else "identity"

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
        """One request and its answer, repeated where that is safe until the timeout."""
        text = f"{method} {path}"
        url = self._url(path, query)
        data = body if body is None or isinstance(body, bytes) else html_escaped(msgspec.json.encode(body))
        own = CIMultiDict(headers or {})
        own.setdefault("Accept", JSON)
        own["Accept-Encoding"] = self._encoding
        if data is not None:
            own["Content-Type"] = content_type
        last: list[ApiError] = []
        try:
            async with asyncio.timeout(timeout):
                return await self._try(method, url, own, data, text, last)
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
        """An open watch; tried once, its user has its own way of coming back."""
        text = f"GET {path} (watch)"
        own = CIMultiDict(headers or {})
        own.setdefault("Accept", JSON)
        own["Accept-Encoding"] = "identity"
        url = self._url(path, {**(query or {}), "watch": "true"})
        try:
            async with asyncio.timeout(timeout):
                response = await self._open_watch(url, own, text)
        except TimeoutError as error:
            raise DeadlineExceeded(f"no answer from {self._server} within {timeout:g} s", request=text) from error
        try:
            yield _Events(response, text, duration)
        finally:
            # A watch is seldom read to its end, so its connection cannot serve another request.
            response.close()

    async def close(self) -> None:
        """Close all connections."""
        self._closed = True
        if self._session is not None:
            await self._session.close()
            await self._sockets.closed()

    # --- one request ---

    async def _try(
        self, method: str, url: URL, headers: CIMultiDict[str], data: bytes | None, text: str, last: list[ApiError]
    ) -> Response:
        backoff = Backoff(self._clock, self._ids, first_s=0.1, max_s=5.0)
        renewed = False
        for tries_left in range(self._tries_max - 1, -1, -1):
            try:
                credential, raw = await self._send(method, url, headers, data, text)
                response = await self._read(raw, text)
            except Unreachable as error:
                if self._closed or not tries_left or not (method == "GET" or isinstance(error, _NotConnected)):
                    raise
                last.append(error)
                await self._clock.sleep(backoff.next_s())
                continue
            if response.status == 401 and not renewed and self._credentials.refused(credential):
                renewed = True
                continue
            pause = self._pause_s(method, response, backoff)
            if pause is None or not tries_left:
                return response
            last.append(error_from_answer(response.status, response.body, text))
            await self._clock.sleep(pause)
        raise AssertionError("the last try returns or raises")

    async def _open_watch(self, url: URL, headers: CIMultiDict[str], text: str) -> aiohttp.ClientResponse:
        credential, response = await self._send("GET", url, headers, None, text)
        if response.status == 200:
            return response
        answer = await self._read(response, text)
        if response.status == 401:
            self._credentials.refused(credential)
        raise error_from_answer(answer.status, answer.body, text, answer.retry_after_s)

    def _pause_s(self, method: str, response: Response, backoff: Backoff) -> float | None:
        """How long to wait before asking again; None if the answer stands."""
        asked = response.retry_after_s
        if asked is not None and (response.status == 429 or response.status >= 500):
            # Spread, or all who were sent away come back together.
            return asked * (1 + 0.25 * self._ids.jitter())
        return backoff.next_s() if method == "GET" and response.status in _REPEATED_STATUSES else None

    async def _send(
        self, method: str, url: URL, headers: CIMultiDict[str], data: bytes | None, text: str
    ) -> tuple[Credential, aiohttp.ClientResponse]:
        try:
            credential = await self._credentials.current()
            context = self._tls.context(credential)
        except CredentialError as error:
            raise Unauthorized(str(error), request=text) from error
        all_headers = CIMultiDict(self._headers)
        all_headers.extend(headers)
        if credential.token:
            all_headers["Authorization"] = f"Bearer {credential.token}"
        try:
            response = await self._open_session(text).request(
                method,
                url,
                headers=all_headers,
                data=data,
                ssl=context if context is not None else True,
                server_hostname=self._connection.tls_server_name or None if context is not None else None,
                proxy=self._connection.proxy_url or None,
                allow_redirects=False,
            )
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            raise _NotConnected(f"cannot connect to {self._server}: {_reason(error)}", request=text) from error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise Unreachable(f"no answer from {self._server}: {_reason(error)}", request=text) from error
        return credential, response

    async def _read(self, response: aiohttp.ClientResponse, text: str) -> Response:
        chunks: list[bytes] = []
        size = 0
        try:
            async for chunk in response.content.iter_any():
                size += len(chunk)
                if size > ANSWER_BYTES_MAX:
                    raise UnexpectedAnswer(f"the answer has more than {ANSWER_BYTES_MAX >> 20} MiB", request=text)
                chunks.append(chunk)
        except (aiohttp.ClientError, OSError) as error:
            raise Unreachable(f"the answer of {self._server} broke off: {_reason(error)}", request=text) from error
        finally:
            # Gives the connection back to the pool if the answer was read to its end, and closes it if not.
            response.release()
        data = b"".join(chunks)
        body: Any = data
        if response.content_type.endswith("json") and data:
            try:
                body = msgspec.json.decode(data)
            except (msgspec.DecodeError, RecursionError) as error:
                raise UnexpectedAnswer(
                    f"the answer is not JSON: {error}", code=response.status, request=text
                ) from error
        headers = {name.lower(): value for name, value in response.headers.items()}
        return Response(response.status, headers, body, _warnings(response.headers.getall("Warning", [])))

    # --- the pool ---

    def _open_session(self, text: str) -> aiohttp.ClientSession:
        if self._closed:
            raise Unreachable("the transport is closed", request=text)
        if self._session is None:
            connector = aiohttp.TCPConnector(limit=self._connections_max, socket_factory=self._sockets.make)
            timeout = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_TIMEOUT_S)
            self._session = aiohttp.ClientSession(
                connector=connector, timeout=timeout, read_bufsize=_READ_BYTES, cookie_jar=aiohttp.DummyCookieJar()
            )
        return self._session

    def _url(self, path: str, query: Mapping[str, str] | None) -> URL:
        encoded = urlencode(query) if query else ""
        return URL(f"{self._connection.server}{path}{'?' if encoded else ''}{encoded}", encoded=True)

    @property
    def _server(self) -> str:
        source = f" ({self._connection.source})" if self._connection.source else ""
        return f"{self._connection.server}{source}"


class _NotConnected(Unreachable):
    """The request never left."""


class _Events:
    """The events of a watch, line by line."""

    def __init__(self, response: aiohttp.ClientResponse, text: str, duration: float | None) -> None:
        self._response = response
        self._text = text
        self._duration = duration
        self._deadline = None if duration is None else asyncio.get_running_loop().time() + duration
        self._lines: list[bytes] = []
        self._rest: list[bytes] = []
        self._rest_bytes = 0

    def __aiter__(self) -> AsyncIterator[WatchEvent]:
        return self

    async def __anext__(self) -> WatchEvent:
        while not self._lines:
            chunk = await self._chunk()
            if not chunk:
                # An unfinished line at the end is an event cut short: it comes again when the watch is resumed.
                raise StopAsyncIteration
            self._add(chunk)
        line = self._lines.pop()
        try:
            return _event_decoder.decode(line)
        except (msgspec.DecodeError, RecursionError) as error:
            raise UnexpectedAnswer(f"not a watch event: {error}", request=self._text) from error

    async def _chunk(self) -> bytes:
        try:
            async with asyncio.timeout_at(self._deadline):
                return await self._response.content.readany()
        except TimeoutError as error:
            raise DeadlineExceeded(f"the watch did not end within {self._duration:g} s", request=self._text) from error
        except (aiohttp.ClientError, OSError) as error:
            raise Unreachable(f"the watch broke off: {_reason(error)}", request=self._text) from error

    def _add(self, chunk: bytes) -> None:
        """Split into lines, kept in reverse so that taking the first is cheap."""
        if b"\n" not in chunk:
            self._rest.append(chunk)
            self._rest_bytes += len(chunk)
            if self._rest_bytes > EVENT_BYTES_MAX:
                raise UnexpectedAnswer(f"a watch event has more than {EVENT_BYTES_MAX >> 20} MiB", request=self._text)
            return
        *lines, rest = b"".join([*self._rest, chunk]).split(b"\n")
        self._rest, self._rest_bytes = [rest], len(rest)
        self._lines = [line for line in reversed(lines) if line.strip()]


def _warnings(values: list[str]) -> tuple[str, ...]:
    """The texts of Warning headers: `299 - "text"` with backslash escapes."""
    texts = []
    for value in values:
        code, _, rest = value.partition(" ")
        _agent, _, quoted = rest.partition(" ")
        if code == "299" and len(quoted) > 1 and quoted[0] == '"' and quoted[-1] == '"':
            texts.append(quoted[1:-1].replace('\\"', '"').replace("\\\\", "\\"))
    return tuple(texts)


def _reason(error: BaseException) -> str:
    """What went wrong, in words; some of aiohttp's exceptions have none of their own."""
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return f"certificate not accepted: {error.certificate_error}"
    if isinstance(error, ssl.SSLError) and error.reason:
        return f"TLS: {error.reason}"
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return f"the name {error.host} is not known"
    number = error.os_error.errno if isinstance(error, aiohttp.ClientConnectorError) else None
    if number is not None and number in errno.errorcode:
        # Its own text shows objects of the TLS library.
        return os.strerror(number).lower()
    return str(error) or type(error).__name__


def _is_loopback(server: str) -> bool:
    host = urlsplit(server).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class Sockets:
    """The sockets of a session. aiohttp says that it is closed while some are still open: those of answers that were given up."""

    def __init__(self) -> None:
        self._made: WeakSet[socket.socket] = WeakSet()

    def make(self, address: Any) -> socket.socket:
        """A socket that notices a peer which is gone without a word; a watch waits for minutes."""
        family, type_, protocol, _, _ = address
        made = socket.socket(family=family, type=type_, proto=protocol)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in (
            ("TCP_KEEPIDLE", _KEEPALIVE_IDLE_S),
            ("TCP_KEEPINTVL", _KEEPALIVE_INTERVAL_S),
            ("TCP_KEEPCNT", _KEEPALIVE_COUNT),
        ):
            if hasattr(socket, option):
                made.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
        self._made.add(made)
        return made

    async def closed(self) -> None:
        """Until all are closed; the event loop has to go round for that a few times."""
        for _ in range(_ROUNDS_TO_CLOSE_MAX):
            if all(each.fileno() == -1 for each in self._made):
                return
            await asyncio.sleep(0)
