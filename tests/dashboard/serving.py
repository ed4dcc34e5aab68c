"""A dashboard in the process of a test, and a client that does what a browser does."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from allot.dashboard.following import Followed, dump_followed
from allot.dashboard.links import token_in
from allot.dashboard.serving import ServingOptions, dashboard_serving
from allot.process.clock import SystemClock
from allot.reading.listener import Notes

PLAIN = ServingOptions()


class Visitor:
    """Asks a dashboard. links: all that were announced, the newest last."""

    def __init__(self, session: aiohttp.ClientSession, followed: Followed, links: list[str]) -> None:
        self.session = session
        self.followed = followed
        self.links = links
        self.base = links[0].partition("/#")[0]

    async def enter(self) -> None:
        """With the newest link."""
        status, _, body = await self.ask("login", method="POST", **self.token(token_in(self.links[-1])))
        assert status == 200, body

    def token(self, token: str) -> dict[str, str]:
        """The headers with which the page exchanges one."""
        return {"X-Allot-Token": token, "Origin": self.base}

    async def ask(self, path: str, *, method: str = "GET", **headers: str) -> tuple[int, Mapping[str, str], Any]:
        """Status, headers and body, which is JSON unless it is a file of the page."""
        async with self.session.request(method, f"{self.base}/{path}", headers=headers) as response:
            if response.content_type == "application/json":
                return response.status, response.headers, await response.json()
            return response.status, response.headers, await response.text()

    async def get(self, path: str) -> Any:
        """What somebody is answered who may ask."""
        status, _, body = await self.ask(path)
        assert status == 200, body
        return body


@asynccontextmanager
async def visitor(followed: Followed, options: ServingOptions = PLAIN) -> AsyncIterator[Visitor]:
    """Somebody at the door of a dashboard for this cluster."""
    links: list[str] = []
    jar = aiohttp.CookieJar(unsafe=True)
    async with (
        dashboard_serving(followed, options, SystemClock(), links.append),
        aiohttp.ClientSession(cookie_jar=jar, connector=aiohttp.TCPConnector(ssl=False)) as session,
    ):
        yield Visitor(session, followed, links)


@asynccontextmanager
async def visitor_of_dump(path: Path, options: ServingOptions = PLAIN) -> AsyncIterator[Visitor]:
    """The same with a dump."""
    async with dump_followed((str(path),), Notes(), SystemClock()) as followed, visitor(followed, options) as found:
        yield found
