"""UDP flows that the kernel tracks (conntrack over netlink): lists them, and deletes single ones.

Synchronous: a machine may have many flows; busy callers use a thread.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
from collections.abc import Iterable
from typing import Self

from allot.core.network.udp_flows import Flow, Place
from allot.network.netfilter import ACK, GENERIC, IS_ERROR, NetfilterSocket, attribute, error_code, nested, parsed

_SUBSYSTEM, _GET, _DELETE = 1, 1, 2
_ORIGINAL, _REPLY, _ID, _ZONE = 1, 2, 12, 18
_ADDRESSES, _PROTOCOL = 1, 2
_SOURCE, _DESTINATION = 1, 2
_NUMBER, _SOURCE_PORT, _DESTINATION_PORT = 1, 2, 3
_PORT = struct.Struct("!H")
_UDP = bytes((socket.IPPROTO_UDP,))


class UdpFlows:
    """The flows of the current network namespace, until the block ends. OSError says what the kernel refused."""

    def __init__(self) -> None:
        self._socket = NetfilterSocket()
        # How the kernel identifies a flow: several clients may have equal ones.
        self._names: dict[Flow, list[bytes]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def read(self) -> list[Flow]:
        """All IPv4 flows."""
        self._names.clear()
        for body in self._socket.dump(_SUBSYSTEM, _GET, socket.AF_INET):
            self._take(parsed(body[GENERIC.size :]))
        return list(self._names)

    def forget(self, flows: Iterable[Flow]) -> int:
        """Delete flows that were read before; returns how many. The others have ended by themselves."""
        return sum(self._forget(name) for flow in flows for name in self._names.get(flow, ()))

    def _forget(self, name: bytes) -> bool:
        asked = self._socket.ask(_SUBSYSTEM, _DELETE, socket.AF_INET, name, flags=ACK)
        answers = (body for kind, about, body in self._socket.answers() if (kind, about) == (IS_ERROR, asked))
        code = error_code(next(answers))
        if code not in (0, errno.ENOENT):
            raise OSError(code, os.strerror(code).lower())
        return not code

    def _take(self, attributes: dict[int, bytes]) -> None:
        original, reply = (parsed(attributes.get(each, b"")) for each in (_ORIGINAL, _REPLY))
        if parsed(original.get(_PROTOCOL, b"")).get(_NUMBER) != _UDP:
            return
        to = _place(original, _DESTINATION, _DESTINATION_PORT)
        flow = Flow(to=to, answers=_place(reply, _SOURCE, _SOURCE_PORT))
        name = nested(_ORIGINAL, attributes[_ORIGINAL])
        name += b"".join(attribute(each, attributes[each]) for each in (_ID, _ZONE) if each in attributes)
        self._names.setdefault(flow, []).append(name)


def _place(tuple_: dict[int, bytes], address: int, port: int) -> Place:
    addresses, ports = (parsed(tuple_[each]) for each in (_ADDRESSES, _PROTOCOL))
    return socket.inet_ntoa(addresses[address]), _PORT.unpack(ports[port])[0]
