"""Assigns cluster IPs and node ports to Services that need them.

Chosen at random from the range and checked against existing Services, so that servers on one store seldom collide. Values that a client
requests must be in the range and unused: nodes send the packets for a Service's address, or for a port of a node, to its endpoints.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator
from typing import Any

from allot.apiserver.admission.attributes import Admission, Lookup, Operation
from allot.apiserver.bootstrap import SERVICE_RANGE
from allot.apiserver.errors import StatusError, internal, invalid
from allot.apiserver.resources import Resource
from allot.core.validation.fields import invalid as invalid_field
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
        await self._check_chosen(admission, changed, old)
        changed = await self._with_address(changed, old)
        changed = await self._with_node_ports(changed, old)
        changed = await self._with_health_port(changed, old)
        if changed is not spec:
            admission.object = {**service, "spec": changed}

    # --- requested values ---

    async def _check_chosen(self, admission: Admission, spec: Object, old: Object) -> None:
        addresses = [each for each in _addresses(spec) if each not in _addresses(old)]
        had = _ports_of([old])
        ports = {place: port for place, port in _places(spec) if port not in had}
        if not addresses and not ports:
            return
        others = await self._others(admission)
        for address in addresses:
            if why := self._why_not_address(address, others):
                detail = f"failed to allocate IP {address}: {why}"
                raise _invalid(admission, "spec.clusterIPs", spec.get("clusterIPs") or [address], detail)
        taken = _ports_of(others)
        for place, port in ports.items():
            if why := _why_not_port(port, taken):
                raise _invalid(admission, place, port, why)

    async def _others(self, admission: Admission) -> list[Object]:
        """The specs of all other Services."""
        own = (admission.namespace, ((admission.object or {}).get("metadata") or {}).get("name"))
        return [
            each.get("spec") or {}
            for each in await self._lookup.list("services", "")
            if (each["metadata"].get("namespace"), each["metadata"]["name"]) != own
        ]

    def _why_not_address(self, text: str, others: list[Object]) -> str:
        try:
            address = ipaddress.ip_address(text)
        except ValueError:
            return ""  # validation reports it
        if address.version == self._network.version and address not in self._network:
            return "the provided network does not match the current range"
        is_taken = any(text in _addresses(each) for each in others)
        return "provided IP is already allocated" if is_taken else ""

    # --- assigned values ---

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
            # The first addresses are reserved for explicit requests, as upstream.
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
        """The port where load balancers check nodes for endpoints, for Services that only nodes with endpoints serve."""
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
        """Node ports of all Services, including those not stored yet."""
        specs = [*((each.get("spec") or {}) for each in await self._lookup.list("services", "")), *others]
        return _ports_of(specs)

    def _free_port(self, taken: set[Any]) -> int:
        start = int(self._ids.jitter() * len(NODE_PORTS))
        for offset in range(len(NODE_PORTS)):
            port = NODE_PORTS[(start + offset) % len(NODE_PORTS)]
            if port not in taken:
                return port
        raise internal("failed to allocate a nodePort: range is full")


_OUTSIDE = ("NodePort", "LoadBalancer")
_HEALTH = "spec.healthCheckNodePort"


def _without_other_types(spec: Object, old: Object) -> Object:
    """Drop unchanged fields of the previous type, as upstream does."""
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


def _addresses(spec: Object) -> list[str]:
    """The addresses of a Service that has any."""
    if spec.get("type") == "ExternalName":
        return []
    given = spec.get("clusterIPs")
    listed = given if isinstance(given, list) and given else [spec.get("clusterIP")]
    return [each for each in listed if isinstance(each, str) and each not in ("", "None")]


def _ports_of(specs: Iterable[Object]) -> set[Any]:
    """All ports of nodes that Services have. A health check port counts whatever the type: it is stored until its Service changes."""
    return {port for each in specs for port in (*(port for _, port in _places(each)), each.get("healthCheckNodePort"))}


def _places(spec: Object) -> Iterator[tuple[str, int]]:
    """The node ports of a Service, with their fields."""
    if spec.get("type") not in _OUTSIDE:
        return
    ports = spec.get("ports")
    for position, each in enumerate(ports if isinstance(ports, list) else ()):
        port = each.get("nodePort") if isinstance(each, dict) else None
        if isinstance(port, int) and port:
            yield f"spec.ports[{position}].nodePort", port
    port = spec.get(_HEALTH.partition(".")[2])
    if isinstance(port, int) and port:
        yield _HEALTH, port


def _why_not_port(port: int, taken: set[Any]) -> str:
    if port not in NODE_PORTS:
        valid = f"{NODE_PORTS[0]}-{NODE_PORTS[-1]}"
        return f"provided port is not in the valid range. The range of valid ports is {valid}"
    return "provided port is already allocated" if port in taken else ""


def _invalid(admission: Admission, field: str, value: object, detail: str) -> StatusError:
    name = ((admission.object or {}).get("metadata") or {}).get("name") or ""
    return invalid("", "Service", name, [invalid_field(field, value, detail).error])


def _identity(port: Object) -> tuple[Any, Any]:
    return port.get("protocol", "TCP"), port.get("port")
