"""Proxies for Services inside the network namespace: at their own addresses, and at sockets passed in from the machine.

This process relays bytes, so an endpoint sees the network's own address as its client. A port without ready endpoints is not
open: connections are refused, as in Kubernetes.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import Awaitable, Callable

from allot.core.network.balancing import Balancer
from allot.core.network.ranges import SERVICES, SERVICES_BITS, is_in
from allot.core.network.routes import PortKey, ServicePort, ServiceRoutes
from allot.network.relays import Listener, Relays, bound

_log = logging.getLogger("allot.network")

_KINDS = {"TCP": socket.SOCK_STREAM, "UDP": socket.SOCK_DGRAM}
_IDLE_S = 60.0
_CLIENTS_MAX = 1024
_PACKET_BYTES = 64 * 1024

Connect = Callable[[str, int, int], Awaitable[socket.socket]]


class ServiceProxies:
    """All proxies. connect: to a pod; to_api: to the API server, which is not in the network."""

    def __init__(self, relays: Relays, connect: Connect, to_api: Callable[[], Awaitable[socket.socket]]) -> None:
        self._relays = relays
        self._connect = connect
        self._to_api = to_api
        self._ports: dict[PortKey, _PortProxy] = {}

    def update(self, key: str, routes: ServiceRoutes | None) -> None:
        """A Service has changed, or is gone."""
        wanted = {(key, each.protocol, each.port): each for each in routes.ports} if routes is not None else {}
        for place in [place for place in self._ports if place[0] == key and place not in wanted]:
            self._ports.pop(place).close()
        for place, port in wanted.items():
            assert routes is not None, "without routes nothing is wanted"
            if port.protocol in _KINDS:
                self._proxy(place).update(routes, port)

    def listen(self, key: str, protocol: str, port: int, sockets: list[socket.socket]) -> None:
        """Replace the sockets of the machine that serve a port of a Service; they are ours from now on."""
        place = (key, protocol, port)
        if not sockets and place not in self._ports:
            return
        self._proxy(place).listen(sockets)

    def stop_all_but(self, served: set[PortKey]) -> None:
        """Close the sockets of the machine for all ports but these."""
        for place in self._ports.keys() - served:
            self._ports[place].listen([])

    def _proxy(self, place: PortKey) -> _PortProxy:
        found = self._ports.get(place)
        if found is None:
            is_api = place[0] == "default/kubernetes"
            found = self._ports[place] = _PortProxy(
                place[1], self._relays, self._connect, self._to_api if is_api else None
            )
        return found


class _PortProxy:
    """A port of a Service: at its own address while it has endpoints, and at sockets that were passed in."""

    def __init__(
        self, protocol: str, relays: Relays, connect: Connect, instead: Callable[[], Awaitable[socket.socket]] | None
    ) -> None:
        self._kind = _KINDS[protocol]
        self._relays = relays
        self._connect = connect
        self._instead = instead
        self._balancer = Balancer()
        self._place: tuple[str, int] | None = None
        self._own: Listener | _Datagrams | None = None
        self._given: list[Listener | _Datagrams] = []

    def update(self, routes: ServiceRoutes, port: ServicePort) -> None:
        self._balancer.update(port.endpoints, routes.affinity_s)
        has_address = is_in(routes.address, SERVICES, SERVICES_BITS)
        is_there = has_address and (bool(port.endpoints) or self._instead is not None)
        place = (routes.address, port.port) if is_there else None
        if place == self._place:
            return
        if self._own is not None:
            self._own.close()
        self._own = self._place = None
        if place is not None:
            try:
                self._own = self._serve(bound(*place, self._kind, shared=self._kind == socket.SOCK_STREAM))
                self._place = place
            except OSError as error:
                _log.warning("service %s at %s:%d: %s", routes.key, *place, error)

    def listen(self, sockets: list[socket.socket]) -> None:
        for each in self._given:
            each.close()
        self._given = [self._serve(each) for each in sockets]

    def _serve(self, made: socket.socket) -> Listener | _Datagrams:
        if self._kind == socket.SOCK_DGRAM:
            return _Datagrams(made, self._reach)
        return Listener(made, self._accepted)

    def _accepted(self, connection: socket.socket) -> None:
        try:
            client = connection.getpeername()[0]
        except OSError:
            connection.close()
            return
        self._relays.start(connection, lambda: self._reach(client))

    async def _reach(self, client: str) -> socket.socket:
        if self._instead is not None:
            return await self._instead()
        last: OSError | None = None
        for each in self._balancer.choose(client, time.monotonic()):
            try:
                return await self._connect(each.address, each.port, self._kind)
            except OSError as error:
                last = error
        raise last or ConnectionRefusedError("no endpoint is ready")

    def close(self) -> None:
        for each in (*self._given, *([self._own] if self._own is not None else ())):
            each.close()


class _Datagrams:
    """UDP: each client has its own socket to an endpoint, until it is idle."""

    def __init__(self, made: socket.socket, reach: Callable[[str], Awaitable[socket.socket]]) -> None:
        made.setblocking(False)
        self._socket = made
        self._reach = reach
        self._clients: dict[tuple[str, int], asyncio.Queue[bytes]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(made.fileno(), self._read)

    def _read(self) -> None:
        try:
            data, client = self._socket.recvfrom(_PACKET_BYTES)
        except OSError:
            return
        waiting = self._clients.get(client)
        if waiting is None:
            if len(self._clients) >= _CLIENTS_MAX:
                return
            waiting = self._clients[client] = asyncio.Queue(_CLIENTS_MAX)
            task = self._loop.create_task(self._talk(client, waiting))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        if not waiting.full():
            waiting.put_nowait(data)

    async def _talk(self, client: tuple[str, int], waiting: asyncio.Queue[bytes]) -> None:
        try:
            with await self._reach(client[0]) as other:
                await self._exchange(client, waiting, other)
        except (OSError, TimeoutError):
            pass  # datagrams may be lost
        finally:
            self._clients.pop(client, None)

    async def _exchange(self, client: tuple[str, int], waiting: asyncio.Queue[bytes], other: socket.socket) -> None:
        heard = self._loop.time()

        async def back() -> None:
            nonlocal heard
            while True:
                data = await self._loop.sock_recv(other, _PACKET_BYTES)
                heard = self._loop.time()
                await self._loop.sock_sendto(self._socket, data, client)

        answering = self._loop.create_task(back())
        try:
            while not answering.done():
                try:
                    async with asyncio.timeout(_IDLE_S):
                        await self._loop.sock_sendall(other, await waiting.get())
                except TimeoutError:
                    if self._loop.time() - heard >= _IDLE_S:
                        return
        finally:
            answering.cancel()
            await asyncio.gather(answering, return_exceptions=True)

    def close(self) -> None:
        for task in tuple(self._tasks):
            task.cancel()
        self._loop.remove_reader(self._socket.fileno())
        self._socket.close()
