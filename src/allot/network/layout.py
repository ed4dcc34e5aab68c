"""Creates the network namespace of a cluster, and ends: the parent keeps the namespace by a descriptor. Imports next to nothing.

In it: a bridge for pods, and the addresses of Services and placeholders as addresses of its own. Everything that pods need of the kernel
is tried here, to tell a machine that allows only a part of it from one that allows all.
"""

from __future__ import annotations

import os
import socket
import sys

from allot.core.network.ranges import (
    BLOCK_BITS,
    BLOCKS,
    BRIDGED_BITS,
    GATEWAY,
    SERVICES,
    SERVICES_BITS,
)
from allot.network.netlink import Netlink
from allot.process.namespaces import NETWORK, become_owner_of_users, unshare

BRIDGE = "pods"
_TRIAL = ("trial-a", "trial-b")


def hardware_of(address: str) -> bytes:
    """The hardware address of an address: always the same, so that no neighbour caches a wrong one."""
    return b"\x02\x00" + socket.inet_aton(address)


def lay_out() -> None:
    """Set up the current namespace."""
    with Netlink() as links:
        links.set_up("lo")
        links.add_bridge(BRIDGE, hardware_of(GATEWAY))
        links.add_address(BRIDGE, GATEWAY, BRIDGED_BITS)
        links.set_up(BRIDGE)
        links.make_local(SERVICES, SERVICES_BITS)
        for block in BLOCKS:
            links.make_local(block, BLOCK_BITS)
        here = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        links.add_pair(*_TRIAL, here, hardware_of("10.128.255.254"))
        links.set_up(_TRIAL[0], master=BRIDGE)
        links.remove(_TRIAL[0])


def main() -> None:
    """The argument: a socket that receives the user and the network namespace, or the reason why there is none."""
    tell = socket.socket(fileno=int(sys.argv[1]))
    doing = "namespaces"
    try:
        if os.geteuid() != 0:
            become_owner_of_users()
        unshare(NETWORK)
        doing = "a bridge"
        lay_out()
        made = [os.open(f"/proc/self/ns/{name}", os.O_RDONLY | os.O_CLOEXEC) for name in ("user", "net")]
        socket.send_fds(tell, [b"ok"], made)
    except OSError as error:
        tell.send(f"{doing}: {error.strerror or error}".encode())
