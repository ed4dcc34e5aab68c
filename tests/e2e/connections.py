"""Plain HTTPS requests to a server process, as the administrator or as somebody whom the administrator plays."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from weakref import WeakSet

import aiohttp
import msgspec

from e2e.servers import ServerProcess, client_context
from waiting import until

_INITIAL_EVENTS_END = "k8s.io/initial-events-end"


class Connection:
    """Sends requests and reads JSON."""

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self.session = session
        self.url = url

    async def send(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        """Status and JSON value (or text) of one answer."""
        data = None if body is None else msgspec.json.encode(body)
        sent = {"Content-Type": "application/json", **headers} if data is not None else headers
        async with self.session.request(method, self.url + path, data=data, headers=sent) as response:
            raw = await response.read()
            if response.content_type.endswith("json"):
                return response.status, msgspec.json.decode(raw)
            return response.status, raw.decode()

    async def initial_events_end(self, path: str, **headers: str) -> tuple[int, Any]:
        """Status of a watch, and the object of its bookmark that says that everything was told."""
        async with self.session.get(self.url + path, headers=headers) as response:
            if response.status == 200:
                async for line in response.content:
                    event = msgspec.json.decode(line)
                    annotations = event["object"]["metadata"].get("annotations") or {}
                    if event["type"] == "BOOKMARK" and annotations.get(_INITIAL_EVENTS_END) == "true":
                        return response.status, event["object"]
            return response.status, None


class Sockets:
    """The sockets of a session. aiohttp says that it is closed while some are still open: those of answers that were given up."""

    def __init__(self) -> None:
        self._made: WeakSet[socket.socket] = WeakSet()

    def make(self, address: Any) -> socket.socket:
        family, type_, protocol, _, _ = address
        made = socket.socket(family=family, type=type_, proto=protocol)
        self._made.add(made)
        return made

    async def closed(self) -> None:
        """Until all are closed; a server that is busy takes its time to say goodbye."""
        await until(lambda: all(each.fileno() == -1 for each in self._made), "closed connections")


@asynccontextmanager
async def session_of(server: ServerProcess) -> AsyncIterator[aiohttp.ClientSession]:
    """The administrator's HTTP session."""
    sockets = Sockets()
    connector = aiohttp.TCPConnector(ssl=client_context(server.kubeconfig), limit=0, socket_factory=sockets.make)
    async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=30)) as session:
        yield session
    await sockets.closed()
