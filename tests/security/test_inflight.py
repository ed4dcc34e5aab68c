"""Nobody takes the whole server: requests in flight are limited for each user, and everything is given back."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from allot.apiserver.access.certificates import KeyPair
from security.servers import Answer, Server, allot_server
from waiting import wait_for

# So few that a test can take all of them: a user alone gets half.
SEATS = 8
READERS, WRITERS = "/api/v1/namespaces/default/pods", "/api/v1/namespaces/default/configmaps"
ALL_OF_A_BODY = 1000


@pytest.fixture(scope="module")
def small_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with few seats."""
    limits = ("--max-requests-inflight", str(SEATS), "--max-mutating-requests-inflight", str(SEATS))
    with allot_server(tmp_path_factory.mktemp("seats"), limits) as started:
        yield started


def half_a_write(server: Server, who: KeyPair, length: int = ALL_OF_A_BODY) -> ssl.SSLSocket:
    """A write whose sender takes its time; it has its seat when this returns."""
    connection = server.connect(who)
    head = f"POST {WRITERS} HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
    # The server asks for the body when the request has its seat.
    connection.sendall(f"{head}Content-Length: {length}\r\nExpect: 100-continue\r\n\r\n".encode())
    told = connection.recv(1024)
    assert told.startswith(b"HTTP/1.1 100 "), told
    return connection


def finished(connection: ssl.SSLSocket, name: str) -> bytes:
    """The answer to such a write when the rest of it is sent."""
    body = b'{"metadata":{"name":"%b"}}' % name.encode()
    connection.sendall(body + b" " * (ALL_OF_A_BODY - len(body)))
    return connection.recv(65536)


def write(server: Server, who: KeyPair | str, name: str) -> Answer:
    """A write at once."""
    return server.send("POST", f"{WRITERS}?dryRun=All", {"metadata": {"name": name}}, who=who)


def until_served(server: Server, who: KeyPair) -> None:
    """Wait until the server has noticed that seats are free again."""
    wait_for("free seats", lambda: write(server, who, "again").status == 201)


@pytest.mark.slow
def test_a_user_gets_half_of_the_seats_and_others_are_served(small_server: Server) -> None:
    server = small_server
    greedy, modest = server.grant("greedy", "default"), server.grant("modest", "default")
    with ExitStack() as open_:
        held = [open_.enter_context(half_a_write(server, greedy)) for _ in range(SEATS // 2)]
        refused = write(server, greedy, "one-more")
        assert refused.status == 429
        assert refused.headers["Retry-After"] == "1"
        assert refused.value["reason"] == "TooManyRequests"
        assert refused.value["details"] == {"retryAfterSeconds": 1}
        assert f"{SEATS // 2} requests that write of this user are in flight, of {SEATS}" in refused.message
        # Others find room, reading has seats of its own, and some have no limits.
        assert write(server, modest, "modest").status == 201
        assert server.send("GET", READERS, who=greedy).status == 200
        assert write(server, "admin", "admin").status == 201
        assert server.send("GET", "/readyz", who=greedy).status == 200
        # What was begun is finished, and its seat is free again.
        assert finished(held[0], "finished").startswith(b"HTTP/1.1 201 ")
        assert write(server, greedy, "at-last").status == 201


@pytest.mark.slow
def test_seats_come_back_when_clients_leave_or_send_nonsense(small_server: Server) -> None:
    server = small_server
    leaving = server.grant("leaving", "default")
    for _ in range(3):
        held = [half_a_write(server, leaving) for _ in range(SEATS // 2)]
        assert write(server, leaving, "refused").status == 429
        for connection in held[1:]:
            connection.close()
        held[0].sendall(b"x" * ALL_OF_A_BODY)
        assert held[0].recv(1024).startswith(b"HTTP/1.1 400 ")
        held[0].close()
        until_served(server, leaving)


@pytest.mark.slow
def test_watches_need_no_seat(small_server: Server) -> None:
    server = small_server
    watching = server.grant("watching", "default", "view")
    with ExitStack() as open_:
        for _ in range(3 * SEATS):
            connection = open_.enter_context(server.connect(watching))
            connection.sendall(f"GET {READERS}?watch=true HTTP/1.1\r\nHost: a\r\n\r\n".encode())
            assert connection.recv(1024).startswith(b"HTTP/1.1 200 ")
        assert server.send("GET", READERS, who=watching).status == 200


@pytest.mark.slow
def test_slow_senders_of_large_bodies_leave_room_for_others(server: Server) -> None:
    slow, other = server.grant("slow-sender", "default"), server.grant("other-sender", "default")
    body_max, room = 3 * 1024 * 1024, 64 * 1024 * 1024
    with ExitStack() as open_:
        # One more than half: the last was granted while as much was free.
        for _ in range(room // 2 // body_max + 1):
            open_.enter_context(half_a_write(server, slow, body_max))
        with server.connect(slow) as connection:
            head = f"POST {WRITERS} HTTP/1.1\r\nHost: a\r\nContent-Length: {body_max}\r\nExpect: 100-continue\r\n\r\n"
            connection.sendall(head.encode())
            assert connection.recv(1024).startswith(b"HTTP/1.1 429 ")
        open_.enter_context(half_a_write(server, other, body_max))


@pytest.mark.slow
def test_impersonating_somebody_takes_their_seats(small_server: Server) -> None:
    server = small_server
    named = server.grant("named", "default")
    with ExitStack() as open_:
        for _ in range(SEATS // 2):
            open_.enter_context(half_a_write(server, named))
        refused = server.send(
            "POST", f"{WRITERS}?dryRun=All", {"metadata": {"name": "a"}}, headers={"Impersonate-User": "named"}
        )
        assert refused.status == 429
