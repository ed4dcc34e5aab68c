"""Fields of Services that no proxy of allot's acts on, and what their writer is told."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

JSON = Mapping[str, Any]

_ELSEWHERE = "without kube-proxy or another proxy on the nodes, it has no effect"
_ONE_MACHINE = "the pod network of `allot up` is one machine"
# By field: the value that means something, if not any; and why nothing comes of it where pods share the network of one machine.
_NOT_ON_ONE_MACHINE: Mapping[str, tuple[str, str]] = {
    "loadBalancerSourceRanges": ("", "load balancers have addresses that only this machine reaches"),
    "externalTrafficPolicy": ("Local", f"{_ONE_MACHINE}, and every connection is relayed to any of the endpoints"),
    "internalTrafficPolicy": ("Local", f"{_ONE_MACHINE}, and endpoints of all nodes get connections"),
}


def unserved(service: JSON, *, is_on_one_machine: bool) -> Iterator[str]:
    """What to warn of. is_on_one_machine: whether pods are in the network that `allot up` makes."""
    spec = service.get("spec")
    if not isinstance(spec, Mapping) or spec.get("type") == "ExternalName":
        return
    ports = spec.get("ports")
    if spec.get("clusterIP") != "None":
        for port in ports if isinstance(ports, list) else ():
            if isinstance(port, Mapping) and port.get("protocol") == "SCTP":
                yield f"allot routes no SCTP to Services, such as port {port.get('port')}: {_ELSEWHERE}"
        if spec.get("externalIPs"):
            yield f"allot routes no spec.externalIPs, with which a Service could take over traffic of others: {_ELSEWHERE}"
    if "IPv6" in (spec.get("ipFamilies") or ()):
        yield f"allot routes Services over IPv4 only: {_ELSEWHERE} over IPv6"
    if not is_on_one_machine:
        return
    for field, (meant, why) in _NOT_ON_ONE_MACHINE.items():
        value = spec.get(field)
        if value and (not meant or value == meant):
            yield f"nothing acts on spec.{field} of this Service: {why}"
