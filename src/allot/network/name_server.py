"""The DNS server inside the network namespace, over UDP and TCP. External names go to a resolver outside, if there is one."""

from __future__ import annotations

import asyncio
import logging
import socket
import struct
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from allot.core.network import dns_messages as dns
from allot.core.network.names import Directory, authority
from allot.core.network.ranges import DNS_ADDRESS
from allot.network.relays import Listener, bound

_log = logging.getLogger("allot.network")

PORT = 53
_ASKED_BYTES_MAX = 4096
_LENGTH = struct.Struct(">H")
_TCP_BYTES_MAX = 65535
_IDLE_S = 10.0
_AT_ONCE = 256

# Asks a resolver outside: a message in, a message out. OSError if there is none.
Forward = Callable[[bytes], Awaitable[bytes]]


class NameServer:
    """Serves the address in pods' resolv.conf. is_client: which addresses get an answer; all in a network of pods only."""

    def __init__(
        self,
        directory: Directory,
        forward: Forward,
        *,
        address: str = DNS_ADDRESS,
        is_client: Callable[[str], bool] = lambda _address: True,
    ) -> None:
        self._directory = directory
        self._forward = forward
        self._address = address
        self._is_client = is_client
        # Whether external names are resolved outside.
        self.recurses = False
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Listen. OSError."""
        self._socket = bound(self._address, PORT, socket.SOCK_DGRAM)
        try:
            self._listener = Listener(bound(self._address, PORT, shared=True), self._accepted)
        except OSError:
            self._socket.close()
            raise
        asyncio.get_running_loop().add_reader(self._socket.fileno(), self._read)

    def close(self) -> None:
        """Stop listening; pending queries get no answer."""
        asyncio.get_running_loop().remove_reader(self._socket.fileno())
        self._socket.close()
        self._listener.close()
        for task in tuple(self._tasks):
            task.cancel()

    def _read(self) -> None:
        try:
            data, client = self._socket.recvfrom(_ASKED_BYTES_MAX)
        except OSError:
            return
        if self._is_client(client[0]):
            self._run(self._answer_packet(data, client))

    def _accepted(self, connection: socket.socket) -> None:
        try:
            is_client = self._is_client(connection.getpeername()[0])
        except OSError:
            is_client = False
        if not is_client or not self._run(self._talk(connection)):
            connection.close()

    def _run(self, doing: Coroutine[Any, Any, None]) -> bool:
        """Run a task beside the others, whose number is limited; returns whether there was room."""
        if len(self._tasks) >= _AT_ONCE:
            doing.close()
            return False
        task = asyncio.get_running_loop().create_task(doing)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return True

    async def _answer_packet(self, data: bytes, client: tuple[str, int]) -> None:
        answer = await self.answer(data, is_packet=True)
        if answer:
            try:
                # Not through the loop: uvloop has no such call. A datagram that does not fit is lost, as it could be on the way.
                self._socket.sendto(answer, client)
            except OSError as error:
                _log.debug("an answer is lost: %s", error)

    async def _talk(self, connection: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        with connection:
            try:
                while True:
                    async with asyncio.timeout(_IDLE_S):
                        size = _LENGTH.unpack(await _exactly(connection, _LENGTH.size))[0]
                        answer = await self.answer(await _exactly(connection, size), is_packet=False)
                        if not answer:
                            return
                        await loop.sock_sendall(connection, _LENGTH.pack(len(answer)) + answer)
            except (OSError, EOFError, TimeoutError):
                return

    async def answer(self, data: bytes, *, is_packet: bool) -> bytes:
        """The answer to a message; empty if there is none."""
        try:
            question = dns.parse_question(data)
        except dns.BadQuestion as error:
            return dns.error(error.number, error.code) if error.number is not None else b""
        bytes_max = question.udp_bytes if is_packet else _TCP_BYTES_MAX
        found = self._directory.find(question.labels, question.type)
        if found is None:
            return await self._ask_others(data, question, bytes_max)
        if found.leads_to:
            return await self._follow(question, found.records, found.leads_to, bytes_max)
        code = dns.NO_ERROR if found.exists else dns.NO_SUCH_NAME
        authorities = () if found.records else (authority(),)
        return dns.answer(
            question, code, found.records, authorities, is_ours=True, recurses=self.recurses, bytes_max=bytes_max
        )

    async def _ask_others(self, data: bytes, question: dns.Question, bytes_max: int) -> bytes:
        if self.recurses:
            try:
                answer = await self._forward(data)
                return answer if len(answer) <= bytes_max else self._refuse(question, dns.SERVER_FAILURE, bytes_max)
            except (OSError, TimeoutError):
                return self._refuse(question, dns.SERVER_FAILURE, bytes_max)
        return self._refuse(question, dns.REFUSED, bytes_max)

    async def _follow(self, question: dns.Question, records: tuple[dns.Record, ...], to: str, bytes_max: int) -> bytes:
        """Answer for an alias of an external name, with the records of that name if it can be resolved."""
        found: tuple[dns.Record, ...] = ()
        if self.recurses:
            name = dns.name_of(to)
            asked = dns.ask(question.number, name, question.type)
            try:
                found = dns.records_of(await self._forward(asked))
            except (OSError, TimeoutError, ValueError):
                found = ()
        return dns.answer(
            question, dns.NO_ERROR, (*records, *found), is_ours=True, recurses=self.recurses, bytes_max=bytes_max
        )

    def _refuse(self, question: dns.Question, code: int, bytes_max: int) -> bytes:
        return dns.answer(question, code, is_ours=False, recurses=self.recurses, bytes_max=bytes_max)


async def _exactly(connection: socket.socket, size: int) -> bytes:
    loop = asyncio.get_running_loop()
    data = b""
    while len(data) < size:
        piece = await loop.sock_recv(connection, size - len(data))
        if not piece:
            raise EOFError
        data += piece
    return data
