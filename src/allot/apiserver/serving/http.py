"""The HTTP adapter: sockets, TLS, headers and formats around the server's handlers.

Turns HTTP requests into request values and answers into bytes. Limits what a client can cost: size and time of bodies,
length of headers and paths, time of requests, concurrent requests per user. Decides nothing about objects.
"""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from urllib.parse import quote, urlencode

import msgspec

from allot.apiserver.access.audit import AuditLog, AuditRecord
from allot.apiserver.access.authentication import Credentials, without_websocket_token
from allot.apiserver.access.impersonation import impersonated
from allot.apiserver.access.setup import Access
from allot.apiserver.aggregation.extension_server import ExtensionServer, ExtensionWatch, Unavailable
from allot.apiserver.aggregation.extensions import ExtensionServers
from allot.apiserver.errors import (
    StatusError,
    bad_request,
    internal,
    method_not_allowed,
    path_not_found,
    timeout,
    too_large,
)
from allot.apiserver.handlers.subresources import CONNECTING
from allot.apiserver.handlers.watch import ObjectWatch
from allot.apiserver.metrics import Metrics
from allot.apiserver.nonresource.endpoints import EndpointAnswer, NonResourceEndpoints
from allot.apiserver.printing.rows import Rows
from allot.apiserver.proxies.connection_admission import admit_connection
from allot.apiserver.proxies.dialing import Dialler, Upstream
from allot.apiserver.proxies.nodeproxy import upstream
from allot.apiserver.proxies.tunnel import pass_through, stream_by_websocket, wanted_protocol
from allot.apiserver.request import (
    ANONYMOUS,
    ApiConnection,
    ApiList,
    ApiObject,
    ApiRequest,
    Attributes,
    PathRequest,
    User,
)
from allot.apiserver.server import ApiServer
from allot.apiserver.serving.negotiation import Format, negotiate, wants_pretty
from allot.apiserver.serving.paths import Target, resolve, split
from allot.apiserver.serving.responses import Encoder
from allot.apiserver.serving.seats import SeatLimits, Seats
from allot.core.access.attributes import MASTERS_GROUP
from allot.http1.connections import BodyTooLarge, Connection, Limits
from allot.http1.heads import BadHead, Head, HttpError, first_values, parse_query
from allot.http1.listener import Listener
from allot.http1.websockets import WebSocket, handshake
from allot.process.clock import Clock
from allot.process.supervise import answer_or_none

BODY_BYTES_MAX = 3 * 1024 * 1024
REQUEST_S = 60.0
_GZIP_BYTES_MIN = 128 * 1024
_GZIP_LEVEL = 1
# How often an idle WebSocket watch is pinged.
_PING_EVERY_S = 30.0
_NO_CACHE = "no-cache, private"
_TEXT = "text/plain; charset=utf-8"
_WARNING_LENGTH_MAX = 4096
# Only counted: the client is gone.
_CLIENT_LEFT = 499
_BODILESS = ("GET", "HEAD")
_COUNTED_VERBS = frozenset(
    (
        "GET",
        "HEAD",
        "POST",
        "PUT",
        "OPTIONS",
        "LIST",
        "WATCH",
        "CREATE",
        "UPDATE",
        "PATCH",
        "DELETE",
        "DELETECOLLECTION",
    )
)
# As in kube-apiserver.
_OTHER_VERB = "other"
_UPGRADING = ("exec", "attach", "portforward")
_READING = ("get", "list", "watch")
_HEALTH = (("healthz",), ("livez",), ("readyz",))


