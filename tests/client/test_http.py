"""Requests over HTTP: what is repeated, what is not, and what is said when nobody answers."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

import allot.client.http as http_module
from allot.client.api import Client
from allot.client.connection import Connection, Impersonation
from allot.client.errors import (
    ApiError,
    DeadlineExceeded,
    Forbidden,
    NotFound,
    ServerFault,
    TooManyRequests,
    Unauthorized,
    UnexpectedAnswer,
    Unreachable,
)
from allot.client.http import HttpTransport
from allot.client.kubeconfig import load_kubeconfig
from allot.process.clock import SystemClock
from allot.process.ids import CountingIds
from apiserver.live import LiveServer
from client.peer import peer, status_answer

OK = {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "a"}}


class QuickClock(SystemClock):
    """Does not wait, but remembers how long it should have."""

    def __init__(self) -> None:
        super().__init__()
        self.slept: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        await asyncio.sleep(0)


@asynccontextmanager
async def transport_to(connection: Connection, clock: SystemClock | None = None) -> AsyncIterator[HttpTransport]:
    transport = HttpTransport(connection, clock or SystemClock(), CountingIds(), user_agent="test/1")
    try:
        yield transport
    finally:
        await transport.close()


def answering_in_turn(
    *answers: Callable[[], web.StreamResponse],
) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    """The answers one after the other, the last one for good."""
    left = list(answers)

    async def answer(_: web.Request) -> web.StreamResponse:
        return (left.pop(0) if len(left) > 1 else left[0])()

    return answer


def ok() -> web.Response:
    return web.json_response(OK)


async def test_reads_are_repeated_when_the_server_is_busy() -> None:
    clock = QuickClock()
    busy = answering_in_turn(lambda: status_answer(503, "ServiceUnavailable"), lambda: status_answer(429, "x"), ok)
    async with peer(busy) as server, transport_to(server.connection(), clock) as transport:
        assert (await transport.request("GET", "/x")).body == OK
    # Twice as long each time, and spread: the dice of this test always show one half.
    assert clock.slept == [pytest.approx(0.15), pytest.approx(0.3)]


async def test_writes_are_repeated_only_when_the_server_asks_for_it() -> None:
    clock = QuickClock()
    asked = answering_in_turn(lambda: status_answer(429, "TooManyRequests", Retry_After="3"), ok)
    async with peer(asked) as server, transport_to(server.connection(), clock) as transport:
        assert (await transport.request("POST", "/x", body={})).status == 200
        assert clock.slept == [pytest.approx(3.375)]
        server.answering = answering_in_turn(lambda: status_answer(503, "ServiceUnavailable"))
        with pytest.raises(ServerFault) as error:
            await Client(transport).request("POST", "/x", body={})
        assert error.value.code == 503
        assert len(server.requests) == 3


async def test_repetition_ends() -> None:
    clock = QuickClock()
    never = answering_in_turn(lambda: status_answer(429, "TooManyRequests", Retry_After="1"))
    async with peer(never) as server, transport_to(server.connection(), clock) as transport:
        with pytest.raises(TooManyRequests) as error:
            await Client(transport).request("DELETE", "/x")
        assert len(server.requests) == http_module.TRIES_MAX
        assert error.value.retry_after_s == 1.0


async def test_an_answer_that_breaks_off_is_read_again_and_not_written_again() -> None:
    breaks = [True]

    async def answer(request: web.Request) -> web.StreamResponse:
        if not breaks.pop(0):
            return ok()
        response = web.StreamResponse(headers={"Content-Length": "1000", "Content-Type": "application/json"})
        await response.prepare(request)
        await response.write(b'{"kind":')
        assert request.transport is not None
        request.transport.abort()
        return response

    async with peer(answer) as server, transport_to(server.connection(), QuickClock()) as transport:
        breaks[:] = [True, False]
        assert (await transport.request("GET", "/x")).body == OK
        breaks[:] = [True, False]
        with pytest.raises(Unreachable, match=r"broke off|no answer"):
            await transport.request("POST", "/x", body={})
        assert breaks == [False]


async def test_a_server_that_is_away_is_named() -> None:
    async with peer(answering_in_turn(ok)) as server:
        url = server.url
    clock = QuickClock()
    async with transport_to(Connection(server=url, source="kubeconfig f, context 'c'"), clock) as transport:
        with pytest.raises(Unreachable) as error:
            await transport.request("POST", "/x", body={})
    assert str(error.value).startswith(f"POST /x: cannot connect to {url} (kubeconfig f, context 'c'): ")
    # Nothing was sent, so that even a write may be tried again.
    assert len(clock.slept) == http_module.TRIES_MAX - 1


async def test_a_server_whose_name_is_not_known_is_told_in_words() -> None:
    async with transport_to(Connection(server="https://nowhere.invalid:6443"), QuickClock()) as transport:
        with pytest.raises(Unreachable, match=r"cannot connect to \S+: the name nowhere\.invalid is unknown$"):
            await transport.request("GET", "/x")


@pytest.mark.slow
async def test_a_deadline_holds_over_all_tries() -> None:
    async def slow(_: web.Request) -> web.StreamResponse:
        await asyncio.sleep(30)
        return ok()

    async with peer(slow) as server, transport_to(server.connection()) as transport:
        with pytest.raises(DeadlineExceeded, match=r"GET /x: no answer from .* within 0.1 s"):
            await transport.request("GET", "/x", timeout=0.1)
        with pytest.raises(DeadlineExceeded):
            async with transport.stream("/x", timeout=0.1):
                pass
        server.answering = answering_in_turn(
            lambda: status_answer(503, "ServiceUnavailable", "still starting", Retry_After="60")
        )
        with pytest.raises(DeadlineExceeded, match="the last try: still starting"):
            await transport.request("GET", "/x", timeout=0.1)


async def test_what_is_sent() -> None:
    who = Impersonation(user="jane", groups=("a", "b"))
    async with peer(answering_in_turn(ok)) as server:
        connection = server.connection(token="hush", impersonation=who)
        async with transport_to(connection) as transport:
            await transport.request(
                "PATCH", "/a%2Fb", {"labelSelector": "x in (a,b)"}, [1], "application/json-patch+json"
            )
        (request,) = server.requests
    assert request.raw_path == "/a%2Fb?labelSelector=x+in+%28a%2Cb%29"
    assert request.headers["Authorization"] == "Bearer hush"
    assert request.headers["User-Agent"] == "test/1"
    assert request.headers["Content-Type"] == "application/json-patch+json"
    assert request.headers.getall("Impersonate-Group") == ["a", "b"]


@pytest.mark.parametrize("value", ["x\r\nImpersonate-Group: system:masters", "x\ny: z", "x\r", "x\0"])
async def test_a_header_is_one_line(value: str) -> None:
    async with peer(answering_in_turn(ok)) as server:
        async with transport_to(server.connection()) as transport:
            with pytest.raises(ValueError, match="control character"):
                await transport.request("GET", "/x", headers={"X-Given": value})
        with pytest.raises(ValueError, match="control character"):
            async with transport_to(server.connection(impersonation=Impersonation(user=value))):
                pass
        async with transport_to(server.connection(token=value)) as transport:
            with pytest.raises(Unauthorized, match="the token has a control character"):
                await transport.request("GET", "/x")
    assert not server.requests


async def test_a_token_in_a_file_is_read_again_when_it_is_refused(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("old\n")

    async def answer(request: web.Request) -> web.StreamResponse:
        fresh = request.headers["Authorization"] == "Bearer new"
        return ok() if fresh else status_answer(401, "Unauthorized")

    async with peer(answer) as server, transport_to(server.connection(token_file=token)) as transport:
        with pytest.raises(Unauthorized):
            await Client(transport).request("GET", "/x")
        assert len(server.requests) == 1
        token.write_text("new")
        await Client(transport).request("GET", "/x")
        token.unlink()
        await Client(transport).request("GET", "/x")


async def test_warnings_reach_the_user() -> None:
    def warned() -> web.Response:
        answer = ok()
        answer.headers.add("Warning", '299 - "use \\"v1\\" instead"')
        answer.headers.add("Warning", '299 kube "second"')
        answer.headers.add("Warning", "nonsense")
        return answer

    told: list[str] = []
    async with peer(answering_in_turn(warned)) as server, transport_to(server.connection()) as transport:
        await Client(transport, on_warning=told.append).request("GET", "/x")
    assert told == ['use "v1" instead', "second"]


async def test_answers_that_are_no_kubernetes_answers_are_errors() -> None:
    def page() -> web.Response:
        return web.Response(status=404, text="<html>not here</html>", content_type="text/html")

    async with peer(answering_in_turn(page)) as server, transport_to(server.connection()) as transport:
        with pytest.raises(NotFound, match="not here"):
            await Client(transport).request("GET", "/x")
        server.answering = answering_in_turn(lambda: web.Response(text="{", content_type="application/json"))
        with pytest.raises(UnexpectedAnswer, match="the answer is not JSON"):
            await Client(transport).request("GET", "/x")
        server.answering = answering_in_turn(lambda: web.Response(text="[" * 100_000, content_type="application/json"))
        with pytest.raises(UnexpectedAnswer):
            await Client(transport).request("GET", "/x")
        server.answering = answering_in_turn(lambda: web.json_response([]))
        with pytest.raises(UnexpectedAnswer, match="expected an object"):
            await Client(transport).resource("", "v1", "nodes", namespaced=False).get("n")
        server.answering = answering_in_turn(lambda: web.json_response({"items": 5, "metadata": {}}))
        with pytest.raises(UnexpectedAnswer, match="expected a list"):
            await Client(transport).resource("", "v1", "nodes", namespaced=False).list()


async def test_redirects_are_not_followed() -> None:
    moved = answering_in_turn(lambda: web.Response(status=302, headers={"Location": "http://elsewhere.example.com/"}))
    async with peer(moved) as server, transport_to(server.connection(token="hush")) as transport:
        with pytest.raises(ApiError) as error:
            await Client(transport).request("GET", "/x")
        assert error.value.code == 302


def streaming(*chunks: bytes) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        for chunk in chunks:
            await response.write(chunk)
            await asyncio.sleep(0)
        return response

    return answer


async def test_events_are_split_by_lines_wherever_the_network_splits_them() -> None:
    pieces = (
        b'{"type":"ADDED","obj',
        b'ect":{"a":1}}\n\n{"type":"MODIFIED","object":{}}\n{"type":',
        b'"DELETED","object":{}}\n{"cut',
    )
    async with peer(streaming(*pieces)) as server, transport_to(server.connection()) as transport:
        async with transport.stream("/x") as events:
            assert [event.type async for event in events] == ["ADDED", "MODIFIED", "DELETED"]
        assert server.requests[0].query["watch"] == "true"


async def test_a_watch_that_talks_nonsense_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    async with peer(streaming(b'{"type":5}\n')) as server, transport_to(server.connection()) as transport:
        with pytest.raises(UnexpectedAnswer, match="not a watch event"):
            async with transport.stream("/x") as events:
                await anext(events)
        monkeypatch.setattr(http_module, "EVENT_BYTES_MAX", 1000)
        server.answering = streaming(*[b"x" * 400] * 5)
        with pytest.raises(UnexpectedAnswer, match="a watch event has more than"):
            async with transport.stream("/x") as events:
                await anext(events)


async def test_a_watch_does_not_outlive_its_duration() -> None:
    async def silent(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await asyncio.sleep(30)
        return response

    async with peer(silent) as server, transport_to(server.connection()) as transport:
        with pytest.raises(DeadlineExceeded, match=r"the watch did not end within 0.1 s"):
            async with transport.stream("/x", duration=0.1) as events:
                await anext(events)


async def test_an_unknown_authority_is_told_and_can_be_overlooked(server: LiveServer) -> None:
    known = load_kubeconfig([server.kubeconfig]).connection()
    stranger = Connection(server=known.server, source="test")
    async with transport_to(stranger, QuickClock()) as transport:
        with pytest.raises(Unreachable, match="certificate"):
            await transport.request("GET", "/version")
    careless = Connection(server=known.server, source="test", insecure_skip_tls_verify=True)
    async with transport_to(careless) as transport:
        assert (await transport.request("GET", "/livez")).status == 200
        with pytest.raises(Forbidden, match="system:anonymous"):
            await Client(transport).request("GET", "/api/v1/pods")


async def test_the_servers_name_can_be_another_than_its_address(server: LiveServer) -> None:
    known = load_kubeconfig([server.kubeconfig]).connection()
    for name, fits in (("kubernetes.default.svc", True), ("other.example.com", False)):
        connection = Connection(
            server=known.server, source="test", ca_data=known.ca_data, ca_file=known.ca_file, tls_server_name=name
        )
        async with transport_to(connection, QuickClock()) as transport:
            if fits:
                assert (await transport.request("GET", "/livez")).status == 200
            else:
                with pytest.raises(Unreachable, match=r"other.example.com"):
                    await transport.request("GET", "/livez")


async def test_certificates_in_files_are_read_again_when_they_change(server: LiveServer, tmp_path: Path) -> None:
    known = load_kubeconfig([server.kubeconfig]).connection()
    certificate, key = tmp_path / "client.crt", tmp_path / "client.key"
    certificate.write_bytes(known.client_certificate_data or known.client_certificate_file.read_bytes())  # type: ignore[union-attr]
    key.write_bytes(known.client_key_data or known.client_key_file.read_bytes())  # type: ignore[union-attr]
    connection = Connection(
        server=known.server,
        source="test",
        ca_data=known.ca_data,
        ca_file=known.ca_file,
        client_certificate_file=certificate,
        client_key_file=key,
    )
    async with transport_to(connection) as transport:
        await Client(transport).request("GET", "/api/v1/pods")
        key.write_text("half of a rotation")
        await Client(transport).request("GET", "/api/v1/pods")
    async with transport_to(connection) as transport:
        with pytest.raises(Unauthorized, match="test: client certificate: expected a certificate and its key in PEM"):
            await transport.request("GET", "/api/v1/pods")


async def test_a_proxy_is_used() -> None:
    async with peer(answering_in_turn(ok)) as proxy:
        connection = Connection(server="http://cluster.example.com:6443", source="test", proxy_url=proxy.url)
        async with transport_to(connection) as transport:
            assert (await transport.request("GET", "/x")).body == OK
        assert proxy.requests[0].headers["Host"] == "cluster.example.com:6443"


async def test_a_closed_transport_leaves_no_socket_open_of_a_watch_that_was_given_up(server: LiveServer) -> None:
    made: list[socket.socket] = []

    class Kept(socket.socket):
        def __init__(self, *arguments: Any, **named: Any) -> None:
            super().__init__(*arguments, **named)
            # With a descriptor: one that the server, in the same process, has accepted.
            if "fileno" not in named:
                made.append(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket, "socket", Kept)
        known = load_kubeconfig([server.kubeconfig]).connection()
        async with transport_to(known) as transport, transport.stream("/api/v1/namespaces?watch=true") as events:
            await anext(events)
    assert [each.fileno() for each in made if each.type == socket.SOCK_STREAM] == [-1]
