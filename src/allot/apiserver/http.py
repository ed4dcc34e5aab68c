"""The HTTP adapter: sockets, TLS, headers and formats around the server's handlers.

Turns HTTP requests into request values and answers into bytes. Bounds what a client can cost: size and time of bodies,
length of headers and paths, time of requests. Decides nothing about objects.
"""

from __future__ import annotations

import asyncio
import gzip
import logging
import ssl
from collections.abc import Mapping

from aiohttp import WSMsgType, hdrs, web
from aiohttp.http_exceptions import HttpProcessingError

from allot.apiserver.access.audit import AuditLog, AuditRecord
from allot.apiserver.access.authentication import Credentials
from allot.apiserver.access.certificates import Identity
from allot.apiserver.access.impersonation import impersonated
from allot.apiserver.access.opening import Access
from allot.apiserver.errors import (
    StatusError,
    bad_request,
    internal,
    method_not_allowed,
    path_not_found,
    timeout,
    too_large,
)
from allot.apiserver.metrics import Metrics
from allot.apiserver.negotiation import Format, negotiate, wants_pretty
from allot.apiserver.nodeproxy import upstream
from allot.apiserver.paths import Target, split, target
from allot.apiserver.request import ANONYMOUS, ApiList, ApiObject, ApiRequest, Attributes, User
from allot.apiserver.responses import Encoder
from allot.apiserver.server import ApiServer
from allot.apiserver.sites import Site, Sites
from allot.apiserver.subresources import CONNECTING
from allot.apiserver.tunnel import client_context, pass_through
from allot.apiserver.watch import ObjectWatch
from allot.core.access.attributes import selected_name
from allot.process.supervise import answer_or_none

_log = logging.getLogger("allot.http")

BODY_BYTES_MAX = 3 * 1024 * 1024
HEADER_BYTES_MAX = 64 * 1024
BODY_READ_S = 60.0
REQUEST_S = 60.0
KEEP_ALIVE_S = 180.0
_GZIP_BYTES_MIN = 128 * 1024
_GZIP_LEVEL = 1
_WRITE_S = 30.0
# How long a watch on which nothing happens outlives its client.
_LOOK_AFTER_S = 10.0
KUBELET_CLIENT = Identity("kube-apiserver-kubelet-client", ("kubeadm:cluster-admins", "system:masters"))
_IMPERSONATION = "impersonate-"
_NO_CACHE = "no-cache, private"
_WARNING_LENGTH_MAX = 4096


class HttpServer:
    """Serves an ApiServer over HTTPS."""

    def __init__(
        self, server: ApiServer, access: Access, sites: Sites, metrics: Metrics, audit: AuditLog | None = None
    ) -> None:
        self._server = server
        self._access = access
        self._sites = sites
        self._metrics = metrics
        self._audit = audit
        self._runner: web.ServerRunner | None = None
        self._stopping = asyncio.Event()
        self._node_context: ssl.SSLContext | None = None

    async def start(self, host: str, port: int) -> int:
        """Listen; the port, which is a free one if 0 was asked for. OSError if that is not possible."""
        application = web.Server(
            self._handle,
            access_log=None,
            keepalive_timeout=KEEP_ALIVE_S,
            max_line_size=HEADER_BYTES_MAX,
            max_field_size=HEADER_BYTES_MAX,
            lingering_time=1.0,
        )
        runner = web.ServerRunner(application, handle_signals=False, shutdown_timeout=5.0)
        await runner.setup()
        site = web.TCPSite(
            runner, host, port, ssl_context=self._access.certificates.server_context(), backlog=4096, reuse_address=True
        )
        try:
            await site.start()
        except OSError:
            await runner.cleanup()
            raise
        self._runner = runner
        return int(runner.addresses[0][1])

    async def stop(self) -> None:
        """End watches, finish what runs, close all connections."""
        self._stopping.set()
        if self._runner is not None:
            await self._runner.cleanup()

    def node_context(self) -> ssl.SSLContext:
        """TLS towards nodes, with the server's own client certificate."""
        if self._node_context is None:
            certificates = self._access.certificates
            certificates.client("apiserver-kubelet-client", KUBELET_CLIENT)
            path = certificates.directory / "apiserver-kubelet-client"
            self._node_context = client_context(f"{path}.crt", f"{path}.key")
        return self._node_context

    # --- one request ---

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        exchange = _Exchange(self, request)
        answer = await answer_or_none(f"{request.method} {request.rel_url.raw_path}", exchange.run)
        return answer if answer is not None else exchange.failure(internal("the request could not be handled"))


