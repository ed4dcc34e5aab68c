"""A real HTTP peer for tests: what it answers is up to the test, so that it can misbehave as servers and networks do."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from aiohttp import web

from allot.client.connection import Connection

Answering = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Peer:
    """A server on a loopback port. `answering` can be exchanged at any time."""

    def __init__(self, answering: Answering) -> None:
        self.answering = answering
        self.requests: list[web.Request] = []
        self.url = ""

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(request)
        return await self.answering(request)

    def connection(self, **more: object) -> Connection:
        return Connection(server=self.url, source="test", **more)  # type: ignore[arg-type]


@asynccontextmanager
async def peer(answering: Answering, *, context: ssl.SSLContext | None = None) -> AsyncIterator[Peer]:
    made = Peer(answering)
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", made.handle)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
    await site.start()
    port = runner.addresses[0][1]
    made.url = f"{'https' if context else 'http'}://127.0.0.1:{port}"
    try:
        yield made
    finally:
        await runner.cleanup()


def status_answer(code: int, reason: str, message: str = "", **headers: str) -> web.Response:
    body = {"kind": "Status", "apiVersion": "v1", "reason": reason, "message": message or reason, "code": code}
    return web.json_response(
        body, status=code, headers={name.replace("_", "-"): text for name, text in headers.items()}
    )
