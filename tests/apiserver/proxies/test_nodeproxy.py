"""Logs, exec and port-forward reach the node's own endpoint; a small real HTTPS server plays the node."""

from __future__ import annotations

import asyncio
import base64
import shutil
import ssl
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import msgspec
import pytest
from aiohttp import web

from apiserver.live import LiveServer
from apiserver.webhook_server import Webhook
from waiting import WAIT_S


@asynccontextmanager
async def node_endpoint(server: LiveServer) -> AsyncIterator[tuple[int, list[str]]]:
    """A server that plays the kubelet; its port, and the paths that were asked."""
    asked: list[str] = []

    async def logs(request: web.Request) -> web.StreamResponse:
        asked.append(request.path_qs)
        if "previous" in request.query:
            return web.Response(status=400, text='previous terminated container "main" in pod "p1" not found')
        return web.Response(text="hello from the node\n")

    async def run(request: web.Request) -> web.StreamResponse:
        asked.append(request.path_qs)
        socket = web.WebSocketResponse(protocols=("v5.channel.k8s.io",))
        await socket.prepare(request)
        async for message in socket:
            await socket.send_bytes(b"\x01echo " + message.data)
            if message.data == b"end":
                break
        await socket.close()
        return socket

    application = web.Application()
    application.router.add_get("/containerLogs/{rest:.*}", logs)
    application.router.add_get("/exec/{rest:.*}", run)
    directory = server.live.access.certificates.directory
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(directory / "server.crt", directory / "server.key")
    runner = web.AppRunner(application, shutdown_timeout=1.0)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
    await site.start()
    try:
        yield runner.addresses[0][1], asked
    finally:
        await runner.cleanup()


async def add_pod(server: LiveServer, port: int | None, *containers: str) -> None:
    status: dict[str, Any] = {"addresses": [{"type": "InternalIP", "address": "127.0.0.1"}]}
    if port is not None:
        status["daemonEndpoints"] = {"kubeletEndpoint": {"Port": port}}
    node = {"metadata": {"name": "n1"}, "status": status}
    assert (await server.post("/api/v1/nodes", node)).status == 201
    pod = {
        "metadata": {"name": "p1"},
        "spec": {"containers": [{"name": name, "image": "x"} for name in containers or ("main",)]},
    }
    assert (await server.post("/api/v1/namespaces/default/pods", pod)).status == 201
    binding = {"metadata": {"name": "p1"}, "target": {"kind": "Node", "name": "n1"}}
    assert (await server.post("/api/v1/namespaces/default/pods/p1/binding", binding)).status == 201


LOG = "/api/v1/namespaces/default/pods/p1/log"


async def test_logs_come_from_the_node(server: LiveServer) -> None:
    async with node_endpoint(server) as (port, asked):
        await add_pod(server, port)
        answer = await server.get(f"{LOG}?tailLines=5&bogus=1")
    assert (answer.status, answer.raw) == (200, b"hello from the node\n")
    assert asked == ["/containerLogs/default/p1/main?tailLines=5"]


async def test_why_there_is_no_log_is_told_in_the_words_of_the_node(server: LiveServer) -> None:
    async with node_endpoint(server) as (port, _):
        await add_pod(server, port)
        answer = await server.get(f"{LOG}?previous=true")
    assert (answer.status, answer.json["kind"], answer.json["reason"]) == (400, "Status", "BadRequest")
    assert answer.json["message"] == 'previous terminated container "main" in pod "p1" not found'


async def test_a_websocket_is_passed_through_to_the_node(server: LiveServer) -> None:
    async with node_endpoint(server) as (port, asked):
        await add_pod(server, port)
        url = f"{server.url}/api/v1/namespaces/default/pods/p1/exec?command=sh&command=-c&stdin=true&stdout=true&tty=false"
        async with server.session.ws_connect(url, protocols=("v5.channel.k8s.io",)) as socket:
            await socket.send_bytes(b"one")
            assert await socket.receive_bytes() == b"\x01echo one"
            await socket.send_bytes(b"end")
            assert await socket.receive_bytes() == b"\x01echo end"
            assert (await socket.receive()).type in (aiohttp.WSMsgType.CLOSE, aiohttp.WSMsgType.CLOSED)
    assert asked == ["/exec/default/p1/main?input=1&output=1&command=sh&command=-c"]


