"""What the kernel of a node does with packets for Services: from Services and their EndpointSlices to chains of rules.

The semantics are kube-proxy's in its nftables mode: an endpoint is chosen by chance, a client may be kept with its endpoint, a pod that
reaches itself and traffic from outside is masqueraded, unless `externalTrafficPolicy: Local` asks for the client's address; addresses of
load balancers are for clients of `loadBalancerSourceRanges` alone, if there are any. IPv4 only, TCP and UDP. Does not know how the kernel is told (`allot.network.nftables`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from ipaddress import ip_network
from typing import Any

import msgspec

from allot.core.network.routes import Endpoint, ServicePort, ServiceRoutes, routes_of
from allot.core.network.udp_flows import UdpPort, udp_ports

JSON = Mapping[str, Any]

PROXY_NAME = "service.kubernetes.io/service-proxy-name"
_PROTOCOLS = ("TCP", "UDP")


class Dnat(msgspec.Struct, frozen=True):
    """Send the connection to an endpoint."""

    address: str
    port: int


class Goto(msgspec.Struct, frozen=True):
    """Go on in another chain: once in so many times, or if the client is in a set, or in a network (address and bits)."""

    chain: str
    one_in: int = 1
    remembered: str = ""
    source: str = ""


class Mark(msgspec.Struct, frozen=True):
    """Replies have to come back this way. source: only if it comes from there."""

    source: str = ""


class Remember(msgspec.Struct, frozen=True):
    """Put the client into a set, for as long as the set says."""

    set: str


class Drop(msgspec.Struct, frozen=True):
    """No one here may answer."""


Rule = Dnat | Goto | Mark | Remember | Drop
# Address, protocol, port; and the latter two.
Place = tuple[str, str, int]
NodePort = tuple[str, int]


class Ruleset(msgspec.Struct, frozen=True, kw_only=True):
    """All rules. places: where Services are for pods; outside: where they are for everyone; addresses: of Services, at which nothing
    answers but what has a place. sets: of clients, and for how many seconds."""

    chains: Mapping[str, tuple[Rule, ...]] = {}
    places: Mapping[Place, str] = {}
    outside: Mapping[Place, str] = {}
    node_ports: Mapping[NodePort, str] = {}
    addresses: tuple[str, ...] = ()
    sets: Mapping[str, int] = {}


class NodeService(msgspec.Struct, frozen=True, kw_only=True):
    """A Service as a node sees it. local: what is behind it on the node; outside: addresses of its load balancer; sources: the networks
    whose clients may use these, None for everyone; health_port: where the node says how many endpoints it has that are ready; since: when it
    was created, as text that sorts."""

    routes: ServiceRoutes
    local: ServiceRoutes
    outside: tuple[str, ...] = ()
    sources: tuple[str, ...] | None = None
    is_internal_local: bool = False
    is_external_local: bool = False
    health_port: int = 0
    ready_here: int = 0
    udp: tuple[UdpPort, ...] = ()
    since: str = ""


def node_service(service: JSON, slices: Iterable[JSON], node: str) -> NodeService | None:
    """A Service as a node sees it; None if it has no address of its own, or someone else is to serve it.

    Its `externalIPs` have no effect: a user who may write a Service could take traffic of others with them (CVE-2020-8554).
    """
    spec, labels = service.get("spec") or {}, service["metadata"].get("labels") or {}
    slices = [_with(each, lambda one: can_answer(str((one.get("addresses") or ("",))[0]))) for each in slices]
    routes = routes_of(service, slices)
    if not routes.address or PROXY_NAME in labels:
        return None
    here = [_with(each, lambda one: one.get("nodeName") == node) for each in slices]
    is_external_local = spec.get("externalTrafficPolicy") == "Local"
    status = (service.get("status") or {}).get("loadBalancer") or {}
    ingress = [each["ip"] for each in status.get("ingress") or () if each.get("ip") and each.get("ipMode") != "Proxy"]
    return NodeService(
        routes=routes,
        local=routes_of(service, here),
        outside=tuple(each for each in dict.fromkeys(ingress) if ":" not in each),
        sources=_sources(spec.get("loadBalancerSourceRanges") or ()),
        is_internal_local=spec.get("internalTrafficPolicy") == "Local",
        is_external_local=is_external_local,
        health_port=(spec.get("healthCheckNodePort") or 0) if is_external_local else 0,
        ready_here=len({one["addresses"][0] for each in here for one in each["endpoints"] if _is_ready(one)}),
        udp=udp_ports(spec, slices),
        since=service["metadata"].get("creationTimestamp") or "",
    )


def _is_ready(endpoint: JSON) -> bool:
    conditions = endpoint.get("conditions") or {}
    return conditions.get("ready") is not False and not conditions.get("terminating")


def _sources(ranges: Iterable[str]) -> tuple[str, ...] | None:
    """The networks of IPv4 among them; None if there is no range at all. Who named others only lets no one of IPv4 in."""
    named = [each.strip() for each in ranges]
    if not named:
        return None
    found = []
    for each in named:
        try:
            network = ip_network(each, strict=False)
        except ValueError:
            continue  # older objects may have what is no network: no one is in it
        if network.version == 4:
            found.append(str(network))
    return tuple(dict.fromkeys(found))


def _with(slice_: JSON, is_meant: Callable[[JSON], bool]) -> JSON:
    return {**slice_, "endpoints": [each for each in slice_.get("endpoints") or () if is_meant(each)]}


def can_answer(address: str) -> bool:
    """Whether an address can be that of an endpoint. Slices can be written by hand, and must not lead to the loopback of the node, to what
    clouds tell their machines at link-local addresses, or to groups."""
    first, *_ = parts = address.split(".")
    if len(parts) != 4 or not first.isdecimal():
        return False
    return first not in ("0", "127") and parts[:2] != ["169", "254"] and int(first) < 224


class _Making:
    def __init__(self) -> None:
        self.chains: dict[str, tuple[Rule, ...]] = {}
        self.places: dict[Place, str] = {}
        self.outside: dict[Place, str] = {}
        self.node_ports: dict[NodePort, str] = {}
        self.sets: dict[str, int] = {}


def packet_rules(services: Iterable[NodeService]) -> Ruleset:
    """The rules for all Services, in an order that does not depend on theirs. Servers give an address or a port once; should two Services have
    it anyway, it is the older one's."""
    making, addresses = _Making(), []
    for service in sorted(services, key=lambda each: (each.since, each.routes.key)):
        addresses.append(service.routes.address)
        here = {(each.protocol, each.port): each for each in service.local.ports}
        for port in service.routes.ports:
            if port.protocol in _PROTOCOLS:
                _add_port(making, service, port, here[port.protocol, port.port])
    return Ruleset(
        chains=making.chains,
        places=making.places,
        outside=making.outside,
        node_ports=making.node_ports,
        addresses=tuple(sorted(set(addresses))),
        sets=making.sets,
    )


