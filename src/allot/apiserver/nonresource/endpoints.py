"""Everything the server serves besides objects: discovery, OpenAPI, version, health and metrics."""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import quote

import msgspec

from allot.apiserver.access.authorizer import Authorizer
from allot.apiserver.access.service_account_tokens import ServiceAccountTokens
from allot.apiserver.aggregation.extension_server import Unavailable
from allot.apiserver.aggregation.extensions import ExtensionServers
from allot.apiserver.errors import StatusError, method_not_allowed, path_not_found
from allot.apiserver.metrics import CONTENT_TYPE, Metrics
from allot.apiserver.nonresource.discovery import V2, V2BETA1, Discovery, UnstoredGroups
from allot.apiserver.nonresource.health import Check, report
from allot.apiserver.nonresource.openapi import OpenApi
from allot.apiserver.registry import Registry
from allot.apiserver.request import PathRequest
from allot.apiserver.serving.negotiation import parse_accept
from allot.http1.heads import Pairs
from allot.wire import openapi_v2

VERSION = {
    "major": "1",
    "minor": "37",
    "emulationMajor": "1",
    "emulationMinor": "37",
    "minCompatibilityMajor": "1",
    "minCompatibilityMinor": "36",
    "gitVersion": "v1.37.0+allot",
    "gitCommit": "",
    "gitTreeState": "clean",
    "buildDate": "",
    "goVersion": "",
    "compiler": "cpython",
    "platform": "linux/amd64",
}
_TEXT = "text/plain; charset=utf-8"
_HEALTH = ("livez", "readyz", "healthz")
_UNSNIFFED = {"X-Content-Type-Options": "nosniff"}
# How long clients wait for another server's documents; kubectl asks every server for its resources.
_DISCOVERY_S, _OPENAPI_S = 5.0, 60.0


class EndpointAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """An answer: a value to encode, or bytes as they are."""

    value: Any = None
    body: bytes | None = None
    status: int = 200
    media_type: str = ""
    headers: dict[str, str] = {}


