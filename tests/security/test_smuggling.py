"""One request must not be two to anybody: what is ambiguous about where a request ends is refused, and the connection with it.

The second request in each case is one that must not be answered.
"""

from __future__ import annotations

from urllib.parse import quote

import pytest

from security.servers import ADMIN_TOKEN, Both

pytestmark = pytest.mark.slow

SMUGGLED = f"GET /api/v1/secrets?smuggled HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {ADMIN_TOKEN}\r\n\r\n"
HOST = "Host: x\r\n"


def post(headers: str, body: str = "") -> str:
    return f"POST /version HTTP/1.1\r\n{HOST}{headers}\r\n{body}"


def get(line: str = "GET /version HTTP/1.1", headers: str = "") -> str:
    return f"{line}\r\n{HOST}{headers}\r\n"


AMBIGUOUS = {
    "length and chunks": post("Content-Length: 4\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n"),
    "chunks and length": post("Transfer-Encoding: chunked\r\nContent-Length: 4\r\n", "0\r\n\r\n"),
    "two lengths": post("Content-Length: 0\r\nContent-Length: 100\r\n"),
    "two equal lengths in one": post("Content-Length: 0, 100\r\n"),
    "a length with a sign": post("Content-Length: +0\r\n"),
    "a negative length": post("Content-Length: -1\r\n"),
    "a length in hexadecimal": post("Content-Length: 0x0\r\n"),
    "a length with a blank inside": post("Content-Length: 1 0\r\n"),
    "a length of other digits": post("Content-Length: \u0661\r\n"),
    "a length without end": post("Content-Length: 99999999999999999999999\r\n"),
    "another coding": post("Transfer-Encoding: gzip\r\n"),
    "two codings": post("Transfer-Encoding: gzip, chunked\r\n", "0\r\n\r\n"),
    "chunks twice": post("Transfer-Encoding: chunked, chunked\r\n", "0\r\n\r\n"),
    "a coding with a tab": post("Transfer-Encoding: \x0bchunked\r\n", "0\r\n\r\n"),
    "a coding of another name": post("Transfer-Encoding: xchunked\r\n", "0\r\n\r\n"),
    "two lines of codings": post("Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n", "0\r\n\r\n"),
    "a blank before the colon": post("Content-Length : 4\r\n", "0\r\n\r\n"),
    "a line that goes on": get(headers="X-A: b\r\n Content-Length: 100\r\n"),
    "a NUL in a value": get(headers="X-A: b\x00c\r\n"),
    "a NUL in a name": get(headers="X\x00A: b\r\n"),
    "a line end in a value": get(headers="X-A: b\rContent-Length: 100\r\n"),
    "no name": get(headers=": b\r\n"),
    "no colon": get(headers="nonsense\r\n"),
    "two blanks in the line": get("GET  /version HTTP/1.1"),
    "no version": get("GET /version"),
    "another version": get("GET /version HTTP/1.9x"),
    "a tab in the line": get("GET\t/version\tHTTP/1.1"),
    "no path": get("GET version HTTP/1.1"),
    "a method with brackets": get("G(T /version HTTP/1.1"),
}


# kube-apiserver reads these: chunks win over a length, and a line that begins with a blank belongs to the one before.
READ_BY_GO = ("length and chunks", "chunks and length", "a line that goes on")


@pytest.mark.parametrize("told", AMBIGUOUS)
def test_an_ambiguous_request_is_refused_and_nothing_after_it_is_read(both: Both, told: str) -> None:
    for server in (both.allot,) if told in READ_BY_GO else both.every:
        said = server.raw((AMBIGUOUS[told] + SMUGGLED).encode())
        assert said.startswith((b"HTTP/1.1 400 ", b"HTTP/1.1 501 ", b"HTTP/1.1 431 ")), (server.name, said[:200])
        assert said.count(b"HTTP/1.1 ") == 1, (server.name, said)


BODIES = {
    "a chunk longer than it says": "1\r\nab\r\n0\r\n\r\n",
    "a size with a sign": "+1\r\na\r\n0\r\n\r\n",
    "a size that is no number": "x\r\na\r\n0\r\n\r\n",
    "a size with a prefix": "0x1\r\na\r\n0\r\n\r\n",
    "a size without end": "fffffffffffffffff\r\na\r\n0\r\n\r\n",
    "no size": "\r\na\r\n0\r\n\r\n",
    "a negative size": "-1\r\na\r\n0\r\n\r\n",
}


