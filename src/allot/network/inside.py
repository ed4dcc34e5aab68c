"""The process inside a cluster's network namespace: `python -m allot.network.inside SOCKET USERS NETWORK`, all of them descriptors.

Connects pods to the bridge, opens connections to them for clients outside (only ever to pods), and answers for placeholders
by passing their connections to the agent of their block. Serves the Services and names that it receives. It can be killed at any
time: the namespace stays, and clients repeat their requests.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import sys
from base64 import b64decode, b64encode
from collections.abc import Awaitable, Callable

import msgspec

from allot.core.network.names import Directory
from allot.core.network.ranges import BLOCKS, block_of, is_of_pod
from allot.core.network.routes import PortKey, ServiceRoutes
from allot.network.channel import Channel, Message
from allot.network.name_server import NameServer
from allot.network.pod_links import PodLinks
from allot.network.relays import Listener, Relays, bound, connected, finish_connecting, reset
from allot.network.service_proxies import ServiceProxies
from allot.process.interpreter import tune
from allot.process.namespaces import NETWORK, USERS, enter, is_ours

_log = logging.getLogger("allot.network")

_PROTOCOLS = {"TCP": socket.SOCK_STREAM, "UDP": socket.SOCK_DGRAM}
_PORT_MAX = 65535
# Distinct ports of placeholders.
_DOORS_MAX = 2048
_ANSWER_S = 10.0


class Refused(Exception):
    """Why a request is refused."""


class _Known(msgspec.Struct):
    """What a client that sends the Services will send."""

    recurses: bool = False
    services: set[str] = set()
    # Those that sockets of the machine serve.
    listening: set[PortKey] = set()


class Inside:
    """The state of the process inside."""

    def __init__(self) -> None:
        self.links = PodLinks()
        self.relays = Relays()
        self._sessions: set[_Session] = set()
        # Block -> its owner.
        self.blocks: dict[str, _Session] = {}
        # Port -> listener for connections to placeholders.
        self._doors: dict[int, Listener] = {}
        # The client that sends Services, and answers for the outside.
        self.control: _Session | None = None
        self.directory = Directory()
        self.names = NameServer(self.directory, self._resolve_outside)
        self.proxies = ServiceProxies(self.relays, self._connect_endpoint, self._connect_api)

    def serve(self, listening: socket.socket) -> Listener:
        """Answer clients. The mode of the socket's file restricts them to its owner."""
        return Listener(listening, lambda connection: self._sessions.add(_Session(self, connection)))

    def left(self, session: _Session) -> None:
        """A client is gone."""
        self._sessions.discard(session)
        if self.control is session:
            self.control = None
        for block in [block for block, whose in self.blocks.items() if whose is session]:
            del self.blocks[block]

    def is_pod(self, address: str) -> bool:
        """Whether a pod has this address: on the bridge, or in a block with an owner."""
        if not is_of_pod(address):
            return False
        block = block_of(address)
        return block in self.blocks if block else self.links.has(address)

    async def connect(self, address: str, port: int, kind: int = socket.SOCK_STREAM) -> socket.socket:
        """Connect to a pod; Refused for everything else, OSError if it does not answer."""
        if not self.is_pod(address):
            raise Refused(f"no pod has the address {address[:64]}")
        return await connected(address, port, kind)

    async def _connect_endpoint(self, address: str, port: int, kind: int) -> socket.socket:
        """Anyone who may write slices can write endpoints."""
        try:
            return await self.connect(address, port, kind)
        except (Refused, TimeoutError) as error:
            raise ConnectionRefusedError(str(error)) from None

    async def _connect_api(self) -> socket.socket:
        _, handles = await self._ask_control({"do": "api"})
        if not handles:
            raise ConnectionRefusedError("the API server is not reached")
        made = socket.socket(fileno=handles[0])
        made.setblocking(False)
        return made

    async def _resolve_outside(self, message: bytes) -> bytes:
        answer, _ = await self._ask_control({"do": "resolve", "message": b64encode(message).decode()})
        return b64decode(answer.get("message", ""))

    async def _ask_control(self, message: Message) -> tuple[Message, list[int]]:
        if self.control is None:
            raise ConnectionRefusedError("no client is connected")
        return await self.control.ask(message)

    def update_service(self, key: str, routes: ServiceRoutes | None) -> None:
        """A Service has changed, or is gone."""
        namespace, _, name = key.partition("/")
        self.directory.update(namespace, name, routes)
        self.proxies.update(key, routes)

    def keep_services(self, keys: set[str], served: set[PortKey]) -> None:
        """Forget all Services but these, and close the sockets of the machine for all ports but these."""
        for key in self.directory.keys() - keys:
            self.update_service(key, None)
        self.proxies.stop_all_but(served)

    def open_doors(self, ports: list[int]) -> None:
        """Open these ports for placeholders."""
        for port in ports:
            if port not in self._doors and 0 < port <= _PORT_MAX and len(self._doors) < _DOORS_MAX:
                try:
                    self._doors[port] = Listener(bound("0.0.0.0", port, shared=True), self._visited)
                except OSError as error:
                    _log.warning("port %d of placeholders: %s", port, error)

    def _visited(self, connection: socket.socket) -> None:
        address, port = connection.getsockname()
        session = self.blocks.get(block_of(address))
        if session is None:
            reset(connection)
            return
        session.hand_over(connection, {"do": "visit", "address": address, "port": port})


