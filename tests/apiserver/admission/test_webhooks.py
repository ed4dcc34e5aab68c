"""Admission webhooks: a real one on loopback with a certificate of its own."""

from __future__ import annotations

import base64
from typing import Any

import msgspec
import pytest

from apiserver.live import LiveServer
from apiserver.pod_routes import RouteToPods
from apiserver.webhook_server import Webhook

GROUP = "/apis/admissionregistration.k8s.io/v1"
MAPS = "/api/v1/namespaces/default/configmaps"


def config_map(name: str = "c") -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"a": "b"}}


async def test_a_validating_webhook_refuses(server: LiveServer, webhook: Webhook) -> None:
    made = webhook.configuration("ValidatingWebhookConfiguration")
    assert (await server.post(f"{GROUP}/validatingwebhookconfigurations", made)).status == 201
    webhook.decide = lambda request: {"allowed": request["name"] != "c", "status": {"message": "bad name", "code": 418}}
    refused = await server.post(MAPS, config_map())
    assert refused.status == 418
    assert refused.json["message"] == 'admission webhook "hook.example.com" denied the request: bad name'
    assert (await server.post(MAPS, config_map("d"))).status == 201
    asked = webhook.asked[0]
    assert (asked["operation"], asked["kind"]["kind"], asked["namespace"]) == ("CREATE", "ConfigMap", "default")
    assert asked["object"]["data"] == {"a": "b"}


async def test_a_mutating_webhook_changes_and_warns(server: LiveServer, webhook: Webhook) -> None:
    made = webhook.configuration("MutatingWebhookConfiguration")
    assert (await server.post(f"{GROUP}/mutatingwebhookconfigurations", made)).status == 201
    patch = [{"op": "add", "path": "/metadata/labels", "value": {"hooked": "yes"}}]
    encoded = base64.b64encode(msgspec.json.encode(patch)).decode()
    webhook.decide = lambda _: {"allowed": True, "patchType": "JSONPatch", "patch": encoded, "warnings": ["touched"]}
    created = await server.post(MAPS, config_map())
    assert created.json["metadata"]["labels"] == {"hooked": "yes"}
    assert "touched" in created.headers["Warning"]


async def test_a_webhook_behind_a_service_is_reached_at_its_endpoints(server: LiveServer, webhook: Webhook) -> None:
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "hook"},
        "spec": {"ports": [{"name": "https", "port": 443}]},
    }
    slice_ = {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": "hook-1", "namespace": "default", "labels": {"kubernetes.io/service-name": "hook"}},
        "addressType": "IPv4",
        "endpoints": [{"addresses": ["127.0.0.1"]}],
        "ports": [{"name": "https", "port": webhook.port}],
    }
    assert (await server.post("/api/v1/namespaces/default/services", service)).status == 201
    # Loopback is no address of endpoints, so that the server would refuse this one.
    await server.live.server.context.store.create("/registry/endpointslices/default/hook-1", slice_)
    where = {"service": {"namespace": "default", "name": "hook", "path": "/check"}, "caBundle": webhook.bundle}
    made = webhook.configuration("ValidatingWebhookConfiguration", clientConfig=where)
    assert (await server.post(f"{GROUP}/validatingwebhookconfigurations", made)).status == 201
    assert (await server.post(MAPS, config_map())).status == 201
    assert len(webhook.asked) == 1


@pytest.mark.slow
async def test_a_webhook_that_fails_stops_the_request_unless_ignored(server: LiveServer, webhook: Webhook) -> None:
    path = f"{GROUP}/validatingwebhookconfigurations"
    made = webhook.configuration("ValidatingWebhookConfiguration", timeoutSeconds=1)
    assert (await server.post(path, made)).status == 201
    webhook.delay_s = 1.5
    failed = await server.post(MAPS, config_map())
    assert failed.status == 500
    assert failed.json["message"] == (
        'Internal error occurred: failed calling webhook "hook.example.com": failed to call webhook: '
        f'Post "https://127.0.0.1:{webhook.port}/?timeout=1s": context deadline exceeded'
    )
    patch = [{"op": "add", "path": "/webhooks/0/failurePolicy", "value": "Ignore"}]
    assert (await server.patch(f"{path}/hook", patch, "json-patch+json")).status == 200
    webhook.delay_s = 0.0
    webhook.bundle = ""
    webhook.decide = lambda _: {"uid": "another", "allowed": False}
    assert (await server.post(MAPS, config_map())).status == 201


async def test_a_webhook_with_side_effects_is_not_asked_in_a_dry_run(server: LiveServer, webhook: Webhook) -> None:
    made = webhook.configuration("ValidatingWebhookConfiguration", sideEffects="Some")
    # New ones must not have any; those from the days of v1beta1 may.
    assert (await server.post(f"{GROUP}/validatingwebhookconfigurations", made)).status == 422
    await server.live.server.context.store.create("/registry/validatingwebhookconfigurations/hook", made)
    refused = await server.post(f"{MAPS}?dryRun=All", config_map())
    assert refused.status == 400
    assert refused.json["message"] == 'admission webhook "hook.example.com" does not support dry run'
    assert webhook.asked == []


