"""The links between pods and the bridge. A link is named after its address, so the kernel alone knows which addresses are in use."""

from __future__ import annotations

import errno
import logging
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from allot.core.network.ranges import (
    BRIDGED,
    BRIDGED_BITS,
    GATEWAY,
    PODS,
    PODS_BITS,
    SERVICES,
    SERVICES_BITS,
    address_of,
    number_of,
)
from allot.network.layout import BRIDGE, hardware_of
from allot.network.netlink import Netlink
from allot.process.namespaces import NETWORK, enter

_log = logging.getLogger("allot.network")

_FIRST, _COUNT = number_of(GATEWAY) + 1, (1 << BRIDGED_BITS) - 3
_POD_LINK = "eth0"
# Pods have no rights over their network; this gives everyone ports below 1024, and ping.
_SYSCTLS = {"ip_unprivileged_port_start": "0", "ping_group_range": "0 2147483647"}


class NoAddress(OSError):
    """All addresses are taken."""


class PodLinks:
    """Creates the links. For a process in the bridge's namespace."""

    def __init__(self) -> None:
        self._links = Netlink()
        self._here = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        self._given = 0

    def attach(self, namespace: int, *, has_way_out: bool) -> str:
        """Give a pod's network namespace an address; returns it. has_way_out: something else provides external connectivity."""
        address = self._add_pair(namespace)
        try:
            self._links.set_up(_name(address), master=BRIDGE)
            with self.within(namespace), Netlink() as pod:
                pod.set_up("lo")
                pod.add_address(_POD_LINK, address, BRIDGED_BITS)
                pod.set_up(_POD_LINK)
                if has_way_out:
                    pod.add_route(SERVICES, SERVICES_BITS, GATEWAY)
                    pod.add_route(PODS, PODS_BITS, GATEWAY)
                else:
                    pod.add_route("0.0.0.0", 0, GATEWAY)
                for name, value in _SYSCTLS.items():
                    _write_sysctl(name, value)
        except OSError:
            self._links.remove(_name(address))
            raise
        return address

    def _add_pair(self, namespace: int) -> str:
        for _ in range(_COUNT):
            address = address_of(_FIRST + self._given % _COUNT)
            self._given += 1
            try:
                self._links.add_pair(_name(address), _POD_LINK, namespace, hardware_of(address))
                return address
            except OSError as error:
                # An existing link in the pod fails in the same way, but then the address itself is free.
                if error.errno != errno.EEXIST or self.has(address) is False:
                    raise
        raise NoAddress(errno.EADDRNOTAVAIL, f"all addresses of {BRIDGED}/{BRIDGED_BITS} are taken")

    def has(self, address: str) -> bool:
        """Whether a pod has this address."""
        try:
            socket.if_nametoindex(_name(address))
        except OSError:
            return False
        return True

    @contextmanager
    def within(self, namespace: int) -> Iterator[None]:
        """Enter the network namespace of a pod for the block, which must not await anything."""
        enter(namespace, NETWORK)
        try:
            yield
        finally:
            enter(self._here, NETWORK)


def _name(address: str) -> str:
    return f"p{address}"


def _write_sysctl(name: str, value: str) -> None:
    try:
        Path(f"/proc/sys/net/ipv4/{name}").write_text(value)
    except OSError as error:
        _log.warning("net.ipv4.%s of a pod: %s", name, (error.strerror or str(error)).lower())