class _Session:
    """A client outside, and what it has requested."""

    def __init__(self, inside: Inside, connection: socket.socket) -> None:
        self._inside = inside
        self._forwards: dict[str, Listener] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._answers: dict[str, Callable[[Message, list[int]], Awaitable[tuple[Message, list[int]]]]] = {
            "users": self._users,
            "attach": self._attach,
            "has": self._has,
            "dial": self._dial,
            "block": self._block,
            "doors": self._open_doors,
            "forward": self._forward,
            "forget": self._forget,
            "control": self._control,
            "service": self._service,
            "listen": self._listen,
        }
        self._number = 0
        self._asked: dict[int, asyncio.Future[tuple[Message, list[int]]]] = {}
        self._channel = Channel(connection, self._received, self._closed)

    async def ask(self, message: Message) -> tuple[Message, list[int]]:
        """Ask the client outside; OSError or TimeoutError without an answer."""
        self._number += 1
        number = self._number
        asked: asyncio.Future[tuple[Message, list[int]]] = asyncio.get_running_loop().create_future()
        self._asked[number] = asked
        try:
            self._channel.send({**message, "call": number})
            async with asyncio.timeout(_ANSWER_S):
                return await asked
        finally:
            self._asked.pop(number, None)

    def _received(self, message: Message, handles: list[int]) -> None:
        if "answers" in message:
            asked = self._asked.get(message["answers"])
            if asked is not None and not asked.done():
                asked.set_result((message, handles))
            else:
                _close_all(handles)
            return
        task = asyncio.get_running_loop().create_task(self._answer(message, handles))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        # Not at the end of the task: one that is cancelled before it begins has none.
        task.add_done_callback(lambda _: _close_all(handles))

    async def _answer(self, message: Message, handles: list[int]) -> None:
        given: list[int] = []
        try:
            answer = self._answers.get(message.get("do", ""))
            if answer is None:
                raise Refused(f"unknown: {message.get('do')!r:.40}")
            told, given = await answer(message, handles)
        except (OSError, TimeoutError, Refused, msgspec.ValidationError) as error:
            told = {"error": _told(error)}
        try:
            self._channel.send({"id": message.get("id", 0), **told}, given)
        except ConnectionError:
            pass  # no one waits for it any longer
        finally:
            _close_all(given)

    def hand_over(self, connection: socket.socket, message: Message) -> None:
        """Pass a connection to the client outside."""
        try:
            self._channel.send(message, [connection.fileno()])
            connection.close()
        except ConnectionError:
            reset(connection)

    def _closed(self) -> None:
        self._inside.left(self)
        for each in self._forwards.values():
            each.close()
        for asked in self._asked.values():
            if not asked.done():
                asked.set_exception(ConnectionResetError("no client is connected"))
        for task in tuple(self._tasks):
            task.cancel()

    # --- requests ---

    async def _users(self, _message: Message, _handles: list[int]) -> tuple[Message, list[int]]:
        """The user namespace that owns the network, and must own those of pods."""
        return {}, [os.open("/proc/self/ns/user", os.O_RDONLY | os.O_CLOEXEC)]

    async def _attach(self, message: Message, handles: list[int]) -> tuple[Message, list[int]]:
        """An address for a pod, whose network namespace is passed along."""
        return {"address": self._inside.links.attach(_first(handles), has_way_out=bool(message.get("way_out")))}, []

    async def _has(self, message: Message, _handles: list[int]) -> tuple[Message, list[int]]:
        return {"has": self._inside.is_pod(str(message.get("address")))}, []

    async def _dial(self, message: Message, handles: list[int]) -> tuple[Message, list[int]]:
        """Connect to a pod; to its loopback from within, if its network namespace is passed along."""
        address, port = _place(message)
        kind = _PROTOCOLS.get(message.get("protocol", "TCP"))
        if kind is None:
            raise Refused(f"unknown protocol {message['protocol']!r:.20}")
        if handles:
            with self._inside.links.within(handles[0]):
                made = socket.socket(socket.AF_INET, kind | socket.SOCK_CLOEXEC)
            made = await finish_connecting(made, "127.0.0.1", port)
        else:
            made = await self._inside.connect(address, port, kind)
        return {}, [made.detach()]

    async def _block(self, message: Message, _handles: list[int]) -> tuple[Message, list[int]]:
        """Addresses for placeholders: the requested ones, if they are free."""
        blocks = self._inside.blocks
        wanted = message.get("block")
        free = [each for each in BLOCKS if blocks.get(each, self) is self]
        if not free:
            raise Refused("all addresses of placeholders are given away")
        block = wanted if wanted in free else free[0]
        blocks[block] = self
        return {"block": block}, []

    async def _open_doors(self, message: Message, _handles: list[int]) -> tuple[Message, list[int]]:
        self._inside.open_doors(msgspec.convert(message.get("ports"), list[int]))
        return {}, []

    async def _forward(self, message: Message, handles: list[int]) -> tuple[Message, list[int]]:
        """Forward connections to a port of the machine to a pod. The listening socket is passed along."""
        address, port = _place(message)
        name, inside = str(message.get("name")), self._inside
        if not is_of_pod(address):
            raise Refused(f"no pod has the address {address[:64]}")
        listening = socket.socket(fileno=os.dup(_first(handles)))
        await self._forget(message, [])
        self._forwards[name] = Listener(
            listening, lambda one: inside.relays.start(one, lambda: inside.connect(address, port))
        )
        return {}, []

    async def _forget(self, message: Message, _handles: list[int]) -> tuple[Message, list[int]]:
        if (found := self._forwards.pop(str(message.get("name")), None)) is not None:
            found.close()
        return {}, []

    # --- Services ---

    async def _control(self, message: Message, _handles: list[int]) -> tuple[Message, list[int]]:
        """From now on this client sends the Services: those that it names, and no others. recurses: whether it resolves external names."""
        known = msgspec.convert(message, _Known)
        self._inside.control = self
        self._inside.names.recurses = known.recurses
        self._inside.keep_services(known.services, known.listening)
        return {}, []

    def _check_control(self) -> None:
        """What a client sent before another one took over may be read after what that one sends."""
        if self._inside.control is not self:
            raise Refused("another client sends the Services")

    async def _service(self, message: Message, _handles: list[int]) -> tuple[Message, list[int]]:
        self._check_control()
        key = str(message.get("key"))
        told = message.get("routes")
        routes = msgspec.convert(told, ServiceRoutes) if told is not None else None
        self._inside.update_service(key, routes)
        return {}, []

    async def _listen(self, message: Message, handles: list[int]) -> tuple[Message, list[int]]:
        """Sockets of the machine that serve a port of a Service; none: stop serving it."""
        self._check_control()
        _, port = _place({"address": "", **message})
        sockets = [socket.socket(fileno=os.dup(each)) for each in handles]
        protocol = str(message.get("protocol"))
        if protocol not in _PROTOCOLS:
            raise Refused(f"unknown protocol {protocol!r:.20}")
        self._inside.proxies.listen(str(message.get("key")), protocol, port, sockets)
        return {}, []


