"""Short ways to say what a test about devices is about: nodes with devices, claims, pods."""

from __future__ import annotations

from typing import Any

from allot.core.features import DEFAULT_GATES, FeatureGates
from allot.core.model import core_v1
from allot.core.model import resource_v1 as api
from allot.core.model.codec import decode
from allot.core.model.meta import ObjectMeta, OwnerReference
from allot.core.model.scheduling_v1 import PodGroup
from allot.core.quantity import Quantity
from allot.core.scheduling.devices.claim_fit import ClaimFit
from allot.core.scheduling.devices.claims import Claims
from allot.core.scheduling.nodes.nodeinfo import NodeInfo
from allot.core.scheduling.plan import Placement

DRIVER = "gpu.example.com"
NAMESPACE = "ns"


def slice_of(node: str | None, devices: list[dict[str, Any]], name: str = "", **spec: Any) -> api.ResourceSlice:
    """A pool of one slice, for one node or (None) as `spec` says."""
    pool = {"name": name or node or "pool", "generation": 1, "resourceSliceCount": 1}
    where = {"nodeName": node} if node is not None else {}
    found = {"driver": DRIVER, "pool": pool, "devices": devices, **where, **spec}
    return decode({"metadata": {"name": name or f"{node}-slice"}, "spec": found}, api.ResourceSlice).object


def gpus(count: int, **more: Any) -> list[dict[str, Any]]:
    """So many devices: gpu-0, gpu-1, ..."""
    return [{"name": f"gpu-{number}", **more} for number in range(count)]


def device_class(
    name: str = "gpu", extended: str | None = None, created: str | None = None, **spec: Any
) -> api.DeviceClass:
    """A class; without selectors it has every device."""
    metadata = {"name": name} | ({"creationTimestamp": created} if created else {})
    more = {"extendedResourceName": extended} if extended else {}
    return decode({"metadata": metadata, "spec": {**spec, **more}}, api.DeviceClass).object


def node(
    name: str, *, labels: dict[str, str] | None = None, features: tuple[str, ...] = (), **amounts: str
) -> NodeInfo:
    """A node; amounts are what it can give (`cpu="4"`, `gpu="2"` for the extended resource example.com/gpu)."""
    names = {"gpu": "example.com/gpu", "nic": "example.com/nic"}
    allocatable = {names.get(key, key): Quantity.parse(value) for key, value in amounts.items()}
    status = core_v1.NodeStatus(allocatable=allocatable, declared_features=features)
    return NodeInfo(core_v1.Node(metadata=ObjectMeta(name=name, labels=labels or {}), status=status))


def exactly(name: str = "r", count: int = 1, class_name: str = "gpu", *selectors: str, **more: Any) -> dict[str, Any]:
    """A request for devices of one class."""
    request = {"deviceClassName": class_name, "allocationMode": "ExactCount", "count": count, **more}
    if selectors:
        request["selectors"] = [{"cel": {"expression": expression}} for expression in selectors]
    return {"name": name, "exactly": request}


def either(name: str, *alternatives: tuple[str, str, int]) -> dict[str, Any]:
    """A prioritized list of (name, class, count)."""
    return {
        "name": name,
        "firstAvailable": [
            {"name": sub, "deviceClassName": class_name, "allocationMode": "ExactCount", "count": count}
            for sub, class_name, count in alternatives
        ],
    }


def claim(
    name: str,
    *requests: dict[str, Any],
    owner: str = "",
    version: int = 1,
    status: dict[str, Any] | None = None,
    **metadata: Any,
) -> api.ResourceClaim:
    """A claim; owner: the pod that it was made for."""
    known: dict[str, Any] = {
        "name": name,
        "namespace": NAMESPACE,
        "uid": f"uid-{name}",
        "resourceVersion": str(version),
    }
    if owner:
        known["ownerReferences"] = [pod_owner(owner)]
    spec = {"devices": {"requests": list(requests) or [exactly()]}}
    body = {"metadata": {**known, **metadata}, "spec": spec, "status": status or {}}
    return decode(body, api.ResourceClaim).object


