"""A small extension API server on loopback: HTTPS with a certificate of its own, for a Service of its own."""

from __future__ import annotations

import base64
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from allot.apiserver.access.certificates import CertificateAuthority
from allot.apiserver.assembly import Running, Settings, running
from allot.apiserver.bootstrap import SYSTEM
from allot.apiserver.request import ApiRequest
from allot.http1.connections import Connection, Limits
from allot.http1.heads import Head
from allot.http1.listener import Listener
from allot.http1.requests import answering
from allot.process.clock import SystemClock
from allot.store.memory import MemoryStore
from apiserver.live import LiveServer
from apiserver.pod_routes import RouteToPods
from waiting import until

Object = dict[str, Any]
GROUP, VERSION = "wardle.example.com", "v1alpha1"
API_SERVICES = "/apis/apiregistration.k8s.io/v1/apiservices"
SAMPLE = f"{API_SERVICES}/{VERSION}.{GROUP}"
FLUNDERS = f"/apis/{GROUP}/{VERSION}/namespaces/default/flunders"
POD = "10.128.0.5"
RESOURCES = [
    {
        "name": "flunders",
        "singularName": "flunder",
        "namespaced": True,
        "kind": "Flunder",
        "verbs": ["create", "delete", "deletecollection", "get", "list", "watch"],
    }
]
_JSON = {"Content-Type": "application/json"}
# No server listens there.
_CLOSED = 1


class Asked(NamedTuple):
    """A request that came."""

    method: str
    path: str
    query: str
    headers: tuple[tuple[str, str], ...]
    body: bytes
    certificate: bytes | None

    def all(self, name: str) -> list[str]:
        """The values of a header."""
        return [value for header, value in self.headers if header == name]


class Extension:
    """Answers discovery and OpenAPI, and everything else as `answer` says."""

    def __init__(self) -> None:
        self.port = 0
        self.bundle = ""
        self.asked: list[Asked] = []
        self.is_broken = False
        self.route = RouteToPods(_CLOSED)
        self.answer: Callable[[Connection, Head], Awaitable[None]] = _empty_list
        self.documents: dict[str, tuple[str, Any]] = {
            f"/apis/{GROUP}/{VERSION}": ("application/json", {"kind": "APIResourceList", "resources": RESOURCES}),
        }

    @property
    def requests(self) -> list[Asked]:
        """Those for objects."""
        return [
            each for each in self.asked if each.path not in (*self.documents, "/apis", "/openapi/v2", "/openapi/v3")
        ]

    async def handle(self, connection: Connection, head: Head) -> bool:
        """One request."""
        body = await connection.body(1 << 22) if head.has_body else b""
        self.asked.append(Asked(head.method, head.path, head.query, head.headers.items, body, connection.certificate))
        if self.is_broken:
            await connection.answer(500, {}, b"")
        elif head.path in self.documents:
            media_type, value = self.documents[head.path]
            await connection.answer(200, {"Content-Type": media_type}, msgspec.json.encode(value))
        elif head.path.startswith(("/openapi", "/apis/")) is False or head.path.startswith("/openapi"):
            await connection.answer(404, {}, b"")
        else:
            await self.answer(connection, head)
        return True


async def _empty_list(connection: Connection, _: Head) -> None:
    await connection.answer(200, _JSON, b'{"kind":"FlunderList","items":[]}')


@asynccontextmanager
async def extension_server(
    directory: Path, front_proxies: bytes, name: str = "sample.default.svc"
) -> AsyncIterator[Extension]:
    """The server while the block runs. front_proxies: the authority whose certificates it accepts."""
    extension = Extension()
    now = datetime.now(UTC)
    authority = CertificateAuthority.create(now, "sample-ca")
    pair = authority.issue_server([name], now)
    (directory / "sample.crt").write_bytes(pair.certificate)
    (directory / "sample.key").write_bytes(pair.key)
    extension.bundle = base64.b64encode(authority.pem).decode()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(directory / "sample.crt", directory / "sample.key")
    context.load_verify_locations(cadata=front_proxies.decode())
    context.verify_mode = ssl.CERT_REQUIRED
    listener = Listener(answering(extension.handle), SystemClock(), Limits())
    async with listener.listening("127.0.0.1", 0, context) as extension.port:
        extension.route = RouteToPods(extension.port)
        yield extension
        # Nobody is in the middle of a handshake when it ends.
        extension.route.port = _CLOSED
        await until(
            lambda: extension.route.is_quiet and not listener._connections,
            "the end of all connections to the extension server",
        )


