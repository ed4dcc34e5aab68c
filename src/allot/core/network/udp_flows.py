"""Which flows of UDP a node's kernel must forget: those to Services whose endpoint serves no more.

The kernel decides once per flow where its packets go, and a client that keeps sending keeps the flow: without a connection that breaks,
it would talk to an endpoint that is gone forever. As kube-proxy does, flows of endpoints that still serve are left alone, whatever the
policies of the Service say by now. Does not know how the kernel is asked (`allot.network.conntrack`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

JSON = Mapping[str, Any]

# Address and port.
Place = tuple[str, int]


class Flow(msgspec.Struct, frozen=True, kw_only=True):
    """What the kernel remembers: where a client sends to, and who answers."""

    to: Place
    answers: Place


class UdpPort(msgspec.Struct, frozen=True, kw_only=True):
    """A port of a Service over UDP, and all of its endpoints that serve, on whichever node."""

    port: int
    node_port: int = 0
    serving: frozenset[Place] = frozenset()


class Served(msgspec.Struct, frozen=True, kw_only=True):
    """A Service with ports over UDP. addresses: its own, and those of its load balancer."""

    addresses: tuple[str, ...]
    ports: tuple[UdpPort, ...]


def udp_ports(spec: JSON, slices: Iterable[JSON]) -> tuple[UdpPort, ...]:
    """The ports over UDP of a Service with these slices."""
    slices = tuple(slices)
    return tuple(
        UdpPort(
            port=each["port"],
            node_port=each.get("nodePort") or 0,
            serving=frozenset(_serving(slices, each.get("name") or "")),
        )
        for each in spec.get("ports") or ()
        if each.get("protocol") == "UDP"
    )


def _serving(slices: Iterable[JSON], name: str) -> Iterator[Place]:
    for slice_ in slices:
        ports = [
            each["port"] for each in slice_.get("ports") or () if (each.get("name") or "") == name and each.get("port")
        ]
        for endpoint in slice_.get("endpoints") or () if slice_.get("addressType") == "IPv4" and ports else ():
            conditions = endpoint.get("conditions") or {}
            # What says nothing of it is ready.
            if conditions.get("serving", conditions.get("ready")) is not False:
                yield endpoint["addresses"][0], ports[0]


def stale(flows: Iterable[Flow], services: Iterable[Served]) -> list[Flow]:
    """The flows to forget, so that the next packet is sent to an endpoint that serves, or refused."""
    at_address: dict[Place, frozenset[Place]] = {}
    at_node: dict[int, frozenset[Place]] = {}
    for service in services:
        for port in service.ports:
            for address in service.addresses:
                at_address[address, port.port] = port.serving
            if port.node_port:
                at_node[port.node_port] = port.serving
    return [each for each in flows if _is_stale(each, at_address, at_node)]


def _is_stale(
    flow: Flow, at_address: Mapping[Place, frozenset[Place]], at_node: Mapping[int, frozenset[Place]]
) -> bool:
    serving = at_address.get(flow.to)
    if serving is not None:
        return flow.answers not in serving
    serving = at_node.get(flow.to[1])
    # Other users of that port, here or on another machine, get answers from the address that they send to.
    return serving is not None and flow.answers != flow.to and flow.answers not in serving