def pod_owner(name: str) -> dict[str, Any]:
    """The reference to the pod that a claim was made for."""
    return {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": f"uid-{name}", "controller": True}


def allocation(*devices: str, node: str | None = "n1", pool: str = "", **more: Any) -> dict[str, Any]:
    """status.allocation: devices of the pool of the node, to be used there."""
    results = [{"request": "r", "driver": DRIVER, "pool": pool or node, "device": device, **more} for device in devices]
    found: dict[str, Any] = {"devices": {"results": results}}
    if node is not None:
        field = {"key": "metadata.name", "operator": "In", "values": [node]}
        found["nodeSelector"] = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    return found


def pod(name: str = "p", *claims: str, templates: dict[str, str | None] | None = None, **spec: Any) -> core_v1.Pod:
    """A pod with claims by name, and claims from templates (entry name -> name of the claim that was made)."""
    entries = [core_v1.PodResourceClaim(name=found, resource_claim_name=found) for found in claims]
    made = templates or {}
    entries += [core_v1.PodResourceClaim(name=entry, resource_claim_template_name="t") for entry in made]
    statuses = tuple(core_v1.PodResourceClaimStatus(name=e, resource_claim_name=c) for e, c in made.items())
    return core_v1.Pod(
        metadata=ObjectMeta(name=name, namespace=NAMESPACE, uid=f"uid-{name}"),
        spec=core_v1.PodSpec(resource_claims=tuple(entries), **spec),
        status=core_v1.PodStatus(resource_claim_statuses=statuses),
    )


def container(
    name: str, restart: str | None = None, limits: dict[str, str] | None = None, **requests: str
) -> core_v1.Container:
    """A container; `gpu` and `nic` are extended resources of example.com."""
    names = {"gpu": "example.com/gpu", "nic": "example.com/nic"}
    amounts = {names.get(key, key): Quantity.parse(value) for key, value in requests.items()}
    return core_v1.Container(
        name=name,
        restart_policy=restart,
        resources=core_v1.ResourceRequirements(
            requests=amounts, limits={key: Quantity.parse(value) for key, value in (limits or {}).items()}
        ),
    )


def pod_group(name: str, *entries: dict[str, Any], statuses: dict[str, str] | None = None) -> PodGroup:
    """A group with claims."""
    made = [{"name": entry, "resourceClaimName": found} for entry, found in (statuses or {}).items()]
    body = {
        "metadata": {"name": name, "namespace": NAMESPACE, "uid": f"uid-{name}"},
        "spec": {"schedulingPolicy": {"basic": {}}, "resourceClaims": list(entries)},
        "status": {"resourceClaimStatuses": made},
    }
    return decode(body, PodGroup).object


def gates(*names: str) -> FeatureGates:
    """The default gates and some more."""
    return DEFAULT_GATES.changed(enable=names)


def world(*nodes: str, devices: int = 2, enabled: FeatureGates = DEFAULT_GATES) -> Claims:
    """Nodes with so many devices each, and the class gpu."""
    claims = Claims(enabled)
    claims.put_class(device_class())
    for name in nodes:
        claims.put_slice(slice_of(name, gpus(devices)))
    return claims


def ask(claims: Claims, asked: core_v1.Pod, now: float = 0.0) -> ClaimFit:
    """The question of a pod that passes PreFilter."""
    fit = claims.fit(asked, now=now)
    assert isinstance(fit, ClaimFit), fit
    return fit


def place(claims: Claims, asked: core_v1.Pod, where: NodeInfo) -> Placement:
    """The pod on the node, assumed."""
    fit = ask(claims, asked)
    assert fit.quick(where) is None
    assert fit.exact(where) is None
    steps, extended, accounted = fit.steps(where)
    placement = Placement(pod=asked, node=where.name, claims=steps, extended=extended, node_allocatable=accounted)
    claims.assume(placement)
    return placement


def owner_reference(kind: str, name: str, api_version: str) -> OwnerReference:
    """A controller."""
    return OwnerReference(api_version=api_version, kind=kind, name=name, uid=f"uid-{name}", controller=True)
