"""Services of the agent on sockets, for programs of its own user."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

import grpc

from allot.process.owner_only import owner_only

STOP_GRACE_S = 1.0


@asynccontextmanager
async def serving(
    path: Path, handlers: Iterable[grpc.GenericRpcHandler], *, calls_max: int | None = None
) -> AsyncIterator[None]:
    """Serve on a socket. Replaces one that an earlier agent left. calls_max: how many calls are handled at a time; the others are refused."""
    path.unlink(missing_ok=True)
    server = grpc.aio.server(maximum_concurrent_rpcs=calls_max)
    server.add_generic_rpc_handlers(tuple(handlers))
    with owner_only():
        server.add_insecure_port(f"unix:{path}")
    await server.start()
    try:
        yield
    finally:
        await server.stop(STOP_GRACE_S)
        path.unlink(missing_ok=True)