async def test_match_conditions_spare_a_webhook(server: LiveServer, webhook: Webhook) -> None:
    conditions = [{"name": "only-d", "expression": "object.metadata.name == 'd'"}]
    made = webhook.configuration("ValidatingWebhookConfiguration", matchConditions=conditions)
    assert (await server.post(f"{GROUP}/validatingwebhookconfigurations", made)).status == 201
    await server.post(MAPS, config_map())
    await server.post(MAPS, config_map("d"))
    assert [one["name"] for one in webhook.asked] == ["d"]


async def test_a_webhook_that_nobody_answers_for_is_told_with_its_address(server: LiveServer) -> None:
    nobody = Webhook()
    nobody.port = 9
    made = nobody.configuration("ValidatingWebhookConfiguration")
    assert (await server.post(f"{GROUP}/validatingwebhookconfigurations", made)).status == 201
    failed = await server.post(MAPS, config_map())
    told = 'Post "https://127.0.0.1:9/?timeout=10s": dial tcp 127.0.0.1:9: connect: connection refused'
    assert failed.json["message"].endswith(f'failed calling webhook "hook.example.com": failed to call webhook: {told}')


async def test_conditions_of_a_webhook_are_compiled_when_they_are_written(server: LiveServer, webhook: Webhook) -> None:
    conditions = [{"name": "bad", "expression": "object.metadata.name =="}]
    made = webhook.configuration("ValidatingWebhookConfiguration", matchConditions=conditions)
    refused = await server.post(f"{GROUP}/validatingwebhookconfigurations", made)
    assert refused.status == 422
    assert "webhooks[0].matchConditions[0].expression: Invalid value" in refused.json["message"]
    assert "compilation failed: ERROR: <input>:1:24" in refused.json["message"]


async def test_what_a_webhook_patches_is_read_as_what_a_client_sends(server: LiveServer, webhook: Webhook) -> None:
    made = webhook.configuration("MutatingWebhookConfiguration")
    assert (await server.post(f"{GROUP}/mutatingwebhookconfigurations", made)).status == 201
    patch = [{"op": "add", "path": "/nothing", "value": 1}, {"op": "add", "path": "/data/n", "value": None}]
    encoded = base64.b64encode(msgspec.json.encode(patch)).decode()
    webhook.decide = lambda _: {"allowed": True, "patchType": "JSONPatch", "patch": encoded}
    created = await server.post(MAPS, config_map())
    assert (created.status, created.json["data"], "nothing" in created.json) == (201, {"a": "b", "n": ""}, False)
    patch = [{"op": "add", "path": "/data/n", "value": 1}]
    encoded = base64.b64encode(msgspec.json.encode(patch)).decode()
    failed = await server.post(MAPS, config_map("d"))
    assert failed.status == 500
    assert "cannot unmarshal number into Go struct field ConfigMap.data of type string" in failed.json["message"]


async def test_a_webhook_in_a_pod_is_reached_through_the_pods_network(server: LiveServer, webhook: Webhook) -> None:
    service = {"metadata": {"name": "hook"}, "spec": {"ports": [{"name": "https", "port": 8443}]}}
    assert (await server.post("/api/v1/namespaces/default/services", service)).status == 201
    slice_ = {
        "metadata": {"name": "hook-1", "labels": {"kubernetes.io/service-name": "hook"}},
        "addressType": "IPv4",
        "endpoints": [{"addresses": ["10.128.0.5"]}],
        "ports": [{"name": "https", "port": 9443}],
    }
    path = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
    assert (await server.post(path, slice_)).status == 201
    where = {"service": {"namespace": "default", "name": "hook", "port": 8443}, "caBundle": webhook.bundle}
    made = webhook.configuration("ValidatingWebhookConfiguration", clientConfig=where)
    assert (await server.post(f"{GROUP}/validatingwebhookconfigurations", made)).status == 201
    server.live.dialler.pod_network = way = RouteToPods(webhook.port)
    assert (await server.post(MAPS, config_map())).status == 201
    assert (len(webhook.asked), way.dialled) == (1, [("10.128.0.5", 9443)])


async def test_a_certificate_of_somebody_else_is_not_taken(server: LiveServer, webhook: Webhook) -> None:
    where = {"url": f"https://localhost:{webhook.port}/", "caBundle": webhook.bundle}
    made = webhook.configuration("ValidatingWebhookConfiguration", clientConfig=where)
    assert (await server.post(f"{GROUP}/validatingwebhookconfigurations", made)).status == 201
    failed = await server.post(MAPS, config_map())
    assert failed.status == 500
    assert '?timeout=10s": tls: failed to verify certificate: x509: ' in failed.json["message"]
    assert not webhook.asked
