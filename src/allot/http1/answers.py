"""Reads the answer to a single request on a connection, for proxies and protocol upgrades.

As strict as `heads` about where an answer ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from allot.http1.heads import BadHead, Headers, chunk_size, parse_answer_head

PIECE_BYTES = 64 * 1024
# Interim answers, such as 100 and 103.
_INFORMATIONAL_MAX = 5
_TRAILERS_MAX = 100


async def read_head(reader: asyncio.StreamReader) -> tuple[int, Headers]:
    """Status and headers of the answer; BadHead, IncompleteReadError or LimitOverrunError if it has none."""
    status, received = 0, Headers(())
    for _ in range(_INFORMATIONAL_MAX):
        status, received = parse_answer_head((await reader.readuntil(b"\r\n\r\n")).removesuffix(b"\r\n\r\n"))
        if status == 101 or status >= 200:
            break
    return status, received


async def read_body(reader: asyncio.StreamReader, received: Headers) -> AsyncIterator[bytes]:
    """The body in pieces; BadHead or IncompleteReadError if it is incomplete."""
    if received.chunked:
        # Some servers pad the line with blanks.
        while size := chunk_size((await reader.readuntil(b"\r\n"))[:-2].rstrip(b" \t")):
            async for piece in _exactly(reader, size):
                yield piece
            if await reader.readexactly(2) != b"\r\n":
                raise BadHead(502, "malformed chunk")
        for _ in range(_TRAILERS_MAX):
            if await reader.readuntil(b"\r\n") == b"\r\n":
                return
        raise BadHead(502, "too many trailers")
    if received.get("content-length"):
        async for piece in _exactly(reader, received.length):
            yield piece
        return
    while data := await reader.read(PIECE_BYTES):
        yield data


async def _exactly(reader: asyncio.StreamReader, length: int) -> AsyncIterator[bytes]:
    while length > 0:
        data = await reader.read(min(PIECE_BYTES, length))
        if not data:
            raise asyncio.IncompleteReadError(b"", length)
        length -= len(data)
        yield data