async def test_any_other_protocol_is_passed_through_unread(server: LiveServer) -> None:
    """Older kubectls speak SPDY."""
    heads: list[bytes] = []

    async def node(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\nhello")
        while data := await reader.read(100):
            writer.write(data.upper())
        writer.close()

    directory = server.live.access.certificates.directory
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(directory / "server.crt", directory / "server.key")
    async with await asyncio.start_server(node, "127.0.0.1", 0, ssl=tls) as listening:
        await add_pod(server, listening.sockets[0].getsockname()[1])
        context = ssl.create_default_context(cadata=server.ca.decode())
        context.load_cert_chain(directory / "admin.crt", directory / "admin.key")
        reader, writer = await asyncio.open_connection("127.0.0.1", server.live.port, ssl=context)
        path = "/api/v1/namespaces/default/pods/p1/exec?command=sh&stdout=1"
        head = (
            f"POST {path} HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\nContent-Length: 0\r\n\r\n"
        )
        writer.write(head.encode())
        async with asyncio.timeout(WAIT_S):
            answer = await reader.readuntil(b"hello")
            assert answer.startswith(b"HTTP/1.1 101 ")
            writer.write(b"\x00\x01abc")
            assert await reader.readexactly(5) == b"\x00\x01ABC"
        writer.close()
    # The node is asked for its metrics, too, at any time.
    (head,) = [each for each in heads if b" /metrics/" not in each]
    assert head.startswith(b"POST /exec/default/p1/main?output=1&command=sh HTTP/1.1\r\n")
    assert b"Upgrade: SPDY/3.1" in head


async def test_a_node_without_endpoint_gives_a_clear_error(server: LiveServer) -> None:
    await add_pod(server, None)
    answer = await server.get(LOG)
    assert answer.status == 503
    assert 'node "n1" has no endpoint to connect to' in answer.json["message"]


async def test_a_node_that_cannot_be_reached_gives_a_clear_error(server: LiveServer) -> None:
    await add_pod(server, 1)
    answer = await server.get(LOG)
    assert answer.status == 503
    assert "error dialing backend: 127.0.0.1:1" in answer.json["message"]


async def test_the_container_has_to_be_named_when_there_are_several(server: LiveServer) -> None:
    await add_pod(server, 1, "a", "b")
    answer = await server.get(LOG)
    assert answer.status == 400
    assert answer.json["message"] == "a container name must be specified for pod p1, choose one of: [a b]"
    answer = await server.get(f"{LOG}?container=c")
    assert answer.json["message"] == "container c is not valid for pod p1"


async def test_a_pod_without_node_has_no_logs_yet_and_cannot_run_commands(server: LiveServer) -> None:
    pod = {"metadata": {"name": "p1"}, "spec": {"containers": [{"name": "main", "image": "x"}]}}
    await server.post("/api/v1/namespaces/default/pods", pod)
    answer = await server.get(LOG)
    assert (answer.status, answer.raw) == (204, b"")
    answer = await server.post("/api/v1/namespaces/default/pods/p1/exec?command=sh", None)
    assert (answer.status, answer.json["message"]) == (400, "pod p1 does not have a host assigned")


@pytest.mark.slow
async def test_kubectl_shows_logs(server: LiveServer) -> None:
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("kubectl is not on the PATH")
    async with node_endpoint(server) as (port, _):
        await add_pod(server, port)
        process = await asyncio.create_subprocess_exec(
            kubectl, "--kubeconfig", str(server.kubeconfig), "logs", "p1", stdout=subprocess.PIPE
        )
        out, _ = await asyncio.wait_for(process.communicate(), WAIT_S)
    assert out == b"hello from the node\n"


# --- logs by WebSocket ---


async def test_logs_come_as_messages_of_a_websocket(server: LiveServer) -> None:
    whole = b"hello from the node\n"
    cases: tuple[tuple[tuple[str, ...], bytes | str], ...] = (
        ((), whole),
        (("binary.k8s.io",), whole),
        (("other", "base64.binary.k8s.io"), base64.b64encode(whole).decode()),
    )
    async with node_endpoint(server) as (port, asked):
        await add_pod(server, port)
        for protocols, heard in cases:
            async with server.session.ws_connect(server.url + LOG, protocols=protocols) as socket:
                assert socket.protocol == (protocols[-1] if protocols else None)
                assert (await socket.receive()).data == b""
                assert (await socket.receive()).data == heard
                assert (await socket.receive()).type is aiohttp.WSMsgType.CLOSE
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await server.session.ws_connect(server.url + LOG, protocols=("v4.channel.k8s.io",))
        assert refused.value.status == 400
    assert set(asked) == {"/containerLogs/default/p1/main"}


# --- admission ---

REGISTRATION = "/apis/admissionregistration.k8s.io/v1"
EXEC = "/api/v1/namespaces/default/pods/p1/exec?command=sh&command=-c&stdin=true&stdout=true&tty=false"


def connections(webhook: Webhook, kind: str) -> dict[str, Any]:
    parts = [f"pods/{part}" for part in ("attach", "exec", "portforward", "proxy")]
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CONNECT"], "resources": parts}
    return webhook.configuration(kind, rules=[rule])


async def test_connections_pass_webhooks_and_policies(server: LiveServer, webhook: Webhook) -> None:
    made = connections(webhook, "ValidatingWebhookConfiguration")
    assert (await server.post(f"{REGISTRATION}/validatingwebhookconfigurations", made)).status == 201
    webhook.decide = lambda _: {"allowed": False, "status": {"message": "attaching to the pod is not allowed"}}
    async with node_endpoint(server) as (port, asked):
        await add_pod(server, port)
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await server.session.ws_connect(server.url + EXEC)
        assert refused.value.status == 403
        request = webhook.asked[0]
        assert (request["operation"], request["subResource"], request["name"]) == ("CONNECT", "exec", "p1")
        assert request["kind"] == {"group": "", "version": "v1", "kind": "PodExecOptions"}
        assert request["object"] == {
            "kind": "PodExecOptions",
            "apiVersion": "v1",
            "stdin": True,
            "stdout": True,
            "command": ["sh", "-c"],
        }
        answer = await server.get("/api/v1/namespaces/default/pods/p1:80/proxy/a/b")
        assert (answer.status, answer.json["message"].rpartition(": ")[2]) == (
            403,
            "attaching to the pod is not allowed",
        )
        assert webhook.asked[-1]["object"] == {"kind": "PodProxyOptions", "apiVersion": "v1", "path": "/a/b"}
        assert not asked
        # Logs are read.
        assert (await server.get(LOG)).status == 200


async def test_a_webhook_changes_what_is_run(server: LiveServer, webhook: Webhook) -> None:
    made = connections(webhook, "MutatingWebhookConfiguration")
    assert (await server.post(f"{REGISTRATION}/mutatingwebhookconfigurations", made)).status == 201
    patch = [{"op": "replace", "path": "/command/1", "value": "-x"}, {"op": "remove", "path": "/stdin"}]
    encoded = base64.b64encode(msgspec.json.encode(patch)).decode()
    webhook.decide = lambda _: {"allowed": True, "patchType": "JSONPatch", "patch": encoded}
    async with node_endpoint(server) as (port, asked):
        await add_pod(server, port)
        async with server.session.ws_connect(server.url + EXEC, protocols=("v5.channel.k8s.io",)) as socket:
            await socket.send_bytes(b"end")
            assert await socket.receive_bytes() == b"\x01echo end"
    assert asked == ["/exec/default/p1/main?output=1&command=sh&command=-x"]