class NonResourceEndpoints:
    """All paths outside the API's objects."""

    def __init__(
        self,
        authorizer: Authorizer,
        registry: Registry,
        openapi: OpenApi,
        metrics: Metrics,
        checks: tuple[Check, ...],
        tokens: ServiceAccountTokens,
        ready_checks: tuple[Check, ...] = (),
        unstored: UnstoredGroups | None = None,
        extensions: ExtensionServers | None = None,
    ) -> None:
        """ready_checks: additional ones for /readyz only. unstored: groups besides the registry's. extensions: other servers."""
        self._authorizer = authorizer
        self._registry = registry
        self._extensions = extensions
        self._discovery = Discovery(registry, unstored=unstored, extensions=extensions)
        self._openapi = openapi
        self._metrics = metrics
        self._checks = dict.fromkeys(_HEALTH, checks) | {"readyz": checks + ready_checks}
        self._tokens = tokens

    async def handle(self, request: PathRequest) -> EndpointAnswer:
        """The answer to a request; 403, 404 or 405 if there is none."""
        self._authorizer.check(request.attributes())
        if request.verb not in ("get", "head"):
            raise method_not_allowed()
        site = await self._extension_document(request)
        if site is None:
            site = await self._find(request.segments, request.parameters, request.accept)
        if site is None:
            raise path_not_found()
        return site

    async def _extension_document(self, request: PathRequest) -> EndpointAnswer | None:
        """What another server tells about a version that it serves; None if none does."""
        match request.segments:
            case ("apis", group, version) | ("openapi", "v3", "apis", group, version):
                pass
            case ("api", version) | ("openapi", "v3", "api", version):
                group = ""
            case _:
                return None
        server = self._extensions.find(group, version) if self._extensions is not None else None
        if server is None:
            return None
        seconds = _OPENAPI_S if request.segments[0] == "openapi" else _DISCOVERY_S
        path = "/" + "/".join(quote(each) for each in request.segments)
        try:
            status, headers, body = await server.document(path, request.user, request.accept, seconds)
        except (Unavailable, StatusError) as error:
            return EndpointAnswer(body=f"{error}\n".encode(), status=error.code, media_type=_TEXT, headers=_UNSNIFFED)
        told = {name: value for name in ("ETag", "Vary") if (value := headers.get(name.lower()))}
        return EndpointAnswer(body=body, status=status, media_type=headers.get("content-type"), headers=told)

    async def _find(self, segments: tuple[str, ...], parameters: Pairs, accept: str) -> EndpointAnswer | None:
        """The answer for a path, or None if the path does not exist."""
        match segments:
            case ():
                return EndpointAnswer(value={"paths": self._paths()})
            case ("version",):
                return EndpointAnswer(value=VERSION)
            case ("api" | "apis" as root,):
                return self._roots(root, accept)
            case ("api", version):
                return _found(self._discovery.resources("", version))
            case ("apis", group):
                return _found(self._discovery.group(group))
            case ("apis", group, version):
                return _found(self._discovery.resources(group, version))
            case (".well-known", "openid-configuration"):
                document = self._tokens.discovery(f"{self._tokens.issuer}/openid/v1/jwks")
                return EndpointAnswer(body=msgspec.json.encode(document), media_type="application/json")
            case ("openid", "v1", "jwks"):
                keys = msgspec.json.encode(self._tokens.key.key_set())
                return EndpointAnswer(body=keys, media_type="application/jwk-set+json")
            case ("metrics",):
                return EndpointAnswer(body=self._metrics.text(), media_type=CONTENT_TYPE)
            case ("metrics", "slis"):
                return EndpointAnswer(body=self._metrics.health_text(), media_type=CONTENT_TYPE)
            case ("openapi", *rest):
                return await self._openapi_document(tuple(rest), accept)
            case (name, *rest) if name in _HEALTH:
                return await self._health(name, "/".join(rest), parameters)
        return None

    def _roots(self, root: str, accept: str) -> EndpointAnswer:
        for entry in parse_accept(accept):
            parameters = entry.parameters
            if parameters.get("as") != "APIGroupDiscoveryList" or parameters.get("g") != "apidiscovery.k8s.io":
                if entry.media_type in ("application/json", "*/*", "application/*"):
                    break
                continue
            version = parameters.get("v", "")
            if entry.media_type == "application/json" and version in (V2, V2BETA1):
                value = self._discovery.aggregated(version, legacy=root == "api")
                media_type = f"application/json;g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList"
                return EndpointAnswer(value=value, media_type=media_type, headers={"Vary": "Accept"})
        value = self._discovery.api_versions() if root == "api" else self._discovery.groups()
        return EndpointAnswer(value=value, headers={"Vary": "Accept"})

    async def _openapi_document(self, rest: tuple[str, ...], accept: str) -> EndpointAnswer | None:
        if rest == ("v2",):
            return await self._openapi_v2(accept)
        if rest[:1] != ("v3",):
            return None
        if len(rest) == 1:
            return EndpointAnswer(value=self._openapi.index())
        found = self._openapi.document("/".join(rest[1:]))
        if found is None:
            return None
        etag, body = found
        return EndpointAnswer(body=body, media_type="application/json", headers={"ETag": etag, "Vary": "Accept"})

    async def _openapi_v2(self, accept: str) -> EndpointAnswer:
        wanted = parse_accept(accept)[:1]
        in_protobuf = any("proto-openapi" in entry.media_type for entry in wanted)
        make = self._openapi.swagger_protobuf if in_protobuf else self._openapi.swagger
        # The first one takes a while.
        etag, body = await asyncio.to_thread(make)
        media_type = openapi_v2.MEDIA_TYPE if in_protobuf else "application/json"
        return EndpointAnswer(body=body, media_type=media_type, headers={"ETag": etag, "Vary": "Accept"})

    async def _health(self, path: str, only: str, parameters: Pairs) -> EndpointAnswer | None:
        checks = [check for check in self._checks[path] if not only or check[0] == only]
        if not checks:
            return None
        excluded = () if only else tuple(value for name, value in parameters if name == "exclude")
        told = await report(
            path, checks, excluded, lambda name, is_healthy: self._metrics.checked(name, path, is_healthy=is_healthy)
        )
        headers = _UNSNIFFED
        is_short = told.is_healthy and (only or all(name != "verbose" for name, _ in parameters))
        body = b"ok" if is_short else told.text.encode()
        return EndpointAnswer(body=body, status=200 if told.is_healthy else 500, media_type=_TEXT, headers=headers)

    def _paths(self) -> list[str]:
        paths = ["/api", "/api/v1", "/apis", "/healthz", "/livez", "/metrics", "/metrics/slis", "/openapi/v2"]
        paths += ["/.well-known/openid-configuration", "/openapi/v3", "/openid/v1/jwks", "/readyz", "/version"]
        for each in self._discovery.groups()["groups"]:
            paths += [f"/apis/{each['name']}", *(f"/apis/{version['groupVersion']}" for version in each["versions"])]
        return sorted(paths)


def _found(value: dict[str, Any] | None) -> EndpointAnswer | None:
    return None if value is None else EndpointAnswer(value=value)
