"""Health and metrics endpoints: /healthz, /livez, /readyz and /metrics. Plain HTTP, as the kubelet's probes
and Prometheus expect.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from prometheus_client import CollectorRegistry

from allot.http1.heads import HttpError
from allot.http1.requests import Request, Response, serving
from allot.process.clock import Clock
from allot.process.metrics import CONTENT_TYPE, render

_CONNECTIONS_MAX = 256

# What is wrong; empty if nothing is.
Check = Callable[[], Awaitable[str]]


async def runs() -> str:
    """A process that can answer is healthy."""
    return ""


@asynccontextmanager
async def serving_health(
    address: str,
    port: int,
    registry: CollectorRegistry,
    clock: Clock,
    check: Check = runs,
    *,
    ready: Check = runs,
) -> AsyncIterator[str]:
    """Serve until the block ends; yields the URL, empty if the port is -1. OSError if the port is not available. ready: an additional
    check for /readyz."""
    if port < 0:
        yield ""
        return

    async def answer(request: Request) -> Response:
        if request.path not in ("/healthz", "/livez", "/readyz", "/metrics"):
            raise HttpError(404, "404 page not found")
        if request.method not in ("GET", "HEAD"):
            raise HttpError(405, "method not allowed")
        if request.path == "/metrics":
            return Response(render(registry), CONTENT_TYPE)
        problem = await check() or (await ready() if request.path == "/readyz" else "")
        return Response((problem or "ok").encode(), status=503 if problem else 200)

    async with serving(answer, clock, address, port, connections=_CONNECTIONS_MAX) as bound:
        yield f"http://[{address}]:{bound}" if ":" in address else f"http://{address}:{bound}"
