"""Heads of requests: what is understood, what is refused, and that nothing else happens."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allot.http1.heads import BadHead, answer_head, first_values, parse_head, parse_query


def test_a_head_says_what_is_asked_and_how() -> None:
    head = parse_head(b"POST /api/v1/pods?a=1&b=%20 HTTP/1.1\r\nHost: x\r\nContent-LENGTH:  12 \r\nX-Empty:")
    assert (head.method, head.path, head.query, head.length) == ("POST", "/api/v1/pods", "a=1&b=%20", 12)
    assert (head.get("host"), head.get("x-empty"), head.get("missing")) == ("x", "", "")
    assert head.has_body
    assert head.keep_alive
    assert not head.chunked


def test_a_head_of_old_may_have_no_headers() -> None:
    assert parse_head(b"GET / HTTP/1.0").headers.items == ()
    assert parse_head(b"GET /a#b HTTP/1.0").path == "/a"


@pytest.mark.parametrize(
    ("target", "path", "query"),
    [
        ("https://example.com:6443/version?x", "/version", "x"),
        ("HTTP://a", "/", ""),
        # Whoever stands between takes the name to end at the question mark too.
        ("http://a?b/c", "/", "b/c"),
        ("http://a#/b", "/", ""),
    ],
)
def test_a_target_may_name_the_server(target: str, path: str, query: str) -> None:
    head = parse_head(f"GET {target} HTTP/1.1\r\nHost: a".encode())
    assert (head.path, head.query) == (path, query)


@pytest.mark.parametrize(
    ("version", "connection", "kept"),
    [("1.1", "", True), ("1.1", "Close", False), ("1.0", "", False), ("1.0", "Keep-Alive", True)],
)
def test_connections_are_kept_as_the_version_says(version: str, connection: str, kept: bool) -> None:
    lines = f"GET / HTTP/{version}\r\nHost: a" + (f"\r\nConnection: {connection}" if connection else "")
    assert parse_head(lines.encode()).keep_alive is kept


def test_headers_of_one_name_are_joined_and_kept_apart() -> None:
    head = parse_head(b"GET / HTTP/1.1\r\nHost: x\r\nImpersonate-Group: a\r\nimpersonate-group: b")
    assert head.get("impersonate-group") == "a, b"
    assert head.headers.items[1:] == (("impersonate-group", "a"), ("impersonate-group", "b"))
    assert head.headers.impersonates


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"GET",
        b"GET /",
        b"GET / HTTP/2.0",
        b"GET / HTTP/1.2",
        b"GET  / HTTP/1.1",
        b"GET / HTTP/1.1 ",
        b"G(T / HTTP/1.1",
        b"GET a/b HTTP/1.1",
        b"GET /a b HTTP/1.1",
        b"GET /\x00 HTTP/1.1",
        b"GET /\xff HTTP/1.1",
        b"CONNECT / HTTP/1.1",
    ],
)
def test_what_is_no_request_line_is_refused(line: bytes) -> None:
    with pytest.raises(BadHead):
        parse_head(line + b"\r\nHost: x")


@pytest.mark.parametrize("host", [b"", b"\r\nHost: a\r\nHost: b"])
def test_one_host_is_named(host: bytes) -> None:
    with pytest.raises(BadHead, match="Host"):
        parse_head(b"GET / HTTP/1.1" + host)


@pytest.mark.parametrize(
    "header",
    [
        b"no colon",
        b": no name",
        b"space : x",
        b"a: b\r\n folded",
        b"a: b\nc: d",
        b"a: b\rc: d",
        b"a: \x00",
        b"Content-Length: -1",
        b"Content-Length: +1",
        b"Content-Length: 1 2",
        b"Content-Length: \xd9\xa1",
        # Blanks of other scripts are no blanks, and the sign for Kelvin is no K.
        "Content-Length: 1\u00a0".encode(),
        "Transfer-Encoding: chunked\u2003".encode(),
        "Transfer-Encoding: chun\u212aed".encode(),
        b"Content-Length: 9999999999999999",
        b"Content-Length: 1\r\nContent-Length: 1",
        b"Content-Length: 1\r\nTransfer-Encoding: chunked",
        b"Transfer-Encoding: gzip, chunked",
        b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
    ],
)
def test_what_could_be_read_in_two_ways_is_refused(header: bytes) -> None:
    # Twice: the second time from memory.
    for _ in range(2):
        with pytest.raises(BadHead):
            parse_head(b"POST / HTTP/1.1\r\nHost: x\r\n" + header)


def test_chunks_came_with_the_newer_version() -> None:
    with pytest.raises(BadHead, match=r"HTTP/1\.0"):
        parse_head(b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked")


@given(st.binary(max_size=200))
def test_any_bytes_are_a_head_or_are_refused(data: bytes) -> None:
    for each in (data, b"GET / HTTP/1.1\r\nHost: x\r\n" + data):
        try:
            head = parse_head(each)
        except BadHead:
            continue
        assert head.path.startswith("/")
        assert all("\n" not in value and "\r" not in value for _, value in head.headers.items)


def test_the_first_value_of_a_parameter_counts() -> None:
    pairs = parse_query("a=1&a=2&b=&c&d=%2F+x")
    assert pairs == (("a", "1"), ("a", "2"), ("b", ""), ("c", ""), ("d", "/ x"))
    assert first_values(pairs) == {"a": "1", "b": "", "c": "", "d": "/ x"}


def test_an_answer_has_one_line_per_header() -> None:
    assert answer_head(404, {"A": "b"}, length=3, closes=True) == (
        b"HTTP/1.1 404 Not Found\r\nA: b\r\nContent-Length: 3\r\nConnection: close\r\n\r\n"
    )
    with pytest.raises(ValueError, match="more than one line"):
        answer_head(200, {"A": "b\r\nSet-Cookie: c"})
