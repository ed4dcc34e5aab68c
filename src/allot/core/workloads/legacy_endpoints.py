"""Endpoints of a Service: the older form of EndpointSlices, one object with at most 1,000 addresses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from ipaddress import ip_address
from typing import Any

from allot.core.lifecycle.actions import WARNING, Action, Create, Delete, Emit, Resource, Update
from allot.core.model.core_v1 import Pod
from allot.core.workloads import service_endpoints as endpoints
from allot.core.workloads.service_endpoints import HEADLESS, TRIGGER_TIME, Object

JSON = Mapping[str, Any]

ENDPOINTS = Resource(group="", version="v1", plural="endpoints", kind="Endpoints", namespaced=True)
_MANAGED_BY = "endpoints.kubernetes.io/managed-by"
_MANAGER = "endpoint-controller"
_OVER_CAPACITY = "endpoints.kubernetes.io/over-capacity"
_LEADER = "control-plane.alpha.kubernetes.io/leader"
ADDRESSES_MAX = 1000


def is_lock(object_: JSON) -> bool:
    """Whether the object is used for leader election; then it belongs to no Service."""
    return _LEADER in (object_["metadata"].get("annotations") or {})


def remove_endpoints(present: JSON) -> tuple[Action, ...]:
    """Delete the Endpoints of a deleted Service."""
    if is_lock(present):
        return ()
    metadata = present["metadata"]
    return (
        Delete(resource=ENDPOINTS, name=metadata["name"], namespace=metadata["namespace"], uid=metadata.get("uid", "")),
    )


def reconcile_endpoints(
    service: JSON, pods: Iterable[Pod], present: JSON | None, trigger_time: str
) -> tuple[Action, ...]:
    """Make the Endpoints of a Service match its pods. pods: those that it selects."""
    subsets = _subsets(service, pods)
    is_truncated = _truncate(subsets)
    labels = {**(service["metadata"].get("labels") or {}), _MANAGED_BY: _MANAGER}
    labels.pop(HEADLESS, None)
    if endpoints.is_headless(service):
        labels[HEADLESS] = ""
    metadata = dict(present["metadata"]) if present is not None else {}
    annotations = dict(metadata.get("annotations") or {})
    was_truncated = annotations.pop(_OVER_CAPACITY, None) is not None
    is_same = present is not None and _canonical(present.get("subsets") or ()) == _canonical(subsets)
    if is_same and was_truncated == is_truncated and metadata.get("labels") == labels:
        return ()
    if is_truncated:
        annotations[_OVER_CAPACITY] = "truncated"
    annotations.pop(TRIGGER_TIME, None)
    if trigger_time:
        annotations[TRIGGER_TIME] = trigger_time
    namespace, name = service["metadata"]["namespace"], service["metadata"]["name"]
    metadata |= {"name": name, "namespace": namespace, "labels": labels, "annotations": annotations}
    wanted: Object = {"apiVersion": "v1", "kind": "Endpoints", "metadata": metadata, "subsets": subsets}
    if present is not None:
        return (Update(resource=ENDPOINTS, object=wanted),)
    told = Emit(
        regarding=wanted,
        type=WARNING,
        reason="FailedToCreateEndpoint",
        action="Create",
        note=f"Failed to create endpoint for service {namespace}/{name}: ",
    )
    return (Create(resource=ENDPOINTS, object=wanted, namespace=namespace, on_failure=told),)


def _subsets(service: JSON, pods: Iterable[Pod]) -> list[Object]:
    """Addresses grouped by ports."""
    spec = service.get("spec") or {}
    all_ready = bool(spec.get("publishNotReadyAddresses"))
    family = endpoints.families_of(service)[0]
    found: dict[str, Object] = {}
    for pod in pods:
        if not endpoints.has_endpoint(pod, with_terminating=all_ready):
            continue
        addresses, ports = endpoints.addresses_of(pod, family), endpoints.ports_of(service, pod)
        if not addresses or (spec.get("ports") and not ports):
            continue
        # Unlike in slices, an unnamed port has no name at all.
        ports = [{key: value for key, value in port.items() if value != ""} for port in ports]
        subset = found.setdefault(repr(ports), {"addresses": [], "notReadyAddresses": [], "ports": ports})
        address: Object = {"ip": addresses[0], "targetRef": endpoints.reference_to(pod)}
        if pod.spec.node_name:
            address["nodeName"] = pod.spec.node_name
        hostname = endpoints.hostname_of(pod, service)
        if hostname:
            address["hostname"] = hostname
        subset["addresses" if all_ready or endpoints.is_ready(pod) else "notReadyAddresses"].append(address)
    for subset in found.values():
        for kind in ("addresses", "notReadyAddresses"):
            subset[kind].sort(key=lambda one: (int(ip_address(one["ip"])), one["targetRef"]["uid"]))
    return [{kind: part for kind, part in found[ports].items() if part} for ports in sorted(found)]


def _truncate(subsets: list[Object]) -> bool:
    """Drop the excess: unready addresses first, from each subset its share."""
    ready = sum(len(subset.get("addresses", ())) for subset in subsets)
    not_ready = sum(len(subset.get("notReadyAddresses", ())) for subset in subsets)
    if ready + not_ready <= ADDRESSES_MAX:
        return False
    kind, total = ("addresses", ready) if ready > ADDRESSES_MAX else ("notReadyAddresses", not_ready)
    room = left = ADDRESSES_MAX if ready > ADDRESSES_MAX else ADDRESSES_MAX - ready
    for subset in subsets:
        if ready > ADDRESSES_MAX:
            subset.pop("notReadyAddresses", None)
        present = subset.pop(kind, [])
        kept = present[: min(left, (2 * len(present) * room + total) // (2 * total))]
        left -= len(kept)
        if kept:
            subset[kind] = kept
    return True


def _canonical(subsets: Iterable[JSON]) -> list[str]:
    """Subsets in canonical form."""
    return sorted(
        repr(
            [
                sorted(repr(_plain(one)) for one in subset.get(kind) or ())
                for kind in ("addresses", "notReadyAddresses", "ports")
            ]
        )
        for subset in subsets
    )


def _plain(value: JSON) -> list[tuple[str, Any]]:
    """Members sorted by name, without empty ones and without the pod's resourceVersion."""
    return sorted(
        (key, _plain(member) if isinstance(member, Mapping) else member)
        for key, member in value.items()
        if key != "resourceVersion" and member not in ("", None)
    )
