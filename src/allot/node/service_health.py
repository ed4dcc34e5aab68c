"""Health check node ports of Services (`spec.healthCheckNodePort`): load balancers ask each node there whether it has endpoints.

Only nodes with a ready endpoint serve a Service with `externalTrafficPolicy: Local`. The answers are kube-proxy's.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Iterable

import msgspec

from allot.core.network.packet_rules import NodeService
from allot.http1.requests import Request, Response, serving
from allot.process.clock import Clock

_log = logging.getLogger("allot.node")

_CONNECTIONS_MAX = 64
_RETRY_S = 5.0


class ServiceHealth:
    """Answers at an address of the node. tell: receives key and text for a Service whose port is not available."""

    def __init__(self, address: str, clock: Clock, tell: Callable[[str, str], None]) -> None:
        self._address = address
        self._clock = clock
        self._tell = tell
        # By service and port.
        self._tasks: dict[tuple[str, int], asyncio.Task[None]] = {}
        self._ready: dict[str, int] = {}

    def update(self, services: Iterable[NodeService]) -> None:
        """Set all Services."""
        checked = [each for each in services if each.health_port]
        self._ready = {each.routes.key: each.ready_here for each in checked}
        wanted = {(each.routes.key, each.health_port) for each in checked}
        for place in [each for each in self._tasks if each not in wanted]:
            self._tasks.pop(place).cancel()
        for key, port in sorted(wanted - self._tasks.keys()):
            self._tasks[key, port] = asyncio.get_running_loop().create_task(self._serve(key, port))

    async def close(self) -> None:
        """Stop answering."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        self._tasks.clear()

    async def _serve(self, key: str, port: int) -> None:
        namespace, _, name = key.partition("/")

        async def answer(_: Request) -> Response:
            count = self._ready.get(key, 0)
            body = {
                "service": {"namespace": namespace, "name": name},
                "localEndpoints": count,
                "serviceProxyHealthy": True,
            }
            headers = {"X-Content-Type-Options": "nosniff", "X-Load-Balancing-Endpoint-Weight": str(count)}
            return Response(msgspec.json.encode(body), "application/json", 200 if count else 503, headers)

        while True:
            try:
                async with serving(answer, self._clock, self._address, port, connections=_CONNECTIONS_MAX):
                    await asyncio.Event().wait()
            except OSError as error:
                told = os.strerror(error.errno).lower() if error.errno else str(error)
                text = f"health checks at {self._address}:{port} are not answered: {told}"
                _log.warning("service %s: %s", key, text)
                self._tell(key, text)
            # The current user of the port may release it.
            await self._clock.sleep(_RETRY_S)
