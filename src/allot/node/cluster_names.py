"""Cluster DNS for the pods of a node with a container runtime: what CoreDNS does elsewhere, in the agent.

External names are resolved by the machine's name servers, only for pods of this node, so that the node is not an open resolver.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

from allot.client.informer import Change
from allot.client.informers import Informers
from allot.core.network.names import Directory
from allot.core.network.routes import routes_of, service_key_of
from allot.network.name_server import NameServer
from allot.network.resolvers import ask_machine, machine_resolving

_log = logging.getLogger("allot.node")

Object = dict[str, Any]

_BY_SERVICE = "cluster names: slices by service"
_SYNC_S = 20.0


class ClusterNames:
    """Answers at an address of the node until closed. OSError if it is not available."""

    def __init__(self, informers: Informers, address: str, machine: Path | None) -> None:
        """machine: the file that lists the machine's name servers; None if there are none."""
        self._address = address
        self._services = informers.dynamic("", "v1", "services", namespaced=True)
        self._slices = informers.dynamic("discovery.k8s.io", "v1", "endpointslices", namespaced=True)
        self._slices.cache.add_index(_BY_SERVICE, service_key_of)
        self._directory = Directory()
        self._pods: frozenset[str] = frozenset()
        forward = ask_machine if machine is None else partial(ask_machine, path=machine)
        self._server = NameServer(self._directory, forward, address=address, is_client=self._is_client)
        servers = machine_resolving(machine).servers if machine is not None else ()
        if address in servers:
            _log.warning("names: the machine's name server is %s itself, so external names cannot be resolved", address)
        self._server.recurses = bool(servers) and address not in servers
        self._server.start()

    def close(self) -> None:
        """Stop answering."""
        self._server.close()

    def set_pods(self, addresses: Iterable[str]) -> None:
        """The addresses of the node's pods have changed."""
        self._pods = frozenset(addresses)

    def _is_client(self, address: str) -> bool:
        return address in self._pods or address == self._address or ipaddress.ip_address(address).is_loopback

    async def run(self) -> None:
        """Follow Services and their slices."""
        stops = [self._services.add_handler(self._service_changed), self._slices.add_handler(self._slice_changed)]
        try:
            async with asyncio.timeout(_SYNC_S):
                await self._services.wait_synced()
                await self._slices.wait_synced()
        except TimeoutError:
            _log.warning(
                "names: the agent needs permission to list and watch services and endpointslices to know all of them"
            )
        try:
            await asyncio.Event().wait()
        finally:
            for stop in stops:
                stop()

    def _service_changed(self, change: Change[Object]) -> None:
        self._update(change.key)

    def _slice_changed(self, change: Change[Object]) -> None:
        for slice_ in (change.old, change.new):
            for key in service_key_of(slice_) if slice_ is not None else ():
                self._update(key)

    def _update(self, key: str) -> None:
        namespace, _, name = key.partition("/")
        service = self._services.cache.get(key)
        slices = self._slices.cache.by_index(_BY_SERVICE, key)
        self._directory.update(namespace, name, routes_of(service, slices) if service is not None else None)
