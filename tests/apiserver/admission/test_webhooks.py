"""Admission webhooks: a real one on loopback with a certificate of its own."""

from __future__ import annotations

import asyncio
import base64
import datetime
import ipaddress
import ssl
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import pytest_asyncio
from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from apiserver.live import LiveServer

GROUP = "/apis/admissionregistration.k8s.io/v1"
MAPS = "/api/v1/namespaces/default/configmaps"


class Webhook:
    """A webhook that answers as `decide` says, and remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self.decide: Callable[[dict[str, Any]], dict[str, Any]] = lambda _: {"allowed": True}
        self.delay_s = 0.0
        self.port = 0
        self.bundle = ""

    async def answer(self, request: web.Request) -> web.Response:
        review = msgspec.json.decode(await request.read())
        self.asked.append(review["request"])
        await asyncio.sleep(self.delay_s)
        response = {"uid": review["request"]["uid"], **self.decide(review["request"])}
        body = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}
        return web.Response(body=msgspec.json.encode(body), content_type="application/json")

    def configuration(self, kind: str, **changes: Any) -> dict[str, Any]:
        rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}
        webhook = {
            "name": "hook.example.com",
            "rules": [rule],
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            "clientConfig": {"url": f"https://127.0.0.1:{self.port}/", "caBundle": self.bundle},
            **changes,
        }
        meta = {"name": "hook"}
        return {"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": meta, "webhooks": [webhook]}


def certificate(directory: Path) -> bytes:
    """A certificate for loopback and for a service, with its key, as PEM files."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "hook")])
    now = datetime.datetime.now(datetime.UTC)
    names = [x509.IPAddress(ipaddress.ip_address("127.0.0.1")), x509.DNSName("hook.default.svc")]
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = made.public_bytes(serialization.Encoding.PEM)
    (directory / "hook.crt").write_bytes(pem)
    plain = serialization.NoEncryption()
    form = serialization.PrivateFormat.PKCS8
    (directory / "hook.key").write_bytes(key.private_bytes(serialization.Encoding.PEM, form, plain))
    return pem


@pytest_asyncio.fixture
async def webhook(tmp_path: Path) -> AsyncIterator[Webhook]:
    hook = Webhook()
    hook.bundle = base64.b64encode(certificate(tmp_path)).decode()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(tmp_path / "hook.crt", tmp_path / "hook.key")
    application = web.Application()
    application.router.add_post("/{path:.*}", hook.answer)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
    await site.start()
    hook.port = runner.addresses[0][1]
    yield hook
    await runner.cleanup()


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
    assert failed.json["message"].startswith(
        'Internal error occurred: failed calling webhook "hook.example.com": failed to call webhook: '
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
