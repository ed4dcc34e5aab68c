"""Heads of requests: what is understood, what is refused, and that nothing else happens."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allot.process.heads import BadHead, answer_head, first_values, parse_head, parse_query


def test_a_head_says_what_is_asked_and_how() -> None:
    head = parse_head(b"POST /api/v1/pods?a=1&b=%20 HTTP/1.1\r\nHost: x\r\nContent-LENGTH:  12 \r\nX-Empty:")
    assert (head.method, head.path, head.query, head.length) == ("POST", "/api/v1/pods", "a=1&b=%20", 12)
    assert (head.get("host"), head.get("x-empty"), head.get("missing")) == ("x", "", "")
    assert head.has_body
    assert head.keep_alive
    assert not head.chunked


def test_a_head_may_have_no_headers_and_name_the_server() -> None:
    assert parse_head(b"GET / HTTP/1.1").headers.items == ()
    assert parse_head(b"GET https://example.com:6443/version?x HTTP/1.1\r\nHost: a").path == "/version"
    assert parse_head(b"GET /a#b HTTP/1.1").path == "/a"


@pytest.mark.parametrize(
    ("version", "connection", "kept"),
    [("1.1", "", True), ("1.1", "Close", False), ("1.0", "", False), ("1.0", "Keep-Alive", True)],
)
def test_connections_are_kept_as_the_version_says(version: str, connection: str, kept: bool) -> None:
    lines = f"GET / HTTP/{version}" + (f"\r\nConnection: {connection}" if connection else "")
    assert parse_head(lines.encode()).keep_alive is kept


def test_headers_of_one_name_are_joined_and_kept_apart() -> None:
    head = parse_head(b"GET / HTTP/1.1\r\nImpersonate-Group: a\r\nimpersonate-group: b")
    assert head.get("impersonate-group") == "a, b"
    assert head.headers.items == (("impersonate-group", "a"), ("impersonate-group", "b"))
    assert head.headers.impersonates


@pytest.mark.parametrize(
    "head",
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
        b"GET / HTTP/1.1\r\nno colon",
        b"GET / HTTP/1.1\r\n: no name",
        b"GET / HTTP/1.1\r\nspace : x",
        b"GET / HTTP/1.1\r\na: b\r\n folded",
        b"GET / HTTP/1.1\r\na: b\nc: d",
        b"GET / HTTP/1.1\r\na: b\rc: d",
        b"GET / HTTP/1.1\r\na: \x00",
        b"GET / HTTP/1.1\r\nContent-Length: -1",
        b"GET / HTTP/1.1\r\nContent-Length: +1",
        b"GET / HTTP/1.1\r\nContent-Length: 1 2",
        b"GET / HTTP/1.1\r\nContent-Length: \xd9\xa1",
        b"GET / HTTP/1.1\r\nContent-Length: 9999999999999999",
        b"GET / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 1",
        b"GET / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked",
        b"GET / HTTP/1.1\r\nTransfer-Encoding: gzip, chunked",
        b"GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
    ],
)
def test_what_could_be_read_in_two_ways_is_refused(head: bytes) -> None:
    # Twice: the second time from memory.
    for _ in range(2):
        with pytest.raises(BadHead):
            parse_head(head)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_head_or_are_refused(data: bytes) -> None:
    for each in (data, b"GET / HTTP/1.1\r\n" + data):
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
