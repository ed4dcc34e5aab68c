"""The guard's HTTPS server, with a certificate that the process creates and replaces in time.

Keys never leave the process. A new certificate is published before it is used (`bundle`).
"""

from __future__ import annotations

import ssl
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

from allot.http1.connections import BodyTooLarge, Connection, Limits
from allot.http1.heads import Head, HttpError
from allot.http1.listener import Listener
from allot.http1.requests import TEXT, answering
from allot.http1.self_signed import SelfSigned, self_signed
from allot.process.clock import Clock

PATH = "/validate"
# Twice the request limit of an API server, because a review contains the old and the new object.
_BODY_BYTES_MAX = 8 * 1024 * 1024
_CONNECTIONS_MAX = 4096
# Fractions of a certificate's lifetime: when the next one is created, and how long API servers have to pick it up.
_RENEWED_AT = 2 / 3
_TOLD_AHEAD = 1 / 10
_TOLD_AHEAD_MAX_S = 60.0

Review = Callable[[bytes], Awaitable[bytes]]


class ServingCertificates:
    """The certificate in use, and the next one while it is being published."""

    def __init__(self, names: Sequence[str], clock: Clock, validity_s: float, client_ca: bytes = b"") -> None:
        """client_ca: PEM; if given, clients must present a certificate of this authority."""
        self._names = names
        self._clock = clock
        self._validity_s = validity_s
        self._pairs: tuple[SelfSigned, ...] = (self._make(),)
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        self.context.set_alpn_protocols(["http/1.1"])
        if client_ca:
            self.context.load_verify_locations(cadata=client_ca.decode())
            self.context.verify_mode = ssl.CERT_REQUIRED
        self._use(self._pairs[0])

    @property
    def bundle(self) -> bytes:
        """The trusted certificates, as PEM."""
        return b"".join(pair.certificate for pair in self._pairs)

    async def keep_renewed(self, publish: Callable[[], Awaitable[None]]) -> None:
        """Replace the certificate in time, until cancelled. publish: publishes `bundle`, retrying until that succeeds."""
        while True:
            await self._clock.sleep(self._validity_s * _RENEWED_AT)
            before, new = self._pairs[-1], self._make()
            self._pairs = (before, new)
            await publish()
            await self._clock.sleep(min(self._validity_s * _TOLD_AHEAD, _TOLD_AHEAD_MAX_S))
            self._use(new)
            self._pairs = (new,)
            await publish()

    def _make(self) -> SelfSigned:
        return self_signed("allot-guard", self._names, self._clock.seconds(), timedelta(seconds=self._validity_s))

    def _use(self, pair: SelfSigned) -> None:
        """Use it for new connections. OpenSSL reads only files: a private one that is deleted at once."""
        with tempfile.TemporaryDirectory(prefix="allot-guard-") as folder:
            file = Path(folder) / "pair.pem"
            file.touch(mode=0o600)
            file.write_bytes(pair.key + pair.certificate)
            self.context.load_cert_chain(file)


@asynccontextmanager
async def serving_reviews(
    review: Review, clock: Clock, host: str, port: int, context: ssl.SSLContext
) -> AsyncIterator[int]:
    """Serve until the block ends; yields the port. OSError if it is not available."""

    async def answer(connection: Connection, head: Head) -> bool:
        return await _answer(connection, head, review)

    limits = Limits(connections=_CONNECTIONS_MAX)
    async with Listener(answering(answer), clock, limits).listening(host, port, context) as bound:
        yield bound


async def _answer(connection: Connection, head: Head, review: Review) -> bool:
    """True when the response is complete."""
    try:
        if head.path != PATH:
            raise HttpError(404, f"404 page not found: reviews are posted to {PATH}")
        if head.method != "POST":
            raise HttpError(405, "method not allowed")
        body = await connection.body(_BODY_BYTES_MAX)
        await connection.answer(200, {"Content-Type": "application/json"}, await review(body))
    except BodyTooLarge:
        await connection.answer(413, {"Content-Type": TEXT}, b"the review is too large")
    except HttpError as error:
        await connection.answer(error.code, {"Content-Type": TEXT}, str(error).encode(errors="replace"))
    except (ConnectionError, TimeoutError):
        connection.abort()
    return True
