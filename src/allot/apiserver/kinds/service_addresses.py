"""Assigns cluster IPs and node ports to Services that need them.

Chosen at random from the range and checked against existing Services, so that servers on one store seldom collide;
values that a client requests are not checked against others here.
"""

from __future__ import annotations

import ipaddress
from typing import Any

from allot.apiserver.admission.attributes import Admission, Lookup, Operation
from allot.apiserver.bootstrap import SERVICE_RANGE
from allot.apiserver.errors import internal
from allot.apiserver.resources import Resource
from allot.process.ids import Ids

Object = dict[str, Any]

NODE_PORTS = range(30000, 32768)
_ATTEMPTS = 1000


class ServiceAddresses:
    """An admission plugin."""

    def __init__(self, lookup: Lookup, ids: Ids, address_range: str = SERVICE_RANGE) -> None:
        self._lookup = lookup
        self._ids = ids
        self._network = ipaddress.ip_network(address_range)

    def handles(self, resource: Resource, subresource: str, operation: Operation) -> bool:
        """Writes of services."""
        writing = operation in (Operation.CREATE, Operation.UPDATE)
        return writing and not subresource and (resource.group, resource.plural) == ("", "services")

    async def mutate(self, admission: Admission) -> None:
        """Fill in clusterIP, clusterIPs, node ports and the health check node port."""
        service = admission.object
        spec = (service or {}).get("spec")
        if service is None or not isinstance(spec, dict):
            return
        old = (admission.old or {}).get("spec") or {}
        changed = _without_other_types(spec, old)
        changed = await self._with_address(changed, old)
        changed = await self._with_node_ports(changed, old)
        changed = await self._with_health_port(changed, old)
        if changed is not spec:
            admission.object = {**service, "spec": changed}

    async def _with_address(self, spec: Object, old: Object) -> Object:
        if spec.get("type", "ClusterIP") == "ExternalName":
            return spec
        address = spec.get("clusterIP") or (spec.get("clusterIPs") or [""])[0] or old.get("clusterIP") or ""
        if not address:
            address = await self._free_address()
        if spec.get("clusterIP") == address and spec.get("clusterIPs"):
            return spec
        filled = {**spec, "clusterIP": address, "clusterIPs": spec.get("clusterIPs") or [address]}
        if address != "None" or spec.get("selector"):
            filled.setdefault("ipFamilies", ["IPv6" if ":" in str(address) else "IPv4"])
            filled.setdefault("ipFamilyPolicy", "SingleStack")
        return filled

    async def _free_address(self) -> str:
        taken = {(each.get("spec") or {}).get("clusterIP") for each in await self._lookup.list("services", "")}
        size = min(self._network.num_addresses, 2**20)
        for _ in range(_ATTEMPTS):
            # The first addresses are for those who ask for one, as upstream keeps them.
            address = str(self._network[16 + int(self._ids.jitter() * (size - 17))])
            if address not in taken:
                return address
        for offset in range(1, size - 1):
            if str(self._network[offset]) not in taken:
                return str(self._network[offset])
        raise internal(f"failed to allocate a serviceIP: range {self._network} is full")

    async def _with_node_ports(self, spec: Object, old: Object) -> Object:
        ports = spec.get("ports")
        if spec.get("type") not in ("NodePort", "LoadBalancer") or not isinstance(ports, list):
            return spec
        if spec.get("allocateLoadBalancerNodePorts") is False:
            return spec
        kept = {_identity(port): port.get("nodePort") for port in old.get("ports") or [] if isinstance(port, dict)}
        taken: set[Any] | None = None
        filled = []
        for port in ports:
            if not isinstance(port, dict) or port.get("nodePort"):
                filled.append(port)
                continue
            number = kept.get(_identity(port))
            if not number:
                if taken is None:
                    taken = await self._taken_ports()
                number = self._free_port(taken)
                taken.add(number)
            filled.append({**port, "nodePort": number})
        return spec if filled == ports else {**spec, "ports": filled}

    async def _with_health_port(self, spec: Object, old: Object) -> Object:
        """Where load balancers ask nodes whether they have endpoints, for Services that only such nodes answer for."""
        port = spec.get("healthCheckNodePort")
        if (spec.get("type"), spec.get("externalTrafficPolicy")) != ("LoadBalancer", "Local"):
            if not port or port != old.get("healthCheckNodePort"):
                return spec
            return {name: value for name, value in spec.items() if name != "healthCheckNodePort"}
        if port:
            return spec
        port = old.get("healthCheckNodePort") or self._free_port(await self._taken_ports(spec))
        return {**spec, "healthCheckNodePort": port}

    async def _taken_ports(self, *others: Object) -> set[Any]:
        """Node ports of all Services, and of others that are not stored yet."""
        specs = [*((each.get("spec") or {}) for each in await self._lookup.list("services", "")), *others]
        ports = {port.get("nodePort") for each in specs for port in each.get("ports") or [] if isinstance(port, dict)}
        return ports | {each.get("healthCheckNodePort") for each in specs}

    def _free_port(self, taken: set[Any]) -> int:
        start = int(self._ids.jitter() * len(NODE_PORTS))
        for offset in range(len(NODE_PORTS)):
            port = NODE_PORTS[(start + offset) % len(NODE_PORTS)]
            if port not in taken:
                return port
        raise internal("failed to allocate a nodePort: range is full")


_OUTSIDE = ("NodePort", "LoadBalancer")


def _without_other_types(spec: Object, old: Object) -> Object:
    """What only the type before had, and whoever changed the type left as it was, goes with it, as upstream drops it."""
    before, now = old.get("type", "ClusterIP"), spec.get("type", "ClusterIP")
    if not old or before == now:
        return spec
    dropped: list[str] = []
    if before == "LoadBalancer":
        dropped += ["allocateLoadBalancerNodePorts", "loadBalancerClass"]
    if before in _OUTSIDE and now not in _OUTSIDE:
        dropped += ["externalTrafficPolicy", "healthCheckNodePort"]
    if now == "ExternalName":
        dropped += ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy", "internalTrafficPolicy"]
    kept = {name: value for name, value in spec.items() if name not in dropped or value not in ("", old.get(name))}
    ports = spec.get("ports")
    if before in _OUTSIDE and now not in _OUTSIDE and isinstance(ports, list):
        given = {_identity(port): port.get("nodePort") for port in old.get("ports") or [] if isinstance(port, dict)}
        kept["ports"] = [
            {name: value for name, value in port.items() if name != "nodePort" or value != given.get(_identity(port))}
            if isinstance(port, dict)
            else port
            for port in ports
        ]
    return kept


def _identity(port: Object) -> tuple[Any, Any]:
    return port.get("protocol", "TCP"), port.get("port")
