"""Requests for the groups of extension API servers: what reaches them, in whose name, and what never does."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import pytest
from cryptography import x509

from allot.apiserver.serving.seats import SeatLimits, Seats
from allot.http1.connections import Connection
from allot.http1.heads import Head
from apiserver.aggregation.extension_fixture import FLUNDERS, GROUP, VERSION, sample
from apiserver.live import LiveServer
from waiting import until

JSON = {"Content-Type": "application/json"}
ALL = {"apiGroups": [GROUP], "resources": ["*"], "verbs": ["*"]}


async def allow(server: LiveServer, user: str) -> None:
    rbac = "/apis/rbac.authorization.k8s.io/v1"
    assert (await server.post(f"{rbac}/clusterroles", {"metadata": {"name": "f"}, "rules": [ALL]})).status == 201
    bound = {
        "metadata": {"name": "f"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "f"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
    }
    assert (await server.post(f"{rbac}/clusterrolebindings", bound)).status == 201


@asynccontextmanager
async def connected(server: LiveServer) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A bare connection of the administrator."""
    host, port = server.url.removeprefix("https://").split(":")
    certificates = server.live.access.certificates
    context = ssl.create_default_context(cadata=server.ca.decode())
    context.load_cert_chain(certificates.directory / "admin.crt", certificates.directory / "admin.key")
    reader, writer = await asyncio.open_connection(host, int(port), ssl=context)
    try:
        yield reader, writer
    finally:
        writer.close()
        await writer.wait_closed()


async def test_a_request_arrives_in_the_name_of_its_user_and_with_nothing_that_the_user_claims(
    server: LiveServer,
) -> None:
    claimed = {
        "X-Remote-User": "admin",
        "x-remote-group": "system:masters",
        "X-Remote-Extra-Scopes": "all",
        "X-Remote-Uid": "0",
        "X-Forwarded-For": "192.0.2.9",
        "Cookie": "a=b",
        "Authorization": "Bearer nothing",
        "Connection": "keep-alive, X-Remote-User, Audit-Id",
        "Content-Type": "application/json",
        "Accept": "application/json;as=Table",
    }
    async with sample(server) as extension:
        await allow(server, "ann e@example.com")
        async with server.as_user("ann e@example.com", "team:a", "b") as session:
            answer = await server.post(
                f"{FLUNDERS}?fieldManager=m%2Fn&dryRun=All", {"a": 1}, headers=claimed, session=session
            )
        (asked,) = extension.requests
        proxy = asked.certificate
    assert (answer.status, answer.json["kind"]) == (200, "FlunderList")
    assert (asked.method, asked.path, asked.body) == ("POST", FLUNDERS, b'{"a":1}')
    assert asked.query == "fieldManager=m%2Fn&dryRun=All"
    assert asked.all("x-remote-user") == ["ann e@example.com"]
    assert asked.all("x-remote-group") == ["team:a", "b", "system:authenticated"]
    assert [name for name, _ in asked.headers if name.startswith("x-remote-extra-")] == [
        "x-remote-extra-authentication.kubernetes.io%2fcredential-id"
    ]
    for name in ("x-remote-uid", "cookie", "authorization", "x-remote-extra-scopes"):
        assert not asked.all(name)
    assert asked.all("x-forwarded-for") == ["127.0.0.1"]
    assert asked.all("audit-id") == [answer.headers["Audit-Id"]]
    assert asked.all("accept") == ["application/json;as=Table"]
    assert proxy is not None
    assert x509.load_der_x509_certificate(proxy).subject.rfc4514_string() == "CN=front-proxy-client"


async def test_who_may_not_is_refused_before_anything_is_dialled(server: LiveServer) -> None:
    async with sample(server) as extension, server.as_user("mallory") as session:
        answer = await server.get(FLUNDERS, session=session)
        assert (answer.status, answer.json["reason"]) == (403, "Forbidden")
        assert 'flunders.wardle.example.com is forbidden: User "mallory" cannot list' in answer.json["message"]
        impersonating = {"Impersonate-User": "system:admin"}
        assert (await server.get(FLUNDERS, session=session, headers=impersonating)).status == 403
        assert not extension.requests


