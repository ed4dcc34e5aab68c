"""One webhook call: its address, request and answer.

Services are reached at the addresses of their endpoints, pods through the pod network if there is one: this
process may not be able to use the cluster's network. The certificate must still be the Service's.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import ssl
from collections.abc import Mapping
from typing import Any, Protocol
from urllib.parse import quote, urlsplit

import msgspec

from allot.apiserver.admission.attributes import Lookup, Object
from allot.apiserver.admission.objects import field, sequence, text
from allot.apiserver.proxies.failures import in_go_words
from allot.core.access.addresses import parse_address
from allot.core.json_objects import mapping
from allot.http1.answers import read_body, read_head
from allot.http1.heads import BadHead
from allot.network.client import PodNetwork, dial_address

TIMEOUT_S = 10
HEAD_BYTES_MAX = 64 * 1024
ANSWER_BYTES_MAX = 4 * 1024 * 1024
_DEFAULT_PORT = 443


class CallFailed(Exception):
    """The webhook gave no valid answer."""


class WebhookAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A webhook's answer."""

    allowed: bool
    message: str = ""
    reason: str = ""
    code: int = 0
    patch: list[Any] | None = None
    warnings: tuple[str, ...] = ()
    audit_annotations: Mapping[str, str] = {}


class Place(msgspec.Struct, frozen=True):
    """Where a webhook is called. shown: its name in messages; server_name: the name in its certificate. Both are those of the
    service, if it has one, and not of the endpoint called."""

    host: str
    port: int
    path: str
    shown: str
    server_name: str


class HasPodNetwork(Protocol):
    """Knows the route to pods."""

    pod_network: PodNetwork | None


