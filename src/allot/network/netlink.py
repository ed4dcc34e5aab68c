"""Links, addresses and routes of a network namespace, by the kernel's own protocol (rtnetlink). Imports next to nothing.

Only what a bridge with pods on it needs, IPv4 only. A socket stays in the namespace in which it was created, wherever the process is now.
"""

from __future__ import annotations

import os
import socket
import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Self

_HEAD = struct.Struct("=IHHII")
_LINK = struct.Struct("=BxHiII")
_ADDRESS = struct.Struct("=BBBBI")
_ROUTE = struct.Struct("=BBBBBBBBI")
_ATTRIBUTE = struct.Struct("=HH")
_ERROR = struct.Struct("=i")

_NEW_LINK, _DELETE_LINK, _NEW_ADDRESS, _NEW_ROUTE = 16, 17, 20, 24
_REQUEST, _ACK, _EXCLUSIVE, _CREATE = 0x1, 0x4, 0x200, 0x400
_IS_ERROR = 2
_UP = 1

_LINK_ADDRESS, _LINK_NAME, _LINK_MASTER, _LINK_INFO, _LINK_NAMESPACE = 1, 3, 10, 18, 28
_INFO_KIND, _INFO_DATA, _VETH_PEER = 1, 2, 1
_ADDRESS_ADDRESS, _ADDRESS_LOCAL = 1, 2
_ROUTE_TO, _ROUTE_LINK, _ROUTE_GATEWAY = 1, 4, 5
_MAIN, _LOCAL = 254, 255
_STATIC, _ON_HOST, _EVERYWHERE = 4, 254, 0
_UNICAST, _IS_LOCAL = 1, 2
_ANSWER_BYTES = 64 * 1024


class Netlink:
    """A connection to the kernel, in the current namespace. OSError says what was refused."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)
        self._socket.bind((0, 0))
        self._number = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def add_bridge(self, name: str, hardware: bytes) -> None:
        """Add a bridge. hardware: its own address, so that it does not take that of a port."""
        self._ask(
            _NEW_LINK, _EXCLUSIVE | _CREATE, _link(0), _name(name), _attribute(_LINK_ADDRESS, hardware), _kind("bridge")
        )

    def add_pair(self, name: str, other: str, namespace: int, hardware: bytes) -> None:
        """Add a veth pair: one end here, the other in another namespace. hardware: the address of the other."""
        there = _link(0) + _name(other) + _attribute(_LINK_ADDRESS, hardware)
        there += _attribute(_LINK_NAMESPACE, struct.pack("=I", namespace))
        self._ask(_NEW_LINK, _EXCLUSIVE | _CREATE, _link(0), _name(name), _kind("veth", _attribute(_VETH_PEER, there)))

    def set_up(self, name: str, *, master: str = "", index: int = 0) -> None:
        """Bring a link up, as a port of a bridge if one is named. index: its number, if this process is in another namespace."""
        joined = _attribute(_LINK_MASTER, struct.pack("=I", socket.if_nametoindex(master))) if master else b""
        self._ask(_NEW_LINK, 0, _link(index or socket.if_nametoindex(name), _UP), joined)

    def remove(self, name: str) -> None:
        """Remove a link and its other end."""
        self._ask(_DELETE_LINK, 0, _link(socket.if_nametoindex(name)))

    def add_address(self, link: str, address: str, bits: int) -> None:
        """Add an address, and with it the network behind the link."""
        raw = socket.inet_aton(address)
        head = _ADDRESS.pack(socket.AF_INET, bits, 0, 0, socket.if_nametoindex(link))
        self._ask(
            _NEW_ADDRESS, _EXCLUSIVE | _CREATE, head, _attribute(_ADDRESS_LOCAL, raw), _attribute(_ADDRESS_ADDRESS, raw)
        )

    def add_route(self, to: str, bits: int, gateway: str) -> None:
        """Add a route through a gateway; 0 bits: the default route."""
        head = _ROUTE.pack(socket.AF_INET, bits, 0, 0, _MAIN, _STATIC, _EVERYWHERE, _UNICAST, 0)
        parts = [_attribute(_ROUTE_TO, socket.inet_aton(to))] if bits else []
        self._ask(_NEW_ROUTE, _EXCLUSIVE | _CREATE, head, *parts, _attribute(_ROUTE_GATEWAY, socket.inet_aton(gateway)))

    def make_local(self, network: str, bits: int) -> None:
        """Make all addresses of a network local to this namespace."""
        head = _ROUTE.pack(socket.AF_INET, bits, 0, 0, _LOCAL, _STATIC, _ON_HOST, _IS_LOCAL, 0)
        loopback = struct.pack("=I", socket.if_nametoindex("lo"))
        self._ask(
            _NEW_ROUTE,
            _EXCLUSIVE | _CREATE,
            head,
            _attribute(_ROUTE_TO, socket.inet_aton(network)),
            _attribute(_ROUTE_LINK, loopback),
        )

    def _ask(self, kind: int, flags: int, head: bytes, *attributes: bytes) -> None:
        self._number += 1
        body = head + b"".join(attributes)
        self._socket.send(_HEAD.pack(_HEAD.size + len(body), kind, _REQUEST | _ACK | flags, self._number, 0) + body)
        while True:
            answer = self._socket.recv(_ANSWER_BYTES)
            _, answered, _, number, _ = _HEAD.unpack_from(answer)
            if answered != _IS_ERROR or number != self._number:
                continue
            code = -_ERROR.unpack_from(answer, _HEAD.size)[0]
            if code:
                raise OSError(code, os.strerror(code).lower())
            return


def _link(index: int, flags: int = 0) -> bytes:
    return _LINK.pack(socket.AF_UNSPEC, 0, index, flags, flags)


def _attribute(kind: int, data: bytes) -> bytes:
    length = _ATTRIBUTE.size + len(data)
    return _ATTRIBUTE.pack(length, kind) + data + bytes(-length % 4)


def _name(name: str) -> bytes:
    return _attribute(_LINK_NAME, name.encode() + b"\0")


def _kind(kind: str, data: bytes = b"") -> bytes:
    parts = _attribute(_INFO_KIND, kind.encode())
    if data:
        parts += _attribute(_INFO_DATA, data)
    return _attribute(_LINK_INFO, parts)
