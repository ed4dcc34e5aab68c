"""Rewrites links in proxied pages: absolute paths of the page's server are redirected through the API server.

A page is rewritten while streaming, tag by tag, with Kubernetes' list of attributes, and not otherwise parsed: what looks
like a tag inside a script counts as one, and a tag ends with the first bracket.
"""

from __future__ import annotations

import html
import re
import zlib
from collections.abc import AsyncIterator, Callable
from urllib.parse import urlsplit

from allot.http1.heads import BadHead

_TAG_BYTES_MAX = 64 * 1024
# One tag: its name, and the rest up to the first bracket. Nothing is tried twice: pages are written by others.
_TAG = re.compile(rb"<([A-Za-z][A-Za-z0-9]*+)([^<>]*+)>")
_ATTRIBUTE = re.compile(rb"""(\s)([A-Za-z-]++)(\s*+=\s*+)("[^"]*+"|'[^']*+'|[^\s"']++)""")
_LINKS = {
    b"a": (b"href",),
    b"applet": (b"codebase",),
    b"area": (b"href",),
    b"audio": (b"src",),
    b"base": (b"href",),
    b"blockquote": (b"cite",),
    b"body": (b"background",),
    b"button": (b"formaction",),
    b"command": (b"icon",),
    b"del": (b"cite",),
    b"embed": (b"src",),
    b"form": (b"action",),
    b"frame": (b"longdesc", b"src"),
    b"head": (b"profile",),
    b"html": (b"manifest",),
    b"iframe": (b"longdesc", b"src"),
    b"img": (b"longdesc", b"src", b"usemap"),
    b"input": (b"src", b"usemap", b"formaction"),
    b"ins": (b"cite",),
    b"link": (b"href",),
    b"object": (b"classid", b"codebase", b"data", b"usemap"),
    b"q": (b"cite",),
    b"script": (b"src",),
    b"source": (b"src",),
    b"video": (b"poster", b"src"),
}
# Encodings that can be unpacked here: gzip and zlib.
_UNPACKING = {"gzip": 31, "deflate": 15}


def led(link: str, prefix: str, hosts: tuple[str, ...]) -> str:
    """A link through the server: with another path if it is absolute on the page's own server, otherwise unchanged."""
    try:
        pieces = urlsplit(link)
    except ValueError:
        return link
    if pieces.scheme not in ("", "http", "https") or pieces.netloc not in ("", *hosts):
        return link
    if not pieces.path.startswith("/"):
        return link
    path = pieces.path if pieces.path.startswith(f"{prefix}/") else prefix + pieces.path
    return pieces._replace(scheme="", netloc="", path=path).geturl()


def can_be_rewritten(media_type: str, encoding: str) -> bool:
    """Whether an answer is a page whose links can be found."""
    kind = media_type.partition(";")[0].strip().lower()
    return kind == "text/html" and encoding.strip().lower() in ("", "identity", *_UNPACKING)


async def rewritten(pieces: AsyncIterator[bytes], encoding: str, lead: Callable[[str], str]) -> AsyncIterator[bytes]:
    """An unpacked page with rewritten links. lead: maps a link to its replacement."""
    held = b""
    async for piece in _unpacked(pieces, encoding.strip().lower()):
        held += piece
        # Up to the last tag that has not ended yet.
        cut = held.rfind(b"<")
        if cut < 0 or b">" in held[cut:] or len(held) - cut > _TAG_BYTES_MAX:
            cut = len(held)
        if cut:
            yield _with_links(held[:cut], lead)
            held = held[cut:]
    if held:
        yield _with_links(held, lead)


async def _unpacked(pieces: AsyncIterator[bytes], encoding: str) -> AsyncIterator[bytes]:
    window = _UNPACKING.get(encoding)
    if window is None:
        async for piece in pieces:
            yield piece
        return
    unpacking = zlib.decompressobj(window)
    try:
        async for piece in pieces:
            waiting = piece
            # A little at a time: a few bytes can stand for very many.
            while waiting:
                yield unpacking.decompress(waiting, _TAG_BYTES_MAX)
                waiting = unpacking.unconsumed_tail
        yield unpacking.flush()
    except zlib.error as error:
        raise BadHead(502, f"malformed {encoding}") from error


def _with_links(page: bytes, lead: Callable[[str], str]) -> bytes:
    return _TAG.sub(lambda tag: _with_attributes(tag, lead), page)


def _with_attributes(tag: re.Match[bytes], lead: Callable[[str], str]) -> bytes:
    names = _LINKS.get(tag[1].lower())
    if names is None:
        return tag[0]

    def changed(attribute: re.Match[bytes]) -> bytes:
        if attribute[2].lower() not in names:
            return attribute[0]
        value = attribute[4].strip(b"\"'").decode("utf-8", "surrogateescape")
        link = html.unescape(value)
        found = lead(link)
        if found == link:
            return attribute[0]
        shown = html.escape(found).encode("utf-8", "surrogateescape")
        return attribute[1] + attribute[2] + attribute[3] + b'"' + shown + b'"'

    return b"<" + tag[1] + _ATTRIBUTE.sub(changed, tag[2]) + b">"
