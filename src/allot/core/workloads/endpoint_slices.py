"""EndpointSlices of a Service: its endpoints in slices of at most 100, updated with as few writes as possible.

An endpoint stays in its slice; a removed one leaves a gap, which new ones fill. Services and slices are JSON values. Not
supported: hints by the annotation `service.kubernetes.io/topology-mode`, which trafficDistribution has replaced.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from allot.core.lifecycle.actions import Action, Create, Delete, Resource, Retry, Update
from allot.core.model.core_v1 import Node, Pod
from allot.core.workloads import service_endpoints as endpoints
from allot.core.workloads.service_endpoints import HEADLESS, TRIGGER_TIME, Object

JSON = Mapping[str, Any]

SLICES = Resource(
    group="discovery.k8s.io", version="v1", plural="endpointslices", kind="EndpointSlice", namespaced=True
)
SERVICE_NAME = "kubernetes.io/service-name"
MANAGED_BY = "endpointslice.kubernetes.io/managed-by"
MANAGER = "endpointslice-controller.k8s.io"
ENDPOINTS_MAX = 100
_ZONE = "topology.kubernetes.io/zone"
_RESERVED = (SERVICE_NAME, MANAGED_BY, HEADLESS)
_NAME_MAX = 253
_CLOSE = ("PreferClose", "PreferSameZone", "PreferSameNode")

# What identifies an endpoint, and a group of ports.
_EndpointKey = tuple[object, ...]
_PortsKey = tuple[tuple[object, ...], ...]


class _Group(msgspec.Struct):
    """Endpoints with the same ports."""

    ports: list[Object]
    endpoints: dict[_EndpointKey, Object]


class _Changes(msgspec.Struct):
    """Slices to write. Those to delete and to update are existing ones."""

    create: list[Object] = []
    update: list[Object] = []
    delete: list[Object] = []


def reconcile_service(
    service: JSON, pods: Sequence[Pod], slices: Iterable[Object], nodes: Mapping[str, Node], trigger_time: str
) -> tuple[Action, ...]:
    """Make the slices of a Service match its pods. pods: those that it selects; slices: those that this controller has created
    for a Service of that name; nodes: at least those of the pods.
    """
    present = [slice_ for slice_ in slices if not slice_["metadata"].get("deletionTimestamp")]
    families = endpoints.families_of(service)
    actions: list[Action] = []
    lost: dict[str, str] = {}
    for family in families:
        groups = _wanted(service, pods, nodes, family, lost)
        changes = _changes(service, [one for one in present if one["addressType"] == family], groups, family)
        actions += _writes(service, changes, trigger_time)
    actions += [_delete(slice_) for slice_ in present if slice_["addressType"] not in families]
    if lost:
        # The rest is written; the pod garbage collector takes care of these.
        pod, node = min(lost.items())
        actions.append(Retry(message=f"skipping Pod {pod}: Node {node} Not Found"))
    return tuple(actions)


# --- what should be there ---


def _wanted(
    service: JSON, pods: Iterable[Pod], nodes: Mapping[str, Node], family: str, lost: dict[str, str]
) -> dict[_PortsKey, _Group]:
    groups: dict[_PortsKey, _Group] = {}
    for pod in sorted(pods, key=lambda pod: pod.metadata.name):
        if not endpoints.has_endpoint(pod, with_terminating=True):
            continue
        ports = endpoints.ports_of(service, pod)
        group = groups.setdefault(_ports_key(ports), _Group(ports, {}))
        node = nodes.get(pod.spec.node_name)
        if node is None and not (service.get("spec") or {}).get("publishNotReadyAddresses"):
            lost[pod.metadata.name] = pod.spec.node_name
            continue
        addresses = endpoints.addresses_of(pod, family)
        if addresses:
            endpoint = _endpoint(service, pod, node, addresses)
            group.endpoints[_endpoint_key(endpoint)] = endpoint
    return groups


def _endpoint(service: JSON, pod: Pod, node: Node | None, addresses: list[str]) -> Object:
    spec = service.get("spec") or {}
    is_serving, is_terminating = endpoints.is_ready(pod), pod.metadata.deletion_timestamp is not None
    is_ready = bool(spec.get("publishNotReadyAddresses")) or (is_serving and not is_terminating)
    made: Object = {
        "addresses": addresses,
        "conditions": {"ready": is_ready, "serving": is_serving, "terminating": is_terminating},
        "targetRef": endpoints.reference_to(pod),
    }
    hostname = endpoints.hostname_of(pod, service)
    zone = node.metadata.labels.get(_ZONE) if node is not None else None
    more = {"hostname": hostname, "nodeName": pod.spec.node_name, "zone": zone}
    made |= {name: value for name, value in more.items() if value}
    hints = _hints(spec.get("trafficDistribution"), made) if is_ready else {}
    if hints:
        made["hints"] = hints
    return made


def _hints(distribution: str | None, endpoint: Object) -> Object:
    """The zones or nodes that the endpoint is close to."""
    if distribution not in _CLOSE:
        return {}
    hints: Object = {}
    if "zone" in endpoint:
        hints["forZones"] = [{"name": endpoint["zone"]}]
    if distribution == "PreferSameNode" and "nodeName" in endpoint:
        hints["forNodes"] = [{"name": endpoint["nodeName"]}]
    return hints


def _ports_key(ports: Iterable[JSON]) -> _PortsKey:
    found = ((port.get("name", ""), port.get("port"), port.get("protocol"), port.get("appProtocol")) for port in ports)
    return tuple(sorted(found, key=repr))


def _endpoint_key(endpoint: JSON) -> _EndpointKey:
    target = endpoint.get("targetRef") or {}
    addresses = tuple(sorted(endpoint.get("addresses") or ()))
    return (addresses, endpoint.get("hostname", ""), target.get("namespace", ""), target.get("name", ""))


def _labels(service: JSON) -> dict[str, str]:
    """The Service's labels, and those that identify its slices."""
    labels = {key: value for key, value in (service["metadata"].get("labels") or {}).items() if key not in _RESERVED}
    if endpoints.is_headless(service):
        labels[HEADLESS] = ""
    return labels | {SERVICE_NAME: service["metadata"]["name"], MANAGED_BY: MANAGER}


