"""Links in proxied pages lead through the server."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import AsyncIterator

import pytest

from allot.apiserver.proxies.links import can_be_rewritten, led, rewritten
from allot.http1.heads import BadHead

PREFIX = "/api/v1/namespaces/default/pods/p/proxy"


def through(link: str) -> str:
    return led(link, PREFIX, ("10.0.0.1", "10.0.0.1:80"))


@pytest.mark.parametrize(
    ("link", "found"),
    [
        ("/rewriteme", f"{PREFIX}/rewriteme"),
        ("/", f"{PREFIX}/"),
        ("/a?b=c#d", f"{PREFIX}/a?b=c#d"),
        ("http://10.0.0.1/a", f"{PREFIX}/a"),
        ("https://10.0.0.1:80/a", f"{PREFIX}/a"),
        (f"{PREFIX}/a", f"{PREFIX}/a"),
        ("http://example.com/a", "http://example.com/a"),
        ("//example.com/a", "//example.com/a"),
        ("relative/a", "relative/a"),
        ("#part", "#part"),
        ("javascript:alert(1)", "javascript:alert(1)"),
        ("http://[bad/", "http://[bad/"),
    ],
)
def test_links_to_the_root_of_the_same_server(link: str, found: str) -> None:
    assert through(link) == found


async def page(*pieces: bytes, encoding: str = "") -> bytes:
    async def given() -> AsyncIterator[bytes]:
        for piece in pieces:
            yield piece

    return b"".join([piece async for piece in rewritten(given(), encoding, through)])


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('<a href="/rewriteme">test</a>', f'<a href="{PREFIX}/rewriteme">test</a>'),
        ("<A class=x HREF='/a?b=1&amp;c=2' >x</A>", f'<A class=x HREF="{PREFIX}/a?b=1&amp;c=2" >x</A>'),
        ("<img src=/i.png><p href=/no>", f'<img src="{PREFIX}/i.png"><p href=/no>'),
        ('<form action = "/go" title="/no">', f'<form action = "{PREFIX}/go" title="/no">'),
        ("a < b and /c > d", "a < b and /c > d"),
        ("<a href=/", "<a href=/"),
        ("", ""),
    ],
)
async def test_tags_of_a_page(before: str, after: str) -> None:
    assert await page(before.encode()) == after.encode()
    # However the page comes in pieces.
    assert await page(*(before[index : index + 1].encode() for index in range(len(before)))) == after.encode()


async def test_bytes_that_are_no_text_stay_as_they_are() -> None:
    assert await page(b'<a href="/\xff">\xfe\x00') == f'<a href="{PREFIX}/'.encode() + b'\xff">\xfe\x00'


async def test_packed_pages_are_unpacked_a_little_at_a_time() -> None:
    large = b'<a href="/x">' + b" " * 5_000_000
    expected = f'<a href="{PREFIX}/x">'.encode() + b" " * 5_000_000
    assert await page(gzip.compress(large), encoding="gzip") == expected
    assert await page(zlib.compress(large), encoding="deflate") == expected
    with pytest.raises(BadHead, match="malformed gzip"):
        await page(b"rubbish", encoding="gzip")


@pytest.mark.parametrize("start", [b"<a", b"<a ", b'<a href="', b"<a href= ", b"<", b"<aaaa"])
async def test_no_page_takes_longer_than_its_length(start: bytes) -> None:
    # Were anything tried twice, this would take hours.
    many = start * 20_000
    assert await page(many) == many
    assert await page(b"<a" + b" x" * 200_000 + b"<")


def test_what_is_a_page() -> None:
    assert can_be_rewritten("text/html; charset=utf-8", "")
    assert can_be_rewritten("text/html", "GZIP")
    assert not can_be_rewritten("text/html", "br")
    assert not can_be_rewritten("application/json", "")