def _told(error: Exception) -> str:
    number = getattr(error, "errno", None)
    # asyncio's text contains the address, which the other side knows.
    is_asyncios = "call failed" in str(error)
    return (
        os.strerror(number).lower()
        if number and is_asyncios
        else getattr(error, "strerror", None) or str(error) or "i/o timeout"
    )


def _close_all(handles: list[int]) -> None:
    for each in handles:
        os.close(each)


def _first(handles: list[int]) -> int:
    if not handles:
        raise Refused("a descriptor is missing")
    return handles[0]


def _place(message: Message) -> tuple[str, int]:
    address, port = message.get("address"), message.get("port")
    if not isinstance(address, str) or not isinstance(port, int) or not 0 < port <= _PORT_MAX:
        raise Refused("expected an address and a port from 1 to 65535")
    return address, port


async def _run(listening: socket.socket) -> None:
    inside = Inside()
    inside.names.start()
    inside.serve(listening)
    await asyncio.Event().wait()


def main() -> None:
    """Enter the namespaces, and answer until the end."""
    logging.basicConfig(level=logging.INFO, format="%(levelname).1s %(message)s")
    listening, users, network = map(int, sys.argv[1:4])
    # Everything below is single-threaded, as the kernel requires of a process that changes its user namespace.
    if not is_ours(users, "user"):
        enter(users, USERS)
    enter(network, NETWORK)
    os.close(users)
    os.close(network)
    tune()
    try:
        asyncio.run(_run(socket.socket(fileno=listening)))
    except KeyboardInterrupt:
        pass


if __name__ == "__main__":
    main()