class _Exchange:
    """One HTTP request and what is known about it so far."""

    def __init__(self, http: HttpServer, request: web.BaseRequest) -> None:
        self._http = http
        self._request = request
        self._server = http._server
        self._clock = http._server.parts.clock
        self._began = self._clock.monotonic()
        self._headers = {"Audit-Id": http._server.parts.ids.new_uid(), "Cache-Control": _NO_CACHE}
        self._format = Format()
        self._pretty = False
        self._target: Target | None = None
        # Who asks for what, and who did before impersonation.
        self._asked: Attributes | None = None
        self._sender: User | None = None
        self._received = self._clock.now_micro() if http._audit is not None else ""

    async def run(self) -> web.StreamResponse:
        """The answer, whatever it is."""
        try:
            response = await self._answer()
        except StatusError as error:
            response = self.failure(error)
        except TimeoutError:
            response = self.failure(timeout("request did not complete within the allotted timeout"))
        except (HttpProcessingError, UnicodeError) as error:
            response = self.failure(bad_request(f"malformed request: {type(error).__name__}"))
        self._count(response.status)
        if self._http._audit is not None:
            self._record(self._http._audit, response.status)
        return response

    def _record(self, audit: AuditLog, status: int) -> None:
        request = self._request
        asked = self._asked or Attributes(user=ANONYMOUS, verb=request.method.lower(), path=request.rel_url.raw_path)
        audit.record(
            AuditRecord(
                audit_id=self._headers["Audit-Id"],
                attributes=asked,
                uri=request.rel_url.raw_path_qs,
                code=status,
                received=self._received,
                impersonator=self._sender,
                source_ips=(request.remote,) if request.remote else (),
                user_agent=request.headers.get(hdrs.USER_AGENT, ""),
            )
        )

    async def _answer(self) -> web.StreamResponse:
        request = self._request
        query = dict(request.rel_url.query) if request.rel_url.raw_query_string else {}
        segments = split(request.rel_url.raw_path)
        found = target(request.method, segments, query)
        self._target = found
        user = await self._authenticate()
        path = "/" + "/".join(segments)
        attributes = self._attributes(user, found, path, query)
        # Extras alone count too: they must be refused, not ignored. Their names are not known beforehand.
        if any(name[:12].lower() == _IMPERSONATION for name in request.headers):
            attributes, _ = impersonated(self._http._access.authorizer, attributes, request.headers.items())
            self._sender = user
        self._asked = attributes
        self._http._access.authorizer.check(attributes)
        agent = request.headers.get(hdrs.USER_AGENT, "")
        self._pretty = wants_pretty(query.get("pretty"), agent)
        if found is None:
            return await self._site(segments, query)
        self._format = negotiate(request.headers.get(hdrs.ACCEPT, ""))
        if found.subresource in CONNECTING:
            return await self._connect(found)
        api_request = ApiRequest(
            user=attributes.user,
            verb=found.verb,
            group=found.group,
            version=found.version,
            resource=found.resource,
            namespace=found.namespace,
            name=found.name,
            subresource=found.subresource,
            query=query,
            body=await self._body() if request.can_read_body else b"",
            content_type=request.headers.get(hdrs.CONTENT_TYPE, ""),
            user_agent=agent,
        )
        return await self._object(api_request, query)

    async def _authenticate(self) -> User:
        request = self._request
        transport = request.transport
        tls = transport.get_extra_info("ssl_object") if transport is not None else None
        credentials = Credentials(
            certificate=tls.getpeercert(binary_form=True) if tls is not None else None,
            authorization=request.headers.get(hdrs.AUTHORIZATION, ""),
            websocket_protocols=request.headers.get(hdrs.SEC_WEBSOCKET_PROTOCOL, ""),
        )
        user = await self._http._access.authenticator.authenticate(credentials)
        return ANONYMOUS if user is None else user

    def _attributes(self, user: User, found: Target | None, path: str, query: Mapping[str, str]) -> Attributes:
        if found is None:
            return Attributes(user=user, verb=self._request.method.lower(), path=path)
        selector, name = query.get("fieldSelector", ""), found.name
        if not name and selector and found.verb in ("list", "watch"):
            name = selected_name(selector)
        return Attributes(
            user=user,
            verb=found.verb,
            group=found.group,
            version=found.version,
            resource=found.resource,
            subresource=found.subresource,
            namespace=found.namespace,
            name=name,
            path=path,
            field_selector=selector,
            label_selector=query.get("labelSelector", ""),
        )

    async def _body(self) -> bytes:
        request = self._request
        length = request.content_length
        if length is not None and length > BODY_BYTES_MAX:
            raise too_large(BODY_BYTES_MAX)
        if request.headers.get(hdrs.EXPECT, "").lower() == "100-continue" and request.transport is not None:
            request.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        if request.content.is_eof():
            # Small bodies come with the head.
            body = request.content.read_nowait(-1)
        else:
            body = await self._slow_body()
        if request.headers.get(hdrs.CONTENT_ENCODING, "").lower() == "gzip":
            raise StatusError(415, "UnsupportedMediaType", "compressed request bodies are not accepted")
        return body

    async def _slow_body(self) -> bytes:
        data = bytearray()
        async with asyncio.timeout(BODY_READ_S):
            async for chunk in self._request.content.iter_any():
                data += chunk
                if len(data) > BODY_BYTES_MAX:
                    raise too_large(BODY_BYTES_MAX)
        return bytes(data)

    # --- answers ---

    async def _object(self, request: ApiRequest, query: Mapping[str, str]) -> web.StreamResponse:
        include = query.get("includeObject", "") or "Metadata"
        if include not in ("None", "Metadata", "Object"):
            raise bad_request(f'unrecognized includeObject value: "{include}"')
        parts = self._server.parts
        encoder = Encoder(parts.registry, self._format, parts.clock, include_object=include, pretty=self._pretty)
        async with asyncio.timeout(_time_limit(query)):
            answer = await self._server.answer(request)
        served = parts.registry.find(request.group, request.version, request.resource)
        # Whatever is asked of a deprecated version, also lists, watches and deletes.
        deprecated = served.resource.warning if served is not None and not request.subresource else ""
        told = answer.warnings if isinstance(answer, ApiObject | ApiList) else ()
        self._warn(tuple(filter(None, (deprecated, *told))))
        match answer:
            case ApiObject():
                return self._bytes(
                    encoder.object(answer, None if request.subresource == "scale" else served), answer.status
                )
            case ApiList():
                assert served is not None, "what was listed is served"
                return self._bytes(encoder.list(answer, served), 200)
        if self._request.headers.get(hdrs.UPGRADE, "").lower() == "websocket":
            return await self._watch_by_websocket(answer, encoder)
        return await self._watch(answer, encoder)

    def _bytes(self, body: bytes, status: int, media_type: str = "") -> web.Response:
        headers = self._headers
        headers[hdrs.CONTENT_TYPE] = media_type or self._format.media_type
        if len(body) > _GZIP_BYTES_MIN and "gzip" in self._request.headers.get(hdrs.ACCEPT_ENCODING, ""):
            body = gzip.compress(body, _GZIP_LEVEL)
            headers[hdrs.CONTENT_ENCODING] = "gzip"
            headers[hdrs.VARY] = "Accept-Encoding"
        response = web.Response(body=body, status=status)
        response.headers.update(headers)
        return response

    def failure(self, error: StatusError) -> web.Response:
        """The answer to a request that failed."""
        self._headers |= error.headers
        if error.code in (401, 403):
            self._headers["X-Content-Type-Options"] = "nosniff"
        encoder = Encoder(
            self._server.parts.registry,
            Format(self._format.media_type),
            self._clock,
            include_object="",
            pretty=self._pretty,
        )
        response = self._bytes(encoder.value(error.status()), error.code)
        if self._request.can_read_body and not self._request.content.at_eof():
            # What is left of the body is not read: the connection ends.
            response.force_close()
        return response

    def _warn(self, warnings: tuple[str, ...]) -> None:
        self._warnings = [f'299 - "{_header_text(warning)}"' for warning in dict.fromkeys(warnings)]
        if self._warnings:
            # One header per warning would need a multi-valued header; clients accept them joined.
            self._headers["Warning"] = ", ".join(self._warnings)[:_WARNING_LENGTH_MAX]

    async def _connect(self, found: Target) -> web.StreamResponse:
        """Logs, exec and the like: the node answers."""
        request = self._request
        parts = self._server.parts
        served = parts.registry.find(found.group, found.version, found.resource)
        subresource = served.resource.subresources.get(found.subresource) if served is not None else None
        if served is None or subresource is None:
            raise path_not_found()
        if found.verb not in subresource.verbs:
            raise method_not_allowed()
        to = await upstream(parts, found, list(request.rel_url.query.items()))
        if to is None:
            return self._bytes(b"", 200, "text/plain")
        body = await self._body() if request.can_read_body and not request.headers.get(hdrs.UPGRADE) else b""
        return await pass_through(request, to, self._http.node_context(), body, self._headers)

    async def _site(self, segments: tuple[str, ...], query: Mapping[str, str]) -> web.StreamResponse:
        if self._request.method not in ("GET", "HEAD"):
            raise method_not_allowed()
        accept = self._request.headers.get(hdrs.ACCEPT, "")
        site = await self._http._sites.find(segments, query, accept)
        if site is None:
            raise path_not_found()
        return self._serve_site(site, accept)

    def _serve_site(self, site: Site, accept: str) -> web.Response:
        self._headers |= site.headers
        if site.body is not None:
            etag = site.headers.get("ETag")
            if etag and self._request.headers.get(hdrs.IF_NONE_MATCH) == etag:
                return web.Response(status=304, headers=self._headers)
            return self._bytes(site.body, site.status, site.media_type)
        self._format = Format(negotiate(accept).media_type) if "as=" not in accept else Format()
        encoder = Encoder(
            self._server.parts.registry, self._format, self._clock, include_object="", pretty=self._pretty
        )
        return self._bytes(encoder.value(site.value), site.status, site.media_type)

    # --- watches ---

    async def _watch(self, watch: ObjectWatch, encoder: Encoder) -> web.StreamResponse:
        response = web.StreamResponse(status=200)
        response.headers.update(self._headers)
        response.headers[hdrs.CONTENT_TYPE] = self._format.media_type
        response.enable_chunked_encoding()
        labels = self._labels()
        self._http._metrics.running(labels, 1)
        try:
            async with asyncio.TaskGroup() as tasks:
                stopping = tasks.create_task(self._stop_with_server(watch))
                async with asyncio.timeout(_WRITE_S):
                    await response.prepare(self._request)
                async for event in watch:
                    async with asyncio.timeout(_WRITE_S):
                        await response.write(encoder.event(event, watch.served))
                stopping.cancel()
            async with asyncio.timeout(_WRITE_S):
                await response.write_eof()
        except* (ConnectionError, TimeoutError):
            # The client went away, or does not read: it will come back and resume.
            response.force_close()
        finally:
            await watch.close()
            self._http._metrics.running(labels, -1)
        return response

    async def _stop_with_server(self, watch: ObjectWatch) -> None:
        """End the watch when the server stops, or when its client has left without a word."""
        while not self._left():
            try:
                async with asyncio.timeout(_LOOK_AFTER_S):
                    await self._http._stopping.wait()
                break
            except TimeoutError:
                continue
        await watch.close()

    def _left(self) -> bool:
        transport = self._request.transport
        return transport is None or transport.is_closing()

    async def _watch_by_websocket(self, watch: ObjectWatch, encoder: Encoder) -> web.StreamResponse:
        socket = web.WebSocketResponse(max_msg_size=64 * 1024, heartbeat=30.0)
        try:
            await socket.prepare(self._request)
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(_until_closed(socket, watch))
                async for event in watch:
                    async with asyncio.timeout(_WRITE_S):
                        await socket.send_bytes(encoder.event(event, watch.served).rstrip(b"\n"))
                await socket.close()
        except* (ConnectionError, TimeoutError):
            pass
        finally:
            await watch.close()
        return socket

    # --- counting ---

    def _labels(self) -> tuple[str, str, str, str, str, str]:
        found = self._target
        if found is None:
            return self._request.method, "", "", "", "", ""
        served = self._server.parts.registry.find(found.group, found.version, found.resource)
        if served is None:
            return found.verb.upper(), "", "", "", "", ""
        scope = "resource" if found.name else "namespace" if found.namespace else "cluster"
        return found.verb.upper(), found.group, found.version, found.resource, found.subresource[:64], scope

    def _count(self, status: int) -> None:
        labels = self._labels()
        seconds = None if labels[0] == "WATCH" else self._clock.monotonic() - self._began
        self._http._metrics.observe(labels, status, seconds)


async def _until_closed(socket: web.WebSocketResponse, watch: ObjectWatch) -> None:
    """Whatever the client says is ignored, until it closes."""
    async for message in socket:
        if message.type in (WSMsgType.CLOSE, WSMsgType.ERROR):
            break
    await watch.close()


def _time_limit(query: Mapping[str, str]) -> float:
    """How long a request may take: what the client asks for, within what the server grants."""
    asked = query.get("timeout", "")
    if not asked:
        return REQUEST_S
    seconds = parse_duration(asked)
    if seconds is None:
        raise bad_request(f'invalid timeout specified in the request URL - time: invalid duration "{asked[:50]}"')
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
