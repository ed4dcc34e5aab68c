"""One extension API server: where it is, how it is trusted, and requests to it.

A request goes out with the front proxy's certificate and with headers that name the user; the answer counts only if the
server's certificate is that of its Service. Who may ask is decided before; which addresses may be dialled, by the dialler.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple, Protocol
from urllib.parse import quote, urlencode

import msgspec

from allot.apiserver.access.certificates import Certificates, KeyPair
from allot.apiserver.errors import StatusError
from allot.apiserver.proxies.dialing import Dialler, Secured, Upstream
from allot.apiserver.request import ApiObject, ApiRequest, User, WatchEvent
from allot.apiserver.serving.seats import SeatLimits, Seats
from allot.core.access.front_proxy import remote_headers
from allot.core.json_objects import mapping
from allot.core.lifecycle.api_services import (
    NoEndpoint,
    Priority,
    ServiceReference,
    is_available,
    service_endpoints,
    service_of,
)
from allot.core.network.routes import Endpoint, service_key_of
from allot.http1.answers import read_body, read_head
from allot.http1.heads import BadHead, Headers

Object = dict[str, Any]

ANSWER_S = 60.0
ANSWER_BYTES_MAX = 64 * 1024 * 1024
EVENT_BYTES_MAX = 8 * 1024 * 1024
_METHODS = {
    "create": "POST",
    "update": "PUT",
    "patch": "PATCH",
    "delete": "DELETE",
    "deletecollection": "DELETE",
}
_BROKEN = (asyncio.IncompleteReadError, asyncio.LimitOverrunError, BadHead, ConnectionError, TimeoutError)
_UNAVAILABLE = "service unavailable"
# What clients say about an answer without a Status.
_UNABLE = "the server is currently unable to handle the request"


class Lookup(Protocol):
    """Reads what this server stores."""

    async def get(self, plural: str, group: str, namespace: str, name: str) -> Object | None:
        """One object; None if it does not exist."""

    async def list(self, plural: str, group: str, namespace: str = "") -> Sequence[Object]:
        """All objects of a kind in a namespace."""


class Unavailable(Exception):
    """A request that cannot be passed on; answered as text, not as a Status, as upstream does."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


class Received(NamedTuple):
    """An answer whose head has been read. body: its pieces, once."""

    status: int
    headers: Headers
    body: AsyncIterator[bytes]


