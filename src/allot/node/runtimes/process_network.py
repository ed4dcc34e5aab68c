"""The network of sandboxes of the process runtime: their own address if the cluster has a pod network, the machine's otherwise."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
from pathlib import Path
from typing import Any

from allot.core.network.pod_files import Resolving, hosts_text, resolving, within_limits
from allot.core.network.ranges import DNS_ADDRESS, DOMAIN, is_of_pod
from allot.network.client import NetworkFailure, PodNetwork
from allot.network.relays import bound
from allot.network.resolvers import machine_resolving
from allot.network.way_out import find_way_out
from allot.node.runtimes.port import HostPort, Isolation, RuntimeFailure, SandboxSpec
from allot.node.runtimes.process_launcher import Launcher, Lease
from allot.node.runtimes.process_streams import PortStreams, connect_port

_log = logging.getLogger("allot.node")

_CONNECT_S = 10.0


class SandboxNetwork:
    """Connects sandboxes. network: None if there is none; address: the machine's; why_not: why there is no network, if there should be."""

    def __init__(self, network: PodNetwork | None, address: str, why_not: str = "") -> None:
        self._network = network
        self.address = address
        self._why_not = why_not
        self._way_out = find_way_out() if network is not None else ""

    def status(self) -> Isolation | None:
        """The node's condition about it; None if none was requested."""
        if self._network is not None:
            outside = f"the world outside by {Path(self._way_out).name}" if self._way_out else "nothing else"
            text = f"each pod has its own address, and reaches other pods, Services and {outside}"
            return Isolation(is_on=True, reason="PodNetwork", message=text)
        if not self._why_not:
            return None
        text = f"this machine allows no pod network ({self._why_not}): pods share the machine's, and names of Services do not resolve"
        return Isolation(is_on=False, reason="NoPodNetwork", message=text)

    def has_own(self, spec: SandboxSpec) -> bool:
        """Whether a sandbox gets its own network."""
        return self._network is not None and not spec.host_network

    async def start_holder(
        self, launcher: Launcher, wanted: dict[str, Any], spec: SandboxSpec, lease: Lease
    ) -> tuple[int, str]:
        """Start the process that keeps a pod's namespaces; returns its pid, and the pod's address. It ends if the lease does."""
        if self._network is None or not self.has_own(spec):
            return await launcher.start(wanted, [lease.handle]), self.address
        users = -1
        try:
            users = await self._network.users()
            pid = await launcher.start({**wanted, "network": True}, [lease.handle, users])
        except NetworkFailure as error:
            raise RuntimeFailure("CreatePodSandboxError", f"pod network: {error}") from error
        finally:
            if users >= 0:
                os.close(users)
        try:
            namespace = open_network(pid)
            try:
                address = await self._network.attach(namespace, has_way_out=bool(self._way_out))
            finally:
                os.close(namespace)
        except OSError as error:
            raise RuntimeFailure("CreatePodSandboxError", f"pod network: {error}") from error
        await self._lead_out(launcher, pid)
        return pid, address

    async def _lead_out(self, launcher: Launcher, holder: int) -> None:
        """Add external connectivity; a pod is useful even without it."""
        if not self._way_out:
            return
        try:
            await launcher.start({"do": "lead out", "program": self._way_out, "holder": holder})
        except RuntimeFailure as error:
            _log.warning("a pod has no way out of the pod network: %s: %s", self._way_out, error)

    async def open_host_ports(self, spec: SandboxSpec, ips: tuple[str, ...]) -> None:
        """Open ports of the node that lead to a pod, over TCP. RuntimeFailure if one is not available."""
        if self._network is None or not any(map(is_of_pod, ips)):
            return
        for each in spec.host_ports:
            at = each.host_ip or self.address
            try:
                if each.protocol != "TCP":
                    raise OSError(errno.EPROTONOSUPPORT, "only TCP is forwarded")
                listening = bound(at, each.host_port)
                await self._network.forward(_forward_name(ips[0], each), listening, ips[0], each.container_port)
            except OSError as error:
                await self.close_host_ports(spec, ips)
                why = (error.strerror or str(error)).lower()
                text = f"host port {each.host_port}/{each.protocol} at {at}: {why}"
                raise RuntimeFailure("CreatePodSandboxError", text) from error

    async def close_host_ports(self, spec: SandboxSpec, ips: tuple[str, ...]) -> None:
        """Release them."""
        if self._network is None or not ips:
            return
        for each in spec.host_ports:
            try:
                await self._network.forget(_forward_name(ips[0], each))
            except NetworkFailure as error:
                _log.warning("host port %d: %s", each.host_port, error)

    def files(self, spec: SandboxSpec, ips: tuple[str, ...]) -> dict[str, str]:
        """The files by which the containers of a sandbox find names and addresses."""
        hostname = spec.hostname.partition(".")[0]
        knows_cluster = self._network is not None and any(map(is_of_pod, ips))
        wanted = resolving(
            spec.dns_policy,
            Resolving(servers=spec.dns_servers, searches=spec.dns_searches, options=spec.dns_options),
            machine_resolving(),
            (DNS_ADDRESS,) if knows_cluster else (),
            spec.pod.namespace,
            DOMAIN,
        )
        found, _ = within_limits(wanted)
        return {
            "/etc/hosts": hosts_text(ips, hostname, spec.full_name, spec.host_aliases),
            "/etc/resolv.conf": found.text(),
        }

    async def is_there(self, ips: tuple[str, ...]) -> bool:
        """Whether a pod of an earlier agent is still connected: the network may be a new one."""
        if not any(map(is_of_pod, ips)):
            return True
        if self._network is None:
            return False
        try:
            return await self._network.has(ips[0])
        except NetworkFailure:
            return False

    async def connect(self, ips: tuple[str, ...], holder: int, port: int) -> PortStreams:
        """Connect to a port, as from within the pod."""
        if self._network is None or not any(map(is_of_pod, ips)):
            return await connect_port("127.0.0.1", port)
        try:
            namespace = open_network(holder)
            try:
                made = await self._network.dial_within(namespace, port)
            finally:
                os.close(namespace)
            return await streams_of(made)
        except OSError as error:
            raise RuntimeFailure("PortForwardError", f"dial tcp {ips[0]}:{port}: connect: {error}".lower()) from error


def _forward_name(address: str, port: HostPort) -> str:
    return f"{address} {port.protocol} {port.host_port}"


async def streams_of(made: socket.socket) -> PortStreams:
    """A connection as streams."""
    async with asyncio.timeout(_CONNECT_S):
        return PortStreams(*await asyncio.open_connection(sock=made))


def open_network(pid: int) -> int:
    """The network namespace of a process."""
    return os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