# --- what has to change ---


def _changes(service: JSON, present: Sequence[Object], groups: dict[_PortsKey, _Group], family: str) -> _Changes:
    changes = _Changes()
    by_ports: dict[_PortsKey, list[Object]] = {}
    for slice_ in sorted(present, key=lambda slice_: str(slice_["metadata"]["name"])):
        if _is_owned_by(slice_, service):
            by_ports.setdefault(_ports_key(slice_.get("ports") or ()), []).append(slice_)
        else:
            changes.delete.append(slice_)
    for key in sorted(groups, key=repr):
        _change_group(service, by_ports.pop(key, []), groups[key], family, changes)
    for unwanted in by_ports.values():
        changes.delete += unwanted
    if len(changes.delete) == len(present) and not changes.create:
        _keep_one(service, family, changes)
    return changes


def _change_group(service: JSON, present: list[Object], group: _Group, family: str, changes: _Changes) -> None:
    """Slices with one list of ports: existing endpoints stay where they are, new ones fill gaps before new slices are created."""
    missing, labels = dict(group.endpoints), _labels(service)
    touched: list[Object] = []
    untouched: list[Object] = []
    for slice_ in present:
        old = slice_.get("endpoints") or []
        kept = [endpoint for one in old if (endpoint := missing.pop(_endpoint_key(one), None)) is not None]
        if not kept and old:
            changes.delete.append(slice_)
        elif kept != [_written(one) for one in old] or not _has_labels(slice_, labels):
            touched.append(_with(slice_, kept, labels))
        else:
            untouched.append(slice_)
    waiting = list(missing.values())
    for slice_ in sorted(touched, key=lambda slice_: -len(slice_["endpoints"])):
        waiting = _fill(slice_, waiting)
    while waiting:
        fitting = _fullest_that_takes(untouched, len(waiting))
        if fitting is None:
            new = _new_slice(service, group.ports, family)
            changes.create.append(new)
        else:
            untouched = [slice_ for slice_ in untouched if slice_ is not fitting]
            new = _with(fitting, list(fitting.get("endpoints") or []), labels)
            touched.append(new)
        waiting = _fill(new, waiting)
    changes.update += touched


def _fill(slice_: Object, waiting: list[Object]) -> list[Object]:
    """Add as many as fit; returns the others."""
    room = max(0, ENDPOINTS_MAX - len(slice_["endpoints"]))
    slice_["endpoints"] += waiting[:room]
    return waiting[room:]