class HttpServer:
    """Serves an ApiServer over HTTPS."""

    def __init__(
        self,
        server: ApiServer,
        access: Access,
        endpoints: NonResourceEndpoints,
        metrics: Metrics,
        dialler: Dialler,
        extensions: ExtensionServers,
        audit: AuditLog | None = None,
        limits: Limits | None = None,
        seats: SeatLimits | None = None,
    ) -> None:
        self._server = server
        self._access = access
        self._endpoints = endpoints
        self._metrics = metrics
        self._audit = audit
        self._limits = limits or Limits()
        self._seats = Seats(seats or SeatLimits())
        self._rows = Rows()
        self._dialler = dialler
        self._extensions = extensions

    @asynccontextmanager
    async def listening(self, host: str, port: int) -> AsyncIterator[int]:
        """Serve until the block ends; yields the port, a free one if 0 was requested. OSError if that is not possible.
        At the end, watches end, running requests may finish, and all connections are closed."""
        listener = Listener(self._handle, self._server.context.clock, self._limits)
        async with listener.listening(host, port, self._access.certificates.server_context()) as actual:
            yield actual

    # --- one request ---

    async def _handle(self, connection: Connection, head: Head) -> None:
        exchange = _Exchange(self, connection, head)
        done = await answer_or_none(f"{head.method} {head.path}", exchange.run)
        if done is None:
            if connection.answered:
                connection.abort()
            else:
                await exchange.fail(internal("the request could not be handled"))


