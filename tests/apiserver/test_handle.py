"""One way in: over HTTP and in process requests are handled by the same function, and nothing is answered before it is
authorized."""

from __future__ import annotations

from typing import Any

import pytest

from allot.apiserver.errors import StatusError
from allot.apiserver.nonresource.endpoints import NonResourceEndpoints
from allot.apiserver.request import ANONYMOUS, ApiConnection, ApiRequest, PathRequest
from allot.apiserver.server import ApiServer
from apiserver.live import LiveServer

MAPS = "/api/v1/namespaces/default/configmaps"
POD = "/api/v1/namespaces/default/pods/x"
# Method and path of everything that can be asked for in a way of its own.
ASKED = (
    ("GET", MAPS),
    ("GET", f"{MAPS}?watch=1&timeoutSeconds=1"),
    ("POST", MAPS),
    ("DELETE", MAPS),
    ("GET", f"{MAPS}/x"),
    ("PUT", f"{MAPS}/x"),
    ("PATCH", f"{MAPS}/x"),
    ("DELETE", f"{MAPS}/x"),
    ("PUT", f"{POD}/status"),
    ("POST", f"{POD}/binding"),
    ("POST", f"{POD}/eviction"),
    ("GET", f"{POD}/log"),
    ("POST", f"{POD}/exec?command=ls"),
    ("GET", f"{POD}/proxy/a"),
    ("GET", "/apis/apps/v1/namespaces/default/deployments/x/scale"),
    ("POST", "/api/v1/namespaces/default/serviceaccounts/default/token"),
    ("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"),
    ("GET", "/apis/nobody.example.com/v1/things"),
)
PATHS = ("/", "/api", "/apis/apps/v1", "/openapi/v2", "/metrics", "/openid/v1/jwks", "/nowhere")
# What would be a mistake of somebody who may ask.
MISTAKES: tuple[tuple[str, dict[str, str], bytes], ...] = (
    ("", {"Content-Type": "application/json"}, b"{"),
    ("", {"Content-Type": "text/nonsense"}, b"x"),
    ("", {"Content-Encoding": "gzip"}, b"x"),
    ("", {"Accept": "text/nonsense"}, b""),
    ("includeObject=All", {}, b""),
    ("timeout=nonsense", {}, b""),
    ("dryRun=Some", {}, b"{}"),
)


@pytest.mark.slow
async def test_everything_that_comes_over_http_is_handled_where_requests_in_process_are(
    server: LiveServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    handled: list[str] = []
    handle, handle_path = ApiServer.handle, NonResourceEndpoints.handle

    async def noted(self: ApiServer, request: ApiRequest, *wire: Any) -> Any:
        handled.append(f"{request.verb} {request.resource}/{request.subresource}")
        return await handle(self, request, *wire)

    async def noted_path(self: NonResourceEndpoints, request: PathRequest) -> Any:
        handled.append(f"{request.verb} /{'/'.join(request.segments)}")
        return await handle_path(self, request)

    monkeypatch.setattr(ApiServer, "handle", noted)
    monkeypatch.setattr(NonResourceEndpoints, "handle", noted_path)
    for method, path in (*ASKED, *(("GET", path) for path in PATHS)):
        handled.clear()
        await server.request(method, path, {} if method not in ("GET", "DELETE") else None)
        assert len(handled) == 1, (method, path, handled)


@pytest.mark.slow
async def test_who_may_not_ask_learns_nothing_else_whatever_is_wrong_with_the_request(server: LiveServer) -> None:
    async with server.as_nobody() as nobody:
        for method, path in ASKED:
            for query, headers, body in MISTAKES:
                asked = f"{path}{'&' if '?' in path else '?'}{query}"
                answer = await server.request(method, asked, body or None, headers=headers, session=nobody)
                assert answer.status == 403, (method, asked, headers, answer.raw)
        for path in PATHS:
            for method in ("GET", "POST"):
                answer = await server.request(method, path, session=nobody)
                assert answer.status == 403, (method, path, answer.raw)


class ClosedWire:
    """A connection from which nothing may be read."""

    async def receive(self) -> bytes:
        raise AssertionError("the body was read")

    async def connect(self, request: ApiRequest) -> ApiConnection:  # noqa: ARG002
        raise AssertionError("the client was connected")


@pytest.mark.parametrize("subresource", ["", "status", "exec", "log", "proxy"])
async def test_neither_body_nor_node_is_touched_for_who_may_not_ask(server: LiveServer, subresource: str) -> None:
    request = ApiRequest(
        user=ANONYMOUS,
        verb="create",
        group="",
        version="v1",
        resource="pods",
        namespace="default",
        name="x",
        subresource=subresource,
    )
    with pytest.raises(StatusError, match="cannot create resource") as refused:
        await server.live.server.handle(request, ClosedWire())
    assert refused.value.code == 403


async def test_paths_outside_the_api_are_authorized_in_process_too(server: LiveServer) -> None:
    with pytest.raises(StatusError, match='cannot get path "/metrics"'):
        await server.live.endpoints.handle(PathRequest(user=ANONYMOUS, verb="get", segments=("metrics",)))
    answer = await server.live.endpoints.handle(PathRequest(user=ANONYMOUS, verb="get", segments=("version",)))
    assert answer.value["major"] == "1"
