"""The client of a cluster's network for processes outside it: agents, the API server, and the servers of names and Services.

Talks to the process inside (`inside`) over a Unix socket. That process may restart at any time; lasting requests are then repeated.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from allot.core.network.ranges import is_of_pod
from allot.network.channel import Channel, Message

_log = logging.getLogger("allot.network")

_ANSWER_S = 15.0
_PAUSE_S = 0.2


class NetworkFailure(OSError):
    """A network request failed, with the reason."""


def connect_unix(path: Path, kind: int = socket.SOCK_SEQPACKET) -> socket.socket:
    """Connect to a socket whose path may exceed the 107 bytes that the kernel allows."""
    made = socket.socket(socket.AF_UNIX, kind | socket.SOCK_CLOEXEC)
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        made.connect(f"/proc/self/fd/{folder}/{path.name}")
    except BaseException:
        made.close()
        raise
    finally:
        os.close(folder)
    return made


class PodNetwork:
    """The network behind a socket. visited: takes connections to placeholders, with the address and port that they came to."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._channel: Channel | None = None
        self._number = 0
        self._asked: dict[int, asyncio.Future[tuple[Message, list[int]]]] = {}
        self._block = ""
        self._doors: set[int] = set()
        self._forwards: dict[str, tuple[socket.socket, str, int]] = {}
        self._again: asyncio.Task[None] | None = None
        self._is_closed = False
        self.visited: Callable[[socket.socket, str, int], None] | None = None

    # --- pods ---

    async def users(self) -> int:
        """The user namespace in which to create those of pods."""
        _, handles = await self.ask({"do": "users"})
        return handles[0]

    async def attach(self, namespace: int, *, has_way_out: bool = False) -> str:
        """Connect the network namespace of a pod; returns its address."""
        answer, _ = await self.ask({"do": "attach", "way_out": has_way_out}, [namespace])
        return str(answer["address"])

    async def has(self, address: str) -> bool:
        """Whether a pod is connected under this address."""
        answer, _ = await self.ask({"do": "has", "address": address})
        return bool(answer["has"])

    async def dial(self, address: str, port: int, protocol: str = "TCP") -> socket.socket:
        """Connect to a pod. NetworkFailure for anything that is not a pod of this cluster."""
        _, handles = await self.ask({"do": "dial", "address": address, "port": port, "protocol": protocol})
        return _as_socket(handles)

    async def dial_within(self, namespace: int, port: int) -> socket.socket:
        """Connect to the loopback of a pod, as from within it."""
        message = {"do": "dial", "address": "127.0.0.1", "port": port}
        _, handles = await self.ask(message, [namespace])
        return _as_socket(handles)

    async def forward(self, name: str, listening: socket.socket, address: str, port: int) -> None:
        """Forward connections on a socket of the machine to a pod, until `forget`."""
        self._forwards[name] = (listening, address, port)
        await self.ask(_forward(name, address, port), [listening.fileno()])

    async def forget(self, name: str) -> None:
        """Stop forwarding."""
        if (found := self._forwards.pop(name, None)) is not None:
            found[0].close()
            await self.ask({"do": "forget", "name": name})

    # --- placeholders ---

    async def take_block(self) -> str:
        """Reserve addresses for our placeholders."""
        answer, _ = await self.ask({"do": "block", "block": self._block})
        self._block = str(answer["block"])
        return self._block

    def open_doors(self, ports: Iterable[int]) -> None:
        """Open these ports on the placeholders of our block."""
        if new := set(ports) - self._doors:
            self._doors |= new
            try:
                self.tell({"do": "doors", "ports": sorted(new)})
            except OSError:
                pass  # repeated on reconnect

    # --- the connection ---

    async def ask(self, message: Message, handles: Sequence[int] = ()) -> tuple[Message, list[int]]:
        """Send a request and return the answer; NetworkFailure if there is none, or if it is a refusal."""
        self._number += 1
        number = self._number
        asked = self._asked[number] = asyncio.get_running_loop().create_future()
        try:
            self._connected().send({**message, "id": number}, handles)
            async with asyncio.timeout(_ANSWER_S):
                answer, got = await asked
        except (OSError, TimeoutError) as error:
            raise NetworkFailure(f"the pod network does not answer: {error or 'timed out'}") from error
        finally:
            self._asked.pop(number, None)
        if "error" in answer:
            raise NetworkFailure(str(answer["error"]))
        return answer, got

    def tell(self, message: Message, handles: Sequence[int] = ()) -> None:
        """Send without waiting for an answer."""
        self._connected().send(message, handles)

    def _connected(self) -> Channel:
        channel = self._channel
        if channel is None:
            channel = self._channel = Channel(connect_unix(self._path), self._received, self._lost)
            # If it breaks meanwhile, it is no longer ours, and says so when it is used.
            self.greet(channel)
        return channel

    def greet(self, channel: Channel) -> None:
        """Repeat lasting requests."""
        if self._block:
            channel.send({"do": "block", "block": self._block})
        if self._doors:
            channel.send({"do": "doors", "ports": sorted(self._doors)})
        for name, (listening, address, port) in self._forwards.items():
            channel.send(_forward(name, address, port), [listening.fileno()])

    def _received(self, message: Message, handles: list[int]) -> None:
        asked = self._asked.get(message.get("id", 0))
        if asked is not None and not asked.done():
            asked.set_result((message, handles))
            return
        if message.get("do") == "visit" and self.visited is not None and handles:
            self.visited(_as_socket(handles), str(message["address"]), int(message["port"]))
            return
        if not self.heard(message, handles):
            for each in handles:
                os.close(each)

    def heard(self, message: Message, handles: list[int]) -> bool:  # noqa: ARG002 - for subclasses that know more messages
        """Handle an unsolicited message; returns whether it was known."""
        return False

    def _lost(self) -> None:
        self._channel = None
        for asked in self._asked.values():
            if not asked.done():
                asked.set_exception(ConnectionResetError("the process inside has ended"))
        self._connect_again()

    def _connect_again(self) -> None:
        if not self._is_closed and self._again is None:
            self._again = asyncio.get_running_loop().create_task(self._reconnect())

    async def _reconnect(self) -> None:
        """Reconnect, so that lasting requests are repeated even if no other request comes."""
        try:
            while not self._is_closed and self._channel is None:
                try:
                    self._connected()
                except OSError:
                    await asyncio.sleep(_PAUSE_S)
        finally:
            self._again = None

    async def close(self) -> None:
        """Close."""
        self._is_closed = True
        if self._again is not None:
            self._again.cancel()
        if self._channel is not None:
            self._channel.close()
        for listening, _, _ in self._forwards.values():
            listening.close()


def _forward(name: str, address: str, port: int) -> Message:
    return {"do": "forward", "name": name, "address": address, "port": port}


def _as_socket(handles: list[int]) -> socket.socket:
    first, *rest = handles
    for each in rest:
        os.close(each)
    made = socket.socket(fileno=first)
    made.setblocking(False)
    return made


async def dial_address(network: PodNetwork | None, address: str, port: int) -> socket.socket:
    """Connect to an address: through the network if it is a pod's, else from this machine. OSError."""
    if network is not None and is_of_pod(address):
        return await network.dial(address, port)
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    made.setblocking(False)
    try:
        await asyncio.get_running_loop().sock_connect(made, (address, port))
    except BaseException:
        made.close()
        raise
    return made
