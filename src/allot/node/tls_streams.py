"""One request and its answer over TLS, on the streams of a runtime instead of a socket.

The certificate is not verified: the runtime connects to the right pod, and pods have self-signed certificates.
Nothing secret is sent.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator

from allot.node.runtimes.port import Streams


class TlsFailed(Exception):
    """Why there is no answer."""


async def tls_exchange(streams: Streams, question: bytes, bytes_max: int) -> bytes:
    """The whole answer, until the other side ends; TlsFailed if there is none, or if it is too large."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context.wrap_bio(incoming, outgoing)
    pieces = _pieces(streams)
    try:
        await _handshake(tls, incoming, outgoing, streams, pieces)
        tls.write(question)
        await streams.write(outgoing.read())
        return await _answer(tls, incoming, pieces, bytes_max)
    except ssl.SSLError as error:
        raise TlsFailed(f"no TLS: {error.reason or error}") from error


async def _pieces(streams: Streams) -> AsyncIterator[bytes]:
    async for kind, data in streams.output():
        if kind == 1 and data:
            yield data


async def _handshake(
    tls: ssl.SSLObject, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO, streams: Streams, pieces: AsyncIterator[bytes]
) -> None:
    while True:
        try:
            tls.do_handshake()
        except ssl.SSLWantReadError:
            if outgoing.pending:
                await streams.write(outgoing.read())
            try:
                incoming.write(await anext(pieces))
            except StopAsyncIteration:
                raise TlsFailed("no TLS: the connection ended") from None
        else:
            if outgoing.pending:
                await streams.write(outgoing.read())
            return


async def _answer(tls: ssl.SSLObject, incoming: ssl.MemoryBIO, pieces: AsyncIterator[bytes], bytes_max: int) -> bytes:
    received = bytearray()
    while True:
        try:
            data = tls.read(65536)
        except ssl.SSLWantReadError:
            piece = await anext(pieces, b"")
            if not piece:
                return bytes(received)
            incoming.write(piece)
            continue
        except ssl.SSLZeroReturnError:
            return bytes(received)
        if not data:
            return bytes(received)
        received += data
        if len(received) > bytes_max:
            raise TlsFailed(f"more than {bytes_max} bytes")