@pytest.mark.parametrize("told", BODIES)
def test_a_body_in_broken_chunks_ends_the_connection(both: Both, told: str) -> None:
    head = "POST /api/v1/namespaces HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    request = f"{head}Authorization: Bearer {ADMIN_TOKEN}\r\nTransfer-Encoding: chunked\r\n\r\n{BODIES[told]}{SMUGGLED}"
    for server in both.every:
        said = server.raw(request.encode())
        # kube-apiserver takes it for a fault of its own.
        assert said[9:12] == (b"400" if server is both.allot else b"500"), (server.name, said[:200])
        assert said.count(b"HTTP/1.1 ") == 1, (server.name, said)


def test_lines_that_end_with_a_line_feed_alone_are_no_head(both: Both) -> None:
    # kube-apiserver reads them; two readers that differ here see two different requests.
    request = f"GET /version HTTP/1.1\nHost: x\nConnection: close\n\n{SMUGGLED}"
    said = both.allot.raw(request.encode())
    assert said.startswith(b"HTTP/1.1 400 ")
    assert said.count(b"HTTP/1.1 ") == 1


def test_a_body_that_nobody_wants_is_no_request(both: Both) -> None:
    # The body of a refused request is the smuggled one.
    head = f"POST /api/v1/namespaces HTTP/1.1\r\nHost: x\r\nContent-Length: {len(SMUGGLED)}\r\n\r\n"
    after = "GET /version HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    for server in both.every:
        said = server.raw((head + SMUGGLED + after).encode())
        assert said.startswith(b"HTTP/1.1 403 ")
        assert b"secrets" not in said
        assert said.count(b"HTTP/1.1 ") <= 2


def test_two_requests_in_one_packet_have_two_users(both: Both) -> None:
    first = f"GET /api HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {ADMIN_TOKEN}\r\n\r\n"
    second = "GET /api HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    for server in both.every:
        said = server.raw((first + second).encode())
        assert said.startswith(b"HTTP/1.1 200 ")
        assert said.count(b"HTTP/1.1 403 ") == 1


@pytest.mark.parametrize(
    ("path", "statuses"),
    [
        # Segments that mean other segments are refused before anybody looks where they lead.
        ("/api/v1/namespaces/default/../kube-system/secrets", (400, 403)),
        ("/api/v1/namespaces/default/%2e%2e/kube-system/secrets", (400, 403)),
        ("/api/v1/namespaces/default%2f..%2fkube-system/secrets", (400, 403)),
        ("/healthz/../api/v1/secrets", (400, 403)),
        ("/healthz/..%2fapi/v1/secrets", (400, 403)),
        ("/version%2f..%2fapi/v1/secrets", (400, 403)),
        ("/api/v1/secrets%00", (400, 403)),
        ("/./healthz", (400, 403)),
        ("//api/v1/secrets", (403, 403)),
        ("/healthz;/api/v1/secrets", (403, 403)),
        ("/API/v1/secrets", (403, 403)),
        ("http://x/api/v1/secrets", (403, 403)),
    ],
)
def test_paths_lead_nobody_around_authorization(both: Both, path: str, statuses: tuple[int, int]) -> None:
    request = f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode()
    for server, status in zip(both.every, statuses, strict=False):
        assert server.raw(request).startswith(b"HTTP/1.1 %d " % status), server.name


@pytest.mark.parametrize("value", ["a\r\nX-Injected: b", "a\nX-Injected: b", "a%0d%0aX-Injected: b", "\u2028"])
def test_nothing_that_is_asked_becomes_a_header_of_the_answer(both: Both, value: str) -> None:
    for path in (
        f"/api/v1/namespaces/{quote(value, safe='')}",
        f"/api/v1/namespaces?fieldManager={quote(value, safe='')}&fieldValidation={quote(value, safe='')}",
        f"/apis/{quote(value, safe='')}/v1/x",
    ):
        request = f"GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {ADMIN_TOKEN}\r\nConnection: close\r\n\r\n"
        for server in both.every:
            head, _, _ = server.raw(request.encode()).partition(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 ")
            assert b"x-injected" not in head.lower()


def test_a_head_without_end_is_refused(both: Both) -> None:
    said = both.allot.raw(b"GET /version HTTP/1.1\r\nHost: x\r\n" + b"X-A: %s\r\n" % (b"a" * 1000) * 100 + b"\r\n")
    assert said.startswith(b"HTTP/1.1 431 ")
