"""Clients of a real API server, over HTTP and in process."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from allot.apiserver.access.certificates import ADMIN
from allot.apiserver.errors import StatusError
from allot.apiserver.request import ApiRequest, User
from allot.client.api import Client
from allot.client.http import HttpTransport
from allot.client.inprocess import Answer, InProcessTransport, PlainRequest
from allot.client.kubeconfig import load_kubeconfig
from allot.client.transport import Transport
from allot.process.clock import SystemClock
from allot.process.ids import SystemIds
from allot.store.memory import MemoryStore
from apiserver.live import LiveServer, live_server


@pytest_asyncio.fixture
async def server(tmp_path: Path) -> AsyncIterator[LiveServer]:
    """Our API server, in memory."""
    async with live_server(tmp_path, MemoryStore()) as live:
        yield live


def http_transport(server: LiveServer) -> HttpTransport:
    """The administrator's transport, by the kubeconfig that the server has written."""
    connection = load_kubeconfig([server.kubeconfig], must_exist=True).connection()
    return HttpTransport(connection, SystemClock(), SystemIds())


def in_process_transport(server: LiveServer, user: User | None = None) -> InProcessTransport:
    """The same without sockets, as a composition root makes it."""
    admin = user or User(ADMIN.name, groups=(*ADMIN.groups, "system:authenticated"))

    async def handle(request: PlainRequest) -> Answer:
        return await server.live.server.handle(
            ApiRequest(
                user=admin,
                verb=request.verb,
                group=request.group,
                version=request.version,
                resource=request.resource,
                namespace=request.namespace,
                name=request.name,
                subresource=request.subresource,
                query=request.query,
                body=request.body,
                content_type=request.content_type,
                user_agent=request.user_agent,
            )
        )

    return InProcessTransport(handle, StatusError)


@pytest_asyncio.fixture(params=["http", "in process"])
async def client(request: pytest.FixtureRequest, server: LiveServer) -> AsyncIterator[Client]:
    """The administrator; every test runs over both transports."""
    transport: Transport = http_transport(server) if request.param == "http" else in_process_transport(server)
    made = Client(transport)
    yield made
    await made.close()