def api_service(bundle: str = "", **spec: Any) -> Object:
    """The registration of the sample."""
    told: Object = {
        "group": GROUP,
        "version": VERSION,
        "groupPriorityMinimum": 2000,
        "versionPriority": 200,
        "service": {"namespace": "default", "name": "sample", "port": 7443},
        **spec,
    }
    if bundle:
        told["caBundle"] = bundle
    return {"metadata": {"name": f"{told['version']}.{told['group']}"}, "spec": told}


async def add_service(server: LiveServer, addresses: tuple[str, ...] = (POD,)) -> None:
    """The Service and its endpoints."""
    service = {"metadata": {"name": "sample"}, "spec": {"ports": [{"port": 7443, "targetPort": 443}]}}
    assert (await server.post("/api/v1/namespaces/default/services", service)).status == 201
    await add_endpoints(server, addresses)


async def add_endpoints(server: LiveServer, addresses: tuple[str, ...] = (POD,)) -> None:
    """The slice; written past the server, which would refuse some addresses."""
    slice_ = {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": "sample-1", "namespace": "default", "labels": {"kubernetes.io/service-name": "sample"}},
        "addressType": "IPv4",
        "endpoints": [{"addresses": [each]} for each in addresses],
        "ports": [{"name": "", "port": 443}],
    }
    await server.live.server.context.store.create("/registry/endpointslices/default/sample-1", slice_)


async def condition(server: LiveServer, reason: str) -> Object:
    """The condition of the sample, once it has a reason."""

    async def look() -> Object | None:
        found = (await server.get(SAMPLE)).json.get("status", {}).get("conditions") or [{}]
        return found[0] if found[0].get("reason") == reason else None

    found: Object = await until(look, f"APIService with {reason}")
    return found


@asynccontextmanager
async def sample(server: LiveServer) -> AsyncIterator[Extension]:
    """A registered extension server, available."""
    proxies = server.live.access.certificates.front_proxy_authority.pem
    async with extension_server(server.directory, proxies) as extension:
        server.live.dialler.pod_network = extension.route
        await add_service(server)
        assert (await server.post(API_SERVICES, api_service(extension.bundle))).status == 201
        await condition(server, "Passed")
        # Until the server has heard of it.
        extensions = server.live.server.context.extensions
        assert extensions is not None

        def is_known() -> bool:
            found = extensions.find(GROUP, VERSION)
            return found is not None and found.is_available

        await until(is_known)
        yield extension


DEFINITION = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": f"flunders.{GROUP}"},
    "spec": {
        "group": GROUP,
        "scope": "Namespaced",
        "names": {"plural": "flunders", "singular": "flunder", "kind": "Flunder"},
        "versions": [
            {
                "name": VERSION,
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
            }
        ],
    },
}


@asynccontextmanager
async def server_behind(server: LiveServer, directory: Path) -> AsyncIterator[RouteToPods]:
    """Another server of ours as an extension of the first; it serves flunders in all namespaces that it has."""
    pki = directory / "behind"
    pki.mkdir()
    ours = server.live.access.certificates
    # It accepts the first one as its front proxy.
    for name in ("front-proxy-ca.crt", "front-proxy-ca.key"):
        (pki / name).write_bytes((ours.directory / name).read_bytes())
        (pki / name).chmod(0o600)
    settings = Settings(directory=pki, port=0, names=("sample.default.svc",))
    async with running(settings, MemoryStore()) as behind:
        await create(behind, "apiextensions.k8s.io", "customresourcedefinitions", DEFINITION)
        rows = behind.server.context.registry
        await until(lambda: rows.find(GROUP, VERSION, "flunders"))
        server.live.dialler.pod_network = route = RouteToPods(behind.port)
        await add_service(server)
        bundle = base64.b64encode(behind.access.certificates.authority.pem).decode()
        assert (await server.post(API_SERVICES, api_service(bundle))).status == 201
        await condition(server, "Passed")
        yield route
        route.port = _CLOSED
    # Watches end with the server.
    await until(lambda: route.is_quiet)


async def create(behind: Running, group: str, plural: str, object_: Object) -> None:
    """Create an object of a server, as itself."""
    await behind.server.handle(
        ApiRequest(user=SYSTEM, verb="create", group=group, version="v1", resource=plural, body=object_)
    )