class ExtensionServer:
    """The server behind one APIService."""

    def __init__(self, lookup: Lookup, dialler: Dialler, certificates: Certificates) -> None:
        self._lookup = lookup
        self._dialler = dialler
        self._certificates = certificates
        self.name = self.group = self.version = ""
        self.reference = ServiceReference("", "")
        self.priority = Priority(0, 0)
        self.is_available = False
        self.object: Object = {}
        # Requests of clients in flight; a slow server takes no seats away from others.
        self.seats = Seats(SeatLimits())
        # Set when its Service changed, and when its documents should be read again.
        self.changed = asyncio.Event()
        self.outdated = asyncio.Event()
        self._turn = 0
        self._secured: tuple[KeyPair, Secured] | None = None

    def configure(self, api_service: Object) -> None:
        """Take over what the APIService says."""
        spec, before = mapping(api_service.get("spec")), mapping(self.object.get("spec"))
        reference = service_of(api_service)
        assert reference is not None, "a local APIService is no extension"
        self.name = api_service["metadata"]["name"]
        self.group, self.version = str(spec.get("group") or ""), str(spec.get("version") or "")
        self.reference = reference
        self.priority = Priority(spec.get("groupPriorityMinimum") or 0, spec.get("versionPriority") or 0)
        was_available, self.is_available = self.is_available, is_available(api_service)
        self.object = api_service
        if spec != before:
            self._secured = None
            self.changed.set()
        if spec != before or was_available != self.is_available:
            self.outdated.set()

    @property
    def path(self) -> str:
        """The path below which everything of the server is."""
        return f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"

    # --- where and how ---

    async def service(self) -> tuple[Object | None, list[Object]]:
        """Its Service, None if there is none, and the Service's EndpointSlices."""
        reference = self.reference
        service = await self._lookup.get("services", "", reference.namespace, reference.name)
        key = f"{reference.namespace}/{reference.name}"
        slices = await self._lookup.list("endpointslices", "discovery.k8s.io", reference.namespace)
        return service, [each for each in slices if key in service_key_of(each)]

    async def endpoints(self) -> Sequence[Endpoint]:
        """Where it can be asked, another one first each time; NoEndpoint if nowhere."""
        service, slices = await self.service()
        found = service_endpoints(self.reference, service, slices)
        self._turn += 1
        first = self._turn % len(found)
        return (*found[first:], *found[:first])

    def secured(self) -> Secured:
        """How connections are secured; ValueError if the bundle of authorities cannot be used."""
        pair, path = self._certificates.front_proxy()
        if self._secured is None or self._secured[0] != pair:
            context = _trust(mapping(self.object.get("spec")))
            context.load_cert_chain(f"{path}.crt", f"{path}.key")
            self._secured = (pair, Secured(context, self.reference.host))
        return self._secured[1]

    def at(self, endpoint: Endpoint, path: str, user: User, headers: Sequence[tuple[str, str]] = ()) -> Upstream:
        """A request to one endpoint in a user's name; Unavailable if it cannot be."""
        try:
            secured, told = self.secured(), remote_headers(user)
        except (ValueError, OSError) as error:
            raise Unavailable(500, str(error)) from error
        return Upstream(
            host=endpoint.address, port=endpoint.port, path=path, tls=True, secured=secured, headers=(*told, *headers)
        )

    async def upstream(self, path: str, user: User, headers: Sequence[tuple[str, str]] = ()) -> Upstream:
        """Where a client's request goes; Unavailable if the server is not available."""
        if not self.is_available:
            raise Unavailable(503, _UNAVAILABLE)
        try:
            endpoint = (await self.endpoints())[0]
        except NoEndpoint as error:
            raise Unavailable(503, _UNAVAILABLE) from error
        return self.at(endpoint, path, user, headers)

    # --- requests of this process ---

    @asynccontextmanager
    async def asked(
        self, to: Upstream, method: str = "GET", headers: Sequence[tuple[str, str]] = (), body: bytes = b""
    ) -> AsyncIterator[Received]:
        """Send a request and read the head of its answer; StatusError 503 for every failure until the block ends."""
        lines = [f"{method} {to.path} HTTP/1.1", f"Host: {to.place}", "Connection: close"]
        lines += [f"{name}: {value}" for name, value in (*to.headers, *headers)]
        if body or method in ("POST", "PUT", "PATCH"):
            lines.append(f"Content-Length: {len(body)}")
        text = "\r\n".join((*lines, "", ""))
        assert text.count("\n") == len(lines) + 1, "a header is one line"
        reader, writer = await self._dialler.connect(to)
        try:
            writer.write(text.encode("utf-8", "surrogateescape") + body)
            await writer.drain()
            status, received = await read_head(reader)
            yield Received(status, received, read_body(reader, received))
        except _BROKEN as error:
            raise to.unreachable(error) from error
        finally:
            # Not used again: nothing is gained by a goodbye, for which a broken server could keep us waiting.
            writer.transport.abort()

    async def document(
        self, path: str, user: User, accept: str, seconds: float, etag: str = ""
    ) -> tuple[int, Headers, bytes]:
        """A document, whole; Unavailable or StatusError 503 without an answer."""
        headers = [("Accept", accept or "application/json")]
        if etag:
            headers.append(("If-None-Match", etag))
        to = await self.upstream(path, user)
        try:
            async with asyncio.timeout(seconds), self.asked(to, headers=headers) as answer:
                return answer.status, answer.headers, await whole(answer, ANSWER_BYTES_MAX)
        except TimeoutError as error:
            raise to.unreachable(error) from error

    async def answer(self, request: ApiRequest) -> ApiObject | ExtensionWatch:
        """The answer to an authorized request of a component in this process; StatusError for every other outcome."""
        try:
            to = await self.upstream(_path(self.path, request), request.user)
        except Unavailable as error:
            raise StatusError(error.code, "ServiceUnavailable", _UNABLE) from error
        body = request.body if isinstance(request.body, bytes) else b""
        if request.body is not None and not isinstance(request.body, bytes):
            body = msgspec.json.encode(request.body)
        headers = [("Accept", "application/json"), ("User-Agent", request.user_agent or "allot")]
        if body:
            headers.append(("Content-Type", request.content_type or "application/json"))
        method = _METHODS.get(request.verb, "GET")
        if request.verb == "watch":
            return await ExtensionWatch.open(self.asked(to, method, headers, body))
        try:
            async with asyncio.timeout(ANSWER_S), self.asked(to, method, headers, body) as answer:
                return ApiObject(
                    object=_object(answer.status, await whole(answer, ANSWER_BYTES_MAX)), status=answer.status
                )
        except TimeoutError as error:
            raise to.unreachable(error) from error


