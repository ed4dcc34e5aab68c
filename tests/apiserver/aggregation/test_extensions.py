"""Whether an extension API server is available, and what discovery and OpenAPI say about its group."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest

from allot.client.errors import NotFound, ServerFault
from allot.controlplane.clients import client_of
from allot.controlplane.users import ADMINISTRATOR
from apiserver.aggregation.extension_fixture import (
    API_SERVICES,
    FLUNDERS,
    GROUP,
    RESOURCES,
    SAMPLE,
    VERSION,
    Extension,
    add_endpoints,
    add_service,
    api_service,
    condition,
    extension_server,
    sample,
    server_behind,
)
from apiserver.live import LiveServer
from waiting import until

AGGREGATED = {"Accept": "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"}
SERVICES = "/api/v1/namespaces/default/services"


async def test_the_condition_says_what_is_missing(server: LiveServer) -> None:
    assert (await server.post(API_SERVICES, api_service())).status == 201
    found = await condition(server, "ServiceNotFound")
    assert (found["status"], found["message"]) == ("False", 'service/sample in "default" is not present')
    answer = await server.get(FLUNDERS)
    assert (answer.status, answer.raw) == (503, b"service unavailable\n")
    assert answer.headers["Content-Type"] == "text/plain; charset=utf-8"

    service = {"metadata": {"name": "sample"}, "spec": {"ports": [{"name": "web", "port": 80}]}}
    assert (await server.post(SERVICES, service)).status == 201
    found = await condition(server, "ServicePortError")
    assert found["message"] == 'service/sample in "default" is not listening on port 7443'

    ports = {"spec": {"ports": [{"name": "api", "port": 7443}]}}
    assert (await server.patch(f"{SERVICES}/sample", ports)).status == 200
    found = await condition(server, "EndpointsNotFound")
    assert found["message"] == 'cannot find endpointslices for service/sample in "default"'

    await add_endpoints(server)
    found = await condition(server, "MissingEndpoints")
    text = 'endpointslices for service/sample in "default" have no addresses with port name "api"'
    assert found["message"] == text
    assert 'aggregator_unavailable_apiservice{name="v1alpha1.wardle.example.com"} 1.0' in (
        (await server.get("/metrics")).raw.decode()
    )


@pytest.mark.parametrize("address", ["127.0.0.1", "169.254.169.254", "0.0.0.0"])
async def test_addresses_of_this_machine_and_its_links_are_not_dialled(server: LiveServer, address: str) -> None:
    await add_service(server, (address,))
    assert (await server.post(API_SERVICES, api_service(insecureSkipTLSVerify=True))).status == 201
    found = await condition(server, "FailedDiscoveryCheck")
    assert f"address not allowed: {address} is " in found["message"]


async def test_a_name_that_leads_to_this_machine_is_not_dialled(server: LiveServer) -> None:
    port = server.live.port
    service = {"metadata": {"name": "sample"}, "spec": {"type": "ExternalName", "externalName": "localhost"}}
    assert (await server.post(SERVICES, service)).status == 201
    reference = {"namespace": "default", "name": "sample", "port": port}
    assert (await server.post(API_SERVICES, api_service(service=reference))).status == 201
    found = await condition(server, "FailedDiscoveryCheck")
    assert f"failing or missing response from https://localhost:{port}/apis/{GROUP}/{VERSION}: " in found["message"]
    assert "a loopback address" in found["message"]


async def test_a_certificate_for_another_name_is_not_accepted(server: LiveServer) -> None:
    proxies = server.live.access.certificates.front_proxy_authority.pem
    async with extension_server(server.directory, proxies, "other.default.svc") as extension:
        server.live.dialler.pod_network = extension.route
        await add_service(server)
        assert (await server.post(API_SERVICES, api_service(extension.bundle))).status == 201
        found = await condition(server, "FailedDiscoveryCheck")
        assert "tls: failed to verify certificate: x509: Hostname mismatch" in found["message"]
        assert not extension.asked
        unverified = {"spec": {"caBundle": None, "insecureSkipTLSVerify": True}}
        assert (await server.patch(SAMPLE, unverified)).status == 200
        await condition(server, "Passed")


async def test_a_bundle_that_is_no_certificate_is_said(server: LiveServer) -> None:
    await add_service(server)
    bundle = base64.b64encode(b"nothing").decode()
    assert (await server.post(API_SERVICES, api_service(bundle))).status == 201
    assert "unable to load root certificates" in (await condition(server, "FailedDiscoveryCheck"))["message"]


async def discovered(server: LiveServer) -> dict[str, Any]:
    items = (await server.get("/apis", headers=AGGREGATED)).json["items"]
    found: dict[str, Any] = next(each for each in items if each["metadata"]["name"] == GROUP)
    (version,) = found["versions"]
    return dict(version)


async def test_discovery_has_the_group_in_its_place_and_says_when_it_is_stale(server: LiveServer) -> None:
    async with sample(server) as extension:
        await until(lambda: _is(server, "Current"))
        found = await discovered(server)
        assert [each["resource"] for each in found["resources"]] == ["flunders"]
        groups = [each["name"] for each in (await server.get("/apis")).json["groups"]]
        assert groups[0] == "apiregistration.k8s.io"
        # Above custom resources, below what is built in.
        assert groups.index("resource.k8s.io") < groups.index(GROUP) < groups.index("metrics.k8s.io")
        told = (await server.get(f"/apis/{GROUP}")).json
        assert told["preferredVersion"]["groupVersion"] == f"{GROUP}/{VERSION}"
        assert (await server.get(f"/apis/{GROUP}/{VERSION}")).json["resources"] == RESOURCES
        assert f"/apis/{GROUP}/{VERSION}" in (await server.get("/")).json["paths"]

        extension.is_broken = True
        assert (await server.patch(SAMPLE, {"spec": {"versionPriority": 300}})).status == 200
        broken = await condition(server, "FailedDiscoveryCheck")
        place = f"https://10.128.0.5:443/apis/{GROUP}/{VERSION}"
        assert broken["message"] == f"failing or missing response from {place}: bad status from {place}: 500"
        await until(lambda: _is(server, "Stale"))
        assert "resources" not in await discovered(server)
        assert (await server.get(f"/apis/{GROUP}/{VERSION}")).status == 503
        assert b"aggregator_unavailable_apiservice_total" in (await server.get("/metrics")).raw
        assert (await server.get("/apis")).status == 200
        assert (await server.delete(SAMPLE)).status == 200

        async def is_gone() -> bool:
            return (await server.get(f"/apis/{GROUP}")).status == 404

        await until(is_gone)


async def _is(server: LiveServer, freshness: str) -> bool:
    return (await discovered(server))["freshness"] == freshness


def _documented(extension: Extension) -> None:
    meta = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
    extension.documents["/openapi/v3"] = (
        "application/json",
        {
            "paths": {
                f"apis/{GROUP}/{VERSION}": {"serverRelativeURL": f"/openapi/v3/apis/{GROUP}/{VERSION}?hash=AB12"},
                "api/v1": {"serverRelativeURL": "/openapi/v3/api/v1?hash=EVIL"},
            }
        },
    )
    extension.documents[f"/openapi/v3/apis/{GROUP}/{VERSION}"] = ("application/json", {"openapi": "3.0.0", "paths": {}})
    flunder = {"type": "object", "properties": {"metadata": {"$ref": f"#/definitions/{meta}"}}}
    answer = {"200": {"schema": {"$ref": "#/definitions/sample.Flunder"}}}
    extension.documents["/openapi/v2"] = (
        "application/json",
        {
            "definitions": {"sample.Flunder": flunder, meta: {"type": "object", "description": "older"}, "unused": {}},
            "paths": {f"/apis/{GROUP}/{VERSION}/flunders": {"get": {"responses": answer}}, "/api/v1/pods": {"get": {}}},
        },
    )


async def test_openapi_has_what_the_server_tells_about_its_own_group_alone(server: LiveServer) -> None:
    async with sample(server) as extension:
        own = (await server.get("/openapi/v2")).json
        _documented(extension)
        assert (await server.patch(SAMPLE, {"spec": {"versionPriority": 300}})).status == 200

        async def index() -> Any:
            return (await server.get("/openapi/v3")).json["paths"].get(f"apis/{GROUP}/{VERSION}")

        told = await until(index)
        assert told == {"serverRelativeURL": f"/openapi/v3/apis/{GROUP}/{VERSION}?hash=AB12"}
        assert "EVIL" not in str((await server.get("/openapi/v3")).json)
        document = await server.get(f"/openapi/v3/apis/{GROUP}/{VERSION}")
        assert document.json == {"openapi": "3.0.0", "paths": {}}

        async def joined() -> Any:
            found = (await server.get("/openapi/v2")).json
            return found if "sample.Flunder" in found["definitions"] else None

        found = await until(joined)
    meta = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
    assert found["definitions"][meta] == own["definitions"][meta]
    assert found["definitions"][f"{meta}_v2"]["description"] == "older"
    properties = found["definitions"]["sample.Flunder"]["properties"]
    assert properties["metadata"] == {"$ref": f"#/definitions/{meta}_v2"}
    assert "unused" not in found["definitions"]
    assert found["paths"]["/api/v1/pods"] == own["paths"]["/api/v1/pods"]
    assert found["paths"].keys() - own["paths"].keys() == {f"/apis/{GROUP}/{VERSION}/flunders"}


async def test_a_built_in_group_stays_with_this_server(server: LiveServer) -> None:
    """Without them it could not even start."""
    taken = {"spec": {"service": {"namespace": "default", "name": "sample", "port": 443}}}
    assert (await server.patch(f"{API_SERVICES}/v1.apps", taken)).status == 200
    assert (await server.get("/apis/apps/v1/deployments")).json["kind"] == "DeploymentList"
    extensions = server.live.server.context.extensions
    assert extensions is not None
    assert extensions.find("apps", "v1") is None


async def test_an_adapter_of_metrics_takes_the_place_of_the_servers_own(server: LiveServer) -> None:
    async with sample(server) as extension:
        path = "/apis/metrics.k8s.io/v1beta1"
        extension.documents[path] = ("application/json", {"kind": "APIResourceList", "resources": RESOURCES})
        spec = api_service(extension.bundle, group="metrics.k8s.io", version="v1beta1")["spec"]
        name = f"{API_SERVICES}/v1beta1.metrics.k8s.io"
        assert (await server.patch(name, {"spec": spec})).status == 200

        async def is_answered() -> bool:
            return (await server.get(f"{path}/nodes")).raw == b'{"kind":"FlunderList","items":[]}'

        await until(is_answered)


# --- with another server of ours behind the Service ---


@pytest.mark.slow
async def test_another_server_of_ours_works_behind_an_api_service(server: LiveServer, tmp_path: Path) -> None:
    """Both ends at once: this one as the front proxy, that one as its backend."""
    async with server_behind(server, tmp_path):
        await until(lambda: _is(server, "Current"))
        flunder = {"apiVersion": f"{GROUP}/{VERSION}", "kind": "Flunder", "metadata": {"name": "f1"}, "spec": {"a": 1}}
        created = await server.post(FLUNDERS, flunder)
        assert (created.status, created.json["spec"]) == (201, {"a": 1})
        assert (await server.get("/apis/apiextensions.k8s.io/v1/customresourcedefinitions")).json["items"] == []
        async with server.watch(f"{FLUNDERS}?watch=true&resourceVersion=0") as events:
            assert (await anext(events))["object"]["metadata"]["name"] == "f1"
        table = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
        assert (await server.get(FLUNDERS, headers=table)).json["kind"] == "Table"
        # Allowed here, but not there: both ask, and the other server knows who asks.
        rbac = "/apis/rbac.authorization.k8s.io/v1"
        rule = {"apiGroups": [GROUP], "resources": ["*"], "verbs": ["*"]}
        assert (await server.post(f"{rbac}/clusterroles", {"metadata": {"name": "f"}, "rules": [rule]})).status == 201
        bound = {
            "metadata": {"name": "f"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "f"},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "ann"}],
        }
        assert (await server.post(f"{rbac}/clusterrolebindings", bound)).status == 201
        async with server.as_user("ann") as session:
            refused = await server.get(FLUNDERS, session=session)
        assert refused.status == 403
        assert 'User "ann" cannot list resource "flunders"' in refused.json["message"]
        assert (await server.delete(f"{FLUNDERS}/f1")).status == 200
        v3 = (await server.get(f"/openapi/v3/apis/{GROUP}/{VERSION}")).json
        assert f"/apis/{GROUP}/{VERSION}/flunders" in v3["paths"]


@pytest.mark.slow
async def test_components_in_the_same_process_reach_it_too(server: LiveServer, tmp_path: Path) -> None:
    """The garbage collector and the rest of a control plane in one process do not use HTTP."""
    client = client_of(server.live, ADMINISTRATOR)
    async with server_behind(server, tmp_path) as route:
        await until(lambda: _is(server, "Current"))
        assert (await client.discovery(refresh=True)).find_kind(GROUP, VERSION, "Flunder") is not None
        flunders = client.resource(GROUP, VERSION, "flunders", namespaced=True)
        made = await flunders.create(
            {"apiVersion": f"{GROUP}/{VERSION}", "kind": "Flunder", "metadata": {"name": "f1", "namespace": "default"}}
        )
        assert made["metadata"]["uid"]
        listed = await flunders.list("default")
        assert [each["metadata"]["name"] for each in listed.items] == ["f1"]
        async with flunders.watch("default", resource_version="0") as events:
            assert (await anext(aiter(events))).object["metadata"]["name"] == "f1"
        await flunders.delete("f1", "default")
        with pytest.raises(NotFound, match='"f1" not found'):
            await flunders.get("f1", "default")
        route.port = 1
        with pytest.raises(ServerFault):
            await flunders.list("default")