async def test_who_is_impersonated_is_who_asks(server: LiveServer) -> None:
    async with sample(server) as extension:
        await allow(server, "bob")
        headers = {"Impersonate-User": "bob", "Impersonate-Group": "g", "Impersonate-Extra-a%2fB": "c"}
        assert (await server.get(FLUNDERS, headers=headers)).status == 200
        (asked,) = extension.requests
    assert asked.all("x-remote-user") == ["bob"]
    assert asked.all("x-remote-group") == ["g", "system:authenticated"]
    assert asked.all("x-remote-extra-a%2fb") == ["c"]
    assert not [name for name, _ in asked.headers if name.startswith("impersonate-")]


@pytest.mark.parametrize(
    ("sent", "arrives"),
    [
        (f"//apis//{GROUP}/{VERSION}/flunders", f"/apis/{GROUP}/{VERSION}/flunders"),
        (f"/apis/{GROUP}/{VERSION}/flunders/a%20b", f"/apis/{GROUP}/{VERSION}/flunders/a%20b"),
        (f"/apis/{GROUP}/{VERSION}/flunders/a%2Fb", ""),
        (f"/apis/{GROUP}/{VERSION}/flunders/%2e%2e/secrets", ""),
        (f"/apis/{GROUP}/{VERSION}/flunders/a%0d%0aX-Remote-User:%20admin", ""),
        (f"/apis/{GROUP}/{VERSION}/../v1/flunders", ""),
    ],
)
async def test_the_path_that_was_authorized_is_the_one_that_arrives(
    server: LiveServer, sent: str, arrives: str
) -> None:
    async with sample(server) as extension:
        async with connected(server) as (reader, writer):
            writer.write(f"GET {sent} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            head = await reader.readuntil(b"\r\n\r\n")
        assert [each.path for each in extension.requests] == ([arrives] if arrives else [])
        assert head.startswith(b"HTTP/1.1 200" if arrives else b"HTTP/1.1 400")


async def test_a_watch_arrives_event_by_event_and_ends_with_its_client(server: LiveServer) -> None:
    more, gone = asyncio.Event(), asyncio.Event()

    async def watch(connection: Connection, _: Head) -> None:
        stream = await connection.start_stream(200, JSON)
        await stream.write(b'{"type":"ADDED","object":{"n":1}}\n')
        await more.wait()
        await stream.write(b'{"type":"ADDED","object":{"n":2}}\n')
        await connection.ending.wait()
        gone.set()

    async with sample(server) as extension:
        extension.answer = watch
        async with server.watch(f"{FLUNDERS}?watch=true") as events:
            assert (await anext(events))["object"] == {"n": 1}
            more.set()
            assert (await anext(events))["object"] == {"n": 2}
        await until(gone.is_set, "the end of the watch at the extension server")


async def test_a_websocket_is_passed_through(server: LiveServer) -> None:
    async def echo(connection: Connection, head: Head) -> None:
        assert head.get("upgrade") == "SPDY/3.1"
        await connection.upgrade("SPDY/3.1", {"X-Stream-Protocol-Version": "v4.channel.k8s.io"})
        await connection.write(b"echo " + await connection.read())

    async with sample(server) as extension:
        extension.answer = echo
        path = f"{FLUNDERS}/f1/console"
        async with connected(server) as (reader, writer):
            head = f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n"
            writer.write(head.encode())
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101")
            writer.write(b"hello")
            assert await reader.readexactly(10) == b"echo hello"
        (asked,) = extension.requests
        assert asked.all("x-remote-user") == ["kubernetes-admin"]


@pytest.mark.parametrize("status", [301, 307])
async def test_nobody_is_sent_elsewhere(server: LiveServer, status: int) -> None:
    async def redirect(connection: Connection, _: Head) -> None:
        await connection.answer(status, {"Location": "https://192.0.2.1/api/v1/secrets"}, b"")

    async with sample(server) as extension:
        extension.answer = redirect
        answer = await server.get(FLUNDERS)
    assert answer.status == 502
    assert answer.raw == b"the backend attempted to redirect this request, which is not permitted\n"
    assert "Location" not in answer.headers


async def test_what_the_server_warns_of_arrives_and_what_it_may_not_set_does_not(server: LiveServer) -> None:
    async def answer(connection: Connection, _: Head) -> None:
        headers = {
            "Warning": '299 - "careful"',
            "Set-Cookie": "a=b",
            "Access-Control-Allow-Origin": "*",
            "Audit-Id": "x",
        }
        await connection.answer(409, {**JSON, **headers}, b'{"kind":"Status","code":409}')

    async with sample(server) as extension:
        extension.answer = answer
        found = await server.get(FLUNDERS)
    assert (found.status, found.json["kind"], found.headers["Warning"]) == (409, "Status", '299 - "careful"')
    assert found.headers["Audit-Id"] != "x"
    assert not {"Set-Cookie", "Access-Control-Allow-Origin"} & set(found.headers)


async def test_a_server_that_breaks_off_is_unavailable_as_text(server: LiveServer) -> None:
    """Clients take a Status for an answer of the API; upstream answers with text."""

    async def leave(connection: Connection, _: Head) -> None:
        connection.abort()

    async with sample(server) as extension:
        extension.answer = leave
        answer = await server.get(FLUNDERS)
        assert (answer.status, answer.headers["Content-Type"]) == (503, "text/plain; charset=utf-8")
        extension.route.port = 1
        answer = await server.get(FLUNDERS)
        assert (answer.status, answer.raw) == (503, b"dial tcp 10.128.0.5:443: connect: connection refused\n")
        assert (
            b'apiserver_request_terminations_total{code="503",component="aggregator"'
            in (await server.get("/metrics")).raw
        )


async def test_large_bodies_are_refused(server: LiveServer) -> None:
    async with sample(server) as extension:
        answer = await server.post(FLUNDERS, b"x" * (3 * 1024 * 1024 + 1))
        assert answer.status == 413
        assert not extension.requests


async def test_a_server_that_does_not_answer_keeps_nobody_else_from_being_served(server: LiveServer) -> None:
    """The seats of its requests are its own."""
    held = asyncio.Event()

    async def wait(connection: Connection, _: Head) -> None:
        await held.wait()
        await connection.answer(200, JSON, b"{}")

    async with sample(server) as extension:
        extension.answer = wait
        await allow(server, "bob")
        extensions = server.live.server.context.extensions
        found = extensions.find(GROUP, VERSION) if extensions is not None else None
        assert found is not None
        found.seats = Seats(SeatLimits(max_requests_inflight=2))
        async with server.as_user("bob") as session, asyncio.TaskGroup() as tasks:
            asked = tasks.create_task(server.get(FLUNDERS, session=session))
            await until(lambda: extension.requests)
            assert (await server.get(FLUNDERS, session=session)).status == 429
            assert (await server.get("/api", session=session)).status == 200
            held.set()
        assert asked.result().status == 200


async def test_a_client_certificate_does_not_make_a_front_proxy(server: LiveServer) -> None:
    """Who claims to be somebody is who the certificate says; only the front proxy may name others."""
    review = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    claimed = {"X-Remote-User": "admin", "X-Remote-Group": "system:masters", "X-Remote-Extra-A%2Fb": "c"}
    async with server.as_user("front-proxy-client") as session:
        answer = await server.post(review, body, headers=claimed, session=session)
        assert answer.json["status"]["userInfo"]["username"] == "front-proxy-client"
    async with server.as_nobody() as session:
        assert (await server.get("/api/v1/pods", headers=claimed, session=session)).status == 403
    _, path = server.live.access.certificates.front_proxy()
    context = ssl.create_default_context(cadata=server.ca.decode())
    context.load_cert_chain(f"{path}.crt", f"{path}.key")
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context)) as session:
        answer = await server.post(review, body, headers=claimed, session=session)
        told = answer.json["status"]["userInfo"]
        assert told == {
            "username": "admin",
            "groups": ["system:masters", "system:authenticated"],
            "extra": {"a/b": ["c"]},
        }
        assert (await server.post(review, body, session=session)).status == 401