class ExtensionWatch:
    """A watch of another server's objects."""

    def __init__(self, connection: Any, answer: Received) -> None:
        self._connection = connection
        self._answer = answer
        self._is_closed = False

    @classmethod
    async def open(cls, connection: Any) -> ExtensionWatch:
        """Start watching. connection: the context in which the answer is read."""
        async with asyncio.timeout(ANSWER_S):
            answer: Received = await connection.__aenter__()
        watch = cls(connection, answer)
        if answer.status != 200:
            try:
                _object(answer.status, await whole(answer, EVENT_BYTES_MAX))
            finally:
                await watch.close()
            raise StatusError(503, "ServiceUnavailable", _UNABLE)
        return watch

    async def __aiter__(self) -> AsyncIterator[WatchEvent]:
        async for events in self.batches():
            for event in events:
                yield event

    async def batches(self) -> AsyncGenerator[list[WatchEvent], None]:
        """The events in batches of those that arrived together."""
        held = b""
        try:
            async for piece in self._answer.body:
                *lines, held = (held + piece).split(b"\n")
                if len(held) > EVENT_BYTES_MAX:
                    raise StatusError(503, "ServiceUnavailable", "an event of the watch is too large")
                if events := [_event(line) for line in lines if line.strip()]:
                    yield events
        except _BROKEN:
            # As if its time were up: the reader lists and watches again.
            return

    async def close(self) -> None:
        """Stop watching."""
        if not self._is_closed:
            self._is_closed = True
            await self._connection.__aexit__(None, None, None)


async def whole(answer: Received, bytes_max: int) -> bytes:
    """The body of an answer; 503 if it is larger than accepted."""
    found = bytearray()
    async for piece in answer.body:
        found += piece
        if len(found) > bytes_max:
            raise StatusError(503, "ServiceUnavailable", f"the answer is larger than {bytes_max} bytes")
    return bytes(found)


def _object(status: int, body: bytes) -> Object:
    """The object of an answer; StatusError if it is a failure or no object."""
    try:
        found = msgspec.json.decode(body)
    except msgspec.DecodeError:
        found = None
    if 200 <= status < 300 and isinstance(found, dict):
        return found
    if isinstance(found, dict) and found.get("kind") == "Status":
        reason, message = str(found.get("reason") or ""), str(found.get("message") or "")
        raise StatusError(status, reason, message, details=found.get("details"))
    raise StatusError(status if status >= 400 else 503, "ServiceUnavailable", _UNABLE)


def _event(line: bytes) -> WatchEvent:
    try:
        found = msgspec.json.decode(line)
        return WatchEvent(str(found["type"]), dict(found["object"]))
    except (msgspec.DecodeError, KeyError, TypeError, ValueError) as error:
        raise StatusError(503, "ServiceUnavailable", f"an event of the watch cannot be read: {error}") from error


def _path(base: str, request: ApiRequest) -> str:
    namespace = ("namespaces", request.namespace) if request.namespace else ()
    parts = (*namespace, request.resource, request.name, *request.subresource.split("/"))
    path = "/".join((base, *(quote(part, safe="") for part in parts if part)))
    return f"{path}?{urlencode(request.query)}" if request.query else path


def _trust(spec: Mapping[str, Any]) -> ssl.SSLContext:
    """Which certificates are accepted: those of the bundle, without one those of the machine's authorities, or any."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # Go does not look at it either.
    context.hostname_checks_common_name = False
    bundle = spec.get("caBundle")
    if spec.get("insecureSkipTLSVerify") is True:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif bundle:
        try:
            context.load_verify_locations(cadata=base64.b64decode(str(bundle)).decode("ascii"))
        except (ValueError, binascii.Error, ssl.SSLError) as error:
            raise ValueError(f"unable to load root certificates: {error}") from error
    else:
        context.load_default_certs()
    return context