class _Exchange:
    """One HTTP request and what is known about it so far."""

    def __init__(self, http: HttpServer, connection: Connection, head: Head) -> None:
        self._http = http
        self._connection = connection
        self._head = head
        self._server = http._server
        self._clock = http._server.context.clock
        self._began = self._clock.monotonic()
        self._headers = {"Audit-Id": http._server.context.ids.new_uid(), "Cache-Control": _NO_CACHE}
        self._format = Format()
        self._pretty = False
        self._target: Target | None = None
        # The request's attributes, and the user before impersonation.
        self._asked: ApiRequest | PathRequest | None = None
        self._sender: User | None = None
        self._received = self._clock.now_micro() if http._audit is not None else ""

    async def run(self) -> int:
        """Answer the request, whatever the outcome; returns the status."""
        try:
            status = await self._status()
        except (ConnectionError, TimeoutError):
            # The client has left, or does not read its answer.
            self._connection.abort()
            status = _CLIENT_LEFT
        self._count(status)
        if self._http._audit is not None:
            self._record(self._http._audit, status)
        return status

    async def _status(self) -> int:
        try:
            return await self._answer()
        except StatusError as error:
            return await self.fail(error)
        except BodyTooLarge:
            return await self.fail(too_large(BODY_BYTES_MAX))
        except TimeoutError:
            if self._connection.answered:
                raise
            return await self.fail(timeout("request did not complete within the allotted timeout"))
        except (BadHead, UnicodeError) as error:
            return await self.fail(bad_request(f"malformed request: {type(error).__name__}"))
        except HttpError as error:
            return await self.fail(bad_request(str(error)))

    def _record(self, audit: AuditLog, status: int) -> None:
        head, remote = self._head, self._connection.remote
        unknown = Attributes(user=ANONYMOUS, verb=head.method.lower(), path=head.path)
        audit.record(
            AuditRecord(
                audit_id=self._headers["Audit-Id"],
                attributes=unknown if self._asked is None else self._asked.attributes(),
                uri=f"{head.path}?{head.query}" if head.query else head.path,
                code=status,
                received=self._received,
                impersonator=self._sender,
                source_ips=(remote,) if remote else (),
                user_agent=head.get("user-agent"),
            )
        )

    async def _answer(self) -> int:
        head = self._head
        query = first_values(parse_query(head.query)) if head.query else {}
        segments, found = resolve(head.method, head.path, query)
        self._target = found
        certificate = self._connection.certificate
        # Certificates are tried first: most clients have a valid one.
        user = self._http._access.authenticator.by_certificate(certificate) if certificate is not None else None
        if user is None:
            user = await self._authenticate()
        # Extras alone count too: they must be refused, not ignored. Their names are not known beforehand.
        if head.headers.impersonates:
            asked = self._request(user, found, segments, query).attributes()
            attributes, _ = impersonated(self._http._access.authorizer, asked, head.headers.items)
            self._sender, user = user, attributes.user
        self._asked = request = self._request(user, found, segments, query)
        self._pretty = wants_pretty(query.get("pretty"), head.get("user-agent"))
        with self._seat(user, found, segments), self._extension_seat(user, found):
            if isinstance(request, PathRequest):
                _check_time_limit(query)
                return await self._endpoint_answer(await self._http._endpoints.handle(request), request.accept)
            return await self._object(request)

    def _seat(self, user: User, found: Target | None, segments: tuple[str, ...]) -> AbstractContextManager[None]:
        """The request's share of the server; entering it raises 429 if there is no room."""
        if MASTERS_GROUP in user.groups or (found is None and segments[:1] in _HEALTH):
            return nullcontext()
        head = self._head
        size = BODY_BYTES_MAX if head.chunked else min(head.length, BODY_BYTES_MAX)
        if found is None:
            return self._http._seats.seat(user.name, mutating=head.method not in _BODILESS, body_bytes=size)
        if self._lasts(found) or self._extension(found) is not None:
            return self._http._seats.body(user.name, size)
        return self._http._seats.seat(user.name, mutating=found.verb not in _READING, body_bytes=size)

    def _extension_seat(self, user: User, found: Target | None) -> AbstractContextManager[None]:
        """The request's share of an extension API server, if one answers it: it waits for that server, not for this one."""
        extension = self._extension(found)
        if found is None or extension is None or self._lasts(found) or MASTERS_GROUP in user.groups:
            return nullcontext()
        return extension.seats.seat(user.name, mutating=found.verb not in _READING, body_bytes=0)

    def _extension(self, found: Target | None) -> ExtensionServer | None:
        return None if found is None else self._http._extensions.find(found.group, found.version)

    def _lasts(self, found: Target) -> bool:
        """Whether a request takes as long as its client likes."""
        return found.verb == "watch" or found.subresource in CONNECTING or self._is_upgrade_of_extension(found)

    def _is_upgrade_of_extension(self, found: Target) -> bool:
        return bool(self._head.upgrade) and self._extension(found) is not None

    def _request(
        self, user: User, found: Target | None, segments: tuple[str, ...], query: Mapping[str, str]
    ) -> ApiRequest | PathRequest:
        """The request without its body."""
        head = self._head
        if found is None:
            verb, accept = head.method.lower(), head.get("accept")
            parameters = parse_query(head.query)
            return PathRequest(
                user=user, verb=verb, segments=segments, query=query, parameters=parameters, accept=accept
            )
        return ApiRequest(
            user=user,
            verb=found.verb,
            group=found.group,
            version=found.version,
            resource=found.resource,
            namespace=found.namespace,
            name=found.name,
            subresource=found.subresource,
            query=query,
            body=b"",
            content_type=head.get("content-type"),
            user_agent=head.get("user-agent"),
        )

    async def _authenticate(self) -> User:
        head = self._head
        credentials = Credentials(
            certificate=self._connection.certificate,
            authorization=head.get("authorization"),
            websocket_protocols=head.get("sec-websocket-protocol") if head.upgrade == "websocket" else "",
            headers=head.headers.items,
        )
        return await self._http._access.authenticator.authenticate(credentials)

    # --- once a request is allowed ---

    async def receive(self) -> bytes:
        """The body, if the client accepts a format that can be served."""
        assert self._asked is not None, "the request is known before it is handled"
        head, query = self._head, self._asked.query
        self._format = negotiate(head.get("accept"), tables=self._has_tables())
        include = query.get("includeObject", "")
        if include not in ("", "None", "Metadata", "Object"):
            raise bad_request(f'unrecognized includeObject value: "{include}"')
        _check_time_limit(query)
        if not head.has_body:
            return b""
        if head.get("content-encoding").lower() == "gzip":
            raise StatusError(415, "UnsupportedMediaType", "compressed request bodies are not accepted")
        return await self._connection.body(BODY_BYTES_MAX)

    def _has_tables(self) -> bool:
        """Whether the answer can be a table: reviews cannot."""
        found = self._target
        if found is None:
            return True
        served = self._server.context.registry.find(found.group, found.version, found.resource)
        return served is None or served.resource.stored or "list" in served.resource.verbs

    async def connect(self, request: ApiRequest) -> ApiConnection:
        """Logs, exec and the like: the node answers."""
        return ApiConnection(await self._connect(request))

    async def _connect(self, request: ApiRequest) -> int:
        head, found = self._head, self._target
        assert found is not None, "what is connected was found"
        context = self._server.context
        served = context.registry.find(found.group, found.version, found.resource)
        subresource = served.resource.subresources.get(found.subresource) if served is not None else None
        if served is None or subresource is None:
            raise path_not_found()
        # OPTIONS goes to the target of a proxy; it is not a verb of the API.
        asks = found.subresource == "proxy" and found.verb == "options"
        if found.verb not in subresource.verbs and not asks:
            raise method_not_allowed()
        if found.subresource in _UPGRADING:
            # Browsers can open a WebSocket with GET alone, but read permission does not allow running commands.
            self._http._access.authorizer.check(msgspec.structs.replace(request.attributes(), verb="create"))
        found, query = await admit_connection(context, served, request, found, head.path, parse_query(head.query))
        to = await upstream(context, found, head.path, query)
        if to is None:
            await self._connection.answer(204, self._headers, b"")
            return 204
        if found.subresource == "log" and head.upgrade == "websocket":
            return await stream_by_websocket(self._connection, head, to, self._http._dialler, self._headers)
        upgrade = wanted_protocol(head, to)
        if found.subresource in _UPGRADING and not upgrade:
            raise bad_request("Upgrade request required")
        if to.prefix and not found.rest and not upgrade and head.method in _BODILESS and not head.path.endswith("/"):
            return await self._into(to)
        body = await self._connection.body(BODY_BYTES_MAX) if head.has_body else b""
        return await pass_through(self._connection, head, to, self._http._dialler, upgrade, body, self._headers)

    async def forward(self, request: ApiRequest) -> ApiConnection:
        """Pass the request on to the extension API server of its group and version. Failures are told as text: clients take a
        Status for the server's own."""
        try:
            return ApiConnection(await self._forward(request))
        except (Unavailable, StatusError) as error:
            if self._connection.answered:
                raise
            self._http._metrics.terminated(self._labels(), error.code)
            self._headers["X-Content-Type-Options"] = "nosniff"
            return ApiConnection(await self._bytes(f"{error}\n".encode(), error.code, _TEXT))

    async def _forward(self, request: ApiRequest) -> int:
        head, extension = self._head, self._extension(self._target)
        assert extension is not None, "it was found before"
        # From what was authorized, not from what was sent: both servers must mean the same path.
        path = "/" + "/".join(quote(segment, safe=":@!$&'()*+,;=~") for segment in split(head.path))
        if head.path.endswith("/"):
            path += "/"
        if pairs := parse_query(head.query):
            path += f"?{urlencode(pairs, errors='surrogateescape')}"
        to = await extension.upstream(path, request.user, (("Audit-Id", self._headers["Audit-Id"]),))
        to = msgspec.structs.replace(to, lasts=request.verb == "watch")
        upgrade = wanted_protocol(head, to)
        body = await self._connection.body(BODY_BYTES_MAX) if head.has_body else b""
        return await pass_through(self._connection, head, to, self._http._dialler, upgrade, body, self._headers)

    # --- answers ---

    async def _object(self, request: ApiRequest) -> int:
        context, query = self._server.context, request.query
        assert self._target is not None, "objects have a path"
        if request.subresource in CONNECTING or (self._lasts(self._target) and self._extension(self._target)):
            # Lasts as long as the client likes.
            answer = await self._server.handle(request, self)
        else:
            limit = _time_limit(query) if "timeout" in query else REQUEST_S
            with self._connection.time_limit(limit or REQUEST_S):
                answer = await self._server.handle(request, self)
        if isinstance(answer, ApiConnection):
            return answer.status
        assert not isinstance(answer, ExtensionWatch), "watches of extension API servers are passed on"
        include = query.get("includeObject", "") or "Metadata"
        encoder = Encoder(
            self._format, context.clock, rows=self._http._rows, include_object=include, pretty=self._pretty
        )
        served = context.registry.find(request.group, request.version, request.resource)
        # For every request to a deprecated version, including lists, watches and deletes.
        deprecated = served.resource.warning if served is not None and not request.subresource else ""
        told = answer.warnings if isinstance(answer, ApiObject | ApiList) else ()
        if deprecated or told:
            self._warn(tuple(filter(None, (deprecated, *told))))
        if isinstance(answer, ApiObject):
            body = await encoder.object(answer, None if request.subresource == "scale" else served)
            return await self._bytes(body, answer.status)
        if isinstance(answer, ApiList):
            assert served is not None, "what was listed is served"
            return await self._pieces(await encoder.list(answer, served))
        if self._head.upgrade == "websocket":
            return await self._watch_by_websocket(answer, encoder)
        return await self._watch(answer, encoder)

    async def _bytes(self, body: bytes, status: int, media_type: str = "") -> int:
        headers = self._headers
        headers["Content-Type"] = media_type or self._format.media_type
        if len(body) > _GZIP_BYTES_MIN and "gzip" in self._head.get("accept-encoding"):
            # Others are served meanwhile.
            body = await asyncio.to_thread(gzip.compress, body, _GZIP_LEVEL)
            headers["Content-Encoding"] = "gzip"
            headers["Vary"] = "Accept-Encoding"
        await self._connection.answer(status, headers, body)
        return status

    async def _pieces(self, pieces: list[bytes]) -> int:
        """A long answer, unchanged if it need not be compressed."""
        length = sum(map(len, pieces))
        if length <= _GZIP_BYTES_MIN or "gzip" in self._head.get("accept-encoding"):
            return await self._bytes(b"".join(pieces), 200)
        self._headers["Content-Type"] = self._format.media_type
        await self._connection.answer_in_pieces(200, self._headers, pieces, length)
        return 200

    async def fail(self, error: StatusError) -> int:
        """Answer a request that failed."""
        self._headers |= error.headers
        if error.code in (401, 403):
            self._headers["X-Content-Type-Options"] = "nosniff"
        encoder = Encoder(Format(self._format.media_type), self._clock, pretty=self._pretty)
        return await self._bytes(await encoder.value(error.status()), error.code)

    def _warn(self, warnings: tuple[str, ...]) -> None:
        told = [f'299 - "{_header_text(warning)}"' for warning in dict.fromkeys(warnings)]
        # One header per warning would need a multi-valued header; clients accept them joined.
        self._headers["Warning"] = ", ".join(told)[:_WARNING_LENGTH_MAX]

    async def _into(self, to: Upstream) -> int:
        """Relative links of a page need a path that ends with a slash."""
        self._headers["Location"] = to.prefix + to.path
        await self._connection.answer(301, self._headers, b"")
        return 301

    async def _endpoint_answer(self, answer: EndpointAnswer, accept: str) -> int:
        self._headers |= answer.headers
        if answer.body is not None:
            etag = answer.headers.get("ETag")
            if etag and self._head.get("if-none-match") == etag:
                await self._connection.answer(304, self._headers, b"")
                return 304
            return await self._bytes(answer.body, answer.status, answer.media_type)
        self._format = Format(negotiate(accept).media_type) if "as=" not in accept else Format()
        encoder = Encoder(self._format, self._clock, pretty=self._pretty)
        return await self._bytes(await encoder.value(answer.value), answer.status, answer.media_type)

    # --- watches ---

    async def _watch(self, watch: ObjectWatch, encoder: Encoder) -> int:
        self._headers["Content-Type"] = self._format.media_type
        labels = self._labels()
        self._http._metrics.running(labels, 1)
        try:
            async with asyncio.TaskGroup() as tasks:
                ending = tasks.create_task(_close_at(self._connection.ending, watch))
                stream = await self._connection.start_stream(200, self._headers)
                async for events in watch.batches():
                    await stream.write(b"".join([encoder.event(event, watch.served) for event in events]))
                ending.cancel()
            await stream.end()
        except* (ConnectionError, TimeoutError):
            # The client went away, or does not read: it will come back and resume.
            self._connection.abort()
        finally:
            await watch.close()
            self._http._metrics.running(labels, -1)
        return 200

    async def _watch_by_websocket(self, watch: ObjectWatch, encoder: Encoder) -> int:
        # Browsers insist on one of the protocols that they offer.
        offered = without_websocket_token(self._head.get("sec-websocket-protocol")).partition(",")[0]
        try:
            await self._connection.upgrade("websocket", {**self._headers, **handshake(self._head, offered)})
            await self._tell(WebSocket(self._connection), watch, encoder)
        except* (ConnectionError, TimeoutError):
            pass
        finally:
            await watch.close()
        return 101

    async def _tell(self, socket: WebSocket, watch: ObjectWatch, encoder: Encoder) -> None:
        async with asyncio.TaskGroup() as tasks:
            helpers = (
                tasks.create_task(_close_with(socket, watch)),
                tasks.create_task(_close_at(self._connection.ending, watch)),
                tasks.create_task(_ping(socket, self._clock)),
            )
            async for event in watch:
                async with asyncio.timeout(self._http._limits.write_s):
                    await socket.send(encoder.event(event, watch.served).rstrip(b"\n"))
            for helper in helpers[1:]:
                helper.cancel()
            await socket.close()
            helpers[0].cancel()

    # --- counting ---

    def _labels(self) -> tuple[str, str, str, str, str, str]:
        """The labels of metrics; never text of the client's choice, which would be kept forever."""
        found = self._target
        verb = self._head.method if found is None else found.verb.upper()
        if verb not in _COUNTED_VERBS:
            verb = _OTHER_VERB
        if found is None:
            return verb, "", "", "", "", ""
        if self._extension(found) is not None:
            return verb, found.group, found.version, "", "", ""
        served = self._server.context.registry.find(found.group, found.version, found.resource)
        if served is None:
            return verb, "", "", "", "", ""
        scope = "resource" if found.name else "namespace" if found.namespace else "cluster"
        subresource = found.subresource if found.subresource in served.resource.subresources else ""
        return verb, found.group, found.version, found.resource, subresource, scope

    def _count(self, status: int) -> None:
        labels = self._labels()
        seconds = None if labels[0] == "WATCH" else self._clock.monotonic() - self._began
        self._http._metrics.observe(labels, status, seconds)


