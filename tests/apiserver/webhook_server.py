"""A real webhook on loopback, with a certificate of its own."""

from __future__ import annotations

import asyncio
import base64
import datetime
import ipaddress
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


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
        body = {"apiVersion": review["apiVersion"], "kind": review["kind"], "response": response}
        return web.Response(body=msgspec.json.encode(body), content_type="application/json")

    def patching(self, request: dict[str, Any], label: str, value: object) -> dict[str, Any]:
        """An answer that sets a label."""
        labels = {**(request["object"]["metadata"].get("labels") or {}), label: str(value)}
        patch = [{"op": "add", "path": "/metadata/labels", "value": labels}]
        encoded = base64.b64encode(msgspec.json.encode(patch)).decode()
        return {"allowed": True, "patchType": "JSONPatch", "patch": encoded}

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


@asynccontextmanager
async def webhook_server(directory: Path) -> AsyncIterator[Webhook]:
    """The webhook, for as long as the block runs."""
    hook = Webhook()
    hook.bundle = base64.b64encode(certificate(directory)).decode()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(directory / "hook.crt", directory / "hook.key")
    application = web.Application()
    application.router.add_post("/{path:.*}", hook.answer)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
    await site.start()
    hook.port = runner.addresses[0][1]
    yield hook
    await runner.cleanup()
