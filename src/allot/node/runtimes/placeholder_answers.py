"""The HTTP answers of placeholders on their ports, which name the pod. One request per connection."""

from __future__ import annotations

import asyncio
import socket
from http import HTTPStatus

import msgspec

from allot.http1.heads import BadHead, parse_head

_HEAD_BYTES_MAX = 32 * 1024
_PATIENCE_S = 10.0
_REST_BYTES_MAX = 1024 * 1024
_JSON = "application/json"
_METRICS = "/metrics"


class PlaceholderFacts(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a placeholder says about itself."""

    placeholder: str
    namespace: str
    pod: str
    node: str
    container: str
    image: str
    port: int
    devices: tuple[str, ...] = ()

    def text(self) -> str:
        """The human-readable answer."""
        lines = [
            self.placeholder,
            f"pod: {self.namespace}/{self.pod}",
            f"node: {self.node}",
            f"container: {self.container}",
            f"image: {self.image}",
            f"port: {self.port}",
            f"devices: {', '.join(self.devices) or 'none'}",
        ]
        return "".join(f"{each}\n" for each in lines)


async def answer_once(connection: socket.socket, facts: PlaceholderFacts) -> None:
    """Read a request, answer it, disconnect."""
    reader, writer = await asyncio.open_connection(sock=connection, limit=_HEAD_BYTES_MAX)
    try:
        async with asyncio.timeout(_PATIENCE_S):
            writer.write(_answer((await reader.readuntil(b"\r\n\r\n")).removesuffix(b"\r\n\r\n"), facts))
            await writer.drain()
            if writer.can_write_eof():
                writer.write_eof()
            # Unread input must not cause the answer to be lost.
            left = _REST_BYTES_MAX
            while left > 0 and (piece := await reader.read(64 * 1024)):
                left -= len(piece)
    except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        pass  # the client has gone
    finally:
        writer.close()


def _answer(head: bytes, facts: PlaceholderFacts) -> bytes:
    try:
        asked = parse_head(head)
    except BadHead as error:
        return _message(error.code, "text/plain; charset=utf-8", f"{error}\n".encode(), with_body=True)
    kind, body = "text/plain; charset=utf-8", facts.text().encode()
    if asked.path == _METRICS:
        # A valid scrape, without metrics.
        kind, body = "text/plain; version=0.0.4", b"".join(b"# " + line + b"\n" for line in body.splitlines())
    elif _JSON in asked.get("accept"):
        kind, body = _JSON, msgspec.json.encode(facts) + b"\n"
    return _message(200, kind, body, with_body=asked.method != "HEAD")


def _message(status: int, kind: str, body: bytes, *, with_body: bool) -> bytes:
    word = HTTPStatus(status).phrase
    head = (
        f"HTTP/1.1 {status} {word}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
        "Connection: close\r\nServer: allot-placeholder\r\n\r\n"
    )
    return head.encode() + (body if with_body else b"")
