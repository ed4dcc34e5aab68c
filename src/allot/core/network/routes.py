"""Endpoints of a Service: from the Service and its EndpointSlices to what a proxy and a name server need.

Services and slices are JSON values: they come from a cache and are never written here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

JSON = Mapping[str, Any]

_SERVICE_NAME = "kubernetes.io/service-name"
_AFFINITY_S = 10800
_PROTOCOLS = ("TCP", "UDP")

# A port of a Service: the Service's namespace/name, protocol, number.
PortKey = tuple[str, str, int]


class Endpoint(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where a pod is. hostname: its name below that of a headless Service."""

    address: str
    port: int
    hostname: str = ""


class ServicePort(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A port of a Service, and who answers there: those that are ready, or if none is, those that still serve while they end."""

    name: str = ""
    protocol: str = "TCP"
    port: int
    node_port: int = 0
    app_protocol: str = ""
    endpoints: tuple[Endpoint, ...] = ()


class ServiceRoutes(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A Service. address: empty if it has none of its own; hosts: those behind a headless one, by address; affinity_s: how long a client
    stays with one endpoint."""

    namespace: str
    name: str
    address: str = ""
    external_name: str = ""
    affinity_s: int = 0
    ports: tuple[ServicePort, ...] = ()
    hosts: tuple[Endpoint, ...] = ()

    @property
    def key(self) -> str:
        """namespace/name."""
        return f"{self.namespace}/{self.name}"


def service_key_of(slice_: JSON) -> Iterator[str]:
    """namespace/name of the Service that an EndpointSlice belongs to, if it says so; for an index."""
    name = (slice_["metadata"].get("labels") or {}).get(_SERVICE_NAME)
    if name:
        yield f"{slice_['metadata']['namespace']}/{name}"


def routes_of(service: JSON, slices: Iterable[JSON]) -> ServiceRoutes:
    """What a Service leads to. slices: those that are labelled with its name."""
    spec, metadata = service.get("spec") or {}, service["metadata"]
    if spec.get("type") == "ExternalName":
        return ServiceRoutes(
            namespace=metadata["namespace"], name=metadata["name"], external_name=spec.get("externalName", "")
        )
    of_ipv4 = [each for each in slices if each.get("addressType") == "IPv4"]
    address = spec.get("clusterIP") or ""
    is_headless = address in ("", "None")
    return ServiceRoutes(
        namespace=metadata["namespace"],
        name=metadata["name"],
        address="" if is_headless else address,
        affinity_s=_affinity(spec),
        ports=tuple(_ports(spec, of_ipv4)),
        hosts=tuple(_hosts(of_ipv4)) if is_headless else (),
    )


def _affinity(spec: JSON) -> int:
    if spec.get("sessionAffinity") != "ClientIP":
        return 0
    configured = ((spec.get("sessionAffinityConfig") or {}).get("clientIP") or {}).get("timeoutSeconds")
    return configured or _AFFINITY_S


def _ports(spec: JSON, slices: Iterable[JSON]) -> Iterator[ServicePort]:
    for each in spec.get("ports") or ():
        name, protocol = each.get("name") or "", each.get("protocol") or "TCP"
        yield ServicePort(
            name=name,
            protocol=protocol,
            port=each["port"],
            node_port=each.get("nodePort") or 0,
            app_protocol=each.get("appProtocol") or "",
            endpoints=endpoints_of(slices, name) if protocol in _PROTOCOLS else (),
        )


def endpoints_of(slices: Iterable[JSON], name: str) -> tuple[Endpoint, ...]:
    """Who answers at a named port, in an order that does not depend on that of the slices."""
    ready, serving = [], []
    for slice_, endpoint in _all(slices):
        port = next((each.get("port") for each in slice_.get("ports") or () if (each.get("name") or "") == name), None)
        if port is None:
            continue
        found = Endpoint(address=endpoint["addresses"][0], port=port)
        conditions = endpoint.get("conditions") or {}
        if conditions.get("ready") is not False:
            ready.append(found)
        elif conditions.get("serving"):
            serving.append(found)
    return tuple(sorted(set(ready or serving), key=_order))


def _hosts(slices: Iterable[JSON]) -> Iterator[Endpoint]:
    """Those that are ready, with their names."""
    found = {
        Endpoint(address=endpoint["addresses"][0], port=0, hostname=endpoint.get("hostname") or "")
        for _, endpoint in _all(slices)
        if (endpoint.get("conditions") or {}).get("ready") is not False
    }
    yield from sorted(found, key=_order)


def _all(slices: Iterable[JSON]) -> Iterator[tuple[JSON, JSON]]:
    for slice_ in slices:
        for endpoint in slice_.get("endpoints") or ():
            if endpoint.get("addresses"):
                yield slice_, endpoint


def _order(endpoint: Endpoint) -> tuple[str, int, str]:
    return endpoint.address, endpoint.port, endpoint.hostname
