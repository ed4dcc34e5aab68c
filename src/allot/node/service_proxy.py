"""Services for the pods of a node, where a container runtime gives them addresses: keeps rules of the kernel in step with the API.

Replaces kube-proxy in the agent itself, as far as pods and node ports need it. The core computes the rules (`packet_rules`);
`network.nftables` installs them in a table of our own, which disappears with the agent. UDP flows to endpoints that are gone are
deleted (`udp_flows`). If the API server listens on the loopback address, which no pod can reach, the agent relays, only for the
node itself and its pods.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Iterable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec

from allot.client.events import EventRecorder, Reference
from allot.client.informer import Change
from allot.client.informers import Informers
from allot.core.network.packet_rules import NodeService, Ruleset, node_service, packet_rules
from allot.core.network.routes import service_key_of
from allot.core.network.udp_flows import Served, stale
from allot.network.conntrack import UdpFlows
from allot.network.nftables import ServiceRules
from allot.node.api_door import ApiDoor
from allot.node.service_health import ServiceHealth
from allot.process.clock import Clock

_log = logging.getLogger("allot.node")

Object = dict[str, Any]

_BY_SERVICE = "service proxy: slices by service"
_API = "default/kubernetes"
_LOOPBACK = "127."
# Changes come in bursts; a pause combines them into one transaction.
_PAUSE_S, _RETRY_S = 0.02, 5.0
_SYNC_S = 20.0
_BRIDGED = Path("/proc/sys/net/bridge/bridge-nf-call-iptables")
_FORWARDS = Path("/proc/sys/net/ipv4/ip_forward")
_FOREIGN_LINKS = {"kube-ipvs0": "kube-proxy (ipvs)", "cilium_host": "Cilium"}
_FOREIGN_PROGRAMS = ("kube-proxy",)


class NoServices(Exception):
    """Why Services cannot be served on this node."""


class ProxyOptions(msgspec.Struct, frozen=True, kw_only=True):
    """node: its name; address: where pods reach it; api: where the agent reaches the API server; key: distinguishes agents on one machine."""

    node: str
    address: str
    api: tuple[str, int]
    key: str


class ServiceProxy:
    """Serves Services until closed. NoServices if that is not possible, or another implementation runs."""

    def __init__(self, informers: Informers, clock: Clock, options: ProxyOptions, *, beside_others: bool) -> None:
        """beside_others: even if another implementation of Services runs."""
        try:
            self._rules = ServiceRules(f"allot-{sha256(options.key.encode()).hexdigest()[:12]}")
        except OSError as error:
            raise NoServices(f"this process may not write rules of the kernel: {_told(error)}") from error
        try:
            found = "" if beside_others else _foreign(self._rules)
            if found:
                raise NoServices(f"{found} serves them")
            self._rules.apply(Ruleset())
        except OSError as error:
            self._rules.close()
            raise NoServices(f"the kernel takes no rules (nf_tables): {_told(error)}") from error
        except NoServices:
            self._rules.close()
            raise
        self._clock = clock
        self._options = options
        self._services = informers.dynamic("", "v1", "services", namespaced=True)
        self._slices = informers.dynamic("discovery.k8s.io", "v1", "endpointslices", namespaced=True)
        self._slices.cache.add_index(_BY_SERVICE, service_key_of)
        self._known: dict[str, NodeService] = {}
        self._changed: dict[str, None] = {}
        self._woken = asyncio.Event()
        self._pods: frozenset[str] = frozenset()
        self._door: ApiDoor | None = None
        # Whether flows may lead to endpoints that no longer serve: at first, those of an earlier implementation.
        self._has_stale_flows = True
        self._told_of_flows = ""
        self._events: EventRecorder | None = None
        self._health = ServiceHealth(options.address, clock, self._tell_of_health)

    async def close(self) -> None:
        """Remove the rules; existing connections survive, except those that we relay to the API server."""
        self._rules.close()
        await self._health.close()
        if self._door is not None:
            await self._door.close()

    def set_pods(self, addresses: Iterable[str]) -> None:
        """The addresses of the node's pods have changed: called before their containers start."""
        found = frozenset(each for each in addresses if ":" not in each)
        if found == self._pods:
            return
        try:
            self._rules.set_pods(found)
        except OSError as error:
            _log.warning("services: addresses of pods are not told to the kernel: %s", _told(error))
            return
        self._pods = found

    async def run(self, events: EventRecorder) -> None:
        """Follow Services and their slices. events: for Services that cannot be served as requested."""
        self._events = events
        self._warn_of_machine()
        stops = [self._services.add_handler(self._service_changed), self._slices.add_handler(self._slice_changed)]
        try:
            await self._wait()
            while True:
                await self._woken.wait()
                await self._clock.sleep(_PAUSE_S)
                self._woken.clear()
                if not self._look():
                    await self._clock.sleep(_RETRY_S)
                    self._woken.set()
                    continue
                await self._forget_stale_flows()
        finally:
            for stop in stops:
                stop()

    async def _wait(self) -> None:
        for informer, what in ((self._services, "Services"), (self._slices, "EndpointSlices")):
            try:
                async with asyncio.timeout(_SYNC_S):
                    await informer.wait_synced()
            except TimeoutError:
                _log.warning(
                    "services: %s cannot be read, and until then pods reach no Service: the agent needs permission to list and watch "
                    "services and endpointslices (ClusterRole system:node-proxier, bound to group system:nodes, grants it)",
                    what,
                )
                await informer.wait_synced()

    def _service_changed(self, change: Change[Object]) -> None:
        self._changed[change.key] = None
        self._woken.set()

    def _slice_changed(self, change: Change[Object]) -> None:
        for slice_ in (change.old, change.new):
            for key in service_key_of(slice_) if slice_ is not None else ():
                self._changed[key] = None
        self._woken.set()

    def _look(self) -> bool:
        """Send changes to the kernel; returns whether it accepted them."""
        for key in self._changed:
            service = self._services.cache.get(key)
            slices = self._slices.cache.by_index(_BY_SERVICE, key)
            found = None if service is None else node_service(service, self._reachable(key, slices), self._options.node)
            before = self._known.pop(key, None)
            if found is not None:
                self._known[key] = found
            self._has_stale_flows |= (before.udp if before else ()) != (found.udp if found else ())
        self._health.update(self._known.values())
        try:
            self._rules.apply(packet_rules(self._known.values()))
        except OSError as error:
            _log.warning("services: rules are not told to the kernel: %s", _told(error))
            return False
        self._changed.clear()
        return True

    async def _forget_stale_flows(self) -> None:
        """After the rules, so that they route the next packet of such a flow. Failures are retried with the next change."""
        if not self._has_stale_flows:
            return
        served = [
            Served(addresses=(each.routes.address, *each.outside), ports=each.udp)
            for each in self._known.values()
            if each.udp
        ]
        try:
            forgotten = await asyncio.to_thread(_forget, served) if served else 0
        except OSError as error:
            told = f"flows of UDP to endpoints that are gone are not forgotten: {_told(error)}"
            if told != self._told_of_flows:
                _log.warning("services: %s", told)
            self._told_of_flows = told
            return
        if forgotten:
            _log.info("services: %d flows of UDP led to endpoints that are gone", forgotten)
        self._has_stale_flows, self._told_of_flows = False, ""

    def _tell_of_health(self, key: str, text: str) -> None:
        if self._events is not None:
            namespace, _, name = key.partition("/")
            about = Reference(api_version="v1", kind="Service", name=name, namespace=namespace)
            note = f"node {self._options.node}: {text}"
            self._events.record(about, "Warning", "FailedToStartServiceHealthcheck", "Listen", note)

    def _warn_of_machine(self) -> None:
        """Warn of machine settings that keep packets from pods."""
        if _setting(_BRIDGED) == "0":
            _log.warning(
                "services: pods on one bridge do not reach each other through Services: sysctl net.bridge.bridge-nf-call-iptables=1"
            )
        if _setting(_FORWARDS) == "0":
            _log.warning(
                "services: this machine forwards no packets, so pods are not reached: sysctl net.ipv4.ip_forward=1"
            )
        try:
            dropping = self._rules.drops_forwarded()
        except OSError as error:
            _log.warning("services: cannot tell whether packets for pods are dropped: %s", _told(error))
            return
        if dropping:
            _log.warning(
                "services: %s drops what no rule accepts of packets on their way through this machine: pods are reached only if one accepts "
                "them (the CNI plugin firewall writes such rules, or: iptables -P FORWARD ACCEPT)",
                dropping,
            )

    # --- the API server on the loopback address ---

    def _reachable(self, key: str, slices: Iterable[Object]) -> Iterator[Object]:
        """Slices with our relay instead of an API server that no pod can reach."""
        for each in slices:
            endpoints = each.get("endpoints") or ()
            inside = [one for one in endpoints if str((one.get("addresses") or ("",))[0]).startswith(_LOOPBACK)]
            door = self._open_door() if key == _API and inside else None
            if door is None:
                yield each
                continue
            here = {**inside[0], "addresses": [self._options.address]}
            ports = [{**port, "port": door.port} for port in each.get("ports") or ()]
            yield {**each, "endpoints": [here], "ports": ports}

    def _open_door(self) -> ApiDoor | None:
        if self._door is None:
            options = self._options
            try:
                self._door = ApiDoor(options.address, options.api, lambda peer: peer in self._pods)
            except OSError as error:
                _log.warning("services: pods do not reach the API server: %s: %s", options.address, _told(error))
        return self._door


def _foreign(rules: ServiceRules) -> str:
    """Another implementation of Services on this machine; empty if there is none."""
    for _, name in socket.if_nameindex():
        if name in _FOREIGN_LINKS:
            return _FOREIGN_LINKS[name]
    for path in Path("/proc").glob("[0-9]*/comm"):
        try:
            name = path.read_text().strip()
        except OSError:
            continue
        if name in _FOREIGN_PROGRAMS:
            return f"{name} (process {path.parent.name})"
    return rules.foreign()


def _setting(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""  # the kernel has no such setting


def _forget(served: list[Served]) -> int:
    with UdpFlows() as flows:
        return flows.forget(stale(flows.read(), served))


def _told(error: OSError) -> str:
    return (error.strerror or str(error)).lower()