class WebhookCalls:
    """Makes calls."""

    def __init__(self, lookup: Lookup, route: HasPodNetwork) -> None:
        self._lookup = lookup
        self._route = route

    async def call(self, webhook: Mapping[str, Any], review: Object) -> WebhookAnswer:
        """Call an admission webhook; CallFailed if that fails."""
        asked = webhook.get("timeoutSeconds")
        seconds = asked if isinstance(asked, int) and 1 <= asked <= 30 else TIMEOUT_S
        raw = await self.post(mapping(webhook.get("clientConfig")), review, seconds)
        return _answer(raw, text(field(review, "request", "uid")))

    async def post(self, configuration: Mapping[str, Any], review: Object, seconds: int) -> bytes:
        """A webhook's answer to a review; CallFailed with Go's words if there is none. The request includes the timeout."""
        place = await self._place(configuration, f"timeout={seconds}s")
        context = _context(configuration)
        try:
            async with asyncio.timeout(seconds):
                return await self._exchange(place, context, msgspec.json.encode(review))
        except TimeoutError:
            why = "context deadline exceeded"
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, BadHead) as error:
            why = in_go_words(error, place.host, place.port)
        raise CallFailed(f'failed to call webhook: Post "{place.shown}": {why}')

    async def _place(self, configuration: Mapping[str, Any], query: str) -> Place:
        url = text(configuration.get("url"))
        if url:
            return _place_of(url, query)
        service = mapping(configuration.get("service"))
        namespace, name = text(service.get("namespace")), text(service.get("name"))
        port = service.get("port") if isinstance(service.get("port"), int) else _DEFAULT_PORT
        found = await self._lookup.get("services", "", namespace, name)
        if found is None:
            raise CallFailed(f'failed to call webhook: service "{name}" not found')
        address, number = await _endpoint(self._lookup, namespace, name, port, found)
        path = text(service.get("path"))
        rest = f"{path if path.startswith('/') else '/' + path}?{query}"
        host = f"{name}.{namespace}.svc"
        return Place(address, number, rest, f"https://{host}:{port}{rest}", host)

    async def _exchange(self, place: Place, context: ssl.SSLContext, body: bytes) -> bytes:
        reader, writer = await self._connect(place, context)
        # A separate connection per call: webhook calls are rare, and nothing stays open.
        try:
            lines = (
                f"POST {place.path} HTTP/1.1",
                f"Host: {urlsplit(place.shown).netloc}",
                "Content-Type: application/json",
                "Accept: application/json",
                f"Content-Length: {len(body)}",
                "Connection: close",
            )
            writer.write("\r\n".join((*lines, "", "")).encode() + body)
            await writer.drain()
            status, received = await read_head(reader)
            if status != 200:
                raise CallFailed(f"failed to call webhook: the server responded with the status code {status}")
            raw = bytearray()
            async for piece in read_body(reader, received):
                raw += piece
                if len(raw) > ANSWER_BYTES_MAX:
                    raise CallFailed(f"failed to call webhook: the answer is larger than {ANSWER_BYTES_MAX} bytes")
            return bytes(raw)
        finally:
            writer.close()

    async def _connect(
        self, place: Place, context: ssl.SSLContext
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        address = parse_address(place.host)
        if address is None:
            return await asyncio.open_connection(
                place.host, place.port, ssl=context, server_hostname=place.server_name, limit=HEAD_BYTES_MAX
            )
        made = await dial_address(self._route.pod_network, str(address), place.port)
        return await asyncio.open_connection(
            sock=made, ssl=context, server_hostname=place.server_name, limit=HEAD_BYTES_MAX
        )


def _place_of(url: str, query: str) -> Place:
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port or _DEFAULT_PORT
    except ValueError as error:
        raise CallFailed(f"failed to call webhook: url {url!r}: {error}") from None
    if parts.scheme != "https" or not host:
        raise CallFailed(f"failed to call webhook: url {url!r} is not https")
    # The rest of a path stays as it is; it must not end the line.
    path = quote(parts.path or "/", safe="/%:@!$&'()*+,;=~-._")
    return Place(host, port, f"{path}?{query}", parts._replace(query=query).geturl(), host)


async def _endpoint(lookup: Lookup, namespace: str, name: str, port: Any, service: Object) -> tuple[str, int]:
    """Address and port of a ready endpoint, or of the service itself."""
    port_name = next(
        (
            text(one.get("name"))
            for one in sequence(field(service, "spec", "ports"))
            if mapping(one).get("port") == port
        ),
        "",
    )
    for slice_ in await lookup.list("endpointslices", "discovery.k8s.io", namespace):
        if field(slice_, "metadata", "labels", "kubernetes.io/service-name") != name:
            continue
        ports = [mapping(one) for one in sequence(slice_.get("ports"))]
        target = next((one.get("port") for one in ports if text(one.get("name")) == port_name), None)
        for endpoint in sequence(slice_.get("endpoints")):
            if target and field(endpoint, "conditions", "ready") is not False:
                # Only the first is used, as upstream; what is not an address could be any part of a URL.
                found = next(map(parse_address, sequence(mapping(endpoint).get("addresses"))), None)
                if found is not None:
                    return str(found), int(target)
    address = text(field(service, "spec", "clusterIP"))
    if not address or address == "None":
        raise CallFailed(f'failed to call webhook: no endpoints available for service "{name}"')
    return address, port


def _context(configuration: Mapping[str, Any]) -> ssl.SSLContext:
    bundle = text(configuration.get("caBundle"))
    if not bundle:
        return ssl.create_default_context()
    try:
        return ssl.create_default_context(cadata=base64.b64decode(bundle).decode("ascii"))
    except (ValueError, binascii.Error, ssl.SSLError) as error:
        raise CallFailed(f"failed to call webhook: unable to load root certificates: {error}") from error


def _answer(raw: bytes, uid: str) -> WebhookAnswer:
    try:
        review = msgspec.json.decode(raw)
    except msgspec.DecodeError as error:
        raise CallFailed(f"failed to call webhook: couldn't get version/kind; json parse error: {error}") from None
    if not isinstance(review, dict) or (review.get("apiVersion"), review.get("kind")) != (
        "admission.k8s.io/v1",
        "AdmissionReview",
    ):
        raise CallFailed(
            "received invalid webhook response: expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview"
        )
    response = mapping(review.get("response"))
    if not response:
        raise CallFailed("received invalid webhook response: webhook response was absent")
    if response.get("uid") != uid:
        raise CallFailed(
            f'received invalid webhook response: expected response.uid="{uid}", got "{response.get("uid", "")}"'
        )
    status = mapping(response.get("status"))
    code = status.get("code")
    return WebhookAnswer(
        allowed=response.get("allowed") is True,
        message=text(status.get("message")),
        reason=text(status.get("reason")),
        code=code if isinstance(code, int) else 0,
        patch=_patch(response),
        warnings=tuple(text(one) for one in sequence(response.get("warnings"))),
        audit_annotations={str(key): text(one) for key, one in mapping(response.get("auditAnnotations")).items()},
    )


def _patch(response: Mapping[str, Any]) -> list[Any] | None:
    if not response.get("patch"):
        return None
    if response.get("patchType") != "JSONPatch":
        raise CallFailed("received invalid webhook response: response.patchType must be JSONPatch if there is a patch")
    try:
        patch = msgspec.json.decode(base64.b64decode(text(response["patch"]), validate=True))
    except (ValueError, binascii.Error) as error:
        raise CallFailed(f"received invalid webhook response: {error}") from None
    if not isinstance(patch, list):
        raise CallFailed("received invalid webhook response: the patch is not a list of operations")
    return patch
