"""An API server with controllers that work on it, for tests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry

from allot.apiserver.access.request_signing import RequestSigner
from allot.client.api import Client
from allot.client.errors import NotFound
from allot.client.informers import Informers
from allot.controllers.metrics import ControllerMetrics
from allot.controllers.runner import Runnable, Services
from allot.process.clock import Clock, SystemClock
from allot.process.ids import SystemIds
from allot.store.memory import MemoryStore
from apiserver.live import LiveServer, live_server
from client.conftest import http_transport
from waiting import until

Object = dict[str, Any]
Make = Callable[[Services], Runnable]


class Cluster:
    """A server and its administrator."""

    def __init__(self, server: LiveServer, client: Client, registry: CollectorRegistry) -> None:
        self.server = server
        self.client = client
        self.registry = registry

    async def create(self, api_version: str, kind: str, name: str, namespace: str = "", **more: Any) -> Object:
        """A new object; metadata given is merged with name and namespace."""
        metadata = {"name": name, **more.pop("metadata", {})}
        resource = await self.client.of_kind(api_version, kind)
        if namespace:
            metadata["namespace"] = namespace
        return await resource.create({"apiVersion": api_version, "kind": kind, "metadata": metadata, **more})

    async def get(self, api_version: str, kind: str, name: str, namespace: str = "") -> Object | None:
        """An object, None if it is not there."""
        try:
            return await (await self.client.of_kind(api_version, kind)).get(name, namespace)
        except NotFound:
            return None

    async def delete(self, api_version: str, kind: str, name: str, namespace: str = "", **more: Any) -> None:
        """Delete an object."""
        await (await self.client.of_kind(api_version, kind)).delete(name, namespace, **more)

    async def eventually(self, check: Callable[[], Awaitable[Any]]) -> Any:
        """What a question answers as soon as the answer is yes."""
        return await until(check)

    async def gone(self, api_version: str, kind: str, name: str, namespace: str = "") -> None:
        """Wait until an object is not there any more."""

        async def is_gone() -> bool:
            return await self.get(api_version, kind, name, namespace) is None

        await self.eventually(is_gone)


def owned_by(owner: Object, *, blocks: bool | None = None) -> Object:
    """metadata.ownerReferences that name an owner."""
    reference = {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
    }
    if blocks is not None:
        reference["blockOwnerDeletion"] = blocks
    return {"ownerReferences": [reference]}


@asynccontextmanager
async def cluster(directory: Path, *makes: Make, clock: Clock | None = None) -> AsyncIterator[Cluster]:
    """A server in memory with these controllers, which reach it over HTTP as they would reach any other."""
    clock = clock or SystemClock()
    async with live_server(directory, MemoryStore()) as server:
        client = Client(http_transport(server))
        ids = SystemIds()
        informers = Informers(client, clock, ids)
        registry = CollectorRegistry()
        authority = server.live.access.certificates.authority
        services = Services(
            client=client,
            informers=informers,
            clock=clock,
            ids=ids,
            metrics=ControllerMetrics(registry),
            sign_token=server.live.access.tokens.issue_legacy,
            root_ca=server.ca.decode(),
            sign_certificate=RequestSigner(lambda: (authority.certificate, authority.key), clock).sign,
        )
        controllers = [make(services) for make in makes]
        try:
            async with asyncio.TaskGroup() as tasks:
                running = [tasks.create_task(informers.run())]
                running += [tasks.create_task(controller.run()) for controller in controllers]
                yield Cluster(server, client, registry)
                for task in running:
                    task.cancel()
        finally:
            await client.close()
