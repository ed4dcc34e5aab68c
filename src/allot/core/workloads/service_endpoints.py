"""A pod as an endpoint of a Service: its addresses, ports and readiness. For EndpointSlices and for Endpoints.

Services are JSON values: they come from a cache and are never written here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from ipaddress import ip_address
from typing import Any

from allot.core.lifecycle.disruption import is_terminal
from allot.core.model.core_v1 import Pod

JSON = Mapping[str, Any]
Object = dict[str, Any]

HEADLESS = "service.kubernetes.io/headless"
TRIGGER_TIME = "endpoints.kubernetes.io/last-change-trigger-time"
IPV4 = "IPv4"
IPV6 = "IPv6"


def selector_of(service: JSON) -> Mapping[str, str] | None:
    """The selector of a Service's pods; None if no controller manages its endpoints."""
    spec = service.get("spec") or {}
    return None if spec.get("type") == "ExternalName" else spec.get("selector") or None


def selects(selector: Mapping[str, str], labels: Mapping[str, str]) -> bool:
    """Whether a Service selects a pod with these labels."""
    return all(labels.get(key) == value for key, value in selector.items())


def is_headless(service: JSON) -> bool:
    """Whether a Service has no cluster IP."""
    return (service.get("spec") or {}).get("clusterIP") in (None, "", "None")


def families_of(service: JSON) -> tuple[str, ...]:
    """The address families of a Service's endpoints."""
    spec = service.get("spec") or {}
    families = tuple(family for family in (IPV4, IPV6) if family in (spec.get("ipFamilies") or ()))
    if families:
        return families
    if not is_headless(service):
        return (family_of(spec["clusterIP"]),)
    # An API server from before address families.
    return (IPV4, IPV6)


def family_of(address: str) -> str:
    """IPv4 or IPv6; empty for an invalid address."""
    try:
        return f"IPv{ip_address(address).version}"
    except ValueError:
        return ""


def is_ready(pod: Pod) -> bool:
    """Whether the pod reports that it is ready."""
    return any(condition.type == "Ready" and condition.status == "True" for condition in pod.status.conditions)


def has_endpoint(pod: Pod, *, with_terminating: bool) -> bool:
    """Whether a pod can be reached at all: it has an address and has not ended."""
    if is_terminal(pod) or not pod.status.pod_ips:
        return False
    return with_terminating or pod.metadata.deletion_timestamp is None


def addresses_of(pod: Pod, family: str) -> list[str]:
    """The pod's addresses of a family, in canonical form."""
    return [str(ip_address(each.ip)) for each in pod.status.pod_ips if family_of(each.ip) == family]


def hostname_of(pod: Pod, service: JSON) -> str:
    """The pod's name below the Service's; empty if it has none."""
    return pod.spec.hostname if pod.spec.subdomain == service["metadata"]["name"] else ""


def reference_to(pod: Pod) -> Object:
    """The pod as a reference."""
    metadata = pod.metadata
    return {"kind": "Pod", "namespace": metadata.namespace, "name": metadata.name, "uid": metadata.uid}


def ports_of(service: JSON, pod: Pod) -> list[Object]:
    """The ports of a Service on a pod, sorted by name; those that the pod lacks are left out."""
    found = []
    for port in (service.get("spec") or {}).get("ports") or ():
        protocol = port.get("protocol", "TCP")
        number = _number(port.get("targetPort", port["port"]), protocol, pod)
        if number is None:
            continue
        made = {"name": port.get("name", ""), "port": number, "protocol": protocol}
        if port.get("appProtocol") is not None:
            made["appProtocol"] = port["appProtocol"]
        found.append(made)
    return sorted(found, key=lambda port: (port["name"], port["port"], port["protocol"]))


def _number(target: int | str, protocol: str, pod: Pod) -> int | None:
    """A port by its number, or by the name that a container gives it."""
    if isinstance(target, int):
        return target
    sidecars = (container for container in pod.spec.init_containers if container.restart_policy == "Always")
    for container in (*pod.spec.containers, *sidecars):
        for port in container.ports:
            if port.name == target and (port.protocol or "TCP") == protocol:
                return port.container_port
    return None


def changes_endpoints(old: Pod, new: Pod) -> bool:
    """Whether a pod change may affect endpoints."""
    return (
        old.metadata.deletion_timestamp != new.metadata.deletion_timestamp
        or is_ready(old) != is_ready(new)
        or old.status.pod_ips != new.status.pod_ips
        or is_terminal(old) != is_terminal(new)
        or old.metadata.labels != new.metadata.labels
        or old.metadata.uid != new.metadata.uid
    )


class TriggerTimes:
    """When the changes of a Service's endpoints happened, to measure how long they take to propagate."""

    def __init__(self) -> None:
        # By Service and pod.
        self._seen: dict[str, dict[str, str]] = {}

    def forget(self, key: str) -> None:
        """Forget a deleted Service."""
        self._seen.pop(key, None)

    def note(self, key: str, service: JSON, pods: list[Pod]) -> str:
        """The time of the earliest change since the last call; for a new Service, its creation. Empty if there were none."""
        times = {pod.metadata.name: time for pod in pods for time in _ready_since(pod)}
        before = self._seen.get(key)
        self._seen[key] = times
        if before is None:
            return str(service["metadata"].get("creationTimestamp") or "")
        return min((time for name, time in times.items() if time > before.get(name, "")), default="")


def _ready_since(pod: Pod) -> Iterator[str]:
    for condition in pod.status.conditions:
        if condition.type == "Ready" and condition.last_transition_time is not None:
            yield condition.last_transition_time