def _fullest_that_takes(slices: Iterable[Object], count: int) -> Object | None:
    """The fullest unchanged slice that has room for all of them."""
    fitting = [slice_ for slice_ in slices if len(slice_.get("endpoints") or ()) + count <= ENDPOINTS_MAX]
    return max(fitting, key=lambda slice_: len(slice_.get("endpoints") or ()), default=None)


def _keep_one(service: JSON, family: str, changes: _Changes) -> None:
    """A Service without endpoints has one empty slice, which shows that it was checked."""
    empty = _new_slice(service, [], family)
    if len(changes.delete) == 1:
        (last,) = changes.delete
        owned = _is_owned_by(last, service) and last["metadata"].get("labels") == empty["metadata"]["labels"]
        if owned and not last.get("endpoints") and not last.get("ports"):
            changes.delete.clear()
            return
    changes.create.append(empty)


def _new_slice(service: JSON, ports: list[Object], family: str) -> Object:
    metadata = service["metadata"]
    prefix = f"{metadata['name']}-"
    owner = {
        "apiVersion": "v1",
        "kind": "Service",
        "name": metadata["name"],
        "uid": metadata["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }
    return {
        "apiVersion": SLICES.api_version,
        "kind": SLICES.kind,
        "metadata": {
            "generateName": prefix if len(prefix) <= _NAME_MAX else metadata["name"],
            "namespace": metadata["namespace"],
            "labels": _labels(service),
            "ownerReferences": [owner],
        },
        "addressType": family,
        "endpoints": [],
        "ports": ports,
    }


def _with(slice_: Object, kept: list[Object], labels: dict[str, str]) -> Object:
    return {**slice_, "metadata": {**slice_["metadata"], "labels": labels}, "endpoints": kept}


def _has_labels(slice_: JSON, labels: Mapping[str, str]) -> bool:
    """Whether the slice has the Service's labels; the headless label matters only on creation."""
    present = slice_["metadata"].get("labels") or {}
    return {key: value for key, value in present.items() if key not in _RESERVED} == {
        key: value for key, value in labels.items() if key not in _RESERVED
    }


def _written(endpoint: JSON) -> Object:
    """An endpoint for comparison: without the pod's resourceVersion, which other writers may have set."""
    target = endpoint.get("targetRef")
    if target and "resourceVersion" in target:
        target = {key: value for key, value in target.items() if key != "resourceVersion"}
        return {**endpoint, "targetRef": target}
    return dict(endpoint)


def _is_owned_by(slice_: JSON, service: JSON) -> bool:
    owners = slice_["metadata"].get("ownerReferences") or ()
    return any(owner.get("kind") == "Service" and owner.get("uid") == service["metadata"]["uid"] for owner in owners)


# --- writes ---


def _writes(service: JSON, changes: _Changes, trigger_time: str) -> list[Action]:
    """A slice to delete and one to create become one update."""
    reusable = [slice_ for slice_ in changes.delete if _is_owned_by(slice_, service)]
    kept: list[str] = []
    for old in reusable[: len(changes.create)]:
        new = changes.create.pop()
        kept.append(old["metadata"]["name"])
        changed = {**old, "endpoints": new["endpoints"], "ports": new["ports"]}
        changes.update.append({**changed, "metadata": {**old["metadata"], "labels": new["metadata"]["labels"]}})
    actions: list[Action] = []
    if not service["metadata"].get("deletionTimestamp"):
        namespace = service["metadata"]["namespace"]
        actions += [
            Create(resource=SLICES, object=_stamped(slice_, trigger_time), namespace=namespace)
            for slice_ in changes.create
        ]
    actions += [Update(resource=SLICES, object=_stamped(slice_, trigger_time)) for slice_ in changes.update]
    actions += [_delete(slice_) for slice_ in changes.delete if slice_["metadata"]["name"] not in kept]
    return actions


def _delete(slice_: JSON) -> Delete:
    metadata = slice_["metadata"]
    return Delete(resource=SLICES, name=metadata["name"], namespace=metadata["namespace"], uid=metadata["uid"])


def _stamped(slice_: Object, trigger_time: str) -> Object:
    metadata = slice_["metadata"]
    annotations = {key: value for key, value in (metadata.get("annotations") or {}).items() if key != TRIGGER_TIME}
    if trigger_time:
        annotations[TRIGGER_TIME] = trigger_time
    return {**slice_, "metadata": {**metadata, "annotations": annotations}}