def _add_port(making: _Making, service: NodeService, port: ServicePort, local: ServicePort) -> None:
    routes, place = service.routes, f"{service.routes.key}/{port.protocol.lower()}/{port.port}"
    inside = local if service.is_internal_local else port
    if inside.endpoints:
        kind = "local" if service.is_internal_local else "all"
        choice = _add_choice(making, kind, place, inside.endpoints, routes.affinity_s)
        making.places.setdefault((routes.address, port.protocol, port.port), choice)
    if not port.node_port and not service.outside:
        return
    chain = _add_outside(making, service, place, port, local)
    if not chain:
        return
    if port.node_port:
        making.node_ports.setdefault((port.protocol, port.node_port), chain)
    if service.outside and service.sources is not None:
        allowed = tuple(Goto(chain, source=each) for each in service.sources)
        chain = f"balancer/{place}"
        making.chains[chain] = (*allowed, Drop())
    for address in service.outside:
        making.outside.setdefault((address, port.protocol, port.port), chain)


def _add_outside(making: _Making, service: NodeService, place: str, port: ServicePort, local: ServicePort) -> str:
    """The chain for those who come from outside; empty if no one is there at all."""
    if not port.endpoints:
        return ""
    name, rules = f"outside/{place}", tuple[Rule, ...]()
    if not service.is_external_local:
        rules = (Mark(), Goto(_add_choice(making, "all", place, port.endpoints, service.routes.affinity_s)))
    elif local.endpoints:
        rules = (Goto(_add_choice(making, "local", place, local.endpoints, service.routes.affinity_s)),)
    else:
        # Others have endpoints: the load balancer notices the missing answer.
        rules = (Drop(),)
    making.chains[name] = rules
    return name


def _add_choice(making: _Making, kind: str, place: str, endpoints: tuple[Endpoint, ...], affinity_s: int) -> str:
    """A chain that chooses one of the endpoints."""
    name = f"{kind}/{place}"
    if name in making.chains:
        return name
    kept: list[Rule] = []
    chosen: list[Rule] = []
    for position, endpoint in enumerate(endpoints):
        of_endpoint = f"endpoint/{place}/{endpoint.address}/{endpoint.port}"
        # A set keeps its time as long as it lives.
        clients = f"clients/{affinity_s}/{place}/{endpoint.address}/{endpoint.port}" if affinity_s else ""
        rules: list[Rule] = [Mark(source=endpoint.address)]
        if clients:
            making.sets[clients] = affinity_s
            kept.append(Goto(of_endpoint, remembered=clients))
            rules.append(Remember(clients))
        making.chains[of_endpoint] = (*rules, Dnat(endpoint.address, endpoint.port))
        chosen.append(Goto(of_endpoint, one_in=len(endpoints) - position))
    making.chains[name] = (*kept, *chosen)
    return name
