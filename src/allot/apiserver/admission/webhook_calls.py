"""One call of an admission webhook: where it is, how it is asked, and what its answer means.

Services are reached at the addresses of their endpoints, since this process need not be able to use the cluster's network;
the certificate has to be the service's all the same.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import os
import ssl
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgspec

from allot.apiserver.admission.attributes import Lookup, Object
from allot.apiserver.admission.objects import field, mapping, sequence, text
from allot.core.access.addresses import parse_address

if TYPE_CHECKING:
    import aiohttp

TIMEOUT_S = 10
ANSWER_BYTES_MAX = 4 * 1024 * 1024
_DEFAULT_PORT = 443


class CallFailed(Exception):
    """The webhook gave no answer that can be understood."""


class WebhookAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What a webhook says."""

    allowed: bool
    message: str = ""
    reason: str = ""
    code: int = 0
    patch: list[Any] | None = None
    warnings: tuple[str, ...] = ()
    audit_annotations: Mapping[str, str] = {}


class Place(msgspec.Struct, frozen=True):
    """Where a webhook is asked. shown: what it is called in messages, which is not where the endpoint of a service is."""

    url: str
    shown: str
    # The name in the certificate, if it is another than the address'.
    server_name: str | None = None


async def call(lookup: Lookup, webhook: Mapping[str, Any], review: Object) -> WebhookAnswer:
    """Ask a webhook; CallFailed if that fails."""
    asked = webhook.get("timeoutSeconds")
    seconds = asked if isinstance(asked, int) and 1 <= asked <= 30 else TIMEOUT_S
    raw = await post(lookup, mapping(webhook.get("clientConfig")), review, seconds)
    return _answer(raw, text(field(review, "request", "uid")))


async def post(lookup: Lookup, configuration: Mapping[str, Any], review: Object, seconds: int) -> bytes:
    """What a webhook answers to a review; CallFailed with Go's words if it does not. It is told how long it may take."""
    place = await _place(lookup, configuration, f"timeout={seconds}s")
    try:
        async with asyncio.timeout(seconds):
            return await _post(place, _context(configuration), review)
    except TimeoutError:
        raise CallFailed(f'failed to call webhook: Post "{place.shown}": context deadline exceeded') from None
    except OSError as error:
        raise CallFailed(f'failed to call webhook: Post "{place.shown}": {error}') from error


async def _place(lookup: Lookup, configuration: Mapping[str, Any], query: str) -> Place:
    url = text(configuration.get("url"))
    if url:
        parts = urlsplit(url)
        if parts.scheme != "https":
            raise CallFailed(f"failed to call webhook: url {url!r} is not https")
        timed = parts._replace(query=query).geturl()
        return Place(timed, timed)
    service = mapping(configuration.get("service"))
    namespace, name = text(service.get("namespace")), text(service.get("name"))
    port = service.get("port") if isinstance(service.get("port"), int) else _DEFAULT_PORT
    found = await lookup.get("services", "", namespace, name)
    if found is None:
        raise CallFailed(f'failed to call webhook: service "{name}" not found')
    address = await _endpoint(lookup, namespace, name, port, found)
    path = text(service.get("path"))
    rest = f"{path if path.startswith('/') else '/' + path}?{query}"
    host = f"{name}.{namespace}.svc"
    return Place(f"https://{address}{rest}", f"https://{host}:{port}{rest}", host)


async def _endpoint(lookup: Lookup, namespace: str, name: str, port: Any, service: Object) -> str:
    """host:port of a ready endpoint, else of the service itself."""
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
                # Only the first is used, as upstream; what is no address could be anything of a URL.
                found = next(map(parse_address, sequence(mapping(endpoint).get("addresses"))), None)
                if found is not None:
                    return f"[{found}]:{target}" if found.version == 6 else f"{found}:{target}"
    address = text(field(service, "spec", "clusterIP"))
    if not address or address == "None":
        raise CallFailed(f'failed to call webhook: no endpoints available for service "{name}"')
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def _context(configuration: Mapping[str, Any]) -> ssl.SSLContext:
    bundle = text(configuration.get("caBundle"))
    if not bundle:
        return ssl.create_default_context()
    try:
        return ssl.create_default_context(cadata=base64.b64decode(bundle).decode("ascii"))
    except (ValueError, binascii.Error, ssl.SSLError) as error:
        raise CallFailed(f"failed to call webhook: unable to load root certificates: {error}") from error


async def _post(place: Place, context: ssl.SSLContext, review: Object) -> bytes:
    # Imported when the first webhook is called: that is a quarter of a server's start.
    import aiohttp

    try:
        return await _exchange(place, aiohttp.TCPConnector(ssl=context), review)
    except aiohttp.ClientError as error:
        raise CallFailed(f'failed to call webhook: Post "{place.shown}": {_told(error)}') from error


def _told(error: aiohttp.ClientError) -> str:
    """What went wrong, in Go's words where they are known."""
    import aiohttp

    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return f"tls: failed to verify certificate: {error.certificate_error}"
    if isinstance(error, aiohttp.ClientConnectorError) and error.os_error.errno:
        return f"dial tcp {error.host}:{error.port}: connect: {os.strerror(error.os_error.errno).lower()}"
    return str(error)


async def _exchange(place: Place, connector: aiohttp.TCPConnector, review: Object) -> bytes:
    import aiohttp

    # A session of its own for each call: webhooks are few and far between, and nothing is left open.
    async with (
        aiohttp.ClientSession(connector=connector) as session,
        session.post(
            place.url,
            data=msgspec.json.encode(review),
            headers={"Content-Type": "application/json", "Accept": "application/json"},
            server_hostname=place.server_name,
            allow_redirects=False,
        ) as response,
    ):
        raw = await response.content.read(ANSWER_BYTES_MAX + 1)
        if response.status != 200:
            raise CallFailed(f"failed to call webhook: the server responded with the status code {response.status}")
    if len(raw) > ANSWER_BYTES_MAX:
        raise CallFailed(f"failed to call webhook: the answer is larger than {ANSWER_BYTES_MAX} bytes")
    return raw


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
