"""The client that sends Services to a cluster's network, and answers for the outside: the API server, external names."""

from __future__ import annotations

import asyncio
import os
import socket
from base64 import b64decode, b64encode
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec

from allot.core.network.routes import PortKey, ServiceRoutes
from allot.network.channel import Channel, Message
from allot.network.client import PodNetwork, dial_address


class ServiceNetwork(PodNetwork):
    """api: where the API server listens; resolve: resolves external names, None if nothing does."""

    def __init__(
        self, path: Path, api: tuple[str, int], resolve: Callable[[bytes], Awaitable[bytes]] | None = None
    ) -> None:
        super().__init__(path)
        self._api = api
        self._resolve = resolve
        self._services: dict[str, ServiceRoutes] = {}
        self._listening: dict[PortKey, list[socket.socket]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Connect to the process inside, and again whenever it restarts."""
        self._connect_again()

    def update(self, key: str, routes: ServiceRoutes | None) -> None:
        """A Service has changed, or is gone."""
        if routes is None:
            if self._services.pop(key, None) is None:
                return
        elif self._services.get(key) == routes:
            return
        else:
            self._services[key] = routes
        self._tell_if_there(_service(key, routes))

    def listen(self, port: PortKey, sockets: list[socket.socket]) -> None:
        """Serve a port of a Service on sockets of the machine, which are ours from now on; earlier ones are closed."""
        before = self._listening.pop(port, [])
        if sockets:
            self._listening[port] = sockets
        if before or sockets:
            self._tell_if_there(_listen(port), [each.fileno() for each in sockets])
        for each in before:
            if each not in sockets:
                each.close()

    def greet(self, channel: Channel) -> None:
        """Repeat everything. What was withdrawn while nobody listened is not in it, so that it is forgotten."""
        super().greet(channel)
        known = {"services": list(self._services), "listening": list(self._listening)}
        channel.send({"do": "control", "recurses": self._resolve is not None, **known})
        for key, routes in self._services.items():
            channel.send(_service(key, routes))
        for port, sockets in self._listening.items():
            channel.send(_listen(port), [each.fileno() for each in sockets])

    def _tell_if_there(self, message: Message, handles: list[int] | None = None) -> None:
        try:
            self.tell(message, handles or ())
        except OSError:
            pass  # it receives everything when it is back

    def heard(self, message: Message, handles: list[int]) -> bool:
        """Handle requests of the process inside."""
        if handles or "call" not in message:
            return False
        task = asyncio.get_running_loop().create_task(self._answer(message))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return True

    async def _answer(self, message: Message) -> None:
        answer: Message = {"answers": message["call"]}
        given: list[int] = []
        try:
            if message["do"] == "api":
                given = [(await dial_address(None, *self._api)).detach()]
            elif message["do"] == "resolve" and self._resolve is not None:
                answer["message"] = b64encode(await self._resolve(b64decode(message["message"]))).decode()
        except (OSError, TimeoutError, ValueError):
            pass  # an answer without a result means failure
        try:
            self.tell(answer, given)
        except OSError:
            pass  # no one waits for it any longer
        finally:
            for each in given:
                os.close(each)

    async def close(self) -> None:
        """Close, including the sockets."""
        await super().close()
        for sockets in self._listening.values():
            for each in sockets:
                each.close()
        for task in tuple(self._tasks):
            task.cancel()


def _service(key: str, routes: ServiceRoutes | None) -> Message:
    return {"do": "service", "key": key, "routes": msgspec.to_builtins(routes) if routes is not None else None}


def _listen(port: PortKey) -> Message:
    key, protocol, number = port
    return {"do": "listen", "key": key, "protocol": protocol, "port": number}
