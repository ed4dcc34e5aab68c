"""Discovery, aggregated and classic, and what users mean by a name."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest
import pytest_asyncio

from allot.client.api import Client
from allot.client.discovery import Discovery, UnknownResource, discover
from allot.client.inprocess import Answer, InProcessTransport, PlainRequest, plain_request
from allot.client.transport import Response
from allot.core.model.resource_v1 import ResourceClaim
from apiserver.live import LiveServer
from client.conftest import http_transport


@pytest_asyncio.fixture
async def client(server: LiveServer) -> AsyncIterator[Client]:
    made = Client(http_transport(server))
    yield made
    await made.close()


class Classic:
    """A client whose server knows only the classic form."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def request(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        content_type: str = "",  # noqa: ARG002
        headers: Mapping[str, str] | None = None,  # noqa: ARG002
        timeout: float | None = None,
    ) -> Response:
        return await self._client.request(method, path, query, body, timeout=timeout)


def plain(found: Discovery) -> set[tuple[str, str, str, bool]]:
    return {(one.api_version, one.kind, one.plural, one.namespaced) for one in found.resources}


async def test_both_forms_say_the_same(client: Client) -> None:
    aggregated, classic = await discover(client), await discover(Classic(client))
    assert plain(aggregated) == plain(classic)
    for found in (aggregated, classic):
        pods = found.find_kind("", "v1", "Pod")
        assert pods is not None
        assert "status" in pods.subresources
        assert "watch" in pods.verbs


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("pods", ("v1", "Pod")),
        ("Pod", ("v1", "Pod")),
        ("po", ("v1", "Pod")),
        ("deployments.apps", ("apps/v1", "Deployment")),
        ("deploy.v1.apps", ("apps/v1", "Deployment")),
        ("resourceclaims.v1beta1.resource.k8s.io", ("resource.k8s.io/v1beta1", "ResourceClaim")),
        ("resourceclaims", ("resource.k8s.io/v1", "ResourceClaim")),
        ("events.events.k8s.io", ("events.k8s.io/v1", "Event")),
        ("pods.apps", None),
        ("nonsense", None),
    ],
)
async def test_names_as_users_type_them(client: Client, name: str, expected: tuple[str, str] | None) -> None:
    found = (await client.discovery()).find_name(name)
    assert (None if found is None else (found.api_version, found.kind)) == expected


async def test_access_by_what_objects_say_of_themselves(client: Client) -> None:
    deployments = await client.of_kind("apps/v1", "Deployment")
    assert deployments.path("default", "web") == "/apis/apps/v1/namespaces/default/deployments/web"
    assert (await client.of_name("ns")).path("", "x") == "/api/v1/namespaces/x"
    with pytest.raises(UnknownResource, match=r"does not serve kind 'Gpu' in apiVersion 'example.com/v1'"):
        await client.of_kind("example.com/v1", "Gpu")
    with pytest.raises(UnknownResource, match="does not have a resource 'gpus'"):
        await client.of_name("gpus")


async def test_a_type_is_asked_for_in_a_version_that_the_server_has(client: Client) -> None:
    assert (await client.typed_as_served(ResourceClaim)).resource.version == "v1"
    old = Client(client.transport)
    old._discovery = Discovery(one for one in (await client.discovery()).resources if one.version == "v1beta1")
    assert (await old.typed_as_served(ResourceClaim)).resource.version == "v1beta1"
    old._discovery = Discovery(())
    with pytest.raises(UnknownResource, match="does not serve kind ResourceClaim: expected resource"):
        await old.typed_as_served(ResourceClaim)


async def test_in_process_other_paths_go_where_the_composition_says(client: Client) -> None:
    async def handle(_: PlainRequest) -> Answer:
        raise AssertionError("not an object")

    async def handle_path(path: str, headers: Mapping[str, str]) -> tuple[int, Any]:
        answer = await client.request("GET", path, headers=headers)
        return answer.status, answer.body

    inside = Client(InProcessTransport(handle, KeyError, handle_path=handle_path))
    assert plain(await inside.discovery()) == plain(await client.discovery())
    assert (await discover(Client(InProcessTransport(handle, KeyError)))).resources == ()


@pytest.mark.parametrize(
    ("method", "path", "query", "expected"),
    [
        ("GET", "/api/v1/pods", {}, ("list", "", "v1", "pods", "", "", "")),
        ("GET", "/api/v1/pods", {"watch": "true"}, ("watch", "", "v1", "pods", "", "", "")),
        ("GET", "/api/v1/namespaces/a/pods/p", {}, ("get", "", "v1", "pods", "a", "p", "")),
        ("PUT", "/api/v1/namespaces/a/pods/p/status", {}, ("update", "", "v1", "pods", "a", "p", "status")),
        ("GET", "/api/v1/namespaces", {}, ("list", "", "v1", "namespaces", "", "", "")),
        ("DELETE", "/api/v1/namespaces/a", {}, ("delete", "", "v1", "namespaces", "a", "a", "")),
        ("PUT", "/api/v1/namespaces/a/finalize", {}, ("update", "", "v1", "namespaces", "a", "a", "finalize")),
        ("POST", "/apis/apps/v1/namespaces/a/deployments", {}, ("create", "apps", "v1", "deployments", "a", "", "")),
        ("DELETE", "/apis/g/v1/things", {}, ("deletecollection", "g", "v1", "things", "", "", "")),
        ("PATCH", "/apis/g/v1/things/a%2Fb", {}, ("patch", "g", "v1", "things", "", "a/b", "")),
        ("GET", "/apis/apps/v1", {}, None),
        ("GET", "/api/v1", {}, None),
        ("GET", "/version", {}, None),
        ("GET", "/", {}, None),
    ],
)
def test_paths_as_requests(method: str, path: str, query: dict[str, str], expected: tuple[str, ...] | None) -> None:
    found = plain_request(method, path, query, None, "", "")
    parts = None
    if found is not None:
        parts = (found.verb, found.group, found.version, found.resource, found.namespace, found.name, found.subresource)
    assert parts == expected
