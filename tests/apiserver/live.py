"""A real server for tests: HTTPS on a free loopback port, a store of choice, an administrator's credentials."""

from __future__ import annotations

import io
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import msgspec

from allot.apiserver.access.certificates import ADMIN, Identity
from allot.apiserver.assembly import Running, Settings, running
from allot.core.features import DEFAULT_GATES, FeatureGates
from allot.store.port import Store


class Answer(NamedTuple):
    """What came back."""

    status: int
    headers: Mapping[str, str]
    raw: bytes

    @property
    def json(self) -> Any:
        """The body as a JSON value."""
        return msgspec.json.decode(self.raw)


class LiveServer:
    """A running server and somebody who may do everything on it."""

    def __init__(self, live: Running, directory: Path, session: aiohttp.ClientSession) -> None:
        self.live = live
        self.url = live.url
        self.ca = live.access.certificates.authority.pem
        self.directory = directory
        self.session = session
        self.kubeconfig = directory / "kubeconfig"
        live.access.write_admin_kubeconfig(self.kubeconfig, live.url)

    async def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        headers: Mapping[str, str] | None = None,
        session: aiohttp.ClientSession | None = None,
    ) -> Answer:
        """One request; body: bytes as they are, or a value that is sent as JSON."""
        data: Any = body if isinstance(body, bytes) or body is None else msgspec.json.encode(body)
        if data is not None and len(data) > 2**20:
            data = io.BytesIO(data)
        sent = {"Content-Type": "application/json"} if data is not None else {}
        async with (session or self.session).request(
            method, self.url + path, data=data, headers={**sent, **(headers or {})}
        ) as response:
            return Answer(response.status, response.headers, await response.read())

    async def get(self, path: str, **more: Any) -> Answer:
        """GET."""
        return await self.request("GET", path, **more)

    async def post(self, path: str, body: Any, **more: Any) -> Answer:
        """POST."""
        return await self.request("POST", path, body, **more)

    async def put(self, path: str, body: Any, **more: Any) -> Answer:
        """PUT."""
        return await self.request("PUT", path, body, **more)

    async def patch(self, path: str, body: Any, kind: str = "merge-patch+json") -> Answer:
        """PATCH; kind: what follows application/."""
        return await self.request("PATCH", path, body, headers={"Content-Type": f"application/{kind}"})

    async def delete(self, path: str, body: Any = None, **more: Any) -> Answer:
        """DELETE."""
        return await self.request("DELETE", path, body, **more)

    @asynccontextmanager
    async def watch(self, path: str) -> AsyncIterator[AsyncIterator[dict[str, Any]]]:
        """The events of a watch."""
        async with self.session.get(self.url + path) as response:
            assert response.status == 200, await response.read()

            async def events() -> AsyncIterator[dict[str, Any]]:
                async for line in response.content:
                    yield msgspec.json.decode(line)

            yield events()

    @asynccontextmanager
    async def as_user(self, name: str, *groups: str) -> AsyncIterator[aiohttp.ClientSession]:
        """A session of somebody else, with a client certificate."""
        file_name = "test-" + "".join(letter if letter.isalnum() else "-" for letter in name)
        async with client_session(self.live, file_name, Identity(name, groups)) as session:
            yield session

    @asynccontextmanager
    async def as_nobody(self) -> AsyncIterator[aiohttp.ClientSession]:
        """A session without a credential."""
        context = ssl.create_default_context(cadata=self.ca.decode())
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context)) as session:
            yield session


@asynccontextmanager
async def client_session(live: Running, file_name: str, identity: Identity) -> AsyncIterator[aiohttp.ClientSession]:
    """An HTTP session with a client certificate of the server's authority."""
    certificates = live.access.certificates
    certificates.client(file_name, identity)
    context = ssl.create_default_context(cadata=certificates.authority.pem.decode())
    context.load_cert_chain(certificates.directory / f"{file_name}.crt", certificates.directory / f"{file_name}.key")
    connector = aiohttp.TCPConnector(ssl=context, limit=0)
    async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=60)) as session:
        yield session


@asynccontextmanager
async def live_server(directory: Path, store: Store, gates: FeatureGates = DEFAULT_GATES) -> AsyncIterator[LiveServer]:
    """A server on a store, with its files below a directory."""
    settings = Settings(directory=directory / "pki", port=0, gates=gates)
    async with running(settings, store) as live, client_session(live, "admin", ADMIN) as session:
        yield LiveServer(live, directory, session)