async def _close_at(ending: asyncio.Event, watch: ObjectWatch) -> None:
    """End a watch when its client leaves or the server stops."""
    await ending.wait()
    await watch.close()


async def _close_with(socket: WebSocket, watch: ObjectWatch) -> None:
    """End a watch when its client closes the socket; the client's messages are ignored."""
    async for _ in socket.messages():
        pass
    await watch.close()


async def _ping(socket: WebSocket, clock: Clock) -> None:
    while True:
        await clock.sleep(_PING_EVERY_S)
        await socket.ping()


def _check_time_limit(query: Mapping[str, str]) -> None:
    if "timeout" in query and _time_limit(query) is None:
        text = f'time: invalid duration "{query["timeout"][:50]}"'
        raise bad_request(f"invalid timeout specified in the request URL - {text}")


def _time_limit(query: Mapping[str, str]) -> float | None:
    """How long a request may take: what the client requests, within the server's limit; None if that is invalid."""
    asked = query.get("timeout", "")
    if not asked:
        return REQUEST_S
    seconds = parse_duration(asked)
    if seconds is None:
        return None
    return min(seconds, REQUEST_S) if seconds > 0 else REQUEST_S


def parse_duration(text: str) -> float | None:
    """A Go duration like 10s, 1m30s or 500ms in seconds."""
    units = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
    if text == "0":
        return 0.0
    total, rest = 0.0, text[:64]
    while rest:
        number = ""
        while rest[:1].isdigit() or rest[:1] == ".":
            number, rest = number + rest[0], rest[1:]
        unit = ""
        while rest[:1] and not rest[0].isdigit() and rest[0] != ".":
            unit, rest = unit + rest[0], rest[1:]
        try:
            total += float(number) * units[unit]
        except (ValueError, KeyError):
            return None
    return total if text else None


def _header_text(text: str) -> str:
    plain = "".join(letter if letter.isprintable() and letter.isascii() else "?" for letter in text)
    return plain.replace("\\", "\\\\").replace('"', '\\"')
