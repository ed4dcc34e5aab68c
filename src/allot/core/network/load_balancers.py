"""Where a Service of type LoadBalancer is served on this machine: an address of its loopback, the same one each time if it is free.

Each Service has its own address, so that two of them can have the same port. Ports that this user may not have, or that are taken, are
replaced, and the Service says by which.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from hashlib import sha256
from typing import Any

import msgspec

from allot.core.network.ranges import address_of, is_in, number_of

JSON = Mapping[str, Any]
Object = dict[str, Any]

RANGE, RANGE_BITS = "127.64.0.0", 10
PORTS = "allot.dev/load-balancer-ports"
_CANDIDATES = 16
_ABOVE = 8000


class Served(msgspec.Struct, frozen=True, kw_only=True):
    """Where a port of a Service is served."""

    port: int
    protocol: str
    at: int


def wants_load_balancer(service: JSON) -> bool:
    """Whether a Service is ours to serve: other classes are others' business."""
    spec = service.get("spec") or {}
    return spec.get("type") == "LoadBalancer" and not spec.get("loadBalancerClass")


def candidates(service: JSON) -> Iterator[str]:
    """Addresses to be tried: the one that it had, then some that follow from its uid."""
    ingress = (service.get("status") or {}).get("loadBalancer", {}).get("ingress") or ()
    for each in ingress:
        if is_in(each.get("ip") or "", RANGE, RANGE_BITS):
            yield each["ip"]
    digest = int.from_bytes(sha256(str(service["metadata"].get("uid")).encode()).digest()[:4])
    size = 1 << (32 - RANGE_BITS)
    for step in range(_CANDIDATES):
        yield address_of(number_of(RANGE) + 1 + (digest + step) % (size - 2))


def replacements(port: int) -> Iterator[int]:
    """Ports instead of one that is not available; 0 is any that is free."""
    if port < 1024:
        yield port + _ABOVE
    yield 0


def status_patch(service: JSON, address: str, served: tuple[Served, ...]) -> Object | None:
    """What has to be written so that the Service says where it is; None if it does. address: empty if it is served nowhere."""
    moved = [each for each in served if each.at != each.port]
    ingress: list[Object] = []
    if address:
        ingress = [{"ip": address, "ipMode": "Proxy"}]
        if moved:
            ingress[0]["ports"] = [
                {"port": each.port, "protocol": each.protocol, "error": f"allot.dev/ServedOn{each.at}"}
                for each in moved
            ]
    text = ",".join(f"{each.port}/{each.protocol}={each.at}" for each in moved)
    told = (service.get("metadata", {}).get("annotations") or {}).get(PORTS, "")
    now = (service.get("status") or {}).get("loadBalancer", {}).get("ingress") or []
    if now == ingress and told == text:
        return None
    patch: Object = {"status": {"loadBalancer": {"ingress": ingress or None}}}
    if told != text:
        patch["metadata"] = {"annotations": {PORTS: text or None}}
    return patch


def moved_text(address: str, each: Served, why: str) -> str:
    """For an event."""
    return f"port {each.port}/{each.protocol} is served at {address}:{each.at}: {why}"
