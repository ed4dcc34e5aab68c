"""An agent that tells what the test says, for a server that asks the agents of its nodes for metrics."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from allot.client.api import Client
from allot.http1.requests import Request, Response, serving
from allot.node.serving.certificates import server_context
from allot.process.clock import SystemClock

Object = dict[str, Any]
RESOURCE, PODS = "/metrics/resource", "/metrics/pods"


class ToldAgent:
    """What it answers, by path; processor use of the node goes on at half a core unless something else is told."""

    def __init__(self) -> None:
        self.told: dict[str, Response] = {}
        self.asked: list[str] = []
        self.port = 0
        self._clock = SystemClock()

    async def handle(self, request: Request) -> Response:
        self.asked.append(request.path)
        if request.path in self.told:
            return self.told[request.path]
        if request.path == PODS:
            return Response(b"")
        now = self._clock.seconds()
        text = f"node_cpu_usage_seconds_total {now / 2} {int(now * 1000)}\nnode_memory_working_set_bytes 1048576\n"
        return Response(text.encode())

    def tell(self, path: str, text: str, status: int = 200) -> None:
        """From now on."""
        self.told[path] = Response(text.encode(), status=status)

    async def register(self, client: Client, name: str = "n1") -> None:
        """A node whose agent this is."""
        nodes = client.resource("", "v1", "nodes", namespaced=False)
        await nodes.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {"zone": "a"}}})
        endpoints = {"kubeletEndpoint": {"Port": self.port}}
        status = {"addresses": [{"type": "InternalIP", "address": "127.0.0.1"}], "daemonEndpoints": endpoints}
        found = await nodes.get(name)
        await nodes.update({**found, "status": status}, subresource="status")


@asynccontextmanager
async def told_agent(folder: Path) -> AsyncIterator[ToldAgent]:
    """Until the block ends."""
    agent, clock = ToldAgent(), SystemClock()
    context = server_context(folder, "agent", "127.0.0.1", b"", clock.seconds())
    async with serving(agent.handle, clock, "127.0.0.1", 0, context) as agent.port:
        yield agent


def pod(name: str, node: str = "n1", **labels: str) -> Object:
    """A pod on a node."""
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}
    spec = {"containers": [container], "nodeName": node, "automountServiceAccountToken": False}
    metadata = {"name": name, "namespace": "default", "labels": labels}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
