"""Every path without a credential, or with too little right, gets 403; with a wrong credential 401."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import aiohttp
import pytest
import pytest_asyncio

from e2e.servers import ServerProcess, client_context

pytestmark = pytest.mark.slow

# What everybody may ask, and what everybody with a name may ask.
_PUBLIC = ("/healthz", "/livez", "/readyz", "/version")
_NAMED = ("/api", "/apis", "/api/v1", "/apis/apps", "/apis/apps/v1", "/openapi/v2", "/openapi/v3", "/openapi/v3/api/v1")
_CLOSED = ("/metrics", "/logs", "/debug/pprof", "/nope", "/apis/nope.example.com/v1/things", "/api/v1/unicorns")
_ABOUT_ONESELF = {"selfsubjectaccessreviews", "selfsubjectrulesreviews", "selfsubjectreviews"}
_METHODS = {
    "get": ("GET", True),
    "list": ("GET", False),
    "watch": ("GET", False),
    "create": ("POST", False),
    "update": ("PUT", True),
    "patch": ("PATCH", True),
    "delete": ("DELETE", True),
    "deletecollection": ("DELETE", False),
}


class Question(NamedTuple):
    """One request that the walk makes."""

    method: str
    path: str
    resource: str


class Walker:
    """Asks as nobody, and as somebody without rights."""

    def __init__(self, url: str, nobody: aiohttp.ClientSession, admin: aiohttp.ClientSession) -> None:
        self.url = url
        self.nobody = nobody
        self.admin = admin

    async def status(self, method: str, path: str, token: str | None = None) -> int:
        """The status of an answer to a request with an empty object."""
        headers = {"Content-Type": "application/json"}
        if token:
            headers["Authorization"] = f"Bearer {token}"
        data = None if method == "GET" else b"{}"
        async with self.nobody.request(method, self.url + path, data=data, headers=headers) as response:
            await response.read()
            return response.status

    async def _json(self, path: str) -> Any:
        async with self.admin.get(self.url + path) as response:
            assert response.status == 200, path
            return await response.json()

    async def questions(self) -> list[Question]:
        """Every verb of everything in discovery."""
        roots = ["/api/v1"]
        for group in (await self._json("/apis"))["groups"]:
            roots += [f"/apis/{version['groupVersion']}" for version in group["versions"]]
        found: list[Question] = []
        for root in roots:
            for resource in (await self._json(root))["resources"]:
                found += self._of(root, resource)
        return found

    def _of(self, root: str, resource: dict[str, Any]) -> list[Question]:
        plural, _, subresource = resource["name"].partition("/")
        base = f"{root}/namespaces/default/{plural}" if resource["namespaced"] else f"{root}/{plural}"
        found: list[Question] = []
        for verb in resource["verbs"]:
            method, named = _METHODS[verb]
            path = f"{base}/x/{subresource}" if subresource else f"{base}/x" if named else base
            found.append(Question(method, path + ("?watch=true" if verb == "watch" else ""), plural))
        return found


@pytest_asyncio.fixture
async def walker(memory_server: ServerProcess) -> AsyncIterator[Walker]:
    """Connections to a server."""
    timeout = aiohttp.ClientTimeout(total=30)
    without = aiohttp.TCPConnector(ssl=client_context(memory_server.kubeconfig, certificate=False))
    with_certificate = aiohttp.TCPConnector(ssl=client_context(memory_server.kubeconfig))
    async with (
        aiohttp.ClientSession(connector=without, timeout=timeout) as nobody,
        aiohttp.ClientSession(connector=with_certificate, timeout=timeout) as admin,
    ):
        yield Walker(memory_server.url, nobody, admin)


async def test_nobody_gets_anything(walker: Walker) -> None:
    questions = await walker.questions()
    assert len(questions) > 500
    open_to_all = [one for one in questions if await walker.status(one.method, one.path) != 403]
    assert open_to_all == []


async def test_a_wrong_credential_is_none(walker: Walker) -> None:
    for path in (*_PUBLIC, *_NAMED, *_CLOSED, "/api/v1/pods"):
        assert await walker.status("GET", path, "wrong-token") == 401, path


async def test_somebody_without_rights_gets_nothing(walker: Walker) -> None:
    questions = await walker.questions()
    allowed = [one for one in questions if await walker.status(one.method, one.path, "powerless-token") != 403]
    assert {one.resource for one in allowed} == _ABOUT_ONESELF


async def test_other_paths(walker: Walker) -> None:
    for path in _PUBLIC:
        assert await walker.status("GET", path) == 200, path
        assert await walker.status("GET", path, "powerless-token") == 200, path
    for path in _NAMED:
        assert await walker.status("GET", path) == 403, path
        assert await walker.status("GET", path, "powerless-token") == 200, path
    for path in _CLOSED:
        assert await walker.status("GET", path) == 403, path
        assert await walker.status("GET", path, "powerless-token") == 403, path
    for method in ("POST", "PUT", "PATCH", "DELETE"):
        assert await walker.status(method, "/healthz") == 403, method
        assert await walker.status(method, "/metrics", "powerless-token") == 403, method
