"""Load balancers ask a node whether it has endpoints of a Service."""

from __future__ import annotations

import socket
from typing import Any

import aiohttp

from allot.core.network.packet_rules import NodeService, node_service
from allot.node.service_health import ServiceHealth
from allot.process.clock import SystemClock
from ports import free_port
from waiting import until


def service(port: int, *, is_ready: bool) -> NodeService:
    spec = {
        "type": "LoadBalancer",
        "clusterIP": "10.96.0.7",
        "externalTrafficPolicy": "Local",
        "healthCheckNodePort": port,
        "ports": [{"port": 80, "protocol": "TCP"}],
    }
    endpoint = {"addresses": ["10.0.0.1"], "nodeName": "n1", "conditions": {"ready": is_ready}}
    slices = [{"addressType": "IPv4", "endpoints": [endpoint], "ports": [{"port": 8080}]}]
    found = node_service({"metadata": {"name": "web", "namespace": "default"}, "spec": spec}, slices, "n1")
    assert found is not None
    return found


async def test_a_node_answers_by_how_many_endpoints_it_has_that_are_ready() -> None:
    port, told = free_port(), list[tuple[str, str]]()
    health = ServiceHealth("127.0.0.1", SystemClock(), lambda key, text: told.append((key, text)))

    async def asked() -> tuple[int, Any]:
        async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}/") as answer:
            return answer.status, (await answer.json(), answer.headers["X-Load-Balancing-Endpoint-Weight"])

    async def is_refused() -> bool:
        try:
            await asked()
        except aiohttp.ClientConnectionError:
            return True
        return False

    async def serves() -> bool:
        return not await is_refused()

    def said(count: int) -> tuple[int, Any]:
        body = {
            "service": {"namespace": "default", "name": "web"},
            "localEndpoints": count,
            "serviceProxyHealthy": True,
        }
        return 200 if count else 503, (body, str(count))

    try:
        health.update([service(port, is_ready=True)])
        await until(serves, "it listens")
        assert await asked() == said(1)
        health.update([service(port, is_ready=False)])
        assert await asked() == said(0)
        health.update([])
        await until(is_refused, "nobody listens any more")
        with socket.create_server(("127.0.0.1", port)):
            health.update([service(port, is_ready=True)])
            await until(lambda: told, "that the port is taken is told")
        assert told == [("default/web", f"health checks at 127.0.0.1:{port} are not answered: address already in use")]
    finally:
        await health.close()
